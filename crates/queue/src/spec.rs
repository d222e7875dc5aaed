//! What a user asks for.

use crate::array::{Array, MOST_TASKS};
use crate::bytes::Bytes;
use crate::depend::{Dependency, MOST_TERMS};
use crate::gres::{Gres, MOST_KINDS};
use crate::times::LONGEST;
use serde::{Deserialize, Serialize};

/// The largest script, and all words of a command together, bytes.
pub const MOST_SCRIPT: usize = 4 << 20;
/// The largest environment, bytes.
pub const MOST_ENVIRONMENT: usize = 4 << 20;
/// Most variables of it.
const MOST_VARIABLES: usize = 20_000;
/// Names of anything.
const MOST_NAME: usize = 256;
/// Paths and patterns.
const MOST_PATH: usize = 4096;
/// Nodes that a job may name.
const MOST_NODES: usize = 65_536;
/// Kinds of limits that a kernel may have.
const MOST_LIMITS: u64 = 64;
/// `--nice` goes so far.
pub const MOST_NICE: i32 = 1_000_000;

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// A script, with its text as it was when it was submitted.
    Script {
        /// The text.
        text: Bytes,
        /// Its arguments.
        arguments: Vec<Bytes>,
    },
    /// A command and its words.
    Words(Vec<Bytes>),
}

impl Default for Work {
    fn default() -> Work {
        Work::Words(Vec::new())
    }
}

/// What a job needs of nodes. Two jobs that need the same are placed alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// At least so many nodes.
    pub nodes_min: u32,
    /// At most so many; as many as it takes otherwise.
    pub nodes_max: Option<u32>,
    /// Ranks in all; as many as there are nodes otherwise.
    pub ranks: Option<u32>,
    /// Ranks of each node.
    pub ranks_per_node: Option<u32>,
    /// CPUs of each rank.
    pub cpus_per_rank: u32,
    /// Megabytes of each node.
    pub memory: u64,
    /// Megabytes for each CPU; the larger one counts.
    pub memory_per_cpu: u64,
    /// Generic resources of each node.
    pub gres: Vec<Gres>,
    /// Things that the cluster has so many of, wherever a job runs.
    pub licences: Vec<Gres>,
    /// These nodes are among them.
    pub wanted: Vec<String>,
    /// These are not.
    pub excluded: Vec<String>,
    /// What each node must be said to have (`--constraint`).
    pub features: Vec<String>,
    /// Nobody else's CPUs are on its nodes: it gets them whole.
    pub exclusive: bool,
    /// The partition; the first one that is configured otherwise.
    pub partition: Option<String>,
    /// A reservation that it is to run in.
    pub reservation: Option<String>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            nodes_min: 1,
            nodes_max: None,
            ranks: None,
            ranks_per_node: None,
            cpus_per_rank: 1,
            memory: 0,
            memory_per_cpu: 0,
            gres: Vec::new(),
            licences: Vec::new(),
            wanted: Vec::new(),
            excluded: Vec::new(),
            features: Vec::new(),
            exclusive: false,
            partition: None,
            reservation: None,
        }
    }
}

/// Whom to tell when a job begins or ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tell {
    /// An address.
    pub mail: Option<String>,
    /// A URL.
    pub webhook: Option<String>,
    /// When it begins.
    pub begin: bool,
    /// When it ends.
    pub end: bool,
    /// When it fails, whichever way.
    pub fail: bool,
    /// When it goes back to the queue.
    pub requeue: bool,
    /// Each task of an array apart, and not the array as one.
    pub each_task: bool,
}

/// A signal before the end of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Its number.
    pub signal: i32,
    /// So long before, milliseconds.
    pub before_ms: u64,
    /// To the script alone, and not to its steps.
    pub script: bool,
}

/// Where files are read and written. Patterns as Slurm has them (`%j`, `%A`, `%a`, `%x`, ...), which whoever starts the job fills in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Files {
    /// Standard output.
    pub output: Option<Bytes>,
    /// Standard error; with the output otherwise.
    pub error: Option<Bytes>,
    /// Standard input.
    pub input: Option<Bytes>,
    /// They are appended to, and not begun anew.
    pub append: bool,
}

/// A job as it was asked for. Everything that is not said has the default of an ordinary job: one rank on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// What people call it.
    pub name: String,
    /// Whose it is: the caller as the kernel knows it, and not what he says.
    pub user: String,
    /// Whose share it is taken from; the user's own name otherwise.
    pub account: String,
    /// Quality of service, of those that are configured.
    pub quality: Option<String>,
    /// What runs.
    pub work: Work,
    /// Where.
    pub directory: Bytes,
    /// Its environment.
    pub environment: Vec<(Bytes, Bytes)>,
    /// Files.
    pub files: Files,
    /// Limits of its processes, as setrlimit(2) has them: number, soft, hard. What is not there is as its node has it.
    pub limits: Vec<(u32, u64, u64)>,
    /// What it needs.
    pub request: Request,
    /// It is ended after so long, milliseconds; the partition's default otherwise.
    pub limit_ms: Option<u64>,
    /// Its user lets others go first (or, below 0 and by an operator, last).
    pub nice: i32,
    /// Not before.
    pub begin_at: Option<u64>,
    /// It must have ended then.
    pub deadline: Option<u64>,
    /// It waits until it is released.
    pub hold: bool,
    /// It may be run again from the beginning when a node is lost.
    pub requeue: bool,
    /// What it waits for.
    pub dependency: Dependency,
    /// Its tasks, if it is an array.
    pub array: Option<Array>,
    /// Whom to tell.
    pub tell: Tell,
    /// What the user notes.
    pub comment: String,
    /// What the user sorts his jobs by (`--wckey`); it has no meaning here.
    pub wckey: String,
    /// What it is sent before its time is over.
    pub signal: Option<Warning>,
    /// It is an allocation for somebody who waits elsewhere: it ends when he is gone (who sees to that is the caller).
    pub tied: bool,
    /// Whoever submits it twice with the same words here, because the first answer did not come, has one job; empty: each time is another job.
    pub ticket: String,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            name: String::new(),
            user: String::new(),
            account: String::new(),
            quality: None,
            work: Work::default(),
            directory: Bytes::from("/"),
            environment: Vec::new(),
            files: Files::default(),
            limits: Vec::new(),
            request: Request::default(),
            limit_ms: None,
            nice: 0,
            begin_at: None,
            deadline: None,
            hold: false,
            requeue: true,
            dependency: Dependency::default(),
            array: None,
            tell: Tell::default(),
            comment: String::new(),
            wckey: String::new(),
            signal: None,
            tied: false,
            ticket: String::new(),
        }
    }
}

type Checked = Result<(), String>;

fn name(what: &str, text: &str) -> Checked {
    match text.len() <= MOST_NAME && !text.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(format!("{what} has {MOST_NAME} bytes at most, and no control characters")),
    }
}

fn within(what: &str, number: u64, least: u64, most: u64) -> Checked {
    match (least..=most).contains(&number) {
        true => Ok(()),
        false => Err(format!("{what} is {number}: from {least} to {most} is possible")),
    }
}

fn names(what: &str, all: &[String]) -> Checked {
    within(&format!("the number of {what}"), all.len() as u64, 0, MOST_NODES as u64)?;
    match all.iter().any(String::is_empty) {
        true => Err(format!("one of the {what} has no name")),
        false => all.iter().try_for_each(|n| name(&format!("each of the {what}"), n)),
    }
}

fn bytes(what: &str, bytes: &Bytes, most: usize) -> Checked {
    match bytes.0.contains(&0) {
        true => Err(format!("{what} has a byte 0 in it, which no program can be given")),
        false => within(&format!("the size of {what}"), bytes.0.len() as u64, 0, most as u64),
    }
}

impl Request {
    /// The fewest CPUs that it takes in all (more if it is exclusive).
    pub fn least_cpus(&self) -> u64 {
        u64::from(self.least_ranks()) * u64::from(self.cpus_per_rank)
    }

    /// The fewest ranks.
    pub fn least_ranks(&self) -> u32 {
        let nodes = self.least_nodes();
        match (self.ranks, self.ranks_per_node) {
            (Some(ranks), _) => ranks,
            (None, Some(each)) => nodes.saturating_mul(each),
            (None, None) => nodes,
        }
    }

    /// The fewest nodes.
    pub fn least_nodes(&self) -> u32 {
        let by_ranks = match (self.ranks, self.ranks_per_node) {
            (Some(ranks), Some(each)) => ranks.div_ceil(each.max(1)),
            _ => 1,
        };
        self.nodes_min.max(by_ranks).max(self.wanted.len() as u32)
    }

    fn check(&self) -> Checked {
        let (most, ranks) = (MOST_NODES as u64, 16 << 20);
        within("the number of nodes (--nodes)", self.nodes_min.into(), 1, most)?;
        self.nodes_max.map_or(Ok(()), |n| within("the most nodes (--nodes)", n.into(), self.nodes_min.into(), most))?;
        self.ranks.map_or(Ok(()), |n| within("the number of ranks (--ntasks)", n.into(), 1, ranks))?;
        self.ranks_per_node.map_or(Ok(()), |n| within("ranks per node (--ntasks-per-node)", n.into(), 1, 65_536))?;
        within("CPUs per rank (--cpus-per-task)", self.cpus_per_rank.into(), 1, 65_536)?;
        within("memory (--mem)", self.memory, 0, 1 << 40)?;
        within("memory per CPU (--mem-per-cpu)", self.memory_per_cpu, 0, 1 << 40)?;
        names("nodes (--nodelist)", &self.wanted)?;
        names("nodes (--exclude)", &self.excluded)?;
        names("features (--constraint)", &self.features)?;
        for (what, list) in [("--gres", &self.gres), ("--licenses", &self.licences)] {
            within(&format!("the number of kinds ({what})"), list.len() as u64, 0, MOST_KINDS as u64)?;
            list.iter().try_for_each(|g| name(&format!("each kind ({what})"), &g.kind))?;
        }
        if let Some(node) = self.wanted.iter().find(|n| self.excluded.contains(n)) {
            return Err(format!("node {node} is both wanted (--nodelist) and excluded (--exclude)"));
        }
        if (1..self.wanted.len()).any(|i| self.wanted[..i.min(64)].contains(&self.wanted[i])) {
            return Err("a node is named twice (--nodelist)".into());
        }
        let least = self.least_nodes();
        if self.nodes_max.is_some_and(|most| most < least) {
            return Err(format!(
                "it needs {least} nodes for its ranks or wanted nodes, and wants {} at most",
                self.nodes_max.unwrap_or(0)
            ));
        }
        if self.ranks.is_some_and(|ranks| ranks < least) {
            return Err(format!(
                "{} ranks are fewer than {least} nodes: each node has one at least",
                self.ranks.unwrap_or(0)
            ));
        }
        within("the number of ranks", self.least_ranks().into(), 1, ranks)
    }
}

impl Spec {
    /// Everything is within its bounds and fits together; the error is for people.
    pub fn check(&self) -> Result<(), String> {
        let texts = [
            ("the name", &self.name),
            ("the user", &self.user),
            ("the account", &self.account),
            ("the key (--wckey)", &self.wckey),
        ];
        texts.into_iter().try_for_each(|(what, text)| name(what, text))?;
        name("the ticket", &self.ticket)?;
        within("the size of the comment", self.comment.len() as u64, 0, MOST_PATH as u64)?;
        if self.user.is_empty() {
            return Err("a job is somebody's: it has no user".into());
        }
        let named =
            [&self.quality, &self.request.partition, &self.request.reservation, &self.tell.mail, &self.tell.webhook];
        named.iter().filter_map(|n| n.as_ref()).try_for_each(|n| name("each name", n))?;
        self.check_work()?;
        self.request.check()?;
        self.limit_ms.map_or(Ok(()), |ms| within("the time limit in milliseconds (--time)", ms, 1, LONGEST))?;
        let signal = self.signal.map_or(1, |s| s.signal);
        within("the signal (--signal)", u64::try_from(signal).unwrap_or(0), 1, 64)?;
        within("the number of limits", self.limits.len() as u64, 0, MOST_LIMITS)?;
        within("--nice", u64::from(self.nice.unsigned_abs()), 0, MOST_NICE as u64)?;
        within("the number of dependencies", self.dependency.terms.len() as u64, 0, MOST_TERMS as u64)?;
        if let Some(array) = &self.array {
            within("the number of tasks (--array)", array.tasks.len(), 1, MOST_TASKS.into())?;
            within("tasks at a time (--array)", array.at_once.unwrap_or(1).into(), 1, u32::MAX.into())?;
        }
        match (self.deadline, self.begin_at.unwrap_or(0), self.limit_ms.unwrap_or(0)) {
            (Some(end), begin, limit) if end < begin.saturating_add(limit) => {
                Err("it can't begin (--begin), take its time (--time) and end by its deadline (--deadline)".into())
            }
            _ => Ok(()),
        }
    }

    fn check_work(&self) -> Checked {
        let words = match &self.work {
            Work::Script { text, arguments } => {
                within("the size of the script", text.0.len() as u64, 1, MOST_SCRIPT as u64)?;
                arguments
            }
            Work::Words(words) if words.first().is_none_or(|w| w.0.is_empty()) => {
                return Err("there is nothing to run: say a script or a command".into());
            }
            Work::Words(words) => words,
        };
        words.iter().try_for_each(|word| bytes("a word of the command", word, MOST_SCRIPT))?;
        within("the size of the command", words.iter().map(|w| w.0.len() as u64 + 1).sum(), 0, MOST_SCRIPT as u64)?;
        if self.directory.0.first() != Some(&b'/') {
            return Err("the directory (--chdir) is not a whole path: it begins with /".into());
        }
        bytes("the directory", &self.directory, MOST_PATH)?;
        let files = [&self.files.output, &self.files.error, &self.files.input];
        files.iter().filter_map(|f| f.as_ref()).try_for_each(|f| bytes("a file's name", f, MOST_PATH))?;
        within("the number of variables", self.environment.len() as u64, 0, MOST_VARIABLES as u64)?;
        let size = self.environment.iter().map(|(n, v)| (n.0.len() + v.0.len() + 2) as u64).sum();
        within("the size of the environment", size, 0, MOST_ENVIRONMENT as u64)?;
        for (name, value) in &self.environment {
            if name.0.is_empty() || name.0.contains(&b'=') {
                return Err(format!("a variable can't be called {name:?}"));
            }
            bytes("a variable's name", name, MOST_ENVIRONMENT)?;
            bytes("a variable", value, MOST_ENVIRONMENT)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A job of `true`.
    pub(crate) fn spec(user: &str) -> Spec {
        Spec { user: user.into(), work: Work::Words(vec!["true".into()]), ..Spec::default() }
    }

    #[test]
    fn bounds() {
        assert_eq!(spec("ann").check(), Ok(()));
        let refused = |change: &dyn Fn(&mut Spec)| {
            let mut spec = spec("ann");
            change(&mut spec);
            spec.check().unwrap_err()
        };
        type Change<'a> = &'a dyn Fn(&mut Spec);
        let tests: [(&str, Change); 14] = [
            ("no user", &|s| s.user.clear()),
            ("control", &|s| s.name = "a\nb".into()),
            ("--nodes", &|s| s.request.nodes_min = 0),
            ("--nodes", &|s| s.request.nodes_max = Some(0)),
            ("fewer than 4 nodes", &|s| (s.request.nodes_min, s.request.ranks) = (4, Some(3))),
            ("--cpus-per-task", &|s| s.request.cpus_per_rank = 0),
            ("both wanted", &|s| (s.request.wanted, s.request.excluded) = (vec!["a".into()], vec!["a".into()])),
            ("twice", &|s| s.request.wanted = vec!["a".into(), "a".into()]),
            ("--time", &|s| s.limit_ms = Some(0)),
            ("deadline", &|s| (s.limit_ms, s.deadline) = (Some(10), Some(9))),
            ("nothing to run", &|s| s.work = Work::Words(vec!["".into()])),
            ("byte 0", &|s| s.work = Work::Words(vec!["a\0".into()])),
            ("can't be called", &|s| s.environment = vec![("a=b".into(), "c".into())]),
            ("--nice", &|s| s.nice = i32::MIN),
        ];
        for (word, change) in tests {
            let why = refused(change);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn stored_and_read_again() {
        let mut spec = spec("ann");
        spec.work = Work::Script { text: vec![0xff, b'a'].into(), arguments: vec!["x".into()] };
        spec.array = Some(Array::read("1-9:2%3").unwrap());
        spec.dependency = Dependency::read("afterok:3").unwrap();
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
        assert_eq!(postcard::from_bytes::<Spec>(&postcard::to_stdvec(&spec).unwrap()).unwrap(), spec);
        // What a later version adds, an earlier one's records do not have.
        assert_eq!(serde_json::from_str::<Spec>("{}").unwrap(), Spec::default());
    }
}
