//! Every reachable state, every schedule: breadth-first search with 128-bit fingerprints.
//!
//! Three things are checked: no state breaks an invariant; no state in which only the outside world could
//! do something still owes something (a hang); and the graph has no cycle, so every schedule ends (no
//! livelock, without assuming that any scheduler is fair).

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Debug};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What happens in a transition: a name and a number (a page, a cell, a sequence number).
pub type Label = (&'static str, u8);

/// One transition out of a state.
#[derive(Clone, Debug)]
pub struct Step<S> {
    /// What it is called in a trace.
    pub label: Label,
    /// True when the outside world does it (a signal, a cut line, an order): the engine may not count on it.
    pub outside: bool,
    /// The state after it.
    pub next: S,
}

/// Something to explore.
pub trait Model {
    /// A state, with everything that decides what can happen next.
    type State: Clone + Eq + Hash + Debug;

    /// Where it starts.
    fn initial(&self) -> Vec<Self::State>;

    /// Every transition that is possible now.
    fn steps(&self, state: &Self::State, out: &mut Vec<Step<Self::State>>);

    /// An invariant that must hold in every state.
    ///
    /// # Errors
    /// The sentence that says what is broken.
    fn check(&self, state: &Self::State) -> Result<(), String>;

    /// Called where only the outside world could act: may everything rest here for ever?
    ///
    /// # Errors
    /// What is still owed.
    fn may_rest(&self, state: &Self::State) -> Result<(), String>;
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An invariant does not hold.
    Broken(String),
    /// Nothing can happen any more, and something is owed.
    Hang(String),
    /// A schedule that never ends.
    Endless,
    /// More states than allowed: nothing is proved.
    TooLarge,
}

/// A failed exploration, with the shortest way to it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What went wrong.
    pub verdict: Verdict,
    /// The transitions that lead there.
    pub trace: Vec<Label>,
    /// The last state, printed.
    pub state: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} after {} steps:", self.verdict, self.trace.len())?;
        for (name, n) in &self.trace {
            writeln!(f, "  {name} {n}")?;
        }
        write!(f, "{}", self.state)
    }
}

/// A finished exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Transitions between them.
    pub transitions: usize,
}

/// Explores `model` completely, or fails at the nearest error.
///
/// # Errors
/// The first failure met, breadth first; [`Verdict::TooLarge`] beyond `limit` states.
pub fn explore<M: Model>(model: &M, limit: usize) -> Result<Explored, Box<Failure>> {
    let mut search = Search::new();
    for state in model.initial() {
        search.meet(state, u32::MAX, ("start", 0));
    }
    let mut steps = Vec::new();
    while let Some((at, state)) = search.frontier.pop_front() {
        if let Err(why) = model.check(&state) {
            return Err(search.failure(at, Verdict::Broken(why), &state));
        }
        if search.parents.len() > limit {
            return Err(search.failure(at, Verdict::TooLarge, &state));
        }
        steps.clear();
        model.steps(&state, &mut steps);
        if steps.iter().all(|s| s.outside)
            && let Err(why) = model.may_rest(&state)
        {
            return Err(search.failure(at, Verdict::Hang(why), &state));
        }
        for step in steps.drain(..) {
            let to = search.meet(step.next, at, step.label);
            search.edges.push((at, to));
        }
    }
    if let Some(at) = cycle(search.parents.len(), &search.edges) {
        return Err(search.failure(at, Verdict::Endless, &"(a state on the cycle)"));
    }
    Ok(Explored { states: search.parents.len(), transitions: search.edges.len() })
}

struct Search<S> {
    seen: HashMap<u128, u32, BuildHasherDefault<Mix>>,
    parents: Vec<(u32, Label)>,
    edges: Vec<(u32, u32)>,
    frontier: VecDeque<(u32, S)>,
}

impl<S: Hash + Debug> Search<S> {
    fn new() -> Self {
        Search { seen: HashMap::default(), parents: Vec::new(), edges: Vec::new(), frontier: VecDeque::new() }
    }

    fn meet(&mut self, state: S, from: u32, label: Label) -> u32 {
        let mut mix = Mix::default();
        state.hash(&mut mix);
        let next = u32::try_from(self.parents.len()).expect("fewer than 2^32 states");
        let at = *self.seen.entry(mix.wide()).or_insert(next);
        if at == next {
            self.parents.push((from, label));
            self.frontier.push_back((at, state));
        }
        at
    }

    fn failure(&self, mut at: u32, verdict: Verdict, state: &dyn Debug) -> Box<Failure> {
        let mut trace = Vec::new();
        while let Some(&(from, label)) = self.parents.get(at as usize) {
            trace.push(label);
            at = from;
        }
        trace.pop();
        trace.reverse();
        Box::new(Failure { verdict, trace, state: format!("{state:?}") })
    }
}

/// A node on a cycle of the graph, if it has one (Kahn: take away what nothing leads to, until nothing is left).
fn cycle(nodes: usize, edges: &[(u32, u32)]) -> Option<u32> {
    let mut incoming = vec![0u32; nodes];
    let mut first = vec![0u32; nodes + 1];
    for &(from, to) in edges {
        incoming[to as usize] += 1;
        first[from as usize + 1] += 1;
    }
    for i in 0..nodes {
        first[i + 1] += first[i];
    }
    // Edges are met in order of their source, so they are grouped already.
    let mut ready: Vec<u32> = (0..nodes as u32).filter(|&n| incoming[n as usize] == 0).collect();
    let mut gone = 0;
    while let Some(n) = ready.pop() {
        gone += 1;
        for &(_, to) in &edges[first[n as usize] as usize..first[n as usize + 1] as usize] {
            incoming[to as usize] -= 1;
            if incoming[to as usize] == 0 {
                ready.push(to);
            }
        }
    }
    (gone < nodes).then(|| (0..nodes as u32).find(|&n| incoming[n as usize] > 0).unwrap_or(0))
}

/// A fast 128-bit mixing hasher (folded multiplication on two lanes).
#[derive(Clone, Copy)]
struct Mix(u64, u64);

impl Default for Mix {
    fn default() -> Self {
        Mix(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344)
    }
}

impl Mix {
    fn word(&mut self, word: u64) {
        let fold = |a: u64, b: u64| {
            let wide = u128::from(a) * u128::from(b);
            (wide as u64) ^ ((wide >> 64) as u64)
        };
        self.0 = fold(self.0 ^ word, 0x9e37_79b9_7f4a_7c15).rotate_left(23);
        self.1 = fold(self.1.rotate_left(31) ^ word, 0xc2b2_ae3d_27d4_eb4f).wrapping_add(self.0);
    }

    fn wide(mut self) -> u128 {
        self.word(0x5bd1_e995);
        self.word(0x1b87_3593);
        (u128::from(self.0) << 64) | u128::from(self.1)
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.wide() as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word) ^ ((chunk.len() as u64) << 59));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.word(u64::from(n));
    }

    fn write_isize(&mut self, n: isize) {
        self.word(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts to `end`, then rests there if it may; may also go round in a circle.
    struct Counter {
        end: u8,
        rests_at: u8,
        circle: bool,
    }

    impl Model for Counter {
        type State = u8;
        fn initial(&self) -> Vec<u8> {
            vec![0]
        }
        fn steps(&self, n: &u8, out: &mut Vec<Step<u8>>) {
            if *n < self.end {
                out.push(Step { label: ("add", *n), outside: false, next: n + 1 });
            } else if self.circle {
                out.push(Step { label: ("again", *n), outside: false, next: 1 });
            }
        }
        fn check(&self, n: &u8) -> Result<(), String> {
            if *n == 9 { Err("nine".into()) } else { Ok(()) }
        }
        fn may_rest(&self, n: &u8) -> Result<(), String> {
            if *n == self.rests_at { Ok(()) } else { Err("early".into()) }
        }
    }

    fn verdict(end: u8, rests_at: u8, circle: bool) -> Option<Verdict> {
        explore(&Counter { end, rests_at, circle }, 100).err().map(|f| f.verdict)
    }

    #[test]
    fn finds_each_kind_of_failure_and_only_where_it_is() {
        assert_eq!(verdict(5, 5, false), None);
        assert_eq!(verdict(5, 6, false), Some(Verdict::Hang("early".into())));
        assert_eq!(verdict(12, 12, false), Some(Verdict::Broken("nine".into())));
        assert_eq!(verdict(5, 5, true), Some(Verdict::Endless));
    }
}
