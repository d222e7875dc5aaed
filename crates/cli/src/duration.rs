//! Lengths of time, as other programs have taught their users to write them.

use std::time::Duration;

/// Nobody waits longer, and no sum of two overflows.
const LONGEST_S: u64 = 1 << 33;

/// Slurm's `--time`: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS. Zero, UNLIMITED and INFINITE: no limit, which zero stands for.
pub fn of_slurm(text: &str) -> Result<Duration, String> {
    let wrong = || "write minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS".to_owned();
    if ["UNLIMITED", "INFINITE"].contains(&text.to_ascii_uppercase().as_str()) {
        return Ok(Duration::ZERO);
    }
    let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse::<u64>().ok().filter(|n| *n <= LONGEST_S).ok_or_else(wrong),
        false => Err(wrong()),
    };
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts: Vec<u64> = clock.split(':').map(number).collect::<Result<_, _>>()?;
    let (hours, minutes, seconds) = match (days.is_some(), &parts[..]) {
        (true, [hours]) => (*hours, 0, 0),
        (true, [hours, minutes]) => (*hours, *minutes, 0),
        (false, [minutes]) => (0, *minutes, 0),
        (false, [minutes, seconds]) => (0, *minutes, *seconds),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return Err(wrong()),
    };
    let seconds = ((days.unwrap_or(0) * 24 + hours) * 60 + minutes) * 60 + seconds;
    if seconds > LONGEST_S { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}

/// GNU parallel's: seconds, which may have a fraction, or a number with s, m, h or d.
pub fn of_parallel(text: &str) -> Result<Duration, String> {
    let wrong = || "write seconds, or a number with s, m, h or d: 1.5, 10m".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds = digits.parse::<f64>().ok().filter(|_| plain).ok_or_else(wrong)? * unit;
    if seconds > LONGEST_S as f64 { Err(wrong()) } else { Ok(Duration::from_secs_f64(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn slurms_times_are_as_long_as_slurm_has_them() {
        let s = |text: &str| of_slurm(text).map(|d| d.as_secs());
        assert_eq!(s("5"), Ok(300));
        assert_eq!(s("0:07"), Ok(7));
        assert_eq!(s("90:30"), Ok(5430));
        assert_eq!(s("1:02:03"), Ok(3723));
        assert_eq!(s("2-3"), Ok((2 * 24 + 3) * 3600));
        assert_eq!(s("1-0:30"), Ok(86400 + 1800));
        assert_eq!(s("1-01:01:01"), Ok(86400 + 3661));
        assert_eq!((s("0"), s("infinite"), s("UNLIMITED")), (Ok(0), Ok(0), Ok(0)));
        for text in ["", ":", "-", "1:", "1-", "-1", "1:2:3:4", "5m", "1-2-3", "+1", "1.5", "99999999999999999999"] {
            assert!(s(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction_and_a_unit() {
        let ms = |text: &str| of_parallel(text).map(|d| d.as_millis());
        assert_eq!(
            (ms("1.5"), ms("2m"), ms("0.1h"), ms("1d"), ms("3s")),
            (Ok(1500), Ok(120_000), Ok(360_000), Ok(86_400_000), Ok(3000))
        );
        for text in ["", "s", "-1", "1x", "inf", "nan", "1e9", "1000%", "9999999999999999"] {
            assert!(ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_makes_them_panic() {
        check!().with_type::<String>().for_each(|text| {
            let _ = (of_slurm(text), of_parallel(text));
        });
        check!().with_type::<Vec<u8>>().for_each(|picks| {
            let text: String = picks.iter().map(|p| char::from(b"0129:-.d"[usize::from(p % 8)])).collect();
            let _ = (of_slurm(&text), of_parallel(&text));
        });
    }
}
