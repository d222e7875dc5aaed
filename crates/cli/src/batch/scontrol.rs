//! `scontrol`: what of Slurm's administration there is here, in its words.

use super::format::{plain, say};
use super::list::moment;
use super::{Ended, ask, nodes, order, reserve};
use crate::show::print_json;
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Cluster, Line, Past, Shown};
use pando_node::queue::{Names, filled, pattern};
use pando_node::views::{DrainRequest, Info};
use pando_queue::{Id, Job, Request, State, Update, times};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One of its commands.
pub fn scontrol(client: &Client, words: &[String]) -> Ended {
    // They change how things are shown, and are shown so already.
    const LEFT: [&str; 10] = ["-o", "--oneliner", "-d", "--details", "-a", "--all", "-Q", "--quiet", "-v", "--verbose"];
    let json = words.iter().any(|w| w == "--json");
    let one_line = words.iter().any(|w| ["-o", "--oneliner"].contains(&w.as_str()));
    let is_left = |w: &&String| !LEFT.contains(&w.as_str()) && *w != "--json";
    let words: Vec<&str> = words.iter().filter(is_left).map(String::as_str).collect();
    let lower: Vec<String> = words.iter().map(|w| w.to_ascii_lowercase()).collect();
    let rest = words.get(1..).unwrap_or_default();
    let of_job = std::env::var("SLURM_JOB_NODELIST").ok().filter(|list| !list.is_empty());
    let show = Show { client, json, one_line };
    match lower.first().map(String::as_str) {
        Some("show") => match (lower.get(1).map(String::as_str), words.get(2).copied()) {
            (Some("job" | "jobs"), name) => show.job(name),
            (Some("node" | "nodes"), name) => show.node(name),
            (Some("partition" | "partitions"), name) => show.partition(name),
            (Some("config"), _) => show.config(),
            (Some("reservation" | "reservations" | "res"), name) => reserve::show(client, name, json),
            (Some("hostnames" | "hostname"), list) if list.is_some() || of_job.is_some() => {
                crate::nodelist::expand(list.or(of_job.as_deref()).unwrap_or(""))?
                    .iter()
                    .for_each(|name| println!("{name}"));
                Ok(0)
            }
            (Some("hostnames" | "hostname"), None) => {
                Err("show hostnames: say which, like n[1-3]; within a job it is SLURM_JOB_NODELIST".into())
            }
            (Some("hostlist"), Some(list)) => {
                println!("{list}");
                Ok(0)
            }
            (Some(other), _) => Err(format!(
                "`show {other}` is not known here: there are job, node, partition, reservation, config, hostnames"
            )),
            (None, _) => Err("show what? job, node, partition, config or hostnames".into()),
        },
        Some("hold" | "uhold") => order(client, &Ask::Hold(ids(rest)?)),
        Some("release") => order(client, &Ask::Release(ids(rest)?)),
        Some("requeue") => order(client, &Ask::Requeue { ids: ids(rest)?, hold: false }),
        Some("requeuehold") => order(client, &Ask::Requeue { ids: ids(rest)?, hold: true }),
        Some("suspend") => order(client, &Ask::Park { ids: ids(rest)?, still: true }),
        Some("resume") => order(client, &Ask::Park { ids: ids(rest)?, still: false }),
        Some(verb @ ("create" | "delete")) => reserve::change(client, verb, rest),
        Some("update") if lower.iter().any(|w| *w == "reservation" || w.starts_with("reservationname=")) => {
            reserve::change(client, "update", rest)
        }
        Some("update") => update(client, rest),
        Some("ping") => ping(client, json),
        Some(other) => Err(format!(
            "`{other}` is not known here: there are show, hold, release, requeue, requeuehold, suspend, resume, update, create, delete and ping"
        )),
        None => Err("say what: show, hold, release, requeue, suspend, resume, update or ping".into()),
    }
}

/// `12 13_4`, `12,13`, `jobid=12`.
fn ids(words: &[&str]) -> Result<Vec<Id>, String> {
    let each = words.iter().flat_map(|w| w.split(',')).filter(|w| !w.is_empty());
    let bare = |w: &str| w.split_once('=').map_or(w, |(_, id)| id).to_owned();
    let all = each.map(|w| Id::read(&bare(w))).collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() { Err("say which jobs, like 17 or 17_4".into()) } else { Ok(all) }
}

/// `NodeName=n[1-2] State=DRAIN Reason=disk`: what `pando drain` does.
fn update_node(client: &Client, words: &[&str]) -> Ended {
    let (mut names, mut on, mut reason) = (Vec::new(), None, String::new());
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: write NAME=VALUE"))?;
        match (name.to_ascii_lowercase().as_str(), value.to_ascii_lowercase().as_str()) {
            ("nodename", _) => names = crate::nodelist::expand(value)?,
            ("state", "drain") => on = Some(true),
            ("state", "resume" | "undrain" | "idle") => on = Some(false),
            ("state", _) => return Err(format!("State={value} can't be set: DRAIN and RESUME can")),
            ("reason", _) => reason = value.to_owned(),
            _ => {
                return Err(format!(
                    "{name} of a node can't be changed here: its configuration has it (dist/pando.toml)"
                ));
            }
        }
    }
    let on = on.ok_or("say State=DRAIN or State=RESUME")?;
    for node in names {
        let what = DrainRequest { node: Some(node), on, reason: reason.clone() };
        what.check()?;
        let _: DrainRequest = client.post("/v1/drain", &what).map_err(super::said)?;
    }
    Ok(0)
}

/// What of a job can be changed.
const CHANGES: &str = "TimeLimit, Nice, Name, StartTime, ArrayTaskThrottle; and while it waits Partition, NumNodes, NumTasks, ReqNodeList, MinMemoryNode, MinMemoryCPU, \
    Features and QOS";

/// What says which nodes a job gets. None: it is something else.
fn asked(name: &str, value: &str) -> Result<Option<Update>, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{name}: `{value}` is no number"));
    let list = || value.split([',', '&']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let memory = || pando_queue::sizes::megabytes(value).map_err(|why| format!("{name}: {why}"));
    Ok(Some(match name {
        "partition" | "partitionname" => Update::Partition(value.into()),
        "numnodes" | "reqnodes" | "minnodes" => match value.split_once('-') {
            Some((least, most)) => Update::Nodes(number(least)?, Some(number(most)?)),
            None => Update::Nodes(number(value)?, None),
        },
        "numtasks" => Update::Ranks(number(value)?),
        "nodelist" | "reqnodelist" => Update::Wanted(crate::nodelist::expand(value)?),
        "minmemorynode" => Update::Memory(memory()?),
        "minmemorycpu" => Update::MemoryPerCpu(memory()?),
        "features" => Update::Features(list()),
        "qos" => Update::Quality(value.into()),
        _ => return Ok(None),
    }))
}

/// `JobId=17 TimeLimit=1:00:00 Nice=10 Name=x`
fn update(client: &Client, words: &[&str]) -> Ended {
    if words.iter().any(|word| word.to_ascii_lowercase().starts_with("nodename=")) {
        return update_node(client, words);
    }
    let (mut hold, mut job, mut changes) = (None, None, Vec::new());
    let of_job = words.iter().any(|word| word.to_ascii_lowercase().starts_with("job"));
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: write NAME=VALUE"))?;
        match name.to_ascii_lowercase().as_str() {
            "jobid" | "job" => job = Some(Id::read(value)?),
            "timelimit" => {
                let limit = times::limit(value).map_err(|why| format!("TimeLimit: {why}"))?;
                changes.push(Update::Limit(limit.ok_or("TimeLimit: a job can't be made endless")?));
            }
            "nice" => changes.push(Update::Nice(value.parse().map_err(|_| format!("Nice: `{value}` is no number"))?)),
            "name" | "jobname" => changes.push(Update::Name(value.into())),
            "starttime" | "eligibletime" => {
                let (now, zone) = super::now();
                let at = times::moment(value, now, zone).map_err(|why| format!("StartTime: {why}"))?;
                changes.push(Update::Begin(at));
            }
            "arraytaskthrottle" => {
                let most: u32 = value.parse().map_err(|_| format!("ArrayTaskThrottle: `{value}` is no number"))?;
                changes.push(Update::AtOnce((most > 0).then_some(most)));
            }
            // As Slurm holds and releases.
            "priority" if value == "0" => hold = Some(true),
            "priority" if value == "-1" || value.eq_ignore_ascii_case("infinite") => hold = Some(false),
            "priority" => {
                return Err("Priority follows from age, share and size: Nice lowers it, operators raise it with a Nice below 0; 0 holds the job".into());
            }
            "partitionname" | "reservationname" if !of_job => {
                return Err(format!(
                    "{name} can't be changed so: the configuration of the node that keeps the queue has it"
                ));
            }
            other => changes.push(
                asked(other, value)?.ok_or_else(|| format!("{name} can't be changed here: there are {CHANGES}"))?,
            ),
        }
    }
    let job = super::named(client, job.ok_or("say which job: JobId=17")?)?;
    if let Some(hold) = hold {
        let done = order(client, &if hold { Ask::Hold(vec![job]) } else { Ask::Release(vec![job]) })?;
        if changes.is_empty() {
            return Ok(done);
        }
    }
    if job.task.is_some() {
        return Err(format!("all tasks of job {} have the same: say JobId={}", job.job, job.job));
    }
    if changes.is_empty() {
        return Err(format!("say what is to change: {CHANGES}"));
    }
    let mut worst = 0;
    for change in changes {
        worst = worst.max(order(client, &Ask::Update(job.job, change))?);
    }
    Ok(worst)
}

fn ping(client: &Client, json: bool) -> Ended {
    let cluster: Result<pando_node::queue::ask::Cluster, String> = ask(client, &Ask::Cluster);
    match (&cluster, json) {
        (Ok(all), true) => print_json(&serde_json::json!({ "keeper": all.keeper, "up": true }))?,
        (Err(why), true) => print_json(&serde_json::json!({ "keeper": null, "up": false, "why": why }))?,
        (Ok(all), false) => say(&format!("The queue at {} is UP", all.keeper)),
        (Err(why), false) => say(&format!("The queue is DOWN: {why}")),
    }
    Ok(i32::from(cluster.is_err()))
}

/// As Slurm writes that there is nothing.
fn none(text: String) -> String {
    if text.is_empty() { "(null)".into() } else { text }
}

/// As Slurm calls it: its number first, and of what array it is a task.
fn called(job: &Job, id: Id) -> Vec<(&'static str, String)> {
    let mut all = vec![("JobId", job.number_of(id.task.unwrap_or(0)).to_string())];
    if let Some(array) = &job.spec.array {
        all[0].1 = id.task.map_or(job.id, |task| job.number_of(task)).to_string();
        let tasks = id.task.map_or_else(|| array.tasks.to_string(), |task| task.to_string());
        all.extend([("ArrayJobId", job.id.to_string()), ("ArrayTaskId", tasks)]);
        all.extend(array.at_once.map(|most| ("ArrayTaskThrottle", most.to_string())));
    }
    all.push(("JobName", job.spec.name.clone()));
    all
}

/// In words of Slurm's. `pando explain` has a sentence.
fn why(shown: &Shown) -> String {
    match (shown.reason.as_str(), &shown.last_failure) {
        ("", Some(why)) if shown.state == State::Failed => why.clone(),
        ("", _) => "None".into(),
        (reason, _) => reason.to_owned(),
    }
}

/// Of each node, or for each CPU, as it was asked for.
fn memory(request: &Request) -> (&'static str, String) {
    match (request.memory, request.memory_per_cpu) {
        (0, each) if each > 0 => ("MinMemoryCPU", format!("{each}M")),
        (all, _) => ("MinMemoryNode", format!("{all}M")),
    }
}

struct Show<'a> {
    client: &'a Client,
    json: bool,
    one_line: bool,
}

impl Show<'_> {
    /// `A=1 B=2`, with more on lines of their own.
    fn print(&self, lines: &[Vec<(&str, String)>]) {
        let line = |all: &Vec<(&str, String)>| {
            all.iter().map(|(n, v)| format!("{n}={}", plain(v))).collect::<Vec<_>>().join(" ")
        };
        let all: Vec<String> = lines.iter().map(line).collect();
        println!("{}\n", all.join(if self.one_line { " " } else { "\n   " }));
    }

    fn job(&self, name: Option<&str>) -> Ended {
        let wanted = match name {
            Some(name) => vec![super::named(self.client, Id::read(name)?)?],
            None => {
                let mut all: Vec<u64> = ask::<Vec<Line>>(self.client, &Ask::List)?.iter().map(|l| l.job).collect();
                all.dedup();
                all.into_iter().map(Id::of).collect()
            }
        };
        let mut shown = Vec::new();
        for id in wanted {
            shown.push((id, ask::<Shown>(self.client, &Ask::Show(id))?));
        }
        if self.json {
            return print_json(&shown.iter().map(|(_, s)| s).collect::<Vec<_>>()).map(|()| 0);
        }
        if shown.is_empty() {
            println!("No jobs in the system");
        }
        let usual = ask::<Cluster>(self.client, &Ask::Cluster)?.rules.usual().to_owned();
        shown.iter().for_each(|(id, one)| self.print_job(*id, one, &usual));
        Ok(0)
    }

    /// The last of its tasks that has ended, if nothing of it waits or runs.
    fn past(&self, id: Id, state: State) -> Option<Past> {
        let what = Ask::History { user: None, job: Some(id.job), since: 0, most: 1000 };
        let all: Vec<Past> = if state.is_final() { ask(self.client, &what).ok()? } else { return None };
        let is_it = |p: &Past| p.outcome.state.is_final() && (id.task.is_none() || p.outcome.id.task == id.task);
        all.into_iter().rev().find(is_it)
    }

    fn print_job(&self, id: Id, shown: &Shown, usual: &str) {
        let (job, spec) = (&shown.job, &shown.job.spec);
        let request = &spec.request;
        let past = self.past(id, shown.state).map(|past| past.outcome);
        let run = job.running.iter().find(|(task, _)| id.task.is_none_or(|t| t == **task)).map(|(_, run)| run);
        let run = run.or(past.as_ref().map(|past| &past.run));
        let status = past.as_ref().map_or("0:0".into(), |past| super::accounts::end(&past.how).replace('-', "0:0"));
        let nodes: Vec<&str> = run.iter().flat_map(|run| &run.shares).map(|s| s.node.as_str()).collect();
        let count = if nodes.is_empty() { request.least_nodes().into() } else { nodes.len() as u64 };
        let number = job.number_of(id.task.unwrap_or(0));
        let names =
            Names { id, number, name: &spec.name, user: &spec.user, node: nodes.first().copied().unwrap_or("") };
        let whole = |pattern: &[u8]| {
            let directory = Path::new(OsStr::from_bytes(&spec.directory.0));
            directory.join(OsStr::from_bytes(&filled(pattern, &names))).to_string_lossy().into_owned()
        };
        let input = spec.files.input.as_ref().map_or("/dev/null".into(), |file| whole(&file.0));
        let ran = run.map_or(0, |run| run.ran(past.as_ref().map_or(super::now().0, |past| past.ended)));
        let cpus = run.map_or(request.least_cpus(), |run| run.cpus());
        self.print(&[
            called(job, id),
            vec![
                ("UserId", spec.user.clone()),
                ("Account", spec.account.clone()),
                ("QOS", spec.quality.clone().unwrap_or_else(|| "normal".into())),
            ],
            vec![
                ("Priority", shown.priority.map_or("0".into(), |(p, _)| format!("{p:.0}"))),
                ("Nice", spec.nice.to_string()),
            ],
            vec![
                ("JobState", shown.state.names().0.into()),
                ("Reason", why(shown)),
                ("Dependency", none(spec.dependency.to_string())),
            ],
            vec![
                ("Requeue", u8::from(spec.requeue).to_string()),
                ("Restarts", run.map_or(0, |r| if r.run == u32::MAX { 0 } else { r.run }).to_string()),
                ("ExitCode", status),
            ],
            vec![("RunTime", times::show(Some(ran))), ("TimeLimit", times::show(spec.limit_ms))],
            vec![
                ("SubmitTime", moment(Some(job.submitted))),
                ("StartTime", moment(run.map(|r| r.started).or(shown.expected))),
                ("EndTime", moment(past.as_ref().map(|past| past.ended).or(shown.ends))),
            ],
            vec![
                ("Partition", request.partition.clone().unwrap_or_else(|| usual.to_owned())),
                ("NodeList", nodes.join(",")),
                ("BatchHost", nodes.first().copied().unwrap_or("").into()),
            ],
            vec![
                ("NumNodes", count.to_string()),
                ("NumCPUs", cpus.to_string()),
                ("NumTasks", request.least_ranks().to_string()),
                ("CPUs/Task", request.cpus_per_rank.to_string()),
            ],
            vec![("ReqNodeList", none(request.wanted.join(","))), ("ExcNodeList", none(request.excluded.join(",")))],
            vec![memory(request), ("Features", none(request.features.join(",")))],
            vec![("WorkDir", String::from_utf8_lossy(&spec.directory.0).into_owned())],
            vec![
                ("StdOut", whole(pattern(&spec.files, id, false))),
                ("StdErr", whole(pattern(&spec.files, id, true))),
                ("StdIn", input),
            ],
        ]);
    }

    fn node(&self, name: Option<&str>) -> Ended {
        let mut all = nodes::cluster(self.client)?;
        let named = name.map(crate::nodelist::expand).transpose()?;
        if let Some(stranger) = named.iter().flatten().find(|n| !all.nodes.iter().any(|u| u.node.name == **n)) {
            return Err(format!("there is no node {stranger}"));
        }
        all.nodes.retain(|n| named.as_ref().is_none_or(|names| names.contains(&n.node.name)));
        if self.json {
            return print_json(&all.nodes).map(|()| 0);
        }
        for n in &all.nodes {
            let of = all.partitions.iter().filter(|p| p.nodes.contains(&n.node.name)).map(|p| p.name.as_str());
            let gres: Vec<String> = n.node.gres.iter().map(|g| format!("{}:{}", g.kind, g.count)).collect();
            let mut lines = vec![
                vec![("NodeName", n.node.name.clone()), ("State", n.state.to_uppercase())],
                vec![("CPUAlloc", n.used.0.to_string()), ("CPUTot", n.node.cpus.to_string())],
                vec![("RealMemory", n.node.memory.to_string()), ("AllocMem", n.used.1.to_string())],
                vec![("AvailableFeatures", n.node.features.join(",")), ("Gres", gres.join(","))],
                vec![("Jobs", n.jobs.to_string()), ("Partitions", of.collect::<Vec<_>>().join(","))],
            ];
            // As Slurm has it, with who said it and when.
            if let Some(drain) = &n.drain {
                let why = if drain.reason.is_empty() { "none" } else { &drain.reason };
                let at = moment(Some(drain.at).filter(|at| *at > 0));
                lines.push(vec![("Reason", format!("{why} [{}@{at}]", drain.by))]);
            }
            self.print(&lines);
        }
        Ok(0)
    }

    fn partition(&self, name: Option<&str>) -> Ended {
        let mut all = nodes::cluster(self.client)?;
        if let Some(name) = name.filter(|name| !all.partitions.iter().any(|p| p.name == **name)) {
            return Err(format!("there is no partition {name}"));
        }
        all.partitions.retain(|p| name.is_none_or(|name| p.name == name));
        if self.json {
            return print_json(&all.partitions).map(|()| 0);
        }
        for p in &all.partitions {
            let cpus: u32 = all.nodes.iter().filter(|n| p.nodes.contains(&n.node.name)).map(|n| n.node.cpus).sum();
            let users = if p.rules.users.is_empty() { "ALL".into() } else { p.rules.users.join(",") };
            let time = |ms: Option<u64>, none: &str| ms.map_or_else(|| none.to_owned(), |ms| times::show(Some(ms)));
            self.print(&[
                vec![("PartitionName", p.name.clone())],
                vec![("AllowUsers", users), ("Default", if p.usual { "YES" } else { "NO" }.into())],
                vec![
                    ("DefaultTime", time(p.rules.default_ms, "NONE")),
                    ("MaxTime", time(p.rules.most_ms, "UNLIMITED")),
                ],
                vec![("Nodes", p.nodes.join(",")), ("State", if p.rules.closed { "DOWN" } else { "UP" }.into())],
                vec![("TotalCPUs", cpus.to_string()), ("TotalNodes", p.nodes.len().to_string())],
            ]);
        }
        Ok(0)
    }

    /// What the queue goes by.
    fn config(&self) -> Ended {
        let all: pando_node::queue::ask::Cluster = ask(self.client, &Ask::Cluster)?;
        let info: Info = self.client.get("/v1/info").map_err(super::said)?;
        if self.json {
            return print_json(&all.rules).map(|()| 0);
        }
        say(&format!("ClusterName = {}", info.cluster));
        say(&format!("SlurmctldHost = {}", all.keeper));
        let rules = serde_json::to_value(&all.rules).map_err(|e| e.to_string())?;
        for (name, value) in rules.as_object().into_iter().flatten() {
            say(&format!("{name} = {value}"));
        }
        Ok(0)
    }
}
