//! Which node is best for a process that somebody wants elsewhere, or that is about to begin: the rule of first placement
//! (crates/balance) with what is known here.

use crate::daemon::Node;
use pando_balance::{Other, Process, Standing, Vector, place};

/// The node other than `here` where `process` gets most done, and why; or why there is none. `note`: it goes there now, and counts there
/// from now on, so that many that begin at once do not all meet at one place.
pub fn best(node: &Node, here: &str, process: &Process, note: bool) -> Result<(String, String), String> {
    let mut others = node.balancing.others(node);
    let me = node.name();
    if here != me {
        others.retain(|o| o.name != here);
        others.push(Other { name: me, age_ms: 0, load: node.vector() });
    }
    // Nothing is worse than where it is to leave.
    let nowhere = Vector { cpus_milli: 0, ..Vector::default() };
    let known = others.clone();
    let placed = place((here, &nowhere), process, &mut others, &node.config.balance);
    let Some(to) = known.iter().find(|o| o.name == placed.node) else {
        return Err(nobody(process, &known));
    };
    if note {
        node.balancing.sent(&to.name, process, process.will_need(&node.config.balance));
    }
    Ok((to.name.clone(), told(&to.load)))
}

/// The node that is clearly better than this one for a process that runs here, if there is one. It counts there from now on.
pub fn better(node: &Node, process: &Process) -> Option<String> {
    let mut others = node.balancing.others(node);
    let without_it = node.vector().with_demand(-i64::from(process.demand_milli));
    let placed = place((&node.name(), &without_it), process, &mut others, &node.config.balance);
    let elsewhere = placed.node != node.name();
    if elsewhere {
        node.balancing.sent(&placed.node, process, process.will_need(&node.config.balance));
    }
    elsewhere.then_some(placed.node)
}

/// Why none of them will do.
fn nobody(process: &Process, others: &[Other]) -> String {
    let named = |o: &&Other| process.wish.nodes.as_ref().is_none_or(|all| all.contains(&o.name));
    let apart = |o: &&Other| !process.not.contains(&o.name);
    let open = |o: &&Other| o.load.standing == Standing::Open;
    let some = |fits: &dyn Fn(&&Other) -> bool| others.iter().any(|o| fits(&o));
    match () {
        () if process.wish.home_only => "its user wants it at home (--home-only)".into(),
        () if others.is_empty() => "no other node is up: `pando nodes` shows who is there".into(),
        () if !some(&named) => "none of the nodes that its user named is up (--nodes)".into(),
        () if !some(&|o| named(o) && apart(o)) => {
            "one from which it is to be apart is at each other node (--apart)".into()
        }
        () if !some(&|o| named(o) && apart(o) && open(o)) => {
            "the others take no guests now: `pando nodes` shows which are drained, full, or their owners'".into()
        }
        () => format!("no other node has {} MB for it and enough left: see `pando nodes`", process.needs() >> 20),
    }
}

/// For people.
fn told(load: &Vector) -> String {
    let counted = |n: u32, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let cpus = f64::from(load.cpus_milli) / 1000.0;
    let cpus = if cpus == 1.0 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
    let runnable = f64::from(load.runnable_milli) / 1000.0;
    let gangs = match load.reserved_milli {
        0 => String::new(),
        milli => format!(" ({} held by gangs)", f64::from(milli) / 1000.0),
    };
    format!("{runnable:.1} runnable on {cpus}{gangs}, {}, {} MB free", counted(load.guests, "guest"), load.free >> 20)
}
