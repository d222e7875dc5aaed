//! More ranks for a job that runs (MPI_Comm_spawn): what one rank asks for, as PMI-1 says it in many lines (MPICH's `PMI_Spawn_multiple`).

use crate::message::Said;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Most programs that one call starts, ranks of them, and bytes of all that is said of them.
const MOST_PROGRAMS: u32 = 256;
const MOST_RANKS: u32 = 1 << 16;
const MOST_BYTES: usize = 1 << 20;
/// Most arguments of a program.
const MOST_WORDS: usize = 1 << 14;

/// One of the programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// How many ranks run it.
    pub ranks: u32,
    /// Its name, and its arguments.
    pub words: Vec<ByteBuf>,
    /// Its working directory; none: that of the job.
    pub directory: Option<ByteBuf>,
    /// Where it is looked for first: directories, separated by colons.
    pub path: Option<ByteBuf>,
}

/// The wish: a group of ranks with a space of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// Those of the first ranks first.
    pub programs: Vec<Program>,
    /// Names that their space has from the beginning.
    pub preput: Vec<Said>,
    /// Only these nodes; empty: all of the job.
    pub hosts: Vec<String>,
}

/// What has come of it. The error is for people.
pub type Spawned = Result<(), String>;

impl Spawn {
    /// Can it be done at all? It may come from another machine. The error is for people.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MOST_PROGRAMS as usize).contains(&self.programs.len()) {
            return Err(format!("one call starts 1 to {MOST_PROGRAMS} programs, and not {}", self.programs.len()));
        }
        let ranks: u64 = self.programs.iter().map(|p| u64::from(p.ranks)).sum();
        if self.programs.iter().any(|p| p.ranks == 0) || ranks > u64::from(MOST_RANKS) {
            return Err(format!("one call starts 1 to {MOST_RANKS} ranks of each program"));
        }
        let named = |p: &Program| p.words.first().is_some_and(|word| !word.is_empty()) && p.words.len() <= MOST_WORDS;
        if !self.programs.iter().all(named) {
            return Err(format!("a program without a name, or with more than {MOST_WORDS} arguments"));
        }
        let strings = |p: &Program| {
            let more = [&p.directory, &p.path].into_iter().flatten();
            p.words.iter().chain(more).map(|s| (s.len(), s.contains(&0))).collect::<Vec<_>>()
        };
        let all: Vec<(usize, bool)> = self.programs.iter().flat_map(strings).collect();
        let said: usize = self.preput.iter().map(|(key, value)| key.len() + value.len()).sum();
        let hosts: usize = self.hosts.iter().map(String::len).sum();
        if all.iter().map(|(length, _)| length).sum::<usize>() + said + hosts > MOST_BYTES {
            return Err(format!("more than {} MB of arguments", MOST_BYTES >> 20));
        }
        if all.iter().any(|(_, zero)| *zero) { Err("a zero byte in an argument".into()) } else { Ok(()) }
    }

    /// Ranks in all.
    pub fn ranks(&self) -> u32 {
        self.programs.iter().fold(0, |sum, p| sum.saturating_add(p.ranks))
    }
}

/// A wish of which not all lines have come.
#[derive(Debug, Default)]
pub struct Spawning {
    /// Those programs that are complete.
    wish: Spawn,
    now: Lines,
    bytes: usize,
    /// What was wrong with it; the other lines are only read.
    fault: Option<String>,
}

/// What has been said of one program.
#[derive(Debug, Default)]
struct Lines {
    ranks: u32,
    /// Programs in all, and which one this is.
    programs: u32,
    at: u32,
    name: String,
    /// By their numbers.
    words: BTreeMap<u32, String>,
    keys: BTreeMap<(bool, u32), String>,
    values: BTreeMap<(bool, u32), String>,
}

impl Spawning {
    /// The next line, without its end. The wish is complete: what it is, or what is wrong with it, for people.
    pub fn line(&mut self, line: &str) -> Option<Result<Spawn, String>> {
        let (key, value) = line.split_once('=').unwrap_or((line.trim(), ""));
        self.bytes += line.len();
        if self.bytes > MOST_BYTES {
            // Nothing more of it is kept, whatever comes.
            self.fault.get_or_insert_with(|| format!("more than {} MB of arguments", MOST_BYTES >> 20));
        }
        if key == "endcmd" {
            return self.program();
        }
        let number = || value.trim().parse::<u32>().unwrap_or(0);
        match key {
            // These say when it is complete.
            "totspawns" => self.now.programs = number(),
            "spawnssofar" => self.now.at = number(),
            _ if self.fault.is_some() => {}
            "nprocs" => self.now.ranks = number(),
            "execname" => self.now.name = value.to_owned(),
            _ => self.counted(key, value),
        }
        None
    }

    /// `arg3=x`, `preput_key_0=x`, `info_val_1=x`.
    fn counted(&mut self, key: &str, value: &str) {
        let of = |prefix: &str| key.strip_prefix(prefix).and_then(|number| number.parse::<u32>().ok());
        let value = || value.to_owned();
        if let Some(number) = of("arg") {
            self.now.words.insert(number, value());
        }
        for (prefix, is_info) in [("preput_", false), ("info_", true)] {
            if let Some(number) = of(&format!("{prefix}key_")) {
                self.now.keys.insert((is_info, number), value());
            }
            if let Some(number) = of(&format!("{prefix}val_")) {
                self.now.values.insert((is_info, number), value());
            }
        }
    }

    /// All of one program has been said.
    fn program(&mut self) -> Option<Result<Spawn, String>> {
        let said = std::mem::take(&mut self.now);
        let is_last = said.at >= said.programs || said.at >= MOST_PROGRAMS;
        if self.fault.is_none() {
            self.fault = self.add(said).err();
        }
        if !is_last {
            return None;
        }
        let wish = std::mem::take(&mut self.wish);
        Some(match self.fault.take() {
            Some(fault) => Err(fault),
            None => wish.check().map(|()| wish),
        })
    }

    fn add(&mut self, said: Lines) -> Result<(), String> {
        let bytes = |text: &str| ByteBuf::from(text.as_bytes());
        let words = std::iter::once(&said.name).chain(said.words.values()).map(|word| bytes(word)).collect();
        let mut program = Program { ranks: said.ranks, words, directory: None, path: None };
        for (at, key) in &said.keys {
            let value = said.values.get(at).map_or("", String::as_str);
            match (at.0, key.as_str()) {
                // Each program brings the same ones.
                (false, _) if self.wish.programs.is_empty() => self.wish.preput.push((key.clone(), bytes(value))),
                (false, _) => {}
                (true, "wdir") => program.directory = Some(bytes(value)),
                (true, "path") => program.path = Some(bytes(value)),
                (true, "host" | "hosts") => {
                    let hosts: Vec<String> = value.split(',').map(|host| host.trim().to_owned()).collect();
                    if !self.wish.programs.is_empty() && self.wish.hosts != hosts {
                        return Err("all programs of one call have the same host, or none has".into());
                    }
                    self.wish.hosts = hosts;
                }
                // MPI lets a keyword be that nobody knows.
                (true, _) => {}
            }
        }
        self.wish.programs.push(program);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn feed(lines: &[&str]) -> Option<Result<Spawn, String>> {
        let mut spawning = Spawning::default();
        let mut all: Vec<_> = lines.iter().map(|line| spawning.line(line)).collect();
        let last = all.pop().unwrap();
        assert!(all.iter().all(Option::is_none), "{all:?}");
        last
    }

    const TWO: [&str; 22] = [
        "nprocs=3",
        "execname=./a b",
        "totspawns=2",
        "spawnssofar=1",
        "arg2=endcmd",
        "arg1=x=y cmd=abort",
        "argcnt=2",
        "preput_num=1",
        "preput_key_0=PORT",
        "preput_val_0=tag#0$a=b$",
        "info_num=1",
        "info_key_0=wdir",
        "info_val_0=/tmp",
        "endcmd",
        "mcmd=spawn",
        "nprocs=1",
        "execname=b",
        "totspawns=2",
        "spawnssofar=2",
        "preput_key_0=PORT",
        "preput_val_0=tag#0$a=b$",
        "endcmd",
    ];

    #[test]
    fn several_programs_are_one_wish() {
        let wish = feed(&TWO).unwrap().unwrap();
        let words = |i: usize| wish.programs[i].words.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>();
        assert_eq!((words(0).join("|"), words(1).join("|")), ("./a b|x=y cmd=abort|endcmd".into(), "b".into()));
        assert_eq!((wish.programs[0].ranks, wish.programs[1].ranks, wish.ranks()), (3, 1, 4));
        assert_eq!(wish.programs[0].directory, Some(ByteBuf::from("/tmp")));
        assert_eq!(wish.preput, [("PORT".to_owned(), ByteBuf::from("tag#0$a=b$"))], "once");
    }

    #[test]
    fn wishes_that_nobody_can_grant_are_refused_whole() {
        let one = |more: &[&str]| {
            let lines = ["nprocs=1", "execname=a", "totspawns=1", "spawnssofar=1"];
            feed(&[&lines, more, &["endcmd"]].concat()).unwrap()
        };
        assert!(one(&[]).is_ok());
        for bad in ["nprocs=0", "nprocs=-1", "nprocs=70000", "execname=", "arg1=a\0b"] {
            assert!(one(&[bad]).is_err(), "{bad}");
        }
        let long = format!("arg1={}", "x".repeat(MOST_BYTES));
        assert!(one(&[&long]).unwrap_err().contains("1 MB"));
        // A call that goes on for ever ends.
        let mut spawning = Spawning::default();
        let ended = (0..=MOST_PROGRAMS).find_map(|at| {
            let lines = ["nprocs=1", "execname=a", "totspawns=4000000000"].map(str::to_owned);
            let lines = lines.into_iter().chain([format!("spawnssofar={at}"), "endcmd".into()]);
            lines.into_iter().find_map(|line| spawning.line(&line))
        });
        assert!(ended.is_some());
    }

    #[test]
    fn no_line_makes_it_panic_and_what_is_complete_can_be_done() {
        check!().with_type::<Vec<(u8, String)>>().for_each(|lines| {
            let mut spawning = Spawning::default();
            for (kind, text) in lines {
                let keys = ["nprocs=", "execname=a", "arg", "info_key_0=", "info_val_0=", "preput_key_", "", "endcmd"];
                if let Some(Ok(wish)) = spawning.line(&format!("{}{text}", keys[usize::from(*kind) % keys.len()])) {
                    assert_eq!(wish.check(), Ok(()));
                }
            }
        });
    }
}
