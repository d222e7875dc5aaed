//! Names that say something: no `utils`, a first line for every crate, a number for every decision.

use super::{File, Offence};
use std::collections::BTreeMap;

const EMPTY_NAMES: [&str; 5] = ["utils", "util", "common", "helpers", "misc"];

pub fn check(file: &File, found: &mut Vec<Offence>) {
    if file.path.starts_with("crates/") {
        let parts = file.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
        for part in parts.filter(|part| EMPTY_NAMES.contains(part)) {
            let what = format!("`{part}` says nothing: name it after what it does");
            found.push(Offence::new("empty-name", &file.path, what));
        }
    }
    if let Some(name) = file.path.strip_prefix("docs/decisions/") {
        let number = name.get(..4).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        if number.is_none() || name.get(4..5) != Some("-") || !name.ends_with(".md") {
            found.push(Offence::new("decision-name", &file.path, "is to be called NNNN-title.md"));
        }
    }
}

/// Rules that look at all files together.
pub fn check_crates(files: &[File], found: &mut Vec<Offence>) {
    let mut decisions: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files {
        if let Some(name) = file.path.strip_prefix("docs/decisions/")
            && let Some(number) = name.get(..4)
            && let Some(other) = decisions.insert(number, &file.path)
        {
            let what = format!("has the number of {other}");
            found.push(Offence::new("decision-name", &file.path, what));
        }
        let root = ["src/lib.rs", "src/main.rs"].iter().any(|end| {
            let krate = file.krate().map(|krate| format!("crates/{krate}/{end}"));
            krate.as_deref() == Some(&file.path)
        });
        if root && !file.text.starts_with("//! ") {
            found.push(Offence::new("crate-doc", &file.path, "begins without a //! line"));
        }
        let manifest = file.krate().is_some() && file.path.ends_with("/Cargo.toml");
        if manifest && file.path.matches('/').count() == 2 && !file.text.contains("\ndescription = \"") {
            found.push(Offence::new("crate-doc", &file.path, "has no description"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Vec<&'static str> {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        let mut found = Vec::new();
        for file in &files {
            check(file, &mut found);
        }
        check_crates(&files, &mut found);
        found.iter().map(|o| o.rule).collect()
    }

    #[test]
    fn names_are_checked() {
        assert_eq!(rules(&[("crates/x/src/utils.rs", "")]), ["empty-name"]);
        assert_eq!(rules(&[("crates/x/src/common/page.rs", "")]), ["empty-name"]);
        assert_eq!(rules(&[("crates/x/src/commonly.rs", "")]), [""; 0]);
        assert_eq!(rules(&[("docs/decisions/1-baton.md", "")]), ["decision-name"]);
        let twice = [("docs/decisions/0001-a.md", ""), ("docs/decisions/0001-b.md", "")];
        assert_eq!(rules(&twice), ["decision-name"]);
        assert_eq!(rules(&[("crates/x/src/lib.rs", "use a;")]), ["crate-doc"]);
        assert_eq!(rules(&[("crates/x/Cargo.toml", "[package]\n")]), ["crate-doc"]);
        assert_eq!(rules(&[("crates/x/src/lib.rs", "//! Doc.\n")]), [""; 0]);
    }
}
