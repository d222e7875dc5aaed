//! What people see of the queue.

use super::{ask, now};
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Line, Past, Shown};
use pando_queue::{Cause, How, Id, State, times};

/// What `pando queue` shows.
pub struct Wanted {
    /// Of these users only.
    pub users: Vec<String>,
    /// These jobs only.
    pub jobs: Vec<Id>,
    /// Those that have just ended, too.
    pub all: bool,
    /// JSON.
    pub json: bool,
    /// No first line.
    pub no_header: bool,
}

/// `12:05`, `1-00:00:00`
pub(super) fn span(ms: u64) -> String {
    times::show(Some(ms))
}

/// `pando queue`.
pub fn queue(client: &Client, wanted: &Wanted) -> Result<(), String> {
    let mut lines: Vec<Line> = ask(client, &Ask::List)?;
    lines.retain(|l| {
        (wanted.users.is_empty() || wanted.users.contains(&l.user))
            && (wanted.jobs.is_empty() || wanted.jobs.iter().any(|id| id.job == l.job))
            && (wanted.all || !l.state.is_final())
    });
    if wanted.json {
        return print_json(&lines);
    }
    let row = |l: &Line| {
        let list = match (l.nodes.is_empty(), l.reason.is_empty()) {
            (false, _) => l.nodes.join(","),
            (true, false) => format!("({})", l.reason),
            (true, true) => String::new(),
        };
        vec![
            l.id.clone(),
            l.partition.clone(),
            l.name.clone(),
            l.user.clone(),
            l.state.names().1.to_owned(),
            span(l.ran_ms),
            l.node_count.to_string(),
            l.cpus.to_string(),
            list,
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let names = ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "CPUS", "NODELIST(REASON)"];
    match wanted.no_header {
        true => rows.iter().for_each(|row| println!("{}", row.join(" "))),
        false => print_table(&names, &rows, usize::MAX),
    }
    Ok(())
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
    println!("job        {id}: {}", spec.name);
    println!("user       {} (account {})", spec.user, spec.account);
    println!("state      {}", all.state.names().0);
    if let Some(why) = &all.why {
        println!("waits      {why}");
    }
    if let Some(why) = &all.last_failure {
        println!("last time  {why}");
    }
    if let Some((priority, ahead)) = all.priority {
        println!("priority   {priority:.0}, {ahead} jobs have more");
    }
    match all.expected {
        Some(when) if when <= now => println!("starts     with the next pass"),
        Some(when) => println!("starts     {} at the latest, as things are", at(when)),
        None => {}
    }
    println!("submitted  {}", at(job.submitted));
    println!("time       {} at most", times::show(spec.limit_ms));
    if let Some(when) = all.ends {
        println!("ends       {} at the latest", at(when));
    }
    for (task, run) in &job.running {
        let nodes: Vec<String> = run.shares.iter().map(|s| format!("{} ({} CPUs)", s.node, s.cpus)).collect();
        println!("runs       {} on {} for {}", job.name_of(*task), nodes.join(", "), span(run.ran(now)));
    }
    for (state, tasks) in &job.over {
        println!("over       {} {}", tasks.len(), state.names().0);
    }
    println!("directory  {}", String::from_utf8_lossy(&spec.directory.0));
    println!("queue      kept at {}", all.keeper);
    Ok(())
}

/// `pando history`.
pub fn history(client: &Client, what: &Ask, json: bool) -> Result<(), String> {
    let all: Vec<Past> = ask(client, what)?;
    if json {
        return print_json(&all);
    }
    let row = |p: &Past| {
        let o = &p.outcome;
        let nodes: Vec<&str> = o.run.shares.iter().map(|s| s.node.as_str()).collect();
        vec![
            o.id.to_string(),
            p.name.clone(),
            p.user.clone(),
            state(o.state, o.run.ending.as_ref()),
            end(&o.how),
            span(o.run.ran(o.ended)),
            format!("{:.1}s", o.usage.cpu_ms as f64 / 1000.0),
            format!("{}M", o.usage.memory_mb),
            nodes.join(","),
            crate::events::local(o.ended),
            match &o.how {
                How::NotBegun(why) => why.clone(),
                How::NodeLost(node) => format!("node {node} was lost"),
                _ => String::new(),
            },
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let names = ["JOBID", "NAME", "USER", "STATE", "EXIT", "TIME", "CPU", "MEMORY", "NODES", "ENDED", "WHY"];
    print_table(&names, &rows, usize::MAX);
    Ok(())
}

fn state(state: State, ending: Option<&Cause>) -> String {
    match ending {
        Some(Cause::Cancelled(by)) if state == State::Cancelled => format!("CANCELLED by {by}"),
        _ => state.names().0.to_owned(),
    }
}

/// As Slurm's accounts have it: status, and signal.
fn end(how: &How) -> String {
    match how {
        How::Exit(status) => format!("{status}:0"),
        How::Signal(number) => format!("0:{number}"),
        How::OutOfMemory => "0:9".into(),
        How::NodeLost(_) | How::NotBegun(_) => "-".into(),
    }
}
