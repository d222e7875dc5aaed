//! `-n4` as `-n 4`: where a command's last words may begin with a hyphen, clap takes an option with its value attached for one of them.

use crate::args::Args;
use clap::{Arg, CommandFactory};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The words of a `pando run` or `pando map`, with values that are attached to short options as words of their own; others as they are.
pub fn detach(words: Vec<OsString>) -> Vec<OsString> {
    let command = Args::command();
    let verb = words.get(1).and_then(|w| w.to_str()).filter(|w| ["run", "map"].contains(w));
    let Some(run) = verb.and_then(|verb| command.find_subcommand(verb)) else {
        return words;
    };
    let takes = |arg: &&Arg| arg.get_action().takes_values() && !arg.is_positional();
    let valued: Vec<&Arg> = run.get_arguments().filter(takes).collect();
    let must = |arg: &Arg| arg.get_num_args().is_none_or(|n| n.min_values() > 0);
    let (mut out, mut rest) = (Vec::new(), words.into_iter());
    out.extend(rest.by_ref().take(2));
    while let Some(word) = rest.next() {
        let bytes = word.as_bytes();
        let (mut takes_next, mut value) = (false, None);
        let option = match bytes {
            [b'-', b'-', name @ ..] if !name.is_empty() => {
                let long = |a: &&&Arg| {
                    a.get_long_and_visible_aliases().is_some_and(|all| all.iter().any(|l| l.as_bytes() == name))
                };
                takes_next = valued.iter().find(long).is_some_and(|a| must(a));
                true
            }
            [b'-', short, attached @ ..] if *short != b'-' => {
                if let Some(arg) = valued.iter().find(|a| a.get_short() == Some(char::from(*short))) {
                    takes_next = attached.is_empty() && must(arg);
                    let after = attached.strip_prefix(b"=").unwrap_or(attached);
                    value = (!attached.is_empty() && must(arg)).then(|| (*short, after.to_vec()));
                    // A value that may be missing is never another word.
                    if !must(arg) && !attached.is_empty() {
                        out.push(OsString::from_vec([b"-", &[*short], b"=", after].concat()));
                        continue;
                    }
                }
                true
            }
            _ => false,
        };
        match value {
            Some((short, value)) => {
                out.push(OsString::from_vec(vec![b'-', short]));
                out.push(OsString::from_vec(value));
            }
            None => out.push(word),
        }
        if takes_next {
            out.extend(rest.next());
        }
        if !option {
            // From here on it is the program's.
            out.extend(rest.by_ref());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_before_the_program_is_taken_apart() {
        let detached = |text: &str| {
            let words = detach(text.split(' ').map(OsString::from).collect());
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(detached("pando run -N4 -n8 prog -n3"), "pando run -N 4 -n 8 prog -n3");
        assert_eq!(detached("pando run -n 4 -wn1,n2 x"), "pando run -n 4 -w n1,n2 x");
        assert_eq!(detached("pando run --node n3 -l prog -N2"), "pando run --node n3 -l prog -N2");
        assert_eq!(detached("pando run --ppn 3 -n=2 -- -n5"), "pando run --ppn 3 -n 2 -- -n5");
        assert_eq!(detached("pando run -K -n2 x"), "pando run -K -n 2 x");
        assert_eq!(detached("pando run -K0 -n2 x -K0"), "pando run -K=0 -n 2 x -K0");
        assert_eq!(detached("pando ps -n4"), "pando ps -n4");
    }
}
