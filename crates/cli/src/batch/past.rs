//! `pando history`, with its own columns or sacct's.

use super::accounts::{self, Row, end, state, why};
use super::format::{Columns, say};
use super::list::states;
use super::shown::span;
use super::{Ended, ask, named, now};
use crate::args::HistoryOptions;
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Line, Past};
use pando_node::sys;
use pando_queue::{Id, State, Usage, times};

/// What sacct shows if nothing is said; with --brief; and with --long.
const USUAL: &str = "jobid%-12,jobname%10,partition%10,account%10,alloccpus%10,state%10,exitcode%8";
const BRIEF: &str = "jobid%-12,state%10,exitcode%8";
const LONG: &str = "jobid,jobidraw,jobname,partition,maxrss,ntasks,alloccpus,elapsed,state,exitcode,avecpu,reqmem,consumedenergy,maxdiskread,maxdiskwrite,alloctres";

/// What is asked for.
struct Wanted<'a> {
    options: &'a HistoryOptions,
    jobs: Vec<Id>,
    users: Vec<String>,
    states: Option<Vec<State>>,
    since: u64,
    until: u64,
}

impl Wanted<'_> {
    fn read<'a>(client: &Client, options: &'a HistoryOptions) -> Result<Wanted<'a>, String> {
        let jobs = options.job.iter().map(|id| named(client, *id)).collect::<Result<Vec<_>, _>>()?;
        let mut users = options.user.clone();
        // As sacct has it: others' only if that is said, or by root.
        let all = options.allusers || !jobs.is_empty() || !users.is_empty() || sys::effective_uid() == 0;
        if options.slurm && !all {
            users.push(super::me());
        }
        let since = match &options.since {
            Some(text) => when(text, options.slurm)?,
            // sacct begins with this day.
            None if options.slurm && jobs.is_empty() => midnight(),
            None => 0,
        };
        let until = options.until.as_deref().map_or(Ok(u64::MAX), |text| when(text, options.slurm))?;
        let states = if options.state.is_empty() { None } else { states(&options.state)? };
        Ok(Wanted { options, jobs, users, states, since, until })
    }

    fn is(&self, user: &str, name: &str, account: &str, partition: &str, nodes: &[String], state: State) -> bool {
        let o = self.options;
        let has = |list: &[String], one: &str| list.is_empty() || list.iter().any(|l| l == one);
        has(&self.users, user)
            && has(&o.name, name)
            && has(&o.account, account)
            && has(&o.partition, partition)
            && (o.nodelist.is_empty() || o.nodelist.iter().any(|node| nodes.contains(node)))
            && self.states.as_ref().is_none_or(|states| states.contains(&state))
    }

    fn past(&self, p: &Past) -> bool {
        let o = &p.outcome;
        let nodes: Vec<String> = o.run.shares.iter().map(|s| s.node.clone()).collect();
        let is_job = |w: &Id| w.job == o.id.job && (w.task.is_none() || w.task == o.id.task);
        o.ended >= self.since
            && (o.asked.submitted.min(o.ended) <= self.until)
            && (self.options.slurm || o.ended <= self.until)
            && (self.jobs.is_empty() || self.jobs.iter().any(is_job))
            && self.is(&p.user, &p.name, &p.account, &o.asked.partition, &nodes, o.state)
    }

    fn line(&self, line: &Line) -> bool {
        !line.state.is_final()
            && line.submitted <= self.until
            && (self.jobs.is_empty() || self.jobs.iter().any(|id| super::list::is_of(line, *id)))
            && self.is(&line.user, &line.name, &line.account, &line.partition, &line.nodes, line.state)
    }
}

/// A moment in our words, or in sacct's.
fn when(text: &str, slurm: bool) -> Result<u64, String> {
    let (now, zone) = now();
    let theirs = slurm.then(|| times::past(text, now, zone)).flatten();
    theirs.map_or_else(|| crate::events::since(text), Ok)
}

/// What those that run have used until now, as far as their nodes say it.
fn until_now(client: &Client, lines: &[&Line]) -> Vec<(Id, Usage)> {
    let running = lines.iter().filter(|line| line.started.is_some());
    let ids: Vec<Id> = running.filter_map(|line| Id::read(&line.id).ok()).collect();
    if ids.is_empty() { Vec::new() } else { ask(client, &Ask::Used(ids)).unwrap_or_default() }
}

/// When this day began, where the user is.
fn midnight() -> u64 {
    let (now, zone) = now();
    let local = (now / 1000).saturating_add_signed(zone);
    (local - local % 86_400).saturating_add_signed(-zone) * 1000
}

/// `pando history`.
pub fn history(client: &Client, options: &HistoryOptions) -> Ended {
    if options.helpformat {
        println!("{}", accounts::COLUMNS.join(" "));
        return Ok(0);
    }
    let wanted = Wanted::read(client, options)?;
    let one = |all: &[String]| if let [one] = all { Some(one.clone()) } else { None };
    let job = if let [one] = wanted.jobs.as_slice() { Some(one.job) } else { None };
    let what = Ask::History { user: one(&wanted.users), job, since: wanted.since, most: options.most };
    let mut all: Vec<Past> = ask(client, &what)?;
    all.retain(|p| wanted.past(p));
    if options.json {
        return print_json(&all).map(|()| 0);
    }
    let is_plain = options.slurm || options.parsable || options.parsable2 || options.brief || options.long;
    let usual = is_plain.then_some(match (options.brief, options.long) {
        (true, _) => BRIEF,
        (_, true) => LONG,
        _ => USUAL,
    });
    let outside = || super::said_outside("SACCT_FORMAT").filter(|_| options.slurm && !options.brief && !options.long);
    let said = options.format.clone().or_else(outside);
    let Some(format) = said.as_deref().or(usual) else {
        print(&all, !options.noheader);
        return Ok(0);
    };
    let steps = options.slurm && !options.allocations;
    let mut rows: Vec<Row> = all.iter().flat_map(|past| accounts::of_past(past, steps)).collect();
    if options.slurm {
        let lines: Vec<Line> = ask(client, &Ask::List)?;
        let now = now().0;
        let there: Vec<&Line> = lines.iter().filter(|line| wanted.line(line)).collect();
        let used = until_now(client, &there);
        let of = |line: &Line| used.iter().find(|(id, _)| id.to_string() == line.id).map(|(_, usage)| *usage);
        rows.extend(there.into_iter().flat_map(|line| accounts::of_line(line, now, steps, of(line))));
    }
    let mut columns = Columns::read(format, &accounts::COLUMNS)?;
    let between = options.delimiter.clone().unwrap_or_else(|| "|".into());
    columns.between = match (options.parsable2, options.parsable) {
        (true, _) => Some((between, false)),
        (_, true) => Some((between, true)),
        _ => None,
    };
    columns.print(&rows, !options.noheader, Row::cell)
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
            (o.run.steps.all.len() as u64 + o.run.steps.more).to_string(),
            nodes.join(","),
            crate::events::local(o.ended),
            why(&o.how),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let names = ["JOBID", "NAME", "USER", "STATE", "EXIT", "TIME", "CPU", "MEMORY", "STEPS", "NODES", "ENDED", "WHY"];
    match header {
        true => print_table(&names, &rows, usize::MAX),
        false => rows.iter().for_each(|row| say(row.join(" ").trim_end())),
    }
}
