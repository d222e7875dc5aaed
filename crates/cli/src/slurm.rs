//! Words of srun(1) that Pando does not have. Those that change nothing where there is no queue and nobody counts hours are taken, so that a script
//! runs as it is; those that would be broken silently are refused, with a sentence.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Does a word take a value?
#[derive(Clone, Copy, PartialEq)]
enum Value {
    No,
    Yes,
    /// Only with `=`.
    Maybe,
}
use Value::{Maybe, No, Yes};

type Word = (&'static str, Value, Option<&'static str>);

const QUEUE: Option<&str> = Some("it begins at once, and waits in no queue: `sbatch` and `salloc` do");
const GPUS: Option<&str> = Some("a step has its job's: say --gres to `sbatch` or `salloc`");
const MEMORY: Option<&str> = Some("--mem says what its ranks may have of each node");
const FEATURES: Option<&str> = Some("nodes have no partitions or features here; -w and -x name nodes");
const KEPT: Option<&str> = Some("a job whose node is lost ends, and is not begun anew");
const ONE_KIND: Option<&str> = Some("a job has one kind of nodes here; -w names those of a step");
const MAIL: Option<&str> = Some("Pando sends no mail");

/// No reason: it changes nothing.
const WORDS: [Word; 91] = [
    ("-A", Yes, None),
    ("--account", Yes, None),
    ("--wckey", Yes, None),
    ("--comment", Yes, None),
    ("--priority", Yes, None),
    ("-s", No, None),
    ("-Q", No, None),
    ("--quiet", No, None),
    ("-v", No, None),
    ("--verbose", No, None),
    ("-X", No, None),
    ("--disable-status", No, None),
    ("-T", Yes, None),
    ("--threads", Yes, None),
    ("-I", No, None),
    ("--immediate", Maybe, None),
    ("--no-requeue", No, None),
    ("--cpu-bind", Yes, None),
    ("--mem-bind", Yes, None),
    ("--hint", Yes, None),
    ("--switches", Yes, None),
    ("--contiguous", No, None),
    ("--network", Yes, None),
    ("--profile", Yes, None),
    ("--acctg-freq", Yes, None),
    ("--mem-per-cpu", Yes, MEMORY),
    ("--mem-per-gpu", Yes, MEMORY),
    ("--tmp", Yes, Some("nodes do not say how much room their disks have; -w names nodes")),
    ("--mincpus", Yes, Some("-c says how many CPUs a rank has")),
    ("--threads-per-core", Yes, Some("-c counts CPUs as the kernel does")),
    ("-p", Yes, FEATURES),
    ("--partition", Yes, FEATURES),
    ("-C", Yes, FEATURES),
    ("--constraint", Yes, FEATURES),
    ("--prefer", Yes, FEATURES),
    ("-M", Yes, FEATURES),
    ("--clusters", Yes, FEATURES),
    ("-G", Yes, GPUS),
    ("--gpus", Yes, GPUS),
    ("--gres", Yes, GPUS),
    ("--gpus-per-node", Yes, GPUS),
    ("--gpus-per-task", Yes, GPUS),
    ("--cpus-per-gpu", Yes, GPUS),
    ("--gpu-bind", Yes, GPUS),
    ("-a", Yes, Some("there are no arrays; `seq 10 | pando map -- CMD` runs a command for each number")),
    ("--array", Yes, Some("there are no arrays; `seq 10 | pando map -- CMD` runs a command for each number")),
    ("--dependency", Yes, QUEUE),
    ("--begin", Yes, QUEUE),
    ("--deadline", Yes, QUEUE),
    ("--time-min", Yes, QUEUE),
    ("--reservation", Yes, QUEUE),
    ("-L", Yes, QUEUE),
    ("--licenses", Yes, QUEUE),
    ("--nice", Maybe, QUEUE),
    ("--requeue", No, KEPT),
    ("-k", No, KEPT),
    ("--no-kill", Maybe, KEPT),
    ("--overlap", No, None),
    ("--exact", No, None),
    ("--cpu-freq", Yes, None),
    ("--spread-job", No, None),
    ("--use-min-nodes", No, None),
    ("--propagate", Maybe, None),
    ("--send-libs", Maybe, None),
    ("--compress", Maybe, None),
    ("--bcast-exclude", Yes, None),
    ("--resv-ports", Maybe, None),
    ("--msg-timeout", Yes, None),
    ("--slurmd-debug", Yes, None),
    ("--gres-flags", Yes, None),
    ("--delay-boot", Yes, None),
    ("--quit-on-interrupt", No, None),
    ("--ntasks-per-core", Yes, None),
    ("--ntasks-per-socket", Yes, None),
    ("--open-mode", Yes, Some("files of ranks begin anew")),
    ("--uid", Yes, Some("ranks run as whoever calls it")),
    ("--gid", Yes, Some("ranks run as whoever calls it")),
    ("--container", Yes, Some("ranks run without containers")),
    ("--reboot", No, Some("nodes are not booted for a job")),
    ("--no-allocate", No, Some("`pando run -n` without a queue needs no such word")),
    ("--het-group", Yes, ONE_KIND),
    ("-W", Yes, Some("-K and --grace say what one rank's end means for the others")),
    ("--wait", Yes, Some("-K and --grace say what one rank's end means for the others")),
    ("--signal", Yes, Some("--time sends SIGTERM, and SIGKILL after --grace")),
    ("-m", Yes, Some("ranks are placed in blocks; --ppn says how many a node has")),
    ("--distribution", Yes, Some("ranks are placed in blocks; --ppn says how many a node has")),
    ("--task-prolog", Yes, Some("write it into a script")),
    ("--task-epilog", Yes, Some("write it into a script")),
    ("--mail-type", Yes, MAIL),
    ("--mail-user", Yes, MAIL),
    ("-F", Yes, Some("--hostfile FILE reads nodes from a file")),
];

/// Is this one of them? It, and its value in `rest`, are taken away then. The error is for people.
pub fn take(word: &OsString, rest: &mut impl Iterator<Item = OsString>) -> Result<bool, String> {
    let bytes = word.as_bytes();
    let long = bytes.starts_with(b"--");
    // `-px` and `--mem=x` have their value with them.
    let end = match long {
        true => bytes.iter().position(|b| *b == b'=').unwrap_or(bytes.len()),
        false => bytes.len().min(2),
    };
    let attached = bytes.len() > end;
    let fits = |w: &&Word| w.0.as_bytes() == &bytes[..end] && (w.1 != No || !attached);
    let Some((name, value, why)) = WORDS.iter().find(fits) else { return Ok(false) };
    let next = if *value == Yes && !attached { rest.next() } else { None };
    let value = next.as_deref().map_or(&bytes[end..], OsStrExt::as_bytes);
    let is_as_ever = ["-m", "--distribution"].contains(name) && [b"block".as_slice(), b"=block"].contains(&value);
    match why.filter(|_| !is_as_ever) {
        Some(why) => Err(format!("`{name}` is Slurm's, and can't be heeded: {why}")),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_and_its_value_goes_with_it() {
        let names: std::collections::BTreeSet<&str> = WORDS.iter().map(|w| w.0).collect();
        assert_eq!(names.len(), WORDS.len());
        let left = |text: &str| {
            let mut rest = text.split(' ').map(OsString::from);
            let word = rest.next().unwrap();
            take(&word, &mut rest).map(|taken| (taken, rest.count()))
        };
        assert_eq!(left("-A me prog"), Ok((true, 1)));
        assert_eq!(left("-Ame prog"), Ok((true, 1)));
        assert_eq!(left("--account=me prog x"), Ok((true, 2)));
        assert_eq!(left("--immediate=3 prog"), Ok((true, 1)));
        assert_eq!(left("--immediate prog"), Ok((true, 1)));
        assert_eq!((left("-m block prog"), left("--distribution=block prog")), (Ok((true, 1)), Ok((true, 1))));
        assert!(left("-m cyclic prog").unwrap_err().contains("in blocks"));
        assert_eq!((left("-n 3"), left("--memory 3G"), left("prog")), (Ok((false, 1)), Ok((false, 1)), Ok((false, 0))));
        for text in ["--mem-per-cpu=4G x", "--mem-per-cpu 4G x", "-p debug x", "-pdebug x", "--gres=gpu:1 x"] {
            assert!(left(text).unwrap_err().contains("can't be heeded: "), "{text}");
        }
    }
}
