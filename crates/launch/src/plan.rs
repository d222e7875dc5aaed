//! Which nodes a job gets, and which ranks each of them runs.

use crate::order::{Share, Stdin, Task};
use crate::parcel::{Need, Parcel};
use serde::{Deserialize, Serialize};

/// What programs are to find each other through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mpi {
    /// What the program's libraries want: PMIx for Open MPI's, PMI-1 for all others.
    #[default]
    Auto,
    /// PMI-1.
    Pmi1,
    /// PMIx.
    Pmix,
    /// Nothing.
    None,
}

/// What the user wants to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Ranks in all (`-n`).
    pub ranks: Option<u32>,
    /// Nodes (`-N`).
    pub nodes: Option<u32>,
    /// Ranks of each node.
    pub per_node: Option<u32>,
    /// CPUs of each rank, its own while it runs (`-c`).
    pub cpus: Option<u16>,
    /// Only these nodes.
    pub among: Vec<String>,
    /// None of these.
    pub exclude: Vec<String>,
    /// So many ranks at these nodes, one after the other; empty: as it comes.
    pub slots: Vec<(String, u32)>,
    /// More than that, if there are more.
    pub oversubscribe: bool,
    /// The program.
    pub task: Task,
    /// Who gets standard input.
    pub stdin: Stdin,
    /// The first rank has a terminal of this size (rows, columns) of its own.
    pub terminal: Option<(u16, u16)>,
    /// One rank that ends badly ends the job.
    pub kill_on_bad: bool,
    /// What its user calls it.
    pub name: String,
    /// Milliseconds that it may run; of a pool, that each task may.
    pub time_ms: Option<u64>,
    /// Milliseconds between asking the others to end and ending them.
    pub grace_ms: u64,
    /// Ranks are stopped before they begin.
    pub hold: bool,
    /// Slots for tasks, and not ranks; as many as there are CPUs, if nothing is said.
    pub pool: bool,
    /// Files that go along.
    pub files: Vec<Parcel>,
    /// What its nodes are to have themselves.
    pub needs: Vec<Need>,
    /// What they are to find each other through.
    pub mpi: Mpi,
    /// Its CPUs may be those of other gangs, too, which run by turns.
    pub gang: Turns,
    /// A step of a batch job, whose CPUs no other such step of it is to have: what the batch job has of each of its nodes. Empty: it shares them.
    pub exclusive: Vec<(String, u32)>,
    /// Megabytes that its ranks may have at each node; 0: as the node has it.
    pub memory_mb: u64,
    /// The quality of service that says above whom it is among gangs.
    pub quality: Option<String>,
}

/// Is a job to share CPUs by turns?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turns {
    /// No.
    #[default]
    No,
    /// If it fits into the matrix; otherwise it runs as any other job.
    IfItFits,
    /// Yes, or not at all.
    Yes,
}

/// A node that takes ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub node: String,
    /// CPUs, thousandths.
    pub cpus_milli: u32,
    /// Threads that want to run there, thousandths.
    pub runnable_milli: u32,
    /// The user's command runs there.
    pub is_here: bool,
}

/// More of them are a mistake, and fill the machine's table of processes.
const RANKS_PER_CPU: u32 = 256;
/// Loads that differ by less than this part of a CPU for each CPU are the same: nobody is quite idle.
const STEP_MILLI: u32 = 250;

impl Candidate {
    fn busy(&self) -> u32 {
        let per_cpu = u64::from(self.runnable_milli) * 1000 / u64::from(self.cpus_milli.max(1));
        (per_cpu / u64::from(STEP_MILLI)).min(u64::from(u32::MAX)) as u32
    }

    /// Ranks that have CPUs of their own there; at least one may run.
    fn capacity(&self, cpus: u16) -> u32 {
        (self.cpus_milli / 1000 / u32::from(cpus.max(1))).max(1)
    }
}

/// Names as people count: n2 comes before n10.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - text);
        let number = rest[text..text + digits].parse().unwrap_or(u64::MAX);
        parts.push((rest[..text].to_owned(), number));
        rest = &rest[text + digits..];
    }
    parts
}

/// Nodes and ranks, in the order of ranks. `here`: the node that is the head, which is first even if it has no ranks. The error is for people.
pub fn plan(request: &Request, all: &[Candidate], here: &str) -> Result<Vec<Share>, String> {
    if request.ranks == Some(0) || request.per_node == Some(0) {
        return Err("a job has a rank at least (-n)".into());
    }
    let most = all.iter().map(|c| c.cpus_milli / 1000).max().unwrap_or(0);
    match request.cpus {
        Some(0) => return Err("a rank has a CPU at least (-c)".into()),
        Some(cpus) if u32::from(cpus) > most => {
            return Err(format!("no node has {cpus} CPUs (-c): the largest has {most}"));
        }
        _ => {}
    }
    let mut free: Vec<&Candidate> = all.iter().collect();
    free.retain(|c| !request.exclude.contains(&c.node));
    if !request.among.is_empty() {
        if let Some(stranger) = request.among.iter().find(|n| !all.iter().any(|c| c.node == **n)) {
            return Err(format!("node {stranger} takes no ranks: see `pando nodes`"));
        }
        free.retain(|c| request.among.contains(&c.node));
    }
    if free.is_empty() {
        return Err("no node is left that takes ranks: see `pando nodes`, --nodelist and --exclude".into());
    }
    if !request.slots.is_empty() {
        return by_slots(request, &free, here).and_then(|shares| within_reason(shares, &free));
    }
    free.sort_by_key(|c| (c.busy(), !c.is_here, natural(&c.node)));
    let (per_node, cpus) = (request.per_node, request.cpus.unwrap_or(1));
    let by_ranks = |ranks: u32| per_node.map(|p| ranks.div_ceil(p));
    let fixed = request.nodes.or(request.ranks.and_then(by_ranks));
    let fixed = fixed.or((!request.among.is_empty() || request.pool).then_some(free.len() as u32));
    let count = match fixed {
        Some(0) => return Err("a job needs a node at least (-N)".into()),
        Some(count) => count as usize,
        None => {
            let mut room = 0;
            let enough = |c: &&Candidate| {
                room += c.capacity(cpus);
                room >= request.ranks.unwrap_or(1)
            };
            free.iter().position(enough).map_or(free.len(), |last| last + 1)
        }
    };
    if count > free.len() || count == 0 {
        let names: Vec<&str> = free.iter().take(8).map(|c| c.node.as_str()).collect();
        let names = if free.len() > 8 { format!("{}, ...", names.join(", ")) } else { names.join(", ") };
        return Err(format!("{count} nodes are wanted, {} take ranks ({names}): see `pando nodes`", free.len()));
    }
    free.truncate(count);
    if request.pool && per_node.is_none() && request.ranks.is_none() {
        free.sort_by_key(|c| natural(&c.node));
        let ranks = free.iter().map(|c| c.capacity(cpus)).sum();
        return Ok(shares(&free, ranks, false, cpus, here));
    }
    let ranks = request.ranks.unwrap_or(per_node.unwrap_or(1).saturating_mul(count as u32));
    if (ranks as usize) < count {
        return Err(format!("{ranks} ranks can't be on {count} nodes: say -N {ranks} or less"));
    }
    if let Some(most) = per_node.filter(|p| u64::from(*p) * (count as u64) < u64::from(ranks)) {
        return Err(format!("{ranks} ranks on {count} nodes are more than {most} for each"));
    }
    free.sort_by_key(|c| natural(&c.node));
    within_reason(shares(&free, ranks, fixed.is_some(), cpus, here), &free)
}

/// Who mistypes a number does not fill the machines.
fn within_reason(shares: Vec<Share>, nodes: &[&Candidate]) -> Result<Vec<Share>, String> {
    for share in &shares {
        let cpus = nodes.iter().find(|c| c.node == share.node).map_or(1, |c| c.cpus_milli.div_ceil(1000).max(1));
        if share.ranks > cpus.saturating_mul(RANKS_PER_CPU) {
            let (node, ranks) = (&share.node, share.ranks);
            return Err(format!(
                "node {node} would run {ranks} ranks on {cpus} CPUs; {RANKS_PER_CPU} for each are the limit"
            ));
        }
    }
    Ok(shares)
}

/// As a list of nodes with slots has it: each is filled before the next one.
fn by_slots(request: &Request, free: &[&Candidate], here: &str) -> Result<Vec<Share>, String> {
    let excluded = |node: &String| request.exclude.contains(node);
    let mut slots: Vec<(&str, u32)> =
        request.slots.iter().filter(|(n, _)| !excluded(n)).map(|(n, s)| (n.as_str(), *s)).collect();
    if let Some((stranger, _)) = slots.iter().find(|(n, _)| !free.iter().any(|c| c.node == *n)) {
        return Err(format!("node {stranger} takes no ranks: see `pando nodes`"));
    }
    let names: std::collections::BTreeSet<&str> = slots.iter().map(|(n, _)| *n).collect();
    if names.len() < slots.len() || slots.is_empty() {
        return Err("a list of nodes with slots names each once, and one at least".into());
    }
    if let Some(count) = request.nodes.map(|count| count as usize) {
        if count > slots.len() || count == 0 {
            return Err(format!("{count} nodes are wanted (-N), and the list has {}", slots.len()));
        }
        slots.truncate(count);
    }
    slots.iter_mut().for_each(|(_, s)| *s = request.per_node.unwrap_or(*s).min(*s));
    let room: u64 = slots.iter().map(|(_, s)| u64::from(*s)).sum();
    let ranks = request.ranks.unwrap_or(room.min(u64::from(u32::MAX)) as u32);
    if ranks == 0 || u64::from(ranks) > room && !request.oversubscribe {
        return Err(format!("{ranks} ranks are wanted, and the list has {room} slots: --oversubscribe allows more"));
    }
    let beyond = u64::from(ranks).saturating_sub(room) as u32;
    let (each, more) = (beyond / slots.len() as u32, beyond % slots.len() as u32);
    let (mut first, mut shares) = (0, Vec::new());
    for (i, (node, slots)) in slots.into_iter().enumerate() {
        let take = if beyond > 0 { slots + each + u32::from((i as u32) < more) } else { slots.min(ranks - first) };
        if take > 0 {
            shares.push(Share { node: node.to_owned(), first, ranks: take });
            first += take;
        }
    }
    Ok(with_head(shares, here))
}

/// Evenly where the user has said how many nodes or where there are more ranks than CPUs; otherwise nodes are filled one after the other.
fn shares(nodes: &[&Candidate], ranks: u32, evenly: bool, cpus: u16, here: &str) -> Vec<Share> {
    let room: u64 = nodes.iter().map(|c| u64::from(c.capacity(cpus))).sum();
    let (each, more) = (ranks / nodes.len() as u32, ranks % nodes.len() as u32);
    let (mut first, mut shares) = (0, Vec::new());
    for (i, node) in nodes.iter().enumerate() {
        let even = each + u32::from((i as u32) < more);
        // One for each of those that follow.
        let left = ranks - first - (nodes.len() - 1 - i) as u32;
        let take = if evenly || room < u64::from(ranks) { even } else { node.capacity(cpus).min(left) };
        shares.push(Share { node: node.node.clone(), first, ranks: take });
        first += take;
    }
    with_head(shares, here)
}

/// The head is first, even if it has no ranks.
fn with_head(mut shares: Vec<Share>, here: &str) -> Vec<Share> {
    let head = match shares.iter().position(|s| s.node == here) {
        Some(at) => shares.remove(at),
        None => Share { node: here.to_owned(), first: 0, ranks: 0 },
    };
    shares.insert(0, head);
    shares
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bolero::check;

    pub(crate) fn request() -> Request {
        Request {
            ranks: None,
            nodes: None,
            per_node: None,
            cpus: None,
            among: Vec::new(),
            exclude: Vec::new(),
            slots: Vec::new(),
            oversubscribe: false,
            name: String::new(),
            time_ms: None,
            task: Task::default(),
            stdin: Stdin::None,
            terminal: None,
            kill_on_bad: true,
            grace_ms: 0,
            hold: false,
            pool: false,
            files: Vec::new(),
            needs: Vec::new(),
            mpi: Mpi::Auto,
            gang: Turns::No,
            exclusive: Vec::new(),
            memory_mb: 0,
            quality: None,
        }
    }

    fn node(number: u32, cpus: u32, runnable: u32) -> Candidate {
        let (cpus_milli, runnable_milli) = (cpus * 1000, runnable);
        Candidate { node: format!("n{number}"), cpus_milli, runnable_milli, is_here: number == 1 }
    }

    fn planned(request: &Request, all: &[Candidate]) -> Vec<(String, u32, u32)> {
        let mut shares = plan(request, all, "n1").unwrap();
        shares.sort_by_key(|s| (s.ranks > 0, s.first));
        shares.into_iter().map(|s| (s.node, s.first, s.ranks)).collect()
    }

    #[test]
    fn ranks_are_where_the_user_wants_them() {
        let all: Vec<Candidate> = (1..=12).map(|i| node(i, 2, 10)).collect();
        let names = |p: &[(String, u32, u32)]| p.iter().map(|s| s.0.clone()).collect::<Vec<_>>().join(" ");
        let p = planned(&Request { nodes: Some(11), ranks: Some(24), ..request() }, &all);
        assert_eq!((names(&p[..3]), p[0].2, p[10].2, p[10].1), ("n1 n2 n3".into(), 3, 2, 22));
        assert_eq!(p[9].0, "n10", "n2 comes before n10");
        let p = planned(&Request { ranks: Some(3), ..request() }, &all);
        assert_eq!(p, [("n1".into(), 0, 2), ("n2".into(), 2, 1)], "one node after the other");
        let p = planned(&Request { ranks: Some(4), cpus: Some(2), ..request() }, &all);
        assert_eq!(p.len(), 4);
        let p = planned(&Request { ranks: Some(48), ..request() }, &all);
        assert!(p.len() == 12 && p.iter().all(|s| s.2 == 4), "more ranks than CPUs");
        let p = planned(&Request { ranks: Some(5), per_node: Some(2), ..request() }, &all);
        assert_eq!(p.iter().map(|s| s.2).collect::<Vec<_>>(), [2, 2, 1]);
        let p = planned(&Request { nodes: Some(2), per_node: Some(3), ..request() }, &all);
        assert_eq!(p.iter().map(|s| s.2).collect::<Vec<_>>(), [3, 3]);
        let among = vec!["n7".into(), "n3".into()];
        let p = planned(&Request { among, ..request() }, &all);
        assert_eq!(p, [("n1".into(), 0, 0), ("n3".into(), 0, 1), ("n7".into(), 1, 1)], "the head has none");
        let p = planned(
            &Request { exclude: vec!["n1".into(), "n3".into(), "x".into()], ranks: Some(3), ..request() },
            &all,
        );
        assert_eq!(names(&p), "n1 n2 n4", "the head has none");
        let refused = |r: Request| plan(&r, &all, "n1").unwrap_err();
        assert!(refused(Request { nodes: Some(13), ..request() }).contains("12 take ranks"));
        assert!(refused(Request { nodes: Some(3), ranks: Some(2), ..request() }).contains("-N 2"));
        let (among, exclude) = (vec!["n7".into()], vec!["n7".into()]);
        assert!(refused(Request { among, exclude, ..request() }).contains("no node is left"));
        assert!(refused(Request { among: vec!["n99".into()], ..request() }).contains("n99"));
    }

    #[test]
    fn a_list_with_slots_is_filled_in_its_order() {
        let all: Vec<Candidate> = (1..=4).map(|i| node(i, 2, 10)).collect();
        let slots = || vec![("n3".to_owned(), 2), ("n2".to_owned(), 1), ("n1".to_owned(), 4)];
        let of = |ranks, oversubscribe| Request { slots: slots(), ranks, oversubscribe, ..request() };
        let n = |name: &str, first, ranks| (name.to_owned(), first, ranks);
        assert_eq!(planned(&of(None, false), &all), [n("n3", 0, 2), n("n2", 2, 1), n("n1", 3, 4)]);
        assert_eq!(planned(&of(Some(3), false), &all), [n("n1", 0, 0), n("n3", 0, 2), n("n2", 2, 1)]);
        assert_eq!(planned(&of(Some(11), true), &all), [n("n3", 0, 4), n("n2", 4, 2), n("n1", 6, 5)]);
        let refused = |r: Request| plan(&r, &all, "n1").unwrap_err();
        assert!(refused(of(Some(8), false)).contains("7 slots: --oversubscribe"));
        assert!(refused(Request { nodes: Some(4), ..of(None, false) }).contains("the list has 3"));
        let list = Request { slots: vec![("n9".into(), 1)], ..request() };
        assert!(refused(list).contains("n9"));
        let exclude = vec!["n1".into(), "n2".into(), "n3".into()];
        assert!(refused(Request { exclude, ..of(Some(2), true) }).contains("one at least"));
        assert!(refused(Request { slots: [slots(), slots()].concat(), ..request() }).contains("each once"));
        let p = planned(&Request { exclude: vec!["n3".into()], per_node: Some(1), ..of(None, false) }, &all);
        assert_eq!(p, [n("n2", 0, 1), n("n1", 1, 1)]);
    }

    #[test]
    fn the_idle_ones_come_first() {
        let all = [node(1, 2, 2000), node(2, 2, 0), node(3, 2, 100)];
        assert_eq!(
            planned(&Request { nodes: Some(2), ..request() }, &all)[1..],
            [("n2".into(), 0, 1), ("n3".into(), 1, 1)]
        );
    }

    #[test]
    fn all_ranks_have_a_place_and_every_node_but_the_head_has_one() {
        check!().with_type::<(Vec<(u8, u8)>, Option<u8>, Option<u8>, Option<u8>, u8)>().for_each(
            |(nodes, ranks, count, per_node, cpus)| {
                let all: Vec<Candidate> = (1..).zip(nodes).map(|(i, n)| node(i, n.0.into(), n.1.into())).collect();
                let some = |n: &Option<u8>| n.map(u32::from);
                let request = Request {
                    ranks: some(ranks),
                    nodes: some(count),
                    per_node: some(per_node),
                    cpus: Some(u16::from(*cpus % 4)),
                    ..request()
                };
                let Ok(shares) = plan(&request, &all, "n1") else { return };
                let order = crate::Order { nodes: shares, ..crate::order::tests::order(1, 1, 2, true) };
                let order = crate::Order { stdin: Stdin::None, ..order };
                if order.size() > 0 {
                    assert_eq!(order.check(), Ok(()));
                }
                assert!(request.ranks.is_none_or(|r| r == order.size()));
            },
        );
    }
}
