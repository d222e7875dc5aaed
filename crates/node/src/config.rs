//! Configuration: a TOML file whose every key has a default. `pando node --print-config` prints what is in
//! effect, limits included.

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
    /// File systems that other nodes have, too.
    pub files: Files,
    /// For tests of the engine.
    pub test: Test,
}

/// `[membership]`: milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Membership {
    /// Between two heartbeats to each member.
    pub heartbeat_ms: u64,
    /// Silence after which a member is suspect.
    pub suspect_after_ms: u64,
    /// Silence after which it is down.
    pub down_after_ms: u64,
    /// Between two attempts to reach a member.
    pub redial_ms: u64,
}

/// `[guests]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guests {
    /// At most this many; more are refused with a reason.
    pub max: u32,
    /// At most this many that have not proved who they are.
    pub max_unproved: u32,
    /// Milliseconds in which they must.
    pub prove_within_ms: u64,
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSource {
    /// Count the runnable threads of this cgroup (a directory) and take its limits, not the machine's: several nodes on one
    /// machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// CPUs to announce, where the machine's number is not the right one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
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
        let parts = |entry: &String| match entry.split_once('=') {
            Some((name, directory)) => (name.to_owned(), directory.to_owned()),
            None => (entry.clone(), entry.clone()),
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
    /// The processes that this node sees are taken for all there are, though it is in a pid namespace.
    pub whole_machine: bool,
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
            follow: Follow::default(),
            tokens: Tokens::default(),
            load: LoadSource::default(),
            files: Files::default(),
            test: Test::default(),
        }
    }
}

impl Default for Membership {
    fn default() -> Self {
        Membership { heartbeat_ms: 500, suspect_after_ms: 2_000, down_after_ms: 6_000, redial_ms: 500 }
    }
}

impl Default for Guests {
    fn default() -> Self {
        Guests { max: 256, max_unproved: 16, prove_within_ms: 20_000 }
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
    #[error("the configuration: {0}")]
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
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let m = &self.membership;
        if m.heartbeat_ms == 0 || m.suspect_after_ms <= m.heartbeat_ms || m.down_after_ms <= m.suspect_after_ms {
            let text = "[membership] needs 0 < heartbeat_ms < suspect_after_ms < down_after_ms";
            return Err(ConfigError::Value(text.into()));
        }
        Ok(())
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
        (whole.engine_program, whole.load) = (path(), LoadSource { cgroup: path(), cpus: Some(1) });
        let keys = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&example), keys(&flat(&whole.to_toml())));
        let defaults = Config { name: known.name, advertise: known.advertise, ..Config::default() };
        let defaults = Config { engine_program: known.engine_program, load: known.load, ..defaults };
        assert_eq!(example, flat(&defaults.to_toml()));
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(toml::from_str::<Config>("[limits]\nlost_afer_ms = 3").is_err());
        assert!(toml::from_str::<Config>("[membership]\nheartbeet_ms = 3").is_err());
        let bad: Config = toml::from_str("[membership]\nsuspect_after_ms = 100").unwrap();
        assert!(bad.check().is_err());
    }
}
