//! `pando history`, with its own columns or sacct's.

use super::format::{Columns, say};
use super::list::{moment, states};
use super::shown::span;
use super::{Ended, ask};
use crate::args::HistoryOptions;
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Past};
use pando_queue::{Cause, How, State};

/// What sacct shows if nothing is said.
const USUAL: &str = "jobid,jobname%10,partition%10,account%10,alloccpus%10,state%10,exitcode%8";
/// Its columns that there are.
const COLUMNS: [&str; 28] = [
    "jobid",
    "jobidraw",
    "jobname",
    "partition",
    "account",
    "user",
    "alloccpus",
    "ncpus",
    "allocnodes",
    "nnodes",
    "ntasks",
    "state",
    "exitcode",
    "start",
    "end",
    "elapsed",
    "elapsedraw",
    "totalcpu",
    "cputime",
    "cputimeraw",
    "maxrss",
    "nodelist",
    "workdir",
    "reason",
    "maxdiskread",
    "maxdiskwrite",
    "restarts",
    "suspended",
];

/// `pando history`.
pub fn history(client: &Client, options: &HistoryOptions) -> Ended {
    let since = options.since.as_deref().map_or(Ok(0), crate::events::since)?;
    let until = options.until.as_deref().map_or(Ok(u64::MAX), crate::events::since)?;
    let wanted = if options.state.is_empty() { None } else { states(&options.state)? };
    let one = |all: &[String]| if let [one] = all { Some(one.clone()) } else { None };
    let job = if let [one] = options.job.as_slice() { Some(one.job) } else { None };
    let what = Ask::History { user: one(&options.user), job, since, most: options.most };
    let mut all: Vec<Past> = ask(client, &what)?;
    let has = |list: &[String], one: &String| list.is_empty() || list.contains(one);
    let is_job = |p: &Past| {
        let id = p.outcome.id;
        options.job.iter().any(|w| w.job == id.job && (w.task.is_none() || w.task == id.task))
    };
    all.retain(|p| {
        p.outcome.ended <= until
            && has(&options.user, &p.user)
            && has(&options.name, &p.name)
            && (options.job.is_empty() || is_job(p))
            && wanted.as_ref().is_none_or(|states| states.contains(&p.outcome.state))
    });
    if options.json {
        return print_json(&all).map(|()| 0);
    }
    let usual = (options.slurm || options.parsable || options.parsable2).then_some(USUAL);
    let Some(format) = options.format.as_deref().or(usual) else {
        print(&all, !options.noheader);
        return Ok(0);
    };
    let mut columns = Columns::read(format, &COLUMNS)?;
    columns.between = match (options.parsable2, options.parsable) {
        (true, _) => Some(("|".into(), false)),
        (_, true) => Some(("|".into(), true)),
        _ => None,
    };
    columns.print(&all, !options.noheader, cell)
}

fn cell(p: &Past, name: &str) -> String {
    let o = &p.outcome;
    let ran = o.run.ran(o.ended);
    let ranks: u32 = o.run.shares.iter().map(|s| s.ranks).sum();
    let nodes: Vec<&str> = o.run.shares.iter().map(|s| s.node.as_str()).collect();
    match name {
        "jobid" | "jobidraw" => o.id.to_string(),
        "jobname" => p.name.clone(),
        "partition" => String::new(),
        "account" => p.account.clone(),
        "user" => p.user.clone(),
        "alloccpus" | "ncpus" => o.run.cpus().to_string(),
        "allocnodes" | "nnodes" => nodes.len().to_string(),
        "ntasks" => ranks.to_string(),
        "state" => state(o.state, o.run.ending.as_ref()),
        "exitcode" => end(&o.how).replace('-', "0:0"),
        "start" => moment(Some(o.run.started)),
        "end" => moment(Some(o.ended)),
        "elapsed" => span(ran),
        "elapsedraw" => (ran / 1000).to_string(),
        "totalcpu" => span(o.usage.cpu_ms),
        "cputime" => span(ran.saturating_mul(o.run.cpus())),
        "cputimeraw" => (ran.saturating_mul(o.run.cpus()) / 1000).to_string(),
        "maxrss" => format!("{}M", o.usage.memory_mb),
        "nodelist" => {
            if nodes.is_empty() {
                "None assigned".into()
            } else {
                nodes.join(",")
            }
        }
        "workdir" => String::from_utf8_lossy(&o.directory.0).into_owned(),
        "reason" => why(&o.how),
        "maxdiskread" => o.usage.read.to_string(),
        "maxdiskwrite" => o.usage.written.to_string(),
        "restarts" => if o.run.run == u32::MAX { 0 } else { o.run.run }.to_string(),
        "suspended" => span(o.run.suspended_ms),
        _ => String::new(),
    }
}

fn why(how: &How) -> String {
    match how {
        How::NotBegun(why) | How::CantBegin(why) => why.clone(),
        How::NodeLost(node) => format!("node {node} was lost"),
        How::OutOfMemory => "it took more memory than it had".into(),
        _ => String::new(),
    }
}

fn print(all: &[Past], header: bool) {
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
            why(&o.how),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let names = ["JOBID", "NAME", "USER", "STATE", "EXIT", "TIME", "CPU", "MEMORY", "NODES", "ENDED", "WHY"];
    match header {
        true => print_table(&names, &rows, usize::MAX),
        false => rows.iter().for_each(|row| say(row.join(" ").trim_end())),
    }
}

fn state(state: State, ending: Option<&Cause>) -> String {
    match ending {
        Some(Cause::Cancelled(by)) if state == State::Cancelled => format!("CANCELLED by {by}"),
        _ => state.names().0.to_owned(),
    }
}

/// As Slurm's accounts have it: status, and signal.
pub fn end(how: &How) -> String {
    match how {
        How::Exit(status) => format!("{status}:0"),
        How::Signal(number) => format!("0:{number}"),
        How::OutOfMemory => "0:9".into(),
        How::NodeLost(_) | How::NotBegun(_) | How::CantBegin(_) => "-".into(),
    }
}
