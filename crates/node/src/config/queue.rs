//! Who keeps the queue of batch jobs, and its rules.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where many systems keep the authorities that they trust.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// `[queue.etcd]`: where the journal is that outlives the node that keeps the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdStore {
    /// The members of etcd, as URLs; none: the journal is in a file of the one node that keeps the queue.
    pub endpoints: Vec<String>,
    /// What all its keys begin with; the cluster's name follows.
    pub prefix: String,
    /// Milliseconds after which a keeper that says nothing is none any more; etcd counts whole seconds.
    pub lease_ms: u64,
    /// etcd is asked to forget what was before, every five minutes. Not where others who use it do that.
    pub compact: bool,
    /// A user of etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file with his password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The authorities that `https://` is trusted for.
    pub roots: PathBuf,
    /// This node's own certificate, where etcd wants one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Default for EtcdStore {
    fn default() -> Self {
        EtcdStore {
            endpoints: Vec::new(),
            prefix: "/pando".into(),
            lease_ms: 5000,
            compact: true,
            user: None,
            password_file: None,
            roots: ROOTS.into(),
            certificate: None,
            key: None,
        }
    }
}

impl EtcdStore {
    /// Is everything within its bounds? The error is for people.
    pub fn check(&self) -> Result<(), String> {
        for url in &self.endpoints {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['/', '@', ' '])) {
                let text = "write URLs of etcd's members, for example \"http://10.0.0.1:2379\"";
                return Err(format!("[queue.etcd] endpoints has {url:?}: {text}"));
            }
        }
        if !self.prefix.starts_with('/') || self.prefix.ends_with('/') || self.prefix.len() > 200 {
            return Err(format!("[queue.etcd] prefix = {:?}: write one like \"/pando\"", self.prefix));
        }
        // etcd's own shortest lease.
        if !(2000..=600_000).contains(&self.lease_ms) {
            return Err(format!("[queue.etcd] lease_ms = {}: write milliseconds, from 2000 to 600000", self.lease_ms));
        }
        let both = [
            ("user", self.user.is_some(), "password_file", self.password_file.is_some()),
            ("certificate", self.certificate.is_some(), "key", self.key.is_some()),
        ];
        match both.iter().find(|(_, one, _, other)| one != other) {
            Some((one, _, other, _)) => Err(format!("[queue.etcd] {one} and {other} go together: write both, or none")),
            None => Ok(()),
        }
    }
}

/// `[queue]`: batch jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// The node that keeps the cluster's queue; none: the one that made the cluster.
    pub node: Option<String>,
    /// With [`Queue::etcd`]: nodes that may keep it, one at a time; none: all that have the table.
    pub nodes: Vec<String>,
    /// Users, and groups (`@ops`), who may do everything with everybody's jobs, besides root.
    pub operators: Vec<String>,
    /// Milliseconds after which a node that is down is lost, and what ran there with it. A daemon that is started again within it loses nothing.
    pub lost_after_ms: u64,
    /// So many batch jobs may have the same CPU, and what they run in parallel takes turns there (`[gang]`); 1: nobody shares.
    pub turns: u32,
    /// A batch job's processes run on CPUs of their own, as many as it has.
    pub bind: bool,
    /// Programs that are run at the first node of each of its jobs before and after it, with the daemon's rights: this node's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prolog: Option<PathBuf>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epilog: Option<PathBuf>,
    /// Seconds that each of them may take.
    pub hook_s: u64,
    /// The program that sends mail, as sendmail does; none: no mail is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailer: Option<PathBuf>,
    /// Jobs may name a URL that is told of them: the node that keeps the queue connects to any.
    pub webhooks: bool,
    /// A file with the authorities that `https://` is trusted for.
    pub roots: PathBuf,
    /// Where the journal is that outlives its node.
    pub etcd: EtcdStore,
    /// Who goes first, and how.
    pub rules: pando_queue::Settings,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            node: None,
            nodes: Vec::new(),
            operators: Vec::new(),
            lost_after_ms: 60_000,
            turns: 1,
            bind: true,
            prolog: None,
            epilog: None,
            hook_s: 60,
            mailer: None,
            webhooks: false,
            roots: ROOTS.into(),
            etcd: EtcdStore::default(),
            rules: pando_queue::Settings::default(),
        }
    }
}

impl Queue {
    /// Is everything within its bounds? The error is for people.
    pub fn check(&self) -> Result<(), String> {
        for name in &self.nodes {
            pando_wire::NodeName::parse(name).map_err(|e| format!("[queue] nodes has {name:?}: {e}"))?;
        }
        if self.is_shared() && self.node.is_some() {
            let text = "one node keeps the queue for good, or one of several";
            return Err(format!("[queue] node and [queue] nodes or [queue.etcd] exclude each other: {text}"));
        }
        if !(1..=86_400).contains(&self.hook_s) {
            return Err(format!("[queue] hook_s = {}: write seconds, from 1 to 86400", self.hook_s));
        }
        self.rules.check()?;
        self.etcd.check()
    }

    /// Is the journal in etcd, so that one of several nodes keeps the queue?
    pub fn is_shared(&self) -> bool {
        !self.nodes.is_empty() || !self.etcd.endpoints.is_empty()
    }
}

#[cfg(test)]
impl EtcdStore {
    /// With all that has no default.
    pub fn with_all(self, word: &str) -> EtcdStore {
        let (user, path) = (Some(word.to_owned()), || Some(PathBuf::from(word)));
        EtcdStore { user, password_file: path(), certificate: path(), key: path(), ..self }
    }

    /// With what has no default as another one has it.
    pub fn like(self, EtcdStore { user, password_file, certificate, key, .. }: EtcdStore) -> EtcdStore {
        EtcdStore { user, password_file, certificate, key, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_about_etcd_are_named() {
        let says = |text: &str| toml::from_str::<Queue>(text).unwrap().check();
        let good = "nodes = [\"n1\"]\n[etcd]\nendpoints = [\"http://10.0.0.1:2379\", \"https://[::1]\"]";
        assert_eq!(says(good), Ok(()));
        for (text, part) in [
            ("node = \"n1\"\nnodes = [\"n1\"]", "exclude each other"),
            ("nodes = [\"N 1\"]", "[queue] nodes"),
            ("[etcd]\nendpoints = [\"10.0.0.1:2379\"]", "endpoints has \"10.0.0.1:2379\""),
            ("[etcd]\nendpoints = [\"http://a@b\"]", "endpoints"),
            ("[etcd]\nlease_ms = 500", "lease_ms = 500"),
            ("[etcd]\nprefix = \"pando\"", "prefix"),
            ("[etcd]\nuser = \"pando\"", "user and password_file go together"),
        ] {
            let why = says(text).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn turns_of_a_partition_have_their_bounds() {
        let says = |text: &str| toml::from_str::<Queue>(text).unwrap().check();
        assert_eq!(says("[rules.partitions]\nquick = { quantum_ms = 1 }\nslow = { quantum_ms = 3600000 }"), Ok(()));
        let why = says("[rules.partitions]\nquick = { quantum_ms = 0 }").unwrap_err();
        assert!(why.starts_with("[queue.rules.partitions] quick has quantum_ms = 0: write"), "{why}");
    }
}
