//! `pando map`: one short task for each line of input, over the slots of many nodes, as xargs(1) has them on one.

use super::held::Held;
use super::output::end_by;
use super::progress::Progress;
use super::{Line, NOT_STARTED, bytes_of, open, program, task_of};
use crate::args::MapOptions;
use pando_kernel::signal;
use pando_launch::{Ask, Ending, Frames, Mpi, Pool, Request, Share, Stdin, Stream, Tell, Verdict};
use pando_node::client::Client;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// As xargs(1) has it: some task has failed.
const SOME_FAILED: i32 = 123;
/// Lines that are read ahead of what runs.
const AHEAD: usize = 1 << 17;
/// The kernel takes no longer word (MAX_ARG_STRLEN).
const LONGEST_LINE: usize = (128 << 10) - 1;
/// Failures that are told one by one.
const TOLD: u32 = 10;
const DRAW: Duration = Duration::from_millis(200);

/// What happens.
enum Event {
    Tell(Tell),
    HungUp(String),
    /// One more is in the queue of lines.
    Line,
    NoMoreLines,
    Failed(String),
    Interrupted(i32),
}

/// Runs all of them; gives our exit status.
pub fn run(client: &Client, options: &MapOptions) -> i32 {
    if let Some(status) = super::is_no_program("map", &options.command) {
        return status;
    }
    match begin(client, options) {
        Ok(mut map) => map.follow(),
        Err(why) => {
            eprintln!("pando: {why}; nothing was started");
            NOT_STARTED
        }
    }
}

fn begin(client: &Client, options: &MapOptions) -> Result<Map, String> {
    if options.command[0].as_bytes().windows(2).any(|w| w == b"{}") {
        return Err("the program itself can't be `{}`: write `sh -c '{}'`".into());
    }
    let input: Box<dyn Read + Send> = match &options.arg_file {
        Some(file) => Box::new(File::open(file).map_err(|e| format!("{}: {e}", file.display()))?),
        None => Box::new(io::stdin()),
    };
    let task = task_of(&options.command, options.chdir.as_deref())?;
    let directory = std::path::Path::new(OsStr::from_bytes(&task.directory)).to_owned();
    let source = program::Source::find(&options.command[0], &directory, options.bcast)?;
    let request = Request {
        ranks: None,
        nodes: options.node_count,
        per_node: options.jobs,
        cpus: options.cpus,
        among: options.nodelist.clone().unwrap_or_default(),
        task,
        stdin: Stdin::None,
        kill_on_bad: false,
        grace_ms: 0,
        hold: false,
        pool: true,
        mpi: Mpi::None,
        program: source.as_ref().map(|s| s.program.clone()),
    };
    let interrupts: Vec<i32> =
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().filter(|s| !signal::is_ignored(*s)).collect();
    signal::block(&interrupts);
    let stream = open(client, &request).map_err(|e| e.to_string())?;
    let line = Line(Arc::new(Mutex::new(stream.try_clone().map_err(|e| e.to_string())?)));
    let (tell, events) = channel();
    // Lines are read as they are needed, or nearly so.
    let (gives, takes) = sync_channel(AHEAD);
    let (hears, waits, reads) = (tell.clone(), tell.clone(), tell);
    std::thread::spawn(move || hear(stream, &hears));
    std::thread::spawn(move || {
        loop {
            let _ = waits.send(Event::Interrupted(signal::wait_for(&interrupts)));
        }
    });
    let zero = options.null;
    std::thread::spawn(move || read(input, zero, &gives, &reads));
    Ok(Map {
        line,
        events,
        lines: takes,
        source,
        words: options.command.clone(),
        pool: Pool::new(options.retries),
        nodes: Vec::new(),
        lost: BTreeSet::new(),
        tasks: BTreeMap::new(),
        fail_fast: options.fail_fast,
        no_more: false,
        stopped: false,
        ready: 0,
        said_no_more: false,
        status: 0,
        output: BTreeMap::new(),
        progress: Progress::new(options.progress || io::stderr().is_terminal()),
    })
}

fn hear(mut stream: UnixStream, tell: &Sender<Event>) {
    let mut frames = Frames::default();
    let mut buffer = vec![0; 256 << 10];
    let why = loop {
        match frames.take::<Tell>() {
            Ok(Some(said)) => {
                if tell.send(Event::Tell(said)).is_err() {
                    return;
                }
                continue;
            }
            Ok(None) => {}
            Err(e) => break e.to_string(),
        }
        match stream.read(&mut buffer) {
            Ok(0) => break "it hung up".to_owned(),
            Ok(read) => frames.room().extend_from_slice(&buffer[..read]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => break e.to_string(),
        }
    };
    let _ = tell.send(Event::HungUp(why));
}

fn read(input: impl Read, zero: bool, gives: &SyncSender<OsString>, tell: &Sender<Event>) {
    let mut input = BufReader::new(input);
    let end = if zero { 0 } else { b'\n' };
    loop {
        let mut line = Vec::new();
        match input.read_until(end, &mut line) {
            Ok(0) => break,
            Ok(_) => {
                if line.last() == Some(&end) {
                    line.pop();
                }
                let wrong = match () {
                    () if line.contains(&0) => "has a zero byte: see --null",
                    () if line.len() > LONGEST_LINE => "is longer than a program's argument may be (128 KB)",
                    () => "",
                };
                if !wrong.is_empty() {
                    let start: String = String::from_utf8_lossy(&line).chars().take(20).collect();
                    let _ = tell.send(Event::Failed(format!("a line of the input {wrong} (it begins with {start:?})")));
                    break;
                }
                let word = OsStr::from_bytes(&line).to_owned();
                if gives.send(word).is_err() || tell.send(Event::Line).is_err() {
                    return;
                }
            }
            Err(e) => {
                let _ = tell.send(Event::Failed(format!("the input: {e}")));
                break;
            }
        }
    }
    let _ = tell.send(Event::NoMoreLines);
}

struct Map {
    line: Line,
    events: Receiver<Event>,
    lines: Receiver<OsString>,
    source: Option<program::Source>,
    words: Vec<OsString>,
    pool: Pool,
    /// Empty until it is known where tasks may run.
    nodes: Vec<Share>,
    /// Places that count no more.
    lost: BTreeSet<u32>,
    /// Lines of tasks that have not ended.
    tasks: BTreeMap<u32, OsString>,
    fail_fast: bool,
    no_more: bool,
    /// None begin any more.
    stopped: bool,
    /// Lines that have been read and wait.
    ready: usize,
    said_no_more: bool,
    status: i32,
    /// What tasks have written that have not ended.
    output: BTreeMap<u32, Held>,
    progress: Progress,
}

impl Map {
    fn follow(&mut self) -> i32 {
        loop {
            let event = match self.events.recv_timeout(DRAW) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.status,
            };
            if event.is_some_and(|event| self.heed(event)) {
                break;
            }
            // What is there already comes first: fewer and larger writes.
            while let Ok(event) = self.events.try_recv() {
                if self.heed(event) {
                    return self.end();
                }
                self.give();
            }
            self.give();
            let (running, waiting) = (self.pool.running(), self.pool.waiting());
            self.progress.draw(running, waiting, self.no_more);
        }
        self.end()
    }

    fn end(&mut self) -> i32 {
        let left: Vec<u32> = self.output.keys().copied().collect();
        left.into_iter().for_each(|task| self.show(task));
        self.progress.finish();
        let lost = self.tasks.len();
        if lost > 0 && self.status == 0 {
            self.progress.say(&format!("{lost} tasks were not run to their end"));
            return 1;
        }
        self.status
    }

    /// Sends tasks where there is room.
    fn give(&mut self) {
        // The rest waits where it is read.
        while self.ready > 0 && (self.pool.waiting() < AHEAD || self.no_more) {
            let Ok(line) = self.lines.recv() else { break };
            self.ready -= 1;
            if !self.stopped {
                self.add(line);
            }
        }
        if self.nodes.is_empty() {
            return;
        }
        let pool = &mut self.pool;
        while let Some((place, task)) = pool.place_next() {
            let Some(line) = self.tasks.get(&task) else { continue };
            self.line.ask(&Ask::Task { place, task, words: words(&self.words, line) });
        }
        if pool.places() == 0 && (pool.waiting() > 0 || !self.no_more) {
            self.progress.say("no node is left for the tasks");
            self.status = 1;
            pool.give_up();
            (self.no_more, self.stopped) = (true, true);
        }
        if self.no_more && self.ready == 0 && pool.waiting() == 0 && pool.running() == 0 && !self.said_no_more {
            self.said_no_more = true;
            self.line.ask(&Ask::NoMore);
        }
    }

    /// True at the end.
    fn heed(&mut self, event: Event) -> bool {
        match event {
            Event::Tell(tell) => return self.tell(tell),
            Event::HungUp(why) => {
                if !self.said_no_more || !self.tasks.is_empty() {
                    self.progress
                        .say(&format!("the node here broke off ({why}): all tasks end; see its log, node.log"));
                    self.status = 1;
                }
                return true;
            }
            Event::Line => self.ready += 1,
            Event::NoMoreLines => self.no_more = true,
            Event::Failed(why) => {
                self.progress.say(&why);
                self.status = 1;
                self.no_more = true;
            }
            Event::Interrupted(number) => {
                self.progress.say("interrupted: all tasks are ended");
                self.line.ask(&Ask::Kill);
                self.progress.finish();
                self.tasks.clear();
                std::process::exit(128 + number);
            }
        }
        false
    }

    fn add(&mut self, line: OsString) {
        let task = self.pool.add();
        self.tasks.insert(task, line);
        self.progress.total += 1;
    }

    fn tell(&mut self, tell: Tell) -> bool {
        match tell {
            Tell::No(why) => {
                self.progress.say(&format!("{why}; nothing was started"));
                self.status = NOT_STARTED;
                self.tasks.clear();
                return true;
            }
            Tell::Begun { nodes, .. } => {
                let sites: Vec<(u32, u32)> = (0..).zip(&nodes).map(|(place, s)| (place, s.ranks)).collect();
                self.pool.open(&sites);
                self.nodes = nodes;
            }
            Tell::Output { place, rank, stream, bytes } => {
                self.line.ask(&Ask::Taken { place, bytes: bytes.len() as u32 });
                // Its tasks run elsewhere: what it still says would come twice.
                if self.lost.contains(&place) {
                    return false;
                }
                if let Err(e) = self.output.entry(rank).or_default().add(stream, bytes) {
                    self.progress.say(&format!("what a task writes can't be kept: {e}"));
                    self.show(rank);
                }
            }
            Tell::Done { place, task, how } => self.ended(place, task, how),
            Tell::Without { place, why } => self.without(place, &why),
            Tell::Want(upto) => {
                if let Some(Err(why)) = self.source.as_mut().map(|source| source.send(upto, &self.line)) {
                    self.progress.say(&why);
                    self.status = NOT_STARTED;
                    self.line.ask(&Ask::Kill);
                }
            }
            Tell::Over => return true,
            _ => {}
        }
        false
    }

    fn ended(&mut self, place: u32, task: u32, how: Ending) {
        self.show(task);
        match self.pool.ended(place, task, how == Ending::Exit(0)) {
            Verdict::Done => {
                self.progress.done += 1;
                self.tasks.remove(&task);
            }
            Verdict::Again => self.progress.again += 1,
            Verdict::Failed => {
                self.progress.done += 1;
                self.progress.failed += 1;
                self.status = if self.status == 0 { SOME_FAILED } else { self.status };
                let line = self.tasks.remove(&task).unwrap_or_default();
                if self.progress.failed <= TOLD {
                    let node = self.nodes.get(place as usize).map_or("", |n| n.node.as_str());
                    let command = self.shown(&line);
                    self.progress.say(&format!("{command} at {node} {how}"));
                }
                if self.progress.failed == TOLD + 1 {
                    self.progress.say("more have failed; they are counted");
                }
                if self.fail_fast {
                    self.stop();
                }
            }
            Verdict::Unknown => {}
        }
    }

    /// No more tasks begin.
    fn stop(&mut self) {
        (self.no_more, self.stopped) = (true, true);
        for task in self.pool.give_up() {
            self.tasks.remove(&task);
        }
    }

    fn without(&mut self, place: u32, why: &str) {
        self.lost.insert(place);
        let tasks = self.pool.lost(place);
        // What they wrote is of a run that counts no more.
        tasks.iter().for_each(|task| drop(self.output.remove(task)));
        let node = self.nodes.get(place as usize).map_or("", |n| n.node.as_str());
        let count = tasks.len();
        self.progress.say(&format!("node {node} was lost ({why}); {count} tasks run elsewhere, maybe again"));
    }

    fn shown(&self, line: &OsStr) -> String {
        let all = words(&self.words, line);
        let text = all.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>().join(" ");
        text.chars().map(|c| if c.is_control() { '?' } else { c }).take(120).collect()
    }

    /// What a task has written.
    fn show(&mut self, task: u32) {
        let Some(held) = self.output.remove(&task) else { return };
        let shown = held.each(|stream, bytes| {
            if stream == Stream::Err || io::stdout().is_terminal() {
                self.progress.clear();
            }
            match stream {
                Stream::Out => io::stdout().lock().write_all(bytes).and_then(|()| io::stdout().flush()),
                // As with any program: nobody may listen there.
                Stream::Err => io::stderr().lock().write_all(bytes).or(Ok(())),
            }
        });
        if let Err(e) = shown {
            end_by(&e);
        }
    }
}

/// The command with the line in the place of each `{}`, or at its end.
fn words(command: &[OsString], line: &OsStr) -> Vec<ByteBuf> {
    let mut found = false;
    let mut all: Vec<ByteBuf> = Vec::with_capacity(command.len() + 1);
    for word in command {
        let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
        while let Some(at) = rest.windows(2).position(|w| w == b"{}") {
            found = true;
            filled.extend_from_slice(&rest[..at]);
            filled.extend_from_slice(line.as_bytes());
            rest = &rest[at + 2..];
        }
        filled.extend_from_slice(rest);
        all.push(ByteBuf::from(filled));
    }
    if !found {
        all.push(bytes_of(line));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_the_place_of_braces_or_the_end() {
        let filled = |command: &str, line: &str| {
            let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            let all = words(&command, OsStr::new(line));
            all.iter().map(|w| String::from_utf8(w.to_vec()).unwrap()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(filled("cc -c {} -o {}.o", "a b"), "cc|-c|a b|-o|a b.o");
        assert_eq!(filled("echo x", "7"), "echo|x|7");
        assert_eq!(filled("echo {}{}", "{}"), "echo|{}{}");
    }
}
