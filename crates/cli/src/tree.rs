//! `pando ps --tree`: who was started by whom, drawn as pstree(1) and ps(1) do. Pure.

use pando_node::views::Process;
use std::collections::BTreeSet;

/// Lines for [`grow`]: of one that has others after it, of the last one, and of what is below either.
const BRANCH: &str = "├─ ";
const LAST: &str = "└─ ";
const PAST_BRANCH: &str = "│  ";
const PAST_LAST: &str = "   ";

/// All of them, those below a process right after it, each with what is drawn before its command. Where nothing is at work, nothing grows
/// unless `idle` does, too.
pub fn grow<'a>(all: &[&'a Process], idle: bool) -> Vec<(String, &'a Process)> {
    // A guest's number is one of another node.
    let homes: BTreeSet<u32> = all.iter().filter(|p| p.role == "home").map(|p| p.pid).collect();
    let is_root = |p: &&&Process| p.role != "home" || !homes.contains(&p.under) || p.under == p.pid;
    let mut grown = Vec::new();
    for root in all.iter().filter(is_root).filter(|p| idle || p.is_at_work()) {
        grown.push((String::new(), *root));
        if root.role == "home" {
            below(all, root.pid, "", &mut grown);
        }
    }
    grown
}

fn below<'a>(all: &[&'a Process], pid: u32, before: &str, grown: &mut Vec<(String, &'a Process)>) {
    let children: Vec<&&Process> = all.iter().filter(|p| p.role == "home" && p.under == pid && p.pid != pid).collect();
    for (i, child) in children.iter().enumerate() {
        let (this, next) = if i + 1 == children.len() { (LAST, PAST_LAST) } else { (BRANCH, PAST_BRANCH) };
        grown.push((format!("{before}{this}"), **child));
        below(all, child.pid, &format!("{before}{next}"), grown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_drawn_and_nobody_is_left_out() {
        let p = |pid: u32, under: u32, role: &str| {
            let phase = if role == "home" { "home" } else { "away" };
            Process { pid, under, role: role.into(), phase: phase.into(), ..Process::default() }
        };
        let all = [p(10, 0, "home"), p(11, 10, "home"), p(12, 11, "home"), p(13, 10, "home"), p(10, 0, "guest")];
        let refs: Vec<&Process> = all.iter().collect();
        let drawn: Vec<(String, u32)> = grow(&refs, true).into_iter().map(|(b, p)| (b, p.pid)).collect();
        let expected = [("", 10), ("├─ ", 11), ("│  └─ ", 12), ("└─ ", 13), ("", 10)];
        assert_eq!(drawn, expected.map(|(b, pid)| (b.to_owned(), pid)));
        let drawn: Vec<u32> = grow(&refs, false).into_iter().map(|(_, p)| p.pid).collect();
        assert_eq!(drawn, [10], "at home, never moved, and not started by us: only the guest is at work");
    }
}
