//! What ranks write, to where it belongs: whole lines of many ranks side by side, a single rank as it comes, or files.

use super::filled::{self, Names, Writer};
use super::terminal;
use crate::args::ParallelOptions;
use pando_launch::{Share, Stream};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// What has so many bytes and no end is no line.
const LONGEST_LINE: usize = 16 << 20;

/// See above.
pub struct Printer {
    label: bool,
    /// Patterns of files' names.
    out: Option<String>,
    err: Option<String>,
    files: BTreeMap<String, File>,
    /// The beginnings of lines.
    rest: BTreeMap<(u32, Stream), Vec<u8>>,
    /// The last thing shown was the beginning of this one's line.
    open: Option<(u32, Stream)>,
    names: Names,
    nodes: Vec<Share>,
    /// Bytes are shown as they come: the user wants that, or there is one rank.
    unbuffered: bool,
    single: bool,
    /// The terminal here is the first rank's, and does nothing to what is written.
    raw: bool,
}

impl Printer {
    /// As the user has it.
    pub fn new(options: &ParallelOptions) -> Result<Printer, String> {
        let out = options.output.clone();
        let err = options.error.clone().or_else(|| out.clone());
        for pattern in [&out, &err].into_iter().flatten() {
            filled::check(pattern)?;
            let dir =
                Path::new(pattern).parent().filter(|d| !d.as_os_str().is_empty() && !d.to_string_lossy().contains('%'));
            if let Some(dir) = dir.filter(|dir| !dir.is_dir()) {
                return Err(format!("--output {pattern}: there is no directory {}", dir.display()));
            }
        }
        Ok(Printer {
            label: options.label,
            out,
            err,
            files: BTreeMap::new(),
            rest: BTreeMap::new(),
            open: None,
            names: Names::here(options.job_name.as_deref().unwrap_or_default()),
            nodes: Vec::new(),
            unbuffered: options.unbuffered,
            single: options.unbuffered,
            raw: options.pty,
        })
    }

    /// These run it.
    pub fn begin(&mut self, job: u64, nodes: &[Share]) {
        self.names.begin(job);
        self.nodes = nodes.to_vec();
        let all: Vec<u32> = nodes.iter().flat_map(|n| n.first..n.first + n.ranks).collect();
        for pattern in [self.out.clone(), self.err.clone()].into_iter().flatten() {
            // Those of ranks that write nothing, too: an earlier job's must not be taken for theirs.
            all.iter().for_each(|rank| self.write_file(&pattern, *rank, &[]));
        }
        self.single |= nodes.iter().map(|n| n.ranks).sum::<u32>() == 1 && !self.label;
    }

    /// These have been started by them, and run as well.
    pub fn more(&mut self, nodes: &[Share]) {
        self.nodes.extend_from_slice(nodes);
        self.single = self.unbuffered;
    }

    /// There are beginnings of lines that are not shown.
    pub fn has_rest(&self) -> bool {
        self.rest.iter().any(|(key, bytes)| !bytes.is_empty() && is_terminal(key.1))
    }

    /// Nothing has come for a while: on a terminal, what waits may be a prompt.
    pub fn pause(&mut self) {
        let keys: Vec<(u32, Stream)> = self.rest.keys().copied().filter(|k| is_terminal(k.1)).collect();
        for key in keys {
            let bytes = self.rest.remove(&key).unwrap_or_default();
            self.show(key, &bytes);
        }
    }

    /// A rank has written this.
    pub fn output(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let pattern = if stream == Stream::Out { &self.out } else { &self.err };
        if let Some(pattern) = pattern.clone() {
            return self.write_file(&pattern, rank, bytes);
        }
        let key = (rank, stream);
        if self.raw && rank == 0 {
            return self.write(stream, bytes);
        }
        if self.single {
            return self.show(key, bytes);
        }
        let waits = self.rest.entry(key).or_default();
        waits.extend_from_slice(bytes);
        let end = match waits.iter().rposition(|b| *b == b'\n') {
            Some(last) => last + 1,
            None if waits.len() > LONGEST_LINE => waits.len(),
            None => return,
        };
        let rest = waits.split_off(end);
        let whole = std::mem::replace(waits, rest);
        self.show(key, &whole);
    }

    /// Something of ours.
    pub fn say(&mut self, text: &str) {
        self.close_line();
        self.show_raw(Stream::Err, format!("pando: {text}\n").as_bytes());
    }

    /// All that waits is shown.
    pub fn finish(&mut self) {
        for (key, bytes) in std::mem::take(&mut self.rest) {
            if !bytes.is_empty() {
                self.show(key, &bytes);
            }
        }
        self.close_line();
    }

    fn show(&mut self, key: (u32, Stream), bytes: &[u8]) {
        if self.open.is_some_and(|other| other != key) {
            self.close_line();
        }
        if self.label {
            let mut text = Vec::with_capacity(bytes.len() + 16);
            let width =
                self.nodes.iter().map(|n| n.first + n.ranks).max().unwrap_or(1).saturating_sub(1).to_string().len();
            let mut goes_on = self.open == Some(key);
            for line in bytes.split_inclusive(|b| *b == b'\n') {
                if !goes_on {
                    text.extend(format!("{:>width$}: ", key.0).into_bytes());
                }
                goes_on = false;
                text.extend_from_slice(line);
            }
            self.show_raw(key.1, &text);
        } else {
            self.show_raw(key.1, bytes);
        }
        self.open = (!bytes.ends_with(b"\n")).then_some(key);
    }

    /// Another one's line, or one of ours, is not to be glued to a prompt.
    fn close_line(&mut self) {
        if let Some((_, stream)) = self.open.take().filter(|open| self.label || is_terminal(open.1)) {
            self.show_raw(stream, b"\n");
        }
    }

    fn show_raw(&self, stream: Stream, bytes: &[u8]) {
        if !self.raw || !terminal::is_raw() {
            return self.write(stream, bytes);
        }
        // Where a terminal would have done it.
        let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
        self.write(stream, &lines.join(&b"\r\n"[..]));
    }

    fn write(&self, stream: Stream, bytes: &[u8]) {
        let done = match stream {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Stream::Err => io::stderr().lock().write_all(bytes),
        };
        if let (Err(e), Stream::Out) = (done, stream) {
            end_by(&e);
        }
    }

    fn write_file(&mut self, pattern: &str, rank: u32, bytes: &[u8]) {
        let at = self.nodes.iter().position(|n| rank >= n.first && rank - n.first < n.ranks);
        let node = at.map_or("", |at| self.nodes[at].node.as_str());
        let name = self
            .names
            .fill(pattern, Writer { rank, at: self.nodes.iter().position(|n| n.node == node).unwrap_or(0), node });
        let key = name.to_string_lossy().into_owned();
        if !self.files.contains_key(&key) {
            match File::create(&name) {
                Ok(file) => _ = self.files.insert(key.clone(), file),
                Err(e) => {
                    eprintln!("pando: {}: {e}; the job is ended", name.display());
                    std::process::exit(1);
                }
            }
        }
        let done = self.files.get_mut(&key).map(|file| file.write_all(bytes));
        if let Some(Err(e)) = done {
            eprintln!("pando: {}: {e}; the job is ended", name.display());
            std::process::exit(1);
        }
    }
}

/// Nobody can be told any more: as if the program had written there itself.
pub fn end_by(e: &io::Error) -> ! {
    terminal::leave();
    if e.kind() == io::ErrorKind::BrokenPipe {
        pando_node::sys::die_of(libc::SIGPIPE);
        std::process::exit(128 + libc::SIGPIPE);
    }
    eprintln!("pando: standard output: {e}");
    std::process::exit(1);
}

fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Out => io::stdout().is_terminal(),
        Stream::Err => io::stderr().is_terminal(),
    }
}
