//! A program's file as it goes along with a job: cut into pieces that everybody can check.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Bytes of a piece, and of one of a very large file.
const PIECE: u64 = 256 << 10;
const LARGEST_PIECE: u64 = 4 << 20;
/// Most pieces, for their sums are in the order.
const MOST: u64 = 16 << 10;

/// A piece's sum (BLAKE3).
pub type Sum = [u8; 32];

/// See above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it is at the node where the job was started; a whole path.
    pub path: ByteBuf,
    /// Bytes.
    pub size: u64,
    /// The sum of each piece.
    pub sums: Vec<Sum>,
    /// It goes to everybody who has not got it from an earlier job, though he may have the same file.
    pub always: bool,
}

/// The sum of a piece.
pub fn sum(bytes: &[u8]) -> Sum {
    *blake3::hash(bytes).as_bytes()
}

/// Bytes of each piece of a file of this size but the last. None where it is too large.
pub fn piece_size(size: u64) -> Option<u64> {
    let mut piece = PIECE;
    while size.div_ceil(piece) > MOST {
        piece *= 2;
    }
    (piece <= LARGEST_PIECE).then_some(piece)
}

impl Program {
    /// Pieces.
    pub fn count(&self) -> u32 {
        self.sums.len() as u32
    }

    /// Where a piece is: offset and bytes.
    pub fn range(&self, index: u32) -> (u64, usize) {
        let piece = piece_size(self.size).unwrap_or(LARGEST_PIECE);
        let offset = u64::from(index) * piece;
        (offset, piece.min(self.size.saturating_sub(offset)) as usize)
    }

    /// Are these the bytes of that piece?
    pub fn is_piece(&self, index: u32, bytes: &[u8]) -> bool {
        bytes.len() == self.range(index).1 && self.sums.get(index as usize) == Some(&sum(bytes))
    }

    /// What names its content, wherever it is: a sum of the sums.
    pub fn name(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        self.sums.iter().for_each(|s| _ = hasher.update(s));
        hasher.finalize().to_hex().to_string()
    }

    /// Can it be what a user's command would say?
    pub(crate) fn is_sound(&self) -> bool {
        let pieces = piece_size(self.size).map(|piece| self.size.div_ceil(piece));
        self.size > 0
            && pieces == Some(self.sums.len() as u64)
            && self.path.first() == Some(&b'/')
            && !self.path.contains(&0)
    }
}

/// Who has got how much of it, in a part of the tree: pieces come in their order, and no more of them than the receiver has asked for.
#[derive(Debug)]
pub struct Spread {
    count: u32,
    /// So many of the first pieces are here.
    have: u32,
    /// So many have been asked for.
    asked: u32,
    /// Pieces that are on their way to one receiver at most.
    window: u32,
    wanted: bool,
    /// For each receiver: pieces that it has got, and may get.
    below: Vec<(u32, u32)>,
}

impl Spread {
    /// With so many receivers. `all`: it is here.
    pub fn new(count: u32, all: bool, receivers: usize, window: u32) -> Spread {
        let have = if all { count } else { 0 };
        Spread { count, have, asked: have, window: window.max(1), wanted: false, below: vec![(0, 0); receivers] }
    }

    /// It is wanted here. Up to which piece the sender may send now, if that is news.
    pub fn want(&mut self) -> Option<u32> {
        self.wanted = true;
        self.ask()
    }

    fn ask(&mut self) -> Option<u32> {
        let upto = self.count.min(self.have.saturating_add(self.window));
        // Half a window at a time: an answer for each piece would be as many messages again.
        let enough = upto == self.count || upto >= self.asked + self.window.div_ceil(2);
        (self.wanted && upto > self.asked && enough).then(|| {
            self.asked = upto;
            upto
        })
    }

    /// The next piece has come (and was checked, and kept). Up to which piece the sender may send now, if that is news. None if it is not
    /// the next one, or was not asked for.
    pub fn came(&mut self, index: u32) -> Option<Option<u32>> {
        (index == self.have && index < self.asked).then(|| {
            self.have += 1;
            self.ask()
        })
    }

    /// A receiver may get pieces below `upto`. If it is not here, it is wanted now; see [`Spread::want`].
    pub fn receiver(&mut self, at: usize, upto: u32) -> Option<u32> {
        if let Some((_, may)) = self.below.get_mut(at) {
            *may = upto.min(self.count).max(*may);
        }
        if self.is_here() { None } else { self.want() }
    }

    /// The next piece that a receiver is to get.
    pub fn send_next(&mut self) -> Option<(usize, u32)> {
        let have = self.have;
        let at = self.below.iter().position(|(got, may)| got < may && *got < have)?;
        self.below[at].0 += 1;
        Some((at, self.below[at].0 - 1))
    }

    /// All of it is here.
    pub fn is_here(&self) -> bool {
        self.have == self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn pieces_are_few_and_cover_the_file() {
        for size in [1, PIECE - 1, PIECE, PIECE + 1, 12 << 20, 5 << 30, MOST * LARGEST_PIECE] {
            let piece = piece_size(size).unwrap();
            let sums = vec![[0; 32]; size.div_ceil(piece) as usize];
            let program = Program { path: ByteBuf::from("/p"), size, sums, always: false };
            assert!(program.is_sound() && u64::from(program.count()) <= MOST);
            let all: u64 = (0..program.count()).map(|i| program.range(i).1 as u64).sum();
            assert_eq!(all, size);
        }
        assert_eq!(piece_size(MOST * LARGEST_PIECE + 1), None);
    }

    #[test]
    fn a_chain_gets_all_pieces_in_order_whatever_the_schedule() {
        check!().with_type::<(u8, u8, Vec<u8>)>().for_each(|(count, window, schedule)| {
            let count = u32::from(*count);
            let mut chain: Vec<Spread> = (0..4).map(|i| Spread::new(count, i == 0, 1, u32::from(*window))).collect();
            let mut ups: Vec<Vec<u32>> = vec![Vec::new(); 4];
            let mut downs: Vec<Vec<u32>> = vec![Vec::new(); 4];
            ups[3].extend(chain[3].want());
            let mut schedule = schedule.iter().copied().chain((0..=255).cycle()).take(200_000);
            while !chain[3].is_here() {
                let at = usize::from(schedule.next().expect("it stands still") % 3);
                // `at` hears what its receiver wants, sends, and the receiver takes one.
                if !ups[at + 1].is_empty() {
                    let upto = ups[at + 1].remove(0);
                    ups[at].extend(chain[at].receiver(0, upto));
                }
                while let Some((_, piece)) = chain[at].send_next() {
                    downs[at + 1].push(piece);
                    assert!(downs[at + 1].len() <= usize::from(*window).max(1), "more than a window is on its way");
                }
                if !downs[at + 1].is_empty() {
                    let piece = downs[at + 1].remove(0);
                    ups[at + 1].extend(chain[at + 1].came(piece).expect("in order, and asked for"));
                }
            }
        });
    }

    #[test]
    fn nobody_gets_what_he_has_not_asked_for() {
        let mut spread = Spread::new(9, false, 0, 4);
        assert_eq!((spread.came(0), spread.want(), spread.came(1)), (None, Some(4), None));
        assert_eq!(spread.came(0), Some(None));
        assert_eq!(spread.came(1), Some(Some(6)));
    }
}
