//! `pando bench fabric`: how fast nodes come into one view, what a Compare-And-Write of all of them takes, how regular the strobe is, and how
//! fast a transfer to all of them is, beside plain TCP between two of them.

use super::{measure, peer};
use crate::demo::report::median;
use crate::error::{Context, Error, Result};
use crate::place::{Plan, Shape};
use crate::scratch::Scratch;
use crate::{api, down, sys, up};
use serde::Serialize;
use sim::table::Table;
use std::time::{Duration, Instant};

/// Compare-And-Writes, one after the other.
const ROUNDS: usize = 300;
/// Periods of the strobe that are tried, milliseconds.
const PERIODS: [u64; 3] = [10, 2, 1];
/// Each for so long.
const BEATING: Duration = Duration::from_secs(4);
/// All nodes hold the region twice for a moment: of larger clusters less is sent, so that a small machine has room for it.
const MOST_IN_ALL: usize = 4 << 30;
const LONGEST: usize = 256 << 20;
/// They have found each other within this.
const TOGETHER: Duration = Duration::from_secs(120);

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As JSON.
    pub json: bool,
    /// Sizes of the clusters.
    pub sizes: Vec<usize>,
}

/// With one period.
#[derive(Clone, Debug, Serialize)]
pub struct Beating {
    /// What was wanted, milliseconds.
    pub period_ms: u64,
    /// Beats a second that came to the slowest node.
    pub per_second: f64,
    /// Times between two beats were off by less than this, microseconds: half of them, and 99 of 100, at the worst node.
    pub off_us: [u64; 2],
    /// Beats that the manager did not send in time, of a hundred.
    pub skipped_percent: f64,
    /// Those that came after more than one and a half periods, of a hundred, at the worst node.
    pub late_percent: f64,
}

/// Of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Size of the cluster.
    pub nodes: usize,
    /// From when the testbed was up until all were in one view, seconds.
    pub together_s: f64,
    /// A request to the local API that asks no other node, microseconds, median: part of the next.
    pub request_us: f64,
    /// A Compare-And-Write of all nodes, microseconds: the median, and 99 of 100.
    pub compare_us: [f64; 2],
    /// The strobe.
    pub strobe: Vec<Beating>,
    /// Megabytes of the transfer.
    pub transfer_mb: usize,
    /// Bytes a second that each node gets down the tree.
    pub transfer: f64,
    /// The same by multicast; none where too few hear it.
    pub multicast: Option<f64>,
    /// Down the tree, by libfabric's provider tcp, in a cluster of its own; none where it is not there.
    pub libfabric: Option<f64>,
    /// Of what came so by multicast, the part of a hundred that had to come down the tree, at the worst node.
    pub mended_percent: f64,
    /// Plain TCP between two of the nodes: round trip, and streams.
    pub raw: peer::Raw,
}

/// Measures; the exit status.
pub fn run(wanted: &Wanted) -> Result<i32> {
    sys::catch_interrupts();
    let mut all = Vec::new();
    for &nodes in &wanted.sizes {
        let name = format!("bench-{}", std::process::id());
        let shape = Shape { nodes, still: true, ..Shape::default() };
        let outcome = up::up(&name, shape.clone(), true, None).and_then(|plan| figures(&plan));
        let gone = down::down(&name);
        let mut one = outcome?;
        gone?;
        one.libfabric = by_libfabric(&name, shape)?;
        all.push(one);
    }
    sys::clear_interrupt();
    match wanted.json {
        true => crate::say(&crate::json_text(&all)?),
        false => crate::say(&text(&all)),
    }
    Ok(0)
}

/// Bytes a second of a transfer in a cluster that has libfabric; none where it does not go by that.
fn by_libfabric(name: &str, shape: Shape) -> Result<Option<f64>> {
    let scratch = Scratch::make(&format!("{name}-libfabric"))?;
    let config = scratch.0.join("more.toml");
    std::fs::write(&config, "[fabric]\nlibfabric = \"tcp\"\n").at("write", &config)?;
    let shape = Shape { config: Some(config), ..shape };
    let measure = |plan: Plan| {
        together(&plan)?;
        let sockets: Vec<_> = plan.nodes().iter().map(|n| plan.socket(n)).collect();
        let bytes = vec![7; LONGEST.min(MOST_IN_ALL / sockets.len())];
        let sent = || sockets.iter().map(|s| Ok(api::fabric(s)?.libfabric.sent)).sum::<Result<u64>>();
        let before = sent()?;
        let (rate, _) = carry(&sockets, &bytes, true)?;
        // Nearly all of it, to each of the others.
        let enough = (bytes.len() * (sockets.len() - 1)) as u64 / 10 * 9;
        Ok((sent()? - before >= enough).then_some(rate))
    };
    let outcome = up::up(name, shape, true, None).and_then(measure);
    let gone = down::down(name);
    let rate = outcome?;
    gone.map(|_| rate)
}

/// Waits until all are in one view; how long that took, seconds.
pub fn together(plan: &Plan) -> Result<f64> {
    let begun = Instant::now();
    let sockets: Vec<_> = plan.nodes().iter().map(|n| plan.socket(n)).collect();
    let nodes = sockets.len();
    let is_member = |socket: &std::path::PathBuf| api::fabric(socket).is_ok_and(|s| s.members.len() == nodes);
    while !sockets.iter().all(is_member) {
        if begun.elapsed() > TOGETHER {
            return Err(Error::Other(format!("{nodes} nodes were not in one view within {TOGETHER:?}")));
        }
        pass(Duration::from_millis(20))?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn figures(plan: &Plan) -> Result<Figures> {
    let together_s = together(plan)?;
    let sockets: Vec<_> = plan.nodes().iter().map(|n| plan.socket(n)).collect();
    let nodes = sockets.len();
    let here = &sockets[0];
    let times = |act: &dyn Fn(usize) -> Result<()>| -> Result<Vec<u64>> {
        let one = |i| {
            let start = Instant::now();
            act(i).map(|()| start.elapsed().as_nanos() as u64)
        };
        let mut all = (0..ROUNDS).map(one).collect::<Result<Vec<u64>>>()?;
        all.sort_unstable();
        Ok(all)
    };
    let mut requests = times(&|_| api::variable(here, "x").map(drop))?;
    // The first ones make connections.
    (0..10).try_for_each(|_| api::compare_and_write(here, "x", 0, 0).map(drop))?;
    let mut compares = times(&|i| api::compare_and_write(here, "x", i as i64, i as i64 + 1).map(drop))?;
    if api::variable(&sockets[nodes - 1], "x")? != ROUNDS as i64 {
        return Err(Error::Other("the last node has missed a Compare-And-Write".into()));
    }
    let strobe = PERIODS.iter().map(|period| beating(&sockets, *period)).collect::<Result<Vec<_>>>()?;
    let bytes = vec![7; LONGEST.min(MOST_IN_ALL / nodes)];
    let (transfer, _) = carry(&sockets, &bytes, true)?;
    let hears = nodes > 2 && heard(here)?;
    let (multicast, mended_percent) = if hears { carry(&sockets, &bytes, false)? } else { (0.0, 0.0) };
    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(Figures {
        nodes,
        together_s,
        request_us: us(median(&mut requests).unwrap_or(0)),
        compare_us: [us(median(&mut compares).unwrap_or(0)), us(compares[ROUNDS * 99 / 100])],
        strobe,
        transfer_mb: bytes.len() >> 20,
        transfer,
        multicast: hears.then_some(multicast),
        libfabric: None,
        mended_percent,
        raw: measure::raw(plan)?,
    })
}

/// Do all hear the first one? It has found that out when there was a new view, or soon does.
fn heard(socket: &std::path::Path) -> Result<bool> {
    let begun = Instant::now();
    loop {
        if let Some((all, some)) = api::fabric(socket)?.multicast.heard {
            return Ok(some == all);
        }
        if begun.elapsed() > Duration::from_secs(10) {
            return Ok(false);
        }
        pass(Duration::from_millis(50))?;
    }
}

/// Bytes a second of a transfer, and what of a hundred had to be mended at the worst node.
fn carry(sockets: &[std::path::PathBuf], bytes: &[u8], tree: bool) -> Result<(f64, f64)> {
    // The first one makes connections, and fills memory that is new.
    api::transfer(&sockets[0], "warm", &bytes[..1 << 20], tree)?;
    let ways = || sockets.iter().map(|s| Ok(api::fabric(s)?.multicast)).collect::<Result<Vec<_>>>();
    let before = ways()?;
    let start = Instant::now();
    api::transfer(&sockets[0], "bench", bytes, tree)?;
    let rate = bytes.len() as f64 / start.elapsed().as_secs_f64();
    let after = ways()?;
    let mended = before.iter().zip(&after).map(|(a, b)| b.mended - a.mended).max().unwrap_or(0);
    // No node holds two of them longer than it must.
    api::transfer(&sockets[0], "bench", &[], tree)?;
    Ok((rate, mended as f64 * 100.0 / bytes.len() as f64))
}

fn beating(sockets: &[std::path::PathBuf], period_ms: u64) -> Result<Beating> {
    api::strobe_every(&sockets[0], period_ms * 1000)?;
    // It is counted anew with each period, and the manager's misses are not.
    pass(Duration::from_millis(200))?;
    let before = sockets.iter().map(|s| Ok((Instant::now(), api::fabric(s)?.strobe))).collect::<Result<Vec<_>>>()?;
    pass(BEATING)?;
    let after = sockets.iter().map(|s| Ok((Instant::now(), api::fabric(s)?.strobe))).collect::<Result<Vec<_>>>()?;
    let pairs = || before.iter().zip(&after);
    let beats = |(a, b): (&(Instant, api::Strobe), &(Instant, api::Strobe))| b.1.beats.saturating_sub(a.1.beats) as f64;
    let rate = |(a, b)| beats((a, b)) / b.0.duration_since(a.0).as_secs_f64();
    let late = |(a, b): (&(Instant, api::Strobe), &(Instant, api::Strobe))| {
        b.1.late.saturating_sub(a.1.late) as f64 * 100.0 / beats((a, b)).max(1.0)
    };
    let skipped = (after[0].1.skipped - before[0].1.skipped) as f64;
    let off = |which: fn((u64, u64)) -> u64| after.iter().filter_map(|(_, s)| s.off_us.map(which)).max().unwrap_or(0);
    let sent = beats((&before[0], &after[0]));
    api::strobe_every(&sockets[0], 1_000_000)?;
    Ok(Beating {
        period_ms,
        per_second: pairs().map(rate).fold(f64::INFINITY, f64::min),
        off_us: [off(|o| o.0), off(|o| o.1)],
        skipped_percent: skipped * 100.0 / (sent + skipped).max(1.0),
        late_percent: pairs().map(late).fold(0.0, f64::max),
    })
}

/// Waits; Ctrl-C ends it.
pub fn pass(time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn text(all: &[Figures]) -> String {
    let mut first = Table::new(&[
        "nodes",
        "one view after s",
        "request us",
        "Compare-And-Write us",
        "99 %",
        "TCP round trip us",
        "transfer MB",
        "tree MB/s to each",
        "to all",
        "multicast MB/s to each",
        "mended %",
        "libfabric MB/s to each",
        "plain TCP",
    ]);
    let mb = |bytes: f64| format!("{:.0}", bytes / 1e6);
    for f in all {
        let [half, most] = f.compare_us.map(|us| format!("{us:.0}"));
        let (together, request) = (format!("{:.1}", f.together_s), format!("{:.0}", f.request_us));
        let round_trip = format!("{:.0}", f.raw.round_trip_us);
        let whole = mb(f.transfer * (f.nodes - 1) as f64);
        let (each, raw) = (mb(f.transfer), mb(f.raw.stream_away));
        let (cast, mended) = (f.multicast.map_or_else(|| "-".into(), mb), format!("{:.1}", f.mended_percent));
        let rails = f.libfabric.map_or_else(|| "-".into(), mb);
        let times: [&dyn std::fmt::Display; 6] = [&f.nodes, &together, &request, &half, &most, &round_trip];
        let rates: [&dyn std::fmt::Display; 7] = [&f.transfer_mb, &each, &whole, &cast, &mended, &rails, &raw];
        first.row(&[&times[..], &rates[..]].concat());
    }
    let mut second = Table::new(&["nodes", "strobe ms", "beats/s", "off us (half)", "99 %", "late %", "skipped %"]);
    for (nodes, b) in all.iter().flat_map(|f| f.strobe.iter().map(move |b| (f.nodes, b))) {
        let [rate, late, skipped] = [b.per_second, b.late_percent, b.skipped_percent].map(|n| format!("{n:.1}"));
        second.row(&[&nodes, &b.period_ms, &rate, &b.off_us[0], &b.off_us[1], &late, &skipped]);
    }
    first.text() + "\n" + &second.text()
}
