//! `pando __bench-peer`: plain TCP between two nodes, the limit to which everything else is compared; and streams without an end, as a load.

use crate::demo::report::median;
use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What plain TCP does between two nodes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Raw {
    /// Round trip of 64 bytes, microseconds, median.
    pub round_trip_us: f64,
    /// Bytes per second in one stream into memory that is new, as a moved process needs it.
    pub stream_fresh: f64,
    /// Bytes per second in one stream, to the other node.
    pub stream_away: f64,
    /// And back.
    pub stream_back: f64,
}

/// The port of the partner, in the other node's namespace.
pub const PORT: u16 = 7401;
/// The port of what takes a stream without an end.
const POUR: u16 = 7402;
const ROUNDS: usize = 4000;
const CHUNK: usize = 256 << 10;
/// Bytes streamed each way: about a second or less.
const STREAM: usize = 1 << 30;
/// Rates are of the best of several runs: this is the limit, so what disturbed it does not count.
pub const RUNS: usize = 3;

/// Serves one partner, or is the partner of the one at `address` and prints what it measured.
pub fn main(words: &[String]) -> Result<()> {
    match words {
        [] => serve(),
        [pour] if pour == "pour" => swallow_all(),
        [pour, address] if pour == "pour" => pour_out(address),
        [address, ..] => {
            let raw = call(address)?;
            crate::say(&crate::json_text(&raw)?);
            Ok(())
        }
    }
}

/// Takes what comes.
fn swallow_all() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", POUR)).context("listen")?;
    crate::say("ready\n");
    let (mut stream, _) = listener.accept().context("accept")?;
    let mut chunk = vec![0u8; CHUNK];
    while stream.read(&mut chunk).context("read")? > 0 {}
    Ok(())
}

/// Sends until it is killed.
fn pour_out(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect((address, POUR)).context("connect")?;
    crate::say("ready\n");
    let chunk = vec![7u8; CHUNK];
    loop {
        stream.write_all(&chunk).context("write")?;
    }
}

fn serve() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).context("listen")?;
    crate::say("ready\n");
    let (mut stream, _) = listener.accept().context("accept")?;
    let mut chunk = vec![7u8; CHUNK];
    stream.set_nodelay(true).context("set TCP_NODELAY")?;
    for _ in 0..ROUNDS {
        stream.read_exact(&mut chunk[..64]).context("read")?;
        stream.write_all(&chunk[..64]).context("write")?;
    }
    for _ in 0..RUNS {
        // Large allocations are mapped anew each time, and the pages come with the first touch.
        let mut fresh: Vec<u8> = Vec::with_capacity(STREAM);
        std::io::Read::by_ref(&mut stream).take(STREAM as u64).read_to_end(&mut fresh).context("read")?;
        stream.write_all(&chunk[..1]).context("write")?;
        drop(fresh);
        swallow(&mut stream, &mut chunk)?;
        stream.write_all(&chunk[..1]).context("write")?;
        for _ in 0..STREAM / CHUNK {
            stream.write_all(&chunk).context("write")?;
        }
    }
    Ok(())
}

fn swallow(stream: &mut TcpStream, chunk: &mut [u8]) -> Result<()> {
    let mut left = STREAM;
    while left > 0 {
        let most = left.min(chunk.len());
        let got = stream.read(&mut chunk[..most]).context("read")?;
        if got == 0 {
            return Err(crate::Error::Other("the other side went away".into()));
        }
        left -= got;
    }
    Ok(())
}

fn call(address: &str) -> Result<Raw> {
    let mut stream = TcpStream::connect((address, PORT)).context("connect")?;
    stream.set_nodelay(true).context("set TCP_NODELAY")?;
    let mut chunk = vec![7u8; CHUNK];
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        stream.write_all(&chunk[..64]).context("write")?;
        stream.read_exact(&mut chunk[..64]).context("read")?;
        rounds.push(start.elapsed().as_nanos() as u64);
    }
    let rate = |took: Duration| STREAM as f64 / took.as_secs_f64();
    let (mut fresh, mut away, mut back) = (0f64, 0f64, 0f64);
    for _ in 0..RUNS {
        for best in [&mut fresh, &mut away] {
            let start = Instant::now();
            for _ in 0..STREAM / CHUNK {
                stream.write_all(&chunk).context("write")?;
            }
            // The byte says that all of it has arrived.
            stream.read_exact(&mut chunk[..1]).context("read")?;
            *best = best.max(rate(start.elapsed()));
        }
        let start = Instant::now();
        swallow(&mut stream, &mut chunk)?;
        back = back.max(rate(start.elapsed()));
    }
    let round_trip_us = median(&mut rounds).unwrap_or(0) as f64 / 1000.0;
    Ok(Raw { round_trip_us, stream_fresh: fresh, stream_away: away, stream_back: back })
}
