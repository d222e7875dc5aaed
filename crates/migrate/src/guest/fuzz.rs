//! Layouts and starts of any kind: what passes is harmless.

use super::{HOLE_BYTES, MAX_SPECIAL, TOP, check_areas, check_layout, check_start};
use crate::guest::thread::Arriving;
use crate::message::{Area, Context, Layout, Start};
use bolero::check;

/// Most numbers are of no interest: this gives those near the ends of things.
fn near(number: u64) -> u64 {
    const HOLE: u64 = 0x1000_0000_0000;
    let places = [0, 1 << 32, HOLE, HOLE + HOLE_BYTES, TOP - (1 << 32), TOP, u64::MAX - 0x7fff, number];
    let pages = (number >> 3 & 7) * 4096;
    places[(number & 7) as usize].wrapping_add(if number & 64 == 0 { pages } else { pages.wrapping_neg() })
}

fn harmless(areas: &[Area], hole: u64) {
    for a in areas {
        assert!(a.start < a.end && a.end <= TOP && a.start % 4096 == 0 && a.end % 4096 == 0 && a.prot <= 7, "{a:x?}");
        assert!(a.end <= hole || a.start >= hole + HOLE_BYTES, "{a:x?} over {hole:x}");
    }
    assert!(areas.windows(2).all(|w| w[0].end <= w[1].start), "{areas:x?}");
}

fn layout(layout: &Layout) {
    if check_layout(layout).is_err() {
        return;
    }
    harmless(&layout.areas, layout.hole);
    for s in &layout.special {
        let as_area = Area { start: s.start, end: s.end, prot: 1, stack: false, own: false };
        harmless(std::slice::from_ref(&as_area), layout.hole);
        assert!(s.end - s.start <= MAX_SPECIAL);
        assert!(layout.areas.iter().all(|a| a.end <= s.start || a.start >= s.end), "{s:x?}");
    }
    assert!(layout.limits.iter().all(|l| l.0 != libc::RLIMIT_CORE || l.2 == 0));
}

#[test]
fn layouts_of_any_kind() {
    check!().with_type::<Layout>().for_each(layout);
}

#[test]
fn layouts_near_the_limits() {
    check!().with_type::<Layout>().cloned().for_each(|mut l| {
        l.hole = near(l.hole);
        for a in &mut l.areas {
            (a.start, a.end, a.prot) = (near(a.start), near(a.end), a.prot % 9);
        }
        for s in &mut l.special {
            (s.start, s.end) = (near(s.start), near(s.end));
        }
        l.areas.sort_by_key(|a| a.start);
        layout(&l);
    });
}

#[test]
fn starts_of_any_kind() {
    check!().with_type::<Start>().for_each(|start| {
        if check_start(start).is_ok() {
            assert!(start.handlers.iter().all(|h| (1..=64).contains(&h.0) && h.1.len() == 32));
            assert!(start.calls.checked_add(1 << 62).is_some());
        }
    });
}

#[test]
fn threads_of_any_kind() {
    check!().with_type::<Vec<(i32, Context, Vec<u8>, bool)>>().for_each(|all| {
        let mut arriving = Arriving::default();
        for (i, (tid, context, xstate, odd)) in (2..).zip(all) {
            // Few have the right sizes by chance.
            let registers = if *odd { context.registers.clone() } else { vec![7; 27] };
            let altstack = if *odd { context.altstack.clone() } else { vec![9; 24] };
            let size = if *odd { context.xstate } else { xstate.len() as u32 };
            let context = Context { registers, altstack, xstate: size, ..context.clone() };
            let _ = arriving.signals(&xstate[..xstate.len() / 128 * 128]);
            let _ = arriving.thread(if *odd { *tid } else { i % 9 }, context, xstate.clone());
        }
        let mut ids: Vec<i32> = arriving.threads.iter().map(|t| t.0).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|w| w[0] < w[1]) && ids.iter().all(|&id| id > 1));
        for (_, context, xstate) in &arriving.threads {
            assert!(context.signals.checked_add(1 << 62).is_some() && context.altstack.len() == 24);
            assert!(context.registers.len() == 27 && context.xstate as usize == xstate.len());
        }
    });
}

#[test]
fn areas_of_any_kind() {
    check!().with_type::<Vec<Area>>().for_each(|areas| {
        if check_areas(areas, 1 << 40).is_ok() {
            harmless(areas, 1 << 40);
        }
    });
}
