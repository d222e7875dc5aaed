//! The demo while it runs: who is where, what moves next, who has ended.

use super::display::{Display, State};
use super::programs::{Data, Program};
use super::rule::{self, Task};
use super::run::{End, Running};
use crate::api::{self, Move};
use crate::entry::{Entry, environment};
use crate::error::{Error, Result};
use crate::place::Plan;
use crate::sys;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// One program and what became of it.
pub struct Piece {
    /// Its name.
    pub name: &'static str,
    running: Running,
    place: usize,
    since: Instant,
    moving: Option<usize>,
    failures: u32,
    /// The latest reason why a move did not happen.
    pub refused: Option<String>,
    moves: Vec<Move>,
    told: Vec<Move>,
    /// CPU milliseconds away from home, by node.
    pub away_ms: BTreeMap<String, u64>,
}

impl Piece {
    /// Its moves: what the daemon told at the last look, or what our own requests were answered, if that is more.
    pub fn moves(&self) -> &[Move] {
        if self.told.len() >= self.moves.len() { &self.told } else { &self.moves }
    }

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
    /// Spreading by the rule.
    Spread,
    /// All come home.
    Recall,
    /// Spreading again, another way.
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
    recall_at: Duration,
    answers: (Sender<Answer>, Receiver<Answer>),
    looked: Instant,
    display: Display,
}

/// Which piece, where to, what came of it.
type Answer = (usize, String, Result<Option<Move>>);

/// Moves at a time: a node has more to do than to move.
const AT_ONCE: usize = 2;
/// A program that was refused so often is left where it is.
const ENOUGH: u32 = 2;
const TICK: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(200);

impl<'a> Live<'a> {
    /// Starts all programs at n1, each as `testbed exec n1` would.
    pub fn start(
        plan: &'a Plan,
        programs: &[Program],
        data: &Data,
        expected: Duration,
        display: Display,
    ) -> Result<Live<'a>> {
        let dir = data.dir.join("moved");
        let start = |program: &Program| {
            let node = (Entry::open(plan, "n1")?, environment(plan, "n1"));
            Ok(Piece {
                name: program.name,
                running: Running::start(program, data, &dir, Some(node))?,
                place: 0,
                since: Instant::now(),
                moving: None,
                failures: 0,
                refused: None,
                moves: Vec::new(),
                told: Vec::new(),
                away_ms: BTreeMap::new(),
            })
        };
        Ok(Live {
            plan,
            socket: plan.socket("n1"),
            pieces: programs.iter().map(start).collect::<Result<_>>()?,
            act: Act::Spread,
            start: Instant::now(),
            recall_at: expected.mul_f64(0.4),
            answers: channel(),
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
            self.hear();
            if self.looked.elapsed() > LOOK {
                self.look();
            }
            self.decide();
            let names = self.plan.nodes();
            self.display.draw(self.start.elapsed(), self.act, &names, &self.pieces);
            std::thread::sleep(TICK);
        }
        // A move that was under way when its program ended still has an answer to give, and so has the daemon.
        std::thread::sleep(TICK);
        self.hear();
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
                self.looked = self.looked.checked_sub(LOOK).unwrap_or(self.looked);
                let how = if end.status == 0 { "is done".into() } else { sys::status_text(end.status) };
                let text = format!("{} {how}", piece.name);
                self.say(text);
            }
        }
    }

    /// Takes the answers to our requests.
    fn hear(&mut self) {
        while let Ok((i, dest, outcome)) = self.answers.1.try_recv() {
            let names = self.plan.nodes();
            let piece = &mut self.pieces[i];
            let text = match outcome {
                Ok(Some(done)) => {
                    piece.place = names.iter().position(|n| *n == done.to).unwrap_or(piece.place);
                    let ms = done.freeze_us as f64 / 1000.0;
                    let text = format!("{}: {} -> {}, frozen {ms:.1} ms", piece.name, done.from, done.to);
                    piece.moves.push(done);
                    Some(text)
                }
                Ok(None) => {
                    piece.place = piece.moving.unwrap_or(piece.place);
                    None
                }
                // It ended meanwhile: no failure of the move.
                Err(_) if piece.running.look().is_some() => None,
                Err(e) => {
                    piece.failures += 1;
                    let text = format!("{} does not move to {dest}: {e}", piece.name);
                    piece.refused = Some(e.to_string());
                    Some(text)
                }
            };
            piece.moving = None;
            piece.since = Instant::now();
            text.into_iter().for_each(|t| self.say(t));
        }
    }

    /// Asks the daemon where everyone is: a program may have come home by itself.
    fn look(&mut self) {
        self.looked = Instant::now();
        let Ok(seen) = api::processes(&self.socket) else {
            return;
        };
        let names = self.plan.nodes();
        for process in seen {
            let ours = |p: &&mut Piece| p.running.pid == process.pid;
            let Some(piece) = self.pieces.iter_mut().find(ours) else {
                continue;
            };
            let away = process.cpu_by_node.into_iter().filter(|(node, _)| *node != process.home);
            for (node, ms) in away {
                let known = piece.away_ms.entry(node).or_default();
                *known = ms.max(*known);
            }
            if process.records.len() >= piece.told.len() {
                piece.told = process.records;
            }
            let place = names.iter().position(|n| *n == process.place);
            if let (Some(place), None) = (place, piece.moving)
                && place != piece.place
            {
                piece.place = place;
                piece.since = Instant::now();
            }
        }
    }

    fn decide(&mut self) {
        let elapsed = self.start.elapsed();
        let away = self.pieces.iter().any(|p| p.running.end.is_none() && p.place != 0 && p.failures < ENOUGH);
        let next = match self.act {
            Act::Spread if elapsed > self.recall_at => Act::Recall,
            Act::Recall if !away => Act::Again,
            other => other,
        };
        if next != self.act {
            self.act = next;
            let said = if next == Act::Recall { "everybody home" } else { "and away again" };
            self.say(said.to_string());
        }
        while self.pieces.iter().filter(|p| p.moving.is_some()).count() < AT_ONCE {
            let step = match self.act {
                Act::Spread => self.spread(0),
                Act::Again => self.spread(2),
                Act::Recall => self.homecomer(),
            };
            let Some((piece, to)) = step else { return };
            self.send(piece, to);
        }
    }

    fn spread(&self, first: usize) -> Option<(usize, usize)> {
        let task = |(id, p): (usize, &Piece)| Task {
            id,
            home: 0,
            place: p.moving.unwrap_or(p.place),
            age: p.running.started.elapsed(),
            stay: p.since.elapsed(),
            moves: p.moves().len(),
            fixed: p.moving.is_some() || p.failures >= ENOUGH,
        };
        let running = self.pieces.iter().enumerate().filter(|(_, p)| p.running.end.is_none());
        let tasks: Vec<Task> = running.map(task).collect();
        rule::next(self.plan.shape.nodes, &tasks, first).map(|d| (d.id, d.to))
    }

    fn homecomer(&self) -> Option<(usize, usize)> {
        let can = |p: &Piece| p.running.end.is_none() && p.place != 0 && p.moving.is_none() && p.failures < ENOUGH;
        self.pieces.iter().position(can).map(|i| (i, 0))
    }

    /// Asks for a move in a thread of its own; the answer comes by the channel.
    fn send(&mut self, index: usize, to: usize) {
        let dest = if to == 0 { "home".to_string() } else { self.plan.nodes().swap_remove(to) };
        let piece = &mut self.pieces[index];
        piece.moving = Some(to);
        let (socket, pid, answers) = (self.socket.clone(), piece.running.pid, self.answers.0.clone());
        std::thread::spawn(move || {
            let outcome = api::move_to(&socket, pid, &dest, "demo");
            drop(answers.send((index, dest, outcome)));
        });
    }
}
