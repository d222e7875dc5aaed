//! `pando __heap` and `pando __probe`: programs that are moved, and measure themselves while they are away.
//!
//! They cannot know where they are (that is the point of Pando); the benchmark tells the probe by a line on its
//! standard input when to measure.

use crate::demo::report::median;
use crate::error::{Context, Error, Result};
use crate::sys;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Memory whose every page has content of its own, so that none can be left out of a transfer.
struct Heap {
    pages: Vec<u64>,
}

impl Heap {
    fn new(megabytes: usize) -> Heap {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let pages = (0..megabytes << 17).map(|_| next(&mut state)).collect();
        Heap { pages }
    }

    fn sum(&self) -> u64 {
        self.pages.iter().fold(0, |sum, word| sum.rotate_left(1) ^ word)
    }

    fn page_count(&self) -> usize {
        self.pages.len() * 8 / PAGE
    }

    fn first_word(&mut self, page: usize) -> &mut u64 {
        &mut self.pages[page * PAGE / 8]
    }
}

/// A step of xorshift.
pub(super) fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// `pando __heap MB [alone|THREADS]`: touches that much memory and reads it over and over, by that many threads; ends well when its
/// standard input does, or badly as soon as a checksum is wrong.
pub fn heap(words: &[String]) -> Result<()> {
    let megabytes = words.first().and_then(|w| w.parse().ok()).unwrap_or(1);
    // Nobody at the other end of the input: run until killed.
    let alone = words.get(1).is_some_and(|w| w == "alone");
    let heap = Heap::new(megabytes);
    let wanted = heap.sum();
    let threads = words.get(1).and_then(|w| w.parse::<usize>().ok()).unwrap_or(1);
    let heap = std::sync::Arc::new(heap);
    for _ in 1..threads {
        let heap = heap.clone();
        std::thread::spawn(move || {
            while heap.sum() == wanted {}
            eprintln!("a thread saw other memory");
            std::process::abort();
        });
    }
    println!("ready");
    let mut asked = Instant::now();
    loop {
        if heap.sum() != wanted {
            return Err(Error::Other("the memory is not what it was".into()));
        }
        // The clock costs nothing abroad; asking about the input would be a forwarded call in each round.
        if !alone && asked.elapsed() > Duration::from_millis(50) {
            asked = Instant::now();
            if crate::sys::poll(&[0], Some(Duration::ZERO)).context("look at the input")?[0] {
                println!("same");
                return Ok(());
            }
        }
    }
}

/// `pando __probe`: does what each line of its standard input says and answers with a line of JSON.
pub fn probe() -> Result<()> {
    println!("ready");
    let mut heap = Heap::new(1);
    let mut huge = sys::HugeWords::default();
    let mut kept = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read a line")?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = || words.get(1).and_then(|w| w.parse::<usize>().ok()).unwrap_or(1);
        let answer = match words[0] {
            "alloc" => {
                heap = Heap::new(number());
                serde_json::json!({ "sum": heap.sum() })
            }
            "dirty" => {
                (0..heap.page_count()).for_each(|p| *heap.first_word(p) ^= 1);
                serde_json::json!({})
            }
            "sum" => serde_json::json!({ "sum": heap.sum() }),
            "fault" => faults(&mut heap),
            "getppid" => getppid(number()),
            "spawn" => spawn(number())?,
            "file" => file(words.get(1).unwrap_or(&"/dev/null"))?,
            "read" => super::files::read(words.get(1).unwrap_or(&""), words.get(2).unwrap_or(&""))?,
            "spin" => spin(),
            "still" => still(),
            "huge" => {
                huge = sys::HugeWords::new(number() << 20).context("map memory")?;
                let mut state = 0x9e37_79b9_7f4a_7c15u64;
                huge.words().iter_mut().for_each(|word| *word = next(&mut state));
                serde_json::json!({})
            }
            "walk" => super::memory::walk(huge.words()),
            "malloc" => super::memory::churn(number(), &mut kept, false),
            "mapped" => super::memory::churn(number(), &mut Vec::new(), true),
            "scribble" if words.get(1) == Some(&"huge") => super::memory::scribble(huge.words()),
            "scribble" => super::memory::scribble(&mut heap.pages),
            other => return Err(Error::Other(format!("`{other}` is nothing to probe"))),
        };
        println!("{answer}");
    }
    Ok(())
}

/// What takes longer than this was no touch of a page that is there.
const A_FAULT: Duration = Duration::from_micros(4);
const FAULTS_WANTED: usize = 1000;

/// Touches pages at random until enough of them were missing.
fn faults(heap: &mut Heap) -> serde_json::Value {
    let mut state = 88_172_645_463_325_252;
    let mut took = Vec::new();
    let mut sum = 0u64;
    let start = Instant::now();
    while took.len() < FAULTS_WANTED && start.elapsed() < Duration::from_millis(500) {
        let page = next(&mut state) as usize % heap.page_count();
        let before = Instant::now();
        sum ^= std::hint::black_box(*heap.first_word(page));
        let elapsed = before.elapsed();
        if elapsed >= A_FAULT {
            took.push(elapsed.as_nanos() as u64);
        }
    }
    std::hint::black_box(sum);
    let count = took.len();
    serde_json::json!({ "ns": median(&mut took), "count": count })
}

fn getppid(count: usize) -> serde_json::Value {
    let mut took: Vec<u64> = Vec::with_capacity(count);
    for _ in 0..count {
        let before = Instant::now();
        std::hint::black_box(std::os::unix::process::parent_id());
        took.push(before.elapsed().as_nanos() as u64);
    }
    serde_json::json!({ "ns": median(&mut took) })
}

/// Starts a program that does nothing and waits for it.
fn spawn(count: usize) -> Result<serde_json::Value> {
    let mut took: Vec<u64> = Vec::with_capacity(count);
    for _ in 0..count {
        let before = Instant::now();
        std::process::Command::new("/bin/true").status().context("start /bin/true")?;
        took.push(before.elapsed().as_nanos() as u64);
    }
    Ok(serde_json::json!({ "ns": median(&mut took) }))
}

/// Writes and reads a file by 4 KB.
fn file(path: &str) -> Result<serde_json::Value> {
    const ROUNDS: usize = 1000;
    let mut file: File =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).context("open a file")?;
    let mut block = [5u8; PAGE];
    let (mut writes, mut reads) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        let before = Instant::now();
        file.write_all(&block).context("write")?;
        writes.push(before.elapsed().as_nanos() as u64);
    }
    file.seek(SeekFrom::Start(0)).context("seek")?;
    for _ in 0..ROUNDS {
        let before = Instant::now();
        file.read_exact(&mut block).context("read")?;
        reads.push(before.elapsed().as_nanos() as u64);
    }
    Ok(serde_json::json!({ "write_ns": median(&mut writes), "read_ns": median(&mut reads) }))
}

/// The same loop again and again, with a line about the time of each: the benchmark moves the process meanwhile.
fn spin() -> ! {
    let mut state = 1u64;
    loop {
        let before = Instant::now();
        for _ in 0..10_000_000 {
            std::hint::black_box(next(&mut state));
        }
        println!("{}", serde_json::json!({ "ns": before.elapsed().as_nanos() as u64 }));
    }
}

/// Computes without a call and without a touch of the heap until SIGUSR1 comes.
fn still() -> serde_json::Value {
    crate::sys::catch(libc::SIGUSR1);
    println!("{{}}");
    while crate::sys::interrupted().is_none() {
        std::hint::spin_loop();
    }
    crate::sys::clear_interrupt();
    serde_json::json!({})
}
