//! Time limits as Slurm and PBS write them, and moments: `--begin` and `--deadline`. Everything is milliseconds.

/// A second.
pub const SECOND: u64 = 1000;
/// A minute.
pub const MINUTE: u64 = 60 * SECOND;
/// An hour.
pub const HOUR: u64 = 60 * MINUTE;
/// A day.
pub const DAY: u64 = 24 * HOUR;
/// The longest time limit that is not none at all: a hundred years.
pub const LONGEST: u64 = 36_500 * DAY;

fn numbers(text: &str) -> Option<Vec<u64>> {
    let one = |part: &str| match part.len() {
        1..=12 if part.bytes().all(|b| b.is_ascii_digit()) => part.parse().ok(),
        _ => None,
    };
    text.split(':').map(one).collect()
}

fn bounded(text: &str, ms: u64) -> Result<u64, String> {
    (ms <= LONGEST).then_some(ms).ok_or_else(|| format!("`{text}` is longer than a hundred years: say UNLIMITED"))
}

/// A time limit as Slurm has it: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`; `None` for `UNLIMITED`.
pub fn limit(text: &str) -> Result<Option<u64>, String> {
    let word = text.trim();
    if ["unlimited", "infinite", "-1"].contains(&word.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let wrong = || format!("`{text}` is not a time: say minutes, H:M:S, D-H:M:S or UNLIMITED");
    let (days, rest) = match word.split_once('-') {
        Some((days, rest)) => (Some(numbers(days).filter(|d| d.len() == 1).ok_or_else(wrong)?[0]), rest),
        None => (None, word),
    };
    let ms = match (days, &numbers(rest).ok_or_else(wrong)?[..]) {
        (None, &[m]) => m * MINUTE,
        (None, &[m, s]) => m * MINUTE + s * SECOND,
        (None, &[h, m, s]) => h * HOUR + m * MINUTE + s * SECOND,
        (Some(d), &[h]) => d.saturating_mul(DAY) + h * HOUR,
        (Some(d), &[h, m]) => d.saturating_mul(DAY).saturating_add(h * HOUR + m * MINUTE),
        (Some(d), &[h, m, s]) => d.saturating_mul(DAY).saturating_add(h * HOUR + m * MINUTE + s * SECOND),
        _ => return Err(wrong()),
    };
    bounded(text, ms).map(Some)
}

/// A time as PBS has it: `S`, `M:S`, `H:M:S`; parts of a second are let go.
pub fn pbs_limit(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a time: say HH:MM:SS");
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    if !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let ms = match numbers(whole).ok_or_else(wrong)?[..] {
        [s] => s * SECOND,
        [m, s] => m * MINUTE + s * SECOND,
        [h, m, s] => h * HOUR + m * MINUTE + s * SECOND,
        _ => return Err(wrong()),
    };
    bounded(text, ms)
}

/// As Slurm shows it: `1-02:03:04`, `02:03:04`, `UNLIMITED`. What is no whole second is rounded up.
pub fn show(limit: Option<u64>) -> String {
    let Some(ms) = limit else { return "UNLIMITED".into() };
    let s = ms.div_ceil(SECOND);
    let clock = format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60);
    match s / 86_400 {
        0 => clock,
        days => format!("{days}-{clock}"),
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (which is as old as years here), if there is such a date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if day == 0 || day > lengths[month as usize - 1] {
        return None;
    }
    let leaps = |y: u64| y / 4 - y / 100 + y / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    Some(years + lengths[..month as usize - 1].iter().sum::<u64>() + day - 1)
}

fn year_of(day: u64) -> u64 {
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1).is_some_and(|d| d <= day) {
        year += 1;
    }
    year
}

/// The time of the day: `HH:MM[:SS]`, with AM or PM, or its name.
fn clock(text: &str) -> Option<u64> {
    match text {
        "midnight" => return Some(0),
        "noon" => return Some(12 * HOUR),
        "teatime" => return Some(16 * HOUR),
        _ => {}
    }
    let (digits, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(rest), _) => (rest, Some(0)),
        (_, Some(rest)) => (rest, Some(12)),
        _ => (text, None),
    };
    let (h, m, s) = match numbers(digits)?[..] {
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return None,
    };
    let h = match half {
        Some(more) if (1..=12).contains(&h) => h % 12 + more,
        Some(_) => return None,
        None => h,
    };
    (h < 24 && m < 60 && s < 60).then_some(h * HOUR + m * MINUTE + s * SECOND)
}

/// `YYYY-MM-DD`, `MM/DD[/YY]` or `MMDD[YY]`; a date without a year is the next such one.
fn date(text: &str, today: u64) -> Option<u64> {
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit()) && !t.is_empty() && t.len() <= 4;
    let number = |t: &str| digits(t).then(|| t.parse::<u64>().ok()).flatten();
    let next = |month, day| {
        let year = year_of(today);
        (year..=year + 8).filter_map(|y| days(y, month, day)).find(|d| *d >= today)
    };
    let parts: Vec<&str> = text.split(['-', '/']).collect();
    match parts[..] {
        [year, month, day] if text.contains('-') => days(number(year)?, number(month)?, number(day)?),
        [month, day] if text.contains('/') => next(number(month)?, number(day)?),
        [month, day, year] => days(2000 + number(year).filter(|y| *y < 100)?, number(month)?, number(day)?),
        [all] if all.is_ascii() && all.len() == 4 => next(number(&all[..2])?, number(&all[2..])?),
        [all] if all.is_ascii() && all.len() == 6 => {
            days(2000 + number(&all[4..])?, number(&all[..2])?, number(&all[2..4])?)
        }
        _ => None,
    }
}

/// PBS's `[[CC]YY]MMDDhhmm[.SS]`, as the date and the time of the day.
fn pbs_moment(text: &str, today: u64) -> Option<(u64, u64)> {
    let (all, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let is_number = all.bytes().chain(seconds.bytes()).all(|b| b.is_ascii_digit());
    if !is_number || seconds.len() != 2 || ![8, 10, 12].contains(&all.len()) {
        return None;
    }
    let (year, rest) = all.split_at(all.len() - 8);
    let day = match year.len() {
        0 => date(&format!("{}/{}", &rest[..2], &rest[2..4]), today)?,
        2 => date(&format!("20{year}-{}-{}", &rest[..2], &rest[2..4]), today)?,
        _ => date(&format!("{year}-{}-{}", &rest[..2], &rest[2..4]), today)?,
    };
    Some((day, clock(&format!("{}:{}:{seconds}", &rest[4..6], &rest[6..]))?))
}

/// `now+1hour`, `now+30` (seconds).
fn later(text: &str) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number = numbers(number)?[0];
    let each = match unit.trim() {
        "" | "s" | "second" | "seconds" => SECOND,
        "m" | "minute" | "minutes" => MINUTE,
        "h" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        _ => return None,
    };
    number.checked_mul(each).filter(|ms| *ms <= LONGEST)
}

/// A moment as sacct's `--starttime` has it: `now-1hour`, `09:30`, `noon`, `0120`, `01/20-09:30`, `2030-01-20T12:34`. A time without a day is this day's,
/// a date without a year the last such one. None: it is something else.
pub fn past(text: &str, now: u64, zone: i64) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("now") {
        let rest = rest.trim_start();
        return match (rest.strip_prefix('-'), rest.strip_prefix('+')) {
            (Some(before), _) => Some(now.saturating_sub(later(before)?)),
            (_, Some(after)) => Some(now.saturating_add(later(after)?)),
            _ => rest.is_empty().then_some(now),
        };
    }
    let shift = zone.clamp(-100_000, 100_000) * 1000;
    let today = now.saturating_add_signed(shift) / DAY;
    let at = |day: u64, clock: u64| (day * DAY + clock).checked_add_signed(-shift);
    match lower.as_str() {
        "today" => return at(today, 0),
        "tomorrow" => return at(today + 1, 0),
        "yesterday" => return at(today.saturating_sub(1), 0),
        "fika" => return at(today, 15 * HOUR),
        _ => {}
    }
    if let Some(time) = clock(&lower) {
        return at(today, time);
    }
    // A day, and then maybe a time.
    let lower = lower.replace('.', "/");
    let cut = match lower.contains('/') {
        true => lower.split_once(['-', 't']),
        false => lower.split_once('t'),
    };
    let (day, time) = cut.map_or((lower.as_str(), Some(0)), |(day, time)| (day, clock(time)));
    let last = |from: u64| date(day, from).filter(|found| *found <= today);
    // Of those that name no year the next one after a day is found: that after a year ago is the last one, or today's.
    let found = date(day, today).filter(|found| *found <= today);
    let found = found.or_else(|| last(today.saturating_sub(365))).or_else(|| date(day, today));
    at(found?, time?)
}

/// A moment as `--begin` and `--deadline` have it: `now+2hours`, `16:00`, `tomorrow`, `noon`, `2030-01-20T12:34:00`, `01/20 9:30PM`, and PBS's
/// `[[CC]YY]MMDDhhmm`. `zone` is how many seconds local time is ahead of UTC: the caller's clock knows, this crate has none.
pub fn moment(text: &str, now: u64, zone: i64) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a time: say now+2hours, 16:00, tomorrow or 2030-01-20T12:34:00");
    let lower = text.trim().to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("now") {
        return match rest.trim_start().strip_prefix('+') {
            Some(more) => later(more).map(|ms| now.saturating_add(ms)).ok_or_else(wrong),
            None if rest.is_empty() => Ok(now),
            None => Err(wrong()),
        };
    }
    let shift = zone.clamp(-100_000, 100_000) * 1000;
    let local = now.saturating_add_signed(shift);
    let today = local / DAY;
    let at = |day: u64, clock: u64| (day * DAY + clock).checked_add_signed(-shift).ok_or_else(wrong);
    // The next time that the clock shows this.
    if let Some(time) = clock(&lower) {
        return at(today + u64::from(time < local % DAY), time);
    }
    if let Some((day, time)) = pbs_moment(&lower, today) {
        return at(day, time);
    }
    let (day, time) =
        lower.split_once(['t', ' ']).filter(|(day, _)| date(day, today).is_some()).unwrap_or((&lower, ""));
    let day = match day {
        "today" => Some(today),
        "tomorrow" => Some(today + 1),
        other => date(other, today),
    };
    let time = if time.is_empty() { Some(0) } else { clock(time.trim()) };
    at(day.ok_or_else(wrong)?, time.ok_or_else(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn slurms_limits() {
        let read = ["90", "1:30", "1:00:00", "2-0", "1-2:30", "1-02:03:04", "0"].map(|t| limit(t).unwrap().unwrap());
        let day = DAY + 2 * HOUR;
        assert_eq!(
            read,
            [90 * MINUTE, 90 * SECOND, HOUR, 2 * DAY, day + 30 * MINUTE, day + 3 * MINUTE + 4 * SECOND, 0]
        );
        assert_eq!(limit("UNLIMITED"), Ok(None));
        for wrong in
            ["", "1:2:3:4", "1-", "-5", "1-2-3", "x", "1h", "99999999999", "1::2", "1-2:3:4:5", "999999999999999"]
        {
            assert!(limit(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        let pbs = ["30", "2:30", "100:00:00", "1:00.5"].map(|t| pbs_limit(t).unwrap());
        assert_eq!(pbs, [30 * SECOND, 150 * SECOND, 100 * HOUR, MINUTE]);
    }

    #[test]
    fn what_is_shown_is_read_again() {
        check!().with_type::<u64>().for_each(|any| {
            let ms = any % (LONGEST / SECOND) * SECOND;
            assert_eq!(limit(&show(Some(ms))), Ok(Some(ms)));
            if ms < DAY {
                assert_eq!(pbs_limit(&show(Some(ms))), Ok(ms));
            }
        });
        assert_eq!(limit(&show(None)), Ok(None));
        check!().with_type::<(String, u64, i64)>().for_each(|(text, now, zone)| {
            _ = limit(text);
            _ = pbs_limit(text);
            _ = moment(text, *now % LONGEST, *zone);
        });
    }

    #[test]
    fn moments() {
        // 2024-02-28 22:00 UTC, 23:00 in a zone an hour ahead.
        let now = days(2024, 2, 28).unwrap() * DAY + 22 * HOUR;
        let at = |text: &str| moment(text, now, 3600).unwrap();
        assert_eq!(days(2024, 2, 28), Some(19_781));
        assert_eq!((at("now"), at("now+2hours"), at("now + 5")), (now, now + 2 * HOUR, now + 5 * SECOND));
        assert_eq!(at("23:30"), now + HOUR / 2);
        assert_eq!(at("22:30"), now + 23 * HOUR + HOUR / 2, "that was today: tomorrow");
        assert_eq!((at("midnight"), at("tomorrow"), at("2024-02-29")), (now + HOUR, now + HOUR, now + HOUR));
        assert_eq!(
            (at("02/29"), at("022924"), at("02/29/24"), at("0229")),
            (now + HOUR, now + HOUR, now + HOUR, now + HOUR)
        );
        assert_eq!((at("2024-02-29T01:00:30"), at("02290100.30")), (now + 2 * HOUR + 30_000, now + 2 * HOUR + 30_000));
        assert_eq!((at("12:15am"), at("202402290015")), (now + HOUR + 15 * MINUTE, now + HOUR + 15 * MINUTE));
        for wrong in ["2023-02-29", "25:00", "13/01", "now-1", "soon", "", "now+", "0:0:61"] {
            assert!(moment(wrong, now, 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_of_sacct_are_past_ones() {
        // 2026-03-10 12:00:00 UTC; an hour ahead there.
        let now = 1_773_144_000_000;
        let past = |text: &str| past(text, now, 3600).map(|at| at as i64 - now as i64).map(|ms| ms / 1000);
        for (text, seconds) in [
            ("now", 0),
            ("now-1hour", -3600),
            ("now-2days", -172_800),
            ("now - 30", -30),
            ("now+1minute", 60),
            ("today", -13 * 3600),
            ("midnight", -13 * 3600),
            ("noon", -3600),
            ("fika", 2 * 3600),
            ("09:30", -3 * 3600 - 1800),
            ("0309", -37 * 3600),
            ("0311", -(364 * 24 + 13) * 3600),
            ("03/09-12:00", -25 * 3600),
            ("03.09.26", -37 * 3600),
            ("2026-03-10T13:00:00", 0),
            ("2026-03-09", -37 * 3600),
        ] {
            assert_eq!(past(text), Some(seconds), "{text}");
        }
        for wrong in ["", "now-", "now-1parsec", "soon", "2026-13-01", "25:00"] {
            assert_eq!(past(wrong), None, "{wrong}");
        }
    }
}
