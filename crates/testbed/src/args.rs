//! The command lines of `pando testbed`, `pando demo` and `pando bench`.

use crate::bench::{Bench, Wanted, balance, fabric, jobs, launch};
use crate::error::{Error, Result};
use crate::place::{DEFAULT_NAME, ENV_NAME, Shape, check_name};
use std::ffi::OsString;
use std::path::PathBuf;

/// Most nodes of one testbed.
pub const MOST_NODES: usize = 250;

/// One `pando testbed` command.
#[derive(Debug, PartialEq)]
pub enum Verb {
    /// Bring a testbed up.
    Up(Shape),
    /// Run a command at a node.
    Exec(String, Vec<OsString>),
    /// Say how it is.
    Status {
        /// As JSON.
        json: bool,
    },
    /// Cut a node off.
    Cut(String),
    /// Undo cut and stall.
    Heal(String),
    /// Stop a node's machinery, perhaps for some seconds only.
    Stall(String, Option<f64>),
    /// Kill a node or its daemon.
    Kill {
        /// Which node.
        node: String,
        /// Only the daemon.
        daemon: bool,
    },
    /// Start a node's daemon.
    Start(String),
    /// Take everything away.
    Down,
    /// Say what can be said.
    Help,
}

/// The words of a command line, with its options taken out as they are asked for.
struct Words {
    words: Vec<String>,
    rest: Vec<OsString>,
}

impl Words {
    /// Everything after `--`, or for `exec` after the second plain word, is left as it is.
    fn new(args: Vec<OsString>) -> Result<Words> {
        let mut words = Vec::new();
        let mut args = args.into_iter();
        let mut plain = 0;
        let mut value = false;
        for arg in args.by_ref() {
            if arg == "--" {
                break;
            }
            let is_exec = words.iter().any(|w| w == "exec");
            let is_word = !value && !arg.to_string_lossy().starts_with('-');
            value = !value && arg == "--name";
            plain += usize::from(is_word);
            if is_exec && is_word && plain > 2 {
                let rest = std::iter::once(arg).chain(args).collect();
                return Ok(Words { words, rest });
            }
            let word = arg.into_string().map_err(|a| Error::Usage(format!("{a:?} is not text")))?;
            match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => words.extend([name.to_string(), value.to_string()]),
                _ => words.push(word),
            }
        }
        Ok(Words { words, rest: args.collect() })
    }

    fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|w| w != name);
        self.words.len() != before
    }

    fn value(&mut self, name: &str) -> Result<Option<String>> {
        let Some(at) = self.words.iter().position(|w| w == name) else {
            return Ok(None);
        };
        self.words.remove(at);
        if at >= self.words.len() {
            return Err(Error::Usage(format!("{name} wants a value")));
        }
        Ok(Some(self.words.remove(at)))
    }

    fn number(&mut self, name: &str) -> Result<Option<f64>> {
        self.value(name)?.map(|v| number(name, &v)).transpose()
    }

    /// Numbers with commas between them.
    fn numbers(&mut self, name: &str) -> Result<Option<Vec<f64>>> {
        let text = self.value(name)?;
        text.map(|all| all.split(',').map(|v| number(name, v)).collect()).transpose()
    }

    /// The next plain word.
    fn word(&mut self, what: &str) -> Result<String> {
        match self.words.first() {
            Some(w) if w.starts_with('-') => Err(Error::Usage(format!("unknown option `{w}`"))),
            Some(_) => Ok(self.words.remove(0)),
            None => Err(Error::Usage(format!("{what} is missing"))),
        }
    }

    fn end(self) -> Result<()> {
        match self.words.first() {
            Some(w) => Err(Error::Usage(format!("`{w}` is one word too many"))),
            None => Ok(()),
        }
    }
}

fn number(what: &str, text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err(Error::Usage(format!("{what}: `{text}` is not a number above 0"))),
    }
}

/// Bytes from `512M`, `1.5G`, `4096`.
pub fn size(text: &str) -> Result<u64> {
    let trimmed = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (digits, factor) = match trimmed.char_indices().last() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => {
            let power = "kmgt".find(unit.to_ascii_lowercase());
            let power = power.ok_or_else(|| Error::Usage(format!("`{text}`: the units are K, M, G and T")))?;
            (&trimmed[..at], 1024f64.powi(power as i32 + 1))
        }
        _ => (trimmed, 1.0),
    };
    Ok((number("size", digits)? * factor) as u64)
}

/// Parses what follows `pando testbed`: the testbed's name and the verb.
pub fn testbed(args: Vec<OsString>) -> Result<(String, Verb)> {
    let mut words = Words::new(args)?;
    if words.words.is_empty() || words.flag("--help") || words.flag("-h") {
        return Ok((DEFAULT_NAME.into(), Verb::Help));
    }
    let name = match words.value("--name")? {
        Some(name) => name,
        None => std::env::var(ENV_NAME).unwrap_or_else(|_| DEFAULT_NAME.into()),
    };
    check_name(&name)?;
    let verb = match words.word("the verb")?.as_str() {
        "up" => Verb::Up(shape(&mut words)?),
        "exec" => {
            let node = words.word("the node")?;
            let rest = std::mem::take(&mut words.rest);
            if rest.is_empty() {
                return Err(Error::Usage("the command to run is missing".into()));
            }
            Verb::Exec(node, rest)
        }
        "status" => Verb::Status { json: words.flag("--json") },
        "cut" => Verb::Cut(words.word("the node")?),
        "heal" => Verb::Heal(words.word("the node")?),
        "stall" => {
            let node = words.word("the node")?;
            let seconds = if words.words.is_empty() { None } else { Some(words.word("seconds")?) };
            Verb::Stall(node, seconds.map(|s| number("seconds", &s)).transpose()?)
        }
        "kill" => {
            let daemon = words.flag("--daemon");
            Verb::Kill { node: words.word("the node")?, daemon }
        }
        "start" => Verb::Start(words.word("the node")?),
        "down" => Verb::Down,
        "help" => Verb::Help,
        other => return Err(Error::Usage(format!("`{other}` is not a testbed command"))),
    };
    words.end()?;
    Ok((name, verb))
}

fn shape(words: &mut Words) -> Result<Shape> {
    let shape = Shape {
        nodes: 0,
        cpus: words.numbers("--cpus")?.unwrap_or_default(),
        counts_on: None,
        memory: words.value("--memory")?.map(|s| size(&s)).transpose()?,
        delay_ms: words.number("--delay")?,
        rate_mbit: words.number("--rate")?,
        still: words.flag("--no-balance"),
        config: words.value("--config")?.map(PathBuf::from),
    };
    Ok(Shape { nodes: count(&words.word("the number of nodes")?)?, ..shape })
}

fn count(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(n) if (1..=MOST_NODES).contains(&n) => Ok(n),
        _ => Err(Error::Usage(format!("`{text}`: from 1 to {MOST_NODES} nodes"))),
    }
}

/// What `pando demo` is asked for.
#[derive(Debug, PartialEq)]
pub struct Demo {
    /// Nodes.
    pub nodes: usize,
    /// About how long the programs should take, run all together.
    pub seconds: f64,
    /// Print the result as JSON.
    pub json: bool,
}

/// Parses what follows `pando demo`; none when help is wanted.
pub fn demo(args: Vec<OsString>) -> Result<Option<Demo>> {
    let mut words = Words::new(args)?;
    if words.flag("--help") || words.flag("-h") {
        return Ok(None);
    }
    let nodes = words.value("--nodes")?.map_or(Ok(4), |n| count(&n))?;
    let seconds = words.number("--seconds")?.unwrap_or(8.0);
    let json = words.flag("--json");
    words.end()?;
    if nodes < 2 {
        return Err(Error::Usage("a demo of moving needs at least two nodes".into()));
    }
    Ok(Some(Demo { nodes, seconds, json }))
}

/// Parses what follows `pando bench`; none when help is wanted.
pub fn bench(args: Vec<OsString>) -> Result<Option<Bench>> {
    let mut words = Words::new(args)?;
    if words.words.is_empty() || words.flag("--help") || words.flag("-h") {
        return Ok(None);
    }
    if words.words.iter().any(|w| w == "balance") {
        return balanced(words).map(|wanted| Some(Bench::Balance(wanted)));
    }
    if words.words.iter().any(|w| w == "fabric") {
        return of_fabric(words).map(|wanted| Some(Bench::Fabric(wanted)));
    }
    if words.words.iter().any(|w| w == "launch") {
        return of_launch(words).map(|wanted| Some(Bench::Launch(wanted)));
    }
    if words.words.iter().any(|w| w == "jobs") {
        return of_jobs(words).map(|wanted| Some(Bench::Jobs(wanted)));
    }
    let json = words.flag("--json");
    let file = words.value("--file")?.map_or(Ok(1 << 30), |text| size(&text))?;
    let only_files = match words.word("what to measure")?.as_str() {
        "move" => false,
        "files" => true,
        other => {
            let all = "`move`, `files`, `balance`, `fabric`, `launch` and `jobs` are";
            return Err(Error::Usage(format!("`{other}` is not a benchmark that exists; {all}")));
        }
    };
    words.end().map(|()| Some(Bench::Move(Wanted { json, file, only_files })))
}

/// Parses what is said of `pando bench fabric`.
fn of_fabric(mut words: Words) -> Result<fabric::Wanted> {
    let json = words.flag("--json");
    let sizes = words.value("--nodes")?.unwrap_or_else(|| "2,16,64".into());
    let sizes = sizes.split(',').map(count).collect::<Result<Vec<usize>>>()?;
    words.word("what to measure")?;
    words.end()?;
    match sizes.iter().any(|n| *n < 2) {
        true => Err(Error::Usage("a fabric of less than two nodes has nothing to send".into())),
        false => Ok(fabric::Wanted { json, sizes }),
    }
}

/// Parses what is said of `pando bench launch`.
fn of_launch(mut words: Words) -> Result<launch::Wanted> {
    let (json, short) = (words.flag("--json"), words.flag("--short"));
    let sizes = words.value("--nodes")?.unwrap_or_else(|| "1,16,64".into());
    let sizes = sizes.split(',').map(count).collect::<Result<Vec<usize>>>()?;
    words.word("what to measure")?;
    words.end()?;
    Ok(launch::Wanted { json, short, sizes })
}

/// Parses what is said of `pando bench jobs`.
fn of_jobs(mut words: Words) -> Result<jobs::Wanted> {
    let (json, short) = (words.flag("--json"), words.flag("--short"));
    words.word("what to measure")?;
    words.end().map(|()| jobs::Wanted { json, short })
}

/// Sizes of the clusters that are watched at rest; the last one is not in a short run.
const AT_REST: [usize; 3] = [4, 16, 64];

/// Parses what is said of `pando bench balance`.
fn balanced(mut words: Words) -> Result<balance::Wanted> {
    let (json, short) = (words.flag("--json"), words.flag("--short"));
    let said = words.value("--experiment")?;
    let said: Vec<&str> = said.as_deref().unwrap_or("1,2,3,4,rest").split(',').collect();
    let number = |w: &&&str| match w.parse() {
        Ok(n) if (1..=4).contains(&n) => Ok(n),
        _ => Err(Error::Usage(format!("`{w}` is no experiment: there are 1, 2, 3, 4 and rest"))),
    };
    let experiments = said.iter().filter(|w| **w != "rest").map(|w| number(&w)).collect::<Result<Vec<u32>>>()?;
    let whole = |n: Option<f64>, or: u64| n.map_or(or, |n| n as u64);
    let mut set = Vec::new();
    while let Some(change) = words.value("--set")? {
        let parsed = change.split_once('=').and_then(|(key, number)| Some((key.to_owned(), number.parse().ok()?)));
        set.push(parsed.ok_or_else(|| Error::Usage(format!("--set {change}: not KEY=NUMBER")))?);
    }
    let sizes = if short { &AT_REST[..2] } else { &AT_REST[..] };
    let wanted = balance::Wanted {
        json,
        experiments,
        at_rest: if said.contains(&"rest") { sizes.to_vec() } else { Vec::new() },
        nodes: words.value("--nodes")?.map_or(Ok(4), |n| count(&n))?,
        seed: whole(words.number("--seed")?, 1),
        seeds: whole(words.number("--seeds")?, 1).max(1),
        seconds: words.number("--seconds")?.unwrap_or(if short { 20.0 } else { 60.0 }),
        set,
    };
    words.word("what to measure")?;
    words.end()?;
    match wanted.nodes {
        0 | 1 => Err(Error::Usage("nothing can be balanced on less than two nodes".into())),
        _ => Ok(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(String, Verb)> {
        testbed(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn up_with_everything() {
        let line = "up 3 --cpus 0.5,1 --memory=512M --delay 2 --rate 100 --no-balance --config c.toml --name x";
        let (name, verb) = parse(line).unwrap();
        let shape = Shape {
            nodes: 3,
            cpus: vec![0.5, 1.0],
            counts_on: None,
            memory: Some(512 << 20),
            delay_ms: Some(2.0),
            rate_mbit: Some(100.0),
            still: true,
            config: Some("c.toml".into()),
        };
        assert_eq!((name.as_str(), verb), ("x", Verb::Up(shape)));
    }

    #[test]
    fn exec_leaves_the_command_alone() {
        for line in ["exec n1 -- ls --name x", "exec n1 ls --name x"] {
            let (_, verb) = parse(line).unwrap();
            assert_eq!(verb, Verb::Exec("n1".into(), ["ls", "--name", "x"].map(OsString::from).into()), "{line}");
        }
        let (name, verb) = parse("--name t exec n1 ls").unwrap();
        assert_eq!((name.as_str(), verb), ("t", Verb::Exec("n1".into(), vec!["ls".into()])));
    }

    #[test]
    fn kill_and_stall() {
        assert_eq!(parse("kill --daemon n2").unwrap().1, Verb::Kill { node: "n2".into(), daemon: true });
        assert_eq!(parse("stall n2 1.5").unwrap().1, Verb::Stall("n2".into(), Some(1.5)));
        assert_eq!(parse("stall n2").unwrap().1, Verb::Stall("n2".into(), None));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for line in [
            "up",
            "up 0",
            "up x",
            "up 3 --cpus",
            "up 3 --cpus -1",
            "up 3 --cpus 1,",
            "up 3 --wat",
            "exec n1",
            "fly",
            "down n1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4096").unwrap(), 4096);
        assert_eq!(size("1.5G").unwrap(), 3 << 29);
        assert_eq!(size("2KiB").unwrap(), 2048);
        assert!(size("12q").is_err() && size("").is_err() && size("-1M").is_err());
    }

    #[test]
    fn benchmarks_by_name() {
        let parse = |line: &str| bench(line.split(' ').map(OsString::from).collect());
        assert!(matches!(parse("files --file 1M").unwrap(), Some(Bench::Move(w)) if w.only_files && w.file == 1 << 20));
        let line = "balance --experiment 2,rest --short --nodes 3 --set every_ms=500 --set residency_ms=9 --seed 7";
        let Some(Bench::Fabric(w)) = parse("fabric --nodes 2,5 --json").unwrap() else { panic!("another one") };
        assert_eq!((w.json, w.sizes), (true, vec![2, 5]));
        let Some(Bench::Launch(w)) = parse("launch --nodes=1,4 --short").unwrap() else { panic!("another one") };
        assert_eq!((w.json, w.short, w.sizes), (false, true, vec![1, 4]));
        let Some(Bench::Launch(w)) = parse("launch --json").unwrap() else { panic!("another one") };
        assert_eq!((w.json, w.short, w.sizes), (true, false, vec![1, 16, 64]));
        let Some(Bench::Jobs(w)) = parse("jobs --short").unwrap() else { panic!("another one") };
        assert_eq!((w.json, w.short), (false, true));
        let Some(Bench::Balance(w)) = parse(line).unwrap() else { panic!("another one") };
        assert_eq!((w.experiments, w.at_rest, w.nodes, w.seed, w.seeds), (vec![2], vec![4, 16], 3, 7, 1));
        assert_eq!(w.set, [("every_ms".to_string(), 500), ("residency_ms".to_string(), 9)]);
        for wrong in [
            "balance --experiment 5",
            "balance --nodes 1",
            "balance move",
            "balance --set x",
            "jobs --nodes 3",
            "launch 3",
            "launch --nodes 0",
            "swim",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_demo_has_sensible_defaults() {
        assert_eq!(demo(vec![]).unwrap(), Some(Demo { nodes: 4, seconds: 8.0, json: false }));
        assert!(demo(vec!["--nodes".into(), "1".into()]).is_err());
    }
}
