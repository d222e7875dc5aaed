//! What a machine does with the processes that run on it: its CPUs are shared out evenly and without loss, and all slow down when they
//! need more memory than there is.
//!
//! Of `n` processes on `c` CPUs of speed `s` each gets `s · min(1, c/n)`. If `used` bytes are resident and only `memory` are there, a part
//! `missing = (used - memory) / used` of what they touch has to come from the disk, and everything takes `1 + THRASH · missing` times as
//! long. (A process that touches 10,000 pages in a second of computing, on a disk that gives a page in half a millisecond, has a THRASH
//! of 5.)

use std::collections::BTreeMap;

/// See above.
const THRASH: f64 = 5.0;
/// Pages that a thrashing machine reads in a second.
const FAULTS: f64 = 200.0;
/// Work that is taken for done, milliseconds: rounding.
const NOTHING: f64 = 1e-6;

/// What a machine has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// CPUs.
    pub cpus: f64,
    /// Speed of each; 1.0 is the usual one.
    pub speed: f64,
    /// Bytes.
    pub memory: u64,
}

/// What a process needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// CPU time on a machine of the usual speed, milliseconds.
    pub work_ms: f64,
    /// Bytes when it has all that it wants.
    pub size: u64,
    /// It has them when it has computed so long, milliseconds; before that a part. 0: from the beginning.
    pub grow_ms: f64,
    /// Calls a second that home answers.
    pub calls: u32,
}

/// In which state a copy of a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It computes.
    Runs,
    /// It stands still because it is being sent somewhere.
    Frozen {
        /// In this attempt.
        attempt: u64,
    },
    /// It has come and waits for home's word.
    Waits {
        /// In this attempt.
        attempt: u64,
    },
}

/// A process (its running half) on a machine.
#[derive(Clone, Debug)]
pub struct Body {
    /// Where it began.
    pub home: u32,
    /// Which life of that.
    pub home_life: u32,
    pub needs: Needs,
    /// Work done, milliseconds.
    pub done_ms: f64,
    pub state: State,
    /// When it came here or began.
    pub since_us: u64,
    /// Where it was before, and when it left there.
    pub left: Option<(u32, u64)>,
    pub moves: u32,
    /// By which attempt it came here.
    pub came_by: u64,
    /// Home was asked to move it; not asked again before this.
    pub asked_until_us: u64,
    /// When home was last heard.
    pub heard_us: u64,
    /// It is to be sent there, in this attempt.
    pub going: Option<(u64, u32)>,
    /// Home has given up this attempt and all before it; a late word to begin it counts no more.
    pub over: u64,
    /// When its copy has been sent.
    pub sent_us: u64,
    /// Part of its speed that calls leave it here.
    pub part: f64,
}

impl Body {
    /// Bytes it has.
    pub fn resident(&self) -> u64 {
        match self.needs.grow_ms > 0.0 {
            true => (self.needs.size as f64 * (self.done_ms / self.needs.grow_ms).min(1.0)) as u64,
            false => self.needs.size,
        }
    }

    /// Does it compute?
    pub fn runs(&self) -> bool {
        self.state == State::Runs
    }

    fn left_ms(&self) -> f64 {
        self.needs.work_ms - self.done_ms
    }
}

/// The machine and all copies on it, by the number of the process.
pub struct Machine {
    pub size: Size,
    pub bodies: BTreeMap<u32, Body>,
    at_us: u64,
    /// Work that each that runs gets done in a millisecond.
    rate: f64,
    running: usize,
    used: u64,
    /// For how long it had less memory than was used, microseconds.
    pub paged_us: u64,
}

impl Machine {
    pub fn new(size: Size) -> Self {
        Machine { size, bodies: BTreeMap::new(), at_us: 0, rate: size.speed, running: 0, used: 0, paged_us: 0 }
    }

    /// Lets the time pass until now. What changes bodies comes between this and [`Machine::plan`].
    pub fn pass(&mut self, now_us: u64) {
        let ms = now_us.saturating_sub(self.at_us) as f64 / 1000.0;
        if self.used > self.size.memory {
            self.paged_us += now_us.saturating_sub(self.at_us);
        }
        self.at_us = self.at_us.max(now_us);
        if ms > 0.0 && self.running > 0 {
            for body in self.bodies.values_mut().filter(|b| b.runs()) {
                body.done_ms += self.rate * body.part * ms;
            }
        }
    }

    /// Shares out what there is. When the first process will be done, if nothing changes.
    pub fn plan(&mut self) -> Option<u64> {
        self.running = self.bodies.values().filter(|b| b.runs()).count();
        self.used = self.bodies.values().map(Body::resident).sum();
        let share = (self.size.cpus / self.running.max(1) as f64).min(1.0);
        self.rate = self.size.speed * share / (1.0 + THRASH * self.missing());
        let first = self.bodies.values().filter(|b| b.runs()).map(|b| b.left_ms() / (self.rate * b.part));
        let first = first.fold(f64::INFINITY, f64::min);
        first.is_finite().then(|| self.at_us + (first.max(0.0) * 1000.0).ceil() as u64 + 1)
    }

    /// Those that are done.
    pub fn done(&self) -> Vec<u32> {
        let done = |b: &Body| b.runs() && b.left_ms() <= NOTHING;
        self.bodies.iter().filter(|(_, b)| done(b)).map(|(task, _)| *task).collect()
    }

    fn missing(&self) -> f64 {
        self.used.saturating_sub(self.size.memory) as f64 / self.used.max(1) as f64
    }

    /// Bytes resident.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Processes that compute.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Major faults a second.
    pub fn faults(&self) -> u32 {
        if self.missing() > 0.0 && self.running > 0 { FAULTS as u32 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn body(work_ms: f64, size: u64) -> Body {
        Body {
            home: 0,
            home_life: 1,
            needs: Needs { work_ms, size, grow_ms: 0.0, calls: 0 },
            done_ms: 0.0,
            state: State::Runs,
            since_us: 0,
            left: None,
            moves: 0,
            came_by: 0,
            asked_until_us: 0,
            heard_us: 0,
            going: None,
            over: 0,
            sent_us: 0,
            part: 1.0,
        }
    }

    #[test]
    fn processes_share_cpus_and_suffer_without_memory() {
        let mut m = Machine::new(Size { cpus: 2.0, speed: 2.0, memory: 1000 });
        for task in 0..4 {
            m.bodies.insert(task, body(1000.0 * f64::from(task + 1), 250));
        }
        // Four on two CPUs of twice the usual speed: each gets what one usual CPU gives.
        assert_eq!(m.plan(), Some(1_000_001));
        m.pass(1_000_001);
        assert_eq!((m.done(), m.faults(), m.paged_us), (vec![0], 0, 0));
        m.bodies.remove(&0);
        m.bodies.insert(9, body(1000.0, 1250));
        m.plan();
        // Half of what is used is missing: four on two CPUs of twice the speed, divided by three and a half.
        assert!((m.rate - 1.0 / 3.5).abs() < 1e-9 && m.faults() > 0 && m.used() == 2000);
        m.pass(2_000_001);
        assert_eq!(m.paged_us, 1_000_000);
    }

    #[test]
    fn who_stands_still_takes_memory_but_no_cpu() {
        let mut m = Machine::new(Size { cpus: 1.0, speed: 1.0, memory: 1000 });
        m.bodies.insert(1, body(100.0, 300));
        m.bodies.insert(2, Body { state: State::Frozen { attempt: 1 }, ..body(100.0, 300) });
        assert_eq!((m.plan(), m.used(), m.running()), (Some(100_001), 600, 1));
        m.pass(100_001);
        assert_eq!(m.done(), [1]);
    }
}
