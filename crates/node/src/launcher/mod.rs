//! The launcher: the process that starts a job's ranks on one node, carries what they read and write, and leaves nothing behind. The daemon
//! has one for each job, and a few that wait for the next one; it ends, and all ranks with it, when the daemon's end of its connection closes.
//!
//! One thread: the kernel kills a rank when the thread that started it ends.

pub(crate) mod family;
mod manager;
mod meeting;
mod meter;
mod pmix;
mod ready;
mod scratch;
mod start;
mod starter;
mod streams;
mod tasks;
mod wishes;

use crate::jobs::link::next;
use meeting::Meeting;
use meter::Meter;
use pando_kernel::{pmix::Event, procfs, pty, rank};
use pando_launch::{Amount, Down, Ending, Frames, MOST_RAN, Order, Own, Ran, Up, Work, encode};
use ready::{Given, Ready};
pub use scratch::sweep as sweep_scratch;
pub use start::MARK;
use start::Rank;
pub use starter::{BATCH, LAUNCH, LAUNCHER, SPARE, starter_main};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams::{Input, Phase, Streams};
use tasks::Tasks;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

/// When all is killed, what ranks wrote before is said for so long.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Between asking a task that took too long to end and ending it.
const GRACE: Duration = Duration::from_secs(2);
/// Held ranks stand still within this.
const STOPS_WITHIN: Duration = Duration::from_secs(2);
/// Between two rounds of killing what is left.
const AGAIN: Duration = Duration::from_millis(5);

/// What the tasks tell the main loop.
enum Told {
    /// To be said to the daemon.
    Say(Up),
    /// A line of a rank to its process manager.
    Line(u32, String),
    /// A rank wants something of its PMIx server.
    Pmix(Event),
    /// What a rank itself wrote to one of its streams has been said.
    Drained(u32),
    /// It never began.
    Stillborn(u32),
    /// This process of a task has run for as long as it may; since a while, and is to end at last.
    TooLong(i32, bool),
}

type Teller = UnboundedSender<Told>;

/// A launcher's life.
fn launcher_main(daemon: OwnedFd) -> i32 {
    let run = || {
        let socket = std::os::unix::net::UnixStream::from(daemon);
        socket.set_nonblocking(true)?;
        rank::adopt_orphans()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { serve(UnixStream::from_std(socket)?).await })
    };
    match run() {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("pando: the launcher: {e}");
            1
        }
    }
}

/// `pando __hold FILE WORDS`: becomes that program when it is told to go on.
pub fn hold_main(words: &[std::ffi::OsString]) -> i32 {
    use std::os::unix::process::CommandExt;
    let [file, name, rest @ ..] = words else { return 2 };
    rank::stop_here();
    let e = std::process::Command::new(file).arg0(name).args(rest).exec();
    eprintln!("pando: {}: {e}", name.display());
    if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// One job after the other.
async fn serve(socket: UnixStream) -> io::Result<()> {
    let (mut from, mut to) = socket.into_split();
    let mut frames = Frames::default();
    let mut children = signal(SignalKind::child())?;
    while let Some(work) = next::<_, Work>(&mut from, &mut frames).await? {
        name_me(LAUNCHER);
        let (says, said) = unbounded_channel();
        let writer = tokio::spawn(write(to, said));
        let can_serve_again = job(work, (&mut from, &mut frames), &mut children, says).await?;
        to = writer.await.map_err(io::Error::other)??;
        if !can_serve_again {
            return Ok(());
        }
        // What the job's parent said before it heard that all is over.
        while next::<_, Down>(&mut from, &mut frames).await?.ok_or(io::ErrorKind::UnexpectedEof)? != Down::End {}
        name_me(SPARE);
    }
    Ok(())
}

fn name_me(name: &str) {
    let _ = std::fs::write("/proc/self/comm", name);
}

/// One job, to its last word. Gives whether this process is as it was before.
async fn job(
    work: Work,
    (from, frames): (&mut OwnedReadHalf, &mut Frames),
    children: &mut Signal,
    says: UnboundedSender<Up>,
) -> io::Result<bool> {
    let (order, place) = (Arc::new(work.order), work.place);
    order.nodes.get(place as usize).ok_or_else(|| io::Error::other("no such place"))?;
    let _ = says.send(Up::Launcher(std::process::id() as i32));
    let (tell, mut told) = unbounded_channel();
    let Own { user, program, along, mark, cpus, groups, group: gang, variables } = work.own;
    let counted = meter::Counted::of(&groups, gang.as_ref());
    let given = Given { cpus, groups, gang, variables };
    let made = Ready::make(&order, user, (program, along), given, mark)
        .and_then(|ready| Meeting::make(&order, place, &ready, &tell).map(|meeting| (ready, meeting)));
    let (ready, meeting) = match made {
        Ok(made) => made,
        Err(why) => {
            let _ = says.send(Up::Refused { place, why });
            let _ = says.send(Up::Gone);
            return Ok(false);
        }
    };
    let _ = says.send(Up::Ready);
    let mut meter = Meter::new(&order, counted);
    let mut state = State {
        meeting,
        window: Arc::new(Semaphore::new(order.window as usize)),
        input: Input::new(&order, place),
        order,
        place,
        ready,
        ranks: BTreeMap::new(),
        pids: BTreeMap::new(),
        says,
        tell,
        killed: false,
        begun: false,
        tasks: Tasks::default(),
        terminal: None,
        largest: 0,
        ran: Vec::new(),
        out_of_memory: false,
    };
    // Nothing of it is left when the daemon is gone.
    loop {
        tokio::select! {
            down = next::<_, Down>(from, frames) => match down {
                Ok(Some(down)) => state.heed(down),
                _ => {
                    family::end_all().await;
                    return Ok(false);
                }
            },
            Some(told) = told.recv() => state.told(told),
            _ = children.recv() => state.collect(),
            () = meter.look() => state.look(&mut meter),
            () = state.tasks.due() => state.tend(),
        }
        state.tell_done(false);
        if state.is_done() {
            break;
        }
    }
    // A library that has had threads here is not begun twice; and who was killed may have left somebody waiting.
    state.tell_done(true);
    let as_before = !state.killed && !matches!(state.meeting, Meeting::Pmix(_));
    finish(state, told, from, frames, meter).await;
    Ok(as_before)
}

/// All ranks have ended: what they have left behind ends, and what is still in their pipes is said.
async fn finish(
    mut state: State,
    mut told: UnboundedReceiver<Told>,
    from: &mut OwnedReadHalf,
    frames: &mut Frames,
    meter: Meter,
) {
    family::end_all().await;
    let used = meter.used(state.largest, std::mem::take(&mut state.ran));
    let ended = std::mem::take(&mut state.ranks).into_values().chain(std::mem::take(&mut state.tasks.late));
    let readers: Vec<_> = ended
        .flat_map(|rank| {
            let _ = rank.phase.send(Phase::Gone);
            rank.readers
        })
        .collect();
    let State { says, window, tell, place, meeting, killed, .. } = state;
    // What ranks have left in files goes, too.
    drop((tell, meeting));
    let mut all = tokio::spawn(async move {
        for reader in readers {
            let _ = reader.await;
        }
    });
    // Who is killed is not heard to the end: perhaps nobody listens.
    let give_up = tokio::time::sleep(LAST_WORDS);
    tokio::pin!(give_up);
    loop {
        tokio::select! {
            _ = &mut all => break,
            () = &mut give_up, if killed => break,
            Some(Told::Say(up)) = told.recv() => drop(says.send(up)),
            down = next::<_, Down>(from, frames) => match down {
                Ok(Some(Down::Taken { place: of, bytes })) if of == place => window.add_permits(bytes as usize),
                Ok(Some(Down::Kill)) => break,
                Ok(Some(_)) => {}
                _ => return,
            },
        }
    }
    while let Ok(told) = told.try_recv() {
        if let Told::Say(up) = told {
            let _ = says.send(up);
        }
    }
    let _ = says.send(Up::Used(used));
    let _ = says.send(Up::Gone);
}

/// Until there is nothing more to say.
async fn write(mut to: OwnedWriteHalf, mut said: UnboundedReceiver<Up>) -> io::Result<OwnedWriteHalf> {
    while let Some(up) = said.recv().await {
        let mut bytes = encode(&up).map_err(io::Error::other)?;
        // What is there is written at once.
        while let Ok(up) = said.try_recv() {
            bytes.extend(encode(&up).map_err(io::Error::other)?);
        }
        to.write_all(&bytes).await?;
    }
    Ok(to)
}

/// What there is while ranks run.
struct State {
    order: Arc<Order>,
    place: u32,
    ready: Ready,
    meeting: Meeting,
    window: Arc<Semaphore>,
    input: Input,
    ranks: BTreeMap<u32, Rank>,
    pids: BTreeMap<i32, u32>,
    says: UnboundedSender<Up>,
    tell: Teller,
    begun: bool,
    killed: bool,
    tasks: Tasks,
    /// That of the first rank, if it runs here and has one.
    terminal: Option<OwnedFd>,
    /// The most bytes that one process has had.
    largest: u64,
    /// What each rank has used.
    ran: Vec<Ran>,
    /// Its ranks had more memory than they may.
    out_of_memory: bool,
}

impl State {
    fn is_done(&self) -> bool {
        if self.killed {
            return !self.begun || self.ranks.values().all(|r| r.ended.is_some());
        }
        match (self.begun, self.order.pool) {
            (false, _) => false,
            (true, true) => self.tasks.no_more && self.tasks.queue.is_empty() && self.ranks.is_empty(),
            (true, false) => self.ranks.values().all(Rank::is_over),
        }
    }

    fn say(&self, up: Up) {
        let _ = self.says.send(up);
    }

    fn heed(&mut self, down: Down) {
        match down {
            Down::Start if self.order.pool => self.begun = true,
            Down::Start if !self.begun && !self.killed => self.start(),
            Down::Stdin(bytes) => self.input.push(bytes),
            Down::StdinEnds => self.input.end(),
            Down::Size(rows, columns) => {
                let resized = self.terminal.as_ref().map(|terminal| pty::set_size(terminal, (rows, columns)));
                // It has begun with the size of then, or is not here.
                resized.and_then(Result::err).inspect(|e| eprintln!("pando: the terminal's size: {e}"));
            }
            Down::Signal(number) => {
                if self.order.hold && i32::from(number) == libc::SIGCONT {
                    self.wait_for_held();
                }
                family::signal_all(number.into());
            }
            Down::Taken { place, bytes } if place == self.place => self.window.add_permits(bytes as usize),
            Down::Fenced(said) => {
                let ups = self.meeting.fenced(said);
                ups.into_iter().for_each(|up| self.say(up));
            }
            Down::Modex(modex) => self.meeting.modex(modex, &self.tell),
            Down::Granted { asker, granted } if asker.place == self.place => {
                let ups = self.meeting.granted(asker, granted);
                ups.into_iter().for_each(|up| self.say(up));
            }
            Down::Task { place, task, words } if place == self.place && self.order.pool => {
                self.tasks.queue.push_back((task, words));
                self.fill();
            }
            Down::Recall(place) if place == self.place => self.give_back(),
            Down::NoMore => self.tasks.no_more = true,
            Down::Kill => {
                self.killed = true;
                self.tasks.queue.clear();
                family::signal_all(libc::SIGKILL);
                self.collect();
            }
            _ => {}
        }
    }

    fn start(&mut self) {
        self.begun = true;
        let streams = self.streams();
        let share = &self.order.nodes[self.place as usize];
        for rank in share.first..share.first + share.ranks {
            let started = self.meeting.environment(rank).map_err(io::Error::other).and_then(|more| {
                start::start(&self.order, self.place, rank, &self.ready, &streams, &mut self.input, more)
            });
            let begun = match started {
                Ok((begun, connection, terminal)) => {
                    self.terminal = terminal.or(self.terminal.take());
                    self.meeting.attach(rank, connection, &self.tell);
                    self.pids.insert(begun.pid, rank);
                    begun
                }
                Err(why) => {
                    let program = String::from_utf8_lossy(&self.order.words_of(rank)[0]).into_owned();
                    let text = format!("pando: {program}: {why}\n").into_bytes();
                    streams.say(rank, text);
                    Rank::never_begun(&why)
                }
            };
            let ended = begun.ended;
            self.ranks.insert(rank, begun);
            ended.into_iter().for_each(|how| self.tell_end(rank, how));
        }
        self.collect();
    }

    fn streams(&self) -> Streams {
        let (window, tell) = (self.window.clone(), self.tell.clone());
        Streams { place: self.place, most: self.order.window as usize, window, tell }
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Say(up) => self.say(up),
            Told::Line(rank, line) => {
                for up in self.meeting.line(rank, &line) {
                    self.say(up);
                }
            }
            Told::Pmix(event) => {
                for up in self.meeting.event(event) {
                    self.say(up);
                }
            }
            Told::Drained(rank) => {
                if let Some(found) = self.ranks.get_mut(&rank) {
                    found.drained += 1;
                }
                self.settle(rank);
            }
            Told::Stillborn(rank) => self.settle(rank),
            Told::TooLong(pid, last) => self.too_long(pid, last),
        }
    }

    fn wakes(&self, after: Duration, pid: i32, last: bool) -> AbortHandle {
        let tell = self.tell.clone();
        let clock = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = tell.send(Told::TooLong(pid, last));
        });
        clock.abort_handle()
    }

    /// First it is asked to end, with what it has started.
    fn too_long(&mut self, pid: i32, last: bool) {
        family::signal_session(pid, if last { libc::SIGKILL } else { libc::SIGTERM });
        let task = self.pids.get(&pid).and_then(|task| self.ranks.get_mut(task));
        if let Some(task) = task.filter(|_| !last) {
            task.late = true;
            // What it has started may be deaf, too: nobody stops this clock.
            self.wakes(GRACE, pid, true);
        }
        self.collect();
    }

    /// Tells of its end, if it has ended and has been heard to the end.
    fn settle(&mut self, rank: u32) {
        let Some(found) = self.ranks.get(&rank).filter(|found| found.is_settled()) else { return };
        let how = found.ended.unwrap_or(Ending::Exit(0));
        if !self.order.pool {
            return self.tell_end(rank, how);
        }
        self.task_is_over(rank, how);
    }

    /// They stop themselves first thing; to go on can only be told to who stands.
    fn wait_for_held(&self) {
        let begun = Instant::now();
        let stands = |pid: &i32| procfs::stat(*pid).is_none_or(|s| !s.lives() || s.state == 'T');
        while !self.pids.keys().all(stands) && begun.elapsed() < STOPS_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its ranks have more memory than the step asked for: they end.
    fn look(&mut self, meter: &mut Meter) {
        let Some(why) = meter.exceeded() else { return };
        let first = self.ranks.keys().next().copied().unwrap_or_default();
        self.streams().say(first, format!("pando: {why}\n").into_bytes());
        self.out_of_memory = true;
        family::signal_all(libc::SIGKILL);
        self.collect();
    }

    fn tell_end(&mut self, rank: u32, how: Ending) {
        if let Some(found) = self.ranks.get_mut(&rank) {
            found.quiet = true;
        }
        if how != Ending::Exit(0) {
            self.say(Up::Ended { place: self.place, rank, how });
        }
    }

    /// Takes in the children that have ended: ranks, and what ranks have left.
    fn collect(&mut self) {
        let mut freed = false;
        while let Some((pid, status, used)) = rank::collect_measured() {
            self.largest = self.largest.max(used.largest);
            let Some(rank) = self.pids.remove(&pid) else { continue };
            let how = match ending(status) {
                Ending::Exit(0) if self.meeting.is_inside(rank) => Ending::Early,
                how => how,
            };
            let Some(found) = self.ranks.get_mut(&rank) else { continue };
            found.ended = Some(match how {
                _ if found.late => Ending::Late,
                Ending::Signal(9) if self.out_of_memory => Ending::OutOfMemory,
                how => how,
            });
            found.ran = found.begun.elapsed();
            if !self.order.pool && self.ran.len() < MOST_RAN {
                let how = found.ended.unwrap_or(how);
                let used = Amount { cpu_ms: used.cpu_ms, memory: used.largest, read: used.read, written: used.written };
                self.ran.push(Ran { rank, place: self.place, how, used });
            }
            found.clock.take().inspect(AbortHandle::abort);
            self.input.gone(rank);
            freed = true;
            let _ = found.phase.send_replace(Phase::Ended);
            self.hear_out(rank);
            if rank == 0 {
                // Keys that nobody has read are nobody's.
                self.terminal = None;
            }
            self.settle(rank);
        }
        if freed && self.order.pool {
            self.fill();
        }
    }
}

fn ending(status: ExitStatus) -> Ending {
    match status.signal() {
        Some(number) => Ending::Signal(number as u8),
        None => Ending::Exit(status.code().unwrap_or(0) as u8),
    }
}
