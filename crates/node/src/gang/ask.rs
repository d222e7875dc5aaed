//! What heads of gangs and the node that orders say to each other: JSON in an errand there and back.

use pando_gang::{Gang, Place};
use serde::{Deserialize, Serialize};

/// What is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// A place for this one; its number is the head's, and random. The answer: [`Came`].
    Arrive(Gang),
    /// It has this place, of another node that ordered. The answer: [`Came`].
    Adopt(Gang, Vec<Place>),
    /// It has ended.
    Ended(u64),
    /// The matrix, for people. The answer: [`crate::views::GangStatus`].
    Show,
}

/// What came of [`Ask::Arrive`] and [`Ask::Adopt`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Came {
    /// It has its place.
    Placed(Placed),
    /// There is none just now, and why.
    Full(String),
    /// There won't be one, and why.
    Never(String),
}

/// A place in the matrix.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Placed {
    /// Its row.
    pub row: u16,
    /// Its CPUs, at the nodes in the order of ranks.
    pub places: Vec<Place>,
}
