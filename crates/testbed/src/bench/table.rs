//! The figures for people: what was measured, and beside it what it is measured against.

use super::Figures;

/// One line: what, the figure, what it is compared with, whether the aim is reached.
type Line = (String, String, String, Option<bool>);

/// All lines as text.
pub fn table(figures: &Figures) -> String {
    let mut lines = Vec::new();
    plain(figures, &mut lines);
    freezes(figures, &mut lines);
    streaming(figures, &mut lines);
    costs(figures, &mut lines);
    files(figures, &mut lines);
    programs(figures, &mut lines);
    let mut out = format!("{} CPUs, load {:.1} at the start", figures.cpus, figures.load);
    out += if figures.load > figures.cpus as f64 * 0.5 { " (a busy machine: the figures say little)\n" } else { "\n" };
    for (what, figure, beside, reached) in lines {
        let mark = match reached {
            Some(true) => "  ok",
            Some(false) => "  MISSED",
            None => "",
        };
        out += format!("{what:<28} {figure:<34} {beside}{mark}").trim_end();
        out += "\n";
    }
    for (what, why) in &figures.failed {
        out += &format!("{what}: NOT MEASURED: {why}\n");
    }
    for (what, why) in &figures.skipped {
        out += &format!("{what}: SKIPPED: {why}\n");
    }
    out
}

fn plain(figures: &Figures, lines: &mut Vec<Line>) {
    if let Some(raw) = figures.raw {
        lines.push(("plain TCP round trip".into(), us(raw.round_trip_us), String::new(), None));
        let both = format!("{} there, {} back", rate(raw.stream_away), rate(raw.stream_back));
        lines.push(("plain TCP stream".into(), both, String::new(), None));
        lines.push(("plain TCP into new memory".into(), rate(raw.stream_fresh), String::new(), None));
    }
}

fn freezes(figures: &Figures, lines: &mut Vec<Line>) {
    for f in &figures.freeze {
        for (way, median, p99) in [("away", f.away_median_us, f.away_p99_us), ("home", f.home_median_us, f.home_p99_us)]
        {
            let figure = format!("median {}, p99 {}", ms(median as f64), ms(p99 as f64));
            let threads = if f.threads > 1 { format!(", {} threads", f.threads) } else { String::new() };
            let name = format!("freeze, {} MB{threads}, {way}", f.megabytes);
            lines.push((name, figure, "aim: median 5 ms".into(), Some(median <= 5000)));
        }
    }
    for c in &figures.criu {
        let name = format!("criu, {} MB", c.megabytes);
        let figure = format!("dump and restore {:.0} ms, lazy {:.0} ms", c.dump_restore_ms, c.lazy_ms);
        let ours = figures
            .freeze
            .iter()
            .find(|f| f.megabytes == c.megabytes && f.threads == 1)
            .map(|f| f.away_median_us as f64 / 1000.0);
        let ratio = ours.map(|ours| c.lazy_ms / ours.max(0.001));
        let beside = ratio.map_or(String::new(), |r| format!("{r:.1} times ours; aim: 10"));
        lines.push((name, figure, beside, ratio.map(|r| r >= 10.0)));
    }
}

fn streaming(figures: &Figures, lines: &mut Vec<Line>) {
    let Some(s) = figures.streaming else { return };
    let raw = figures.raw;
    for (what, figure, limit) in
        [("streaming away", s.away, raw.map(|r| r.stream_away)), ("streaming home", s.home, raw.map(|r| r.stream_back))]
    {
        let part = limit.map(|l| figure / l);
        let fresh = raw.map_or(0.0, |r| figure / r.stream_fresh.max(1.0));
        let beside = part
            .map_or(String::new(), |p| format!("{p:.2} of plain TCP ({fresh:.2} of it into new memory); aim: 0.70"));
        lines.push((what.into(), rate(figure), beside, part.map(|p| p >= 0.7)));
    }
}

fn costs(figures: &Figures, lines: &mut Vec<Line>) {
    let trips = |value: f64| figures.raw.map(|r| value / r.round_trip_us);
    let in_trips = |value: f64| trips(value).map_or(String::new(), |t| format!("{t:.1} round trips"));
    if let Some(fault) = figures.fault {
        let figure = format!("{} ({} seen)", us(fault.us), fault.count);
        lines.push(("page fault abroad".into(), figure, in_trips(fault.us), None));
    }
    if let Some(c) = &figures.costs {
        for (what, cost, aim) in [
            ("forwarded getppid", c.getppid, Some(4.0)),
            ("forwarded write of 4 KB", c.write, None),
            ("forwarded read of 4 KB", c.read, None),
            ("start `true`, wait for it", c.spawn, None),
        ] {
            let figure = format!("{} (at home {})", us(cost.away_us), us(cost.home_us));
            let wish = aim.map_or(String::new(), |a: f64| format!("; aim: {a:.0}"));
            let reached = aim.and_then(|a| trips(cost.away_us).map(|t| t <= a));
            lines.push((what.into(), figure, in_trips(cost.away_us) + &wish, reached));
        }
    }
    if let Some(s) = figures.spin {
        let figure = format!("{:+.2} % ({:.2} ms, at home {:.2})", s.slowdown * 100.0, s.away_ms, s.home_ms);
        lines.push(("computing abroad".into(), figure, "aim: at most 1 %".into(), Some(s.slowdown <= 0.01)));
    }
}

fn files(figures: &Figures, lines: &mut Vec<Line>) {
    let Some(f) = figures.files else { return };
    let raw = figures.raw;
    let part = raw.map(|r| f.away.first / r.stream_away.max(1.0));
    let fresh = raw.map_or(0.0, |r| f.away.first / r.stream_fresh.max(1.0));
    let beside =
        part.map_or(String::new(), |p| format!("{p:.2} of plain TCP ({fresh:.2} of it into new memory); aim: 0.70"));
    let name = format!("read {} MB of home's", f.bytes >> 20);
    lines.push((name, rate(f.away.first), beside, part.map(|p| p >= 0.7)));
    for (what, away, home, aim) in [
        ("read them again", f.away.again, f.home.again, true),
        ("read them, opened again", f.away.reopened, f.home.reopened, true),
        ("read them again by 64 KB", f.away.again_small, f.home.again_small, false),
    ] {
        let times = home / away.max(1.0);
        let wish = if aim { "; aim: 1.3" } else { "" };
        let beside = format!("{times:.2} times as long as at home ({}){wish}", rate(home));
        lines.push((what.into(), rate(away), beside, aim.then_some(times <= 1.3)));
    }
    for (what, away, home) in [
        ("4 KB somewhere, known", f.away.random_known_us, f.home.random_known_us),
        ("4 KB somewhere, new", f.away.random_new_us, f.home.random_new_us),
    ] {
        let trips = raw.map_or(String::new(), |r| format!("{:.1} round trips", away / r.round_trip_us));
        lines.push((what.into(), format!("{} (at home {})", us(away), us(home)), trips, None));
    }
}

/// What whole programs see, each beside the same at home.
fn programs(figures: &Figures, lines: &mut Vec<Line>) {
    if let Some(m) = figures.memory {
        for (what, pair, aim) in [
            ("random reads in 256 MB", m.random, Some(0.02)),
            ("sum of 256 MB", m.sum, Some(0.02)),
            ("malloc and free", m.malloc, Some(0.05)),
            ("malloc, brk, mmap, munmap", m.mapped, None),
        ] {
            let figure =
                format!("{:+.2} % ({:.2} ns, at home {:.2})", pair.slowdown * 100.0, pair.away_ns, pair.home_ns);
            let beside = aim.map_or(String::new(), |a: f64| format!("aim: at most {:.0} %", a * 100.0));
            lines.push((what.into(), figure, beside, aim.map(|a| pair.slowdown <= a)));
        }
    }
    for (f, kind) in [(&figures.writing, "1 % written"), (&figures.writing_huge, "huge, 1 % written")] {
        let Some(f) = f else { continue };
        for (way, median, p99) in [("away", f.away_median_us, f.away_p99_us), ("home", f.home_median_us, f.home_p99_us)]
        {
            let figure = format!("median {}, p99 {}", ms(median as f64), ms(p99 as f64));
            let name = format!("freeze, {kind}, {way}");
            lines.push((name, figure, format!("{} MB, each hundredth page all the time", f.megabytes), None));
        }
    }
    if let Some(b) = figures.build {
        let figure = format!("{:.2} s (at home {:.2} s)", b.away_s, b.home_s);
        let beside = format!("{:.2} times as long", b.away_s / b.home_s.max(1e-9));
        lines.push(("make -j4 of 21 C files".into(), figure, beside, None));
    }
}

fn us(value: f64) -> String {
    format!("{value:.1} µs")
}

fn ms(micros: f64) -> String {
    format!("{:.2} ms", micros / 1000.0)
}

fn rate(bytes: f64) -> String {
    format!("{:.2} GB/s", bytes / 1e9)
}

#[cfg(test)]
mod tests {
    use super::super::{measure, peer};
    use super::*;

    #[test]
    fn aims_are_judged() {
        let figures = Figures {
            cpus: 2,
            raw: Some(peer::Raw { round_trip_us: 20.0, stream_fresh: 1e9, stream_away: 2e9, stream_back: 2e9 }),
            streaming: Some(measure::Streaming { away: 1.5e9, home: 1e9 }),
            ..Figures::default()
        };
        let text = table(&figures);
        assert!(text.contains("0.75 of plain TCP (1.50 of it into new memory); aim: 0.70  ok"), "{text}");
        assert!(text.contains("0.50 of plain TCP (1.00 of it into new memory); aim: 0.70  MISSED"), "{text}");
    }
}
