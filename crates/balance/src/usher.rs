//! Memory ushering: before a node swaps, a process goes to where it fits, whatever that does to the balance of CPUs
//! (Barak and Braverman, 1998).

use crate::cost::rate_of;
use crate::spread::{Look, has_room, has_room_to_grow, send};
use crate::{Move, Other, Process, Settings, Standing, Vector, Why};
use std::cmp::Ordering;

/// Bytes that this node lacks, or will in a moment: 0 when all is well.
pub fn need(here: &Vector, settings: &Settings) -> u64 {
    let (keep, short, free) = (settings.to_keep(here), settings.short_of(here), here.soon());
    let pages = here.paging >= settings.paging && free < keep;
    if free < short || pages { keep - free.min(keep) } else { 0 }
}

/// The moves that give this node its memory back: the smallest process that is large enough, or the largest one there is, and so on.
/// `coming`: bytes that will be free in a moment anyhow, because their processes have left. What is decided is noted in `others`.
pub fn usher(
    (name, here): (&str, &Vector),
    coming: u64,
    processes: &[Process],
    others: &mut [Other],
    settings: &Settings,
) -> Vec<Move> {
    let mut look = Look::default();
    let mut node = here.with_memory(-i64::try_from(coming).unwrap_or(i64::MAX));
    let mut lacks = need(&node, settings);
    let mut left: Vec<&Process> = processes.iter().filter(|p| may_leave(p, name, settings)).collect();
    left.sort_by_key(|p| p.resident);
    // Two that take memory are better apart, wherever.
    let takers: Vec<u32> = processes.iter().filter(|p| may_take(p, here, settings)).map(|p| p.pid).collect();
    let alone = |p: &Process| takers == [p.pid];
    while lacks > 0 && look.moves.len() < settings.at_once {
        let fits = |p: &&&Process| target(p, (name, &node, alone(p)), others, settings).is_some();
        let enough = left.iter().filter(|p| p.resident >= lacks).find(fits);
        let Some(p) = enough.or_else(|| left.iter().rev().find(fits)).copied() else { break };
        let Some(to) = target(p, (name, &node, alone(p)), others, settings) else { break };
        let why = Why::Memory { free: here.free, soon: here.soon() };
        send((p, why), to, &mut node, others, settings, &mut look);
        lacks = lacks.saturating_sub(p.resident);
        left.retain(|other| !std::ptr::eq(*other, p));
    }
    look.moves
}

fn may_leave(p: &Process, name: &str, settings: &Settings) -> bool {
    let bound = p.wish.home_only || p.wish.no_move || p.wish.max_moves.is_some_and(|most| p.moves >= most);
    // A guest that has just come is given the time to arrive. Who came home is there with all that it has; it may be another program by now
    // (execve), which takes all that there is in less time than that.
    let arrives = p.home != name && p.moves > 0 && p.here_ms < settings.residency_ms / 2;
    // What is smaller than this helps nobody.
    p.obstacle.is_none() && !bound && !arrives && p.resident >= 1 << 20
}

/// Is it one of those that take the memory? How much one that has just begun takes is not known yet, and what is known comes late.
fn may_take(p: &Process, here: &Vector, settings: &Settings) -> bool {
    let is_new = p.takes == 0 && p.here_ms < settings.residency_ms;
    here.falling > 0 && (is_new || p.takes > 0 && p.takes >= here.falling / 4)
}

/// By how much it can grow there. A guest gets three quarters of a node, if its administrator says nothing else (`[limits] guest_memory_mb`).
fn room_to_grow(p: &Process, to: &Other) -> u64 {
    let free = to.load.free.saturating_sub(p.resident);
    let most = (to.load.memory / 4 * 3).saturating_sub(p.resident);
    if to.name == p.home { to.load.free } else { free.min(most) }
}

/// Where it fits: most memory over what it needs, and among places with plenty the least loaded. A place where it can grow comes first. Who takes
/// this node's memory `alone` is not sent where there is less for him than here: he would be ended there.
fn target(
    p: &Process,
    (name, here, alone): (&str, &Vector, bool),
    others: &[Other],
    settings: &Settings,
) -> Option<usize> {
    let open = |o: &Other| {
        let takes = o.load.standing == Standing::Open || o.name == p.home && o.load.standing == Standing::Full;
        let back = p.left.as_ref().is_some_and(|(node, ago)| *node == o.name && *ago < settings.residency_ms);
        // With that much free it reads files, and lacks nothing.
        let calm = o.load.paging < settings.paging || o.load.free / 2 >= settings.to_keep(&o.load);
        o.name != name && takes && !back && calm && o.age_ms <= settings.oldest_ms && p.may_be_at(&o.name)
    };
    let may_grow = others.iter().any(|o| open(o) && has_room_to_grow(p, o, settings));
    let has_room = if may_grow { has_room_to_grow } else { has_room };
    let takes = p.takes > 0 && !may_grow;
    let finds_enough = p.takes > 0 && may_grow;
    let gains = |o: &Other| !alone || finds_enough || room_to_grow(p, o) > here.free;
    let fits = |o: &Other| open(o) && has_room(p, o, settings) && gains(o);
    let room = |o: &Other| o.load.free.saturating_sub(p.needs() + settings.to_keep(&o.load));
    let plenty = |o: &Other| room(o) >= p.needs();
    let speed = |o: &Other| rate_of(p, &o.load.with_demand(i64::from(p.demand_milli)), &o.name, settings);
    (0..others.len()).filter(|&i| fits(&others[i])).max_by(|&a, &b| {
        let (a, b) = (&others[a], &others[b]);
        let grows = if takes { room_to_grow(p, a).cmp(&room_to_grow(p, b)) } else { Ordering::Equal };
        grows.then(plenty(a).cmp(&plenty(b))).then_with(|| match plenty(a) {
            true => speed(a).total_cmp(&speed(b)).then_with(|| room(a).cmp(&room(b))),
            false => room(a).cmp(&room(b)),
        })
    })
}
