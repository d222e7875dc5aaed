//! CPU time: home's part plus all parts abroad.

use super::thread::GuestThread;
use super::{Guest, Held};

impl Guest {
    /// CPU time is home's part plus all parts abroad.
    pub(super) fn add_cpu_time(&self, tid: i32, held: &Held, parts: &mut [(u64, Vec<u8>)]) {
        let of_thread =
            |t: &GuestThread| t.cpu_before_ns.saturating_add(pando_kernel::procfs::thread_cpu_ns(t.tracee.tid));
        let process = self.cpu_before_ns.saturating_add(self.cpu_ns());
        let thread = of_thread(&self.threads[tid]);
        let Some((_, bytes)) = parts.first_mut() else { return };
        let mut add = |at: usize, value: u64| {
            if let Some(slot) = bytes.get_mut(at..at + 8) {
                let mut word = [0; 8];
                word.copy_from_slice(slot);
                slot.copy_from_slice(&(u64::from_le_bytes(word).wrapping_add(value)).to_le_bytes());
            }
        };
        match held.nr as i64 {
            libc::SYS_clock_gettime => {
                let here = match pando_calls::cpu_clock(held.args[0]) {
                    Some((0, true)) => thread,
                    Some((0, false)) => process,
                    Some((id, true)) => self.threads.iter().find(|t| t.tid as u32 == id).map_or(0, of_thread),
                    Some((id, false)) if id == self.offer.inner_pid as u32 => process,
                    _ => 0,
                };
                add(0, here / 1_000_000_000);
                add(8, here % 1_000_000_000);
                carry(bytes, 1_000_000_000);
            }
            libc::SYS_getrusage => {
                let here = match held.args[0] as i32 {
                    libc::RUSAGE_SELF => process,
                    libc::RUSAGE_THREAD => thread,
                    _ => 0,
                };
                add(0, here / 1_000_000_000);
                add(8, here % 1_000_000_000 / 1000);
                carry(bytes, 1_000_000);
            }
            libc::SYS_times => add(0, process / 10_000_000),
            _ => {}
        }
    }
}

/// Moves whole seconds from the second word into the first.
fn carry(bytes: &mut [u8], unit: u64) {
    let word = |b: &[u8]| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
    if bytes.len() >= 16 {
        let (seconds, part) = (word(&bytes[..8]), word(&bytes[8..16]));
        bytes[..8].copy_from_slice(&seconds.wrapping_add(part / unit).to_le_bytes());
        bytes[8..16].copy_from_slice(&(part % unit).to_le_bytes());
    }
}
