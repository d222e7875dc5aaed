//! The program that goes along with a job, at one node: has it the file, and who else wants it?

use super::cache::{self, Cache, Coming};
use pando_launch::{Child, Down, Order, Program, Spread};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are on their way to one receiver.
const WINDOW: u64 = 4 << 20;

/// What comes of something that was heard.
#[derive(Default)]
pub struct News {
    /// The parent may send pieces up to this one.
    pub ask: Option<u32>,
    /// What goes to which child.
    pub send: Vec<(usize, Down)>,
    /// It can't go on; for people.
    pub fails: Option<String>,
}

/// See above.
pub struct Goods {
    cache: Arc<Cache>,
    program: Program,
    spread: Spread,
    uid: u32,
    job: u64,
    /// The file, when all of it is here.
    file: Option<File>,
    coming: Option<Coming>,
    /// It is executed from `file`, and not from where the user's word finds it.
    came: bool,
}

impl Goods {
    /// Of a job that has such a program. `uid`, `gid`: its user's here. `children`: as the node's part has them.
    pub fn new(cache: &Arc<Cache>, order: &Order, (uid, gid): (u32, u32), children: &[Child]) -> Option<Goods> {
        let program = order.program.clone()?;
        let path = Path::new(OsStr::from_bytes(&program.path));
        let same = if program.always { None } else { cache::same_here(cache, path, (uid, gid), &program) };
        let came = same.is_none();
        let file = same.or_else(|| cache.find(uid, &program));
        let window = (WINDOW / program.range(0).1.max(1) as u64).clamp(2, 16) as u32;
        let spread = Spread::new(program.count(), file.is_some(), children.len(), window);
        Some(Goods { cache: cache.clone(), program, spread, uid, job: order.job, file, coming: None, came })
    }

    /// What the launcher is to execute; none: what it finds itself.
    pub fn file(&self) -> Option<std::io::Result<File>> {
        self.file.as_ref().filter(|_| self.came).map(File::try_clone)
    }

    /// All of it is here.
    pub fn is_here(&self) -> bool {
        self.file.is_some()
    }

    /// It is wanted here.
    pub fn want(&mut self) -> News {
        let ask = self.spread.want();
        self.asked(ask)
    }

    fn asked(&mut self, ask: Option<u32>) -> News {
        let mut news = News { ask, ..News::default() };
        if ask.is_some() && self.coming.is_none() {
            match self.cache.begin(self.uid, &self.program, self.job) {
                Ok(coming) => self.coming = Some(coming),
                Err(e) => news = News { fails: Some(format!("no place for the program: {e}")), ..News::default() },
            }
        }
        news
    }

    /// A child may get pieces up to this one.
    pub fn receiver(&mut self, at: usize, upto: u32) -> News {
        let ask = self.spread.receiver(at, upto);
        let mut news = self.asked(ask);
        self.pump(&mut news);
        news
    }

    /// A piece has come.
    pub fn came(&mut self, index: u32, bytes: &[u8]) -> News {
        let fails = |why: String| News { fails: Some(why), ..News::default() };
        let Some(coming) = &self.coming else { return News::default() };
        if !self.program.is_piece(index, bytes) {
            return fails("a piece of the program that came from above is not what it should be".into());
        }
        let offset = self.program.range(index).0;
        if let Err(e) = coming.keep(offset, bytes) {
            return fails(format!("the program can't be kept: {e}"));
        }
        let Some(ask) = self.spread.came(index) else {
            return fails("a piece of the program came out of order".into());
        };
        let mut news = News { ask, ..News::default() };
        if self.spread.is_here()
            && let Some(coming) = self.coming.take()
        {
            match self.cache.finish(coming, &self.program) {
                Ok(file) => self.file = Some(file),
                Err(e) => return fails(format!("the program can't be kept: {e}")),
            }
        }
        self.pump(&mut news);
        news
    }

    /// Whatever can be sent is.
    fn pump(&mut self, news: &mut News) {
        while let Some((at, index)) = self.spread.send_next() {
            let (offset, length) = self.program.range(index);
            let read = match (&self.file, &self.coming) {
                (Some(file), _) => cache::piece(file, offset, length),
                (None, Some(coming)) => coming.piece(offset, length),
                (None, None) => return,
            };
            match read {
                // Somebody may write to the file while it is sent.
                Ok(bytes) if self.program.is_piece(index, &bytes) => news.send.push((at, Down::Piece { index, bytes })),
                Ok(_) => return news.fails = Some("the program's file was changed while it was sent".into()),
                Err(e) => return news.fails = Some(format!("the program's file: {e}")),
            }
        }
    }
}
