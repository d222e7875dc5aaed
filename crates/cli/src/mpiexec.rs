//! mpiexec(1) and mpirun(1): other names of this program. As MPICH and Open MPI spell their words, with one hyphen or two.

use crate::parallel::several::{Program, command};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What becomes of a word.
enum Does {
    /// It is one of ours, without a value.
    Is(&'static str),
    /// The same, with one.
    Takes(&'static str),
    /// Nodes, maybe with their slots.
    Hosts,
    /// Name and value of a variable; what its name begins with for us.
    Variable(&'static str),
    /// A list of variables.
    Variables,
    /// Nothing here; it and so many words are left out.
    Nothing(usize),
    /// How ranks are bound to CPUs.
    Bind,
    /// How they are placed.
    Map,
    /// Seconds.
    Timeout,
    /// It can't be.
    No(&'static str),
}

const PROGRAMS: &str = "files that say several programs are not read: write `a : b`";

/// A word without its hyphens.
fn meaning(word: &str) -> Option<Does> {
    Some(match word {
        "n" | "np" | "c" => Does::Takes("-n"),
        "ppn" | "perhost" | "N" | "npernode" => Does::Takes("--ppn"),
        "pernode" => Does::Is("--ppn=1"),
        "host" | "hosts" | "H" => Does::Hosts,
        "hostfile" | "machinefile" | "f" | "default-hostfile" => Does::Takes("--hostfile"),
        "l" | "prepend-rank" | "tag-output" => Does::Is("-l"),
        "wdir" | "wd" | "dir" => Does::Takes("-D"),
        "env" | "genv" => Does::Variable(""),
        "mca" | "gmca" | "omca" => Does::Variable("OMPI_MCA_"),
        "pmixmca" | "gpmixmca" => Does::Variable("PMIX_MCA_"),
        "prtemca" => Does::Variable("PRTE_MCA_"),
        "x" => Does::Takes("--env"),
        "envlist" | "genvlist" => Does::Variables,
        "envnone" | "genvnone" => Does::Is("--export=NONE"),
        "s" | "stdin" => Does::Takes("-i"),
        "outfile-pattern" => Does::Takes("-o"),
        "errfile-pattern" => Does::Takes("-e"),
        "timeout" => Does::Timeout,
        "oversubscribe" => Does::Is("--oversubscribe"),
        "h" | "help" => Does::Is("--help"),
        "bind-to" => Does::Bind,
        "bind-to-core" => Does::Is("--cpus-per-task=1"),
        "map-by" => Does::Map,
        "envall"
        | "genvall"
        | "allow-run-as-root"
        | "v"
        | "verbose"
        | "q"
        | "quiet"
        | "report-bindings"
        | "display-map"
        | "display-allocation"
        | "bind-to-none"
        | "byslot"
        | "nooversubscribe"
        | "disable-hostname-propagation"
        | "print-all-exitcodes"
        | "enable-recovery"
        | "abort-on-error" => Does::Nothing(0),
        "launcher" | "bootstrap" | "rmk" | "demux" | "iface" | "membind" | "topolib" | "usize" | "localhost"
        | "launcher-exec" | "rank-by" | "prefix" | "am" | "mpi-port" => Does::Nothing(1),
        "configfile" | "app" => Does::No(PROGRAMS),
        "bynode" | "map-by-node" => Does::No(BLOCKS),
        "output-filename" => Does::No("output goes to files with -o NAME.%r"),
        "gpus-per-proc" => Does::No("a step has its job's: say --gres to `sbatch` or `salloc`"),
        "disable-auto-cleanup" => Does::No("--kill-on-bad-exit=0 leaves the other ranks when one ends badly"),
        _ => return None,
    })
}

const BLOCKS: &str = "ranks are placed in blocks: `--map-by ppr:N:node` or `--ppn N` says how many a node has";

/// The words of a `pando run`, if that is what the program was called as; others as they are. The error is for people.
pub fn as_called(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let name = words.first().and_then(|w| Path::new(w).file_name()).and_then(|n| n.to_str());
    let Some(name) = name.filter(|n| ["mpiexec", "mpirun"].contains(n)).map(str::to_owned) else { return Ok(words) };
    let mut call = Call { out: vec!["pando".into(), "run".into()], places: false, name };
    let mut rest: VecDeque<OsString> = words.into_iter().skip(1).collect();
    if rest.iter().any(|word| word == ":") {
        return several(rest, &call.name);
    }
    while let Some(word) = rest.pop_front_if(|w| w.as_bytes().starts_with(b"-")) {
        if word == "--" {
            call.out.push(word);
            break;
        }
        call.word(word, &mut rest)?;
    }
    if !call.places {
        // In a batch job as many as that has.
        let ranks = std::env::var_os("PANDO_BATCH_RANKS").unwrap_or_else(|| "1".into());
        call.out.splice(2..2, ["-n".into(), ranks]);
    }
    if std::env::var_os("PANDO_BATCH_RANKS").is_some() {
        // MPICH's has as many as it is told to.
        call.out.insert(2, "--overcommit".into());
    }
    call.out.extend(rest);
    Ok(call.out)
}

/// `-n 1 a : -n 2 b`: what is said before the first program is for all, and of the others how many ranks they have, their variables and their directory.
fn several(words: VecDeque<OsString>, name: &str) -> Result<Vec<OsString>, String> {
    let words: Vec<OsString> = words.into();
    let mut out: Vec<OsString> = vec!["pando".into(), "run".into()];
    let (mut programs, mut next) = (Vec::new(), 0u32);
    for (number, part) in words.split(|word| word == ":").enumerate() {
        let mut call = Call { out: Vec::new(), places: false, name: name.to_owned() };
        let mut rest: VecDeque<OsString> = part.to_vec().into();
        while let Some(word) = rest.pop_front_if(|w| w.as_bytes().starts_with(b"-")) {
            if word == "--" {
                break;
            }
            call.word(word, &mut rest)?;
        }
        if rest.is_empty() {
            return Err("one of several programs (`:`) is missing".into());
        }
        let mut program = Program { words: rest.into(), ..Program::default() };
        let mut ranks = 1u32;
        let mut said = call.out.into_iter();
        while let Some(word) = said.next() {
            match word.to_str() {
                Some("-n") => {
                    let count = said.next().and_then(|n| n.to_str()?.parse::<u32>().ok()).filter(|n| *n > 0);
                    ranks = count.ok_or("-n wants a number of ranks")?;
                }
                Some("--env") if number > 0 => {
                    let both = said.next().unwrap_or_default().into_vec();
                    let at = both
                        .iter()
                        .position(|b| *b == b'=')
                        .ok_or("a variable of one of several programs needs its value: NAME=VALUE")?;
                    let (name, value) = (both[..at].to_vec(), both[at + 1..].to_vec());
                    if name.is_empty() || !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
                        return Err("a variable's name has letters, digits and _".into());
                    }
                    program.variables.push((OsString::from_vec(name), OsString::from_vec(value)));
                }
                Some("-D") if number > 0 => program.directory = said.next(),
                _ if number > 0 => {
                    let word = word.to_string_lossy().into_owned();
                    return Err(format!("`{word}` is for all programs of the job: say it before the first one"));
                }
                // A value of one of ours comes as the next word.
                _ => out.push(word),
            }
        }
        let last = next.checked_add(ranks - 1).filter(|last| *last < 1 << 20).ok_or("so many ranks no job has")?;
        program.ranks = vec![(next, last)];
        next = last + 1;
        programs.push(program);
    }
    let becomes = programs[0].words[0].clone();
    if std::env::var_os("PANDO_BATCH_RANKS").is_some() {
        out.push("--overcommit".into());
    }
    let firsts: Vec<String> = programs.iter().map(|program| program.ranks[0].0.to_string()).collect();
    out.extend(["-n".into(), next.to_string().into(), "--becomes".into(), becomes]);
    out.extend(["--firsts".into(), firsts.join(",").into()]);
    out.extend(command(&programs));
    Ok(out)
}

struct Call {
    out: Vec<OsString>,
    /// It is known how many ranks there are.
    places: bool,
    name: String,
}

impl Call {
    fn word(&mut self, word: OsString, rest: &mut VecDeque<OsString>) -> Result<(), String> {
        let bytes = word.as_bytes();
        let start = if bytes.starts_with(b"--") { 2 } else { 1 };
        let end = bytes.iter().position(|b| *b == b'=').unwrap_or(bytes.len());
        let shown = word.to_string_lossy().into_owned();
        let (does, attached) = match std::str::from_utf8(&bytes[start..]).ok().and_then(meaning) {
            Some(does) => (Some(does), None),
            None => {
                let does = std::str::from_utf8(&bytes[start..end]).ok().and_then(meaning);
                (does, bytes.get(end + 1..).map(OsStr::from_bytes))
            }
        };
        let mut attached = attached.map(OsStr::to_owned);
        let mut value = || {
            let next = attached.take().or_else(|| rest.pop_front());
            next.ok_or_else(|| format!("`{shown}` wants a value"))
        };
        match does {
            // Ours, with two hyphens, or an error that says so.
            None if start == 2 || self.is_short(&word) => self.out.push(word),
            None => {
                return Err(format!("`{shown}` is no option of {} as Pando has it: see `pando run --help`", self.name));
            }
            Some(Does::Is(ours)) => {
                self.places |= ours == "--ppn=1";
                self.out.push(ours.into());
            }
            Some(Does::Takes(ours)) => {
                self.places |= ["-n", "--ppn", "--hostfile"].contains(&ours);
                let value = value()?;
                self.out.extend([ours.into(), value]);
            }
            Some(Does::Hosts) => {
                // Open MPI has a rank for each, MPICH one.
                self.places |= start == 2;
                let value = value()?;
                self.hosts(&value)?;
            }
            Some(Does::Variable(prefix)) => {
                let (name, value) = (value()?, value()?);
                let both = [prefix.as_bytes(), name.as_bytes(), b"=", value.as_bytes()].concat();
                self.out.extend(["--env".into(), OsString::from_vec(both)]);
            }
            Some(Does::Variables) => {
                let value = value()?;
                let names = value.as_bytes().split(|b| *b == b',').filter(|n| !n.is_empty());
                names.for_each(|name| self.out.extend(["--env".into(), OsStr::from_bytes(name).to_owned()]));
            }
            Some(Does::Nothing(count)) => (0..count).try_for_each(|_| value().map(drop))?,
            Some(Does::Bind) => {
                let value = value()?;
                let value = value.to_string_lossy();
                // Each rank its own CPU. What is said of caches and sockets is advice.
                if ["core", "hwthread", "cpu"].contains(&value.split(':').next().unwrap_or_default()) {
                    self.out.push("--cpus-per-task=1".into());
                }
            }
            Some(Does::Map) => {
                let value = value()?;
                self.map(&value.to_string_lossy())?;
            }
            Some(Does::Timeout) => {
                let value = value()?;
                let seconds: u64 = value.to_str().and_then(|v| v.parse().ok()).ok_or("-timeout wants seconds")?;
                self.out.push(format!("--time={}:{:02}", seconds / 60, seconds % 60).into());
            }
            Some(Does::No(why)) => return Err(format!("`{shown}` can't be heeded: {why}")),
        }
        Ok(())
    }

    /// `-N2`, `-K`, `-w`: with one letter, and a number maybe.
    fn is_short(&self, word: &OsStr) -> bool {
        word.as_bytes().get(2..).is_some_and(|rest| rest.iter().all(|b| b.is_ascii_digit()))
    }

    /// `n1,n2:4`. With slots, or names that come again, they are a list that is filled in its order.
    fn hosts(&mut self, list: &OsStr) -> Result<(), String> {
        let text = list.to_str().ok_or("a node's name is plain text")?;
        let names: Vec<&str> = text.split(',').collect();
        let twice = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
        self.places |= twice || text.contains(':');
        let ours = if twice || text.contains(':') { "--slots" } else { "-w" };
        self.out.extend([ours.into(), text.into()]);
        Ok(())
    }

    fn map(&mut self, how: &str) -> Result<(), String> {
        let mut parts = how.split(':');
        match parts.next().unwrap_or_default() {
            "ppr" => {
                let (count, unit) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                if unit != "node" || count.parse::<u32>().is_err() {
                    return Err(format!("`--map-by {how}`: ranks are counted by node: write ppr:N:node"));
                }
                self.places = true;
                self.out.extend(["--ppn".into(), count.into()]);
            }
            "node" => return Err(format!("`--map-by {how}` can't be heeded: {BLOCKS}")),
            // Slots in their order, as it is; the rest is advice.
            _ => {}
        }
        if parts.any(|more| more.eq_ignore_ascii_case("oversubscribe")) {
            self.out.push("--oversubscribe".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn called(text: &str) -> String {
        match as_called(text.split(' ').map(OsString::from).collect()) {
            Ok(words) => words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
            Err(why) => why,
        }
    }

    #[test]
    fn both_kinds_of_words_are_understood() {
        assert_eq!(called("pando run -n 4 x"), "pando run -n 4 x");
        for (theirs, ours) in [
            ("mpiexec -np 4 -ppn 2 ./a -n 3", "-n 4 --ppn 2 ./a -n 3"),
            ("/usr/bin/mpirun --np 4 -npernode 2 ./a", "-n 4 --ppn 2 ./a"),
            ("mpirun -hosts n1,n2 -l -wdir /tmp x", "-n 1 -w n1,n2 -l -D /tmp x"),
            ("mpirun --host n1,n2 x", "-w n1,n2 x"),
            ("mpirun -H n1:2,n2:4 x", "--slots n1:2,n2:4 x"),
            ("mpirun --host n1,n1,n2 x", "--slots n1,n1,n2 x"),
            ("mpiexec -n 2 -N 1 x", "-n 2 --ppn 1 x"),
            ("mpiexec -n=2 --npernode=1 x", "-n 2 --ppn 1 x"),
            ("mpiexec -n 2 -env A 1 -genv B x,y -genvall x", "-n 2 --env A=1 --env B=x,y x"),
            ("mpiexec -n 2 -genvlist A,B -envnone x", "-n 2 --env A --env B --export=NONE x"),
            ("mpirun -n 2 -x A=1 -x B --mca btl self,tcp x", "-n 2 --env A=1 --env B --env OMPI_MCA_btl=self,tcp x"),
            ("mpirun -n 2 -wd /tmp --oversubscribe --tag-output x", "-n 2 -D /tmp --oversubscribe -l x"),
            ("mpirun -n 2 --bind-to core --map-by ppr:2:node x", "-n 2 --cpus-per-task=1 --ppn 2 x"),
            ("mpirun -n 2 --bind-to none --map-by slot:OVERSUBSCRIBE x", "-n 2 --oversubscribe x"),
            ("mpiexec -n 2 -bind-to socket -map-by numa -launcher ssh x", "-n 2 x"),
            ("mpiexec -f hosts -n 3 x -f y", "--hostfile hosts -n 3 x -f y"),
            ("mpirun --machinefile hosts x", "--hostfile hosts x"),
            ("mpirun -n 1 --timeout 90 --allow-run-as-root x", "-n 1 --time=1:30 x"),
            ("mpirun -n 2 --bcast --kill-on-bad-exit=0 x", "-n 2 --bcast --kill-on-bad-exit=0 x"),
            ("mpirun -n 2 -stdin all -- x", "-n 2 -i all -- x"),
        ] {
            assert_eq!(called(theirs), format!("pando run {ours}"), "{theirs}");
        }
    }

    #[test]
    fn several_programs_are_one_job() {
        let text = called("mpiexec -l -n 1 ./a x : -n 2 -env A 1 -wdir /tmp b");
        assert!(text.starts_with("pando run -l -n 3 --becomes ./a --firsts 0,1 /bin/sh -c r=$PANDO_RANK"), "{text}");
        assert!(
            text.contains("-ge 1 ] && [ $r -le 2 ]; then")
                && text.contains("export A='1'; cd '/tmp' || exit 125; exec 'b'"),
            "{text}"
        );
    }

    #[test]
    fn what_cant_be_is_refused() {
        assert!(called("mpiexec -n 1 a : -n 2").contains("several programs"));
        assert!(called("mpiexec -n 1 a : -ppn 2 b").contains("before the first one"));
        assert!(called("mpiexec -configfile x").contains("several programs"));
        assert!(called("mpirun -n 2 --map-by node x").contains("in blocks"));
        assert!(called("mpirun -n 2 --map-by ppr:2:socket x").contains("ppr:N:node"));
        assert!(called("mpirun -fly x").contains("`-fly` is no option of mpirun as Pando has it"));
        assert!(called("mpirun -n").contains("`-n` wants a value"));
        assert!(called("mpirun -env A").contains("wants a value"));
        assert!(called("mpirun -timeout soon x").contains("seconds"));
    }

    #[test]
    fn nothing_makes_it_panic() {
        check!().with_type::<Vec<Vec<u8>>>().for_each(|words| {
            let words = words.iter().map(|w| OsString::from_vec(w.clone()));
            _ = as_called([OsString::from("mpiexec")].into_iter().chain(words).collect());
        });
    }
}
