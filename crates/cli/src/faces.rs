//! Slurm's commands, as other names of the binary: `sbatch`, `srun`, `squeue`, `scancel`, `sacct`, `sinfo`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The words of ours, if the program was called by one of these names; others as they are. The error is for people.
pub fn as_called(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let name = words.first().and_then(|w| Path::new(w).file_name()).and_then(OsStr::to_str).unwrap_or("");
    let verb: &[&str] = match name {
        "sbatch" => &["submit", "--slurm"],
        "squeue" => &["queue"],
        "scancel" => &["cancel"],
        "sacct" => &["history"],
        "sinfo" => &["nodes"],
        "salloc" => &["alloc", "--slurm"],
        "srun" => &["run", "--as-job"],
        _ => return Ok(words),
    };
    let name = name.to_owned();
    let mut out: Vec<OsString> = vec!["pando".into()];
    out.extend(verb.iter().map(OsString::from));
    let rest = words.into_iter().skip(1);
    match name.as_str() {
        // Their words are ours.
        "sbatch" | "scancel" | "salloc" => out.extend(rest),
        "srun" => srun(&mut out, rest.collect(), std::env::var("PANDO_BATCH_RANKS").ok()),
        _ => {
            for word in rest {
                let text = word.to_str().unwrap_or("");
                let (option, value) = text.split_once('=').map_or((text, None), |(o, v)| (o, Some(v)));
                match (name.as_str(), option) {
                    (_, "-h" | "--noheader") if name == "squeue" => out.push("--noheader".into()),
                    ("sacct", "-j" | "--jobs") => out.push("--job".into()),
                    ("sacct", "-S" | "--starttime") => out.push("--since".into()),
                    ("sacct", "-X" | "--allocations") | ("squeue", "-l" | "--long" | "-r" | "--array") => continue,
                    (_, "-u" | "--user" | "-j" | "--jobs" | "-a" | "--all" | "--me" | "--json") => {
                        out.push(option.into())
                    }
                    (_, o) if o.starts_with('-') => {
                        return Err(format!(
                            "{name}: `{o}` is not known here: `pando {} --help` shows what is",
                            verb[0]
                        ));
                    }
                    _ => out.push(word.clone()),
                }
                out.extend(value.map(OsString::from));
            }
        }
    }
    Ok(out)
}

/// In a batch job it starts as many ranks as that has; otherwise one.
fn srun(out: &mut Vec<OsString>, words: Vec<OsString>, ranks: Option<String>) {
    // Those of the program as well, rather than one too few: then it is one rank, if nothing else is said.
    let says = |word: &OsString| {
        let text = word.to_string_lossy();
        let short = ["-n", "-N"].iter().filter_map(|o| text.strip_prefix(o));
        let mut short = short.map(|rest| rest.trim_start_matches('='));
        short.any(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            || ["--ntasks", "--nodes"].iter().any(|o| text == *o || text.starts_with(&format!("{o}=")))
    };
    if !words.iter().any(says) {
        out.extend(["-n".into(), ranks.unwrap_or_else(|| "1".into()).into()]);
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
            ("squeue -h --user=ann -j 1,2 -l", "pando queue --noheader --user ann -j 1,2"),
            ("scancel -u ann 17_3", "pando cancel -u ann 17_3"),
            ("sacct -j 17 -S 2026-01-01 -X", "pando history --job 17 --since 2026-01-01"),
            ("srun hostname", "pando run --as-job -n 1 hostname"),
            ("srun -N2 -n4 x", "pando run --as-job -N2 -n4 x"),
            ("srun -w n1 -n2 x", "pando run --as-job -w n1 -n2 x"),
            ("srun --nodelist=n1 x", "pando run --as-job -n 1 --nodelist=n1 x"),
            ("sinfo", "pando nodes"),
            ("pando run x", "pando run x"),
        ] {
            assert_eq!(called(theirs), ours);
        }
        assert!(called("squeue -o %i").contains("`-o` is not known here"));
    }
}
