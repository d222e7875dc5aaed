//! Files with a node in each line, as mpiexec(1) reads them: `n1`, `n1:4` (MPICH's), `n1 slots=4` (Open MPI's); `#` begins a comment.

use pando_wire::NodeName;
use std::path::Path;

/// Longest file, bytes; and most ranks of a node.
const LONGEST: u64 = 4 << 20;
const MOST: u32 = 1 << 20;

/// Reads one. The error is for people.
pub fn read(file: &Path) -> Result<Vec<(String, u32)>, String> {
    let about = |e: &dyn std::fmt::Display| format!("--hostfile {}: {e}", file.display());
    let length = std::fs::metadata(file).map_err(|e| about(&e))?.len();
    if length > LONGEST {
        return Err(about(&"it is too long for a list of nodes"));
    }
    parse(&std::fs::read_to_string(file).map_err(|e| about(&e))?).map_err(|e| about(&e))
}

/// Nodes, and how many ranks each takes; a node that comes again takes as many more.
fn parse(text: &str) -> Result<Vec<(String, u32)>, String> {
    let mut all: Vec<(String, u32)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        let wrong = |what: &str| format!("line {number}: {what}: write `n1`, `n1:4` or `n1 slots=4`");
        let (name, mut slots) = host(first).map_err(|why| wrong(&why))?;
        for word in words {
            match word.split_once('=') {
                Some(("slots", count)) => slots = count_of(count).ok_or_else(|| wrong("slots is a number from 1"))?,
                Some(("max_slots" | "max-slots", _)) => {}
                _ => return Err(wrong(&format!("`{word}` is not understood"))),
            }
        }
        add(&mut all, name, slots);
    }
    if all.is_empty() { Err("it names no node".into()) } else { Ok(all) }
}

/// `n1:4,n2,n1`.
pub fn list(text: &str) -> Result<Vec<(String, u32)>, String> {
    let mut all = Vec::new();
    for word in text.split(',').filter(|w| !w.is_empty()) {
        let (name, slots) = host(word)?;
        add(&mut all, name, slots);
    }
    if all.is_empty() { Err("it names no node".into()) } else { Ok(all) }
}

fn count_of(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| (1..=MOST).contains(count))
}

/// `n1` or `n1:4`.
fn host(word: &str) -> Result<(String, u32), String> {
    let (name, slots) = match word.split_once(':') {
        Some((name, count)) => (name, count_of(count).ok_or(format!("`{count}` is no number of ranks"))?),
        None => (word, 1),
    };
    NodeName::parse(name).map_err(|e| e.to_string())?;
    Ok((name.to_owned(), slots))
}

fn add(all: &mut Vec<(String, u32)>, name: String, slots: u32) {
    match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, sum)) => *sum = sum.saturating_add(slots).min(MOST),
        None => all.push((name, slots)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn both_ways_to_write_it_are_read() {
        let all = |text: &str| parse(text).unwrap();
        let n = |name: &str, slots| (name.to_owned(), slots);
        assert_eq!(all("n2\n# n9\n\nn1:4\r\nn3 slots=2 max_slots=8 # here\n"), [n("n2", 1), n("n1", 4), n("n3", 2)]);
        assert_eq!(all("n1\nn2\nn1\n"), [n("n1", 2), n("n2", 1)]);
        for text in ["", "#", "n1:0", "n1:x", "n1 slots=", "n1 fast", "a/b", "n1:9999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(list("n1:2,n2,n1,").unwrap(), [n("n1", 3), n("n2", 1)]);
        assert!(list("").is_err() && list("n1:").is_err());
        assert!(parse("n1\nn2 slots=x").unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn no_file_makes_it_panic() {
        check!().with_type::<String>().for_each(|text| _ = (parse(text), list(text)));
    }
}
