//! Bodies of frames are compressed where the line, not the processors, is what holds a move up.
//!
//! How fast the line is the kernel knows of each connection (tcp_info), as far as it was kept busy. LZ4, because it costs less than the line saves
//! at a gigabit a second and gives up early on what can't be compressed.

use crate::message::MAX_BODY;
use pando_kernel::poll::Rate;

/// Bodies shorter than this are sent as they are.
const WORTH: usize = 16 * 1024;
/// A body that does not shrink to so many percent is sent as it is, and so are the next ones.
const ENOUGH_PERCENT: usize = 85;
const NEXT_ONES: u32 = 16;
/// Large bodies between two looks at the line.
const LOOKS: u32 = 8;

/// Decides for one connection.
#[derive(Debug, Default)]
pub(crate) struct Squeeze {
    below: u64,
    /// Bytes a second, as far as it is known.
    rate: Option<u64>,
    look: u32,
    skip: u32,
}

impl Squeeze {
    /// Compresses on lines slower than this many bytes a second; never if 0.
    pub fn below(rate: u64) -> Squeeze {
        Squeeze { below: rate, ..Squeeze::default() }
    }

    /// The compressed body, if that is what should be sent: its length in four bytes, then one LZ4 block. `line` says how many bytes a second it takes.
    pub fn body(&mut self, body: &[u8], line: impl FnOnce() -> Option<Rate>) -> Option<Vec<u8>> {
        if body.len() < WORTH || self.below == 0 {
            return None;
        }
        if self.look == 0 {
            self.learn(line());
            self.look = LOOKS;
        }
        self.look -= 1;
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.rate.is_none_or(|r| r >= self.below) {
            return None;
        }
        let squeezed = lz4_flex::block::compress_prepend_size(body);
        let pays = squeezed.len() * 100 <= body.len() * ENOUGH_PERCENT;
        if !pays {
            self.skip = NEXT_ONES;
        }
        pays.then_some(squeezed)
    }

    /// A line that is not kept busy any more, because of the compression, is as slow as before, unless it is seen to take more. (One whose rate was measured while
    /// a machine had no processor for it would otherwise be a slow one for good.)
    fn learn(&mut self, seen: Option<Rate>) {
        match seen {
            Some(Rate::Exactly(rate)) => self.rate = Some(rate),
            Some(Rate::AtLeast(rate)) => self.rate = self.rate.map(|known| known.max(rate)),
            None => {}
        }
    }
}

/// What was compressed. The error is a sentence; the bytes are another machine's.
pub(crate) fn undo(squeezed: &[u8]) -> Result<Vec<u8>, String> {
    let (length, block) = squeezed.split_first_chunk::<4>().ok_or("a compressed body without a length")?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > MAX_BODY {
        return Err(format!("a compressed body of {length} bytes, more than {MAX_BODY}"));
    }
    let body =
        lz4_flex::block::decompress(block, length).map_err(|e| format!("a body that can't be decompressed: {e}"))?;
    if body.len() == length {
        Ok(body)
    } else {
        Err(format!("a compressed body of {} bytes, not {length}", body.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::Rate::{AtLeast, Exactly};
    use super::*;

    fn text() -> Vec<u8> {
        (0..100_000u32).flat_map(|i| (i / 7).to_string().into_bytes()).take(200_000).collect()
    }

    fn noise() -> Vec<u8> {
        let next = |x: &u64| Some(x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407));
        std::iter::successors(Some(1), next).map(|x: u64| (x >> 56) as u8).take(WORTH).collect()
    }

    #[test]
    fn a_slow_line_gets_less_and_a_fast_one_what_there_is() {
        let (text, mut slow) = (text(), Squeeze::below(150_000_000));
        let squeezed = slow.body(&text, || Some(Exactly(100_000_000))).expect("it is slow");
        assert!(squeezed.len() < text.len() / 2);
        assert_eq!(undo(&squeezed).unwrap(), text);
        assert!(Squeeze::below(150_000_000).body(&text, || Some(Exactly(1_000_000_000))).is_none(), "it is not");
        assert!(Squeeze::below(0).body(&text, || Some(Exactly(1))).is_none(), "switched off");
        assert!(Squeeze::below(u64::MAX).body(&text, || None).is_none(), "nobody knows yet");
        assert!(slow.body(&text[..WORTH - 1], || Some(Exactly(1))).is_none(), "small");
        for _ in 0..3 * LOOKS {
            assert!(slow.body(&text, || None).is_some(), "what was known stays");
        }
        for _ in 0..3 * LOOKS {
            assert!(slow.body(&text, || Some(AtLeast(149_000_000))).is_some(), "slower than that it is not");
        }
        let later: Vec<bool> = (0..=LOOKS).map(|_| slow.body(&text, || Some(Exactly(u64::MAX))).is_some()).collect();
        assert!(!later.last().unwrap(), "it has become faster");
    }

    #[test]
    fn a_line_that_takes_more_than_was_measured_once_is_not_slow_for_good() {
        let (text, mut squeeze) = (text(), Squeeze::below(150_000_000));
        assert!(squeeze.body(&text, || Some(Exactly(50_000_000))).is_some());
        // Reads that are asked for piece by piece never keep a fast line busy: that is all that is ever said of it again.
        let later: Vec<bool> =
            (0..=LOOKS).map(|_| squeeze.body(&text, || Some(AtLeast(1_800_000_000))).is_some()).collect();
        assert!(!later.last().unwrap());
        let mut unknown = Squeeze::below(150_000_000);
        assert!((0..=LOOKS).all(|_| unknown.body(&text, || Some(AtLeast(1))).is_none()), "nobody knows how slow it is");
    }

    #[test]
    fn what_does_not_shrink_is_left_alone_for_a_while() {
        let (mut squeeze, text, noise) = (Squeeze::below(2), text(), noise());
        assert!(squeeze.body(&noise, || Some(Exactly(1))).is_none());
        for _ in 0..NEXT_ONES {
            assert!(squeeze.body(&text, || Some(Exactly(1))).is_none());
        }
        assert!(squeeze.body(&text, || Some(Exactly(1))).is_some());
    }

    #[test]
    fn hostile_bytes_are_an_error() {
        assert!(undo(&[1, 2]).is_err());
        assert!(undo(&u32::MAX.to_le_bytes()).unwrap_err().contains("more than"));
        let good = lz4_flex::block::compress_prepend_size(&text());
        assert!(undo(&good[..good.len() - 1]).is_err());
        bolero::check!().with_type::<(u32, Vec<u8>)>().for_each(|(length, block)| {
            let mut bytes = (length % (2 * MAX_BODY as u32)).to_le_bytes().to_vec();
            bytes.extend(block);
            if let Ok(body) = undo(&bytes) {
                assert!(body.len() <= MAX_BODY);
            }
        });
    }
}
