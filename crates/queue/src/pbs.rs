//! PBS's directives (Torque's and PBS Pro's), in sbatch's words.

use crate::{sizes, times};

/// Makes the words of a `#PBS` line options of `pando submit`. The error names the word.
pub fn translate(words: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut rest = word.strip_prefix('-').filter(|w| !w.is_empty()).ok_or_else(|| unknown(word))?;
        // Letters without a value may stand together.
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            if flag(letter, &mut all) {
                rest = after;
                continue;
            }
            if !"aAcehJjlMmNopPqrStuvwWCdk".contains(letter) || letter == 'h' {
                return Err(unknown(word));
            }
            let value = match after {
                "" => words.next().ok_or_else(|| format!("`{word}` wants a value"))?,
                value => value,
            };
            one(letter, value, &mut all)?;
            break;
        }
    }
    Ok(all)
}

fn unknown(word: &str) -> String {
    format!("`{word}` is nothing that is understood of PBS: see `pando help submit` for an option in its place")
}

fn flag(letter: char, all: &mut Vec<String>) -> bool {
    match letter {
        'h' => all.push("--hold".into()),
        'V' => all.push("--export=ALL".into()),
        // Quiet, and a job's number is all that is printed anyway.
        'z' => all.push("--quiet".into()),
        _ => return false,
    }
    true
}

fn one(letter: char, value: &str, all: &mut Vec<String>) -> Result<(), String> {
    let mut say = |name: &str, value: &str| all.push(format!("--{name}={value}"));
    match letter {
        'N' => say("job-name", value),
        'q' => {
            let (queue, server) = value.split_once('@').unwrap_or((value, ""));
            if !server.is_empty() {
                return Err(format!("`-q {value}`: there is no other server here; leave @{server} out"));
            }
            say("partition", queue);
        }
        'A' | 'P' => say("account", value),
        't' | 'J' => say("array", value),
        // host:path: the path is the same everywhere.
        'o' => say("output", path(value)),
        'e' => say("error", path(value)),
        'd' | 'w' => say("chdir", value),
        'a' => say("begin", value),
        'M' => say("mail-user", value),
        'm' => mail(value, &mut say)?,
        'v' => say("export", &format!("ALL,{value}")),
        'p' => match value.parse::<i32>() {
            // The other way round: more is sooner.
            Ok(priority @ -1024..=1023) => say("nice", &(-priority).to_string()),
            _ => return Err(format!("`-p {value}` is not a number from -1024 to 1023")),
        },
        'r' => match value {
            "y" => all.push("--requeue".into()),
            "n" => all.push("--no-requeue".into()),
            _ => return Err(format!("`-r {value}`: say y or n")),
        },
        'j' => match value {
            // Standard error goes where the output goes if nothing else is said.
            "oe" | "n" => {}
            _ => return Err(format!("`-j {value}`: only oe (both in the file of the output) is possible")),
        },
        // The interpreter is what #! says; output is written where it belongs while the job runs.
        'S' | 'k' => {}
        'l' => resources(value, all)?,
        'W' => attributes(value, all)?,
        _ => return Err(unknown(&format!("-{letter}"))),
    }
    Ok(())
}

fn path(value: &str) -> &str {
    match value.split_once(':') {
        Some((host, path)) if !host.contains('/') => path,
        _ => value,
    }
}

fn mail(value: &str, say: &mut impl FnMut(&str, &str)) -> Result<(), String> {
    let mut types = Vec::new();
    for letter in value.chars() {
        types.push(match letter {
            'a' => "FAIL",
            'b' => "BEGIN",
            'e' => "END",
            'n' => "NONE",
            'f' | 'j' => continue,
            _ => return Err(format!("`-m {value}`: letters are a, b, e and n")),
        });
    }
    say("mail-type", &types.join(","));
    Ok(())
}

/// `-l nodes=2:ppn=4,walltime=1:00:00,mem=2gb`, `-l select=2:ncpus=4:mem=1gb:mpiprocs=2`.
fn resources(list: &str, all: &mut Vec<String>) -> Result<(), String> {
    for part in list.split(',') {
        let wrong = || format!("`-l {part}` is nothing that is understood of PBS");
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let mut say = |name: &str, value: &str| all.push(format!("--{name}={value}"));
        let megabytes = |value: &str| sizes::pbs_megabytes(value).map_err(|why| format!("`-l {part}`: {why}"));
        match name {
            "nodes" => chunk(value, false, all)?,
            "select" => chunk(value, true, all)?,
            "walltime" => {
                let ms = times::pbs_limit(value).map_err(|why| format!("`-l {part}`: {why}"))?;
                say("time", &times::show(Some(ms)));
            }
            // Of the whole job: of each node when there is one, which is when it is mostly said. More than it asked for is no harm.
            "mem" | "vmem" => say("mem", &format!("{}M", megabytes(value)?)),
            "pmem" | "pvmem" => say("mem-per-cpu", &format!("{}M", megabytes(value)?)),
            "procs" => say("ntasks", &number(value).ok_or_else(wrong)?.to_string()),
            "ncpus" => say("cpus-per-task", &number(value).ok_or_else(wrong)?.to_string()),
            "ngpus" => say("gres", &format!("gpu:{}", number(value).ok_or_else(wrong)?)),
            "nice" => say("nice", value),
            "software" => say("licenses", value),
            "gres" => say("gres", value),
            "place" => match value.split(':').any(|p| p.starts_with("excl")) {
                true => all.push("--exclusive".into()),
                false if value.split(':').all(|p| ["free", "pack", "scatter", "shared"].contains(&p)) => {}
                false => return Err(wrong()),
            },
            "naccesspolicy" if value == "singlejob" => all.push("--exclusive".into()),
            "feature" => say("constraint", value),
            _ => return Err(wrong()),
        }
    }
    Ok(())
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten().filter(|n| *n > 0)
}

/// `2:ppn=4`, `n1+n2:ppn=2`, `2:ncpus=4:mpiprocs=4:mem=2gb`: how many nodes, and what each of them has.
fn chunk(text: &str, select: bool, all: &mut Vec<String>) -> Result<(), String> {
    let name = if select { "select" } else { "nodes" };
    let wrong = |why: &str| format!("`-l {name}={text}`: {why}");
    let (mut count, mut named, mut common) = (0u32, Vec::new(), None);
    for part in text.split('+') {
        let (first, rest) = part.split_once(':').unwrap_or((part, ""));
        let (nodes, rest) = match number(first) {
            Some(n) => (n, rest),
            None if select && first.contains('=') => (1, part),
            None if !select && first.contains(|c: char| c.is_alphabetic()) && !first.contains('=') => {
                named.push(first);
                (1, rest)
            }
            None => return Err(wrong("it begins with a number of nodes")),
        };
        count = count.saturating_add(nodes);
        if common.replace(rest).is_some_and(|before| before != rest) {
            return Err(wrong("all nodes of a job are alike here: say the same of each, or submit two jobs"));
        }
    }
    let (mut ranks, mut cpus, mut others) = (1, None, Vec::new());
    for property in common.unwrap_or("").split(':').filter(|p| !p.is_empty()) {
        let Some((key, value)) = property.split_once('=') else {
            others.push(format!("--constraint={property}"));
            continue;
        };
        let positive = || number(value).ok_or_else(|| wrong(&format!("{property} is not a number of 1 or more")));
        match key {
            "ppn" | "mpiprocs" => ranks = positive()?,
            "ncpus" => cpus = Some(positive()?),
            "mem" => {
                let megabytes = sizes::pbs_megabytes(value).map_err(|why| wrong(&why))?;
                others.push(format!("--mem={megabytes}M"));
            }
            "gpus" | "ngpus" => others.push(format!("--gres=gpu:{}", positive()?)),
            "ompthreads" => {}
            _ => return Err(wrong(&format!("`{property}` is not understood"))),
        }
    }
    all.push(format!("--nodes={count}"));
    if !named.is_empty() {
        all.push(format!("--nodelist={}", named.join(",")));
    }
    all.push(format!("--ntasks-per-node={ranks}"));
    if let Some(each) = cpus.map(|cpus| cpus.div_ceil(ranks)).filter(|each| *each > 1) {
        all.push(format!("--cpus-per-task={each}"));
    }
    all.append(&mut others);
    Ok(())
}

/// `-W depend=afterok:1:2,umask=022`. A comma is between attributes and between dependencies.
fn attributes(list: &str, all: &mut Vec<String>) -> Result<(), String> {
    let mut depends: Option<Vec<&str>> = None;
    let mut inside = false;
    for part in list.split(',') {
        match part.split_once('=') {
            Some(("depend", first)) => {
                depends.get_or_insert_default().push(first);
                inside = true;
            }
            None if inside => depends.get_or_insert_default().push(part),
            Some(("umask", _)) => inside = false,
            Some(("block", "true")) => {
                all.push("--wait".into());
                inside = false;
            }
            _ => return Err(format!("`-W {part}` is nothing that is understood of PBS: depend=... is")),
        }
    }
    if let Some(depends) = depends {
        // A job is 12.server or 12[].server there.
        let job = |word: &str| word.split(['.', '[']).next().unwrap_or_default().to_owned();
        let words = depends.iter().map(|d| d.split(':').map(job).collect::<Vec<_>>().join(":"));
        let words = words.map(|d| d.replace("afterokarray", "afterok").replace("afteranyarray", "afterany"));
        let text = words.collect::<Vec<_>>().join(",");
        crate::depend::Dependency::read(&text).map_err(|why| format!("`-W {list}`: {why}"))?;
        all.push(format!("--dependency={text}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_slurms_words() {
        let tests = [
            ("-N name -q batch -A me", "--job-name=name --partition=batch --account=me"),
            ("-l nodes=2:ppn=4,walltime=1:00:00,mem=2gb", "--nodes=2 --ntasks-per-node=4 --time=01:00:00 --mem=2048M"),
            ("-l nodes=n1+n2", "--nodes=2 --nodelist=n1,n2 --ntasks-per-node=1"),
            (
                "-l select=2:ncpus=8:mpiprocs=2:mem=1gb:ngpus=1 -l place=scatter:excl",
                "--nodes=2 --ntasks-per-node=2 --cpus-per-task=4 --mem=1024M --gres=gpu:1 --exclusive",
            ),
            ("-t 1-10%2 -J 1-4", "--array=1-10%2 --array=1-4"),
            ("-o host:/tmp/o -e /tmp/e -j oe", "--output=/tmp/o --error=/tmp/e"),
            ("-W depend=afterok:12.server:13[].server,afterany:7,umask=022", "--dependency=afterok:12:13,afterany:7"),
            ("-hV -v A=1,B -a 202501010030", "--hold --export=ALL --export=ALL,A=1,B --begin=202501010030"),
            (
                "-m abe -M a@b -r n -p 10 -S /bin/sh -k oe",
                "--mail-type=FAIL,BEGIN,END --mail-user=a@b --no-requeue --nice=-10",
            ),
            ("-l procs=8 -l pmem=500mb,feature=fast", "--ntasks=8 --mem-per-cpu=500M --constraint=fast"),
        ];
        for (pbs, slurm) in tests {
            let made = translate(&crate::words::split(pbs).unwrap()).map(|w| w.join(" "));
            assert_eq!(made.unwrap_or_default(), slurm, "{pbs}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let tests = [
            ("-Z 1", "-Z"),
            ("-l cput=1", "-l cput=1"),
            ("-N", "-N"),
            ("x", "`x`"),
            ("-q a@b", "@b"),
            ("-l nodes=0", "nodes=0"),
            ("-l nodes=1:ppn=0", "ppn=0"),
            ("-l nodes=1:ppn=1+1:ppn=2", "alike"),
            ("-W depend=before:3", "before"),
            ("-W stagein=x", "stagein"),
            ("-l walltime=soon", "soon"),
            ("-r x", "-r x"),
            ("-j eo", "-j eo"),
        ];
        for (pbs, word) in tests {
            let wrong = translate(&crate::words::split(pbs).unwrap()).unwrap_err();
            assert!(wrong.contains(word), "{pbs}: {wrong}");
        }
    }
}
