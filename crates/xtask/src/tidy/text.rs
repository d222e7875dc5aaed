//! What must not be in any file: paths of the machine it was written on.

use super::{File, Offence};

/// Written in two parts, so that this file does not offend.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/tmp/tar", "get-")];

pub fn check(file: &File, found: &mut Vec<Offence>) {
    for (at, line) in file.text.lines().enumerate() {
        if MACHINE_PATHS.iter().any(|path| starts_in(line, path)) {
            let what = format!("line {}: a path of one machine", at + 1);
            found.push(Offence::new("machine-path", &file.path, what));
        }
    }
}

/// Does `path` begin in this line, rather than go on from another path?
fn starts_in(line: &str, path: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "._-}*".contains(c);
    let before = |at: usize| line[..at].chars().next_back();
    line.match_indices(path).any(|(at, _)| !before(at).is_some_and(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found() {
        let path = MACHINE_PATHS[0];
        assert!(starts_in(&format!("cd {path}main"), path));
        assert!(starts_in(path, path));
        assert!(!starts_in(&format!("a/net{path}"), path));
    }
}
