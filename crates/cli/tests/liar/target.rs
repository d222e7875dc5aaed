//! A target that lies: it takes a process of the honest node and then says what it likes.

use super::{Helper, PATIENCE, Stage, pando, state, until};
use pando_migrate::channel::{Channel, ChannelError};
use pando_migrate::control::{DeputyOrder, Destination};
use pando_migrate::message::{
    Area, CLOCK_QUESTIONS, Context, CpuTimers, Down, Layout, Start, Up, VERSION, signal_frames,
};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// An ordinary user for programs, when the tests are root's.
pub const NOBODY: u32 = 65534;

/// A process that has been moved to the liar.
pub struct Taken {
    pub stage: Stage,
    pub victim: Child,
    /// Another process of the same user: nothing may happen to it.
    pub witness: Child,
    pub deputy: Helper,
    pub chan: Channel,
    pub layout: Layout,
    pub areas: Vec<Area>,
    /// Its only thread, up to now.
    pub context: Context,
    pub xstate: Vec<u8>,
    pub start: Start,
    /// Those that go home.
    pub timers: CpuTimers,
    seq: u64,
}

fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    // Without a locale it maps no files of others but its own.
    command
        .arg("1000")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if super::is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let child = command.spawn().unwrap();
    let call = format!("/proc/{}/syscall", child.id());
    until("it sleeps", || std::fs::read_to_string(&call).is_ok_and(|s| s.starts_with("230 ")));
    child
}

fn start_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap()
}

/// Lets the honest node move a process to a liar, up to the connection.
pub fn connected(stage: Stage) -> (Stage, Child, Helper, Channel) {
    connected_for(stage, sleeper())
}

fn connected_for(stage: Stage, victim: Child) -> (Stage, Child, Helper, Channel) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let order = DeputyOrder {
        pid: victim.id(),
        start_time: start_time(victim.id()),
        request: 7,
        dest: Destination::Node { name: "liar".into(), addr: listener.local_addr().unwrap().to_string() },
        node: "honest".into(),
        identity_dir: stage.identity_dir("honest"),
        engine_socket: stage.engine_socket(),
        caller_uid: 0,
        reason: "test".into(),
        limits: stage.limits.clone(),
        shared: Vec::new(),
        holds: None,
        release: false,
        whole_machine: false,
        waits: Vec::new(),
    };
    let mut command = Command::new(pando());
    let order = serde_json::to_string(&order).unwrap();
    let deputy = stage.helper(command.arg("__deputy").stdout(Stdio::null()), &order);
    let chan = stage.answer(&listener);
    (stage, victim, deputy, chan)
}

/// The liar behaves up to the layout.
pub fn prepared(chan: &mut Channel) -> Layout {
    assert!(matches!(chan.wait::<Down>(PATIENCE).unwrap().0, Down::Offer(_)));
    chan.send(&Up::Agree { version: VERSION, node: "liar".into() }, &[]).unwrap();
    for _ in 0..CLOCK_QUESTIONS {
        chan.send(&Up::AskClock, &[]).unwrap();
        assert!(matches!(chan.wait::<Down>(PATIENCE).unwrap().0, Down::Clock { .. }));
    }
    match chan.wait::<Down>(PATIENCE).unwrap().0 {
        Down::Prepare(layout) => layout,
        other => panic!("{other:?}"),
    }
}

impl Taken {
    /// The liar behaves up to the commit.
    pub fn new() -> Self {
        Self::on(Stage::new())
    }

    pub fn on(stage: Stage) -> Self {
        Self::of(stage, sleeper())
    }

    /// With a process of the test's own.
    pub fn of(stage: Stage, victim: Child) -> Self {
        let (stage, victim, deputy, mut chan) = connected_for(stage, victim);
        let layout = prepared(&mut chan);
        chan.send(&Up::Prepared { post_copy: true, kin: Vec::new() }, &[]).unwrap();
        let (mut areas, mut thread) = (Vec::new(), None);
        let start = loop {
            match chan.wait::<Down>(PATIENCE).unwrap() {
                (Down::Areas(all), _) => areas = all,
                (Down::Thread(tid, context), xstate) => {
                    assert_eq!((tid as u32, thread.is_none()), (victim.id(), true));
                    thread = Some((*context, xstate));
                }
                (Down::Start(start), _) => break *start,
                (Down::Pages(_) | Down::Undelivered, _) => {}
                other => panic!("no start: {other:?}"),
            }
        };
        chan.send(&Up::Started, &[]).unwrap();
        let (context, xstate) = thread.expect("a thread");
        let (seq, timers) = (start.calls, start.timers);
        let witness = sleeper();
        Taken { stage, victim, witness, deputy, chan, layout, areas, context, xstate, start, timers, seq }
    }

    /// Its first thread.
    pub fn tid(&self) -> i32 {
        self.victim.id() as i32
    }

    pub fn say(&mut self, up: &Up, body: &[u8]) {
        // When home has hung up the test finds out by what home says of it.
        let _ = self.chan.send(up, &[body]);
        self.chan.drain(PATIENCE);
    }

    pub fn hear(&mut self) -> Result<(Down, Vec<u8>), ChannelError> {
        self.chan.wait::<Down>(PATIENCE)
    }

    /// Waits for something that `wanted` takes; passes over the rest.
    pub fn wait_for<T>(&mut self, mut wanted: impl FnMut(Down, Vec<u8>) -> Option<T>) -> T {
        loop {
            let (down, body) = match self.hear() {
                Ok(heard) => heard,
                Err(e) => panic!("home does not go on speaking: {e}; {:?}", self.stage.done()),
            };
            if let Some(value) = wanted(down, body) {
                return value;
            }
        }
    }

    pub fn send_call(&mut self, nr: i64, args: &[u64], inputs: &[(u64, &[u8])]) -> u64 {
        self.send_call_of(self.tid(), nr, args, inputs)
    }

    pub fn send_call_of(&mut self, tid: i32, nr: i64, args: &[u64], inputs: &[(u64, &[u8])]) -> u64 {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let spans = inputs.iter().map(|(a, b)| (*a, b.len() as u32)).collect();
        let body: Vec<u8> = inputs.iter().flat_map(|(_, b)| b.to_vec()).collect();
        let signals = if tid == self.tid() { self.context.signals } else { 0 };
        let seq = self.next_seq();
        self.say(&Up::Call { tid, seq, nr: nr as u64, args: all, inputs: spans, signals, resumes: false }, &body);
        seq
    }

    /// Makes the call again that the move broke off, as an honest guest begins.
    pub fn resumed_call(&mut self) -> (u64, Up) {
        let r = pando_kernel::ptrace::from_words(&self.context.registers).unwrap();
        let (tid, seq, signals) = (self.tid(), self.next_seq(), self.context.signals);
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        (seq, Up::Call { tid, seq, nr: r.orig_rax, args, inputs: Vec::new(), signals, resumes: true })
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Has a call made at home; its result.
    pub fn call(&mut self, nr: i64, args: &[u64], inputs: &[(u64, &[u8])]) -> i64 {
        self.call_of(self.tid(), nr, args, inputs)
    }

    /// The same by another thread.
    pub fn call_of(&mut self, tid: i32, nr: i64, args: &[u64], inputs: &[(u64, &[u8])]) -> i64 {
        let number = self.send_call_of(tid, nr, args, inputs);
        self.answer_to(number)
    }

    pub fn answer_to(&mut self, number: u64) -> i64 {
        self.wait_for(|down, _| match down {
            Down::Reply { seq, ret, .. } if seq == number => Some(ret),
            Down::Interrupted { seq, code } if seq == number => Some(code),
            _ => None,
        })
    }

    /// Has a thread made: its id, or an error.
    pub fn birth(&mut self) -> i32 {
        self.call(libc::SYS_clone, &[u64::from(pando_kernel::inject::THREAD_FLAGS)], &[]) as i32
    }

    /// The number of the last call.
    pub fn last_seq(&self) -> u64 {
        self.seq
    }

    /// A place in the program's own stack that can be written.
    pub fn place(&self) -> u64 {
        self.areas.iter().rev().find(|a| a.stack).map(|a| a.end - 8192).unwrap()
    }

    /// Where its stack ends at home.
    pub fn stack_low(&self) -> u64 {
        self.areas.iter().find(|a| a.stack).map(|a| a.start).unwrap()
    }

    /// Asks to go home.
    pub fn called_home(&mut self) {
        self.say(&Up::WantHome("it lies".into()), &[]);
        self.wait_for(|down, _| matches!(down, Down::ComeHome).then_some(()));
    }

    /// Gives back a thread.
    pub fn say_thread(&mut self, tid: i32, context: &Context, xstate: &[u8]) {
        for body in signal_frames(&context.undelivered) {
            self.say(&Up::Undelivered, &body);
        }
        self.say(&Up::Thread(tid, Box::new(context.clone())), xstate);
    }

    pub fn say_frozen(&mut self) {
        let timers = self.timers;
        self.say(&Up::Frozen { timers, cpu_ns: 1, brk: None }, &[]);
    }

    /// Asks to go home, and gives back `context`.
    pub fn freeze(&mut self, context: Context, xstate: &[u8]) {
        self.called_home();
        self.say_thread(self.tid(), &context, xstate);
        self.say_frozen();
    }

    /// The helper has ended the process, and says that it was `liar` and `why`.
    pub fn ends_found_out(mut self, why: &str) {
        // Up to the end of the connection: home takes a little while to say goodbye to one who does not listen.
        while self.hear().is_ok() {}
        self.ends_found_out_unheard(why);
    }

    /// The same for a liar that does not listen.
    pub fn ends_found_out_unheard(mut self, why: &str) {
        let (outcome, detail) = self.stage.done();
        assert!(["failed", "lost"].contains(&outcome.as_str()), "{outcome}: {detail}");
        assert!(detail.contains("node liar") && detail.contains(why), "expected `{why}`: {detail}");
        until("the process ends", || self.victim.try_wait().unwrap().is_some());
        self.nothing_is_left();
    }

    /// The process has ended as `outcome`, whoever is to blame.
    pub fn has_ended(mut self, outcome: &str) {
        let (ended, detail) = self.stage.done();
        assert_eq!(ended, outcome, "{detail}");
        until("the process ends", || self.victim.try_wait().unwrap().is_some());
        self.nothing_is_left();
    }

    /// At home, ended or lost: as long as the helper knows.
    pub fn has_ended_somehow(mut self) {
        let (outcome, detail) = self.stage.done();
        assert!(["home", "ended", "lost", "failed"].contains(&outcome.as_str()), "{outcome}: {detail}");
        self.nothing_is_left();
    }

    /// The process is home and runs there; nothing of ours is in it.
    pub fn comes_home(mut self) {
        let (outcome, detail) = self.stage.done();
        assert_eq!(outcome, "home", "{detail}");
        assert!(self.victim.try_wait().unwrap().is_none(), "it lives");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.victim.id())).unwrap();
        assert!(!maps.contains(&format!("{:x}-", self.layout.hole)), "the hole is still there");
        self.nothing_is_left();
    }

    /// As `comes_home`; or it has died at once of what it brought along, and alone.
    pub fn comes_home_or_dies(mut self) {
        let (outcome, detail) = self.stage.done();
        assert!(["home", "ended"].contains(&outcome.as_str()), "{outcome}: {detail}");
        self.nothing_is_left();
    }

    /// The connection without its seals.
    pub fn raw(&self) -> std::net::TcpStream {
        self.chan.socket().unwrap()
    }

    /// The helper goes on as if nothing had been.
    pub fn goes_on(mut self) {
        assert_eq!(self.call(libc::SYS_getppid, &[], &[]), i64::from(std::process::id()));
        self.deputy.is_unharmed(0);
        let (context, xstate) = (self.context.clone(), self.xstate.clone());
        self.freeze(context, &xstate);
        self.comes_home();
    }

    fn nothing_is_left(&mut self) {
        self.deputy.ends_well();
        assert_eq!(state(self.witness.id()), Some('S'), "somebody else was touched");
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for child in [&mut self.victim, &mut self.witness] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
