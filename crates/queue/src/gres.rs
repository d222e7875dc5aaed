//! Generic resources: `gpu:2`, `gpu:a100:1`, `licence:3`.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Most kinds that one job may ask for or one node may have.
pub const MOST_KINDS: usize = 8;

/// The kind that is room in scratch directories, in megabytes (`--scratch`).
pub const SCRATCH: &str = "scratch";
/// The feature of nodes whose kernel holds it to what was asked for.
pub const SCRATCH_HELD: &str = "scratch-quota";

/// So many of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gres {
    /// The kind, with its type if there is one: `gpu`, `gpu:a100`. Who asks for `gpu` gets no `gpu:a100`: a node says what it has in the words
    /// that its users are to use.
    pub kind: String,
    /// How many.
    pub count: u32,
}

/// Reads a list: `gpu:2,fpga`. A kind that comes twice is added up.
pub fn read(text: &str) -> Result<Vec<Gres>, String> {
    let wrong =
        |why: &str| format!("`{text}` is not a list of generic resources ({why}): say gpu:2 or gpu:a100:1,fpga");
    let mut all: Vec<Gres> = Vec::new();
    for part in text.trim().split(',') {
        let part = part.strip_prefix("gres:").or(part.strip_prefix("gres/")).unwrap_or(part);
        let (kind, count) = match part.rsplit_once([':', '=']) {
            // `gpu:a100` is a type of which one is wanted.
            Some((_, word)) if word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => (part, 1),
            Some((kind, count)) if count.bytes().all(|b| b.is_ascii_digit()) => {
                (kind, count.parse::<u32>().map_err(|_| wrong("a count is no number"))?)
            }
            Some(_) => return Err(wrong("a count is no number")),
            None => (part, 1),
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        // A word that begins with a sign was meant to be a number.
        let is_word =
            |word: &str| word.chars().all(fits) && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if kind.len() > 64 || !kind.split(':').all(is_word) {
            return Err(wrong("a name has letters, digits, _ - . and :, and none of its words begins with - or ."));
        }
        match all.iter_mut().find(|g| g.kind == kind) {
            Some(gres) => gres.count = gres.count.saturating_add(count),
            None => all.push(Gres { kind: kind.to_owned(), count }),
        }
        if all.len() > MOST_KINDS {
            return Err(wrong(&format!("{MOST_KINDS} kinds at most")));
        }
    }
    all.retain(|g| g.count > 0);
    all.sort();
    Ok(all)
}

impl Display for Gres {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn as_slurm_writes_them() {
        let shown = |text: &str| read(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        assert_eq!(shown("gpu:2"), "gpu:2");
        assert_eq!(shown("gpu:a100:1,fpga,gpu:a100"), "fpga:1,gpu:a100:2");
        assert_eq!(shown("gpu:0"), "");
        for wrong in [
            "",
            ":2",
            "gpu:99999999999",
            "gpu:-1",
            "gpu:+1",
            "gpu:.5",
            "gpu:2x",
            "gpu:",
            "gpu::2",
            "gpu:-1:2",
            "-1",
            "gpu=a100",
            "a b",
            "a,b,c,d,e,f,g,h,i",
        ] {
            assert!(read(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        check!().with_type::<String>().for_each(|text| _ = read(text));
    }
}
