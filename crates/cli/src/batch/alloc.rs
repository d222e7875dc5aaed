//! `pando alloc`: nodes for a command that runs here. They are those of a batch job whose script only waits; a process of its own, which ends
//! with us but is not stopped with us, tells the queue all the time that somebody is there (docs/decisions/0039).

use super::spec::Manner;
use super::{Ended, PAUSE, ask, ask_on, nodes, order, say, taken};
use crate::args::AllocOptions;
use crate::stopping::Job as Program;
use pando_kernel::signal;
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Cluster, Done, Shown, Tied};
use pando_node::queue::errand::{Key, Order};
use pando_node::queue::variables;
use pando_node::sys;
use pando_node::views::Info;
use pando_queue::{Bytes, Id, Share, Spec, State, Work};
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// One wait; then it is asked again.
const PATIENCE_MS: u64 = 10_000;
/// They end it while it waits, and are passed on to the command.
const HEEDED: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// What is said of a script's place, which the command here has not got.
const OF_A_SCRIPT: [&str; 5] = ["PANDO_NODE", "SLURMD_NODENAME", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"];

/// How far it has come, for the thread that hears signals.
enum Phase {
    Asks,
    Waits(u64),
    Runs(u32),
    /// What becomes of it is no news.
    Over,
}

/// A command does not begin with a hyphen: what does is an option that is not known.
fn refuse_options(options: &AllocOptions) -> Result<(), String> {
    let Some(word) = options.command.first().map(|c| c.to_string_lossy()).filter(|c| c.starts_with('-')) else {
        return Ok(());
    };
    let called = if options.slurm { "salloc" } else { "pando alloc" };
    Err(match word.split('=').next().unwrap_or("") {
        "--no-shell" => format!("{word}: an allocation ends with its command; `sbatch` runs a script without you"),
        name if name == "--immediate" || name.starts_with("-I") => {
            format!("{word}: {called} waits until there is room, and Ctrl-C ends that")
        }
        _ => format!("`{word}` is no option of `{called}`: --help shows them"),
    })
}

/// What the holder of the nodes does.
fn holder(options: &AllocOptions) -> Result<(Spec, Manner), String> {
    let (mut spec, mut manner) = (Spec::default(), Manner::default());
    let name = options.command.first().map(|c| c.to_string_lossy().into_owned());
    let name = name.as_deref().and_then(|n| n.rsplit('/').next()).unwrap_or("interactive").to_owned();
    if options.slurm {
        super::say_outside(&mut spec, &mut manner, "SALLOC")?;
    }
    say(&mut spec, &mut manner, &options.said.0, name)?;
    refuse_options(options)?;
    if spec.array.is_some() {
        return Err("--array: an allocation has no tasks".into());
    }
    // It must be able to wait wherever its nodes are, whatever there is of ours.
    let words = ["/bin/sh", "-c", "while sleep 1000; do :; done"];
    spec.work = Work::Words(words.iter().map(|w| Bytes::from(*w)).collect());
    spec.files.output = Some(Bytes::from("/dev/null"));
    (spec.files.error, spec.files.input) = (None, None);
    (spec.requeue, spec.tied) = (false, true);
    super::spec::gpus(&mut spec.request, manner.gpus.as_deref())?;
    super::spec::scratch(&mut spec.request, manner.scratch)?;
    let here = std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?;
    let directory = manner.chdir.as_ref().map_or(here.clone(), |dir| here.join(dir));
    spec.directory = Bytes(directory.into_os_string().into_vec());
    Ok((spec, manner))
}

/// `pando alloc`: the command's status.
pub fn alloc(client: &Client, options: &AllocOptions) -> Ended {
    let (spec, manner) = holder(options)?;
    let called = if options.slurm { "salloc" } else { "pando" };
    let tell = |text: &str| {
        if !manner.quiet {
            eprintln!("{called}: {text}")
        }
    };
    // Before there is another thread.
    let heeded: Vec<i32> = HEEDED.into_iter().filter(|s| !signal::is_ignored(*s)).collect();
    signal::block(&heeded);
    let phase = Arc::new(Mutex::new(Phase::Asks));
    hear(client.clone(), heeded, phase.clone(), called);
    let number = taken::submit(client, spec.clone())?;
    *phase.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Waits(number);
    let mut tie = tied(number)?;
    tell(&format!("Pending job allocation {number}"));
    if let Some(why) = nodes::impossible(client, &spec.request) {
        tell(&format!("it can't start on the nodes that there are: {why}; it waits for others to come"));
    }
    let stands = loop {
        let ask = Ask::Tie { job: number, known: Some(State::Pending), patience_ms: PATIENCE_MS };
        let stands: Tied = ask_on(client, &ask)?;
        if stands.state.is_final() || stands.state == State::Completing {
            // If it was our own user's signal, that ends us.
            let _phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
            let how = stands.state.names().0.to_lowercase();
            return Err(format!("job allocation {number} has been revoked ({how})"));
        }
        if stands.state == State::Running && stands.began {
            break stands;
        }
    };
    tell(&format!("Granted job allocation {number}"));
    let nodes: Vec<&str> = stands.shares.iter().map(|s| s.node.as_str()).collect();
    tell(&format!("Nodes {} are ready for job", nodes.join(",")));
    // As the queue has it: with its user and account.
    let spec = ask_on::<Shown>(client, &Ask::Show(Id::of(number))).map_or(spec, |shown| shown.job.spec);
    let done = runs(client, options, (&spec, number, &stands.shares), &phase, called);
    let done = done.map_err(|why| format!("{why}; job allocation {number} is given back"));
    let given: Result<Done, String> = ask_on(client, &Ask::GiveBack(number));
    tell(&match given {
        Ok(_) => format!("Relinquishing job allocation {number}"),
        Err(why) => format!("job allocation {number} ends when nothing is heard of it: {why}"),
    });
    let _ = tie.kill().and_then(|()| tie.wait());
    match done? {
        Ok(status) => Ok(status),
        Err(number) => {
            sys::die_of(number);
            Ok(128 + number)
        }
    }
}

/// Has the command run: its status, or the signal that ended it.
fn runs(
    client: &Client,
    options: &AllocOptions,
    job: (&Spec, u64, &[Share]),
    phase: &Arc<Mutex<Phase>>,
    called: &'static str,
) -> Result<Result<i32, i32>, String> {
    let (spec, number, shares) = job;
    let shell = || vec![std::env::var_os("SHELL").filter(|s| !s.is_empty()).unwrap_or_else(|| "/bin/sh".into())];
    let words = if options.command.is_empty() { shell() } else { options.command.clone() };
    let shown = words[0].to_string_lossy().into_owned();
    let mut command = Command::new(&words[0]);
    let here = std::env::current_dir().unwrap_or_default();
    command.args(&words[1..]).envs(given(spec, (Id::of(number), number), 0, shares)).env("SLURM_SUBMIT_DIR", here);
    command.env("SLURM_SUBMIT_HOST", super::host()).envs(variables::asked(spec)).envs(of_cluster(client, spec));
    sys::unblock_signals(&mut command);
    OF_A_SCRIPT.iter().for_each(|name| _ = command.env_remove(name));
    let child = {
        // What comes now is for the command.
        let mut phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
        match command.spawn() {
            Ok(child) => {
                *phase = Phase::Runs(child.id());
                child
            }
            Err(e) => {
                eprintln!("{called}: {shown}: {e}");
                return Ok(Ok(if e.kind() == ErrorKind::NotFound { 127 } else { 126 }));
            }
        }
    };
    let (client, theirs) = (client.clone(), phase.clone());
    std::thread::spawn(move || watch(&client, number, &theirs, called));
    let status = Program::new(child.id()).wait().map_err(|e| format!("waiting for {shown}: {e}"));
    *phase.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Over;
    let status = status?;
    Ok(status.code().map_or_else(|| Err(status.signal().unwrap_or(libc::SIGKILL)), Ok))
}

/// The cluster's name and the job's partition, if that can be said.
fn of_cluster(client: &Client, spec: &Spec) -> Vec<(&'static str, String)> {
    let (info, all) = (client.get::<Info>("/v1/info"), ask::<Cluster>(client, &Ask::Cluster));
    let (Ok(info), Ok(all)) = (info, all) else { return Vec::new() };
    variables::of_cluster(spec, info.cluster, all.rules.usual()).to_vec()
}

/// The command hears of it when its nodes are no longer its own.
fn watch(client: &Client, number: u64, phase: &Mutex<Phase>, called: &str) {
    loop {
        let ask = Ask::Tie { job: number, known: Some(State::Running), patience_ms: PATIENCE_MS };
        let revoked = match ask_on::<Tied>(client, &ask) {
            Ok(tied) => tied.state.is_final() || [State::Completing, State::Pending].contains(&tied.state),
            Err(_) => true,
        };
        let phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
        match *phase {
            Phase::Runs(pid) if revoked => {
                eprintln!("{called}: Job allocation {number} has been revoked");
                let _ = signal::kill(pid as i32, libc::SIGHUP);
                let _ = signal::kill(pid as i32, libc::SIGCONT);
                return;
            }
            Phase::Runs(_) => {}
            _ => return,
        }
        drop(phase);
        std::thread::sleep(PAUSE);
    }
}

/// What the job's programs are told of it.
fn given(spec: &Spec, (id, number): (Id, u64), run: u32, shares: &[Share]) -> Vec<(&'static str, String)> {
    let order = Order::of(spec, Key { keeper: String::new(), id, run }, number, shares.to_vec());
    variables::ours(&order, shares.first().map_or("", |s| s.node.as_str()))
}

/// Signals: while it waits they end it, then the command gets those that were for us alone.
fn hear(client: Client, heeded: Vec<i32>, phase: Arc<Mutex<Phase>>, called: &'static str) {
    std::thread::spawn(move || {
        loop {
            let number = signal::wait_for(&heeded);
            let phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
            match *phase {
                // If it has been taken, it ends when nothing is heard of it.
                Phase::Asks => sys::die_of(number),
                Phase::Waits(job) => {
                    eprintln!("{called}: Job allocation {job} has been revoked");
                    let _ = ask::<Done>(&client, &Ask::GiveBack(job));
                    sys::die_of(number);
                }
                // The terminal sends these to both of us.
                Phase::Runs(_) if [libc::SIGINT, libc::SIGQUIT].contains(&number) => {}
                Phase::Runs(pid) => _ = signal::kill(pid as i32, number),
                Phase::Over => {}
            }
        }
    });
}

/// Starts the process that says that we are there: in a group of its own, so that what stops or interrupts us does not stop it.
fn tied(job: u64) -> Result<Child, String> {
    let exe = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
    let mut command = Command::new(exe);
    command.args(["__tie".to_owned(), job.to_string()]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|e| format!("the process that keeps the allocation: {e}"))
}

/// `pando __tie`: until the one who started it, or the allocation, is no more.
pub fn tie(client: &Client, job: u64) -> Ended {
    sys::ignore_signals(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]);
    let theirs = client.clone();
    std::thread::spawn(move || {
        // Nothing is ever said: only the end counts.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(order(&theirs, &Ask::GiveBack(job)).unwrap_or(1));
    });
    let mut known = None;
    loop {
        let tied: Tied = ask_on(client, &Ask::Tie { job, known, patience_ms: PATIENCE_MS })?;
        if tied.state.is_final() {
            return Ok(0);
        }
        // One that is about to run is asked for until it does.
        known = Some(tied.state);
    }
}

/// `pando attach --shell`: a step of the job, with a terminal.
pub fn shell(client: &Client, id: Id) -> Ended {
    let shell = std::env::var_os("SHELL").filter(|s| !s.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let id = super::named(client, id)?;
    let shown: Shown = ask(client, &Ask::Show(id))?;
    let (_, share, _) = nodes_of(&shown, id)?;
    let directory = String::from_utf8_lossy(&shown.job.spec.directory.0).into_owned();
    let words = ["run", "--pty", "-n", "1", "-w", &share[0].node, "-D", &directory].map(OsString::from);
    enter(client, id, OsStr::new("pando"), words.into_iter().chain([shell]))
}

/// The task that an id means, what it has of its nodes, and the number of its run.
fn nodes_of(shown: &Shown, id: Id) -> Result<(Id, Vec<Share>, u32), String> {
    let job = &shown.job;
    let mut meant = job.running.iter().filter(|(task, _)| id.task.is_none_or(|t| t == **task));
    match (meant.next(), meant.next()) {
        (Some((task, run)), None) if !run.shares.is_empty() => Ok((job.name_of(*task), run.shares.clone(), run.run)),
        (Some(_), Some(_)) => Err(format!("several tasks of job {id} run: say which, like {id}_1")),
        _ => Err(format!("nothing of job {id} runs: `pando explain --job {id}` says how it stands")),
    }
}

/// Becomes `NAME WORDS`, another command of ours, within a job that runs: with its variables. Comes back only if that can't be.
pub fn enter(client: &Client, id: Id, name: &OsStr, words: impl IntoIterator<Item = OsString>) -> Ended {
    let meant = super::named(client, id)?;
    let shown: Shown = ask(client, &Ask::Show(meant))?;
    let (task, shares, run) = nodes_of(&shown, meant)?;
    let number = shown.job.number_of(task.task.unwrap_or(0));
    if shown.job.spec.user != super::me() {
        return Err(format!("job {id} is {}'s, and not yours", shown.job.spec.user));
    }
    let exe = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
    let mut command = Command::new(exe);
    command.arg0(name).args(words).envs(given(&shown.job.spec, (task, number), run, &shares));
    // Whoever named all tasks by one that runs is in that one.
    command.env(super::WITHIN, id.to_string());
    Err(format!("/proc/self/exe: {}", command.exec()))
}
