//! Whatever is known of nodes and processes: nobody is moved to where it must not go.

use crate::tests::{GB, other, process};
use crate::{Move, Other, Process, Settings, Standing, Vector, Why, Wish, place, spread, usher};
use bolero::{TypeGenerator, check};

#[derive(Debug, TypeGenerator)]
struct Anywhere {
    cpus: u16,
    speed: u16,
    runnable: u16,
    free: u8,
    paging: u8,
    standing: u8,
    age: u16,
}

#[derive(Debug, TypeGenerator)]
struct Anything {
    home: u8,
    demand: u16,
    cpu: u16,
    here: u16,
    left: Option<(u8, u16)>,
    resident: u8,
    calls: u16,
    moves: u8,
    obstacle: bool,
    wish: u8,
    nodes: u8,
    memory: u8,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn name(i: u8) -> String {
    NAMES[usize::from(i) % NAMES.len()].into()
}

fn vector(n: &Anywhere) -> Vector {
    Vector {
        cpus_milli: u32::from(n.cpus),
        speed: u32::from(n.speed),
        runnable_milli: u32::from(n.runnable),
        memory: 8 * GB,
        free: u64::from(n.free) << 25,
        paging: u32::from(n.paging),
        standing: [Standing::Open, Standing::Full, Standing::Owner, Standing::Drained][usize::from(n.standing % 4)],
        ..Vector::default()
    }
}

fn made(pid: u32, p: &Anything) -> Process {
    let wish = Wish {
        home_only: p.wish & 1 != 0,
        no_move: p.wish & 2 != 0,
        nodes: (p.wish & 4 != 0).then(|| vec![name(p.nodes)]),
        max_moves: (p.wish & 8 != 0).then_some(2),
        memory: (p.wish & 16 != 0).then_some(u64::from(p.memory) << 26),
        apart: (p.wish & 32 != 0).then(|| "a".into()),
        ..Wish::default()
    };
    Process {
        home: name(p.home),
        demand_milli: u32::from(p.demand),
        cpu_ms: u64::from(p.cpu),
        here_ms: u64::from(p.here),
        left: p.left.map(|(node, ago)| (name(node), u64::from(ago))),
        resident: u64::from(p.resident) << 24,
        calls: u32::from(p.calls),
        moves: u32::from(p.moves % 4),
        obstacle: p.obstacle.then(|| "it is".into()),
        crowded: p.wish & 96 == 96,
        wish,
        ..process(pid)
    }
}

/// What must not be, of one move.
fn forbidden(m: &Move, p: &Process, before: &[Other], settings: &Settings) -> Option<&'static str> {
    let Some(to) = before.iter().find(|o| o.name == m.to) else { return Some("to nobody who is known") };
    let home = to.name == p.home;
    let forced = home && matches!(m.why, Why::Owner | Why::Drained | Why::HomeOnly);
    let sooner = matches!(m.why, Why::Sooner { .. });
    let back = p.left.as_ref().is_some_and(|(node, ago)| {
        *node == to.name && *ago < if sooner { settings.no_return_ms } else { settings.residency_ms }
    });
    let push = matches!(m.why, Why::Owner | Why::Drained) || m.why == Why::Apart && !p.wish.no_move;
    match () {
        () if p.obstacle.is_some() => Some("it can't move"),
        () if m.to == "a" => Some("to where it is"),
        () if forced => None,
        () if to.age_ms > settings.oldest_ms => Some("long unheard"),
        () if back => Some("it has just left there"),
        () if to.load.standing != Standing::Open && !home => Some("closed"),
        () if to.load.standing == Standing::Drained => Some("drained"),
        () if p.needs() > to.load.free => Some("too small"),
        () if p.wish.home_only && !home => Some("its user wants it at home"),
        () if p.wish.no_move && !push => Some("its user wants it here"),
        () if p.wish.nodes.as_ref().is_some_and(|all| !home && !all.contains(&m.to)) => {
            Some("its user wants it elsewhere")
        }
        () if !home && p.not.contains(&m.to) => Some("it is not to be there"),
        () if p.wish.max_moves.is_some_and(|most| p.moves >= most) && !push => Some("it has moved enough"),
        () => None,
    }
}

#[test]
fn no_move_that_is_forbidden() {
    let settings = Settings::default();
    check!().with_type::<(Anywhere, Vec<Anywhere>, Vec<Anything>, u64)>().for_each(|(here, nodes, all, chance)| {
        let here = vector(here);
        let known = |(name, n): (&&str, &Anywhere)| Other { age_ms: u64::from(n.age), ..other(name, vector(n)) };
        let before: Vec<Other> = NAMES.iter().zip(nodes).map(known).collect();
        let processes: Vec<Process> = (0..).zip(all).map(|(pid, p)| made(pid, p)).collect();
        let find = |m: &Move| &processes[m.process.1 as usize];
        let (mut one, mut two) = (before.clone(), before.clone());
        let ushered = usher(("a", &here), 0, &processes, &mut one, &settings);
        let (moves, stays) = spread(("a", &here), &processes, &mut two, &settings, *chance);
        assert_eq!(moves.len() + stays.len(), processes.len());
        for m in ushered.iter().chain(&moves) {
            assert_eq!(forbidden(m, find(m), &before, &settings), None, "{m:?}: {:?}", find(m));
        }
        for (after, moves) in [(&one, &ushered), (&two, &moves)] {
            for o in after.iter().filter(|o| o.load.free == 0) {
                let sent: u64 = moves.iter().filter(|m| m.to == o.name).map(|m| find(m).needs()).sum();
                let had = before.iter().find(|b| b.name == o.name).map_or(0, |b| b.load.free);
                let home = moves.iter().any(|m| m.to == o.name && find(m).home == o.name);
                assert!(sent <= had || home, "{} was sent more than it has room for", o.name);
            }
        }
        for p in &processes {
            let placed = place(("a", &here), p, &mut before.clone(), &settings);
            assert!(placed.node == "a" || p.may_be_at(&placed.node));
        }
    });
}
