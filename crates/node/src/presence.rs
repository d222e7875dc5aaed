//! Is this node's own user at work? As w(1) tells how long somebody has been idle: by when a terminal or a device was last used.

use crate::config;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since one of the devices was last read from, as the kernel notes it; none if there is no such device.
fn idle_s(devices: &[String]) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let found = devices.iter().filter_map(|pattern| glob::glob(pattern).ok()).flatten().flatten();
    let used = found.filter_map(|path| std::fs::metadata(path).ok()).map(|m| m.atime().max(0) as u64);
    // A use that is still to come is left from before the clock was put back, and tells nothing: it would keep guests out till then.
    used.filter_map(|last| now.checked_sub(last)).min()
}

/// Has the owner used this machine of late (`[owner]`)?
pub fn is_at_work(owner: &config::Owner) -> bool {
    idle_s(&owner.devices).is_some_and(|idle| idle < owner.idle_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_was_just_used_tells() {
        let file = std::env::temp_dir().join(format!("pando-terminal-{}", std::process::id()));
        std::fs::write(&file, "x").unwrap();
        let devices = vec![format!("{}*", file.display()), "/nonexistent/*".into()];
        let used = |ago: u64| {
            let when = SystemTime::now() - std::time::Duration::from_secs(ago);
            let times = std::fs::FileTimes::new().set_accessed(when);
            std::fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
        };
        used(50);
        assert!(is_at_work(&config::Owner { devices: devices.clone(), idle_s: 60 }));
        assert!(!is_at_work(&config::Owner { devices: devices.clone(), idle_s: 40 }));
        let future = std::fs::FileTimes::new().set_accessed(SystemTime::now() + std::time::Duration::from_secs(9_000));
        std::fs::File::options().write(true).open(&file).unwrap().set_times(future).unwrap();
        assert!(!is_at_work(&config::Owner { devices: devices.clone(), idle_s: 60 }), "the clock was put back");
        used(50);
        std::fs::remove_file(&file).unwrap();
        assert!(!is_at_work(&config::Owner { devices, idle_s: 60 }), "there is no device");
        assert!(!is_at_work(&config::Owner::default()), "nobody asked for that");
    }
}
