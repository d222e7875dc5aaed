//! Waiting for several descriptors.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{In, InOut, InOutMany, OutMany};
use crate::item::Len::{I, N, U};
use crate::walk::{Spec, Walk, u64_at};

/// More than any process can have open (`sysctl fs.nr_open` at its largest).
const MAX_DESCRIPTORS: u64 = 1 << 30;

pub(super) fn spec(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_epoll_create | n::SYS_epoll_create1 | n::SYS_eventfd | n::SYS_eventfd2 => NOTHING,
        n::SYS_epoll_ctl => Spec::Items(&[In(3, N(12))]),
        n::SYS_epoll_wait => Spec::Items(&[OutMany(1, I(2), 12)]),
        n::SYS_epoll_pwait => Spec::Items(&[OutMany(1, I(2), 12), In(4, N(8))]),
        n::SYS_epoll_pwait2 => Spec::Items(&[OutMany(1, I(2), 12), In(3, N(16)), In(4, N(8))]),
        // The kernel writes `revents` on failure too, and updates the time left.
        n::SYS_poll => Spec::Items(&[InOutMany(0, U(1), 8)]),
        n::SYS_ppoll => Spec::Items(&[InOutMany(0, U(1), 8), InOut(2, N(16)), In(3, N(8))]),
        n::SYS_select => Spec::Walk(sets),
        n::SYS_pselect6 => Spec::Walk(pselect),
        _ => return None,
    })
}

fn sets(w: &mut Walk<'_>) {
    if w.refused() {
        return;
    }
    let bytes = w.int(0).min(MAX_DESCRIPTORS).div_ceil(64) * 8;
    for i in 1..=3 {
        w.inout(w.arg(i), bytes);
    }
    w.inout(w.arg(4), 16);
}

fn pselect(w: &mut Walk<'_>) {
    sets(w);
    // A pointer to the mask, and its size.
    if w.planning()
        && let Some(mask) = w.fetch(w.arg(5), 16)
    {
        w.input(u64_at(&mask, 0), 8);
    }
}
