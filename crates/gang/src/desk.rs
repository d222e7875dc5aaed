//! The line before the matrix: who finds no room waits, and a place goes to whoever asked first.
//!
//! Within a level nobody overtakes one who waits for any of the same nodes; so whoever is first gets the next place that he fits into, however large he
//! is, and nobody starves. Levels have cells of their own in each row, so they have lines of their own. Who waits asks again and again: one that is
//! silent is no longer in the line, and a new manager learns the line from those who ask and say since when.

use crate::matrix::Matrix;
use crate::wish::{Effect, Gang, Input, Shape};
use std::collections::{BTreeMap, BTreeSet};

/// Who has not asked for so long does not wait any more, milliseconds.
pub const SILENT_MS: u64 = 10_000;

/// One who waits.
#[derive(Clone, Debug)]
struct Waits {
    level: i32,
    /// Nodes that he may get; none: all.
    among: BTreeSet<String>,
    /// When he asked last.
    heard_ms: u64,
}

/// A place in the line: when he asked first, which may be before this clock began, and his number.
type Ticket = (i64, u64);

/// The matrix, and those who wait for a place in it. Times are milliseconds of one clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct Desk {
    matrix: Matrix,
    line: BTreeMap<Ticket, Waits>,
    /// Until then nobody gets a place: who has one already, and who waits, is still being told to this manager.
    learns_until_ms: u64,
}

impl Desk {
    /// Before an empty matrix. One that takes over from another manager learns until then who has what; 0: there is nothing to learn.
    pub fn new(matrix: Matrix, learns_until_ms: u64) -> Desk {
        Desk { matrix, line: BTreeMap::new(), learns_until_ms }
    }

    /// The matrix.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// What is not an arrival goes to the matrix as it is.
    pub fn handle(&mut self, input: Input) -> Vec<Effect> {
        match &input {
            Input::Ended(job) => self.leave(*job),
            Input::Adopt(gang, _) => self.leave(gang.job),
            _ => {}
        }
        self.matrix.handle(input)
    }

    /// One wants a place, and has wanted it for so long. Refused for now, he is in the line: he asks again before [`SILENT_MS`] have passed.
    pub fn ask(&mut self, gang: Gang, waited_ms: u64, now_ms: u64) -> Vec<Effect> {
        self.expire(now_ms);
        let (job, level) = (gang.job, gang.level);
        if self.matrix.job(job).is_some() {
            return self.matrix.handle(Input::Arrive(gang));
        }
        // Another number of his own clock would let him go back and forth.
        let since = self.line.keys().find(|(_, number)| *number == job).map(|(since, _)| *since);
        let ticket = (since.unwrap_or(signed(now_ms) - signed(waited_ms)), job);
        let among = among(&gang.shape);
        let before = self.before(ticket, level, &among);
        let waits = Waits { level, among, heard_ms: now_ms };
        if now_ms < self.learns_until_ms || before > 0 {
            // What never fits does not wait for it.
            if let Err((true, why)) = self.matrix.choose(&gang) {
                self.line.remove(&ticket);
                return vec![Effect::Refused { job, ever: true, why }];
            }
            self.line.insert(ticket, waits);
            let why = match before {
                0 => "the node that orders has just begun to, and is being told who has which CPUs".to_owned(),
                1 => "one gang waits for CPUs of the same nodes before it".to_owned(),
                many => format!("{many} gangs wait for CPUs of the same nodes before it"),
            };
            return vec![Effect::Refused { job, ever: false, why }];
        }
        let effects = self.matrix.handle(Input::Arrive(gang));
        match effects.iter().any(|effect| matches!(effect, Effect::Refused { ever: false, .. })) {
            true => _ = self.line.insert(ticket, waits),
            false => _ = self.line.remove(&ticket),
        }
        effects
    }

    /// Those who are silent wait no more.
    pub fn expire(&mut self, now_ms: u64) {
        self.line.retain(|_, waits| now_ms.saturating_sub(waits.heard_ms) < SILENT_MS);
    }

    /// He waits no more.
    pub fn leave(&mut self, job: u64) {
        self.line.retain(|(_, number), _| *number != job);
    }

    /// Those who wait, the first first, and for how long.
    pub fn line(&self, now_ms: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.line.keys().map(move |(since, job)| (*job, (signed(now_ms) - since).max(0).cast_unsigned()))
    }

    /// Does he wait?
    pub fn waits(&self, job: u64) -> bool {
        self.line.keys().any(|(_, number)| *number == job)
    }

    /// So many of his level are before him for nodes that he wants, too.
    fn before(&self, ticket: Ticket, level: i32, nodes: &BTreeSet<String>) -> usize {
        let others = self.line.range(..ticket).filter(|(_, waits)| waits.level == level);
        others.filter(|(_, waits)| meet(&waits.among, nodes)).count()
    }
}

/// Half of what there is, so that the difference of two is none that does not fit.
fn signed(ms: u64) -> i64 {
    (ms.min(u64::MAX / 4)).cast_signed()
}

fn meet(a: &BTreeSet<String>, b: &BTreeSet<String>) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.is_empty() || few.iter().any(|name| many.contains(name))
}

/// Nodes of which it may get CPUs; none: all.
fn among(shape: &Shape) -> BTreeSet<String> {
    match shape {
        Shape::Fixed(wants) => wants.iter().map(|(name, _)| name.clone()).collect(),
        Shape::Free { among, .. } => among.iter().cloned().collect(),
    }
}
