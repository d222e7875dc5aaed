//! Frames of a job's links: the length of what follows (`u32`, little endian), then one postcard value.

use crate::message::Own;
use crate::order::Order;
use serde::{Serialize, de::DeserializeOwned};

/// Longest frame: a program's arguments and environment may have 2 MB (execve(2)).
pub const MOST: usize = 8 << 20;
const HEADER: usize = 4;

/// What came is no frame.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Broken {
    /// Longer than the limit.
    #[error("a frame of {0} bytes: the limit is {MOST}")]
    TooLong(usize),
    /// It does not decode.
    #[error("a frame that does not decode: {0}")]
    Body(String),
}

/// One frame, ready to send.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Broken> {
    framed(postcard::to_extend(value, vec![0; HEADER]).map_err(|e| Broken::Body(e.to_string()))?)
}

/// An order as it is in frames: it is made once for all that a node hands it on to.
pub struct Copies(Vec<u8>);

impl Copies {
    /// Of this order.
    pub fn of(order: &Order) -> Result<Copies, Broken> {
        postcard::to_extend(order, Vec::new()).map(Copies).map_err(|e| Broken::Body(e.to_string()))
    }

    /// The frame of a [`Work`](crate::message::Work) with it. (In postcard a struct is its fields, one after the other.)
    pub fn work(&self, place: u32, own: &Own) -> Result<Vec<u8>, Broken> {
        let body = |e: postcard::Error| Broken::Body(e.to_string());
        let mut out = postcard::to_extend(&place, vec![0; HEADER]).map_err(body)?;
        out.extend_from_slice(&self.0);
        framed(postcard::to_extend(own, out).map_err(body)?)
    }
}

/// With its length, in the room that was left for it.
fn framed(mut out: Vec<u8>) -> Result<Vec<u8>, Broken> {
    let length = out.len() - HEADER;
    if length > MOST {
        return Err(Broken::TooLong(length));
    }
    out[..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(out)
}

/// Bytes that have come, cut into frames.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Of them, so many have been used.
    used: usize,
}

impl Frames {
    /// Room for what is read next.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.used > 0 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        &mut self.bytes
    }

    /// Is the next frame complete, or certainly none?
    pub fn has_one(&self) -> bool {
        let rest = &self.bytes[self.used..];
        let Some(header) = rest.first_chunk::<HEADER>() else { return false };
        let length = u32::from_le_bytes(*header) as usize;
        length > MOST || rest.len() >= HEADER + length
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }

    /// The next frame, if it is complete.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Broken> {
        let rest = &self.bytes[self.used..];
        let Some(header) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MOST {
            return Err(Broken::TooLong(length));
        }
        let Some(body) = rest.get(HEADER..HEADER + length) else { return Ok(None) };
        let (value, left) = postcard::take_from_bytes(body).map_err(|e| Broken::Body(e.to_string()))?;
        if !left.is_empty() {
            return Err(Broken::Body(format!("{} bytes left over", left.len())));
        }
        self.used += HEADER + length;
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ask, Down, Tell, Up, Work};
    use bolero::check;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        check!().with_type::<(Vec<(u8, Vec<u8>)>, u8)>().for_each(|(all, cut)| {
            let downs: Vec<Down> = all
                .iter()
                .map(|(kind, bytes)| match kind % 3 {
                    0 => Down::Stdin(bytes.clone()),
                    1 => Down::Signal(*kind),
                    _ => Down::Fenced(vec![(String::from_utf8_lossy(bytes).into(), serde_bytes::ByteBuf::new())]),
                })
                .collect();
            let sent: Vec<u8> = downs.iter().flat_map(|d| encode(d).unwrap()).collect();
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for piece in sent.chunks(usize::from(*cut).max(1)) {
                frames.room().extend_from_slice(piece);
                while frames.has_one() {
                    got.extend(frames.take::<Down>().unwrap());
                }
            }
            assert!(got == downs && frames.is_empty());
        });
    }

    #[test]
    fn an_order_that_was_put_into_bytes_once_is_the_same_for_all() {
        let order = crate::order::tests::order(64, 2, 8, true);
        let user = Some((1000, 1000, vec![1000, 27]));
        let own = Own { mark: "m".into(), user, cpus: vec![vec![1, 2], vec![3]], ..Own::default() };
        let copies = Copies::of(&order).unwrap();
        for (place, own) in [(0, own), (300, Own::default())] {
            let work = Work { place, order: order.clone(), own };
            assert!(copies.work(place, &work.own).unwrap() == encode(&work).unwrap());
        }
    }

    #[test]
    fn nobodys_bytes_make_it_panic_or_wait_for_gigabytes() {
        check!().with_type::<Vec<u8>>().for_each(|bytes| {
            fn all<T: DeserializeOwned>(bytes: &[u8]) {
                let mut frames = Frames::default();
                frames.room().extend_from_slice(bytes);
                while let Ok(Some(_)) = frames.take::<T>() {}
            }
            let framed = [&(bytes.len() as u32).to_le_bytes(), bytes.as_slice()].concat();
            for bytes in [bytes, &framed] {
                all::<Up>(bytes);
                all::<Down>(bytes);
                all::<Ask>(bytes);
                all::<Tell>(bytes);
                all::<Work>(bytes);
            }
        });
        let mut frames = Frames::default();
        frames.room().extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(frames.take::<Up>(), Err(Broken::TooLong(u32::MAX as usize)));
    }
}
