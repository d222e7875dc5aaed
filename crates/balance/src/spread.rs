//! Load balancing: processes go where they end sooner. Owner, drain and "at home" come first, since they are not a question of speed.

use crate::cost::{cost_ms, rate_of};
use crate::{Process, Settings, Standing, Stays, Vector, Why};

/// Less than this is no computing: thousandths of a CPU.
const IDLE: u32 = 300;
/// As good as the CPU time that a process must have used is so many times as long a wait.
const WAITED: u64 = 10;
/// Remaining work is taken to be between these, milliseconds.
const REMAINS: (u64, u64) = (1_000, 600_000);
/// Of a crowd, one in so many may leave in one look, where that is more than the settings say.
const CROWD: usize = 4;
/// Nodes that are as good as the best one, nearly (the time until the process ends there, not the gain: in a crowd any place gains
/// almost all): who takes one of these by chance does not meet everybody else there.
const AS_GOOD: f64 = 0.95;

/// Another node, as far as is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// Its name.
    pub name: String,
    /// How old that is, milliseconds.
    pub age_ms: u64,
    /// What it said of itself, and what has been sent there since.
    pub load: Vector,
}

/// A move that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Home and pid.
    pub process: (String, u32),
    /// Where to.
    pub to: String,
    /// Why.
    pub why: Why,
}

/// What came of a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Look {
    pub moves: Vec<Move>,
    /// Each process that stays, by its place in the list.
    pub stays: Vec<(usize, Stays)>,
}

/// One look. `here`: this node; `chance`: a number from a source that differs between nodes and looks. What is decided is noted in
/// `others`: nobody is sent more than it can take because it has not been heard of since. Returns the moves, and for each process that
/// stays why.
pub fn spread(
    (name, here): (&str, &Vector),
    processes: &[Process],
    others: &mut [Other],
    settings: &Settings,
    chance: u64,
) -> (Vec<Move>, Vec<(usize, Stays)>) {
    let mut look = Look::default();
    let (mut here, mut chance) = (*here, chance);
    let mut processes = processes.to_vec();
    let mut left: Vec<usize> = Vec::new();
    for i in 0..processes.len() {
        let p = &processes[i];
        match must_leave(p, name, &here) {
            Some(why) => match refuge(p, name, others, settings, &why) {
                Some(to) => {
                    send((p, why), to, &mut here, others, settings, &mut look);
                    keep_apart(&mut processes, i, &others[to].name);
                }
                None => look.stays.push((i, Stays::Nobody)),
            },
            None => left.push(i),
        }
    }
    let mut open: Vec<usize> = Vec::new();
    for i in left {
        match fixed(&processes[i], name, settings) {
            Some(why) => look.stays.push((i, why)),
            None => open.push(i),
        }
    }
    let mut order: Vec<(usize, f64)> =
        open.iter().map(|&i| (i, most(&processes[i], (name, &here), others, settings))).collect();
    // Of equals the smallest one goes first.
    let size = |i: usize| processes[i].resident;
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| size(a.0).cmp(&size(b.0))));
    let limit = settings.at_once.max(open.len() / CROWD);
    let enough = f64::from(settings.gain_percent) / 100.0;
    for (i, _) in order.into_iter().take_while(|(_, gain)| *gain >= enough) {
        if look.moves.len() >= limit {
            break;
        }
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if let Some((to, why)) = best(&processes[i], (name, &here), others, settings, chance >> 33) {
            open.retain(|&other| other != i);
            send((&processes[i], why), to, &mut here, others, settings, &mut look);
            keep_apart(&mut processes, i, &others[to].name);
        }
    }
    for i in open {
        look.stays.push((i, no_better(&processes[i], (name, &here), others, settings)));
    }
    look.stays.sort_by_key(|s| s.0);
    (look.moves, look.stays)
}

/// Those that are to be apart from one that goes there do not go there in the same look.
fn keep_apart(processes: &mut [Process], gone: usize, to: &str) {
    let (home, word) = (processes[gone].home.clone(), processes[gone].wish.apart.clone());
    let with_it = |p: &&mut Process| word.is_some() && p.home == home && p.wish.apart == word;
    processes.iter_mut().filter(with_it).for_each(|p| p.not.push(to.to_owned()));
}

fn must_leave(p: &Process, name: &str, here: &Vector) -> Option<Why> {
    let guest = p.home != name;
    match here.standing {
        _ if p.obstacle.is_some() => None,
        _ if guest && p.wish.home_only => Some(Why::HomeOnly),
        Standing::Drained if guest || !(p.wish.home_only || p.wish.no_move) => Some(Why::Drained),
        Standing::Owner if guest => Some(Why::Owner),
        // Where else it may be alone, if anywhere.
        _ if p.crowded && !(p.wish.home_only || p.wish.no_move) => Some(Why::Apart),
        _ => None,
    }
}

/// Where one goes that must leave: the place where it gets most done. A guest can always go home.
fn refuge(p: &Process, name: &str, others: &[Other], settings: &Settings, why: &Why) -> Option<usize> {
    let home = others.iter().position(|o| o.name == p.home);
    if *why == Why::HomeOnly {
        return home;
    }
    let grows_at = |o: &Other| may_go(p, name, o, settings) && has_room_to_grow(p, o, settings);
    let room = if others.iter().any(grows_at) { has_room_to_grow } else { has_room };
    let fits = |o: &Other| may_go(p, name, o, settings) && room(p, o, settings);
    let speed = |o: &Other| rate_of(p, &o.load.with_demand(i64::from(p.demand_milli)), &o.name, settings);
    let best = (0..others.len())
        .filter(|&i| fits(&others[i]))
        .max_by(|&a, &b| speed(&others[a]).total_cmp(&speed(&others[b])));
    best.or(home.filter(|_| p.home != name && *why != Why::Apart))
}

/// What keeps a process, wherever others are better.
fn fixed(p: &Process, name: &str, settings: &Settings) -> Option<Stays> {
    let guest = p.home != name;
    if let Some(why) = &p.obstacle {
        return Some(Stays::Obstacle(why.clone()));
    }
    if p.wish.home_only || p.wish.no_move {
        return Some(Stays::Wish(if p.wish.home_only { "--home-only" } else { "--no-move" }));
    }
    if p.wish.max_moves.is_some_and(|most| p.moves >= most) {
        return Some(Stays::Wish("--max-moves"));
    }
    if let Some(why) = &p.kept {
        return Some(Stays::Kept(why.clone()));
    }
    // In a crowd nobody gets much: to have waited for it counts, too.
    if p.cpu_ms < settings.min_cpu_ms && p.here_ms < settings.min_cpu_ms * WAITED {
        return Some(Stays::Young(settings.min_cpu_ms - p.cpu_ms));
    }
    if p.moves > 0 && p.here_ms < settings.residency_ms {
        return Some(Stays::JustCame(settings.residency_ms - p.here_ms));
    }
    (p.demand_milli < IDLE && !guest).then_some(Stays::Idle)
}

/// May it go there at all?
fn may_go(p: &Process, name: &str, to: &Other, settings: &Settings) -> bool {
    let back = p.left.as_ref().is_some_and(|(node, ago)| *node == to.name && *ago < settings.no_return_ms);
    let open = to.load.standing == Standing::Open || to.name == p.home && to.load.standing != Standing::Drained;
    to.name != name && open && !back && to.age_ms <= settings.oldest_ms && p.may_be_at(&to.name)
}

/// Is there room for it as it is?
pub(crate) fn has_room(p: &Process, to: &Other, settings: &Settings) -> bool {
    to.load.free >= p.needs().saturating_add(settings.to_keep(&to.load))
}

/// And as it will be? Two that grow and meet where there is room for both today are a node that is short tomorrow, and neither may leave yet.
pub(crate) fn has_room_to_grow(p: &Process, to: &Other, settings: &Settings) -> bool {
    to.load.free >= p.will_need(settings).saturating_add(settings.to_keep(&to.load))
}

/// How much sooner it ends there, as a part of the time that it takes here, and the rates.
fn sooner(p: &Process, here: (&str, &Vector), to: &Other, settings: &Settings) -> (f64, f64, f64) {
    let remains = p.cpu_ms.clamp(REMAINS.0, REMAINS.1) as f64;
    let now = rate_of(p, here.1, here.0, settings).max(1e-6);
    let then = rate_of(p, &to.load.with_demand(i64::from(p.demand_milli)), &to.name, settings).max(1e-6);
    let (stay, go) = (remains / now, remains / then + cost_ms(p, settings) as f64);
    (1.0 - go / stay, now, then)
}

/// How much sooner it ends at the best place, as a part.
fn most(p: &Process, here: (&str, &Vector), others: &[Other], settings: &Settings) -> f64 {
    let fits = |o: &&Other| may_go(p, here.0, o, settings) && has_room_to_grow(p, o, settings);
    others.iter().filter(fits).map(|o| sooner(p, here, o, settings).0).fold(0.0, f64::max)
}

/// The target that saves most time, if it is enough; of nearly equal ones one by chance.
fn best(
    p: &Process,
    here: (&str, &Vector),
    others: &[Other],
    settings: &Settings,
    chance: u64,
) -> Option<(usize, Why)> {
    let fits = |o: &Other| may_go(p, here.0, o, settings) && has_room_to_grow(p, o, settings);
    let gains: Vec<(usize, f64)> =
        (0..others.len()).filter(|&t| fits(&others[t])).map(|t| (t, sooner(p, here, &others[t], settings).0)).collect();
    let gain = gains.iter().map(|g| g.1).fold(0.0, f64::max);
    if gain < f64::from(settings.gain_percent) / 100.0 {
        return None;
    }
    let good: Vec<usize> = gains.iter().filter(|g| (1.0 - g.1) * AS_GOOD <= 1.0 - gain).map(|g| g.0).collect();
    let to = *good.get((chance % good.len().max(1) as u64) as usize)?;
    let (gain, now, then) = sooner(p, here, &others[to], settings);
    Some((to, Why::Sooner { here: now, there: then, percent: (gain * 100.0) as u32 }))
}

fn no_better(p: &Process, here: (&str, &Vector), others: &[Other], settings: &Settings) -> Stays {
    let may: Vec<&Other> = others.iter().filter(|o| may_go(p, here.0, o, settings)).collect();
    let room = may.iter().filter(|o| has_room_to_grow(p, o, settings));
    let gains = room.map(|o| (o, sooner(p, here, o, settings).0));
    match gains.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((_, gain)) if gain >= f64::from(settings.gain_percent) / 100.0 => Stays::Later,
        Some((best, gain)) => Stays::NowhereBetter { best: best.name.clone(), percent: (gain * 100.0) as i32 },
        None if may.is_empty() => Stays::Nobody,
        None => Stays::NoRoom(p.will_need(settings)),
    }
}

/// Notes that it goes there.
pub(crate) fn send(
    (p, why): (&Process, Why),
    to: usize,
    here: &mut Vector,
    others: &mut [Other],
    settings: &Settings,
    look: &mut Look,
) {
    let (demand, bytes) = (i64::from(p.demand_milli), p.will_need(settings) as i64);
    *here = here.with_demand(-demand).with_memory(-(p.resident as i64));
    others[to].load = others[to].load.with_demand(demand).with_memory(bytes);
    look.moves.push(Move { process: (p.home.clone(), p.pid), to: others[to].name.clone(), why });
}
