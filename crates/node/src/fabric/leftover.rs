//! What a daemon that has ended leaves in shared memory: libfabric's provider shm has a file there of some megabytes, named as its endpoint, which
//! begins with the process. The next daemon with this state takes it away.

use std::fs;
use std::path::Path;

/// What endpoints of that provider are called.
const BEGINS: &str = "fi_shm://";

/// The file's name, and the process.
fn file(address: &[u8]) -> Option<(&str, u32)> {
    let name = std::str::from_utf8(address).ok()?.strip_prefix(BEGINS)?.trim_end_matches('\0');
    let plain = name.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let pid = name.split(':').next()?.parse().ok()?;
    plain.then_some((name, pid))
}

/// Takes away what the endpoint that was noted here has left, if its process is gone.
pub fn sweep(record: &Path) {
    let Ok(address) = fs::read(record) else { return };
    if let Some((name, pid)) = file(&address)
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        let _ = fs::remove_file(Path::new("/dev/shm").join(name));
    }
}

/// Notes an endpoint that may leave something.
pub fn note(record: &Path, address: &[u8]) {
    let written = match file(address) {
        Some(_) => fs::write(record, address),
        None => Ok(()),
    };
    if let Err(e) = written {
        tracing::debug!("fabric: {}: {e}", record.display());
    }
}

#[cfg(test)]
mod tests {
    use super::file;

    #[test]
    fn only_names_of_endpoints_are_taken() {
        assert_eq!(file(b"fi_shm://17510:0:0\0"), Some(("17510:0:0", 17510)));
        for other in [&b"fi_shm://../x"[..], b"fi_shm://1/2", b"17510:0:0", b"fi_shm://", b"\xff"] {
            assert_eq!(file(other), None);
        }
    }
}
