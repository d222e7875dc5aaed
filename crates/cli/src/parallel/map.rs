//! `pando map`: one short task for each line of input, over the slots of many nodes, as xargs(1) has them on one.

use super::held::Held;
use super::joblog::{self, Joblog, Resume};
use super::lines;
use super::output::end_by;
use super::progress::Progress;
use super::template::{self, Template};
use super::{Line, NOT_STARTED, environment::environment, open, plain_name, program, task_of};
use crate::args::{MapOptions, names};
use pando_kernel::signal;
use pando_launch::{Ask, Ending, Frames, Mpi, Pool, Request, Share, Stdin, Stream, Tell, Turns, Verdict, encode};
use pando_node::client::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// As xargs(1) has it: some task has failed.
const SOME_FAILED: i32 = 123;
/// As a shell has it: a command that can't be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Lines that are read ahead of what runs.
const AHEAD: usize = 1 << 17;
/// Failures that are told one by one.
const TOLD: u32 = 10;
const DRAW: Duration = Duration::from_millis(200);
/// Events that are heeded before what follows from them is sent.
const AT_ONCE: usize = 256;
/// Bytes that wait for their turn (--keep-order): while there are more no task begins but the one that is waited for.
const MOST_WAITING: u64 = 256 << 20;

/// What happens.
pub(super) enum Event {
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
    let (command, given) = template::split(&options.command)?;
    let template = Template::new(command)?;
    if given.is_some() && options.arg_file.is_some() {
        return Err("lines come from --arg-file or from behind `:::`, not from both".into());
    }
    let input: Box<dyn Read + Send> = match &options.arg_file {
        Some(file) => Box::new(File::open(file).map_err(|e| format!("{}: {e}", file.display()))?),
        None => Box::new(io::stdin()),
    };
    let (request, sources) = request(options, command)?;
    let opened = options.joblog.as_deref().map(|path| Joblog::open(path, resume(options))).transpose()?;
    let (joblog, skip) = opened.map_or_else(Default::default, |(log, skip)| (Some(log), skip));
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
    std::thread::spawn(move || match given {
        Some(words) => {
            let gave = |word| gives.send(word).is_ok() && reads.send(Event::Line).is_ok();
            _ = words.into_iter().all(gave) && reads.send(Event::NoMoreLines).is_ok();
        }
        None => lines::read(input, zero, &gives, &reads),
    });
    let pool = Pool::new(options.retries);
    Ok(Map {
        line,
        events,
        lines: takes,
        sources,
        template,
        pool: if options.delay.is_some() { pool.unhurried() } else { pool },
        delay: options.delay.unwrap_or_default(),
        given: None,
        asks: Vec::new(),
        looked: Instant::now(),
        number: 0,
        skip,
        joblog,
        keep_order: options.keep_order,
        turn: 0,
        ready_to_show: BTreeMap::new(),
        waits: 0,
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

fn resume(options: &MapOptions) -> Resume {
    match (options.resume, options.resume_failed) {
        (_, true) => Resume::Well,
        (true, false) => Resume::All,
        (false, false) => Resume::No,
    }
}

/// Slots for tasks.
fn request(options: &MapOptions, command: &[OsString]) -> Result<(Request, program::Sources), String> {
    let variables = environment(std::env::vars_os().collect(), None, &[])?;
    let task = task_of(command, options.chdir.as_deref(), variables)?;
    let directory = Path::new(OsStr::from_bytes(&task.directory)).to_owned();
    let sources = program::Sources::find(&command[0], &directory, options.bcast.unwrap_or_default(), &options.with)?;
    let request = Request {
        ranks: None,
        nodes: options.node_count,
        per_node: options.jobs,
        cpus: options.cpus,
        among: names(options.nodelist.as_ref()),
        exclude: names(options.exclude.as_ref()),
        slots: Vec::new(),
        oversubscribe: false,
        name: plain_name(Path::new(&command[0]).file_name().unwrap_or_default()),
        time_ms: options.timeout.map(|time| (time.as_millis() as u64).max(1)),
        task,
        stdin: Stdin::None,
        terminal: None,
        kill_on_bad: false,
        grace_ms: 0,
        hold: false,
        gang: Turns::No,
        exclusive: Vec::new(),
        memory_mb: 0,
        quality: None,
        pool: true,
        mpi: Mpi::None,
        files: sources.files(),
        needs: sources.needs.clone(),
    };
    Ok((request, sources))
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

struct Map {
    line: Line,
    /// What is to be said on it.
    asks: Vec<u8>,
    /// When it was last asked whether a node has tasks that others could run.
    looked: Instant,
    events: Receiver<Event>,
    lines: Receiver<OsString>,
    sources: program::Sources,
    template: Template,
    pool: Pool,
    /// So long between two tasks; and when the last one was sent.
    delay: Duration,
    /// See there.
    given: Option<Instant>,
    /// Lines that have been taken.
    number: u64,
    /// Those that an earlier run has done.
    skip: BTreeSet<u64>,
    joblog: Option<Joblog>,
    keep_order: bool,
    /// The task whose output is shown next, those that wait for it, and bytes that they wrote.
    turn: u32,
    /// See there.
    ready_to_show: BTreeMap<u32, Finished>,
    /// See there.
    waits: u64,
    /// Empty until it is known where tasks may run.
    nodes: Vec<Share>,
    /// Places that count no more.
    lost: BTreeSet<u32>,
    /// Lines of tasks that have not ended, and their numbers.
    tasks: BTreeMap<u32, (u64, OsString)>,
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

/// A task that has ended for good.
struct Finished {
    number: u64,
    line: OsString,
    place: u32,
    how: Ending,
    ran: Duration,
}

impl Map {
    fn follow(&mut self) -> i32 {
        loop {
            let event = match self.events.recv_timeout(self.patience()) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.status,
            };
            // What is there already comes first: fewer and larger writes.
            for event in event.into_iter().chain(self.more()).collect::<Vec<_>>() {
                if self.heed(event) {
                    return self.end();
                }
            }
            self.give();
            self.ask_back();
            let asks = std::mem::take(&mut self.asks);
            if !asks.is_empty() {
                self.line.write(&asks);
            }
            let (running, waiting) = (self.pool.running(), self.pool.waiting());
            self.progress.draw(running, waiting, self.no_more);
        }
    }

    /// What else is there.
    fn more(&self) -> Vec<Event> {
        self.events.try_iter().take(AT_ONCE).collect()
    }

    /// Goes with others, soon.
    fn ask(&mut self, ask: &Ask) {
        // What is long is a task, and that is looked at where it is given.
        self.asks.extend(encode(ask).unwrap_or_default());
    }

    fn end(&mut self) -> i32 {
        for (task, finished) in std::mem::take(&mut self.ready_to_show) {
            if !self.put_out(task, &finished) {
                break;
            }
        }
        // What has no line in the log is run again by --resume, and shown then.
        let left: Vec<u32> = self.output.keys().copied().filter(|_| self.joblog.is_none()).collect();
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
        while self.may_give()
            && let Some((place, task)) = self.pool.place_next()
        {
            let Some(&(number, ref line)) = self.tasks.get(&task) else { continue };
            let words = self.template.fill(line, number);
            self.given = Some(Instant::now());
            match encode(&Ask::Task { place, task, words }) {
                Ok(bytes) => self.asks.extend(bytes),
                // No node can be told of it, and no kernel would execute a command that is as long.
                Err(why) => {
                    self.progress.say(&format!("task {number} is too long ({why})"));
                    self.ended(place, task, Ending::Exit(NOT_EXECUTABLE), Duration::ZERO);
                }
            }
        }
        let pool = &mut self.pool;
        if pool.places() == 0 && (pool.waiting() > 0 || !self.no_more) {
            self.progress.say("no node is left for the tasks");
            self.status = 1;
            pool.give_up();
            (self.no_more, self.stopped) = (true, true);
        }
        if self.no_more && self.ready == 0 && pool.waiting() == 0 && pool.running() == 0 && !self.said_no_more {
            self.said_no_more = true;
            self.ask(&Ask::NoMore);
        }
    }

    /// What waits at a node where nothing ends is for others that have nothing to do.
    fn ask_back(&mut self) {
        if self.looked.elapsed() >= DRAW {
            self.looked = Instant::now();
            self.pool.overdue().into_iter().for_each(|place| self.ask(&Ask::Recall(place)));
        }
    }

    /// How long nothing has to be done.
    fn patience(&self) -> Duration {
        let left = self.given.map(|when| self.delay.saturating_sub(when.elapsed()));
        left.filter(|left| !left.is_zero()).map_or(DRAW, |left| left.min(DRAW))
    }

    fn may_give(&self) -> bool {
        let in_time = self.given.is_none_or(|when| when.elapsed() >= self.delay);
        in_time && (self.waits < MOST_WAITING || self.pool.next() == Some(self.turn))
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
        self.number += 1;
        if self.skip.remove(&self.number) {
            return;
        }
        let task = self.pool.add();
        self.tasks.insert(task, (self.number, line));
        self.progress.total += 1;
    }

    fn tell(&mut self, tell: Tell) -> bool {
        match tell {
            Tell::Waits(why) => self.progress.say(&format!("waiting: {why}")),
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
                self.ask(&Ask::Taken { place, bytes: bytes.len() as u32 });
                // Its tasks run elsewhere: what it still says would come twice.
                if self.lost.contains(&place) {
                    return false;
                }
                if let Err(e) = self.output.entry(rank).or_default().add(stream, bytes) {
                    self.progress.say(&format!("what a task writes can't be kept: {e}"));
                    self.show(rank);
                }
            }
            Tell::Done { place, task, how, ran_ms } => {
                return self.ended(place, task, how, Duration::from_millis(ran_ms));
            }
            Tell::Returned { place, tasks } => {
                self.pool.returned(place, &tasks);
                if self.stopped {
                    self.stop();
                }
            }
            Tell::Without { place, why } => self.without(place, &why),
            Tell::Want { file, upto } => {
                if let Err(why) = self.sources.send(file, upto, &self.line) {
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

    /// True at the end.
    fn ended(&mut self, place: u32, task: u32, how: Ending, ran: Duration) -> bool {
        let verdict = self.pool.ended(place, task, how == Ending::Exit(0), ran.as_millis() as u64);
        match verdict {
            Verdict::Done | Verdict::Failed => {
                self.progress.done += 1;
                let (number, line) = self.tasks.remove(&task).unwrap_or_default();
                let finished = Finished { number, line, place, how, ran };
                if !self.finished(task, finished, verdict == Verdict::Failed) {
                    return true;
                }
            }
            Verdict::Again => {
                self.progress.again += 1;
                // With a log, or in its turn, all that it wrote comes when it has ended for good.
                if self.joblog.is_none() && !self.keep_order {
                    self.show(task);
                }
            }
            Verdict::Unknown => {}
        }
        false
    }

    /// False when no more can be logged.
    fn finished(&mut self, task: u32, finished: Finished, failed: bool) -> bool {
        let told = failed.then(|| {
            let node = self.node(finished.place);
            let command: String = self.template.shown(&finished.line, finished.number).chars().take(120).collect();
            format!("{command} at {node} {}", finished.how)
        });
        let shown = match self.keep_order {
            true => self.in_turn(task, finished),
            false => self.put_out(task, &finished),
        };
        if let Some(text) = told.filter(|_| shown) {
            self.failed(&text);
        }
        shown
    }

    fn in_turn(&mut self, task: u32, finished: Finished) -> bool {
        self.waits += self.output.get(&task).map_or(0, |held| held.total);
        self.ready_to_show.insert(task, finished);
        while let Some(finished) = self.ready_to_show.remove(&self.turn) {
            self.waits = self.waits.saturating_sub(self.output.get(&self.turn).map_or(0, |held| held.total));
            if !self.put_out(self.turn, &finished) {
                return false;
            }
            self.turn += 1;
        }
        true
    }

    /// Into the log first: what was shown is never run again. False when that can't be.
    fn put_out(&mut self, task: u32, finished: &Finished) -> bool {
        let (number, how, took) = (finished.number, finished.how, finished.ran);
        let node = self.node(finished.place);
        let wrote = self.output.get(&task).map_or(0, |held| held.total);
        let command = || self.template.shown(&finished.line, number);
        if let Some(log) = &mut self.joblog
            && let Err(why) = log.add(&joblog::Line { number, node: &node, took, wrote, how, command: &command() })
        {
            self.progress.say(&format!("{why}; all tasks are ended"));
            self.status = 1;
            self.line.ask(&Ask::Kill);
            self.tasks.clear();
            self.ready_to_show.clear();
            return false;
        }
        self.show(task);
        true
    }

    fn node(&self, place: u32) -> String {
        self.nodes.get(place as usize).map_or_else(String::new, |n| n.node.clone())
    }

    fn failed(&mut self, text: &str) {
        self.progress.failed += 1;
        self.status = if self.status == 0 { SOME_FAILED } else { self.status };
        if self.progress.failed <= TOLD {
            self.progress.say(text);
        }
        if self.progress.failed == TOLD + 1 {
            self.progress.say("more have failed; they are counted");
        }
        if self.fail_fast {
            self.stop();
        }
    }

    /// No more tasks begin.
    fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            (0..self.nodes.len() as u32).for_each(|place| self.ask(&Ask::Recall(place)));
        }
        self.no_more = true;
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
