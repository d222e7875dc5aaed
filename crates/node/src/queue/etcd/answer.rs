//! What etcd's JSON gateway answers. Numbers of 64 bits come as strings and bytes as base64, as protobuf's JSON mapping has it; a number that is 0, and whatever is
//! empty, is left out. Fields that we do not know are nobody's business.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(i64),
    }
    match Either::deserialize(from)? {
        Either::Text(text) => text.parse().map_err(D::Error::custom),
        Either::Number(number) => Ok(number),
    }
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
}

/// Bytes as the gateway reads them.
pub fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The revision of the whole store after it.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Header {
    #[serde(deserialize_with = "number")]
    pub revision: i64,
}

/// A key and its value.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pair {
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// When it was made.
    #[serde(deserialize_with = "number")]
    pub create_revision: i64,
    /// And at which it was last written.
    #[serde(deserialize_with = "number")]
    pub mod_revision: i64,
}

/// To `range`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Range {
    pub kvs: Vec<Pair>,
    /// There are more than were asked for.
    pub more: bool,
}

/// To one part of a transaction.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Part {
    pub response_range: Option<Range>,
}

/// To a transaction.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Txn {
    pub header: Header,
    /// All comparisons were true.
    pub succeeded: bool,
    pub responses: Vec<Part>,
}

/// To `lease/grant`, and what is said each time that one is kept alive.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub header: Header,
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: i64,
    /// Seconds that it lives from now; 0: it lives no more.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub ttl: i64,
}

/// To `lease/keepalive`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Kept {
    pub result: Lease,
}

/// To `auth/authenticate`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Token {
    pub token: String,
}

/// Where nothing is of interest.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct Done {}

/// A no.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct No {
    pub error: String,
    pub message: String,
    /// Of gRPC.
    pub code: i64,
}

impl No {
    /// What was asked for was not done, and will not be: nobody else would say otherwise.
    pub fn is_final(&self) -> bool {
        // What gRPC has for "canceled", "unknown", "deadline exceeded", "aborted", "internal", "unavailable": it may have been done.
        !matches!(self.code, 0 | 1 | 2 | 4 | 10 | 13 | 14)
    }

    /// Who we are is not known any more, or was never said.
    pub fn wants_a_name(&self) -> bool {
        let why = self.why();
        self.code == 16 || ["auth token", "user name is empty", "auth: revision"].iter().any(|part| why.contains(part))
    }

    /// In words; they are etcd's.
    pub fn why(&self) -> &str {
        if self.message.is_empty() { &self.error } else { &self.message }
    }
}

/// The first value of an answer: a stream has more of them, one a line.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut all = serde_json::Deserializer::from_slice(text).into_iter::<T>();
    all.next().ok_or("it is empty")?.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_etcd_says_it() {
        let text = br#"{"header":{"cluster_id":"10144879847569953045","revision":"2","raft_term":"2"},"responses":[{"response_range":{"header":{"revision":"2"},
            "kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}}]}"#;
        let txn: Txn = read(text).unwrap();
        let pair = &txn.responses[0].response_range.as_ref().unwrap().kvs[0];
        assert_eq!((txn.succeeded, txn.header.revision, pair.create_revision), (false, 2, 2));
        assert_eq!((&pair.key[..], &pair.value[..]), (&b"foo"[..], &b"bar"[..]));
        let kept: Kept = read(b"{\"result\":{\"header\":{},\"ID\":\"123\",\"TTL\":\"5\"}}\n{\"result\":{}}\n").unwrap();
        assert_eq!((kept.result.id, kept.result.ttl), (123, 5));
        assert_eq!(read::<Kept>(br#"{"result":{"ID":"123"}}"#).unwrap().result.ttl, 0);
        let no: No = read(br#"{"error":"etcdserver: request is too large","code":3}"#).unwrap();
        assert!(no.is_final() && no.why().contains("too large"));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for text in ["", "{", "7", r#"{"kvs":[{"key":"?"}]}"#, r#"{"kvs":[{"create_revision":"x"}]}"#, r#"{"kvs":7}"#] {
            assert!(read::<Range>(text.as_bytes()).is_err(), "{text}");
        }
        bolero::check!().for_each(|text: &[u8]| {
            drop((read::<Range>(text), read::<Txn>(text), read::<Lease>(text), read::<Kept>(text)));
            drop((read::<No>(text).map(|no| (no.is_final(), no.wants_a_name())), read::<Token>(text)));
        });
    }
}
