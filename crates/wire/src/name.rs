//! Names of nodes and clusters. They appear in certificates, on command lines and in file names, so the
//! alphabet is that of one DNS label.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name, that of a DNS label.
pub const MAX_NAME: usize = 63;
/// Words that `pando move PID WHERE` understands otherwise.
const RESERVED: [&str; 3] = ["home", "best", "all"];

/// A name that has been checked: 1 to 63 of `a-z 0-9 -`, no dash at either end, not a reserved word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// Why a name was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{given}` can't be a name: {why}; use 1 to 63 lower-case letters, digits and inner dashes")]
pub struct NameError {
    given: String,
    why: &'static str,
}

impl NodeName {
    /// Checks `text`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refuse = |why| Err(NameError { given: text.chars().take(MAX_NAME + 1).collect(), why });
        if text.is_empty() || text.len() > MAX_NAME {
            return refuse("its length is not between 1 and 63");
        }
        if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            return refuse("it has other characters");
        }
        if text.starts_with('-') || text.ends_with('-') {
            return refuse("it begins or ends with a dash");
        }
        if RESERVED.contains(&text) {
            return refuse("that word means something else to `pando move`");
        }
        Ok(NodeName(text.to_owned()))
    }

    /// The nearest valid name to a host name: first label, lower case, dashes for the rest.
    pub fn from_hostname(host: &str) -> Self {
        let label = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let mapped: String = label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let cut: String = mapped.trim_matches('-').chars().take(MAX_NAME).collect();
        NodeName::parse(cut.trim_matches('-')).unwrap_or_else(|_| NodeName("node".into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for NodeName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        NodeName::parse(&text)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_pass() {
        for good in ["n1", "a", "rack-7-node-12"] {
            assert_eq!(NodeName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "home", "best", &"x".repeat(64), "ü"] {
            assert!(NodeName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_name_becomes_a_label() {
        assert_eq!(NodeName::from_hostname("Big_Box.example.org").as_str(), "big-box");
        assert_eq!(NodeName::from_hostname("___").as_str(), "node");
        assert_eq!(NodeName::from_hostname("home").as_str(), "node");
    }
}
