//! What is known of a process when it is decided about.

use crate::Settings;
use serde::{Deserialize, Serialize};

/// What its user wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// It stays at home, and comes home.
    pub home_only: bool,
    /// Pando does not move it by itself, wherever it is.
    pub no_move: bool,
    /// Only to these nodes (and home); none: to all.
    pub nodes: Option<Vec<String>>,
    /// Most moves; none: any number.
    pub max_moves: Option<u32>,
    /// Bytes that it will need, which it may not have taken yet.
    pub memory: Option<u64>,
    /// No two processes of its home with this word are to be at the same node.
    pub apart: Option<String>,
    /// All processes of its home with this word are to be at the same node.
    pub together: Option<String>,
    /// When what it starts goes where it was sent; none: as the node has it.
    pub children: Option<Children>,
}

/// Bytes of a group's word. Each process of the group has it, in memory and in what is kept.
const MAX_WORD: usize = 64;
/// Nodes that are named, and bytes of their names, which are those of a DNS label.
const MAX_NODES: (usize, usize) = (1024, 63);

impl Wish {
    /// Is it one that a node can keep? Words are shown to people, and each process that begins under this one inherits them.
    pub fn check(&self) -> Result<(), String> {
        for (option, word) in [("--apart", &self.apart), ("--together", &self.together)] {
            let Some(word) = word else { continue };
            if word.is_empty() || word.len() > MAX_WORD || word.chars().any(char::is_control) {
                return Err(format!(
                    "the WORD of {option} must have 1 to {MAX_WORD} bytes, without control characters"
                ));
            }
        }
        let (most, longest) = MAX_NODES;
        let all = self.nodes.as_deref().unwrap_or_default();
        match all.len() > most || all.iter().any(|name| name.len() > longest) {
            true => Err(format!("--nodes takes {most} names at most, of {longest} bytes each")),
            false => Ok(()),
        }
    }
}

impl Wish {
    /// What holds for what it starts: a program is to be apart from others, not from itself.
    #[must_use]
    pub fn of_children(&self) -> Wish {
        Wish { apart: None, ..self.clone() }
    }
}

/// When a process that began at home goes where the one was sent that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Children {
    /// After so much CPU time, milliseconds; 0: as soon as it is seen.
    After(u64),
    /// Never.
    Never,
}

/// A process that runs here, or whose home is here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its home node.
    pub home: String,
    /// Its pid there.
    pub pid: u32,
    /// Threads of it that want to run, smoothed, in thousandths.
    pub demand_milli: u32,
    /// CPU time that it has used, here and elsewhere.
    pub cpu_ms: u64,
    /// Since it began or came here, milliseconds.
    pub here_ms: u64,
    /// Where it was before, and how long ago it left there, milliseconds.
    pub left: Option<(String, u64)>,
    /// Resident bytes.
    pub resident: u64,
    /// By how many bytes a second that grows.
    pub takes: u64,
    /// Calls a second that home answers (would answer, if it is at home and that is known).
    pub calls: u32,
    /// How often it has moved.
    pub moves: u32,
    /// Why it can't move at all.
    pub obstacle: Option<String>,
    /// What its user wants.
    pub wish: Wish,
    /// Nodes that don't take it, or where it is not to be beside another one ([`Wish::apart`]). Never its home, where it can always be.
    pub not: Vec<String>,
    /// Why its home would not let it go, if it is a guest, but for want of memory and the like.
    pub kept: Option<String>,
    /// Another one is here, from which it is to be apart, and which stays.
    pub crowded: bool,
}

impl Process {
    /// What a node must have for it.
    pub fn needs(&self) -> u64 {
        self.resident.max(self.wish.memory.unwrap_or(0))
    }

    /// What a node must have for it where it can't be sent on soon: it goes on growing while it rests there.
    pub fn will_need(&self, settings: &Settings) -> u64 {
        let grows = self.takes.saturating_mul(settings.residency_ms) / 1000;
        self.needs().max(self.resident.saturating_add(grows))
    }

    /// May it be at that node, as its user has it?
    pub(crate) fn may_be_at(&self, node: &str) -> bool {
        let home = node == self.home;
        let open = !self.wish.home_only && !self.not.iter().any(|n| n == node);
        home || open && self.wish.nodes.as_ref().is_none_or(|all| all.iter().any(|n| n == node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_no_place_to_keep_megabytes() {
        let apart = |word: &str| Wish { apart: Some(word.into()), ..Wish::default() };
        let together = |word: &str| Wish { together: Some(word.into()), ..Wish::default() };
        assert_eq!(
            (Wish::default().check(), apart("db").check(), together("\u{6f22}").check()),
            (Ok(()), Ok(()), Ok(()))
        );
        for word in ["", "a\nb", "\u{1b}[31m", &"x".repeat(MAX_WORD + 1)] {
            assert!(apart(word).check().is_err() && together(word).check().is_err(), "{word}");
        }
        let nodes = |all: Vec<String>| Wish { nodes: Some(all), ..Wish::default() };
        assert_eq!(nodes(vec!["n1".into(); MAX_NODES.0]).check(), Ok(()));
        assert!(nodes(vec!["n1".into(); MAX_NODES.0 + 1]).check().is_err());
        assert!(nodes(vec!["n".repeat(64)]).check().is_err());
    }
}
