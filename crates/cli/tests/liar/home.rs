//! A home that lies: the honest node takes a process of it, and it then says what it likes.

use super::{Helper, PATIENCE, Stage, pando};
use pando_kernel::clock;
use pando_migrate::channel::{Channel, ChannelError};
use pando_migrate::control::{GuestOrder, Limits};
use pando_migrate::message::signal_frames;
use pando_migrate::message::{Area, CLOCK_QUESTIONS, Context, Down, Layout, Offer, Run, Special, Start, Up, VERSION};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the program's code is, and what it does unless told otherwise: nothing, for ever.
pub const CODE: u64 = 0x40_0000;
pub const DATA: u64 = 0x50_0000;
pub const HOLE: u64 = 0x1000_0000_0000;
/// The process, and so its first thread.
pub const PID: i32 = 12_345;
const STACK: u64 = 0x7ffd_0000_0000;
const PAGE: u64 = 4096;
/// Word of `user_regs_struct` of the instruction pointer, the stack pointer and the selectors.
pub const RIP: usize = 16;
pub const RSP: usize = 19;

/// jmp to itself.
pub const FOREVER: [u8; 2] = [0xeb, 0xfe];
/// The engine's page of code, at the place where the calls that the engine injects are let through.
pub const LET_THROUGH: u64 = HOLE + 31;

static SLOTS: AtomicU32 = AtomicU32::new(500);

/// A helper of the honest node that takes a process of the liar.
pub struct Visit {
    pub stage: Stage,
    pub guest: Helper,
    pub chan: Channel,
}

fn area(start: u64, pages: u64, prot: u32, stack: bool) -> Area {
    Area { start, end: start + pages * PAGE, prot, stack, own: !stack }
}

/// A program of three areas.
pub fn layout() -> Layout {
    let areas = vec![area(CODE, 1, 5, false), area(DATA, 16, 3, false), area(STACK, 8, 3, true)];
    Layout { hole: HOLE, areas, special: Vec::new(), vdso: Vec::new(), limits: Vec::new() }
}

/// The kernel's mappings as the test itself has them, with a vDSO of these bytes.
pub fn special(vdso: Vec<u8>) -> Layout {
    let special = vec![
        Special { start: 0x7fff_0000_0000, end: 0x7fff_0000_4000, name: "[vvar]".into() },
        Special { start: 0x7fff_0000_4000, end: 0x7fff_0000_6000, name: "[vdso]".into() },
    ];
    Layout { special, vdso, ..layout() }
}

/// A thread of that program at `CODE`.
pub fn context() -> Context {
    let mut registers = vec![0; 27];
    (registers[RIP], registers[RSP]) = (CODE, STACK + 4 * PAGE);
    registers[15] = u64::MAX; // in no call
    Context { registers, altstack: vec![0; 24], ..Context::default() }
}

/// Code that makes the system call `nr` with three arguments, again and again.
pub fn calling(nr: i64, args: [u64; 3]) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend((nr as u32).to_le_bytes());
    for (load, arg) in [[0x48, 0xbf], [0x48, 0xbe], [0x48, 0xba]].iter().zip(args) {
        code.extend(load);
        code.extend(arg.to_le_bytes());
    }
    code.extend([0x49, 0xc7, 0xc2, 0x22, 0, 0, 0]); // r10: MAP_PRIVATE | MAP_ANONYMOUS
    code.extend([0x0f, 0x05, 0xeb, 0]);
    let back = code.len() as u8;
    *code.last_mut().unwrap() = 0u8.wrapping_sub(back);
    code
}

/// Whether a guest can be built here at all.
pub fn can_run(test: &str) -> bool {
    let mut visit = Visit::new();
    visit.prepare(layout());
    let can = matches!(visit.hear(), Ok((Up::Prepared { .. }, _)));
    if !can {
        eprintln!("SKIPPED {test}: no sandbox can be made here");
    }
    can
}

/// All that a home says between the layout and `Started`.
pub struct Beginning {
    pub areas: Vec<Area>,
    /// Pages by their addresses.
    pub pages: Vec<(u64, Vec<u8>)>,
    /// Threads, in this order, with their extended states.
    pub threads: Vec<(i32, Context, Vec<u8>)>,
    pub start: Start,
}

impl Beginning {
    /// The start of that program with one thread, which runs `code`.
    pub fn of(code: &[u8]) -> Self {
        let mut page = code.to_vec();
        page.resize(PAGE as usize, 0xf4);
        let start = Start {
            free_break: None,
            brk: 0x60_0000,
            handlers: Vec::new(),
            ignored: 0,
            timers: [[0; 4]; 2],
            tiles: false,
            paused: false,
            clock: 0,
            calls: 0,
            cpu_abroad_ns: 0,
        };
        let mut beginning = Beginning { areas: layout().areas, pages: vec![(CODE, page)], threads: Vec::new(), start };
        beginning.add_thread(PID);
        beginning
    }

    /// One more thread with this id, at `CODE` like the others.
    pub fn add_thread(&mut self, tid: i32) {
        let state = self.threads.first().map_or_else(xstate, |t| t.2.clone());
        self.threads.push((tid, Context { xstate: state.len() as u32, ..context() }, state));
    }

    /// Of the first thread.
    pub fn context(&mut self) -> &mut Context {
        &mut self.threads[0].1
    }

    /// Of the first thread.
    pub fn xstate(&mut self) -> &mut Vec<u8> {
        &mut self.threads[0].2
    }
}

/// An extended state as this kernel has it: of a thread of the test.
pub fn xstate() -> Vec<u8> {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let tracee = pando_kernel::ptrace::Tracee { tid: child.id() as i32 };
    tracee.seize(0).unwrap();
    tracee.interrupt().unwrap();
    tracee.wait(true).unwrap();
    let state = tracee.xstate().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    state
}

pub fn offer() -> Offer {
    Offer {
        version_min: VERSION,
        version_max: VERSION,
        epoch: 1,
        home: "liar".into(),
        pid: PID,
        inner_pid: PID,
        uid: 0,
        command: "a liar's".into(),
        needs: pando_migrate::cpu::needs(std::process::id() as i32),
        lost_after_ms: 3_000,
    }
}

impl Visit {
    /// Up to the TLS handshake.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same, at a node with other limits.
    pub fn with(limits: impl FnOnce(&mut Limits)) -> Self {
        let mut stage = Stage::new();
        limits(&mut stage.limits);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs: OwnedFd = listener.accept().unwrap().0.into();
        let order = GuestOrder {
            kin: Vec::new(),
            node: "honest".into(),
            identity_dir: stage.identity_dir("honest"),
            engine_socket: stage.engine_socket(),
            slot: SLOTS.fetch_add(1, Ordering::Relaxed),
            limits: stage.limits.clone(),
            refuse: None,
            from: Vec::new(),
            shared: vec![("data".into(), stage.data().display().to_string())],
            holds: None,
        };
        // The connection as descriptor 3, as the daemon passes it.
        let mut command = Command::new("sh");
        command.arg("-c").arg("exec \"$0\" __guest 3>&1 >/dev/null").arg(pando()).stdout(Stdio::from(theirs));
        let guest = stage.helper(&mut command, &serde_json::to_string(&order).unwrap());
        drop(command);
        let chan = stage.call(ours);
        Visit { stage, guest, chan }
    }

    pub fn say(&mut self, down: &Down, body: &[u8]) {
        let _ = self.chan.send(down, &[body]);
        self.chan.drain(PATIENCE);
    }

    pub fn hear(&mut self) -> Result<(Up, Vec<u8>), ChannelError> {
        self.chan.wait::<Up>(PATIENCE)
    }

    /// Waits for something that `wanted` takes; passes over the rest.
    pub fn wait_for<T>(&mut self, mut wanted: impl FnMut(Up, Vec<u8>) -> Option<T>) -> T {
        loop {
            let (up, body) = match self.hear() {
                Ok(heard) => heard,
                Err(e) => panic!("the helper does not go on speaking: {e}; {:?}", self.stage.done()),
            };
            if let Some(value) = wanted(up, body) {
                return value;
            }
        }
    }

    /// Behaves up to the layout, which may be any.
    pub fn prepare(&mut self, layout: Layout) {
        let lost_after_ms = self.stage.limits.lost_after_ms;
        self.say(&Down::Offer(Offer { lost_after_ms, ..offer() }), &[]);
        assert!(matches!(self.hear().unwrap().0, Up::Agree { .. }));
        for _ in 0..CLOCK_QUESTIONS {
            assert!(matches!(self.hear().unwrap().0, Up::AskClock));
            self.say(
                &Down::Clock {
                    monotonic: clock::monotonic_ns(),
                    boottime: clock::boottime_ns(),
                    realtime: clock::realtime_ns(),
                },
                &[],
            );
        }
        self.say(&Down::Prepare(layout), &[]);
    }

    /// The same, and the helper has prepared it.
    pub fn prepared() -> Self {
        let mut visit = Visit::new();
        visit.is_prepared();
        visit
    }

    pub fn is_prepared(&mut self) {
        self.prepare(layout());
        assert!(matches!(self.hear().unwrap().0, Up::Prepared { .. }));
    }

    /// Says all of it.
    pub fn begin(&mut self, beginning: &Beginning) {
        self.say(&Down::Areas(beginning.areas.clone()), &[]);
        for (addr, page) in &beginning.pages {
            self.say(&Down::Pages(vec![Run { addr: *addr, pages: 1, zero: false }]), page);
        }
        for (tid, context, state) in &beginning.threads {
            self.say_thread(*tid, context, state);
        }
        self.say(&Down::Start(Box::new(beginning.start.clone())), &[]);
    }

    pub fn say_thread(&mut self, tid: i32, context: &Context, state: &[u8]) {
        for signals in signal_frames(&context.undelivered) {
            self.say(&Down::Undelivered, &signals);
        }
        self.say(&Down::Thread(tid, Box::new(context.clone())), state);
    }

    /// A guest that runs.
    pub fn begun(beginning: &Beginning) -> Self {
        let mut visit = Visit::prepared();
        visit.has_begun(beginning);
        visit
    }

    pub fn has_begun(&mut self, beginning: &Beginning) {
        self.begin(beginning);
        self.wait_for(|up, _| matches!(up, Up::Started).then_some(()));
    }

    /// The sandbox's init and the guest's body, as this machine knows them.
    pub fn sandbox(&self) -> (u32, u32) {
        match family(self.guest.pid())[..] {
            [body, init] => (init, body),
            ref other => panic!("a sandbox of two processes, not of {other:?}"),
        }
    }

    /// Starts the guest with this code.
    pub fn running(code: &[u8]) -> Self {
        Self::begun(&Beginning::of(code))
    }

    /// Answers the pulls that come and waits for the next call: its number, system call and arguments.
    pub fn call(&mut self) -> (u64, u64, [u64; 6]) {
        let (_, seq, nr, args) = self.call_of();
        (seq, nr, args)
    }

    /// The same with the thread that makes it.
    pub fn call_of(&mut self) -> (i32, u64, u64, [u64; 6]) {
        loop {
            match self.hear().expect("the helper goes on speaking").0 {
                Up::Call { tid, seq, nr, args, .. } => return (tid, seq, nr, args),
                Up::Pull(addr, _) => self.say(&Down::Pages(vec![Run { addr, pages: 1, zero: true }]), &[]),
                _ => {}
            }
        }
    }

    pub fn reply(&mut self, seq: u64, ret: i64) {
        self.say(&Down::Reply { seq, ret, outputs: Vec::new() }, &[]);
    }

    /// Refused: with a line for the log that names the liar and says `why`; and nothing is left.
    pub fn refuses(mut self, why: &str) {
        while self.hear().is_ok() {}
        let text = self.stage.logged(why);
        assert!(text.contains("liar"), "{text}");
        self.nothing_is_left();
    }

    /// Up to now nothing is wrong; it ends with the connection.
    pub fn ends_content(mut self) {
        self.guest.is_unharmed(0);
        self.say(&Down::End, &[]);
        self.nothing_is_left();
    }

    fn nothing_is_left(&mut self) {
        let children = family(self.guest.pid());
        self.guest.ends_well();
        for pid in children {
            super::until("its processes are gone", || matches!(super::state(pid), None | Some('Z')));
        }
    }
}

/// The processes below `pid`.
fn family(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = list.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    children.iter().flat_map(|&c| family(c).into_iter().chain([c])).collect()
}
