//! Slurm's commands, as other names of the binary: `sbatch`, `srun`, `salloc`, `squeue`, `scancel`, `sacct`, `sinfo`, `scontrol`.

use crate::args::Args;
use clap::CommandFactory;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Options of squeue and sacct that are called otherwise here, and how many words of ours stand for one: none, if it changes nothing.
const OTHERWISE: [(&str, &str, &str); 43] = [
    ("squeue", "-h", "--noheader"),
    ("squeue", "--user", "--user"),
    ("squeue", "--job", "--jobs"),
    ("squeue", "--state", "--states"),
    ("squeue", "--names", "--name"),
    ("sacct", "-j", "--job"),
    ("sacct", "--jobs", "--job"),
    ("sacct", "-S", "--since"),
    ("sacct", "--starttime", "--since"),
    ("sacct", "-E", "--until"),
    ("sacct", "--endtime", "--until"),
    ("sacct", "-n", "--noheader"),
    ("sacct", "--uid", "--user"),
    ("sacct", "-X", "--allocations"),
    ("sacct", "-a", "--allusers"),
    ("sacct", "-b", "--brief"),
    ("sacct", "-l", "--long"),
    ("sacct", "-e", "--helpformat"),
    ("sacct", "-N", "--nodelist"),
    ("sacct", "--accounts", "--account"),
    ("sacct", "-r", "--partition"),
    ("sacct", "-D", ""),
    ("sacct", "--duplicates", ""),
    ("sacct", "-T", ""),
    ("sacct", "--truncate", ""),
    ("sacct", "-L", ""),
    ("sacct", "--noconvert", ""),
    ("sacct", "-v", ""),
    ("squeue", "-P", "-r"),
    ("squeue", "--array-unique", "-r"),
    ("squeue", "-s", "--steps"),
    ("squeue", "--step", "--steps"),
    ("squeue", "--hide", ""),
    ("squeue", "--local", ""),
    ("squeue", "--federation", ""),
    ("squeue", "-a", ""),
    ("squeue", "--noconvert", ""),
    ("squeue", "-v", ""),
    ("sinfo", "-v", ""),
    ("sinfo", "-r", ""),
    ("sinfo", "-h", "--noheader"),
    ("sinfo", "--node", "--nodes"),
    ("sinfo", "-a", ""),
];

/// What of ours a name stands for.
fn verb(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "sbatch" => &["submit", "--slurm"],
        "squeue" => &["queue", "--slurm"],
        "scancel" => &["cancel", "--slurm"],
        "sacct" => &["history", "--slurm"],
        "sinfo" => &["__sinfo"],
        "salloc" => &["alloc", "--slurm"],
        "scontrol" => &["__scontrol"],
        "srun" => &["run", "--as-job"],
        _ => return None,
    })
}

fn called_as(words: &[OsString]) -> &str {
    words.first().and_then(|w| Path::new(w).file_name()).and_then(OsStr::to_str).unwrap_or("")
}

/// What is to be printed, if the program was called by one of these names and asked how it is used: our own words for it, under that name.
pub fn help(words: &[OsString]) -> Option<String> {
    let name = called_as(words);
    let ours = verb(name)?.first()?;
    let asks = match words.get(1).and_then(|w| w.to_str())? {
        "--help" => true,
        "help" => name == "scontrol",
        // Of these it is --noheader.
        "-h" => !["squeue", "sinfo"].contains(&name),
        _ => false,
    };
    if !asks {
        return None;
    }
    if name == "scontrol" {
        return Some(format!("Usage: {SCONTROL}\n"));
    }
    let mut command = Args::command();
    command.build();
    let text = command.find_subcommand_mut(ours)?.render_long_help().to_string();
    let text = text.replace(&format!("pando {ours}"), name);
    Some(if name == "sbatch" { text.replace("pando-%j.out", "slurm-%j.out") } else { text })
}

/// The words of ours, if the program was called by one of these names; others as they are. The error is for people.
pub fn as_called(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let name = called_as(&words);
    let Some(verb) = verb(name) else { return Ok(words) };
    let name = name.to_owned();
    let first = words.get(1).and_then(|w| w.to_str()).unwrap_or("");
    if ["-V", "--version"].contains(&first) {
        return Ok(["pando", "--version"].map(OsString::from).to_vec());
    }
    let mut out: Vec<OsString> = vec!["pando".into()];
    out.extend(verb.iter().map(OsString::from));
    let rest = words.into_iter().skip(1);
    match name.as_str() {
        // Their words are ours.
        "sbatch" | "scancel" | "salloc" | "scontrol" => out.extend(rest),
        "srun" => srun(&mut out, rest.collect(), |name| std::env::var(name).ok()),
        _ => {
            for word in apart(&name, rest) {
                let text = word.to_str().unwrap_or("");
                let (option, value) = text.split_once('=').map_or((text, None), |(o, v)| (o, Some(v)));
                match OTHERWISE.iter().find(|(of, theirs, _)| *of == name && *theirs == option) {
                    Some((_, _, "")) => {}
                    Some((_, _, ours)) => {
                        out.push(ours.into());
                        out.extend(value.map(OsString::from));
                    }
                    None => out.push(word),
                }
            }
        }
    }
    Ok(out)
}

/// Letters that have no value, of those that may stand together: `sacct -nPX`.
const ALONE: [(&str, &str); 3] = [("squeue", "ahlrPsv"), ("sacct", "abeDlLnpPTvX"), ("sinfo", "adehlNrRsTv")];

/// One word for each option that stood in one with others, and values apart from their letters.
fn apart(name: &str, words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let alone = ALONE.iter().find(|(of, _)| *of == name).map_or("", |(_, letters)| letters);
    let mut out = Vec::new();
    for word in words {
        let letters = word.to_str().and_then(|text| text.strip_prefix('-')).filter(|rest| !rest.starts_with('-'));
        let Some(mut rest) = letters.filter(|rest| rest.chars().count() > 1) else {
            out.push(word);
            continue;
        };
        while let Some(letter) = rest.chars().next() {
            out.push(format!("-{letter}").into());
            rest = &rest[letter.len_utf8()..];
            if !alone.contains(letter) {
                out.extend((!rest.is_empty()).then(|| OsString::from(rest.strip_prefix('=').unwrap_or(rest))));
                break;
            }
        }
    }
    out
}

const SCONTROL: &str = "scontrol show job [ID] | show node [NAME] | show partition [NAME] | show config | show hostnames LIST | hold, release, requeue, \
    requeuehold, suspend or resume JOB... | update JobId=ID TimeLimit=.. Nice=.. Name=.. StartTime=.. ArrayTaskThrottle=.. Partition=.. NumNodes=.. NumTasks=.. ReqNodeList=.. \
    MinMemoryNode=.. MinMemoryCPU=.. Features=.. QOS=.. | update NodeName=NODE State=DRAIN|RESUME Reason=.. | ping; with --json and -o";

/// In a batch job it starts as many ranks as that has; otherwise one.
fn srun(out: &mut Vec<OsString>, words: Vec<OsString>, variable: impl Fn(&str) -> Option<String>) {
    // Those of the program as well, rather than one too few: then it is one rank, if nothing else is said.
    let says = |word: &OsString| {
        let text = word.to_string_lossy();
        let short = ["-n", "-N"].iter().filter_map(|o| text.strip_prefix(o));
        let mut short = short.map(|rest| rest.trim_start_matches('='));
        short.any(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            || ["--ntasks", "--nodes"].iter().any(|o| text == *o || text.starts_with(&format!("{o}=")))
    };
    let each = |word: &OsString| {
        let text = word.to_string_lossy();
        ["--ntasks-per-node", "--ppn"].iter().any(|o| text == *o || text.starts_with(&format!("{o}=")))
    };
    let nodes = variable("PANDO_BATCH_NODES").map_or(1, |list| list.split(',').count());
    match words.iter().any(says) {
        true => {}
        // So many on each of the job's nodes.
        false if words.iter().any(each) => out.extend(["-N".into(), nodes.to_string().into()]),
        false => out.extend(["-n".into(), variable("PANDO_BATCH_RANKS").unwrap_or_else(|| "1".into()).into()]),
    }
    out.extend(words);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(text: &str) -> String {
        match as_called(text.split(' ').map(OsString::from).collect()) {
            Ok(words) => words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
            Err(why) => why,
        }
    }

    #[test]
    fn their_words() {
        for (theirs, ours) in [
            ("/usr/bin/sbatch -N 2 job.sh a", "pando submit --slurm -N 2 job.sh a"),
            ("squeue -h --user=ann -j 1,2 -l", "pando queue --slurm --noheader --user ann -j 1,2 -l"),
            ("squeue -r -t PD -o %i", "pando queue --slurm -r -t PD -o %i"),
            ("scancel -u ann 17_3", "pando cancel --slurm -u ann 17_3"),
            (
                "sacct -j 17 -S 2026-01-01 -X -n",
                "pando history --slurm --job 17 --since 2026-01-01 --allocations --noheader",
            ),
            ("sacct -nXP -j17", "pando history --slurm --noheader --allocations -P --job 17"),
            ("squeue -ho%i -u ann", "pando queue --slurm --noheader -o %i -u ann"),
            ("scontrol show job 3", "pando __scontrol show job 3"),
            ("salloc -n 2 sh", "pando alloc --slurm -n 2 sh"),
            ("squeue --version", "pando --version"),
            ("srun --ntasks-per-node=1 x", "pando run --as-job -N 1 --ntasks-per-node=1 x"),
            ("srun hostname", "pando run --as-job -n 1 hostname"),
            ("srun -N2 -n4 x", "pando run --as-job -N2 -n4 x"),
            ("srun -w n1 -n2 x", "pando run --as-job -w n1 -n2 x"),
            ("srun --nodelist=n1 x", "pando run --as-job -n 1 --nodelist=n1 x"),
            ("sinfo -N -h", "pando __sinfo -N --noheader"),
            ("pando run x", "pando run x"),
        ] {
            assert_eq!(called(theirs), ours);
        }
    }

    #[test]
    fn help_is_under_the_name_that_was_called() {
        let help = |text: &str| help(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        for name in ["sbatch", "squeue", "scancel", "sacct", "sinfo", "salloc", "scontrol", "srun"] {
            let text = help(&format!("/usr/bin/{name} --help")).unwrap();
            assert!(text.contains(&format!("Usage: {name} ")), "{text}");
        }
        let text = help("sbatch -h").unwrap();
        assert!(text.contains("slurm-%j.out") && !text.contains("pando-%j.out"), "{text}");
        for other in ["sinfo -h", "pando --help", "sbatch job.sh --help", "srun", "scontrol show"] {
            assert_eq!(help(other), None, "{other}");
        }
    }
}
