//! What is asked of the fabric.

use crate::set::{NodeId, Set};
use serde::{Deserialize, Serialize};

/// Of a region, a variable or an event. The three have nothing to do with each other.
pub type Name = String;

/// Bytes of a name.
pub const LONGEST_NAME: usize = 64;

/// Most bytes that go with an operation itself.
pub const MOST_AT_ONCE: usize = 16 << 10;

/// They end within so many bytes of a region: every node takes as much, for nobody is asked.
pub const PUT_WITHIN: u64 = 16 << 20;

/// One operation: whose, and which of his.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct OpId {
    /// Who asked for it.
    pub origin: NodeId,
    /// He counts them.
    pub number: u64,
}

/// How a variable is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Comparison {
    /// At least the value.
    AtLeast,
    /// Less than it.
    Less,
    /// The same.
    Equal,
    /// Another one.
    NotEqual,
}

impl Comparison {
    /// Does it hold?
    pub fn holds(self, variable: i64, value: i64) -> bool {
        match self {
            Comparison::AtLeast => variable >= value,
            Comparison::Less => variable < value,
            Comparison::Equal => variable == value,
            Comparison::NotEqual => variable != value,
        }
    }
}

/// An operation on a set of nodes: STORM's Xfer-And-Signal and Compare-And-Write (Frachtenberg, Petrini, Fernandez, Pakin and Coll, 2002).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Op {
    /// Bytes of the origin come to a region of each node of the set, all of them everywhere or none anywhere; then an event is signalled there.
    Transfer {
        /// Where to.
        set: Set,
        /// The region, the same everywhere.
        region: Name,
        /// Where in it, bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The event.
        signal: Option<Name>,
    },
    /// A transfer of so few bytes that they go with the operation itself, once down the manager's tree.
    Put {
        /// Where to.
        set: Set,
        /// The region.
        region: Name,
        /// Where in it, bytes.
        offset: u64,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// The event.
        signal: Option<Name>,
    },
    /// A variable is compared with a value at each node of the set; if that holds at all of them, a variable is written at each.
    Compare {
        /// Where.
        set: Set,
        /// What is compared.
        variable: Name,
        /// How.
        comparison: Comparison,
        /// With what.
        value: i64,
        /// What is written: perhaps another variable.
        write: Option<(Name, i64)>,
    },
}

impl Op {
    /// The nodes that it is about.
    pub fn set(&self) -> &Set {
        match self {
            Op::Transfer { set, .. } | Op::Put { set, .. } | Op::Compare { set, .. } => set,
        }
    }

    /// Can it be what a node of the fabric would ask for? What comes from another machine may not. `most`: bytes that a region has at most.
    pub(crate) fn is_sound(&self, most: u64) -> bool {
        let fits = |name: &Name| name.len() <= LONGEST_NAME;
        let named = match self {
            Op::Transfer { region, offset, length, signal, .. } => {
                let ends = offset.checked_add(*length).is_some_and(|end| end <= most);
                ends && fits(region) && signal.iter().all(fits)
            }
            Op::Put { region, offset, bytes, signal, .. } => {
                let ends = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= PUT_WITHIN);
                ends && bytes.len() <= MOST_AT_ONCE && fits(region) && signal.iter().all(fits)
            }
            Op::Compare { variable, write, .. } => fits(variable) && write.iter().all(|(name, _)| fits(name)),
        };
        named && self.set().is_sound() && !self.set().is_empty()
    }

    /// About so many bytes on the way to another node.
    pub fn weight(&self) -> usize {
        let bytes = if let Op::Put { bytes, .. } = self { bytes.len() } else { 0 };
        bytes + 4 * LONGEST_NAME + self.set().weight()
    }

    /// Is this one done after the other at each node, though nobody waits in between? Two that go down the same tree and are done as they come.
    pub fn follows(&self, other: &Op) -> bool {
        matches!((self, other), (Op::Put { set, .. }, Op::Put { set: same, .. }) if set == same)
    }

    /// Must one of the two wait for the other? Those that touch nothing in common have no order.
    pub fn conflicts(&self, other: &Op) -> bool {
        let variables = |op: &Op| match op {
            Op::Compare { variable, write, .. } => {
                [Some(variable.clone()), write.as_ref().map(|(name, _)| name.clone())]
            }
            Op::Transfer { .. } | Op::Put { .. } => [None, None],
        };
        let of_transfer = |op: &Op| match op {
            Op::Transfer { region, signal, .. } | Op::Put { region, signal, .. } => {
                (Some(region.clone()), signal.clone())
            }
            Op::Compare { .. } => (None, None),
        };
        let meets = |a: &Option<Name>, b: &Option<Name>| a.is_some() && a == b;
        let (mine, its) = (of_transfer(self), of_transfer(other));
        let its_variables = variables(other);
        variables(self).iter().any(|a| its_variables.iter().any(|b| meets(a, b)))
            || meets(&mine.0, &its.0)
            || meets(&mine.1, &its.1)
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Outcome {
    /// A transfer is everywhere.
    Transferred,
    /// A comparison held everywhere, and what was to be written is; or it did not hold somewhere, and nothing is written anywhere.
    Compared(bool),
    /// These are not among the nodes that the fabric has now: nothing was done anywhere.
    Lost(Set),
    /// A node could not take a transfer: nothing was done anywhere.
    Refused,
    /// This node is not one of the fabric's nodes any more. Nothing can be said of the operation.
    CutOff,
}
