//! What accounts show of jobs and their steps, whether they wait, run or are over: one row each, as sacct has them.

use super::list::moment;
use super::shown::span;
use pando_node::queue::ask::{Line, Past};
use pando_queue::{Asked, Cause, How, RankUsage, RankUse, Run, State, Step, Usage, times};

/// Its columns that there are.
pub const COLUMNS: [&str; 78] = [
    "account",
    "alloccpus",
    "allocnodes",
    "alloctres",
    "associd",
    "avecpu",
    "averss",
    "cluster",
    "comment",
    "constraints",
    "consumedenergy",
    "consumedenergyraw",
    "cputime",
    "cputimeraw",
    "derivedexitcode",
    "elapsed",
    "elapsedraw",
    "eligible",
    "end",
    "exitcode",
    "flags",
    "gid",
    "group",
    "jobid",
    "jobidraw",
    "jobname",
    "layout",
    "maxdiskread",
    "maxdiskreadnode",
    "maxdiskreadtask",
    "maxdiskwrite",
    "maxdiskwritenode",
    "maxdiskwritetask",
    "maxpages",
    "maxrss",
    "maxrssnode",
    "maxrsstask",
    "maxvmsize",
    "mcslabel",
    "mincpu",
    "mincpunode",
    "mincputask",
    "ncpus",
    "nnodes",
    "nodelist",
    "ntasks",
    "partition",
    "planned",
    "priority",
    "qos",
    "qosraw",
    "reason",
    "reqcpufreq",
    "reqcpus",
    "reqmem",
    "reqnodes",
    "reqtres",
    "reservation",
    "reserved",
    "restarts",
    "start",
    "state",
    "submit",
    "submitline",
    "suspended",
    "systemcpu",
    "timelimit",
    "timelimitraw",
    "totalcpu",
    "tresusageintot",
    "uid",
    "user",
    "usercpu",
    "wckey",
    "wckeyid",
    "workdir",
    "admincomment",
    "systemcomment",
];

/// What is known of it here; of the other columns nothing is, and they are empty.
#[derive(Clone, Debug)]
pub struct Row {
    id: String,
    raw: String,
    name: String,
    /// Whose; of a step nobody's, as with sacct.
    user: String,
    account: String,
    asked: Asked,
    state: String,
    how: Option<How>,
    began: Option<u64>,
    ended: Option<u64>,
    ran_ms: u64,
    still_ms: u64,
    cpus: u64,
    ranks: u32,
    nodes: Vec<String>,
    wanted_nodes: u32,
    usage: Option<Usage>,
    directory: String,
    reason: String,
    restarts: u32,
    is_step: bool,
    /// Of a step that is over.
    of_ranks: Vec<RankUse>,
}

/// Of one that is over, and of its steps.
pub fn of_past(past: &Past, steps: bool) -> Vec<Row> {
    let o = &past.outcome;
    let has_run = !o.run.shares.is_empty();
    let job = Row {
        id: o.id.to_string(),
        raw: if o.asked.number > 0 { o.asked.number.to_string() } else { o.id.to_string() },
        name: past.name.clone(),
        user: past.user.clone(),
        account: past.account.clone(),
        asked: o.asked.clone(),
        state: state(o.state, o.run.ending.as_ref()),
        how: Some(o.how.clone()),
        began: has_run.then_some(o.run.started),
        ended: Some(o.ended),
        ran_ms: o.run.ran(o.ended),
        still_ms: o.run.suspended_ms,
        cpus: if has_run { o.run.cpus() } else { o.asked.cpus },
        ranks: o.run.shares.iter().map(|s| s.ranks).sum(),
        nodes: o.run.shares.iter().map(|s| s.node.clone()).collect(),
        wanted_nodes: o.asked.nodes,
        usage: Some(o.usage),
        directory: String::from_utf8_lossy(&o.directory.0).into_owned(),
        reason: why(&o.how),
        restarts: if o.run.run == u32::MAX { 0 } else { o.run.run },
        is_step: false,
        of_ranks: Vec::new(),
    };
    let mut all = vec![job];
    if steps && has_run && o.run.began.is_some() {
        let batch = of_batch(&all[0], &o.run, Some(o.usage));
        all.push(batch);
        let more: Vec<Row> = o.run.steps.all.iter().map(|step| of_step(&all[0], step, o.ended)).collect();
        all.extend(more);
    }
    all
}

/// Of one that is in the queue. `now`: milliseconds since 1970.
pub fn of_line(line: &Line, now: u64, steps: bool, used: Option<Usage>) -> Vec<Row> {
    let runs = line.started.is_some();
    let job = Row {
        id: line.id.clone(),
        raw: line.number.to_string(),
        name: line.name.clone(),
        user: line.user.clone(),
        account: line.account.clone(),
        asked: Asked {
            number: line.number,
            submitted: line.submitted,
            eligible: line.eligible,
            partition: line.partition.clone(),
            quality: line.quality.clone(),
            limit_ms: line.limit_ms,
            nodes: line.node_count,
            ranks: line.ranks,
            cpus: line.cpus,
            memory: line.memory,
            memory_per_cpu: line.memory_per_cpu,
            features: line.features.clone(),
            wckey: line.wckey.clone(),
            ..Asked::default()
        },
        state: line.state.names().0.into(),
        how: None,
        began: line.started,
        ended: None,
        ran_ms: line.ran_ms,
        still_ms: 0,
        cpus: line.cpus,
        ranks: line.ranks,
        nodes: line.nodes.clone(),
        wanted_nodes: line.node_count,
        usage: used.map(|mut all| {
            all.add(&line.steps.away);
            all
        }),
        directory: String::from_utf8_lossy(&line.directory.0).into_owned(),
        reason: line.reason.clone(),
        restarts: line.restarts,
        is_step: false,
        of_ranks: Vec::new(),
    };
    let mut all = vec![job];
    if steps && runs {
        let first = line.nodes.first().cloned().into_iter().collect();
        let usage = used.map(|all| without_steps(all, &line.steps));
        let batch = Row { nodes: first, ranks: 1, usage, ..named(&all[0], "batch", "batch") };
        all.push(batch);
        let more: Vec<Row> = line.steps.all.iter().map(|step| of_step(&all[0], step, now)).collect();
        all.extend(more);
    }
    all
}

fn named(job: &Row, end: &str, name: &str) -> Row {
    let (id, raw) = (format!("{}.{end}", job.id), format!("{}.{end}", job.raw));
    let asked = Asked { submitted: job.asked.submitted, eligible: job.asked.eligible, ..Asked::default() };
    Row { id, raw, name: name.to_owned(), user: String::new(), asked, is_step: true, ..job.clone() }
}

/// The script itself, and what it starts at its node that is no step.
fn of_batch(job: &Row, run: &Run, usage: Option<Usage>) -> Row {
    let first = run.shares.first();
    let own = usage.map(|all| {
        let here = Usage { cpu_ms: all.cpu_ms.saturating_sub(run.steps.away.cpu_ms), ..all };
        without_steps(here, &run.steps)
    });
    Row {
        cpus: first.map_or(0, |s| s.cpus.into()),
        ranks: 1,
        nodes: first.into_iter().map(|s| s.node.clone()).collect(),
        usage: own,
        ..named(job, "batch", "batch")
    }
}

/// What its first node has seen, without what its steps have used there.
fn without_steps(all: Usage, steps: &pando_queue::Steps) -> Usage {
    let here = |step: &Step| step.usage.cpu_ms - step.away.cpu_ms.min(step.usage.cpu_ms);
    Usage { cpu_ms: all.cpu_ms.saturating_sub(steps.all.iter().map(here).sum()), ..all }
}

/// As Slurm has times that it knows exactly: `00:01.250`, `01:02:03`, `1-00:00:00`.
pub fn exact(ms: u64) -> String {
    let (s, part) = (ms / 1000, ms % 1000);
    let (days, hours, minutes, seconds) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    match () {
        () if days > 0 => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
        () if hours > 0 || part == 0 => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        () => format!("{minutes:02}:{seconds:02}.{part:03}"),
    }
}

/// `until`: when its job was over, or now.
fn of_step(job: &Row, step: &Step, until: u64) -> Row {
    let end = step.end.as_ref();
    Row {
        state: step.state().names().0.into(),
        how: end.map(|(_, how)| how.clone()),
        began: Some(step.began),
        ended: end.map(|(at, _)| *at),
        ran_ms: end.map_or(until, |(at, _)| *at).saturating_sub(step.began),
        still_ms: 0,
        cpus: step.cpus,
        ranks: step.ranks(),
        nodes: step.nodes.iter().map(|(node, _)| node.clone()).collect(),
        usage: end.map(|_| step.usage),
        reason: String::new(),
        of_ranks: step.ranks.clone(),
        ..named(job, &step.number.to_string(), &step.name)
    }
}

/// Between two moments as Slurm counts, which knows whole seconds of each; in milliseconds.
fn seconds(from: u64, to: u64) -> u64 {
    (to / 1000).saturating_sub(from / 1000) * 1000
}

impl Row {
    /// So that it is what lies between begin and end as they are shown.
    fn elapsed_ms(&self) -> u64 {
        let whole = self.began.map(|began| seconds(began, self.ended.unwrap_or(began + self.ran_ms + self.still_ms)));
        whole.map_or(self.ran_ms, |ms| ms.saturating_sub(self.still_ms / 1000 * 1000))
    }

    /// What is known of a step's ranks: whose is the most, or the least.
    fn of_ranks(&self, name: &str) -> String {
        let all = &self.of_ranks;
        let most = |of: fn(&RankUsage) -> u64| all.iter().max_by_key(|r| (of(&r.usage), std::cmp::Reverse(r.rank)));
        let found = match name {
            "averss" => {
                let sum: u64 = all.iter().map(|r| r.usage.memory_kb).sum();
                return sum.checked_div(all.len() as u64).map_or(String::new(), |kb| format!("{kb}K"));
            }
            "mincpu" | "mincpunode" | "mincputask" => all.iter().min_by_key(|r| (r.usage.cpu_ms, r.rank)),
            "maxrssnode" | "maxrsstask" => most(|u| u.memory_kb),
            "maxdiskreadnode" | "maxdiskreadtask" => most(|u| u.read),
            _ => most(|u| u.written),
        };
        found.map_or(String::new(), |r| match name {
            "mincpu" => exact(r.usage.cpu_ms),
            name if name.ends_with("node") => r.node.clone(),
            _ => r.rank.to_string(),
        })
    }

    /// What stands in a column.
    pub fn cell(&self, name: &str) -> String {
        let number = |n: u64| if n == 0 { String::new() } else { n.to_string() };
        let cpu = |usage: Option<Usage>| exact(usage.map_or(0, |u| u.cpu_ms));
        let count = self.nodes.len().max(if self.is_step { 0 } else { self.wanted_nodes as usize });
        match name {
            "jobid" => self.id.clone(),
            "jobidraw" => self.raw.clone(),
            "jobname" => self.name.clone(),
            "user" | "uid" if self.is_step => String::new(),
            "user" => self.user.clone(),
            "account" => self.account.clone(),
            "partition" => self.asked.partition.clone(),
            "qos" if !self.is_step => self.asked.quality.clone().unwrap_or_else(|| "normal".into()),
            "alloccpus" | "ncpus" => if self.began.is_some() { self.cpus } else { 0 }.to_string(),
            "reqcpus" => self.cpus.to_string(),
            "allocnodes" => self.nodes.len().to_string(),
            "nnodes" => count.to_string(),
            "reqnodes" => number(self.asked.nodes.into()),
            "ntasks" if self.is_step => self.ranks.to_string(),
            "state" => self.state.clone(),
            "exitcode" | "derivedexitcode" => {
                self.how.as_ref().map_or("0:0".into(), |how| end(how).replace('-', "0:0"))
            }
            "submit" => moment(Some(self.asked.submitted).filter(|at| *at > 0)).replace("N/A", "Unknown"),
            "eligible" => moment(Some(self.asked.eligible).filter(|at| *at > 0)).replace("N/A", "Unknown"),
            "start" => moment(self.began).replace("N/A", "Unknown"),
            "end" => moment(self.ended).replace("N/A", "Unknown"),
            "elapsed" => span(self.elapsed_ms()),
            "elapsedraw" => (self.elapsed_ms() / 1000).to_string(),
            "planned" | "reserved" => {
                let waited = self.began.or(self.ended).zip(Some(self.asked.eligible).filter(|at| *at > 0));
                waited.map_or(String::new(), |(began, eligible)| span(seconds(eligible, began)))
            }
            "timelimit" if !self.is_step => times::show(self.asked.limit_ms),
            "timelimitraw" => self.asked.limit_ms.map_or(String::new(), |ms| (ms / 60_000).to_string()),
            "totalcpu" => cpu(self.usage),
            "avecpu" if self.is_step => exact(self.usage.map_or(0, |u| u.cpu_ms) / u64::from(self.ranks.max(1))),
            "cputime" => span(self.elapsed_ms().saturating_mul(self.cpus)),
            "cputimeraw" => (self.elapsed_ms().saturating_mul(self.cpus) / 1000).to_string(),
            "averss" | "mincpu" | "mincpunode" | "mincputask" | "maxrssnode" | "maxrsstask" => self.of_ranks(name),
            "maxdiskreadnode" | "maxdiskreadtask" | "maxdiskwritenode" | "maxdiskwritetask" => self.of_ranks(name),
            "maxrss" if !self.of_ranks.is_empty() => {
                self.of_ranks.iter().map(|of| of.usage.memory_kb).max().map_or(String::new(), |kb| format!("{kb}K"))
            }
            "maxrss" => self.usage.map_or(String::new(), |u| format!("{}M", u.memory_mb)),
            "reqmem" if !self.is_step => match (self.asked.memory, self.asked.memory_per_cpu) {
                (0, 0) => "0".into(),
                (0, each) => format!("{each}M"),
                (all, _) => format!("{all}M"),
            },
            // Nobody says it: the machine has no counters that may be read.
            "consumedenergy" | "consumedenergyraw" => {
                self.usage.and_then(|u| u.energy_mj).map_or(String::new(), |mj| (mj / 1000).to_string())
            }
            "maxdiskread" => self.usage.map_or(String::new(), |u| u.read.to_string()),
            "maxdiskwrite" => self.usage.map_or(String::new(), |u| u.written.to_string()),
            "nodelist" if self.nodes.is_empty() => "None assigned".into(),
            "nodelist" => self.nodes.join(","),
            "constraints" => self.asked.features.join(","),
            "reservation" => self.asked.reservation.clone().unwrap_or_default(),
            "wckey" => self.asked.wckey.clone(),
            "workdir" if !self.is_step => self.directory.clone(),
            "reason" => self.reason.clone(),
            "restarts" => self.restarts.to_string(),
            "suspended" => span(self.still_ms),
            "alloctres" if self.began.is_some() => format!("cpu={},node={}", self.cpus, self.nodes.len()),
            "reqtres" if !self.is_step => format!("cpu={},node={}", self.cpus, self.wanted_nodes.max(1)),
            _ => String::new(),
        }
    }
}

/// Why it ended so, if there is something to say.
pub fn why(how: &How) -> String {
    match how {
        How::NotBegun(why) | How::CantBegin(why) => why.clone(),
        How::NodeLost(node) => format!("node {node} was lost"),
        How::OutOfMemory => "it took more memory than it had".into(),
        _ => String::new(),
    }
}

/// How it stands, and who cancelled it.
pub fn state(state: State, ending: Option<&Cause>) -> String {
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
        // As `pando wait` has it.
        How::CantBegin(_) => "1:0".into(),
        How::NodeLost(_) | How::NotBegun(_) => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_slurm_writes_them() {
        let shown = [0, 7, 1250, 61_005, 60_000, 3_723_999, 90_061_000].map(exact);
        let slurms = ["00:00:00", "00:00.007", "00:01.250", "01:01.005", "00:01:00", "01:02:03", "1-01:01:01"];
        assert_eq!(shown, slurms);
        // Of what began late in one second and ended early in the next one Slurm says a second.
        assert_eq!((seconds(1900, 2100), seconds(1100, 1900)), (1000, 0));
    }
}
