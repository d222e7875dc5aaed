//! A link between two lives that keeps order and loses nothing, over connections that break: what the other end has not said that it has is
//! kept, and sent again over the next connection. Whoever begins one says how many messages have come; from there both count.

use std::collections::VecDeque;
use std::sync::Arc;

/// What was counted can't be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{said} messages are said to have come, and {from} to {to} can have")]
pub struct Miscounted {
    said: u64,
    from: u64,
    to: u64,
}

/// One end. Messages are bytes, ready to be sent.
#[derive(Debug, Default)]
pub struct Session {
    kept: VecDeque<Arc<Vec<u8>>>,
    /// So many messages have come to the other end, as far as is known here: the first that is kept is the next.
    there: u64,
    /// Bytes that are kept.
    bytes: usize,
    /// So many have come here.
    here: u64,
    /// And so many the other end was told of.
    told: u64,
}

impl Session {
    /// One more is to be sent.
    pub fn put(&mut self, message: Arc<Vec<u8>>) {
        self.bytes += message.len();
        self.kept.push_back(message);
    }

    /// Bytes that may have to be sent again.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message that so many others were before.
    pub fn get(&self, number: u64) -> Option<&Arc<Vec<u8>>> {
        self.kept.get(usize::try_from(number.checked_sub(self.there)?).ok()?)
    }

    /// So many have come to the other end.
    pub fn have_come(&mut self, count: u64) -> Result<(), Miscounted> {
        let to = self.there + self.kept.len() as u64;
        if count < self.there || count > to {
            return Err(Miscounted { said: count, from: self.there, to });
        }
        let gone = self.kept.drain(..(count - self.there) as usize);
        self.bytes -= gone.map(|m| m.len()).sum::<usize>();
        self.there = count;
        Ok(())
    }

    /// So many have come to the other end, as far as is known here.
    pub fn there(&self) -> u64 {
        self.there
    }

    /// One has come here.
    pub fn comes(&mut self) {
        self.here += 1;
    }

    /// So many have come here.
    pub fn here(&self) -> u64 {
        self.here
    }

    /// So many have come of which the other end was not told.
    pub fn untold(&self) -> u64 {
        self.here - self.told
    }

    /// It is told now.
    pub fn tell(&mut self) -> u64 {
        self.told = self.here;
        self.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn number(n: u64) -> Arc<Vec<u8>> {
        Arc::new(n.to_be_bytes().to_vec())
    }

    /// Two ends, and connections that break in the middle of whatever is on its way.
    #[test]
    fn all_of_it_comes_once_and_in_order() {
        check!().with_type::<Vec<u8>>().for_each(|steps| {
            let (mut a, mut b) = (Session::default(), Session::default());
            let (mut put, mut next, mut came) = (0u64, 0u64, Vec::new());
            let mut wire: VecDeque<Arc<Vec<u8>>> = VecDeque::new();
            let connect = |a: &mut Session, b: &Session, wire: &mut VecDeque<_>| {
                wire.clear();
                a.have_come(b.here()).unwrap();
                b.here()
            };
            for step in steps.iter().chain(&[3]) {
                match step % 5 {
                    0 => {
                        a.put(number(put));
                        put += 1;
                    }
                    1 => {
                        if let Some(message) = a.get(next) {
                            wire.push_back(message.clone());
                            next += 1;
                        }
                    }
                    2 => {
                        if let Some(message) = wire.pop_front() {
                            b.comes();
                            came.push(message);
                        }
                    }
                    3 => next = connect(&mut a, &b, &mut wire),
                    _ => a.have_come(b.tell()).unwrap(),
                }
            }
            while let Some(message) = a.get(next) {
                came.push(message.clone());
                next += 1;
            }
            assert_eq!(came, (0..put).map(number).collect::<Vec<_>>());
            assert_eq!(a.bytes(), (put - a.there()) as usize * 8);
        });
    }

    #[test]
    fn what_was_not_sent_can_not_have_come() {
        let mut a = Session::default();
        a.put(number(0));
        a.put(number(1));
        assert_eq!(a.have_come(3), Err(Miscounted { said: 3, from: 0, to: 2 }));
        assert_eq!(a.have_come(1), Ok(()));
        assert_eq!((a.get(0), a.get(1)), (None, Some(&number(1))));
        assert_eq!(a.have_come(0), Err(Miscounted { said: 0, from: 1, to: 2 }), "it has gone back");
    }
}
