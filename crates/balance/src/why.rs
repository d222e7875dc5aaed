//! Reasons, as data and in words.

use std::fmt::{Display, Formatter, Result};

/// Why a process is to move.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// It gets more done there: parts of a CPU here and there, percent that it ends sooner.
    Sooner {
        /// Part of a CPU here.
        here: f64,
        /// And there.
        there: f64,
        /// How much sooner it ends, percent.
        percent: u32,
    },
    /// This node has so little memory left.
    Memory {
        /// Bytes now.
        free: u64,
        /// Bytes in a moment, as fast as it goes.
        soon: u64,
    },
    /// This node's own user works here.
    Owner,
    /// This node is being emptied.
    Drained,
    /// Its user wants it at home.
    HomeOnly,
    /// Its user wants it apart from another one that is here.
    Apart,
}

/// Why a process is not moved.
#[derive(Clone, Debug, PartialEq)]
pub enum Stays {
    /// It can't.
    Obstacle(String),
    /// Its user said so.
    Wish(&'static str),
    /// Its home says why.
    Kept(String),
    /// It has used too little CPU time yet: so many milliseconds more.
    Young(u64),
    /// It has just come: so many milliseconds more.
    JustCame(u64),
    /// It hardly computes.
    Idle,
    /// Nowhere would it end clearly sooner: the best place, and percent.
    NowhereBetter {
        /// The best node.
        best: String,
        /// How much sooner there, percent.
        percent: i32,
    },
    /// No node that is known may take it.
    Nobody,
    /// No node that is known has that much memory.
    NoRoom(u64),
    /// Another one goes first.
    Later,
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Why::Sooner { here, there, percent } => {
                write!(f, "it ends {percent} % sooner there: it gets {there:.2} of a CPU, here {here:.2}")
            }
            Why::Memory { free, soon } => {
                write!(f, "memory is short here, {} MB free", free >> 20)?;
                if soon >> 20 < free >> 20 { write!(f, " and {} MB in a moment", soon >> 20) } else { Ok(()) }
            }
            Why::Owner => write!(f, "this node's own user is back"),
            Why::Drained => write!(f, "this node is being drained"),
            Why::HomeOnly => write!(f, "it is to be at home"),
            Why::Apart => write!(f, "it is to be apart from another one that is here"),
        }
    }
}

impl Display for Stays {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Stays::Obstacle(why) => write!(f, "it can't move: {why}"),
            Stays::Wish(what) => write!(f, "its user said {what}"),
            Stays::Kept(why) => write!(f, "its home keeps it there: {why}"),
            Stays::Young(ms) => write!(f, "it has to use {ms} ms more of CPU time first"),
            Stays::JustCame(ms) => write!(f, "it has just come; it stays for {ms} ms at least"),
            Stays::Idle => write!(f, "it hardly computes"),
            Stays::NowhereBetter { best, percent } if *percent > 0 => {
                write!(f, "the best other place is {best}, where it would end {percent} % sooner: not enough")
            }
            Stays::NowhereBetter { best, .. } => write!(f, "no place is better; the best other one is {best}"),
            Stays::Nobody => write!(f, "no other node that is known may take it"),
            Stays::NoRoom(bytes) => write!(f, "no other node that is known has {} MB for it", bytes >> 20),
            Stays::Later => write!(f, "another process goes first"),
        }
    }
}
