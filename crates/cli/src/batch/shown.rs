//! What people see of the queue.

use super::format::say;
use super::{ask, now};
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Line, Shown};
use pando_queue::{Id, State, times};

/// A line for people, of what users and nodes have said.
macro_rules! line {
    ($($text:tt)*) => { say(&format!($($text)*)) };
}

/// `12:05`, `1-00:00:00`
pub fn span(ms: u64) -> String {
    times::show(Some(ms))
}

/// `pando queue`.
pub fn queue(lines: &[Line], no_header: bool) {
    let row = |l: &Line| {
        vec![
            l.id.clone(),
            l.partition.clone(),
            l.name.clone(),
            l.user.clone(),
            l.state.names().1.to_owned(),
            span(l.ran_ms),
            l.node_count.to_string(),
            l.cpus.to_string(),
            super::list::place(l),
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let names = ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "CPUS", "NODELIST(REASON)"];
    match no_header {
        true => rows.iter().for_each(|row| say(&row.join(" "))),
        false => print_table(&names, &rows, usize::MAX),
    }
}

/// `pando info`: all of a job, and what it waits for.
pub fn info(client: &Client, id: Id, json: bool) -> Result<(), String> {
    let all: Shown = ask(client, &Ask::Show(id))?;
    if json {
        return print_json(&all);
    }
    let (job, spec) = (&all.job, &all.job.spec);
    let now = now().0;
    let at = |ms: u64| crate::events::local(ms);
    line!("job        {id}: {}", spec.name);
    line!("user       {} (account {})", spec.user, spec.account);
    line!("state      {}", all.state.names().0);
    if let Some(why) = &all.why {
        line!("waits      {why}");
    }
    if let Some(why) = &all.last_failure {
        line!("last time  {why}");
    }
    if let Some((priority, ahead)) = all.priority {
        line!("priority   {priority:.0}, {ahead} jobs have more");
    }
    match all.expected {
        Some(when) if when <= now => line!("starts     with the next pass"),
        Some(when) => line!("starts     {} at the latest, as things are", at(when)),
        None => {}
    }
    line!("submitted  {}", at(job.submitted));
    line!("time       {} at most", times::show(spec.limit_ms));
    if let Some(when) = all.ends {
        line!("ends       {} at the latest", at(when));
    }
    for (task, run) in &job.running {
        let nodes: Vec<String> = run.shares.iter().map(|s| format!("{} ({} CPUs)", s.node, s.cpus)).collect();
        line!("runs       {} on {} for {}", job.name_of(*task), nodes.join(", "), span(run.ran(now)));
    }
    for (state, tasks) in &job.over {
        line!("over       {} {}", tasks.len(), state.names().0);
    }
    line!("directory  {}", String::from_utf8_lossy(&spec.directory.0));
    line!("queue      kept at {}", all.keeper);
    Ok(())
}

/// `pando explain`: what it waits for, and when it is expected to start.
pub fn explain(client: &Client, id: Id, json: bool) -> Result<(), String> {
    let all: Shown = ask(client, &Ask::Show(id))?;
    if json {
        return print_json(&all);
    }
    line!("job {id} of {}: {}", all.job.spec.user, all.job.spec.name);
    let state = all.state.names().0.to_lowercase();
    match &all.why {
        Some(why) => line!("  {state}: {why}"),
        None => line!("  {state}"),
    }
    if let Some(why) = &all.last_failure {
        line!("  last time: {why}");
    }
    if let Some((priority, ahead)) = all.priority {
        line!("  {ahead} jobs come before it (its priority is {priority:.0})");
    }
    let at = |ms: u64| crate::events::local(ms);
    match (all.expected, all.ends) {
        (Some(when), _) if when <= now().0 => line!("  starts with the next pass"),
        (Some(when), _) => line!("  starts {} at the latest, as things are", at(when)),
        (None, Some(when)) => line!("  ends {} at the latest", at(when)),
        (None, None) if all.state == State::Pending => line!("  nobody knows when it starts"),
        (None, None) => {}
    }
    for (task, run) in &all.job.running {
        let nodes: Vec<&str> = run.shares.iter().map(|s| s.node.as_str()).collect();
        line!("  {} runs on {} for {}", all.job.name_of(*task), nodes.join(","), span(run.ran(now().0)));
    }
    Ok(())
}
