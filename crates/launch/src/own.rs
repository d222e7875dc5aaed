//! Where the ranks of a step run that shares its CPUs with no other step of its batch job (`srun --exclusive`).

use crate::plan::Request;

/// Nodes, and how many ranks each runs. `used`: CPUs of a node that other such steps have. None: not as things are; never, if nobody has any.
pub fn own(request: &Request, used: impl Fn(&str) -> u32) -> Option<Vec<(String, u32)>> {
    let each = u32::from(request.cpus.unwrap_or(1)).max(1);
    let may =
        |name: &String| (request.among.is_empty() || request.among.contains(name)) && !request.exclude.contains(name);
    let room = request.exclusive.iter().filter(|(name, _)| may(name));
    let mut room: Vec<(&String, u32)> = room
        .map(|(name, cpus)| (name, cpus.saturating_sub(used(name)) / each))
        .filter(|(_, ranks)| *ranks > 0)
        .collect();
    if let Some(most) = request.per_node {
        let nodes = request.nodes.or(request.ranks.map(|ranks| ranks.div_ceil(most.max(1)))).unwrap_or(1);
        let ranks = request.ranks.unwrap_or(most.saturating_mul(nodes));
        room.retain(|(_, ranks)| *ranks >= most.min(request.ranks.unwrap_or(most)));
        room.iter_mut().for_each(|(_, ranks)| *ranks = (*ranks).min(most));
        return fill(&room, ranks, Some(nodes));
    }
    fill(&room, request.ranks.or(request.nodes).unwrap_or(1), request.nodes)
}

/// One after the other, where nothing is said of nodes; otherwise each of so many has one at least, those with the most room first.
fn fill(room: &[(&String, u32)], ranks: u32, nodes: Option<u32>) -> Option<Vec<(String, u32)>> {
    let mut all = room.to_vec();
    let mut least = 0;
    if let Some(nodes) = nodes {
        all.sort_by_key(|(_, room)| std::cmp::Reverse(*room));
        all.truncate(nodes as usize);
        least = 1;
        if all.len() < nodes as usize || ranks < nodes {
            return None;
        }
    }
    let mut left = ranks - least * all.len() as u32;
    let mut seats = Vec::new();
    for (name, room) in all {
        let more = left.min(room - least);
        left -= more;
        seats.push((name.clone(), least + more));
    }
    seats.retain(|(_, ranks)| *ranks > 0);
    (left == 0 && !seats.is_empty()).then_some(seats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::request;

    #[test]
    fn no_cpu_is_given_twice() {
        let of = |ranks, nodes, per_node, cpus| Request {
            exclusive: vec![("a".into(), 4), ("b".into(), 2)],
            ranks,
            nodes,
            per_node,
            cpus,
            ..request()
        };
        let shown = |request: &Request, used: u32| {
            let seats = own(request, |name| if name == "a" { used } else { 0 })?;
            Some(seats.iter().map(|(name, ranks)| format!("{name}{ranks}")).collect::<Vec<_>>().join(" "))
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&of(Some(3), None, None, None), 0), is("a3"));
        assert_eq!(shown(&of(Some(3), None, None, None), 3), is("a1 b2"));
        assert_eq!(shown(&of(Some(3), None, None, None), 4), None);
        assert_eq!(shown(&of(Some(3), Some(2), None, None), 0), is("a2 b1"));
        assert_eq!(shown(&of(Some(3), Some(2), None, None), 4), None);
        assert_eq!(shown(&of(Some(3), None, None, Some(2)), 0), is("a2 b1"));
        assert_eq!(shown(&of(Some(4), None, None, Some(2)), 0), None);
        assert_eq!(shown(&of(None, Some(2), Some(2), None), 0), is("a2 b2"));
        assert_eq!(shown(&of(Some(3), None, Some(2), None), 0), is("a2 b1"));
        assert_eq!(shown(&of(Some(1), None, None, None), 4), is("b1"));
        let only = Request { among: vec!["a".into()], ..of(Some(5), None, None, None) };
        assert_eq!(own(&only, |_| 0), None);
    }
}
