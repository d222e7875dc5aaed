//! What breaks, by name, and what must hold afterwards.
//!
//! Each round runs a few programs at once: one that computes at n2, one that is blocked in a call there, one whose
//! partner reads slowly, and one that is moved to and fro all the time, so that the fault meets some phase of a move.
//! Allowed after a fault: the exact result, or death by a signal with a line in a log. Never a hang, wrong output, or
//! anything left on any node.

use crate::aftermath::{all_see_all, guests, left_behind, logs, tells};
use crate::command::Task;
use crate::evidence;
use crate::judge;
use crate::mover::{Moved, Mover, Plan};
use crate::program::{self, Program};
use crate::random::Random;
use crate::run::{self, Outcome, Way};
use crate::session::{Session, loudly};
use crate::testbed::Testbed;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Everything must have ended so long after the start.
const DEADLINE: Duration = Duration::from_secs(45);
/// What a fault leaves must be gone after this: the engine's `lost_after` and a little more.
const GONE_WITHIN: Duration = Duration::from_secs(14);
/// How long a node is stalled or cut off when it comes back.
const PAUSE: Duration = Duration::from_secs(3);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of the target's daemon; it is started again.
    KillTargetDaemon,
    /// kill -9 of home's daemon; it is started again.
    KillHomeDaemon,
    /// kill -9 of the helpers at the target.
    KillGuestHelper,
    /// kill -9 of the guests themselves.
    KillGuest,
    /// kill -9 of the helpers at home.
    KillDeputyHelper,
    /// kill -9 of the processes at home.
    KillProcess,
    /// The target's machine crashes.
    KillTarget,
    /// The network of the target goes away for some seconds.
    CutAndHeal,
    /// The network of the target goes away for good.
    CutForGood,
    /// Daemon and helpers of the target stand still for some seconds.
    StallTarget,
    /// Daemon and helpers of home stand still for some seconds.
    StallHome,
}

impl Fault {
    /// Whether moved programs must come through it with exact results.
    pub fn must_be_exact(self) -> bool {
        use Fault::*;
        matches!(self, KillTargetDaemon | KillHomeDaemon | CutAndHeal | StallTarget | StallHome)
    }

    /// Whether one round of it is quick, so that it has several.
    pub fn rounds(self) -> u64 {
        use Fault::*;
        if matches!(self, CutAndHeal | CutForGood | StallTarget | StallHome | KillTarget) { 1 } else { 3 }
    }

    fn strike(self, testbed: &Testbed, programs: &BTreeSet<u32>) -> Result<(), String> {
        let helpers = evidence::helpers(&testbed.nodes);
        let of_role = |role: &str| helpers.iter().filter(|h| h.args.iter().any(|a| a == role)).map(|h| h.pid).collect();
        let seconds = PAUSE.as_secs().to_string();
        match self {
            Fault::KillTargetDaemon => testbed.pando(&["testbed", "kill", "--daemon", "n2"])?,
            Fault::KillHomeDaemon => testbed.pando(&["testbed", "kill", "--daemon", "n1"])?,
            Fault::KillTarget => testbed.pando(&["testbed", "kill", "n2"])?,
            Fault::KillGuestHelper => kill(&of_role("__guest")),
            Fault::KillGuest => kill(&guests(&helpers)),
            Fault::KillDeputyHelper => kill(&of_role("__deputy")),
            Fault::KillProcess => kill(programs),
            Fault::CutAndHeal => {
                testbed.pando(&["testbed", "cut", "n2"])?;
                std::thread::sleep(PAUSE);
                testbed.pando(&["testbed", "heal", "n2"])?
            }
            Fault::CutForGood => testbed.pando(&["testbed", "cut", "n2"])?,
            Fault::StallTarget => testbed.pando(&["testbed", "stall", "n2", &seconds])?,
            Fault::StallHome => testbed.pando(&["testbed", "stall", "n1", &seconds])?,
        };
        Ok(())
    }

    fn mend(self, testbed: &Testbed) -> Result<(), String> {
        match self {
            Fault::KillTargetDaemon | Fault::KillTarget => testbed.pando(&["testbed", "start", "n2"])?,
            Fault::KillHomeDaemon => testbed.pando(&["testbed", "start", "n1"])?,
            Fault::CutForGood => testbed.pando(&["testbed", "heal", "n2"])?,
            _ => return Ok(()),
        };
        all_see_all(testbed)
    }
}

/// kill -9 of all at once.
fn kill(pids: &BTreeSet<u32>) -> String {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    let _ = Command::new("sh").args(["-c", &format!("kill -KILL {}", list.join(" "))]).output();
    String::new()
}

/// Moves to some places only and remembers whom it moved.
struct Aim<'a> {
    testbed: &'a Testbed,
    places: &'a [&'a str],
    pids: &'a Mutex<BTreeSet<u32>>,
}

impl Mover for Aim<'_> {
    fn command(&self, exe: &Path) -> Command {
        self.testbed.command(exe)
    }

    fn destinations(&self) -> Vec<String> {
        self.places.iter().map(|p| p.to_string()).collect()
    }

    fn move_to(&self, pid: u32, dest: &str, patience: Duration) -> Moved {
        self.pids.lock().expect("no holder panics").insert(pid);
        self.testbed.move_to(pid, dest, patience)
    }

    fn evidence(&self, pid: u32) -> String {
        self.testbed.evidence(pid)
    }
}

/// One program of a round: its name, how long it works, whether it is moved all the time.
const CAST: [(&str, u64, bool); 4] = [
    ("compute-hash", 3000, false),
    ("nanosleep-long", 2000, false),
    ("pipe-large", 3000, false),
    ("file-rw", 3000, true),
];

/// What a round says that showed nothing.
const NOBODY: &str = "nothing was away when it struck";
/// How often such a round is tried.
const ATTEMPTS: u64 = 5;

/// Runs all rounds of one fault and panics if anything was wrong.
pub fn test(fault: Fault) {
    let what = format!("fault {fault:?}");
    let Some(mut session) = Session::open(&what, true) else { return };
    let mut wrong = Vec::new();
    for number in 0..fault.rounds() {
        // A fault that met nobody (a machine so busy that no move came in time) shows nothing: once more, at another moment.
        for attempt in 0..ATTEMPTS {
            wrong = round(fault, number + (attempt << 8), &session).unwrap_or_else(|e| vec![e]);
            if wrong != [NOBODY] {
                break;
            }
        }
        if let Some(Err(why)) = session.testbed.as_mut().map(Testbed::look) {
            wrong.push(why);
        }
        if !wrong.is_empty() {
            break;
        }
    }
    session.suite.tidy_up(!wrong.is_empty());
    assert!(wrong.is_empty(), "{what}, PANDO_SUITE_SEED={}:\n{}", session.seed, wrong.join("\n"));
}

fn tasks() -> Result<Vec<Task>, String> {
    let all = program::all().map_err(|e| e.to_string())?;
    let find = |name: &str| all.iter().find(|p: &&Program| p.name == name).ok_or(format!("no program {name}"));
    CAST.iter().map(|(name, ..)| Task::of(find(name)?).map_err(|e| e.to_string())).collect()
}

/// One round; gives what was wrong.
fn round(fault: Fault, number: u64, session: &Session) -> Result<Vec<String>, String> {
    let tasks = tasks()?;
    let references = tasks.iter().map(|t| session.suite.reference(t)).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random::named(session.seed.wrapping_add(number << 32), &format!("{fault:?}"));
    let testbed = session.testbed.as_ref().ok_or("no testbed")?;
    let scratch = session.suite.scratch();
    let pids = Mutex::new(BTreeSet::new());
    let aims = [Aim { testbed, places: &["n2"], pids: &pids }, Aim { testbed, places: &["n2", "home"], pids: &pids }];
    let wait = Duration::from_millis(random.within(0, 300));
    let mut seen_guests = BTreeSet::new();
    let outcomes: Vec<Result<Outcome, String>> = std::thread::scope(|scope| {
        let runs: Vec<_> = tasks
            .iter()
            .zip(CAST)
            .map(|(task, (name, ms, moving))| {
                let plan = if moving { Plan::Often(3, 20) } else { Plan::Once(Duration::from_millis(50)) };
                let random = Random::new(random.number());
                let mover = &aims[usize::from(moving)];
                let way = Way { mover, plan, random, ms: Some(ms), deadline: DEADLINE };
                let dir = scratch.join(format!("{name}.{fault:?}.{number}"));
                scope.spawn(move || run::run(task, way, &dir).map_err(|e| e.to_string()))
            })
            .collect();
        until_away(testbed);
        std::thread::sleep(wait);
        seen_guests = guests(&evidence::helpers(&testbed.nodes));
        let known = pids.lock().expect("no holder panics").clone();
        let struck = fault.strike(testbed, &known);
        let outcomes = runs.into_iter().map(|r| r.join().unwrap_or_else(|_| Err("the run panicked".into())));
        let mut outcomes: Vec<_> = outcomes.collect();
        outcomes.extend(struck.err().map(Err));
        outcomes
    });
    let mut wrong = Vec::new();
    let mut exact = 0;
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => {
                wrong.push(why);
                continue;
            }
        };
        let found = after(fault, &references[index], &outcome, testbed);
        exact += usize::from(judge::differences(&references[index], &outcome).is_empty());
        let name = CAST[index].0;
        let trail = outcome.tally.trail.join(", ");
        wrong.extend(found.into_iter().map(|f| format!("{name} ({trail}): {f}")));
    }
    wrong.extend(left_behind(testbed, &seen_guests, GONE_WITHIN));
    fault.mend(testbed)?;
    if seen_guests.is_empty() {
        wrong.push(NOBODY.into());
    }
    let verdict = if wrong.is_empty() { "ok" } else { "WRONG" };
    let met = seen_guests.len();
    loudly(&format!("fault {fault:?} met {met} guests: {exact} of {} exact, {verdict}", CAST.len()));
    Ok(wrong)
}

/// Waits till the programs that move once are away, or have had time enough.
fn until_away(testbed: &Testbed) {
    let end = Instant::now() + Duration::from_millis(2000);
    let still = CAST.iter().filter(|(.., moving)| !moving).count();
    while guests(&evidence::helpers(&testbed.nodes)).len() < still && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What is wrong with an outcome after a fault.
fn after(fault: Fault, reference: &Outcome, outcome: &Outcome, testbed: &Testbed) -> Vec<String> {
    if let Some(seen) = &outcome.hang {
        return vec![format!("it hangs: {seen}")];
    }
    let found = judge::differences(reference, outcome);
    if found.is_empty() {
        return found;
    }
    let prefix = reference.stdout.starts_with(&outcome.stdout) && reference.stderr.starts_with(&outcome.stderr);
    if fault.must_be_exact() || !prefix || !outcome.left.is_empty() || !outcome.ended.starts_with("signal ") {
        return found;
    }
    let told = fault == Fault::KillProcess || told_soon(testbed, outcome.pid);
    if told { Vec::new() } else { vec![format!("{}, and no log says why", outcome.ended)] }
}

/// Whether a log says what became of a process. The daemon looks at what it lost now and then: it may say so later than
/// the parent hears of the end.
fn told_soon(testbed: &Testbed, pid: u32) -> bool {
    let end = Instant::now() + GONE_WITHIN;
    loop {
        if logs(testbed).lines().any(|l| tells(l, pid)) {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
