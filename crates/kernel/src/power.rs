//! What the machine's processors have used, where they say it (RAPL, by powercap).

use std::fs;
use std::path::{Path, PathBuf};

const ZONES: &str = "/sys/class/powercap";

/// Adds up what all packages use from its making on. Their counters begin anew now and then: it is to be read each minute or more often.
#[derive(Clone, Debug)]
pub struct Meter {
    zones: Vec<Zone>,
    used_uj: u64,
}

#[derive(Clone, Debug)]
struct Zone {
    file: PathBuf,
    /// Where it begins anew.
    most: u64,
    last: u64,
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl Meter {
    /// None where nobody says it, or not to us.
    pub fn open() -> Option<Meter> {
        Meter::of(Path::new(ZONES))
    }

    fn of(zones: &Path) -> Option<Meter> {
        // `intel-rapl:0` is a package, also AMD's; `intel-rapl:0:1` is a part of one.
        let is_package = |name: &str| name.strip_prefix("intel-rapl:").is_some_and(|rest| !rest.contains(':'));
        let found = fs::read_dir(zones).ok()?.flatten().filter(|e| e.file_name().to_str().is_some_and(is_package));
        let zone = |dir: PathBuf| {
            let file = dir.join("energy_uj");
            let (most, last) = (number(&dir.join("max_energy_range_uj"))?, number(&file)?);
            Some(Zone { file, most, last })
        };
        let zones: Vec<Zone> = found.filter_map(|e| zone(e.path())).collect();
        (!zones.is_empty()).then_some(Meter { zones, used_uj: 0 })
    }

    /// Microjoules since then.
    pub fn read(&mut self) -> u64 {
        for zone in &mut self.zones {
            let Some(now) = number(&zone.file) else { continue };
            self.used_uj += if now >= zone.last { now - zone.last } else { zone.most.saturating_sub(zone.last) + now };
            zone.last = now;
        }
        self.used_uj
    }
}

/// CPU time that all processes of the machine have used since it was started, milliseconds.
pub fn busy_ms() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    busy(&text).map(|ticks| ticks.saturating_mul(1000) / ticks_per_second())
}

/// user, nice, system; idle and iowait; irq, softirq. What guests of this machine use is in user.
fn busy(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|f| f.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let (user, nice, system) = (next()?, next()?, next()?);
    let (_idle, _iowait) = (next()?, next()?);
    Some(user + nice + system + next().unwrap_or(0) + next().unwrap_or(0))
}

pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: sysconf with a number touches no memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_anew_are_added_up() {
        let base = std::env::temp_dir().join(format!("pando-power-{}", std::process::id()));
        let write = |zone: &str, uj: u64| {
            let dir = base.join(zone);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("max_energy_range_uj"), "1000\n").unwrap();
            fs::write(dir.join("energy_uj"), format!("{uj}\n")).unwrap();
        };
        assert!(Meter::of(&base).is_none());
        write("intel-rapl:0", 900);
        write("intel-rapl:1", 10);
        write("intel-rapl:0:0", 5);
        let mut meter = Meter::of(&base).unwrap();
        assert_eq!(meter.read(), 0);
        write("intel-rapl:0", 50);
        write("intel-rapl:1", 30);
        assert_eq!(meter.read(), 150 + 20);
        assert_eq!(meter.read(), 170);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn time_of_all_is_read() {
        assert_eq!(busy("cpu  10 20 30 400 50 6 7 0 0 0\ncpu0 1"), Some(73));
        assert_eq!(busy("intr 1"), None);
        assert!(busy_ms().is_some());
    }
}
