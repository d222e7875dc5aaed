//! What heads of gangs and the node that orders say to each other: JSON in an errand there and back.

use pando_gang::{Gang, Place};
use serde::{Deserialize, Serialize};

/// Bytes of a user's name.
const LONGEST_USER: usize = 256;

/// What is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// A place for this one; its number is the head's, and random. It has waited for so many milliseconds, and asks again where there is none yet. The
    /// answer: [`Came`].
    Arrive(Gang, About, u64),
    /// It has this place, of another node that ordered. The answer: [`Came`].
    Adopt(Gang, About, Vec<Place>),
    /// It has ended, or does not wait any more.
    Ended(u64),
    /// The matrix, for people. The answer: [`crate::views::GangStatus`].
    Show,
}

/// A gang as people know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its job's number, which its head has given it.
    pub job: u64,
    /// What its user calls it.
    pub name: String,
    /// Whose it is.
    pub user: String,
}

impl About {
    /// Is it one that is to be kept and shown?
    pub fn check(&self) -> Result<(), String> {
        let short = self.name.len() <= pando_launch::LONGEST_JOB_NAME && self.user.len() <= LONGEST_USER;
        let plain = |text: &str| !text.chars().any(char::is_control);
        match short && plain(&self.name) && plain(&self.user) {
            true => Ok(()),
            false => Err("a gang's name, or its user's, is no good".into()),
        }
    }
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
