//! A process at home stands still for a moment and never learns of it: as long as a [`Brake`] is held, a thread of ours traces it and
//! does not let it run. Nobody else notices, either: no SIGSTOP is sent, its parent is told nothing. Threads that wait in calls are not
//! disturbed; calls that the stop of a running thread breaks off are made again, and transfers that it cuts short come through whole. It
//! goes on at once when a signal is about to act on it, and, whatever becomes of us, when the tracing thread ends (ptrace(2): all its
//! tracees go on).

use crate::restart;
use pando_kernel::memory::ProcessMemory;
use pando_kernel::procfs::{self, Status};
use pando_kernel::ptrace::{Registers, Stop, Tracee};
use pando_kernel::signal::{self, DefaultAction};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked after those that stand still.
const TICK: Duration = Duration::from_millis(5);
/// The same when it is to go on.
const SOON: Duration = Duration::from_micros(200);
/// With more threads it is left alone: to look after them would take too long.
const MOST_THREADS: usize = 256;
/// SIGTRAP at the entry into or the exit from a system call (PTRACE_O_TRACESYSGOOD).
const AT_CALL: i32 = libc::SIGTRAP | 0x80;
/// Of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;
/// The longest that it takes until nobody traces it any more. A transfer that the stop had cut short, and that waits for somebody, may take longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// A brake that was forgotten comes off by itself.
const LONGEST: Duration = Duration::from_secs(15);

/// Keeps one process from running.
#[derive(Debug)]
pub struct Brake {
    /// Nothing is ever sent: that it is gone is the message.
    held: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The thread's number: the kernel ends its tracing a moment after it is done.
    tracer: Arc<AtomicI32>,
}

impl Brake {
    /// Asks all threads of a process that run to stand still. They do so within microseconds, or when the kernel next lets them. That it can't be
    /// (it has ended, somebody else traces it, it is another user's, or a child
    /// of this very program) shows in [`Brake::is_on`].
    ///
    /// # Errors
    /// No thread can be made.
    pub fn put_on(pid: u32, start_time: u64) -> io::Result<Brake> {
        let (held, until) = channel();
        let tracer = Arc::new(AtomicI32::new(0));
        let told = Arc::clone(&tracer);
        let still = move || {
            told.store(procfs::own_thread().unwrap_or(0), Ordering::Relaxed);
            if let Some(mut still) = Still::begin(pid as i32, start_time) {
                still.keep(&until);
            }
        };
        let thread = std::thread::Builder::new().name("pando-brake".into()).spawn(still)?;
        Ok(Brake { held: Some(held), thread: Some(thread), tracer })
    }

    /// False when the process goes on, or has ended.
    pub fn is_on(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    fn is_traced(&self) -> bool {
        let tracer = self.tracer.load(Ordering::Relaxed);
        self.is_on() || tracer != 0 && Path::new(&format!("/proc/self/task/{tracer}")).exists()
    }
}

impl Drop for Brake {
    /// Lets it go on. When this returns nobody of us traces it, as a rule (`PATIENCE`).
    fn drop(&mut self) {
        drop(self.held.take());
        let begun = Instant::now();
        while self.is_traced() && begun.elapsed() < PATIENCE {
            std::thread::sleep(SOON);
        }
    }
}

/// A thread of the process.
#[derive(Clone, Debug)]
enum Thread {
    /// Traced, and otherwise left alone: it waits for something, and takes no memory.
    Free,
    /// Asked to stop.
    Asked,
    /// The stop has cut a transfer short that is to come through whole: it does the rest first. Its registers as they are to be, and whether
    /// it has entered that call.
    Rest(Box<Registers>, bool),
    /// It stands still.
    Still,
}

/// The process, as the thread that traces it knows it.
struct Still {
    pid: i32,
    memory: ProcessMemory,
    threads: BTreeMap<i32, Thread>,
    since: Instant,
}

impl Still {
    fn begin(pid: i32, start_time: u64) -> Option<Still> {
        // One that job control has stopped takes nothing, and is to go on when that says so.
        let stopped = procfs::stat(pid).is_none_or(|s| s.state == 'T');
        // Whoever waits for a child of ours elsewhere in this program would take our stops for its end.
        let ours = procfs::parent(pid).is_none_or(|parent| parent == std::process::id() as i32);
        let memory = ProcessMemory::open(pid).ok().filter(|_| !ours && !stopped)?;
        let mut still = Still { pid, memory, threads: BTreeMap::new(), since: Instant::now() };
        still.seize_all()?;
        // Looked at after that: nobody else has this number now.
        let lives = procfs::stat(pid).is_some_and(|s| s.lives() && s.start_time == start_time);
        lives.then_some(still)
    }

    /// Those too that have appeared since. None: it can't be done.
    fn seize_all(&mut self) -> Option<()> {
        let all = procfs::threads(self.pid).ok().filter(|all| all.len() <= MOST_THREADS)?;
        for tid in all {
            if self.threads.contains_key(&tid) {
                continue;
            }
            match (Tracee { tid }).seize(libc::PTRACE_O_TRACESYSGOOD) {
                Ok(()) => _ = self.threads.insert(tid, Thread::Free),
                Err(_) if tid == self.pid => return None,
                // It is ending.
                Err(_) => {}
            }
        }
        Some(())
    }

    fn keep(&mut self, until: &Receiver<()>) {
        let mut wanted = true;
        while wanted {
            wanted = self.look(true).is_some() && self.since.elapsed() < LONGEST;
            wanted = wanted && until.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout);
        }
        // What has been woken from its calls, by us or by a signal that it gets only since we trace it, is let go when it is seen how they
        // ended, and not before.
        let unwanted = Instant::now();
        loop {
            let _ = self.look(false);
            self.let_go();
            if !self.is_under_way() {
                return;
            }
            std::thread::sleep(if unwanted.elapsed() < PATIENCE { SOON } else { TICK });
        }
    }

    /// Those that stand still go on. The others, if they are traced, the kernel lets go when this thread ends.
    fn let_go(&mut self) {
        self.threads.retain(|&tid, thread| {
            let still = matches!(thread, Thread::Still);
            if still {
                let _ = Tracee { tid }.detach(0);
            }
            !still
        });
    }

    fn is_under_way(&self) -> bool {
        self.threads.values().any(|thread| matches!(thread, Thread::Asked | Thread::Rest(..)))
    }

    /// None: it is not to stand still any more.
    fn look(&mut self, wanted: bool) -> Option<()> {
        let mut holds = true;
        if wanted {
            holds &= self.seize_all().is_some();
        }
        for tid in self.threads.keys().copied().collect::<Vec<_>>() {
            let Ok(status) = procfs::status(tid) else {
                self.threads.remove(&tid);
                continue;
            };
            let signalled = is_signalled(&status);
            holds &= !signalled && (tid != self.pid || !matches!(status.state, 'Z' | 'X'));
            match self.threads.get(&tid) {
                Some(Thread::Free) if wanted && holds && status.state == 'R' => self.ask(tid),
                Some(Thread::Free) if !wanted && is_woken(&status) => self.ask(tid),
                // Traced by us, it stops for each signal that it gets.
                Some(Thread::Free) if status.state != 't' => {}
                Some(Thread::Free | Thread::Asked | Thread::Rest(..)) => match (Tracee { tid }).stopped() {
                    Ok(Some(stop)) => holds &= self.on_stop(tid, stop, &status),
                    Ok(None) if !matches!(status.state, 'Z' | 'X') => {}
                    _ => _ = self.threads.remove(&tid),
                },
                _ => {}
            }
        }
        holds.then_some(())
    }

    fn ask(&mut self, tid: i32) {
        if (Tracee { tid }).interrupt().is_ok() {
            self.threads.insert(tid, Thread::Asked);
        }
    }

    /// False: it is not to stand still any more.
    fn on_stop(&mut self, tid: i32, stop: Stop, status: &Status) -> bool {
        let tracee = Tracee { tid };
        let done = match (stop, self.threads.remove(&tid)) {
            (Stop::Event(libc::SIGTRAP), Some(Thread::Asked)) => self.at_rest(tid, is_signalled(status)),
            (Stop::Signal(AT_CALL), Some(Thread::Rest(goal, false))) => {
                tracee.to_system_call(0).map(|()| Thread::Rest(goal, true))
            }
            (Stop::Signal(AT_CALL), Some(Thread::Rest(goal, true))) => rest_done(tid, *goal),
            // Between the two, and no signal.
            (Stop::Event(libc::SIGTRAP) | Stop::Other(_), Some(Thread::Rest(goal, entered))) => {
                tracee.to_system_call(0).map(|()| Thread::Rest(goal, entered))
            }
            (Stop::Signal(number), Some(Thread::Rest(goal, entered))) if is_ignored(status, number) => {
                tracee.to_system_call(0).map(|()| Thread::Rest(goal, entered))
            }
            (Stop::Other(_), Some(asked)) => tracee.cont(0).map(|()| asked),
            // A signal that it would never have seen: what the stop has done is made good when the next one comes.
            (Stop::Signal(number), Some(Thread::Free | Thread::Asked)) if is_ignored(status, number) => {
                let _ = tracee.interrupt();
                tracee.cont(0).map(|()| Thread::Asked)
            }
            (Stop::Signal(number), Some(Thread::Free | Thread::Asked)) => {
                let _ = self.made_good(tracee).and_then(|regs| tracee.set_registers(&regs));
                let _ = tracee.detach(number);
                return false;
            }
            // One that comes before the rest of a transfer has begun leaves it as it is.
            (Stop::Signal(number), rest) => {
                if let Some(Thread::Rest(goal, _)) = rest {
                    let _ = tracee.set_registers(&Registers { orig_rax: u64::MAX, ..*goal });
                }
                let _ = tracee.detach(number);
                return false;
            }
            // Its shell stops it; or it is gone.
            _ => {
                let _ = tracee.detach(0);
                return false;
            }
        };
        // An error: it is being killed.
        let Ok(thread) = done else { return false };
        self.threads.insert(tid, thread);
        true
    }

    /// It has stopped. What the stop has done to a call is made good.
    fn at_rest(&self, tid: i32, signalled: bool) -> io::Result<Thread> {
        let tracee = Tracee { tid };
        let mut regs = tracee.registers()?;
        let (nr, result) = (regs.orig_rax, regs.rax as i64);
        if (nr as i64) < 0 {
            return Ok(Thread::Still);
        }
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        if !signalled && result > 0 && restart::is_cut_short(self.pid, nr, &args, result) {
            return begin_rest(tracee, regs);
        }
        match !signalled && result > 0 && restart::gives_the_same_again(self.pid, nr, &args, result) {
            true => regs.rax = restart::NOINTR as u64,
            false => regs = self.made_good(tracee)?,
        }
        tracee.set_registers(&regs)?;
        Ok(Thread::Still)
    }

    /// The registers of a thread that may have been stopped on its way out of a call, as they should be.
    fn made_good(&self, tracee: Tracee) -> io::Result<Registers> {
        let mut regs = tracee.registers()?;
        if regs.orig_rax as i64 >= 0 {
            restart::make_good(&self.memory, &mut regs);
        }
        Ok(regs)
    }
}

/// The rest of a transfer is through, or as much of it as there will be, unless it was broken off by a signal that nobody heeds.
fn rest_done(tid: i32, mut goal: Registers) -> io::Result<Thread> {
    let tracee = Tracee { tid };
    let result = tracee.registers()?.rax as i64;
    goal.rax += u64::try_from(result).unwrap_or(0);
    let broken_off = result > 0 && goal.rax < goal.rdx || restart::CODES.contains(&result);
    if broken_off && procfs::status(tid).is_ok_and(|status| !is_signalled(&status)) {
        return begin_rest(tracee, goal);
    }
    // It is over: nothing is made again.
    goal.orig_rax = u64::MAX;
    tracee.set_registers(&goal)?;
    Ok(Thread::Still)
}

/// Has it call for the rest of a transfer. `goal`: its registers as they are when that is through, but for the count, which says how much
/// there was so far.
fn begin_rest(tracee: Tracee, goal: Registers) -> io::Result<Thread> {
    let mut regs = goal;
    (regs.rax, regs.orig_rax) = (goal.orig_rax, u64::MAX);
    regs.rip -= SYSCALL_BYTES;
    (regs.rsi, regs.rdx) = (goal.rsi + goal.rax, goal.rdx - goal.rax);
    tracee.set_registers(&regs)?;
    tracee.to_system_call(0).map(|()| Thread::Rest(Box::new(goal), false))
}

/// May it be on its way out of a call that a signal has broken off which nobody heeds?
fn is_woken(status: &Status) -> bool {
    status.state == 'R' || status.state == 'D' && status.pending & !status.blocked != 0
}

/// Does nothing happen when it gets this signal? (The kernel keeps even such a one for a tracee.)
fn is_ignored(status: &Status, number: i32) -> bool {
    let bit = signal::bit(number);
    let by_default = signal::default_action(number) == DefaultAction::Ignore && status.caught & bit == 0;
    status.ignored & bit != 0 || by_default
}

/// Is there a signal that will do something?
fn is_signalled(status: &Status) -> bool {
    let due = status.pending & !status.blocked;
    (1..=64).any(|number| due & signal::bit(number) != 0 && !is_ignored(status, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{BufRead, BufReader, Lines, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, ChildStdout, Command, Stdio};

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what} does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn state(pid: u32) -> char {
        procfs::status(pid as i32).map_or('X', |s| s.state)
    }

    /// A program whose parent is a shell, which says how it ended.
    struct Program {
        shell: Child,
        lines: Lines<BufReader<ChildStdout>>,
        pid: u32,
    }

    impl Program {
        fn new(command: &str) -> Program {
            let script = format!("{command} & echo $!; wait $!; echo $?");
            // In a group of its own, which has a parent outside: in an orphaned one SIGTSTP does nothing.
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).stdout(Stdio::piped()).process_group(0);
            let mut shell = shell.spawn().unwrap();
            let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
            let pid = lines.next().unwrap().unwrap().parse().unwrap();
            Program { shell, lines, pid }
        }

        fn busy() -> Program {
            Program::new("sh -c 'while :; do :; done'")
        }

        fn send(&self, number: i32) {
            signal::kill(self.pid as i32, number).unwrap();
        }

        fn brake(&self) -> Brake {
            Brake::put_on(self.pid, procfs::start_time(self.pid as i32).unwrap()).unwrap()
        }

        fn held(&self) -> Brake {
            let brake = self.brake();
            until("the stop", || state(self.pid) == 't');
            assert!(brake.is_on());
            brake
        }

        /// What its parent sees.
        fn ends_with(mut self, status: &str) {
            assert_eq!(self.lines.next().unwrap().unwrap(), status);
            assert!(self.shell.wait().unwrap().success());
        }
    }

    #[test]
    fn it_stands_still_and_goes_on() {
        let program = Program::busy();
        let ticks = || procfs::stat(program.pid as i32).unwrap().cpu_ticks;
        let brake = program.held();
        let before = ticks();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(ticks(), before);
        drop(brake);
        assert_eq!(procfs::status(program.pid as i32).unwrap().tracer, 0);
        until("that it computes", || ticks() > before);
        program.send(libc::SIGKILL);
        program.ends_with("137");
    }

    #[test]
    fn signals_do_not_wait() {
        for (number, status) in [(libc::SIGTERM, "143"), (libc::SIGKILL, "137")] {
            let program = Program::busy();
            let brake = program.held();
            program.send(number);
            program.ends_with(status);
            until("that the brake is off", || !brake.is_on());
        }
    }

    /// The program of the next test.
    #[test]
    fn spins_where_it_is_told_to() {
        while std::env::var_os("PANDO_TEST_BRAKE_SPIN").is_some() {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn nor_do_signals_of_threads_that_wait() {
        // The harness's first thread waits for the one that runs the test.
        let (me, test) = (std::env::current_exe().unwrap(), "brake::tests::spins_where_it_is_told_to");
        let program = Program::new(&format!("PANDO_TEST_BRAKE_SPIN=1 {} --exact {test} >&2", me.display()));
        let threads = || procfs::threads(program.pid as i32).unwrap_or_default();
        until("its thread", || threads().len() > 1);
        let brake = program.brake();
        until("the stop", || threads().iter().any(|tid| state(*tid as u32) == 't'));
        program.send(libc::SIGWINCH);
        program.send(libc::SIGTERM);
        program.ends_with("143");
        until("that the brake is off", || !brake.is_on());
    }

    #[test]
    fn job_control_goes_before() {
        for number in [libc::SIGSTOP, libc::SIGTSTP] {
            let program = Program::busy();
            let brake = program.held();
            program.send(number);
            until("that its shell's stop holds", || state(program.pid) == 'T');
            until("that the brake is off", || !brake.is_on());
            assert_eq!(procfs::status(program.pid as i32).unwrap().tracer, 0);
            // One that is stopped stays so.
            let brake = program.brake();
            until("that the brake is off", || !brake.is_on());
            assert_eq!(state(program.pid), 'T');
            program.send(libc::SIGCONT);
            until("that it runs", || state(program.pid) == 'R');
            program.send(libc::SIGKILL);
            program.ends_with("137");
        }
    }

    #[test]
    fn one_that_has_got_its_number_is_left_alone_and_so_is_a_child() {
        let program = Program::busy();
        let brake = Brake::put_on(program.pid, procfs::start_time(program.pid as i32).unwrap() + 1).unwrap();
        until("that the brake is off", || !brake.is_on());
        until("that it runs", || state(program.pid) == 'R');
        let shell = program.shell.id();
        let brake = Brake::put_on(shell, procfs::start_time(shell as i32).unwrap()).unwrap();
        until("that the brake is off", || !brake.is_on());
        program.send(libc::SIGKILL);
        program.ends_with("137");
    }

    /// Puts brakes on and takes them off until it has ended.
    fn harass(pid: u32) {
        let Ok(start) = procfs::start_time(pid as i32) else { return };
        while procfs::stat(pid as i32).is_some_and(|s| s.lives()) {
            let brake = Brake::put_on(pid, start).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            // One that nobody heeds.
            let _ = signal::kill(pid as i32, libc::SIGWINCH);
            drop(brake);
            // What is made again whole must get to its end.
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    #[test]
    fn calls_go_on_as_if_nothing_had_been() {
        let begun = Instant::now();
        let program = Program::new("timeout 5 sleep 0.6");
        harass(program.pid);
        program.ends_with("0");
        assert!(begun.elapsed() >= Duration::from_millis(600));
    }

    /// Where the test below has the next one write.
    const FIFO: &str = "PANDO_TEST_BRAKE_FIFO";
    const PIECES: u64 = 2000;

    /// The program of the next test: dd(1) would write what is left.
    #[test]
    fn writes_whole_pieces_where_it_is_told_to() {
        let Some(fifo) = std::env::var_os(FIFO) else { return };
        let (mut file, piece) = (File::options().write(true).open(fifo).unwrap(), vec![7; 1 << 20]);
        for _ in 0..PIECES {
            assert_eq!(file.write(&piece).unwrap(), piece.len());
        }
    }

    #[test]
    fn transfers_come_through_whole() {
        let dir = std::env::temp_dir().join(format!("pando-brake-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let fifo = dir.join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let me = std::env::current_exe().unwrap();
        let test = "--exact brake::tests::writes_whole_pieces_where_it_is_told_to";
        let writer = Program::new(&format!("{FIFO}={} {} {test} >&2", fifo.display(), me.display()));
        // A pipe holds 64 KB, so that each write waits many times.
        let reader = std::thread::spawn(move || std::io::copy(&mut File::open(fifo).unwrap(), &mut std::io::sink()));
        harass(writer.pid);
        writer.ends_with("0");
        assert_eq!(reader.join().unwrap().unwrap(), PIECES << 20);
        let told = dir.join("read");
        let reader = Program::new(&format!(
            "dd if=/dev/urandom of=/dev/null bs=256k count=900 status=noxfer 2>{}",
            told.display()
        ));
        harass(reader.pid);
        reader.ends_with("0");
        let told = std::fs::read_to_string(&told).unwrap();
        assert!(told.contains("900+0 records in"), "{told}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
