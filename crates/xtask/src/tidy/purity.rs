//! Pure crates know no socket, clock, thread or runtime; unsafe code lives in few places.

use super::{File, Offence};

const PURE: [&str; 2] = ["calls", "model"];
/// What a pure crate may depend on.
const PURE_DEPENDENCIES: [&str; 3] = ["libc", "serde", "thiserror"];
const IMPURE: [&str; 7] = [
    "std::net",
    "std::os::unix::net",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::thread",
    "std::process",
    "std::fs",
];
/// The crate that is made of safe faces of unsafe things.
const UNSAFE_CRATE: &str = "kernel";

pub fn check(file: &File, found: &mut Vec<Offence>) {
    let Some(krate) = file.krate() else { return };
    let pure = PURE.contains(&krate);
    if pure && file.path == format!("crates/{krate}/Cargo.toml") {
        for name in dependencies(&file.text).filter(|name| !PURE_DEPENDENCIES.contains(name)) {
            let what = format!("a pure crate may not depend on {name}");
            found.push(Offence::new("pure", &file.path, what));
        }
    }
    if !file.is_rust() {
        return;
    }
    let in_source = file.path.starts_with(&format!("crates/{krate}/src/"));
    for (number, line) in code_lines(&file.text) {
        for word in IMPURE.iter().filter(|_| pure && in_source) {
            if line.contains(word) {
                let what = format!("line {number}: a pure crate may not use {word}");
                found.push(Offence::new("pure", &file.path, what));
            }
        }
    }
    let mut unsafe_lines = code_lines(&file.text).filter(|(_, line)| is_unsafe(line));
    if krate != UNSAFE_CRATE
        && let Some((number, _)) = unsafe_lines.next()
    {
        let what = format!("line {number}: unsafe code belongs in crates/{UNSAFE_CRATE}");
        found.push(Offence::new("unsafe", &file.path, what));
    }
}

/// Names in the `[dependencies]` section.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|l| *l != "[dependencies]").skip(1);
    let lines = lines.take_while(|l| !l.starts_with('[')).filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.split(['=', '.', ' ']).next()).filter(|name| !name.is_empty())
}

/// Lines without their comments, numbered from 1.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
    code.enumerate().map(|(at, line)| (at + 1, line))
}

/// Does unsafe code begin in this line? (A block may have its brace in the next one.)
fn is_unsafe(line: &str) -> bool {
    let begins = |rest: &str| {
        let rest = rest.trim_start();
        rest.is_empty() || ["{", "fn ", "impl", "extern", "trait"].iter().any(|w| rest.starts_with(w))
    };
    let words = line.match_indices("unsafe");
    let mut alone =
        words.filter(|(at, _)| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"'));
    alone.any(|(at, word)| begins(&line[at + word.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        check(&File { path: path.into(), text: text.into() }, &mut found);
        found.iter().map(|o| o.rule).collect()
    }

    #[test]
    fn pure_crates_are_held_to_it() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nlibc.workspace = true\ntokio = \"1\"\n\n[lints]\n";
        assert_eq!(rules("crates/calls/Cargo.toml", manifest), ["pure"]);
        assert_eq!(rules("crates/node/Cargo.toml", manifest), [""; 0]);
        let code = "use std::time::Instant;\n";
        assert_eq!(rules("crates/model/src/x.rs", code), ["pure"]);
        assert_eq!(rules("crates/model/src/x.rs", "// std::time::Instant\n"), [""; 0]);
        assert_eq!(rules("crates/node/src/x.rs", code), [""; 0]);
    }

    #[test]
    fn unsafe_code_is_found() {
        let code = concat!("let x = ", "unsafe", " { f() };\n");
        assert_eq!(rules("crates/node/src/x.rs", code), ["unsafe"]);
        assert_eq!(rules("crates/kernel/src/x.rs", code), [""; 0]);
        assert_eq!(rules("crates/node/src/x.rs", "#![deny(unsafe_op_in_unsafe_fn)]\n"), [""; 0]);
    }
}
