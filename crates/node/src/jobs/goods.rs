//! The files that go along with a job, at one node: which of them has it, and who else wants them?

use super::along::Along;
use super::cache::{self, Cache, Coming};
use pando_launch::{Child, Down, Kind, Order, Parcel, Spread};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one file that are on their way to one receiver.
const WINDOW: u64 = 4 << 20;

/// What comes of something that was heard.
#[derive(Default)]
pub struct News {
    /// The parent may send pieces of these files up to these.
    pub asks: Vec<(u16, u32)>,
    /// What goes to which child.
    pub send: Vec<(usize, Down)>,
    /// It can't go on; for people.
    pub fails: Option<String>,
}

impl News {
    fn fail(why: String) -> News {
        News { fails: Some(why), ..News::default() }
    }
}

/// Where a file is at this node.
enum Here {
    No,
    Coming(Coming),
    /// In our cache.
    Kept,
    /// Its user has the same one, where it was at the node where the job was started.
    Own,
}

struct One {
    parcel: Parcel,
    spread: Spread,
    here: Here,
}

impl One {
    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.parcel.path))
    }

    fn name(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.parcel.name))
    }

    /// As people are told of it.
    fn shown(&self) -> String {
        match self.parcel.kind {
            Kind::Program => "the program".into(),
            Kind::Library | Kind::File => crate::owner::clean(&self.name().to_string_lossy()),
        }
    }
}

/// See above.
pub struct Goods {
    cache: Arc<Cache>,
    files: Vec<One>,
    user: (u32, u32),
    /// What is executed, if it came along.
    program: Option<File>,
    along: Option<Along>,
    /// Nothing can come of it; for people.
    fails: Option<String>,
}

impl Goods {
    /// Of a job that has any. `user`: its user's numbers here. `children`: as the node's part has them. `base`: see [`Along`].
    pub fn new(cache: &Arc<Cache>, order: &Order, user: (u32, u32), children: &[Child], base: &Path) -> Option<Goods> {
        let one = |parcel: &Parcel| {
            let path = Path::new(OsStr::from_bytes(&parcel.path));
            let same = !parcel.always && cache::same_here(cache, path, user, parcel).is_some();
            let here = match same {
                true => Here::Own,
                false => cache.find(user.0, parcel).map_or(Here::No, |_| Here::Kept),
            };
            let window = (WINDOW / parcel.range(0).1.max(1) as u64).clamp(2, 16) as u32;
            let spread = Spread::new(parcel.count(), !matches!(here, Here::No), children.len(), window);
            One { parcel: parcel.clone(), spread, here }
        };
        let files: Vec<One> = order.files.iter().map(one).collect();
        let mut goods = Goods { cache: cache.clone(), files, user, program: None, along: None, fails: None };
        let made = goods.prepare(children.contains(&Child::Launcher), base);
        goods.fails = made.err();
        (!order.files.is_empty()).then_some(goods)
    }

    /// What is here already gets its place. `ranks`: there are some.
    fn prepare(&mut self, ranks: bool, base: &Path) -> Result<(), String> {
        let strange = |f: &&One| !matches!(f.here, Here::Own);
        let sum: u64 = self.files.iter().filter(strange).map(|f| f.parcel.size).sum();
        if sum > self.cache.most() {
            return Err(format!("the {} MB that go along are more than [jobs] cache_mb allows", sum >> 20));
        }
        // Who has all himself needs no other place for it. With another program, or another library, all libraries have to be there: one that is
        // looked for beside the program is not found otherwise.
        let is_needed = |f: &One| f.parcel.kind == Kind::File || !matches!(f.here, Here::Own);
        let more = self.files.iter().any(|f| f.parcel.kind != Kind::Program);
        if ranks && more && self.files.iter().any(is_needed) {
            let along = Along::make(base, self.user).map_err(|e| format!("no place for what goes along: {e}"))?;
            self.along = Some(along);
        }
        for at in 0..self.files.len() {
            if matches!(self.files[at].here, Here::No) && self.files[at].parcel.count() == 0 {
                // Nothing of it need come.
                self.files[at].here = Here::Coming(self.begin(at)?);
                self.finish(at)?;
            } else if !matches!(self.files[at].here, Here::No) {
                self.give_place(at).map_err(|e| format!("no place for {}: {e}", self.files[at].shown()))?;
            }
        }
        Ok(())
    }

    fn begin(&self, at: usize) -> Result<Coming, String> {
        let one = &self.files[at];
        self.cache.begin(self.user.0, &one.parcel).map_err(|e| format!("no place for {}: {e}", one.shown()))
    }

    /// All of it has come.
    fn finish(&mut self, at: usize) -> Result<(), String> {
        let Here::Coming(coming) = std::mem::replace(&mut self.files[at].here, Here::Kept) else { return Ok(()) };
        let kept = self.cache.finish(coming, &self.files[at].parcel).and_then(|_| self.give_place(at));
        kept.map_err(|e| format!("{} can't be kept: {e}", self.files[at].shown()))
    }

    /// Where ranks find it.
    fn give_place(&mut self, at: usize) -> io::Result<()> {
        let one = &self.files[at];
        match (one.parcel.kind, &one.here, &self.along) {
            (Kind::Program, Here::Kept, _) => self.program = Some(self.cache.open_kept(self.user.0, &one.parcel)?),
            (Kind::Library | Kind::File, Here::Kept, Some(along)) => {
                self.cache.link(self.user.0, &one.parcel, &along.path().join(one.name()))?;
            }
            (Kind::Library | Kind::File, Here::Own, Some(along)) => {
                std::os::unix::fs::symlink(one.path(), along.path().join(one.name()))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What the launcher is to execute; none: what it finds itself. It is this process's own open file, which is there when others have taken its
    /// place in the cache, too.
    pub fn program(&self) -> Option<PathBuf> {
        self.program.as_ref().map(|file| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into())
    }

    /// The directory where ranks find the rest, if they need one.
    pub fn along(&self) -> Option<PathBuf> {
        self.along.as_ref().map(|along| along.path().to_owned())
    }

    /// There are no ranks any more.
    pub fn leave(&mut self) {
        self.along = None;
    }

    /// All of it is here.
    pub fn is_here(&self) -> bool {
        self.fails.is_none() && self.files.iter().all(|f| matches!(f.here, Here::Kept | Here::Own))
    }

    /// All of it is wanted here: one file after the other.
    pub fn want(&mut self) -> News {
        if let Some(why) = &self.fails {
            return News::fail(why.clone());
        }
        let next = self.files.iter().position(|f| !matches!(f.here, Here::Kept | Here::Own));
        let Some(at) = next else { return News::default() };
        let ask = self.files[at].spread.want();
        self.asked(at, ask)
    }

    fn asked(&mut self, at: usize, ask: Option<u32>) -> News {
        let Some(upto) = ask else { return News::default() };
        if matches!(self.files[at].here, Here::No) {
            match self.begin(at) {
                Ok(coming) => self.files[at].here = Here::Coming(coming),
                Err(why) => return News::fail(why),
            }
        }
        News { asks: vec![(at as u16, upto)], ..News::default() }
    }

    /// A child may get pieces of a file up to this one.
    pub fn receiver(&mut self, child: usize, file: u16, upto: u32) -> News {
        let at = usize::from(file);
        if let Some(why) = &self.fails {
            return News::fail(why.clone());
        }
        let Some(one) = self.files.get_mut(at) else { return News::default() };
        let ask = one.spread.receiver(child, upto);
        let mut news = self.asked(at, ask);
        self.pump(at, None, &mut news);
        news
    }

    /// A piece has come. `wanted`: the node's own ranks wait for all of it.
    pub fn came(&mut self, file: u16, index: u32, bytes: Arc<Vec<u8>>, wanted: bool) -> News {
        let at = usize::from(file);
        let Some(one) = self.files.get_mut(at) else { return News::default() };
        let Here::Coming(coming) = &one.here else { return News::default() };
        if !one.parcel.is_piece(index, &bytes) {
            return News::fail(format!("a piece of {} that came from above is not what it should be", one.shown()));
        }
        if let Err(e) = coming.keep(one.parcel.range(index).0, &bytes) {
            return News::fail(format!("{} can't be kept: {e}", one.shown()));
        }
        let Some(ask) = one.spread.came(index) else {
            return News::fail(format!("a piece of {} came out of order", one.shown()));
        };
        let mut news = News { asks: ask.map(|upto| (file, upto)).into_iter().collect(), ..News::default() };
        if one.spread.is_here() {
            if let Err(why) = self.finish(at) {
                return News::fail(why);
            }
            if wanted {
                let next = self.want();
                news.asks.extend(next.asks);
                news.fails = next.fails;
            }
        }
        self.pump(at, Some((index, bytes)), &mut news);
        news
    }

    /// Whatever can be sent is. `fresh`: a piece that has just come. What several get in a row is read once.
    fn pump(&mut self, at: usize, mut fresh: Option<(u32, Arc<Vec<u8>>)>, news: &mut News) {
        let mut open = None;
        while let Some((child, index)) = self.files[at].spread.send_next() {
            let bytes = match fresh {
                Some((known, bytes)) if known == index => bytes,
                _ => match self.piece(at, &mut open, index) {
                    Ok(bytes) => Arc::new(bytes),
                    Err(why) => return news.fails = Some(why),
                },
            };
            fresh = Some((index, bytes.clone()));
            news.send.push((child, Down::Piece { file: at as u16, index, bytes }));
        }
    }

    /// A piece that is here. What has come was checked then, and who gets it checks it again.
    fn piece(&self, at: usize, open: &mut Option<File>, index: u32) -> Result<Vec<u8>, String> {
        let one = &self.files[at];
        let (offset, length) = one.parcel.range(index);
        let read = match &one.here {
            Here::Coming(coming) => coming.piece(offset, length),
            _ => self.read(at, open, offset, length),
        };
        match read {
            // Somebody may write to the user's own file while it is sent.
            Ok(bytes) if matches!(one.here, Here::Own) && !one.parcel.is_piece(index, &bytes) => {
                Err(format!("{} was changed while it was sent", one.shown()))
            }
            Ok(bytes) => Ok(bytes),
            Err(e) => Err(format!("{}: {e}", one.shown())),
        }
    }

    /// Of a file that is here. None is open for longer than it has to be: a job may have many.
    fn read(&self, at: usize, open: &mut Option<File>, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let one = &self.files[at];
        let file = match (open.take(), &one.here) {
            (Some(file), _) => file,
            (None, Here::Own) => cache::open_as(one.path(), self.user)?,
            (None, _) => self.cache.open_kept(self.user.0, &one.parcel)?,
        };
        let bytes = cache::piece(&file, offset, length);
        *open = Some(file);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_launch::sum;
    use serde_bytes::ByteBuf;

    const PIECE: usize = 256 << 10;

    /// A node with a cache of its own, in which nothing is.
    struct Lab {
        dir: PathBuf,
        cache: Arc<Cache>,
        parcel: Parcel,
        bytes: Vec<u8>,
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    impl Lab {
        fn new(name: &str) -> Lab {
            let dir = std::env::temp_dir().join(format!("pando-goods-{name}-{}", std::process::id()));
            let bytes: Vec<u8> = (0..PIECE * 2 + 100).map(|i| (i / 251) as u8).collect();
            let sums = bytes.chunks(PIECE).map(sum).collect();
            let text = |text: &str| ByteBuf::from(text.as_bytes());
            let size = bytes.len() as u64;
            let parcel = Parcel { kind: Kind::Program, name: text("p"), path: text("/p"), size, sums, always: true };
            Lab { cache: Arc::new(Cache::open(dir.clone(), 8 << 20)), dir, parcel, bytes }
        }

        fn goods(&self, receivers: usize) -> Goods {
            let spread = Spread::new(self.parcel.count(), false, receivers, 16);
            let one = One { parcel: self.parcel.clone(), spread, here: Here::No };
            let user = (crate::sys::effective_uid(), 0);
            Goods { cache: self.cache.clone(), files: vec![one], user, program: None, along: None, fails: None }
        }

        fn piece(&self, index: usize) -> Arc<Vec<u8>> {
            Arc::new(self.bytes.chunks(PIECE).nth(index).unwrap().to_vec())
        }
    }

    fn sent(news: &News) -> Vec<(usize, u32, Arc<Vec<u8>>)> {
        let piece = |(to, down): &(usize, Down)| match down {
            Down::Piece { index, bytes, .. } => (*to, *index, bytes.clone()),
            other => panic!("{other:?}"),
        };
        news.send.iter().map(piece).collect()
    }

    #[test]
    fn what_another_node_sends_is_the_file_or_refused() {
        let lab = Lab::new("liar");
        let refused = |index, bytes: Arc<Vec<u8>>, why: &str| {
            let mut goods = lab.goods(0);
            assert_eq!(goods.want().asks, [(0, 3)]);
            let said = goods.came(0, index, bytes, true).fails.unwrap();
            assert!(said.contains(why), "{said}");
            assert!(!goods.is_here() && goods.program().is_none());
        };
        let mut changed = lab.piece(0).to_vec();
        changed[PIECE / 2] ^= 1;
        refused(0, Arc::new(changed), "not what it should be");
        refused(0, Arc::new(lab.piece(0)[..PIECE - 1].to_vec()), "not what it should be");
        refused(0, lab.piece(1), "not what it should be");
        refused(1, lab.piece(1), "out of order");
        refused(9, lab.piece(1), "not what it should be");
        // What is of no file of the job, or was not asked for, is nothing.
        assert!(lab.goods(0).came(7, 0, lab.piece(0), true).fails.is_none());
        assert!(lab.goods(0).came(0, 0, lab.piece(0), true).fails.is_none());
        let mut goods = lab.goods(0);
        goods.want();
        (0..3).for_each(|i| assert!(goods.came(0, i, lab.piece(i as usize), true).fails.is_none()));
        assert!(goods.is_here() && std::fs::read(goods.program().unwrap()).unwrap() == lab.bytes);
        assert_eq!(std::fs::read_dir(lab.dir.join(goods.user.0.to_string())).unwrap().count(), 1, "nothing else stays");
    }

    #[test]
    fn all_children_get_one_copy_and_who_is_late_gets_it_too() {
        let lab = Lab::new("copies");
        let mut goods = lab.goods(3);
        goods.want();
        (0..2).for_each(|child| assert!(goods.receiver(child, 0, 3).send.is_empty(), "nothing is here yet"));
        let first = lab.piece(0);
        let got = sent(&goods.came(0, 0, first.clone(), true));
        assert_eq!(got.iter().map(|(to, index, _)| (*to, *index)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
        assert!(got.iter().all(|(_, _, bytes)| Arc::ptr_eq(bytes, &first)));
        let late = sent(&goods.receiver(2, 0, 3));
        assert!(late.len() == 1 && late[0].2 == first);
        (1..3).for_each(|i| assert_eq!(goods.came(0, i, lab.piece(i as usize), true).send.len(), 3));
    }

    #[test]
    fn what_somebody_did_to_a_kept_file_goes_no_further_than_to_the_next_node() {
        let lab = Lab::new("kept");
        let mut goods = lab.goods(1);
        goods.want();
        (0..3).for_each(|i| drop(goods.came(0, i, lab.piece(i as usize), true)));
        let kept = lab.dir.join(goods.user.0.to_string()).join(lab.parcel.content());
        std::fs::remove_file(&kept).unwrap();
        std::fs::write(&kept, vec![7; lab.bytes.len()]).unwrap();
        let got = sent(&goods.receiver(0, 0, 3));
        let mut next = lab.goods(0);
        next.want();
        assert!(next.came(0, 0, got[0].2.clone(), true).fails.is_some());
    }
}
