//! Which node is best for a process that leaves `here`: the least loaded that lives. Pure.

use crate::views::{Liveness, Node};

/// The least loaded live node other than `here`, and why; or why there is none.
pub fn best(nodes: &[Node], here: &str) -> Result<(String, String), String> {
    let live = nodes.iter().filter(|n| n.state == Liveness::Up && n.name != here);
    let chosen = live.min_by(|a, b| load(a).total_cmp(&load(b)).then_with(|| b.free.cmp(&a.free)));
    let chosen = chosen.ok_or_else(|| "no other node is up: `pando nodes` shows who is there".to_owned())?;
    let counted = |n: u32, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let (cpus, guests) = (counted(chosen.cpus, "CPU"), counted(chosen.guests, "guest"));
    let why = format!("{:.1} runnable on {cpus}, {guests}, {} MB free", chosen.runnable, chosen.free >> 20);
    Ok((chosen.name.clone(), why))
}

/// The least loaded live node if it has clearly more room than `home`, where the process that would go is one of those that run.
pub fn better(nodes: &[Node], home: &str) -> Option<String> {
    let here = nodes.iter().find(|n| n.name == home)?;
    let (name, _) = best(nodes, home).ok()?;
    let there = nodes.iter().find(|n| n.name == name)?;
    let without_it = Node { runnable: (here.runnable - 1.0).max(0.0), ..here.clone() };
    let room = 0.5 / f64::from(here.cpus.max(1));
    (load(there) + room <= load(&without_it)).then_some(name)
}

/// Guests count a little beyond the threads they run: one that just arrived does not show in a smoothed figure yet.
fn load(node: &Node) -> f64 {
    (node.runnable + 0.5 * f64::from(node.guests)) / f64::from(node.cpus.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, runnable: f64, guests: u32, state: Liveness) -> Node {
        let (addr, heard_ms) = (String::new(), None);
        let (cpus, memory, free) = (2, 0, 0);
        Node { name: name.into(), addr, state, here: false, heard_ms, cpus, runnable, memory, free, guests }
    }

    #[test]
    fn who_runs_alone_at_home_has_no_better_place() {
        let mut nodes = [node("n1", 1.0, 0, Liveness::Up), node("n2", 0.0, 0, Liveness::Up)];
        assert_eq!(better(&nodes, "n1"), None);
        nodes[0].runnable = 4.0;
        assert_eq!(better(&nodes, "n1").unwrap(), "n2");
        nodes[1].runnable = 3.0;
        assert_eq!(better(&nodes, "n1"), None);
    }

    #[test]
    fn the_least_loaded_live_other_node() {
        let nodes = [
            node("n1", 0.0, 0, Liveness::Up),
            node("n2", 0.0, 0, Liveness::Down),
            node("n3", 3.0, 0, Liveness::Up),
            node("n4", 1.0, 2, Liveness::Up),
        ];
        assert_eq!(best(&nodes, "n1").unwrap().0, "n4");
        assert_eq!(best(&nodes, "n4").unwrap().0, "n1");
        assert!(best(&nodes[..2], "n1").unwrap_err().contains("pando nodes"));
    }
}
