//! The names under which a job's ranks tell each other their ports (MPI_Publish_name): its head keeps them, for as long as the job lives.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most names of a job, bytes of a name, of a port (Open MPI's groups tell each other of all their ranks by it), and of all.
const MOST: usize = 4096;
const LONGEST_NAME: usize = 1024;
const LONGEST_PORT: usize = 64 << 10;
const MOST_BYTES: usize = 16 << 20;

/// What a rank wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Name {
    /// Others are to find this port by this name.
    Publish {
        /// The name.
        name: String,
        /// The port.
        port: String,
        /// It is gone as soon as somebody has found it.
        once: bool,
    },
    /// The port of this name.
    Lookup(String),
    /// Not any more.
    Unpublish(String),
}

/// The answer; with the port where one was asked for. The error is one word.
pub type Named = Result<Option<String>, String>;

/// See above.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, (String, bool)>, usize);

impl Names {
    /// Does it.
    pub fn ask(&mut self, what: Name) -> Named {
        match what {
            Name::Publish { name, port, once } => {
                if name.is_empty() || name.len() > LONGEST_NAME || port.len() > LONGEST_PORT {
                    return Err("too_long".into());
                }
                if self.0.contains_key(&name) {
                    return Err(format!("duplicate_service_{name}"));
                }
                let bytes = name.len() + port.len();
                if self.0.len() >= MOST || self.1 + bytes > MOST_BYTES {
                    return Err("no_room".into());
                }
                self.1 += bytes;
                self.0.insert(name, (port, once));
                Ok(None)
            }
            Name::Lookup(name) => match self.0.get(&name) {
                Some((port, false)) => Ok(Some(port.clone())),
                Some((_, true)) => Ok(self.remove(&name)),
                None => Err(not_found(&name)),
            },
            Name::Unpublish(name) => match self.remove(&name) {
                Some(_) => Ok(None),
                None => Err(not_found(&name)),
            },
        }
    }

    fn remove(&mut self, name: &str) -> Option<String> {
        let (port, _) = self.0.remove(name)?;
        self.1 -= name.len() + port.len();
        Some(port)
    }
}

fn not_found(name: &str) -> String {
    let shown = &name[..name.floor_char_boundary(LONGEST_NAME)];
    format!("service_{shown}_not_found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_until_it_is_taken_back() {
        let mut names = Names::default();
        let publish = |port: &str| Name::Publish { name: "a".into(), port: port.into(), once: false };
        assert_eq!(names.ask(Name::Lookup("a".into())), Err("service_a_not_found".into()));
        assert_eq!(names.ask(publish("p")), Ok(None));
        assert_eq!(names.ask(publish("q")), Err("duplicate_service_a".into()));
        assert_eq!(names.ask(Name::Lookup("a".into())), Ok(Some("p".into())));
        assert_eq!(names.ask(Name::Unpublish("a".into())), Ok(None));
        assert_eq!(names.ask(Name::Unpublish("a".into())), Err("service_a_not_found".into()));
        assert_eq!(names.ask(publish(&"x".repeat(LONGEST_PORT + 1))), Err("too_long".into()));
        let once = Name::Publish { name: "b".into(), port: "p".into(), once: true };
        assert_eq!((names.ask(once.clone()), names.ask(Name::Lookup("b".into()))), (Ok(None), Ok(Some("p".into()))));
        assert_eq!((names.ask(once), names.ask(Name::Unpublish("b".into()))), (Ok(None), Ok(None)), "it was gone");
        assert_eq!(names.1, 0);
        for i in 0..MOST {
            assert_eq!(names.ask(Name::Publish { name: i.to_string(), port: String::new(), once: false }), Ok(None));
        }
        assert_eq!(names.ask(publish("p")), Err("no_room".into()));
    }
}
