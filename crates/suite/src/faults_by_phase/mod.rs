//! Every fault at every phase of a move: the helper that is named stands still in the phase (`[test] holds`), the fault strikes
//! exactly there, and the helper goes on.
//!
//! Two programs are moved at once: one computes and writes, one is blocked in a call. What must come of them is in [`fate`],
//! and in a table in docs/engine.md.

mod cast;
mod scene;

use crate::aftermath::all_see_all;
use crate::session::loudly;
use crate::testbed::{self, Testbed};
use crate::{pando, program, suite};
use std::sync::Mutex;
use std::time::Instant;

/// A phase of a move (docs/engine.md). `Hop...` are those of a move from n2 on to n3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It is looked whether the process may move.
    Inspect,
    /// The target has accepted the connection and not yet answered the offer.
    Connect,
    /// The sandbox stands, home has not been told.
    Prepare,
    /// The process stands still at home, with the engine's page in it.
    Freeze,
    /// The target has the context and has not begun.
    Send,
    /// The guest runs, home knows, and has not yet committed.
    Commit,
    /// The process is abroad.
    Away,
    /// It has been called home and runs on.
    Presync,
    /// It stands still abroad.
    FreezeAbroad,
    /// All written pages are sent, the registers are not.
    Residual,
    /// All of it is home.
    Resume,
    /// The next node has accepted the connection.
    HopConnect,
    /// The next node's sandbox stands.
    HopPrepare,
    /// The process stands still at the node that it leaves.
    HopFreezeAbroad,
    /// The next node has the context and has not begun.
    HopSend,
    /// The guest at the next node runs, and home has not yet accepted it.
    HopCommit,
}

/// What breaks. The target is the node to which or from which the process goes; in a hop the one to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of the target's daemon; it is started again.
    KillTargetDaemon,
    /// kill -9 of home's daemon; it is started again.
    KillHomeDaemon,
    /// kill -9 of the helpers at the target.
    KillGuestHelper,
    /// kill -9 of the guests at the target.
    KillGuest,
    /// kill -9 of the helpers at home.
    KillDeputy,
    /// kill -9 of the processes at home.
    KillProcess,
    /// kill -9 of the helpers at the node from which it goes on.
    KillFormerHelper,
    /// The target's network goes away and comes back before that is taken for a loss.
    CutAndHeal,
    /// The target's network goes away until it has been taken for a loss.
    CutForLong,
    /// Daemon and helpers of the target stand still for a while.
    StallTarget,
    /// Daemon and helpers of home stand still for a while.
    StallHome,
    /// Those of the target, until that is taken for a loss.
    StallTargetForLong,
    /// Those of home, until that is taken for a loss.
    StallHomeForLong,
}

/// What must come of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They go on, wherever, with exact results.
    Exact,
    /// They go on at home, by themselves, with exact results.
    Home,
    /// They go on at home with exact results; an idle mapping of the engine's may stay in them.
    HomeWithPage,
    /// They end with SIGKILL, and a log says why.
    Ended,
    /// One of the two before: it depends on who notices first.
    ExactOrEnded,
    /// They end with SIGKILL because somebody sent that.
    Killed,
}

/// The side whose helper is held.
struct Place {
    node: &'static str,
    side: &'static str,
    phase: &'static str,
}

impl Phase {
    fn place(self) -> Option<Place> {
        use Phase::*;
        let (node, side, phase) = match self {
            Inspect => ("n1", "home", "inspect"),
            Connect => ("n2", "guest", "connect"),
            Prepare => ("n2", "guest", "prepare"),
            Freeze => ("n1", "home", "freeze"),
            Send => ("n2", "guest", "send"),
            Commit | HopCommit => ("n1", "home", "commit"),
            Away => return None,
            Presync => ("n2", "guest", "presync"),
            FreezeAbroad | HopFreezeAbroad => ("n2", "guest", "freeze-abroad"),
            Residual => ("n2", "guest", "residual"),
            Resume => ("n1", "home", "resume"),
            HopConnect => ("n3", "guest", "connect"),
            HopPrepare => ("n3", "guest", "prepare"),
            HopSend => ("n3", "guest", "send"),
        };
        Some(Place { node, side, phase })
    }

    /// Where it is moved before anything is held, and where to then.
    fn journey(self) -> (Option<&'static str>, &'static str) {
        match self {
            p if p <= Phase::Away => (None, "n2"),
            p if p <= Phase::Resume => (Some("n2"), "home"),
            _ => (Some("n2"), "n3"),
        }
    }

    fn target(self) -> &'static str {
        if self >= Phase::HopConnect { "n3" } else { "n2" }
    }
}

/// What must come of the programs when `fault` strikes in `phase`. The table in docs/engine.md says the same.
pub fn fate(phase: Phase, fault: Fault) -> Fate {
    use Fault::*;
    use Phase::*;
    match fault {
        KillProcess => Fate::Killed,
        KillTargetDaemon if phase == Inspect => Fate::Home,
        KillTargetDaemon | KillHomeDaemon | CutAndHeal | StallTarget | StallHome => Fate::Exact,
        KillFormerHelper => Fate::Ended,
        KillDeputy => match phase {
            Inspect | Connect | Prepare => Fate::Home,
            Freeze | Send | Commit => Fate::HomeWithPage,
            _ => Fate::Ended,
        },
        StallHomeForLong => home_stalled(phase),
        // The guest itself is not needed any more.
        KillGuest if phase == Residual => Fate::Exact,
        // Its helper may or may not have hung up when home looks.
        KillGuest if phase == Commit || phase == HopCommit => Fate::ExactOrEnded,
        // Home sees before it commits that the guest is gone.
        KillGuestHelper if phase == Commit => Fate::Home,
        KillGuestHelper if phase == HopCommit => Fate::Exact,
        KillGuest | KillGuestHelper | CutForLong | StallTargetForLong => match phase {
            Inspect | Connect | Prepare | Freeze | Send => Fate::Home,
            // At home; one that is blocked in a call is let go when that ends.
            Resume | HopSend => Fate::Exact,
            // The next node is lost, the process is at the last one or has just left it.
            HopConnect | HopPrepare | HopFreezeAbroad => Fate::Exact,
            Commit | Away | Presync | FreezeAbroad | Residual | HopCommit => Fate::Ended,
        },
    }
}

/// Home stood still for so long that the other side has given up.
fn home_stalled(phase: Phase) -> Fate {
    use Phase::*;
    match phase {
        // Nobody waits for home yet, or for longer.
        Inspect | Prepare | Freeze | Resume => Fate::Exact,
        Connect | Send | Commit => Fate::Home,
        HopSend | HopCommit => Fate::Exact,
        Away | HopConnect | HopPrepare => Fate::Ended,
        // All of it may have arrived meanwhile.
        Presync | FreezeAbroad | Residual | HopFreezeAbroad => Fate::ExactOrEnded,
    }
}

/// Testbeds that nobody uses just now. They end with this process.
static IDLE: Mutex<Vec<Testbed>> = Mutex::new(Vec::new());

/// Short limits, and helpers that can be held.
const CONFIG: &str = "\n[limits]\nlost_after_ms = 2500\nconnect_ms = 3000\nprepare_ms = 3000\nfreeze_ms = 3000\n\
                      \n[test]\nholds = true\n";

fn testbed() -> Result<Testbed, String> {
    let idle = IDLE.lock().expect("no holder panics").pop();
    if let Some(testbed) = idle {
        return Ok(testbed);
    }
    let name = format!("phases-{}", suite::unique());
    let file = std::env::temp_dir().join(format!("{name}.toml"));
    std::fs::write(&file, CONFIG).map_err(|e| format!("{}: {e}", file.display()))?;
    let testbed = pando::find().and_then(|pando| Testbed::configured(&pando, &name, 3, false, Some(&file)));
    let _ = std::fs::remove_file(&file);
    testbed
}

/// Lets `fault` strike in `phase` and panics if anything came of it that must not.
pub fn test(phase: Phase, fault: Fault) {
    let what = format!("{fault:?} in {phase:?}");
    if let Some(why) = program::missing_compiler().or_else(testbed::missing) {
        return loudly(&format!("SKIPPED {what}: {why}"));
    }
    let mut testbed = testbed().unwrap_or_else(|e| panic!("testbed: {e}"));
    let began = Instant::now();
    let wrong = scene::play(phase, fault, &mut testbed).unwrap_or_else(|e| vec![e]);
    if wrong.is_empty() {
        println!("{what}: {:?}, {:.1} s", fate(phase, fault), began.elapsed().as_secs_f64());
        if all_see_all(&testbed).is_ok() {
            IDLE.lock().expect("no holder panics").push(testbed);
        }
        return;
    }
    panic!("{what}: must be {:?}, but\n{}", fate(phase, fault), wrong.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fault::*;
    use Phase::*;

    const PHASES: [(Phase, &str); 16] = [
        (Inspect, "Inspect"),
        (Connect, "Connect"),
        (Prepare, "Prepare"),
        (Freeze, "Freeze"),
        (Send, "Send"),
        (Commit, "Commit"),
        (Away, "Away"),
        (Presync, "Presync"),
        (FreezeAbroad, "FreezeAbroad"),
        (Residual, "Residual"),
        (Resume, "Resume"),
        (HopConnect, "on to n3: Connect"),
        (HopPrepare, "on to n3: Prepare"),
        (HopFreezeAbroad, "on to n3: FreezeAbroad"),
        (HopSend, "on to n3: Send"),
        (HopCommit, "on to n3: Commit"),
    ];

    fn row(phase: Phase, name: &str) -> String {
        let nobody = |fault| match fault {
            KillGuest => matches!(phase, Inspect | Connect | Resume | HopConnect),
            KillGuestHelper => matches!(phase, Inspect | Resume),
            _ => false,
        };
        let cell = |fault: &Fault| match fate(phase, *fault) {
            _ if nobody(*fault) => "-",
            Fate::Exact => "goes on",
            Fate::Home => "home",
            Fate::HomeWithPage => "home, page",
            Fate::Ended | Fate::Killed => "ends",
            Fate::ExactOrEnded => "either",
        };
        let faults = [
            KillTargetDaemon,
            KillHomeDaemon,
            KillGuestHelper,
            KillGuest,
            KillDeputy,
            CutAndHeal,
            CutForLong,
            StallTargetForLong,
            StallHomeForLong,
        ];
        format!("| {name} | {} |", faults.iter().map(cell).collect::<Vec<_>>().join(" | "))
    }

    #[test]
    fn the_table_in_the_documentation_is_this_one() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engine.md");
        let text = std::fs::read_to_string(file).expect("docs/engine.md");
        let rows: Vec<String> = PHASES.iter().map(|(phase, name)| row(*phase, name)).collect();
        assert!(rows.iter().all(|r| text.contains(r.as_str())), "docs/engine.md must say\n{}", rows.join("\n"));
    }
}
