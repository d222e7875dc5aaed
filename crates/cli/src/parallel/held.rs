//! What a task has written, until it has ended: in memory, and in a file without a name where it is much.

use pando_launch::Stream;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;

/// What is more than this is in a file.
const IN_MEMORY: usize = 4 << 20;

/// See above.
#[derive(Default)]
pub struct Held {
    pieces: Vec<(Stream, Vec<u8>)>,
    bytes: usize,
    /// Bytes in all.
    pub total: u64,
    file: Option<BufWriter<File>>,
}

impl Held {
    /// More of it.
    pub fn add(&mut self, stream: Stream, bytes: Vec<u8>) -> io::Result<()> {
        self.bytes += bytes.len();
        self.total += bytes.len() as u64;
        match self.pieces.last_mut() {
            Some((last, text)) if *last == stream => text.extend(bytes),
            _ => self.pieces.push((stream, bytes)),
        }
        if self.bytes <= IN_MEMORY {
            return Ok(());
        }
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(std::env::temp_dir())?;
            self.file = Some(BufWriter::new(file));
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        for (stream, bytes) in self.pieces.drain(..) {
            file.write_all(&[u8::from(stream == Stream::Err)])?;
            file.write_all(&(bytes.len() as u64).to_le_bytes())?;
            file.write_all(&bytes)?;
        }
        self.bytes = 0;
        Ok(())
    }

    /// All of it, in its order.
    pub fn each(self, mut act: impl FnMut(Stream, &[u8]) -> io::Result<()>) -> io::Result<()> {
        if let Some(file) = self.file {
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.rewind()?;
            let mut file = BufReader::new(file);
            let mut head = [0; 9];
            while file.read_exact(&mut head).is_ok() {
                let [stream, length @ ..] = head;
                let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
                file.read_exact(&mut bytes)?;
                act(if stream == 0 { Stream::Out } else { Stream::Err }, &bytes)?;
            }
        }
        self.pieces.iter().try_for_each(|(stream, bytes)| act(*stream, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_comes_out_as_it_went_in() {
        let mut held = Held::default();
        for i in 0..200u32 {
            let stream = if i % 3 == 0 { Stream::Err } else { Stream::Out };
            held.add(stream, vec![i as u8; 70_000]).unwrap();
        }
        assert!(held.file.is_some());
        let mut next =
            [(0..200u32).filter(|i| i % 3 != 0).collect::<Vec<_>>(), (0..200).filter(|i| i % 3 == 0).collect()];
        held.each(|stream, bytes| {
            for chunk in bytes.chunks(70_000) {
                let i = next[usize::from(stream == Stream::Err)].remove(0);
                assert!(chunk.iter().all(|b| *b == i as u8));
            }
            Ok(())
        })
        .unwrap();
        assert!(next.iter().all(Vec::is_empty));
    }
}
