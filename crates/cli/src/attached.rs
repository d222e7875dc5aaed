//! `-n4` as `-n 4`: where a command's last words may begin with a hyphen, clap takes an option with its value attached for one of them.

use crate::args::Args;
use clap::{Arg, CommandFactory};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Under the name of mpiexec(1) it is `pando run`, with the words that MPI's users have in their fingers.
pub fn as_called(words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|w| Path::new(w).file_name()).and_then(|n| n.to_str());
    if !matches!(name, Some("mpiexec" | "mpirun")) {
        return words;
    }
    let mut out: Vec<OsString> = vec!["pando".into(), "run".into()];
    let mut rest = words.into_iter().skip(1).peekable();
    let mut says_how_many = false;
    while let Some(word) = rest.next_if(|w| w.as_bytes().starts_with(b"-")) {
        let (ours, takes) = match word.to_str() {
            Some("-n" | "-np" | "--np") => ("-n", true),
            Some("-ppn" | "-perhost" | "-N" | "--map-by-node") => ("--ppn", true),
            Some("-host" | "-hosts" | "--host") => ("-w", true),
            Some("-l" | "-prepend-rank" | "--tag-output") => ("-l", false),
            Some("-wdir" | "--wdir" | "-wd") => ("-D", true),
            _ => {
                // Ours, or an error that says so.
                out.push(word);
                continue;
            }
        };
        says_how_many |= ours == "-n";
        out.push(ours.into());
        if takes {
            out.extend(rest.next());
        }
    }
    if !says_how_many {
        out.splice(2..2, ["-n".into(), "1".into()]);
    }
    out.extend(rest);
    out
}

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
        if bytes == b"-np" {
            // As mpiexec has it.
            out.push("-n".into());
            out.extend(rest.next());
            continue;
        }
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
    fn mpiexec_is_another_name() {
        let called = |text: &str| {
            let words = as_called(text.split(' ').map(OsString::from).collect());
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(called("/usr/bin/mpiexec -np 4 -ppn 2 ./a -n 3"), "pando run -n 4 --ppn 2 ./a -n 3");
        assert_eq!(called("mpirun -hosts n1,n2 -l -wdir /tmp x"), "pando run -n 1 -w n1,n2 -l -D /tmp x");
        assert_eq!(called("pando run -n 4 x"), "pando run -n 4 x");
        assert_eq!(called("mpiexec -n 2 -N 1 x"), "pando run -n 2 --ppn 1 x");
    }

    #[test]
    fn only_what_comes_before_the_program_is_taken_apart() {
        let detached = |text: &str| {
            let words = detach(text.split(' ').map(OsString::from).collect());
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(detached("pando run -N4 -n8 prog -n3"), "pando run -N 4 -n 8 prog -n3");
        assert_eq!(detached("pando run -n 4 -wn1,n2 x"), "pando run -n 4 -w n1,n2 x");
        assert_eq!(detached("pando run -np 4 x -np 2"), "pando run -n 4 x -np 2");
        assert_eq!(detached("pando run --node n3 -l prog -N2"), "pando run --node n3 -l prog -N2");
        assert_eq!(detached("pando run --ppn 3 -n=2 -- -n5"), "pando run --ppn 3 -n 2 -- -n5");
        assert_eq!(detached("pando run -K -n2 x"), "pando run -K -n 2 x");
        assert_eq!(detached("pando run -K0 -n2 x -K0"), "pando run -K=0 -n 2 x -K0");
        assert_eq!(detached("pando ps -n4"), "pando ps -n4");
    }
}
