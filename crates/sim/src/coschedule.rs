//! Two copies of a parallel program share CPUs, by model: switched as gangs, on a strobe, or by each CPU for itself. As in figure 3 of STORM
//! (Frachtenberg, Petrini, Fernandez, Pakin and Coll, 2002).
//!
//! Each CPU has one rank of each copy. *As gangs* every other slot is a copy's. A strobe is at a node by the node's skew, the same each time, and
//! its own jitter too late; then all ranks of one copy there are stopped and those of the other go on. *Without* each CPU goes round robin with
//! the same quantum, from a moment of its own, and who waits for a message spins: his slice is gone. A rank computes for a grain, then it needs the
//! message that its two neighbours in the ring sent after the grain before. What a switch does to caches is part of its cost.
//! Those moments stay as they are, which is the worst for neighbours whose slices lie apart: a kernel's are as unlucky only for a while.
//! All times are microseconds.

/// What things cost.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// To switch a node, and for each rank there.
    pub switch: f64,
    /// See above.
    pub rank: f64,
    /// To switch by a CPU's own scheduler.
    pub local: f64,
    /// Strobes are late by up to so much at a node, each time the same.
    pub skew: f64,
    /// And by so much more on average, exponentially distributed, half a quantum at most.
    pub jitter: f64,
    /// A message takes so long.
    pub latency: f64,
}

/// What runs.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub nodes: u32,
    /// Ranks, and CPUs, of a node.
    pub ranks: u32,
    /// What each rank computes.
    pub work: f64,
    /// It computes so long between two messages; none without.
    pub grain: Option<f64>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Gangs,
    Local,
}

/// A number from 0 to 1, excluded, that belongs to these.
fn chance(seed: u64, a: u64, b: u64) -> f64 {
    let mut x = seed ^ a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03);
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        x = (x ^ x >> 30).wrapping_mul(factor);
    }
    ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64
}

/// Two of them on the same CPUs.
pub struct Shared {
    pub program: Program,
    pub costs: Costs,
    pub how: How,
    pub quantum: f64,
    pub seed: u64,
}

/// One rank's time.
struct Rank {
    node: u64,
    /// The slots of its CPU begin so much later than others'.
    phase: f64,
    /// Its slot, when that began for it, and when it ends.
    slot: u64,
    begin: f64,
    end: f64,
}

impl Shared {
    /// When slot `slot` begins at a rank's CPU.
    fn arrives(&self, rank: &Rank, slot: u64) -> f64 {
        let late = match self.how {
            How::Local => 0.0,
            How::Gangs => {
                let jitter = -self.costs.jitter * (1.0 - chance(self.seed, rank.node + 1, slot + 1)).ln();
                jitter.min(self.quantum / 2.0)
            }
        };
        rank.phase + late + slot as f64 * self.quantum
    }

    fn switch(&self) -> f64 {
        match self.how {
            How::Gangs => self.costs.switch + self.costs.rank * f64::from(self.program.ranks),
            How::Local => self.costs.local,
        }
    }

    /// One of its copy's slots. From `alone` on the other copy is not there, and it has the CPU for good: from its last slot on, if that was not over
    /// yet, or as soon as it is told.
    fn enter(&self, rank: &mut Rank, slot: u64, alone: f64) {
        let (arrives, next) = (self.arrives(rank, slot), self.arrives(rank, slot + 1));
        let told = alone + rank.phase.max(0.0);
        let end = if next > alone { f64::INFINITY } else { next };
        (rank.slot, rank.begin, rank.end) = (slot, arrives.min(told) + self.switch(), end);
    }

    fn rank(&self, number: u32, copy: u64, alone: f64) -> Rank {
        let node = u64::from(number / self.program.ranks);
        let phase = match self.how {
            How::Gangs => self.costs.skew * chance(self.seed, node, u64::MAX),
            // Of one CPU of its own: from anywhere in a round.
            How::Local => -2.0 * self.quantum * chance(self.seed, u64::from(number), u64::MAX - 1),
        };
        let mut rank = Rank { node, phase, slot: 0, begin: 0.0, end: 0.0 };
        self.enter(&mut rank, copy, alone);
        rank
    }

    /// It has nothing to do before `from`: when has it done `work`?
    fn advance(&self, rank: &mut Rank, alone: f64, from: f64, mut work: f64) -> f64 {
        loop {
            let at = rank.begin.max(from).max(0.0);
            if at + work <= rank.end {
                return at + work;
            }
            work -= (rank.end - at).max(0.0);
            // What is between is the other copy's.
            self.enter(rank, rank.slot + 2, alone);
        }
    }

    /// When each rank of a copy ends, if the other one leaves its CPU at `alone`.
    fn ends(&self, copy: u64, alone: &[f64]) -> Vec<f64> {
        let Program { work, grain, .. } = self.program;
        let mut all: Vec<Rank> = (0..).zip(alone).map(|(number, &alone)| self.rank(number, copy, alone)).collect();
        let count = all.len();
        let (steps, each) = grain.map_or((1, work), |grain| ((work / grain).round().max(1.0) as u64, grain));
        let mut done = vec![0.0f64; count];
        let mut before = done.clone();
        for step in 0..steps {
            std::mem::swap(&mut done, &mut before);
            let latency = if step == 0 { 0.0 } else { self.costs.latency };
            for (number, rank) in all.iter_mut().enumerate() {
                let neighbours = before[(number + 1) % count].max(before[(number + count - 1) % count]);
                let heard = if grain.is_some() { neighbours + latency } else { 0.0 };
                done[number] = self.advance(rank, alone[number], before[number].max(heard), each);
            }
        }
        done
    }

    /// Until both have ended. A copy whose last rank has ended is a gang no more; without gangs each rank leaves its CPU when it ends.
    pub fn total(&self) -> f64 {
        let count = (self.program.nodes * self.program.ranks) as usize;
        let ends = [0, 1].map(|copy| self.ends(copy, &vec![f64::INFINITY; count]));
        let last = ends.each_ref().map(|ends| latest(ends));
        // What was before the first end is the same if the other one knows of it.
        let alone = |copy: usize| -> Vec<f64> {
            let sooner = |(own, other): (&f64, &f64)| if other < own { *other } else { f64::INFINITY };
            match self.how {
                How::Gangs => vec![sooner((&last[copy], &last[1 - copy])); count],
                How::Local => ends[copy].iter().zip(&ends[1 - copy]).map(sooner).collect(),
            }
        };
        latest(&self.ends(0, &alone(0))).max(latest(&self.ends(1, &alone(1))))
    }

    /// One after the other, each with all CPUs.
    pub fn apart(&self) -> f64 {
        let Program { work, grain, .. } = self.program;
        let steps = grain.map_or(1.0, |grain| (work / grain).round().max(1.0));
        2.0 * (grain.map_or(work, |grain| steps * grain) + grain.map_or(0.0, |_| (steps - 1.0) * self.costs.latency))
    }
}

fn latest(ends: &[f64]) -> f64 {
    ends.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { switch: 15.0, rank: 10.0, local: 3.0, skew: 20.0, jitter: 10.0, latency: 20.0 };

    /// By how much it takes longer than one after the other.
    fn over(how: How, quantum: f64, grain: Option<f64>, costs: Costs) -> f64 {
        let program = Program { nodes: 4, ranks: 4, work: 1e6, grain };
        let shared = Shared { program, costs, how, quantum, seed: 3 };
        shared.total() / shared.apart() - 1.0
    }

    #[test]
    fn without_costs_there_are_none() {
        let free = Costs { switch: 0.0, rank: 0.0, local: 0.0, skew: 0.0, jitter: 0.0, latency: 0.0 };
        for quantum in [300.0, 7_000.0, 8e6] {
            let cases = [(How::Gangs, None), (How::Gangs, Some(1000.0)), (How::Local, None)];
            for (how, grain) in cases {
                let over = over(how, quantum, grain, free);
                assert!(over.abs() < 1e-9, "{how:?}, quantum {quantum}, grain {grain:?}: {over}");
            }
        }
    }

    #[test]
    fn switches_cost_what_they_cost() {
        // 55 us of each 2 ms, and the strobes' jitter does not add up.
        let over = over(How::Gangs, 2_000.0, None, COSTS);
        assert!((0.0275..0.0295).contains(&over), "{over}");
    }

    #[test]
    fn gangs_are_for_programs_that_speak() {
        let gangs = [1_000.0, 10_000.0, 100_000.0].map(|q| over(How::Gangs, q, Some(1000.0), COSTS));
        assert!(gangs.is_sorted_by(|a, b| a > b) && gangs[1] < 0.05, "{gangs:?}");
        let alone = over(How::Local, 10_000.0, Some(1000.0), COSTS);
        assert!(alone > 0.3, "{alone}");
        assert!(over(How::Local, 10_000.0, None, COSTS) < 0.02);
    }
}
