//! Files that go along with a job, the program first of all: cut into pieces that everybody can check.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Bytes of a piece, and of one of a very large file.
const PIECE: u64 = 256 << 10;
const LARGEST_PIECE: u64 = 4 << 20;
/// Most pieces, for their sums are in the order.
const MOST: u64 = 16 << 10;
/// And those of all files of a job.
const MOST_IN_ALL: usize = 32 << 10;
/// Most files of a job, and libraries that its nodes are to have.
const MOST_FILES: usize = 256;
const MOST_NEEDS: usize = 512;
/// Bytes of a name, and of a whole path, as the kernel has them.
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4095;

/// A piece's sum (BLAKE3).
pub type Sum = [u8; 32];

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// It is executed. The first one, if there is one.
    Program,
    /// The program's loader wants it: it has to be in the job's directory where something else came.
    Library,
    /// The program may open it in the job's directory.
    File,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// See there.
    pub kind: Kind,
    /// What it is called in the job's directory, where the program is not.
    pub name: ByteBuf,
    /// Where it is at the node where the job was started; a whole path.
    pub path: ByteBuf,
    /// Bytes.
    pub size: u64,
    /// The sum of each piece.
    pub sums: Vec<Sum>,
    /// It goes to everybody who has not got it from an earlier job, though he may have the same file.
    pub always: bool,
}

/// What each node is to have itself: a library of the system, or the loader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// Where it is at the node where the job was started; a whole path.
    pub path: ByteBuf,
    /// Anywhere else where the loader looks will do.
    pub anywhere: bool,
}

/// The last part of a path.
pub fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

fn is_path(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && path.len() <= LONGEST_PATH && !path.contains(&0)
}

/// A name in a directory, and no way out of it.
fn is_name(name: &[u8]) -> bool {
    let plain = !name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..";
    (1..=LONGEST_NAME).contains(&name.len()) && plain
}

/// May these go along with one job? The error is for people.
pub fn check(files: &[Parcel], needs: &[Need]) -> Result<(), String> {
    if files.len() > MOST_FILES {
        return Err(format!("{} files are to go along: {MOST_FILES} may", files.len()));
    }
    let shown = |f: &Parcel| String::from_utf8_lossy(&f.path).into_owned();
    for (at, file) in files.iter().enumerate() {
        if !file.is_sound() || (file.kind == Kind::Program && at > 0) {
            return Err(format!("no file may go along as this one does: {}", shown(file)));
        }
        let same = |f: &&Parcel| f.kind != Kind::Program && f.name == file.name;
        if let Some(other) = files[..at].iter().find(same) {
            return Err(format!("two files of one name go along: {}, {}", shown(other), shown(file)));
        }
    }
    let (pieces, bytes) = files.iter().fold((0, 0u64), |(p, b), f| (p + f.sums.len(), b.saturating_add(f.size)));
    if pieces > MOST_IN_ALL {
        return Err(format!("{} MB are too much to go along with a job", bytes >> 20));
    }
    match needs.len() <= MOST_NEEDS && needs.iter().all(|n| is_path(&n.path)) {
        true => Ok(()),
        false => Err("what its nodes are to have".into()),
    }
}

/// From so many bytes on that go along a tree has few children: each node's line carries the files once for each of its own.
const MUCH: u64 = 4 << 20;
const FEW: u8 = 3;

/// Children of a node of the tree at most, where `usual` is what was configured and files of so many bytes go along.
pub fn arity(usual: u8, bytes: u64) -> u8 {
    if bytes >= MUCH { usual.min(FEW) } else { usual }
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

impl Parcel {
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
    pub fn content(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        self.sums.iter().for_each(|s| _ = hasher.update(s));
        hasher.finalize().to_hex().to_string()
    }

    /// Can it be what a user's command would say?
    pub(crate) fn is_sound(&self) -> bool {
        let pieces = piece_size(self.size).map(|piece| self.size.div_ceil(piece));
        (self.size > 0 || self.kind != Kind::Program)
            && pieces == Some(self.sums.len() as u64)
            && is_path(&self.path)
            && is_name(&self.name)
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

    fn parcel(kind: Kind, name: &str, size: u64, sums: Vec<Sum>) -> Parcel {
        Parcel { kind, name: ByteBuf::from(name), path: ByteBuf::from("/p"), size, sums, always: false }
    }

    #[test]
    fn no_name_leads_out_of_the_jobs_directory() {
        let one = |name: &str| check(&[parcel(Kind::File, name, 1, vec![[0; 32]])], &[]);
        for name in ["", ".", "..", "/", "a/b", "../a", "/etc/passwd", "a\0b", "a/", &"x".repeat(256)] {
            assert!(one(name).is_err(), "{name:?}");
        }
        for name in ["...", "a b", "libx.so.1", "-", "\n", &"x".repeat(255)] {
            assert_eq!(one(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn what_is_too_much_or_twice_is_refused() {
        let file = |name: &str| parcel(Kind::File, name, 1, vec![[0; 32]]);
        let many = |count: usize| (0..count).map(|i| file(&i.to_string())).collect::<Vec<_>>();
        assert_eq!(check(&many(MOST_FILES), &[]), Ok(()));
        assert!(check(&many(MOST_FILES + 1), &[]).is_err());
        assert!(check(&[file("a"), file("a")], &[]).unwrap_err().contains("two files of one name"));
        let program = parcel(Kind::Program, "a", 1, vec![[0; 32]]);
        assert_eq!(check(&[program.clone(), file("a")], &[]), Ok(()), "the program is not in that directory");
        assert!(check(&[file("a"), program], &[]).is_err());
        assert_eq!(check(&[parcel(Kind::File, "a", 0, vec![])], &[]), Ok(()));
        assert!(check(&[parcel(Kind::Program, "a", 0, vec![])], &[]).is_err());
        assert!(check(&[parcel(Kind::File, "a", 1, vec![[0; 32]; 2])], &[]).is_err());
        let large = |name| parcel(Kind::File, name, MOST * PIECE, vec![[0; 32]; MOST as usize]);
        assert_eq!(check(&[large("a"), large("b")], &[]), Ok(()));
        assert!(check(&[large("a"), large("b"), file("c")], &[]).is_err());
        let need = |path: &str| Need { path: ByteBuf::from(path), anywhere: true };
        assert_eq!(check(&[], &[need("/lib/x")]), Ok(()));
        for path in ["", "lib/x", "/a\0b", &format!("/{}", "x".repeat(LONGEST_PATH))] {
            assert!(check(&[], &[need(path)]).is_err(), "{path:?}");
        }
        assert!(check(&[], &vec![need("/x"); MOST_NEEDS + 1]).is_err());
    }

    #[test]
    fn whatever_is_said_of_files_nobody_panics() {
        type Said = (u8, Vec<u8>, Vec<u8>, u64, u8);
        check!().with_type::<Vec<Said>>().for_each(|all| {
            let one = |(kind, name, path, size, sums): &Said| Parcel {
                kind: [Kind::Program, Kind::Library, Kind::File][usize::from(kind % 3)],
                name: ByteBuf::from(name.clone()),
                path: ByteBuf::from(path.clone()),
                size: *size,
                sums: vec![[0; 32]; usize::from(*sums)],
                always: kind % 2 == 0,
            };
            let files: Vec<Parcel> = all.iter().map(one).collect();
            if super::check(&files, &[]).is_ok() {
                assert!(files.iter().all(|f| !f.name.contains(&b'/') && f.name != ".." && !f.name.is_empty()));
            }
            files.iter().for_each(|f| _ = (f.range(0), f.range(u32::MAX), f.is_piece(0, &[]), f.content()));
        });
    }

    #[test]
    fn what_is_large_goes_down_a_narrow_tree() {
        let all =
            [(8, 0), (8, MUCH - 1), (8, MUCH), (2, MUCH), (1, u64::MAX)].map(|(usual, bytes)| arity(usual, bytes));
        assert_eq!(all, [8, 8, FEW, 2, 1]);
    }

    #[test]
    fn pieces_are_few_and_cover_the_file() {
        for size in [1, PIECE - 1, PIECE, PIECE + 1, 12 << 20, 5 << 30, MOST * LARGEST_PIECE] {
            let piece = piece_size(size).unwrap();
            let sums = vec![[0; 32]; size.div_ceil(piece) as usize];
            let program = parcel(Kind::Program, "p", size, sums);
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
