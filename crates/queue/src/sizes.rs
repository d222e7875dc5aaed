//! Memory as people write it, in megabytes (of 1,048,576 bytes, as Slurm has them).

/// More is a mistake: an exabyte.
const MOST: u64 = 1 << 40;

fn number(text: &str, digits: &str, kilobytes_each: u64) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not an amount: say 512M, 4G or 1T");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let megabytes = number.checked_mul(kilobytes_each).ok_or_else(wrong)?.div_ceil(1024);
    (megabytes <= MOST).then_some(megabytes).ok_or_else(|| format!("`{text}` is more than there can be"))
}

/// `512`, `512M`, `4G`, `1T`, `2048K`, with or without B or iB, in megabytes; a number alone is megabytes. Kilobytes are rounded up.
pub fn megabytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let at = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(at);
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(unit);
    let each = match unit {
        "k" => 1,
        "" | "m" => 1 << 10,
        "g" => 1 << 20,
        "t" => 1 << 30,
        "p" => 1 << 40,
        _ => return Err(format!("`{text}` is not an amount: say 512M, 4G or 1T")),
    };
    number(text, digits, each)
}

/// PBS's `2gb`, `400mb`, `100kw` (words of 8 bytes); a number alone is bytes, and everything is rounded up to megabytes.
pub fn pbs_megabytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let at = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(at);
    let (unit, times) = match unit.strip_suffix('w') {
        Some(unit) => (unit, 8),
        None => (unit.strip_suffix('b').unwrap_or(unit), 1),
    };
    let each = match unit {
        "k" => times,
        "m" => times << 10,
        "g" => times << 20,
        "t" => times << 30,
        "p" => times << 40,
        "" => {
            let bytes: u64 = digits.parse().map_err(|_| format!("`{text}` is not an amount: say 400mb or 2gb"))?;
            let kilobytes = bytes.div_ceil(1024).saturating_mul(times);
            return number(text, &kilobytes.to_string(), 1);
        }
        _ => return Err(format!("`{text}` is not an amount: say 400mb or 2gb")),
    };
    number(text, digits, each)
}

/// As short as it is exact: `512M`, `4G`.
pub fn show(megabytes: u64) -> String {
    let units = ["M", "G", "T", "P"];
    let (mut left, mut unit) = (megabytes, 0);
    while left > 0 && left % 1024 == 0 && unit + 1 < units.len() {
        (left, unit) = (left / 1024, unit + 1);
    }
    format!("{left}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn as_people_write_it() {
        let read = ["512", "512M", "4G", "4gb", "4GiB", "1T", "1K", "2049k", "0"].map(|t| megabytes(t).unwrap());
        assert_eq!(read, [512, 512, 4096, 4096, 4096, 1 << 20, 1, 3, 0]);
        for wrong in ["", "G", "4X", "-1", "1.5G", "99999999999999999999", "9999999999P", "4 G", "+4"] {
            assert!(megabytes(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        let pbs = ["2gb", "400mb", "1000kb", "1kw", "1048577", "1b", "1gw"].map(|t| pbs_megabytes(t).unwrap());
        assert_eq!(pbs, [2048, 400, 1, 1, 2, 1, 8192]);
        assert!(pbs_megabytes("lots").unwrap_err().contains("lots"));
    }

    #[test]
    fn what_is_shown_is_read_again() {
        check!().with_type::<u64>().for_each(|any| {
            let all = [any % (MOST + 1), (any % 1024) << 20];
            all.iter().for_each(|mb| assert_eq!(megabytes(&show(*mb)), Ok(*mb)));
        });
        check!().with_type::<String>().for_each(|text| {
            _ = megabytes(text);
            _ = pbs_megabytes(text);
        });
    }
}
