//! Whether a run gave what the reference gave.

use crate::command::Task;
use crate::program::Ends;
use crate::run::Outcome;

/// Longest excerpt of a line in a report.
const EXCERPT: usize = 160;

/// What is wrong with a reference run by itself.
pub fn reference(task: &Task, outcome: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    let want = match task.ends {
        Ends::Exit(code) => format!("exit {code}"),
        Ends::Signal(signal) => format!("signal {signal}"),
    };
    if outcome.ended != want {
        wrong.push(format!("ended with {}, not {want}", outcome.ended));
    }
    for stream in [&outcome.stdout, &outcome.stderr] {
        for line in String::from_utf8_lossy(stream).lines().filter(|l| l.starts_with("FAIL ")) {
            wrong.push(shorten(line));
        }
    }
    wrong
}

/// How a run differs from the reference; nothing when it is the same.
pub fn differences(reference: &Outcome, outcome: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    if reference.ended != outcome.ended {
        found.push(format!("ended with {}, not {}", outcome.ended, reference.ended));
    }
    found.extend(stream("stdout", &reference.stdout, &outcome.stdout));
    found.extend(stream("stderr", &reference.stderr, &outcome.stderr));
    for (name, contents) in &reference.files {
        match outcome.files.get(name) {
            None => found.push(format!("file {name} is missing")),
            Some(other) => found.extend(stream(&format!("file {name}"), contents, other)),
        }
    }
    for name in outcome.files.keys().filter(|n| !reference.files.contains_key(*n)) {
        found.push(format!("file {name} is new"));
    }
    for process in &outcome.left {
        found.push(format!("left behind: {process}"));
    }
    found
}

/// The first line that differs.
fn stream(name: &str, want: &[u8], got: &[u8]) -> Option<String> {
    if want == got {
        return None;
    }
    let (want, got) = (String::from_utf8_lossy(want), String::from_utf8_lossy(got));
    let (mut wanted, mut gotten) = (want.lines(), got.lines());
    for number in 1.. {
        match (wanted.next(), gotten.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let show = |line: Option<&str>| line.map_or("nothing".into(), |l| format!("`{}`", shorten(l)));
                return Some(format!("{name}, line {number}: {} instead of {}", show(b), show(a)));
            }
        }
    }
    Some(format!("{name}: {} bytes instead of {}", got.len(), want.len()))
}

fn shorten(line: &str) -> String {
    let line = &line.replace(|c: char| c.is_control() || c == '\u{fffd}', ".");
    match line.char_indices().nth(EXCERPT) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told() {
        let of = |text: &str| Outcome { ended: "exit 0".into(), stdout: text.into(), ..Outcome::default() };
        assert!(differences(&of("a\nb\n"), &of("a\nb\n")).is_empty());
        let found = differences(&of("a\nb\nc\n"), &of("a\nx\nc\n"));
        assert_eq!(found, ["stdout, line 2: `x` instead of `b`"]);
        let found = differences(&of("a\nb\n"), &of("a\n"));
        assert_eq!(found, ["stdout, line 2: nothing instead of `b`"]);
        assert_eq!(differences(&of("a\n"), &of("a")), ["stdout: 1 bytes instead of 2"]);
    }
}
