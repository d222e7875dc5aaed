//! What of a program's own code is resident.
//!
//! A daemon's start goes through much code that it never needs again (options, configuration, joining), and the kernel brings pages in
//! sixteen at a time (fault-around). Once it rests these pages are mapped for nothing.

use crate::procfs;
use std::io;

/// Takes this process's code, and constants beside it, out of its address space. What it goes on with comes back from the page cache, by minor faults of some
/// microseconds each. How many bytes of mappings were looked through.
pub fn give_back_code() -> io::Result<u64> {
    let as_in_file = |m: &procfs::Mapping| {
        let code = m.prot & (procfs::EXEC | procfs::WRITE) == procfs::EXEC;
        let first = m.prot == procfs::READ && m.offset == 0;
        (code || first) && !m.shared && m.inode != 0
    };
    let mut bytes = 0;
    for m in procfs::maps(std::process::id() as i32)?.iter().filter(|m| as_in_file(m)) {
        // SAFETY: a private mapping that can't be written: code, or the first part of a program's or library's file, which has its header, names,
        // constants and tables for unwinding. Position-independent code has no relocations there (constants with addresses are elsewhere, beyond the
        // code), so these pages are those of the file, and reading them again after MADV_DONTNEED gives the same bytes.
        let done =
            unsafe { libc::madvise(m.start as *mut libc::c_void, (m.end - m.start) as usize, libc::MADV_DONTNEED) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        bytes += m.end - m.start;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_file_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }

    #[test]
    fn code_is_given_back_and_goes_on() {
        // Everything that prints and parses numbers is touched first.
        let before = (0..100).map(|_| resident_file_kb()).max().unwrap();
        assert!(give_back_code().unwrap() > 1 << 20);
        let after = resident_file_kb();
        assert!(after < before, "{before} kB, then {after}");
    }
}
