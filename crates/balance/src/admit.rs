//! The target's word: it sees itself better than those who heard of it a while ago.

use crate::cost::rate;
use crate::{Settings, Standing, Vector, Why};
use std::fmt::{Display, Formatter, Result as Formatted};

/// A process that somebody wants to send here.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Bytes that it needs.
    pub needs: u64,
    /// Threads that want to run, thousandths.
    pub demand_milli: u32,
    /// Part of a CPU that it gets where it is; none if it does not come for speed.
    pub has: Option<f64>,
    /// Somebody asked for this by hand: only what is certain to fail is refused.
    pub by_hand: bool,
}

impl Asked {
    /// Does it come for speed?
    pub fn has(why: &Why) -> Option<f64> {
        if let Why::Sooner { here, .. } = why { Some(*here) } else { None }
    }
}

/// What has been promised to those that are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Promised {
    /// Bytes.
    pub bytes: u64,
    /// Threads, thousandths.
    pub demand_milli: u32,
}

/// Why not.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// See [`Standing`].
    Standing(Standing),
    /// So many bytes are free, after all that has been promised.
    Memory(u64),
    /// It would get less here than it has.
    Slower(f64),
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        match self {
            Refusal::Standing(Standing::Drained) => write!(f, "it is being drained"),
            Refusal::Standing(Standing::Owner) => write!(f, "its own user works there"),
            Refusal::Standing(_) => write!(f, "it takes no more guests"),
            Refusal::Memory(free) => write!(f, "it has only {} MB of memory left", free >> 20),
            Refusal::Slower(rate) => write!(f, "it is busier than was known: {rate:.2} of a CPU is left for it"),
        }
    }
}

/// May it come? With what has been promised counted as being here.
pub fn admit(here: &Vector, promised: &Promised, asked: &Asked, settings: &Settings) -> Result<(), Refusal> {
    if here.standing != Standing::Open && !(asked.by_hand && here.standing == Standing::Owner) {
        return Err(Refusal::Standing(here.standing));
    }
    // Those that are here grow, too; nobody has to come for speed where memory will be short before it may leave again.
    let comes_for_speed = asked.has.is_some() && !asked.by_hand;
    let gone = if comes_for_speed { here.falling.saturating_mul(settings.residency_ms) / 1000 } else { 0 };
    let free = here.free.saturating_sub(promised.bytes).saturating_sub(gone);
    let keep = if asked.by_hand { 0 } else { settings.to_keep(here) };
    if here.memory > 0 && free < asked.needs.saturating_add(keep) {
        return Err(Refusal::Memory(free));
    }
    let then = rate(&here.with_demand(i64::from(promised.demand_milli) + i64::from(asked.demand_milli)));
    match asked.has {
        Some(has) if !asked.by_hand && then <= has => Err(Refusal::Slower(then)),
        _ => Ok(()),
    }
}
