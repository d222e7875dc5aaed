//! Bytes that are nearly always text: programs, paths and environments are not promised to be.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Debug, Formatter};

/// Bytes. In JSON they are a string where they are UTF-8, and a list of numbers where they are not: a stored job can be read by people.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub Vec<u8>);

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        Bytes(text.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(bytes)
    }
}

impl Debug for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            _ if !to.is_human_readable() => to.serialize_bytes(&self.0),
            Ok(text) => to.serialize_str(text),
            Err(_) => to.collect_seq(&self.0),
        }
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Bytes;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("text or bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bytes, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        Ok(Bytes(bytes))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        match from.is_human_readable() {
            true => from.deserialize_any(Reader),
            false => from.deserialize_bytes(Reader),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn both_ways_in_both_forms() {
        check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let bytes = Bytes(bytes.clone());
            let json = serde_json::to_string(&bytes).unwrap();
            assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), bytes);
            let stored = postcard::to_stdvec(&bytes).unwrap();
            assert_eq!(postcard::from_bytes::<Bytes>(&stored).unwrap(), bytes);
        });
        assert_eq!(serde_json::to_string(&Bytes::from("a b")).unwrap(), "\"a b\"");
    }
}
