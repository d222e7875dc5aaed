//! What a node has besides CPUs and memory, as its administrator says.

use pando_queue::gres::{Gres, MOST_KINDS, SCRATCH};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Most words in `features`.
pub const MOST_FEATURES: usize = 64;
/// Longest of them, and longest name of a kind, bytes.
pub const LONGEST_WORD: usize = 64;
/// Most of a kind.
const MOST_OF_A_KIND: u32 = 4096;

/// `[node]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct About {
    /// Words that `--constraint` asks for.
    pub features: Vec<String>,
    /// Where jobs have scratch directories; none: they have none.
    pub scratch: Option<PathBuf>,
    /// Megabytes of it that jobs may be promised all together; none: what is free there when the daemon begins.
    pub scratch_mb: Option<u32>,
    /// How many it has of each kind that `--gres` asks for: `gpu`, or `gpu:a100`.
    pub resources: BTreeMap<String, u32>,
}

impl About {
    /// As the queue has it.
    pub fn gres(&self) -> Vec<Gres> {
        self.resources.iter().map(|(kind, count)| Gres { kind: kind.clone(), count: *count }).collect()
    }

    /// The first value that can't work.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.features.len() > MOST_FEATURES {
            return Err(format!("[node] features has more than {MOST_FEATURES} words: leave some out"));
        }
        if let Some(word) = self.features.iter().find(|word| !is_word(word, "")) {
            return Err(format!("[node] features has {word:?}: write a word of letters, digits, - _ and ."));
        }
        if self.scratch.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            return Err("[node] scratch is not a whole path: it begins with /".into());
        }
        if self.scratch.is_none() && self.scratch_mb.is_some() {
            return Err("[node] scratch_mb is of nothing: say [node] scratch = \"DIR\", too".into());
        }
        if self.resources.contains_key(SCRATCH) {
            return Err(format!("[node.resources] {SCRATCH}: say [node] scratch = \"DIR\" in its place"));
        }
        if self.resources.len() + usize::from(self.scratch.is_some()) > MOST_KINDS {
            return Err(format!("[node.resources] has more than {MOST_KINDS} kinds: leave some out"));
        }
        for (kind, count) in &self.resources {
            if !is_word(kind, ":") {
                return Err(format!(
                    "[node.resources] has {kind:?}: write a kind as --gres has it, gpu or \"gpu:a100\""
                ));
            }
            if !(1..=MOST_OF_A_KIND).contains(count) {
                return Err(format!("[node.resources] {kind} = {count}: write a number from 1 to {MOST_OF_A_KIND}"));
            }
        }
        Ok(())
    }
}

/// No commas and blanks: these are lists in directives.
fn is_word(text: &str, more: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c) || more.contains(c);
    (1..=LONGEST_WORD).contains(&text.len()) && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let about = |text: &str| toml::from_str::<About>(text).unwrap();
        let good = about("features = [\"ib\", \"big-1\"]\n[resources]\ngpu = 2\n\"gpu:a100\" = 1\n");
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.gres()[1], Gres { kind: "gpu:a100".into(), count: 1 });
        for (text, named) in [
            ("features = [\"a b\"]", "a b"),
            ("features = [\"\"]", "\"\""),
            ("[resources]\ngpu = 0", "gpu = 0"),
            ("[resources]\nscratch = 9", "scratch = \"DIR\""),
            ("scratch = \"here\"", "whole path"),
            ("scratch_mb = 7", "scratch_mb"),
            ("[resources]\n\"a,b\" = 1", "a,b"),
        ] {
            assert!(about(text).check().unwrap_err().contains(named), "{text}");
        }
    }
}
