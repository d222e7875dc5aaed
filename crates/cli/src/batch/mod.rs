//! Batch jobs: `pando submit`, `queue`, `cancel` and what else is said to the queue.

mod accounts;
mod alloc;
mod columns;
mod format;
mod list;
mod logs;
mod nodes;
pub mod options;
mod past;
mod ranks;
mod reserve;
mod scontrol;
mod shown;
mod spec;
mod taken;
mod usage;

pub use format::plain;

use crate::args::{BatchVerb, SubmitOptions, all_jobs};
use crate::parallel::environment::{Variables, environment, with_login};
use crate::show::print_json;

use pando_node::client::{Client, ClientError};
use pando_node::queue::ask::{Ask, Cluster, Done, Over, Sends};
use pando_node::sys;
use pando_node::views::Drain;
use pando_queue::{Bytes, Id, Spec, Work, directives};
use serde::de::DeserializeOwned;
use spec::{Manner, take, whole};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One wait; then it is asked again.
const PATIENCE_MS: u64 = 30_000;
/// Who shows nodes waits so long for the reasons of those that are drained.
const REASONS_WITHIN: Duration = Duration::from_secs(1);

/// By this a command knows that it has begun again within a job, whatever that was called.
const WITHIN: &str = "PANDO_BATCH_WITHIN";
/// A daemon that is started again is there within this.
const COMES_BACK: Duration = Duration::from_secs(60);
/// It is tried so often.
const PAUSE: Duration = Duration::from_millis(300);

type Ended = Result<i32, String>;

fn said(e: ClientError) -> String {
    e.to_string()
}

/// Asks the queue.
fn ask<T: DeserializeOwned>(client: &Client, what: &Ask) -> Result<T, String> {
    let _waits = taken::Waits::begin();
    client.post("/v1/queue", what).map_err(said)
}

/// Nodes that are drained and why, as the node that keeps the queue knows it. Whoever asks does not wait until there is one: none are known then.
pub fn drains(client: Client) -> BTreeMap<String, Drain> {
    let (says, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let all: Option<Cluster> = client.post("/v1/queue", &Ask::Cluster).ok();
        // Nobody may hear it any more.
        drop(says.send(all.map(|all| all.drains)));
    });
    hears.recv_timeout(REASONS_WITHIN).ok().flatten().unwrap_or_default()
}

/// What is meant by a number: a task of an array has one of its own, too.
fn named(client: &Client, id: Id) -> Result<Id, String> {
    let all: Vec<Id> = ask(client, &Ask::Named(vec![id]))?;
    Ok(all.first().copied().unwrap_or(id))
}

fn now() -> (u64, i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_millis() as u64, sys::zone_s(now.as_secs()))
}

/// The script's own words first, then those of the command line.
fn made(options: &SubmitOptions) -> Result<(Spec, Manner), String> {
    let (mut spec, mut manner) = (Spec::default(), Manner::default());
    let (work, name) = work(options)?;
    if let Work::Script { text, .. } = &work {
        let shown = options.script.first().map_or("standard input".into(), |s| s.to_string_lossy().into_owned());
        for directive in directives::read(&text.0).map_err(|wrong| format!("{shown}: {wrong}"))? {
            for word in &directive.words {
                take(&mut spec, &mut manner, word, now())
                    .map_err(|why| format!("{shown}: line {}: {why}", directive.line))?;
            }
        }
    }
    if options.slurm {
        say_outside(&mut spec, &mut manner, "SBATCH")?;
    }
    say(&mut spec, &mut manner, &options.said.0, name)?;
    let here = std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?;
    let directory = manner.chdir.as_ref().map_or(here.clone(), |dir| here.join(dir));
    spec.directory = Bytes(directory.as_os_str().as_bytes().to_vec());
    let all: Variables = std::env::vars_os().collect();
    let mut variables = environment(all.clone(), manner.export.as_deref().map(OsStr::new), &[])?;
    if manner.export.is_some() {
        variables = with_login(variables, &all);
    }
    spec.environment = variables.into_iter().map(|(n, v)| (Bytes(n.into_vec()), Bytes(v.into_vec()))).collect();
    let name = (Bytes::from("SLURM_SUBMIT_HOST"), Bytes::from(host().as_str()));
    spec.environment.retain(|(n, _)| *n != name.0);
    spec.environment.push(name);
    spec.work = work;
    spec::gpus(&mut spec.request, manner.gpus.as_deref())?;
    spec::scratch(&mut spec.request, manner.scratch)?;
    spec.limits = spec::limits(manner.limits.as_deref())?;
    whole(&mut spec.tell, me);
    if spec.files.output.is_none() && options.slurm {
        spec.files.output = Some(Bytes::from(if spec.array.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" }));
    }
    Ok((spec, manner))
}

/// What the environment says, as Slurm's commands have it: it counts more than a script's lines, and less than the command line.
fn say_outside(spec: &mut Spec, manner: &mut Manner, of: &str) -> Result<(), String> {
    const NAMES: [(&str, &str); 8] = [
        ("ACCOUNT", "account"),
        ("CONSTRAINT", "constraint"),
        ("EXPORT", "export"),
        ("PARTITION", "partition"),
        ("QOS", "qos"),
        ("RESERVATION", "reservation"),
        ("TIMELIMIT", "time"),
        ("WCKEY", "wckey"),
    ];
    for (name, option) in NAMES {
        let name = format!("{of}_{name}");
        if let Some(value) = said_outside(&name) {
            take(spec, manner, &format!("--{option}={value}"), now()).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(())
}

/// A variable of ours, if it says something.
fn said_outside(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What the command line says.
fn say(spec: &mut Spec, manner: &mut Manner, words: &[String], name: String) -> Result<(), String> {
    for word in words {
        take(spec, manner, word, now())?;
    }
    if spec.name.is_empty() {
        spec.name = name;
    }
    Ok(())
}

/// What runs, and what it is called.
fn work(options: &SubmitOptions) -> Result<(Work, String), String> {
    let bytes = |word: &std::ffi::OsString| Bytes(word.clone().into_vec());
    if let Some(command) = &options.wrap {
        let words = ["/bin/sh".into(), "-c".into(), command.clone()];
        return Ok((Work::Words(words.iter().map(bytes).collect()), "wrap".into()));
    }
    let Some((script, arguments)) = options.script.split_first() else {
        return script_of(&mut std::io::stdin(), "standard input", Vec::new()).map(|work| (work, "stdin".into()));
    };
    if script.as_bytes().starts_with(b"-") {
        return Err(format!("`{}` is no option of `pando submit`: --help shows them", script.to_string_lossy()));
    }
    let path = PathBuf::from(script);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = std::fs::File::open(&path);
    let is_script = |path: &Path| {
        let mut first = [0; 2];
        std::fs::File::open(path).and_then(|mut f| f.read_exact(&mut first)).is_ok() && first != *b"\x7fE"
    };
    match file {
        Ok(mut file) if is_script(&path) => {
            let arguments = arguments.iter().map(bytes).collect();
            script_of(&mut file, &path.display().to_string(), arguments).map(|work| (work, name))
        }
        // A program: found as a shell finds it, or named with a directory.
        Ok(_) => {
            let whole = std::path::absolute(&path).map_err(|e| e.to_string())?;
            let words = std::iter::once(Bytes(whole.into_os_string().into_vec())).chain(arguments.iter().map(bytes));
            Ok((Work::Words(words.collect()), name))
        }
        Err(e) if script.as_bytes().contains(&b'/') => Err(format!("{}: {e}", path.display())),
        Err(e) => Err(format!("{}: {e}; a command goes with --wrap", path.display())),
    }
}

fn script_of(from: &mut dyn Read, shown: &str, arguments: Vec<Bytes>) -> Result<Work, String> {
    let mut text = Vec::new();
    let most = pando_queue::MOST_SCRIPT as u64 + 1;
    from.take(most).read_to_end(&mut text).map_err(|e| format!("{shown}: {e}"))?;
    Ok(Work::Script { text: Bytes(text), arguments })
}

/// `--test-only`: what would be submitted. When it would start the queue says only of jobs that it has.
fn trial(client: &Client, options: &SubmitOptions, spec: Spec, quiet: bool) -> Ended {
    let mut shown = Spec { environment: Vec::new(), user: "you".into(), ..spec };
    shown.check()?;
    shown.user.clear();
    if options.json {
        return print_json(&shown).map(|()| 0);
    }
    let (called, request) = (if options.slurm { "sbatch" } else { "pando" }, &shown.request);
    if let Some(why) = nodes::impossible(client, request).filter(|_| !quiet) {
        eprintln!("{called}: it can't start on the nodes that there are: {why}; it would wait for others to come");
    }
    say_counted(client, request, quiet);
    let known = request.partition.as_ref().zip(ask::<Cluster>(client, &Ask::Cluster).ok());
    if let Some((name, _)) = known.filter(|(name, all)| !all.partitions.iter().any(|p| p.name == **name)) {
        return Err(format!("there is no partition {name} (--partition): `sinfo` shows them"));
    }
    let (ranks, nodes) = (request.least_ranks(), request.least_nodes());
    let many = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let limit = shown.limit_ms.map_or("time limit of its partition".into(), |_| {
        format!("time limit {}", pando_queue::times::show(shown.limit_ms))
    });
    let (ranks, nodes) = (many(ranks, "task"), many(nodes, "node"));
    let what = if options.script.is_empty() { "what is asked for" } else { "the script" };
    eprintln!("{called}: {what} is in order: {ranks} on {nodes}, {limit}; nothing was submitted");
    Ok(0)
}

/// `pando submit`.
pub fn submit(client: &Client, options: &SubmitOptions) -> Ended {
    let (mut spec, manner) = made(options)?;
    if manner.test_only {
        return trial(client, options, spec, manner.quiet);
    }
    if spec.tell.mail.is_some() && !ask::<Sends>(client, &Ask::Sends)?.mail {
        // Scripts that say it run all the same.
        eprintln!("pando: this cluster sends no mail ([queue] mailer): --mail-type changes nothing");
        spec.tell.mail = None;
    }
    let request = spec.request.clone();
    let number = taken::submit(client, spec)?;
    if let Some(why) = nodes::impossible(client, &request).filter(|_| !manner.quiet) {
        eprintln!("pando: job {number} can't start on the nodes that there are: {why}; it waits for others to come");
    }
    say_counted(client, &request, manner.quiet);
    match (manner.quiet, manner.parsable || options.json) {
        (true, _) => {}
        (_, true) => println!("{number}"),
        // Scripts take the fourth word.
        _ => println!("Submitted batch job {number}"),
    }
    if manner.wait { wait(client, &[Id::of(number)], true) } else { Ok(0) }
}

/// Who asks for scratch space is to know where it is not the kernel that holds him to it.
fn say_counted(client: &Client, request: &pando_queue::Request, quiet: bool) {
    let counted = if quiet { Vec::new() } else { nodes::counted(client, request) };
    if !counted.is_empty() {
        let names = counted.join(", ");
        eprintln!(
            "pando: --scratch: no project quota at {names}: what a job has there is counted, and one that has more is ended (--constraint scratch-quota avoids them)"
        );
    }
}

/// `pando wait`: the worst of their ends.
pub fn wait(client: &Client, ids: &[Id], quiet: bool) -> Ended {
    let mut worst = 0;
    let mut is_known = false;
    for id in ids {
        let (state, status) = loop {
            // Who has had an answer once waits for a daemon that is started again: the first one is there at once.
            let what = Ask::Wait { id: *id, patience_ms: if is_known { PATIENCE_MS } else { 0 } };
            let over: Over = if is_known { ask_on(client, &what)? } else { ask(client, &what)? };
            is_known = true;
            if let Some(end) = over.end {
                break end;
            }
        };
        if !quiet {
            println!("job {id}: {}", state.names().0.to_lowercase());
        }
        worst = worst.max(status);
    }
    Ok(worst)
}

/// What could not be done is said; the status is 1 then.
pub fn order(client: &Client, what: &Ask) -> Ended {
    let done: Done = ask(client, what)?;
    done.refused.iter().for_each(|why| eprintln!("pando: {}", format::plain(why)));
    Ok(i32::from(!done.refused.is_empty()))
}

/// One of the verbs; its status.
pub fn act(client: &Client, verb: BatchVerb) -> i32 {
    let done = match verb {
        BatchVerb::Submit(options) => submit(client, &options),
        BatchVerb::Queue(options) => list::queue(client, &options),
        BatchVerb::Cancel(options) => list::cancel(client, &options),
        BatchVerb::Hold(ids) => order(client, &Ask::Hold(all_jobs(&ids.jobs))),
        BatchVerb::Release(ids) => order(client, &Ask::Release(all_jobs(&ids.jobs))),
        BatchVerb::Requeue { hold, ids } => order(client, &Ask::Requeue { ids: all_jobs(&ids.jobs), hold }),
        BatchVerb::Wait(ids) => wait(client, &all_jobs(&ids.jobs), false),
        BatchVerb::Info { job, ranks: true, json } => ranks::show(client, job, json).map(|()| 0),
        BatchVerb::Info { job, json, .. } => shown::info(client, job, json).map(|()| 0),
        BatchVerb::Logs(options) => logs::logs(client, &options),
        BatchVerb::Attach { shell: true, job } => alloc::shell(client, job),
        BatchVerb::Attach { job, .. } => logs::attach(client, job),
        BatchVerb::Alloc(options) => alloc::alloc(client, &options),
        BatchVerb::Tie { job } => alloc::tie(client, job),
        BatchVerb::Scontrol { words } => scontrol::scontrol(client, &words),
        BatchVerb::Sinfo(options) => nodes::sinfo(client, &options),
        BatchVerb::Usage(options) => usage::show(client, &options).map(|()| 0),
        BatchVerb::Reserve(options) => reserve::reserve(client, &options),
        BatchVerb::History(options) => past::history(client, &options),
    };
    done.unwrap_or_else(|why| {
        eprintln!("pando: {}", format::plain(&why));
        1
    })
}

/// Are we in this job already?
pub fn is_within(id: Id) -> bool {
    let is = |name: &str| std::env::var(name).is_ok_and(|job| job == id.to_string());
    is("PANDO_BATCH_JOB") || is("PANDO_BATCH_NUMBER") || is(WITHIN)
}

/// Has this very command begin again within a job. Comes back, with the reason, only if that can't be.
pub fn enter_again(client: &Client, id: Id) -> String {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    alloc::enter(client, id, &name, words).err().unwrap_or_default()
}

/// `pando explain JOB`.
pub fn explain(client: &Client, job: Id, json: bool) -> Result<(), String> {
    shown::explain(client, job, json)
}

/// `pando explain NUMBER`: a process, if a program of that number runs here, and otherwise a job.
pub fn explain_any(client: &Client, id: Id, json: bool) -> Result<(), String> {
    let pid = u32::try_from(id.job).ok().filter(|_| id.task.is_none());
    // The kernel's own have no words, and there are many with low numbers, as jobs have.
    let is_program = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty());
    match pid {
        Some(pid) if is_program(&pid) => crate::show::explain(client, pid, json),
        None => shown::explain(client, id, json),
        Some(pid) => shown::explain(client, id, json).or_else(|_| crate::show::explain(client, pid, json)),
    }
}

/// Has the daemon, or the queue's, no answer for now? Otherwise it has said no.
fn is_passing(e: &ClientError) -> bool {
    match e {
        ClientError::NoDaemon { .. } | ClientError::Silent { .. } | ClientError::Broken(_) => true,
        ClientError::Refused(why) => {
            ["the queue can't be asked", "no node that is up"].iter().any(|p| why.starts_with(p))
        }
    }
}

/// Asks for as long as a daemon may take that is started again.
fn ask_on<T: DeserializeOwned>(client: &Client, what: &Ask) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match client.post("/v1/queue", what) {
            Err(e) if is_passing(&e) && begun.elapsed() < COMES_BACK => std::thread::sleep(PAUSE),
            answer => return answer.map_err(said),
        }
    }
}

/// What this machine is called.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn me() -> String {
    sys::user_name(sys::effective_uid())
}

/// `USR1`, `SIGUSR1`, `10`.
fn signal(text: &str) -> Result<i32, String> {
    const NAMES: [(&str, i32); 12] = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("WINCH", libc::SIGWINCH),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = NAMES.iter().find(|(n, _)| *n == name).map(|(_, number)| *number);
    let number = known.or_else(|| text.parse().ok().filter(|n| (1..=64).contains(n)));
    number.ok_or_else(|| format!("`{text}` is no signal: write USR1, or its number"))
}
