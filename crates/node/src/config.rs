//! Configuration: a TOML file whose every key has a default. `pando node --print-config` prints what is in
//! effect, limits included.

mod about;
mod check;
mod fabric;
mod gang;
mod queue;

pub use about::{About, LONGEST_WORD};
pub use check::doubts;
pub use fabric::Fabric;
pub use gang::Gang;
pub use queue::{EtcdStore, Queue};

use pando_migrate::control::Limits;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The port that a node listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7117;

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// This node's name; the identity has the last word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `ADDR:PORT` for other nodes.
    pub listen: String,
    /// What to tell others instead of `listen`, where addresses are translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Program to start instead of this one as `__deputy` and `__guest`. For tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_program: Option<PathBuf>,
    /// Who is a member and lives.
    pub membership: Membership,
    /// Time limits of the engine.
    pub limits: Limits,
    /// Processes of other nodes here.
    pub guests: Guests,
    /// Connections from other machines.
    pub connections: Connections,
    /// Requests to move.
    pub moves: Moves,
    /// Children, and programs after exec.
    pub follow: Follow,
    /// Join tokens.
    pub tokens: Tokens,
    /// How busy this node is.
    pub load: LoadSource,
    /// Figures for Prometheus.
    pub metrics: Metrics,
    /// Moves that nobody asked for; `every_ms = 0` for none.
    pub balance: pando_balance::Settings,
    /// The node's own user, who comes first.
    pub owner: Owner,
    /// File systems that other nodes have, too.
    pub files: Files,
    /// The three primitives.
    pub fabric: Fabric,
    /// Parallel jobs.
    pub jobs: Jobs,
    /// Batch jobs.
    pub queue: Queue,
    /// See there.
    pub gang: Gang,
    /// What this node has besides CPUs and memory.
    pub node: About,
    /// For tests of the engine.
    pub test: Test,
}

/// `[membership]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Membership {
    /// Each so many milliseconds one member is asked whether it lives.
    pub probe_ms: u64,
    /// Within so many it answers, or others ask it, too. Less than half of `probe_ms`.
    pub answer_ms: u64,
    /// One that nobody heard of is suspect for so many, and then down.
    pub suspect_ms: u64,
    /// Seconds after which one that is down is no longer looked for.
    pub forget_s: u64,
    /// Each so many milliseconds loads are told to some members.
    pub tell_ms: u64,
    /// To so many.
    pub tell_whom: usize,
    /// Of so many nodes, this one first.
    pub tell_most: usize,
    /// Loads of so many nodes are known at a time.
    pub window: usize,
    /// None that is older than so many milliseconds.
    pub oldest_ms: u64,
}

/// `[guests]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guests {
    /// At most this many; more are refused with a reason.
    pub max: u32,
    /// Of these nodes only; empty: of all.
    pub from: Vec<String>,
    /// No more are taken in by themselves while so many threads want to run for each CPU; none: whatever balancing says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_load: Option<f64>,
    /// At most this many that have not proved who they are.
    pub max_unproved: u32,
    /// Milliseconds in which they must.
    pub prove_within_ms: u64,
}

/// `[owner]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Owner {
    /// Terminals and devices whose use shows that the owner is at work (with `*`); empty: nobody looks.
    pub devices: Vec<String>,
    /// Seconds without any use after which the owner is gone.
    pub idle_s: u64,
}

/// `[connections]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Connections {
    /// At most this many that have not said what they want.
    pub max_waiting: u32,
    /// The same from one address.
    pub max_waiting_per_address: u32,
    /// Milliseconds for the ClientHello.
    pub hello_within_ms: u64,
    /// Milliseconds for each later step of a handshake.
    pub handshake_within_ms: u64,
    /// Local API connections of one user at a time.
    pub max_local_per_user: u32,
    /// Connections to other daemons that are kept.
    pub max_links: u32,
    /// One that nobody uses is closed after so many milliseconds.
    pub idle_ms: u64,
    /// One whose other end does not answer is closed after so many.
    pub silence_ms: u64,
    /// Between two attempts to reach a member.
    pub redial_ms: u64,
}

/// `[jobs]`: parallel jobs that begin at other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// Ranks of other nodes' jobs run here.
    pub accept: bool,
    /// Only those of these nodes; none: of all.
    pub from: Vec<String>,
    /// Those of another node's root, too, as root.
    pub root: bool,
    /// Most children of a node in a job's tree.
    pub arity: u8,
    /// Milliseconds after which a node of which nothing is heard is lost, and the job with it.
    pub lost_after_ms: u64,
    /// Megabytes of programs, libraries and other files that came with jobs and are kept.
    pub cache_mb: u64,
}

/// `[moves]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Moves {
    /// Milliseconds after which a request stops waiting for its end.
    pub wait_ms: u64,
}

/// `[follow]`: what begins at home under a process that was sent to another node goes there, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Follow {
    /// Milliseconds of CPU time after which it does; 0 for never. Twice as many after each return.
    pub after_ms: u64,
}

/// `[tokens]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Seconds that a join token lives.
    pub valid_s: u64,
    /// At most this many unused ones.
    pub max_open: u32,
}

/// `[load]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSource {
    /// Count the runnable threads of this cgroup (a directory) and take its limits, not the machine's: several nodes on one
    /// machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Take the memory limit of this cgroup, where that is another one (version 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_cgroup: Option<PathBuf>,
    /// CPUs to announce, where the machine's number is not the right one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// How fast one CPU is, 1.0 being usual, where it is not to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Milliseconds between two looks.
    pub every_ms: u64,
}

/// `[metrics]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// `ADDR:PORT` where Prometheus finds `/metrics`. Who can connect there sees the nodes and how busy they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
}

/// `[files]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// Directories with the same file system at several nodes, which declare each: `DIRECTORY`, or `NAME=DIRECTORY` where it is elsewhere. Guests read
    /// its files here, not from home.
    pub shared: Vec<String>,
}

impl Files {
    /// Names and directories.
    pub fn shared_directories(&self) -> Vec<(String, String)> {
        // "/mnt/data/" at one node and "/mnt/data" at another are the same.
        let bare = |path: &str| match path.trim_end_matches('/') {
            "" if path.starts_with('/') => "/".to_owned(),
            bare => bare.to_owned(),
        };
        let parts = |entry: &String| match entry.split_once('=') {
            Some((name, directory)) => (bare(name), bare(directory)),
            None => (bare(entry), bare(entry)),
        };
        self.shared.iter().map(parts).collect()
    }
}

/// `[test]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Test {
    /// Helpers stand still in the phases that files in the state's directory `holds` name.
    pub holds: bool,
    /// Home's copies of pages that are abroad are always given back, not only when memory is short.
    pub release: bool,
    /// The processes that this node sees are taken for all there are, though it is in a pid namespace.
    pub whole_machine: bool,
    /// All processes that are known here stand still for moments, whatever memory there is.
    pub still: bool,
    /// Of a thousand datagrams of multicast so many are taken for lost.
    pub lose_permille: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            name: None,
            listen: format!("0.0.0.0:{DEFAULT_PORT}"),
            advertise: None,
            engine_program: None,
            membership: Membership::default(),
            limits: Limits::default(),
            guests: Guests::default(),
            connections: Connections::default(),
            moves: Moves::default(),
            fabric: Fabric::default(),
            jobs: Jobs::default(),
            queue: Queue::default(),
            gang: Gang::default(),
            node: About::default(),
            follow: Follow::default(),
            tokens: Tokens::default(),
            load: LoadSource::default(),
            metrics: Metrics::default(),
            balance: pando_balance::Settings::default(),
            owner: Owner::default(),
            files: Files::default(),
            test: Test::default(),
        }
    }
}

impl Default for Membership {
    fn default() -> Self {
        Membership {
            probe_ms: 1_000,
            answer_ms: 300,
            suspect_ms: 3_000,
            forget_s: 24 * 3_600,
            tell_ms: 500,
            tell_whom: 2,
            tell_most: 32,
            window: 256,
            oldest_ms: 30_000,
        }
    }
}

impl Default for Jobs {
    fn default() -> Self {
        Jobs { accept: true, from: Vec::new(), root: false, arity: 8, lost_after_ms: 10_000, cache_mb: 2048 }
    }
}

impl Default for LoadSource {
    fn default() -> Self {
        LoadSource { cgroup: None, memory_cgroup: None, cpus: None, speed: None, every_ms: 250 }
    }
}

impl Default for Owner {
    fn default() -> Self {
        Owner { devices: Vec::new(), idle_s: 300 }
    }
}

impl Default for Guests {
    fn default() -> Self {
        Guests { max: 256, from: Vec::new(), max_load: None, max_unproved: 16, prove_within_ms: 20_000 }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            max_waiting: 256,
            max_waiting_per_address: 64,
            hello_within_ms: 3_000,
            handshake_within_ms: 5_000,
            max_local_per_user: 256,
            max_links: 128,
            idle_ms: 60_000,
            silence_ms: 5_000,
            redial_ms: 500,
        }
    }
}

impl Default for Moves {
    fn default() -> Self {
        Moves { wait_ms: 120_000 }
    }
}

impl Default for Follow {
    fn default() -> Self {
        Follow { after_ms: 100 }
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens { valid_s: 3_600, max_open: 64 }
    }
}

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It could not be read.
    #[error("the configuration {}: {cause}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// It is not what it should be.
    #[error("the configuration {}: {cause}`pando node --print-config` shows every key", file.display())]
    Parse {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        cause: Box<toml::de::Error>,
    },
    /// A value that can't work.
    #[error("{0}")]
    Value(String),
}

impl Config {
    /// Reads `file`; one that is missing is an error only when it was `asked` for.
    pub fn load(file: &Path, asked: bool) -> Result<Self, ConfigError> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !asked => {
                return Ok(Config::default());
            }
            Err(cause) => {
                return Err(ConfigError::Read { file: file.to_owned(), cause });
            }
        };
        let config: Config =
            toml::from_str(&text).map_err(|e| ConfigError::Parse { file: file.to_owned(), cause: Box::new(e) })?;
        check::check(&config)
            .map_err(|what| ConfigError::Value(format!("the configuration {}: {what}", file.display())))?;
        Ok(config)
    }

    /// Whether this can work; what does not is named, with what to write instead.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::check(self).map_err(ConfigError::Value)
    }

    /// As a file.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_else(|e| format!("# {e}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_printed_can_be_read() {
        let text = Config::default().to_toml();
        let again: Config = toml::from_str(&text).unwrap();
        assert_eq!(again.to_toml(), text);
        assert!(text.contains("lost_after_ms = 10000"), "{text}");
    }

    /// Keys with their values, those of sections as `section.key`.
    fn flat(text: &str) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (key, value) in text.parse::<toml::Table>().unwrap() {
            match value {
                toml::Value::Table(section) => {
                    all.extend(section.into_iter().map(|(k, v)| (format!("{key}.{k}"), v.to_string())))
                }
                value => drop(all.insert(key, value.to_string())),
            }
        }
        all
    }

    #[test]
    fn the_example_names_every_key_with_its_default() {
        let text = include_str!("../../../dist/pando.toml");
        let is_key = |line: &str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let uncommented: Vec<&str> =
            text.lines().map(|l| l.strip_prefix("# ").filter(|rest| is_key(rest)).unwrap_or(l)).collect();
        let example = flat(&uncommented.join("\n"));
        assert_eq!(toml::from_str::<Config>(text).unwrap().to_toml(), Config::default().to_toml(), "all is commented");
        let known: Config = toml::from_str(&uncommented.join("\n")).unwrap();
        // Those without a default are not printed otherwise.
        let path = || Some(PathBuf::from("x"));
        let mut whole = Config { name: Some("x".into()), advertise: Some("x".into()), ..Config::default() };
        (whole.engine_program, whole.load) =
            (path(), LoadSource { cgroup: path(), memory_cgroup: path(), ..LoadSource::default() });
        (whole.load.cpus, whole.load.speed) = (Some(2.0), Some(1.0));
        whole.metrics.listen = Some("x".into());
        whole.guests.max_load = Some(1.5);
        whole.queue.node = Some("x".into());
        (whole.node.scratch, whole.node.scratch_mb) = (path(), Some(1));
        (whole.queue.prolog, whole.queue.epilog, whole.queue.mailer) = (path(), path(), path());
        whole.queue.etcd = EtcdStore::default().with_all("x");
        let keys = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&example), keys(&flat(&whole.to_toml())));
        let defaults = Config { name: known.name, advertise: known.advertise, ..Config::default() };
        let defaults =
            Config { engine_program: known.engine_program, load: known.load, metrics: known.metrics, ..defaults };
        let guests = Guests { max_load: known.guests.max_load, ..Guests::default() };
        let Queue { node, prolog, epilog, mailer, etcd, .. } = known.queue;
        let etcd = EtcdStore::default().like(etcd);
        let queue = Queue { node, prolog, epilog, mailer, etcd, ..Queue::default() };
        let node = About { scratch: known.node.scratch, scratch_mb: known.node.scratch_mb, ..About::default() };
        let defaults = Config { queue, guests, node, ..defaults };
        assert_eq!(example, flat(&defaults.to_toml()));
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(toml::from_str::<Config>("[limits]\nlost_afer_ms = 3").is_err());
        assert!(toml::from_str::<Config>("[membership]\nheartbeet_ms = 3").is_err());
    }

    #[test]
    fn a_value_that_can_not_work_is_refused_by_name_with_what_to_write() {
        let says = |text: &str| toml::from_str::<Config>(text).unwrap().check().map_err(|e| e.to_string());
        for (text, parts) in [
            ("[membership]\nanswer_ms = 900", ["answer_ms <= probe_ms / 2", "900 and 1000"]),
            ("[membership]\ntell_ms = 0", ["[membership] tell_ms = 0", "from 1 to"]),
            ("[membership]\ntell_whom = 0", ["[membership] tell_whom = 0", "from 1"]),
            ("[membership]\ntell_most = 300", ["[membership] tell_most = 300", "from 1 to"]),
            ("[membership]\nwindow = 31", ["tell_most <= window", "32 and 31"]),
            ("[membership]\nforget_s = 0", ["[membership] forget_s = 0", "seconds"]),
            ("[connections]\nredial_ms = 0", ["[connections] redial_ms = 0", "from 1 to"]),
            ("[connections]\nmax_links = 0", ["[connections] max_links = 0", "from 1"]),
            ("[load]\nevery_ms = 0", ["[load] every_ms = 0", "from 1 to"]),
            ("[load]\nspeed = -1.0", ["[load] speed = -1", "above 0"]),
            ("[load]\nmemory_cgroup = \"n1\"", ["[load] memory_cgroup = \"n1\"", "whole path"]),
            ("[balance]\nat_once = 0", ["[balance] at_once = 0", "[balance] every_ms = 0"]),
            ("[balance]\nfree_milli = 2000", ["[balance] free_milli = 2000", "from 1 to 1000"]),
            ("[limits]\nlost_after_ms = 0", ["[limits] lost_after_ms = 0", "milliseconds"]),
            ("[limits]\nfreeze_ms = 9000000000", ["[limits] freeze_ms = 9000000000", "to 2147483647"]),
            ("[limits]\nguest_threads = 0", ["[limits] guest_threads = 0", "from 1 to 8192"]),
            ("[limits]\nguest_threads = 9000", ["[limits] guest_threads = 9000", "from 1 to 8192"]),
            ("[guests]\nmax_unproved = 0", ["[guests] max_unproved = 0", "[guests] max = 0"]),
            ("[connections]\nmax_waiting = 0", ["[connections] max_waiting = 0", "from 1"]),
            ("[connections]\nmax_local_per_user = 0", ["[connections] max_local_per_user = 0", "from 1"]),
            ("[moves]\nwait_ms = 0", ["[moves] wait_ms = 0", "milliseconds"]),
            ("[tokens]\nvalid_s = 0", ["[tokens] valid_s = 0", "seconds"]),
            ("[load]\ncpus = 0.0", ["[load] cpus = 0", "above 0"]),
            ("[load]\ncgroup = \"n1\"", ["[load] cgroup = \"n1\"", "whole path"]),
            ("engine_program = \"pando\"", ["engine_program = \"pando\"", "whole path"]),
            ("[metrics]\nlisten = \"9117\"", ["[metrics] listen = \"9117\"", "ADDRESS:PORT"]),
            ("listen = \"7117\"", ["listen = \"7117\"", "ADDRESS:PORT"]),
            ("listen = \"0.0.0.0:99999\"", ["listen = \"0.0.0.0:99999\"", "ADDRESS:PORT"]),
            ("[fabric]\nmulticast = \"10.0.0.1:7118\"", ["multicast = \"10.0.0.1:7118\"", "\"off\""]),
            ("[fabric]\nlibfabric = \"\"", ["[fabric] libfabric = \"\"", "\"off\""]),
            ("[fabric]\nlibfabric = \"shm\"", ["[fabric] libfabric = \"shm\"", "\"tcp\""]),
            ("[fabric]\nlibfabric_file = \"lib/x.so\"", ["libfabric_file = \"lib/x.so\"", "from /"]),
            ("[fabric]\ndatagram = 70000", ["[fabric] datagram = 70000", "from 576 to 60000"]),
            ("advertise = \"203.0.113.7\"", ["advertise = \"203.0.113.7\"", "ADDRESS:PORT"]),
            ("advertise = \"203.0.113.7:0\"", ["advertise = \"203.0.113.7:0\"", "ADDRESS:PORT"]),
        ] {
            let said = says(text).unwrap_err();
            assert!(parts.iter().all(|p| said.contains(p)), "{text}: {said}");
        }
        for good in [
            "",
            "[guests]\nmax = 0",
            "[fabric]\nmulticast = \"off\"",
            "listen = \"[::1]:0\"",
            "advertise = \"host.example:7117\"",
        ] {
            assert_eq!(says(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn shared_directories_are_whole_plain_and_named_once() {
        let says = |list: &[&str]| {
            let files = Files { shared: list.iter().map(|s| (*s).to_owned()).collect() };
            Config { files, ..Config::default() }.check().map_err(|e| e.to_string())
        };
        for (list, parts) in [
            (&["data"][..], ["[files] shared has \"data\"", "begin with /"]),
            (&["x=data"], ["[files] shared has \"x=data\"", "begin with /"]),
            (&["/mnt/a=b"], ["[files] shared has \"/mnt/a=b\"", "begin with /"]),
            (&["/mnt/../data"], ["[files] shared has \"/mnt/../data\"", "`..`"]),
            (&["/mnt//data"], ["[files] shared has \"/mnt//data\"", "`//`"]),
            (&["=/mnt"], ["[files] shared has \"=/mnt\"", "no name"]),
            (&["/mnt", "/mnt/"], ["[files] shared has \"/mnt/\"", "twice"]),
            (&["x=/mnt", "x=/srv"], ["the name \"x\" is there twice", "\"NAME=/srv\""]),
            (&["x=/mnt", "y=/mnt"], ["[files] shared has \"y=/mnt\"", "the directory \"/mnt\" is there twice"]),
        ] {
            let said = says(list).unwrap_err();
            assert!(parts.iter().all(|p| said.contains(p)), "{list:?}: {said}");
        }
        assert_eq!(says(&["/mnt/data", "/mnt", "x=/srv/", "/"]), Ok(()));
        let one = Files { shared: vec!["/mnt/data/".into(), "x=/".into()] }.shared_directories();
        assert_eq!(one, [("/mnt/data".into(), "/mnt/data".into()), ("x".into(), "/".into())]);
    }
}
