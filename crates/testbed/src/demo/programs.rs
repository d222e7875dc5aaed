//! The demo's programs: real ones that any Debian has, unmodified; one with threads, one that starts others all the time.
//!
//! Each is given its amount of work as a count, which is found by a short trial run, so that all of them last about
//! equally long on any machine.

use crate::error::{Context, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A program and how much it is to do.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name, in tables.
    pub name: &'static str,
    /// The executable.
    pub path: PathBuf,
    work: Work,
    /// How many times the unit of work.
    pub count: usize,
}

/// What one unit of work is.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// These arguments, then the small file once per unit.
    Small(&'static [&'static str]),
    /// The same with the large file.
    Large(&'static [&'static str]),
    /// These arguments, then the count.
    Count(&'static [&'static str]),
    /// A script on standard input; `COUNT` in it is the count.
    Script(&'static [&'static str], &'static str),
}

const AWK: &str = "{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) s += n[w] * length(w); \
                   for (i = 1; i < 4000; i++) t += sqrt(i) * (s % i); printf \"%d %d %.9f\\n\", NR, s, t }";

const PERL: &str = "my ($n, $h, %seen) = (shift, 5381); for my $i (1 .. $n * 20000) { \
                    $h = ($h * 33 + $i) & 0xffffffff; $seen{$h % 9973} .= chr(65 + $h % 26) if $i % 7 == 0 } \
                    print \"$_ $seen{$_}\\n\" for sort { $a <=> $b } keys %seen; print \"$h\\n\"";

const PYTHON: &str = "import sys, zlib, json
n, text = int(sys.argv[1]), ''
for i in range(n * 40):
    words = {str(k * i % 997): (k * k + i) % 1013 for k in range(200)}
    text = json.dumps(words, sort_keys=True)
    if i % 50 == 0: print(i, zlib.crc32(text.encode()), len(zlib.compress(text.encode(), 9)), flush=True)
print(text)
";

const BC: &str = "scale=60\ns=0\nfor (i=1; i<=COUNT*400; i++) { s += 1/(i*i*i) ; s = s * (1 - 1/(i*i+1)) }\ns\n";

const SHELL: &str = "i=0; while [ $i -lt $(($0 * 8)) ]; do i=$((i + 1)); \
                     echo $i $i | tr 1-4 5-8 | (read a b; expr $a + $b \\* $i); done";

const CANDIDATES: [(&str, &str, Work); 11] = [
    ("gzip", "gzip", Work::Small(&["-9", "-c"])),
    ("sha256sum", "sha256sum", Work::Large(&[])),
    ("sort", "sort", Work::Small(&["--parallel=1", "-S", "64M", "-k2,2", "-k1,1"])),
    ("awk", "awk", Work::Small(&[AWK])),
    ("perl", "perl", Work::Count(&["-e", PERL])),
    ("bzip2", "bzip2", Work::Small(&["-9", "-c"])),
    ("xz", "xz", Work::Small(&["-T1", "-4", "-c"])),
    ("python3", "python3", Work::Count(&["-S", "-c", PYTHON])),
    ("bc", "bc", Work::Script(&["-l", "-q"], BC)),
    ("threads", "xz", Work::Small(&["-T2", "--block-size=65536", "-4", "-c"])),
    ("children", "sh", Work::Count(&["-c", SHELL])),
];

/// Most units of work.
pub const MOST_WORK: usize = 4000;

/// The data that programs read.
pub struct Data {
    /// Where everything of the demo is.
    pub dir: PathBuf,
    small: PathBuf,
    large: PathBuf,
}

const SMALL: usize = 512 << 10;
const LARGE: usize = 8 << 20;

impl Data {
    /// Writes it. The same seed gives the same data on every machine.
    pub fn make(dir: &Path, seed: u64) -> Result<Data> {
        let data = Data { dir: dir.to_path_buf(), small: dir.join("text"), large: dir.join("bytes") };
        for (path, bytes) in [(&data.small, text(seed, SMALL)), (&data.large, noise(seed, LARGE))] {
            File::create(path).and_then(|mut f| f.write_all(&bytes)).at("write", path)?;
        }
        Ok(data)
    }
}

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Lines of words, frequent and rare ones: compressible, sortable, countable.
fn text(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let words: Vec<String> = (0..5000)
        .map(|_| (0..2 + random.next() % 8).map(|_| (b'a' + (random.next() % 26) as u8) as char).collect())
        .collect();
    let mut out = Vec::with_capacity(size + 100);
    while out.len() < size {
        for _ in 0..4 + random.next() % 8 {
            let rank = random.next() % 5000 * (random.next() % 5000) / 5000;
            out.extend_from_slice(words[rank as usize].as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(format!("{}\n", random.next() % 100_000).as_bytes());
    }
    out
}

fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random(!seed | 1);
    (0..size / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Those that are installed. `at` names the directory of the data.
pub fn installed() -> Vec<Program> {
    let make = |(name, file, work): &(&'static str, &str, Work)| {
        Some(Program { name, path: find(file)?, work: *work, count: 1 })
    };
    CANDIDATES.iter().filter_map(make).collect()
}

/// Finds a program in PATH. A script (as version managers put before the real one) would be another program that
/// starts others, so only ELF files count.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_elf = |p: &PathBuf| {
        let mut magic = [0; 4];
        File::open(p).and_then(|mut f| f.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
    };
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(is_elf)
}

impl Program {
    /// Arguments of the program for its count of work.
    pub fn args(&self, data: &Data) -> Vec<OsString> {
        let files = |fixed: &[&str], file: &Path| {
            let fixed = fixed.iter().map(OsString::from);
            fixed.chain(std::iter::repeat_n(file.as_os_str().to_owned(), self.count)).collect()
        };
        match self.work {
            Work::Small(fixed) => files(fixed, &data.small),
            Work::Large(fixed) => files(fixed, &data.large),
            Work::Count(fixed) => {
                fixed.iter().map(OsString::from).chain([OsString::from(self.count.to_string())]).collect()
            }
            Work::Script(fixed, _) => fixed.iter().map(OsString::from).collect(),
        }
    }

    /// What the program reads from standard input: a file in `dir`, or nothing.
    pub fn input(&self, dir: &Path) -> Result<File> {
        let Work::Script(_, script) = self.work else {
            return File::open("/dev/null").context("open /dev/null");
        };
        let path = dir.join(format!("{}.script", self.name));
        std::fs::write(&path, script.replace("COUNT", &self.count.to_string())).at("write", &path)?;
        File::open(&path).at("open", &path)
    }

    /// Sets the count, within reason: a command line has a limit, and a wrong guess must not last for ever.
    pub fn set_count(&mut self, wanted: f64) {
        self.count = (wanted.round() as usize).clamp(1, MOST_WORK);
    }

    /// The command line for people.
    pub fn title(&self) -> String {
        match self.work {
            Work::Small(fixed) | Work::Large(fixed) => {
                let options: Vec<&str> = fixed.iter().copied().filter(|a| a.len() < 20).collect();
                [&[self.name], options.as_slice()].concat().join(" ")
            }
            Work::Count(_) | Work::Script(..) => format!("{} (script)", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_data() {
        assert_eq!(text(7, 10_000), text(7, 10_000));
        assert_ne!(text(7, 10_000), text(8, 10_000));
        assert_eq!(noise(7, 4096).len(), 4096);
    }

    #[test]
    fn work_has_bounds() {
        let mut p = Program { name: "x", path: "/x".into(), work: Work::Count(&[]), count: 2 };
        p.set_count(19.7);
        assert_eq!(p.count, 20);
        p.set_count(f64::INFINITY);
        assert_eq!(p.count, MOST_WORK);
        p.set_count(-1.0);
        assert_eq!(p.count, 1);
    }
}
