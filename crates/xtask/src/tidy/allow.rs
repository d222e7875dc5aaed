//! The list of exceptions: `RULE PLACE REASON`, one a line; a place that ends in `/` is a folder.

use super::{ALLOW_LIST, Offence};

struct Exception<'a> {
    line: &'a str,
    rule: &'a str,
    place: &'a str,
    used: bool,
}

impl Exception<'_> {
    fn covers(&self, offence: &Offence) -> bool {
        let inside = self.place.ends_with('/') && offence.place.starts_with(self.place);
        self.rule == offence.rule && (inside || self.place == offence.place)
    }
}

/// Takes the listed offences away, and adds one for each entry that is not needed or has no reason.
pub fn filter(list: &str, offences: Vec<Offence>) -> Vec<Offence> {
    let mut left = Vec::new();
    let mut exceptions = Vec::new();
    for line in list.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some(rule), Some(place), Some(_reason)) => {
                exceptions.push(Exception { line, rule, place, used: false });
            }
            _ => left.push(Offence::new("allow-list", ALLOW_LIST, format!("no reason: {line}"))),
        }
    }
    for offence in offences {
        match exceptions.iter_mut().find(|e| e.covers(&offence)) {
            Some(exception) => exception.used = true,
            None => left.push(offence),
        }
    }
    for exception in exceptions.iter().filter(|e| !e.used) {
        left.push(Offence::new("allow-list", ALLOW_LIST, format!("not needed: {}", exception.line)));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_need_a_reason_and_a_use() {
        let offence = |place: &str| Offence::new("unsafe", place, "line 1");
        let list = "# comment\nunsafe a.rs it must\nunsafe b.rs\nunsafe c.rs once it had to\nunsafe e/ all\n";
        let left = filter(list, vec![offence("a.rs"), offence("d.rs"), offence("e/f.rs")]);
        let whats: Vec<_> = left.iter().map(|o| o.what.as_str()).collect();
        assert_eq!(whats, ["no reason: unsafe b.rs", "line 1", "not needed: unsafe c.rs once it had to"]);
    }
}
