//! The demo while it runs: who is where, what the nodes decided, who has ended. The nodes' balancer moves the programs; the demo only drains a
//! node in the middle and lets it be used again.

use super::display::{Display, State};
use super::programs::{Data, Program};
use super::run::{End, Running, Start};
use crate::api::{self, Decision, Move};
use crate::entry::{Entry, environment};
use crate::error::{Error, Result};
use crate::place::Plan;
use crate::sys;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One program and what became of it.
pub struct Piece {
    /// Its name.
    pub name: &'static str,
    running: Running,
    place: usize,
    moving: bool,
    /// What was last said about it when it did not move.
    pub refused: Option<String>,
    /// Its moves, oldest first.
    pub moves: Vec<Move>,
    /// CPU milliseconds away from home, by node.
    pub away_ms: BTreeMap<String, u64>,
}

impl Piece {
    /// How it ended.
    pub fn end(&self) -> Option<End> {
        self.running.end
    }

    /// Where it is now.
    pub fn state(&self) -> State {
        (self.place, self.moving, self.running.end.is_some())
    }
}

/// What the demo does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The nodes spread what began at one.
    Spread,
    /// One of them is emptied.
    Drain,
    /// It is used again.
    Again,
}

/// The running demo.
pub struct Live<'a> {
    plan: &'a Plan,
    socket: PathBuf,
    /// The programs.
    pub pieces: Vec<Piece>,
    act: Act,
    start: Instant,
    /// When a node is drained, and when it is used again.
    drained: (Duration, Duration),
    looked: Instant,
    display: Display,
}

/// The node that is drained in the middle.
const DRAINED: &str = "n2";
const TICK: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(200);

impl<'a> Live<'a> {
    /// Starts all programs at n1, each by `pando run` with these options.
    pub fn start(
        plan: &'a Plan,
        programs: &[Program],
        data: &Data,
        expected: Duration,
        options: &'static [&'static str],
        display: Display,
    ) -> Result<Live<'a>> {
        let dir = data.dir.join("moved");
        let start = |program: &Program| {
            let (entry, environment) = (Entry::open(plan, "n1")?, environment(plan, "n1"));
            let how = Start { entry, environment, pando: plan.exe.clone(), options };
            Ok(Piece {
                name: program.name,
                running: Running::start(program, data, &dir, Some(how))?,
                place: 0,
                moving: false,
                refused: None,
                moves: Vec::new(),
                away_ms: BTreeMap::new(),
            })
        };
        Ok(Live {
            plan,
            socket: plan.socket("n1"),
            pieces: programs.iter().map(start).collect::<Result<_>>()?,
            act: Act::Spread,
            start: Instant::now(),
            drained: (expected.mul_f64(0.5), expected.mul_f64(0.75)),
            looked: Instant::now(),
            display,
        })
    }

    /// Runs until every program has ended.
    pub fn run(&mut self, deadline: Duration) -> Result<()> {
        while self.pieces.iter().any(|p| p.running.end.is_none()) {
            if sys::interrupted().is_some() {
                return Err(Error::Interrupted);
            }
            if self.start.elapsed() > deadline {
                let left: Vec<&str> = self.pieces.iter().filter(|p| p.running.end.is_none()).map(|p| p.name).collect();
                let what = format!("the end of {}", left.join(", "));
                return Err(Error::Late { what, seconds: deadline.as_secs(), detail: String::new() });
            }
            self.reap();
            if self.looked.elapsed() > LOOK {
                self.look();
            }
            self.next_act();
            let names = self.plan.nodes();
            self.display.draw(self.start.elapsed(), self.act, &names, &self.pieces);
            std::thread::sleep(TICK);
        }
        // The daemon has its last word a moment after the end of the last program.
        std::thread::sleep(TICK);
        self.look();
        self.display.close();
        Ok(())
    }

    fn say(&mut self, text: String) {
        self.display.event(self.start.elapsed(), text);
    }

    fn reap(&mut self) {
        for i in 0..self.pieces.len() {
            let piece = &mut self.pieces[i];
            if piece.running.end.is_none()
                && let Some(end) = piece.running.look()
            {
                piece.moving = false;
                self.looked = self.looked.checked_sub(LOOK).unwrap_or(self.looked);
                let how = if end.status == 0 { "is done".into() } else { sys::status_text(end.status) };
                let text = format!("{} {how}", piece.name);
                self.say(text);
            }
        }
    }

    /// Asks the daemon where everyone is, and what it thinks of those that have not moved.
    fn look(&mut self) {
        self.looked = Instant::now();
        if let Ok(seen) = api::processes(&self.socket) {
            let news: Vec<String> = seen.into_iter().flat_map(|process| self.seen(process)).collect();
            news.into_iter().for_each(|text| self.say(text));
        }
        if let Ok(said) = api::decisions(&self.socket) {
            for Decision { pid, text } in said.stays.into_iter().chain(said.moves) {
                if let Some(piece) = self.piece(pid).filter(|p| p.running.end.is_none() && p.moves.is_empty()) {
                    piece.refused = Some(text);
                }
            }
        }
    }

    /// The program with this pid.
    fn piece(&mut self, pid: u32) -> Option<&mut Piece> {
        let at = self.pieces.iter_mut().position(|p| p.running.pid() == Some(pid))?;
        self.pieces.get_mut(at)
    }

    /// What is new of one process.
    fn seen(&mut self, process: api::Process) -> Vec<String> {
        let names = self.plan.nodes();
        let Some(piece) = self.piece(process.pid) else { return Vec::new() };
        let away = process.cpu_by_node.into_iter().filter(|(node, _)| *node != process.home);
        for (node, ms) in away {
            let known = piece.away_ms.entry(node).or_default();
            *known = ms.max(*known);
        }
        piece.place = names.iter().position(|n| *n == process.place).unwrap_or(piece.place);
        piece.moving = piece.running.end.is_none() && !matches!(process.phase.as_str(), "home" | "away");
        if process.records.len() < piece.moves.len() {
            return Vec::new();
        }
        let told = piece.moves.len();
        piece.moves = process.records;
        let text = |m: &Move| {
            let ms = m.freeze_us as f64 / 1000.0;
            format!("{}: {} -> {}, frozen {ms:.1} ms ({})", piece.name, m.from, m.to, m.reason)
        };
        piece.moves[told..].iter().map(text).collect()
    }

    fn next_act(&mut self) {
        let elapsed = self.start.elapsed();
        let next = match self.act {
            Act::Spread if elapsed > self.drained.0 => Act::Drain,
            Act::Drain if elapsed > self.drained.1 => Act::Again,
            _ => return,
        };
        let (verb, on) = if next == Act::Drain { ("drain", true) } else { ("drain --undo", false) };
        let text = match api::drain(&self.socket, DRAINED, on) {
            Ok(()) => format!("pando {verb} {DRAINED}"),
            Err(e) => format!("pando {verb} {DRAINED}: {e}"),
        };
        self.act = next;
        self.say(text);
    }
}
