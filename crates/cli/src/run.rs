//! `pando run`: the program is our child in the caller's own session, with its terminal, directory and
//! credentials; we wait for it, stop when it stops and end as it ended. The terminal sends its signals to both of us; those that somebody sends
//! to us alone are passed on.

use crate::args::RunOptions;
use crate::level;
use crate::stopping::Job;
use crate::waiting;
use pando_kernel::standard;
use pando_node::client::{Client, ClientError};
use pando_node::sys;
use pando_node::views::{Event, Info, Liveness, MoveRequest, Node, Process, RegisterRequest, Wish};
use std::ffi::OsString;
use std::fs::{File, FileType};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SEE_HELP: &str = "`pando run --help` shows what there is";
/// Exit statuses as shells have them.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
/// Nothing was started, and that is our doing (as env(1) and timeout(1) have it).
const NOT_STARTED: i32 = 125;
/// Beyond all exit codes: what is added to the number of a signal that ended the program.
const BY_SIGNAL: i32 = 0x100;
/// How long a program may take to map its libraries before it is moved all the same.
const FIRST_MOMENTS: Duration = Duration::from_millis(200);
/// How long after its end the daemon may take to say that it was lost.
const LAST_WORDS: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(2);

/// Runs it; gives our exit status.
pub fn run(client: &Client, mut options: RunOptions) -> i32 {
    options.node = options.node.or(options.best.then(|| "best".into())).filter(|n| n != "home");
    let daemon: Result<Info, ClientError> = client.get("/v1/info");
    if let (Err(e), Some(node)) = (&daemon, &options.node) {
        eprintln!("pando: it runs here and not at {node}: {e}");
    }
    if let Ok(daemon) = &daemon
        && let Err(why) = reachable(client, daemon, &options)
    {
        eprintln!("pando: {why}; nothing was started");
        return NOT_STARTED;
    }
    let wish = wish(&mut options);
    if let Err(why) = wish.check() {
        eprintln!("pando: {why}; nothing was started");
        return NOT_STARTED;
    }
    let variables = match options.cpu.as_deref().map_or(Ok(Vec::new()), level::variables) {
        Ok(variables) => variables,
        Err(why) => {
            eprintln!("pando: {why}; nothing was started");
            return NOT_STARTED;
        }
    };
    let begun = SystemTime::now();
    let passing = (!options.detach).then(sys::PassingOn::begin);
    let child = match start(&options, variables, daemon.as_ref().ok().map(|d| d.pid)) {
        Ok(child) => child,
        Err(e) => {
            let program = options.command[0].to_string_lossy();
            match program.starts_with('-') && e.kind() == io::ErrorKind::NotFound {
                true => eprintln!("pando: `{program}` is no option of `pando run`, nor a program\n{SEE_HELP}"),
                false => eprintln!("pando: {program}: {e}"),
            }
            return if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
        }
    };
    let pid = child.id();
    if let Some(passing) = &passing {
        passing.to(pid);
    }
    let place = daemon.is_ok().then_some(());
    if options.detach {
        print_pid(pid);
        let moved = place.map_or(Ok(()), |()| settle(client, pid, options.node.as_deref(), wish));
        // It runs, wherever: whoever reads our status would start it once more.
        let _ = moved.map_err(|text| complain(&text));
        return 0;
    }
    let mover = place.map(|()| {
        let (client, node) = (client.clone(), options.node);
        // Beside the waiting, which must see the end of the program whatever the daemon does.
        std::thread::spawn(move || settle(&client, pid, node.as_deref(), wish).map_err(|text| complain(&text)))
    });
    let status = wait(&child);
    drop(passing);
    drop(mover);
    if let Some(home) = daemon.ok().filter(|_| status == BY_SIGNAL + libc::SIGKILL).map(|d| d.name) {
        tell_loss(client, &home, pid, begun);
    }
    if status > BY_SIGNAL {
        sys::die_of(status - BY_SIGNAL);
        return 128 + status - BY_SIGNAL;
    }
    status
}

/// What the user wants of Pando.
fn wish(options: &mut RunOptions) -> Wish {
    Wish {
        home_only: options.home_only,
        no_move: options.no_move,
        nodes: options.nodes.take(),
        max_moves: options.max_moves,
        memory: options.memory,
        apart: options.apart.take(),
        together: options.together.take(),
        children: options.children,
    }
}

/// Are there such nodes, and is the one where it is to begin up?
fn reachable(client: &Client, daemon: &Info, options: &RunOptions) -> Result<(), String> {
    let asked = options.node.iter().filter(|n| !["best", "home"].contains(&n.as_str()));
    let asked: Vec<&String> = asked.chain(options.nodes.iter().flatten()).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let nodes: Vec<Node> = client.get("/v1/nodes").map_err(|e| e.to_string())?;
    let known: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    if let Some(stranger) = asked.iter().find(|n| !known.contains(&n.as_str())) {
        let number = if stranger.parse::<u32>().is_ok() {
            format!("; a number of nodes is -N {stranger}")
        } else {
            String::new()
        };
        return Err(format!("there is no node {stranger} (there are {}){number}", known.join(", ")));
    }
    let Some(first) = nodes.iter().find(|n| Some(&n.name) == options.node.as_ref()) else { return Ok(()) };
    if first.state == Liveness::Down {
        return Err(format!("node {} is down: see `pando nodes`", first.name));
    }
    let among = |all: &Vec<String>| all.contains(&first.name) || first.name == daemon.name;
    match options.nodes.as_ref().is_none_or(among) {
        true => Ok(()),
        false => Err(format!("--node {} is not among --nodes", first.name)),
    }
}

/// A program that was lost with another node ends as if killed: says what the daemon knows of it.
fn tell_loss(client: &Client, home: &str, pid: u32, begun: SystemTime) {
    let start = Instant::now();
    let begun_ms = begun.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis()) as u64;
    // Earlier ones are about another process that had this number, maybe before this machine was started anew.
    let ours = |e: &&Event| e.pid == Some(pid) && e.home.as_deref() == Some(home) && e.time_ms >= begun_ms;
    let lacked = |e: &&Event| e.kind == "memory" && e.from.as_deref() == Some(home) && e.time_ms >= begun_ms;
    while start.elapsed() < LAST_WORDS {
        let events: Result<Vec<Event>, _> = client.get("/v1/events");
        let Ok(events) = events else { return };
        let lost = events.iter().rev().find(|e| e.kind == "lost" && ours(e));
        if let Some(event) = lost {
            eprintln!("pando: {}; `pando events` has what happened before", event.text);
            return;
        }
        // One that was at home is lost to nobody else.
        if let Some(event) = events.iter().rev().find(lacked) {
            eprintln!(
                "pando: process {pid} was killed; {}: it may have been one of them (`pando run --memory SIZE` says before what it needs)",
                event.text
            );
            return;
        }
        std::thread::sleep(STEP * 10);
    }
}

/// A file is to have what the program says, and nothing else.
fn print_pid(pid: u32) {
    match (is_file(&io::stdout()), is_file(&io::stderr())) {
        (false, _) => println!("{pid}"),
        (true, false) => eprintln!("{pid}"),
        (true, true) => {}
    }
}

fn complain(text: &str) -> i32 {
    eprintln!("pando: {text}");
    1
}

fn start(options: &RunOptions, variables: Vec<(String, OsString)>, daemon: Option<u32>) -> io::Result<Child> {
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]).envs(variables);
    if options.detach {
        command.stdin(Stdio::null());
        // Whoever reads our pid from a pipe must not wait for the program's end.
        if is_pipe(&io::stdout()) {
            command.stdout(Stdio::null());
        }
        if is_pipe(&io::stderr()) {
            command.stderr(Stdio::null());
        }
    }
    sys::prepare_program(&mut command, daemon, options.detach);
    standard::hand_on_closed();
    command.spawn()
}

fn is_pipe(stream: &impl AsFd) -> bool {
    kind(stream).is_some_and(|k| k.is_fifo())
}

fn is_file(stream: &impl AsFd) -> bool {
    kind(stream).is_some_and(|k| k.is_file())
}

fn kind(stream: &impl AsFd) -> Option<FileType> {
    let copy = stream.as_fd().try_clone_to_owned().map(File::from);
    copy.and_then(|f| f.metadata()).ok().map(|m| m.file_type())
}

/// Tells the daemon of the program, and has it moved if that was asked.
fn settle(client: &Client, pid: u32, node: Option<&str>, wish: Wish) -> Result<(), String> {
    let known: Result<Process, _> = client.post("/v1/register", &RegisterRequest { pid, wish });
    let Some(node) = node else {
        // It runs, and that is what was asked; that nobody may move it is worth no message.
        return Ok(());
    };
    if let Err(e) = known {
        return if ended(pid) { Ok(()) } else { Err(format!("process {pid} stays here: {e}")) };
    }
    let start = Instant::now();
    while start.elapsed() < FIRST_MOMENTS && !ended(pid) && !has_begun(pid) {
        std::thread::sleep(STEP);
    }
    let request = MoveRequest { pid, dest: node.to_owned(), reason: Some("run".into()), family: true };
    match waiting::move_it(client, &request) {
        Ok(_) => Ok(()),
        Err(_) if ended(pid) => Ok(()),
        Err(e) => Err(format!("process {pid} stays here: {e}")),
    }
}

fn ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| matches!(rest.trim_start().chars().next(), None | Some('Z' | 'X')))
}

/// It has used some CPU, or sleeps: the loader is done, as far as one can see from here.
fn has_begun(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return true;
    };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let user_ticks: u64 = fields.get(11).and_then(|f| f.parse().ok()).unwrap_or(0);
    fields.first() == Some(&"S") || user_ticks >= 2
}

fn wait(child: &Child) -> i32 {
    match Job::new(child.id()).wait() {
        Ok(status) => as_it_ended(status),
        Err(e) => complain(&format!("waiting for it: {e}")),
    }
}

/// Our status is the program's. One that a signal ended ends us by the same, once all is said: only so a shell says `Terminated`, or
/// leaves its loop at Ctrl-C.
fn as_it_ended(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|s| BY_SIGNAL + s)).unwrap_or(1)
}
