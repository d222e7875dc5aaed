//! What people see of the queue.

use super::format::say;
use super::{ask, now};
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Cluster, Line, Past, Shown};
use pando_queue::gres::{SCRATCH, SCRATCH_HELD};
use pando_queue::{Id, State, Step, Usage, times};

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
    let id = super::named(client, id)?;
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
    let until_now: Vec<(Id, Usage)> =
        if job.running.is_empty() { Vec::new() } else { ask(client, &Ask::Used(vec![id])).unwrap_or_default() };
    for (task, run) in &job.running {
        let nodes: Vec<String> = run.shares.iter().map(|s| format!("{} ({} CPUs)", s.node, s.cpus)).collect();
        let (name, number) = (job.name_of(*task), job.number_of(*task));
        line!("runs       {name} (number {number}) on {} for {}", nodes.join(", "), span(run.ran(now)));
        run.whereabouts().into_iter().for_each(|what| line!("where      {what}"));
        if let Some(&(_, mut all)) = until_now.iter().find(|(id, _)| *id == name) {
            all.add(&run.steps.away);
            let scratch = of_scratch(&all);
            line!("used       {name}: CPU {:.1}s, {}M{scratch} until now", all.cpu_ms as f64 / 1000.0, all.memory_mb);
        }
        run.steps.all.iter().for_each(|step| line!("step       {name}.{}", in_words(step, now)));
    }
    for (state, tasks) in &job.over {
        line!("over       {} {}", tasks.len(), state.names().0);
    }
    used(client, id);
    scratch(client, &all);
    line!("directory  {}", String::from_utf8_lossy(&spec.directory.0));
    line!("queue      kept at {}", all.keeper);
    Ok(())
}

/// How much scratch space it has, and who sees to it that it takes no more.
fn scratch(client: &Client, all: &Shown) {
    let Some(wanted) = all.job.spec.request.gres.iter().find(|gres| gres.kind == SCRATCH) else { return };
    let size = pando_queue::sizes::show(wanted.count.into());
    let has: Option<Cluster> = ask(client, &Ask::Cluster).ok();
    let named = |share: &pando_queue::Share| {
        let node = has.iter().flat_map(|all| &all.nodes).find(|n| n.node.name == share.node);
        let held = node.map(|n| n.node.features.iter().any(|feature| feature == SCRATCH_HELD));
        let by = match held {
            Some(true) => "held by quota",
            Some(false) => "counted",
            None => "unknown",
        };
        format!("{} ({by})", share.node)
    };
    let there: Vec<String> = all.job.running.values().flat_map(|run| &run.shares).map(named).collect();
    match there.is_empty() {
        true => line!("scratch    {size} of each node"),
        false => line!("scratch    {size} of each node: {}", there.join(", ")),
    }
}

fn of_scratch(usage: &Usage) -> String {
    match usage.scratch_mb {
        0 => String::new(),
        mb => format!(", scratch {mb}M"),
    }
}

/// What those of its tasks have used that are over, if the history still says it.
fn used(client: &Client, id: Id) {
    const MOST: u32 = 20;
    let what = Ask::History { user: None, job: Some(id.job), since: 0, most: MOST };
    let all: Vec<Past> = ask(client, &what).unwrap_or_default();
    let meant = all.iter().map(|past| &past.outcome).filter(|o| id.task.is_none() || o.id.task == id.task);
    for o in meant.filter(|o| !o.run.shares.is_empty()) {
        let (cpu, memory) = (o.usage.cpu_ms as f64 / 1000.0, o.usage.memory_mb);
        let energy = o.usage.energy_mj.map_or("energy n/a".to_owned(), |mj| format!("{:.1} J", mj as f64 / 1000.0));
        let scratch = of_scratch(&o.usage);
        line!("used       {}: CPU {cpu:.1}s, {memory}M{scratch}, {energy}", o.id);
        o.run.steps.all.iter().for_each(|step| line!("step       {}.{}", o.id, in_words(step, o.ended)));
    }
}

/// `0 hello: 4 ranks on n1,n2 ran 00:03, COMPLETED 0:0, CPU 1.2s, 30M`
fn in_words(step: &Step, now: u64) -> String {
    let nodes: Vec<&str> = step.nodes.iter().map(|(node, _)| node.as_str()).collect();
    let begin = format!("{} {}: {} ranks on {}", step.number, step.name, step.ranks(), nodes.join(","));
    match &step.end {
        None => format!("{begin} run for {}", span(now.saturating_sub(step.began))),
        Some((at, how)) => {
            let (ran, state) = (span(at.saturating_sub(step.began)), step.state().names().0);
            let (cpu, memory) = (step.usage.cpu_ms as f64 / 1000.0, step.usage.memory_mb);
            format!("{begin} ran {ran}, {state} {}, CPU {cpu:.1}s, {memory}M", super::accounts::end(how))
        }
    }
}

/// `pando explain`: what it waits for, and when it is expected to start.
pub fn explain(client: &Client, id: Id, json: bool) -> Result<(), String> {
    let id = super::named(client, id)?;
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
        run.whereabouts().into_iter().for_each(|what| line!("  {what}"));
    }
    Ok(())
}
