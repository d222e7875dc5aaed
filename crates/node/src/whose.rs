//! Processes that a node does not move although their owner may ask: its own, guests (they are moved from their home), and those of
//! another node on the same machine.

use crate::daemon::Node;
use crate::moves::Refused;
use crate::owner::{Facts, is_guest_helper, is_pandos};
use crate::processes::{Known, Table};
use crate::views;
use pando_balance::Wish;
use pando_kernel::procfs;
use std::collections::BTreeSet;

/// From a guest's body to its helper: the body, the init of its sandbox, the helper.
const GENERATIONS: usize = 3;
/// From a process to the one that `pando run` started.
const FARTHEST: usize = 64;
/// Processes that are listed with their children, at most.
const MOST_LISTED: usize = 65_536;
/// How a testbed names itself and its nodes in the environment of all that is started there.
const TESTBED: &str = "PANDO_TESTBED_DIR";
pub const TESTBED_NODE: &str = "PANDO_TESTBED_NODE";

/// Is it the half of a process of another node that runs here? Its owner here is nobody's user, so this comes before any look at who asks.
pub fn is_no_guest(node: &Node, pid: u32) -> Result<(), Refused> {
    // The sandbox's init is a fork of the helper, and looks like it.
    match ancestors(pid).take(GENERATIONS).filter(|p| is_guest_helper(*p)).last() {
        Some(helper) if !is_pandos(pid) => Err(Refused::Conflict(guest(node, pid, helper))),
        _ => Ok(()),
    }
}

/// Where a guest is to be asked about.
fn guest(node: &Node, pid: u32, helper: u32) -> String {
    let of_it = |k: &&Known| k.view.role == "guest" && k.view.helper == Some(helper);
    let found = node.table().all().find(of_it).map(|k| (k.view.home.clone(), k.view.pid));
    if let Some((home, theirs)) = found {
        return format!(
            "process {pid} is how process {theirs} of node {home} runs here, a guest: ask and move at {home}, where it is process {theirs}"
        );
    }
    match procfs::variable(helper as i32, TESTBED_NODE) {
        Some(there) => format!(
            "process {pid} is a guest at node {there} of a testbed: `pando ps` there says what it is at its home"
        ),
        None => format!("process {pid} is a guest of another node on this machine: move it at its home"),
    }
}

/// Says of each process below which of the others it is.
pub fn place_under(all: &mut [views::Process]) {
    let homes: BTreeSet<u32> = all.iter().filter(|p| p.role == "home").map(|p| p.pid).collect();
    for p in all.iter_mut().filter(|p| p.role == "home") {
        p.under = ancestors(p.pid).find(|above| homes.contains(above)).unwrap_or(0);
    }
}

/// Adds those that live below processes at work of which this node is the home, and of which nobody has heard: they were never moved.
pub fn with_children(all: &mut Vec<views::Process>, me: &str) {
    let mut known: BTreeSet<u32> = all.iter().filter(|p| p.role == "home").map(|p| p.pid).collect();
    let mut line: Vec<u32> = all.iter().filter(|p| p.role == "home" && p.is_at_work()).map(|p| p.pid).collect();
    while let Some(above) = line.pop() {
        for pid in procfs::children(above as i32).into_iter().map(i32::unsigned_abs) {
            if all.len() >= MOST_LISTED || !known.insert(pid) || is_pandos(pid) {
                continue;
            }
            let Ok(facts) = Facts::read(pid) else { continue };
            line.push(pid);
            if !facts.zombie {
                all.push(facts.at_home(pid, me));
            }
        }
    }
}

/// From its parent up.
fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &i32| procfs::parent(*pid).filter(|p| *p > 1);
    std::iter::successors(parent(&(pid as i32)), parent).take(FARTHEST).map(i32::unsigned_abs)
}

/// What its user said of the program under which it began holds for this process, too, unless something was said of itself.
pub fn inherits(node: &Node, pid: u32) {
    let above: Vec<u32> = ancestors(pid).collect();
    let mut table = node.table();
    let said = |table: &Table, pid: u32| {
        table.get(&table.local(pid)).map(|k| k.wish.clone()).filter(|wish| *wish != Wish::default())
    };
    if said(&table, pid).is_none()
        && let Some(wish) = above.iter().find_map(|p| said(&table, *p))
    {
        let key = table.local(pid);
        table.wishes(&key, wish.of_children());
    }
}

/// Pando moves programs, not itself, and each from its own home.
pub fn may_be_moved_here(node: &Node, pid: u32) -> Result<(), Refused> {
    if is_pandos(pid) {
        return Err(Refused::Conflict(format!("process {pid} is part of Pando itself: programs move, it stays")));
    }
    let of = |name: &str| procfs::variable(pid as i32, name);
    let testbed = std::env::var(TESTBED).ok();
    let same = testbed.is_some() && of(TESTBED) == testbed;
    match of(TESTBED_NODE).filter(|there| same && *there != node.name()) {
        Some(there) => Err(Refused::Conflict(format!(
            "process {pid} was started at node {there} of this testbed: ask there (pando testbed exec {there} -- pando ...)"
        ))),
        None => Ok(()),
    }
}
