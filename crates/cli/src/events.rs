//! `pando events`: the last N, those since some time, and those that come.

use crate::args::EventOptions;
use crate::cluster::Done;
use pando_node::client::Client;
use pando_node::sys;
use pando_node::views::Event;
use std::time::{SystemTime, UNIX_EPOCH};

/// Shows them.
pub fn events(client: &Client, options: &EventOptions) -> Done {
    let oldest_ms = options.since.as_deref().map_or(Ok(0), |word| moment(word, now_s()))?;
    let mut all: Vec<Event> = client.get("/v1/events").map_err(|e| e.to_string())?;
    let mut since = all.last().map_or(0, |e| e.seq);
    all.retain(|e| e.time_ms >= oldest_ms);
    let skipped = options.lines.map_or(0, |n| all.len().saturating_sub(n));
    all[skipped..].iter().try_for_each(|e| print(e, options.json))?;
    if !options.follow {
        return Ok(());
    }
    loop {
        let path = format!("/v1/events?since={since}&wait=30");
        let new: Vec<Event> = client.get(&path).map_err(|e| e.to_string())?;
        new.iter().try_for_each(|e| print(e, options.json))?;
        since = new.last().map_or(since, |e| e.seq);
    }
}

fn print(event: &Event, json: bool) -> Done {
    if json {
        println!("{}", serde_json::to_string(event).map_err(|e| e.to_string())?);
    } else {
        let [year, month, day, hour, minute, second] = sys::local_time(event.time_ms / 1000);
        let (ms, kind, text) = (event.time_ms % 1000, &event.kind, &event.text);
        println!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}  {kind:8} {text}");
    }
    Ok(())
}

/// A moment (milliseconds since 1970) as people here read it.
pub fn local(ms: u64) -> String {
    let [year, month, day, hour, minute, second] = sys::local_time(ms / 1000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// What `--since` means, milliseconds since 1970.
pub fn since(word: &str) -> Result<u64, String> {
    moment(word, now_s())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Milliseconds since 1970 that `--since WORD` means.
fn moment(word: &str, now: u64) -> Result<u64, String> {
    let word = word.trim();
    let found = span(word)
        .map(|s| now.saturating_sub(s))
        .or_else(|| number(word))
        .map(|s| s * 1000)
        .or_else(|| date(word, now));
    found.ok_or_else(|| {
        let how = "a duration (90s, 10m, 1h30m, 2d), a time (18:05, 2026-11-21, \"2026-11-21 18:05\", with T and Z or +01:00 too), \
                   today, yesterday, or @SECONDS since 1970";
        format!("--since {word}: not understood; it takes {how}")
    })
}

/// `10m`, `1h30m`, `-10m`, `10 min ago`.
fn span(word: &str) -> Option<u64> {
    let text = word.strip_suffix("ago").unwrap_or(word).replace(' ', "");
    let mut rest = text.strip_prefix('-').unwrap_or(&text);
    let mut all: Option<u64> = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |n| digits + n);
        let unit = match &rest[digits..letters] {
            "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 604_800,
            _ => return None,
        };
        let part = rest[..digits].parse::<u64>().ok()?.checked_mul(unit)?;
        all = Some(all.unwrap_or(0).checked_add(part)?);
        rest = &rest[letters..];
    }
    all
}

/// `@1795286603`, or so many digits that nothing else can be meant.
fn number(word: &str) -> Option<u64> {
    let digits = word.strip_prefix('@').or_else(|| (word.len() >= 9).then_some(word))?;
    // Later than any clock is no time.
    digits.parse().ok().filter(|s| *s < 1 << 40)
}

/// A day, a time of today, or both; local unless it says otherwise.
fn date(word: &str, now: u64) -> Option<u64> {
    let [year, month, day, ..] = sys::local_time(now);
    let midnight = sys::seconds_of([year, month, day, 0, 0, 0], false)?;
    match word {
        "now" => return Some(now * 1000),
        "today" => return Some(midnight * 1000),
        "yesterday" => {
            // Noon of the day before, whatever summer time does.
            let [year, month, day, ..] = sys::local_time(midnight.checked_sub(43_200)?);
            return Some(sys::seconds_of([year, month, day, 0, 0, 0], false)? * 1000);
        }
        _ => {}
    }
    let (day_of, clock) = match word.split_once(['T', ' ']) {
        Some((day, clock)) => (numbers(day, '-', 3)?, clock.trim()),
        None if word.contains(':') => (vec![year, month, day], word),
        None => (numbers(word, '-', 3)?, "0:0"),
    };
    let (clock, ahead) = zone(clock)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut time = numbers(clock, ':', 3).or_else(|| numbers(clock, ':', 2))?;
    time.resize(3, 0);
    let fits = day_of[0] >= 1970 && (1..=12).contains(&day_of[1]) && time[0] < 24 && time[1] < 60 && time[2] < 61;
    let moment = [day_of[0], day_of[1], day_of[2], time[0], time[1], time[2]];
    let seconds = sys::seconds_of(moment, ahead.is_some()).filter(|_| fits)?;
    let digits = fraction.bytes().all(|b| b.is_ascii_digit()) && !fraction.is_empty();
    let ms = format!("{fraction:0<3}").get(..3)?.parse::<u64>().ok().filter(|_| digits)?;
    Some(seconds.checked_add_signed(-ahead.unwrap_or(0))? * 1000 + ms)
}

/// Takes `Z` or `+01:00` off; gives how many seconds that zone is ahead of UTC.
fn zone(clock: &str) -> Option<(&str, Option<i64>)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, Some(0)));
    }
    let Some(at) = clock.find(['+', '-']) else { return Some((clock, None)) };
    let offset = numbers(&clock[at + 1..], ':', 2)?;
    let seconds = i64::from(offset[0]) * 3600 + i64::from(offset[1]) * 60;
    Some((&clock[..at], Some(if clock[at..].starts_with('-') { -seconds } else { seconds })))
}

/// So many numbers of at most four digits.
fn numbers(text: &str, between: char, count: usize) -> Option<Vec<i32>> {
    let small = |w: &str| w.parse::<i32>().ok().filter(|_| w.len() <= 4 && !w.starts_with(['+', '-']));
    let all: Option<Vec<i32>> = text.split(between).map(small).collect();
    all.filter(|a| a.len() == count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_286_603;

    fn at(word: &str) -> u64 {
        at_ms(word) / 1000
    }

    fn at_ms(word: &str) -> u64 {
        moment(word, NOW).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn durations_are_counted_back_from_now() {
        for (word, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800)] {
            assert_eq!(NOW - at(word), seconds, "{word}");
            assert_eq!(at(&format!("-{word}")), at(word));
        }
        assert_eq!(NOW - at("10 min ago"), 600);
        assert_eq!(at("9999999w"), 0, "since ever");
    }

    #[test]
    fn times_are_taken_as_journalctl_and_docker_take_them() {
        assert_eq!(at("@17"), 17);
        assert_eq!(at("1795286603"), NOW);
        assert_eq!(at("2026-11-21T18:43:23Z"), 1_795_286_603);
        assert_eq!(at_ms("2026-11-21T18:43:23.25+01:30"), 1_795_281_203_250);
        assert_eq!(at("now"), NOW);
        assert!(at("yesterday") < at("today") && at("today") <= NOW);
        let [year, month, day, hour, minute, second] = sys::local_time(NOW);
        assert_eq!(at(&format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")), NOW);
        assert_eq!(at(&format!("{year}-{month:02}-{day:02}")), at("today"));
        assert_eq!(at(&format!("{hour:02}:{minute:02}")), NOW - second as u64);
    }

    #[test]
    fn what_is_no_time_is_refused_and_told_how() {
        let bad = [
            "",
            "x",
            "10",
            "10x",
            "m",
            "5m3",
            "25:00",
            "2026-02-30",
            "2026-13-01",
            "2026-11-21T",
            "--5m",
            "@",
            "@x",
            "18:05+x",
        ];
        for word in bad.into_iter().chain([
            "99999999999999999999s",
            "2026-11-21 18:05:99",
            "+5:00",
            "18:05:00.",
            "18:05:00.x",
            "1e9",
            "ü:ü",
            "99999-01-01",
        ]) {
            let said = moment(word, NOW).expect_err(word);
            assert!(said.contains("10m"), "{said}");
        }
        bolero::check!().for_each(|bytes: &[u8]| drop(moment(&String::from_utf8_lossy(bytes), NOW)));
    }
}
