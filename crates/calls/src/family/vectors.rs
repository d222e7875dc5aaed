//! `iovec` arrays.

use crate::range::MAX_LEN;
use crate::walk::{Walk, u64_at};

/// `UIO_MAXIOV`: with more the kernel fails.
const MAX_VECTORS: u64 = 1024;

impl Walk<'_> {
    /// The buffers of an `iovec` array; none where the kernel fails.
    fn vectors(&mut self, addr: u64, count: u64) -> Vec<(u64, u64)> {
        if count > MAX_VECTORS {
            return Vec::new();
        }
        let Some(bytes) = self.fetch(addr, count * 16) else {
            return Vec::new();
        };
        let all: Vec<_> = bytes.chunks_exact(16).map(|v| (u64_at(v, 0), u64_at(v, 8))).collect();
        if all.iter().any(|&(_, len)| i64::try_from(len).is_err()) {
            return Vec::new();
        }
        all
    }

    /// Bytes read from an `iovec` array.
    pub fn gather(&mut self, addr: u64, count: u64) {
        let mut left = MAX_LEN;
        for (base, len) in self.vectors(addr, count) {
            let len = len.min(left);
            self.input(base, len);
            left -= len;
        }
    }

    /// `moved` bytes written to an `iovec` array. If that is `uncertain`, they are inputs too.
    pub fn scatter(&mut self, addr: u64, count: u64, moved: u64, uncertain: bool) {
        let mut left = moved.min(MAX_LEN);
        for (base, len) in self.vectors(addr, count) {
            let len = len.min(left);
            if uncertain {
                self.input(base, len);
            }
            self.output(base, len);
            left -= len;
        }
    }
}
