//! What is asked of the matrix, and what it says.

use crate::table::Table;
use serde::{Deserialize, Serialize};

/// One job's wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Gang {
    /// Its number: the caller's.
    pub job: u64,
    /// What it wants.
    pub shape: Shape,
    /// Interactive: it gets its slot at once, when it comes and when it goes on.
    pub urgent: bool,
    /// Jobs of lower levels stand still while this one has a CPU of theirs.
    pub level: i32,
    /// How long its turns are to be, microseconds; 0: as is usual.
    #[serde(default)]
    pub turn_us: u64,
}

/// Which CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Shape {
    /// So many CPUs of these nodes. A node that is there twice is one place with both numbers.
    Fixed(Vec<(String, u16)>),
    /// Wherever there is room. All CPUs of a rank are at one node.
    Free {
        /// Ranks in all.
        ranks: u32,
        /// CPUs of each.
        cpus: u16,
        /// At most so many nodes; `None`: as many as it takes.
        nodes: Option<u32>,
        /// Only these nodes; empty: all.
        among: Vec<String>,
        /// At most so many ranks at one node.
        per_node: Option<u32>,
    },
}

/// How jobs are put into a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
#[serde(rename_all = "kebab-case")]
pub enum Packing {
    /// At nodes of which the least is left over, in the row in which that is least.
    #[default]
    BestFit,
    /// In the smallest block of a power of two of the sequence of all CPUs, as in distributed hierarchical control (Feitelson and Rudolph, 1990):
    /// jobs of different rows are above each other, or apart.
    Buddy,
}

/// What the administrator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// At most so many rows, 1 to [`MOST_ROWS`](crate::MOST_ROWS). Where it is made less, rows that are one too many go as their jobs end.
    pub rows: u16,
    /// How jobs are put into a row.
    pub packing: Packing,
    /// Jobs run in other rows, too, where all their CPUs are free.
    pub alternative: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { rows: 4, packing: Packing::BestFit, alternative: true }
    }
}

/// Something happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Input {
    /// Other rules, from now on.
    Rules(Rules),
    /// Turns of gangs that want no other length take so many microseconds from now on.
    Usual(u64),
    /// A node is here, with so many CPUs. Those that it had before and has no more are lost.
    Node {
        /// Its name.
        name: String,
        /// Its CPUs for gangs.
        cpus: u16,
    },
    /// A node is here no more.
    NodeGone(String),
    /// What runs at a node besides gangs, guests and its own work: threads that want to run, in thousandths, as it says itself. Gangs that come go where
    /// that is least; it moves nobody who is here.
    Busy {
        /// Its name.
        name: String,
        /// Thousandths of a thread.
        milli: u32,
    },
    /// A job wants to run. One that is here already is told its place again.
    Arrive(Gang),
    /// A job runs already, at these CPUs, which another manager gave to it. It gets a row even where that is one too many.
    Adopt(Gang, Vec<Place>),
    /// A job has ended everywhere, or won't begin.
    Ended(u64),
    /// A job is to stand still.
    Suspend(u64),
    /// And to go on.
    Resume(u64),
}

/// CPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Place {
    /// Its name.
    pub node: String,
    /// By number, ascending: 0 is the node's first CPU for gangs.
    pub cpus: Vec<u16>,
}

/// What follows, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has its CPUs.
    Placed {
        /// Which job.
        job: u64,
        /// Its row in the newest table. Of one that stands still from the first: the one that it will have, as things are.
        row: u16,
        /// Its CPUs. Ranks of [`Shape::Free`] are there in the order of places: the first rank has the first CPUs of the first place.
        places: Vec<Place>,
    },
    /// It is not here.
    Refused {
        /// Which job.
        job: u64,
        /// It won't fit whoever ends, as the nodes are now; otherwise it may when somebody has ended.
        ever: bool,
        /// A sentence for the user.
        why: String,
    },
    /// What all nodes must know from now on.
    Table(Table),
    /// A node, or CPUs, that it used are gone. The caller ends it; until then what is left of it keeps its place.
    Lost {
        /// Which job.
        job: u64,
        /// Which node.
        node: String,
    },
}
