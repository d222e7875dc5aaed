//! `-n4` as `-n 4`: where a command's last words may begin with a hyphen, clap takes an option with its value attached for one of them.

use crate::args::Args;
use crate::slurm;
use clap::{Arg, CommandFactory};
use pando_queue::options::{OPTIONS, Takes};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What mpiexec and srun say otherwise: `-np 4`, `--nodes=4`. The word, if it is none of these.
fn of_others(word: OsString, rest: &mut impl Iterator<Item = OsString>, out: &mut Vec<OsString>) -> Option<OsString> {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    match word.as_bytes() {
        b"-np" => {
            out.push("-n".into());
            out.extend(rest.next());
        }
        // With names it is ours, for one program that may move.
        b"--nodes" => {
            let value = rest.next();
            let counts = value.as_ref().is_some_and(|v| is_number(v.as_bytes()));
            out.push(if counts { "-N".into() } else { word });
            out.extend(value);
        }
        bytes => {
            let Some(count) = bytes.strip_prefix(b"--nodes=").filter(|text| is_number(text)) else { return Some(word) };
            out.extend(["-N".into(), OsStr::from_bytes(count).to_owned()]);
        }
    }
    None
}

/// The same for `pando submit`, whose options are crates/queue's.
fn of_submit(words: Vec<OsString>) -> Vec<OsString> {
    let (mut out, mut rest) = (Vec::new(), words.into_iter());
    out.extend(rest.by_ref().take(2));
    while let Some(word) = rest.next() {
        let bytes = word.as_bytes();
        let known = |name: &[u8]| OPTIONS.iter().find(|o| o.0.as_bytes() == name);
        let by_letter = |letter: u8| OPTIONS.iter().find(|o| o.1 == Some(char::from(letter)));
        let mut takes_next = false;
        match bytes {
            // The script's name, and all that is its own.
            _ if !bytes.starts_with(b"-") || bytes == b"--" || bytes == b"-" => {
                out.push(word);
                break;
            }
            [b'-', b'-', name @ ..] => {
                takes_next = known(name).is_some_and(|o| o.2 == Takes::Value) || name == b"wrap";
                out.push(word);
            }
            [_, letter, attached @ ..] => match by_letter(*letter).map(|o| o.2) {
                Some(Takes::Value) if !attached.is_empty() => {
                    let value = attached.strip_prefix(b"=").unwrap_or(attached);
                    out.extend([OsString::from_vec(vec![b'-', *letter]), OsStr::from_bytes(value).to_owned()]);
                }
                takes => {
                    takes_next = takes == Some(Takes::Value);
                    out.push(word);
                }
            },
            _ => out.push(word),
        }
        if takes_next {
            out.extend(rest.next());
        }
    }
    out.extend(rest);
    out
}

fn has(arg: &Arg, short: u8) -> bool {
    arg.get_short_and_visible_aliases().is_some_and(|all| all.contains(&char::from(short)))
}

/// Is its value a must?
fn must(arg: &Arg) -> bool {
    arg.get_num_args().is_none_or(|n| n.min_values() > 0)
}

fn is_called(arg: &Arg, name: &[u8]) -> bool {
    arg.get_long_and_visible_aliases().is_some_and(|all| all.iter().any(|l| l.as_bytes() == name))
}

/// The words of a `pando run` or `pando map`, with values that are attached to short options as words of their own; others as they are.
pub fn detach(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let command = Args::command();
    if words.get(1).is_some_and(|w| w == "submit" || w == "alloc") {
        return Ok(of_submit(words));
    }
    let verb = words.get(1).and_then(|w| w.to_str()).filter(|w| ["run", "map"].contains(w));
    let Some(run) = verb.and_then(|verb| command.find_subcommand(verb)) else {
        return Ok(words);
    };
    let is_run = verb == Some("run");
    let takes = |arg: &&Arg| arg.get_action().takes_values() && !arg.is_positional();
    let valued: Vec<&Arg> = run.get_arguments().filter(takes).collect();
    // So srun begins.
    let is_srun = words.get(2).is_some_and(|w| w == "--as-job");
    let (mut out, mut rest) = (Vec::new(), words.into_iter());
    out.extend(rest.by_ref().take(2));
    let mut says_slurms = false;
    while let Some(word) = rest.next() {
        // What is ours by this letter srun does not have.
        if is_srun && word.as_bytes().starts_with(b"-d") {
            slurm::take(&"--dependency".into(), &mut rest)?;
        }
        if is_run && slurm::take(&word, &mut rest)? {
            says_slurms = true;
            continue;
        }
        let Some(word) = of_others(word, &mut rest, &mut out) else { continue };
        let bytes = word.as_bytes();
        let (mut takes_next, mut value) = (false, None);
        let option = match bytes {
            [b'-', b'-', name @ ..] if !name.is_empty() => {
                takes_next = valued.iter().find(|a| is_called(a, name)).is_some_and(|a| must(a));
                true
            }
            [b'-', short, attached @ ..] if *short != b'-' => {
                if let Some(arg) = valued.iter().find(|a| has(a, *short)) {
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
    if says_slurms && !is_srun {
        // Who says it wants a job.
        out.insert(2, "--as-job".into());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_before_the_program_is_taken_apart() {
        let detached = |text: &str| {
            let words = detach(text.split(' ').map(OsString::from).collect()).unwrap();
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
        assert_eq!(detached("pando run -A me -n2 -Q x -A me"), "pando run --as-job -n 2 x -A me");
        assert_eq!(detached("pando map -A me"), "pando map -A me");
        assert_eq!(detached("pando map -j2 -P3 x -j4"), "pando map -j 2 -P 3 x -j4");
        assert_eq!(detached("pando run --nodes=2 --nodes n1 x"), "pando run -N 2 --nodes n1 x");
        assert_eq!(detached("pando run --nodes 2 x --nodes 2"), "pando run -N 2 x --nodes 2");
        let quiet = "pando run --as-job -n 1 -v -I --immediate -Q -X -s --overlap -A x hostname -v";
        assert_eq!(detached(quiet), "pando run --as-job -n 1 hostname -v");
        let refused = |text: &str| detach(text.split(' ').map(OsString::from).collect()).unwrap_err();
        assert!(refused("pando run --as-job -n 1 -d afterok:1 hostname").starts_with("`--dependency` is Slurm's"));
        assert!(refused("pando run --as-job -n 1 -dafterok:1 hostname").contains("sbatch"));
        assert_eq!(detached("pando run -d x"), "pando run -d x");
        let refused = detach(["pando", "run", "--mem-per-cpu=2G", "x"].map(OsString::from).to_vec()).unwrap_err();
        assert!(refused.starts_with("`--mem-per-cpu` is Slurm's"), "{refused}");
    }
}
