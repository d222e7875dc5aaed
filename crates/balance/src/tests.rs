//! Each rule of balancing, ushering, admission and placement, by itself.

use crate::{
    Asked, Move, Other, Process, Promised, Refusal, Settings, Standing, Stays, Vector, Why, Wish, admit, need, place,
    spread, usher,
};

pub const GB: u64 = 1 << 30;

pub fn node(runnable: u32) -> Vector {
    Vector {
        cpus_milli: 1000,
        speed: 1000,
        runnable_milli: runnable * 1000,
        memory: 8 * GB,
        free: 6 * GB,
        ..Vector::default()
    }
}

pub fn other(name: &str, load: Vector) -> Other {
    Other { name: name.into(), age_ms: 100, load }
}

/// Of node `a`, a minute old, at home.
pub fn process(pid: u32) -> Process {
    Process {
        home: "a".into(),
        pid,
        demand_milli: 1000,
        cpu_ms: 60_000,
        here_ms: 60_000,
        resident: 10 << 20,
        ..Process::default()
    }
}

fn guest(pid: u32) -> Process {
    Process { home: "h".into(), moves: 1, ..process(pid) }
}

fn look(here: Vector, processes: &[Process], others: &mut [Other]) -> (Vec<Move>, Vec<(usize, Stays)>) {
    spread(("a", &here), processes, others, &Settings::default(), 1)
}

fn moved(here: Vector, p: Process, to: Other) -> bool {
    !look(here, &[p], &mut [to]).0.is_empty()
}

#[test]
fn work_goes_to_where_it_ends_sooner_until_it_is_even() {
    let all: Vec<Process> = (1..=4).map(process).collect();
    let mut others = [other("b", node(0)), other("c", node(1))];
    let (moves, stays) = look(node(4), &all, &mut others);
    // Of four here, none there and one there: two, two and one.
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert!(matches!(moves[0].why, Why::Sooner { .. }) && moves[0].to == "b");
    assert_eq!(others[0].load.runnable_milli + others[1].load.runnable_milli, 3000, "what was sent is noted");
    assert_eq!(stays.len(), 2);
    assert!(matches!(stays[0].1, Stays::NowhereBetter { .. }), "{stays:?}");
}

#[test]
fn what_gains_too_little_or_nothing_stays() {
    assert!(!moved(node(2), process(1), other("b", node(1))), "the same there");
    assert!(!moved(node(11), process(1), other("b", node(9))), "less than the gain that is asked for");
    assert!(moved(node(1), process(1), other("b", Vector { speed: 2000, ..node(0) })), "twice the speed");
    assert!(
        !moved(node(2), Process { calls: 50_000, ..process(1) }, other("b", node(0))),
        "all its time goes into calls"
    );
    let large = Process { resident: 5 * GB, cpu_ms: 1000, ..process(1) };
    assert!(!moved(node(2), large.clone(), other("b", node(0))), "the move takes longer than it has to do");
    assert!(moved(node(2), Process { cpu_ms: 600_000, ..large }, other("b", node(0))), "it has computed for long");
}

#[test]
fn who_is_young_has_just_come_idles_or_can_not_move_stays() {
    let idle = other("b", node(0));
    let stays = |p: Process| look(node(3), &[p], &mut [idle.clone()]).1.pop().map(|s| s.1);
    let young = Process { cpu_ms: 10, here_ms: 20, ..process(1) };
    assert_eq!(stays(young.clone()), Some(Stays::Young(Settings::default().min_cpu_ms - 10)));
    assert_eq!(stays(Process { here_ms: 20_000, ..young }), None, "in a crowd it has waited long enough");
    assert_eq!(stays(Process { here_ms: 1000, ..guest(1) }), Some(Stays::JustCame(2000)));
    assert_eq!(stays(Process { demand_milli: 100, ..process(1) }), Some(Stays::Idle));
    assert_eq!(stays(Process { obstacle: Some("x".into()), ..process(1) }), Some(Stays::Obstacle("x".into())));
    assert_eq!(stays(Process { kept: Some("x".into()), ..guest(1) }), Some(Stays::Kept("x".into())));
}

#[test]
fn nobody_goes_back_soon_or_to_who_is_closed_full_or_long_unheard() {
    let p = process(1);
    let idle = other("b", node(0));
    assert!(moved(node(3), p.clone(), idle.clone()));
    let back = |ago| Process { left: Some(("b".into(), ago)), moves: 1, ..process(1) };
    assert!(!moved(node(3), back(5_999), idle.clone()) && moved(node(3), back(6_000), idle.clone()));
    assert!(!moved(node(3), p.clone(), Other { age_ms: 8_001, ..idle.clone() }));
    for standing in [Standing::Full, Standing::Owner, Standing::Drained] {
        assert!(!moved(node(3), p.clone(), other("b", Vector { standing, ..node(0) })), "{standing:?}");
    }
    assert!(!moved(node(3), p.clone(), other("b", Vector { free: GB / 2, ..node(0) })), "under its watermark");
    let wishes = |memory| Process { wish: Wish { memory: Some(memory), ..Wish::default() }, ..process(1) };
    assert!(
        moved(node(3), wishes(GB), idle.clone()) && !moved(node(3), wishes(6 * GB), idle),
        "what it will need counts"
    );
}

#[test]
fn users_wishes_hold() {
    let idle = [other("b", node(0)), other("h", node(0))];
    let moves = |p: Process, wish: Wish| look(node(3), &[Process { wish, ..p }], &mut idle.clone()).0.pop();
    assert_eq!(moves(process(1), Wish { home_only: true, ..Wish::default() }), None);
    assert_eq!(moves(process(1), Wish { no_move: true, ..Wish::default() }), None);
    assert_eq!(moves(guest(1), Wish { max_moves: Some(1), ..Wish::default() }), None);
    assert_eq!(moves(process(1), Wish { nodes: Some(vec!["x".into()]), ..Wish::default() }), None);
    let only_b = Wish { nodes: Some(vec!["b".into()]), ..Wish::default() };
    assert_eq!(moves(process(1), only_b).map(|m| m.to), Some("b".into()));
    let home = moves(guest(1), Wish { home_only: true, ..Wish::default() });
    assert_eq!(home.map(|m| (m.to, m.why)), Some(("h".into(), Why::HomeOnly)));
}

#[test]
fn those_to_be_apart_part_and_do_not_meet_elsewhere() {
    let wish = Wish { apart: Some("db".into()), ..Wish::default() };
    let member = |pid| Process { wish: wish.clone(), crowded: pid > 1, ..process(pid) };
    let all = [member(1), member(2), member(3), member(4)];
    // `b` has refused the second one.
    let all = all.map(|p| if p.pid == 2 { Process { not: vec!["b".into()], ..p } } else { p });
    let mut others = [other("b", node(0)), other("c", node(0))];
    let (moves, stays) = look(node(4), &all, &mut others);
    let went: Vec<(u32, &str)> = moves.iter().map(|m| (m.process.1, m.to.as_str())).collect();
    assert_eq!(went, [(2, "c"), (3, "b")]);
    assert!(moves.iter().all(|m| m.why == Why::Apart));
    assert!(stays.contains(&(3, Stays::Nobody)), "there is no third place: {stays:?}");
}

#[test]
fn an_owner_and_a_drain_push_out() {
    let with = |standing| Vector { standing, ..node(1) };
    let all = [process(1), guest(2)];
    let (moves, _) = look(with(Standing::Owner), &all, &mut [other("b", node(5)), other("h", node(9))]);
    assert_eq!(moves.iter().map(|m| (m.process.1, &m.why)).collect::<Vec<_>>(), [(2, &Why::Owner)]);
    let (moves, _) = look(with(Standing::Drained), &all, &mut [other("b", node(5)), other("h", node(9))]);
    assert_eq!(moves.iter().map(|m| m.process.1).collect::<Vec<_>>(), [1, 2]);
    let full = Vector { standing: Standing::Full, ..node(0) };
    let (moves, stays) = look(with(Standing::Drained), &all, &mut [other("b", full), other("h", full)]);
    assert_eq!(
        moves.iter().map(|m| (m.process.1, m.to.as_str())).collect::<Vec<_>>(),
        [(2, "h")],
        "home takes its own"
    );
    assert_eq!(stays, [(0, Stays::Nobody)]);
}

#[test]
fn a_look_begins_few_moves_but_a_crowd_is_cleared_faster() {
    let mut idle: Vec<Other> = (0..100).map(|i| other(&format!("b{i}"), node(0))).collect();
    let few: Vec<Process> = (0..12).map(process).collect();
    assert_eq!(look(node(12), &few, &mut idle.clone()).0.len(), Settings::default().at_once);
    let crowd: Vec<Process> = (0..200).map(process).collect();
    assert_eq!(look(node(200), &crowd, &mut idle).0.len(), 50);
    assert!(idle.iter().all(|o| o.load.runnable_milli <= 1000), "spread over those that are known");
}

#[test]
fn memory_is_ushered_before_the_node_swaps() {
    let (settings, short) = (Settings::default(), Vector { free: GB / 4, ..node(1) });
    let keep = 8 * GB / 1000 * 100;
    assert_eq!(need(&short, &settings), keep - GB / 4);
    assert_eq!(need(&Vector { free: GB / 10 * 7, ..node(1) }, &settings), 0, "low, but nothing pages");
    assert!(
        need(&Vector { free: GB, falling: GB, ..node(1) }, &settings) > 0,
        "it will be gone before anybody has left"
    );
    assert!(need(&Vector { free: GB / 10 * 7, paging: 99, ..node(1) }, &settings) > 0);
    let sized = |pid, mb: u64| Process { resident: mb << 20, ..process(pid) };
    let all = [sized(1, 4000), sized(2, 700), sized(3, 100), sized(4, 0)];
    let moves = |others: &mut [Other]| usher(("a", &short), 0, &all, others, &settings);
    let m = moves(&mut [other("b", node(9)), other("c", node(5))]);
    assert_eq!(
        m.iter().map(|m| (m.process.1, m.to.as_str())).collect::<Vec<_>>(),
        [(2, "c")],
        "the smallest that is enough"
    );
    let still = |coming| usher(("a", &short), coming, &all, &mut [other("c", node(5))], &settings).len();
    assert_eq!((still(300 << 20), still(500 << 20)), (1, 0), "for what comes back anyhow nobody has to leave");
    // Who has come home to become another program may leave at once; a guest arrives first.
    let came = |home: &str| Process { home: home.into(), moves: 1, here_ms: 100, ..sized(2, 700) };
    let leaves = |p: Process| usher(("a", &short), 0, &[p], &mut [other("b", node(0))], &settings).len();
    assert_eq!((leaves(came("a")), leaves(came("c"))), (1, 0));
    // Where only little fits, what fits goes, the largest first.
    let tight = Vector { free: keep + (150 << 20), ..node(0) };
    assert_eq!(moves(&mut [other("b", tight)]).iter().map(|m| m.process.1).collect::<Vec<_>>(), [3]);
    let pages = Vector { paging: 99, free: keep * 2 - 1, ..node(0) };
    assert_eq!(moves(&mut [other("b", pages)]), []);
    let reads_files = Vector { free: keep * 2, ..pages };
    assert_eq!(moves(&mut [other("b", reads_files)]).len(), 1);
}

#[test]
fn what_grows_is_sent_where_it_can_go_on_growing() {
    let (settings, room) = (Settings::default(), GB + 8 * GB / 1000 * 100);
    let grows = |pid, mb: u64| Process { resident: 100 << 20, takes: mb << 20, ..process(pid) };
    let tight = || other("b", Vector { free: room, ..node(0) });
    let went = |p: Process, to: Other| look(node(2), &[p], &mut [to]).0.len();
    assert_eq!((went(grows(1, 0), tight()), went(grows(1, 400), tight())), (1, 0), "1.2 GB in three seconds");
    let two = look(node(3), &[grows(1, 250), grows(2, 250)], &mut [tight()]).0;
    assert_eq!(two.len(), 1, "the second one would find it full before it may leave again");
    // Who must leave prefers such a place, and takes another one.
    let short = Vector { free: GB / 4, ..node(1) };
    let ushered = |others: &mut [Other]| usher(("a", &short), 0, &[grows(1, 400)], others, &settings);
    let wide = other("c", Vector { free: room + GB, ..node(5) });
    assert_eq!(ushered(&mut [tight(), wide])[0].to, "c");
    assert_eq!(ushered(&mut [tight()])[0].to, "b");
    // But not one where it would find less than it has here, nor where another one grows as fast.
    let mb = |n: u64| n << 20;
    let small = Settings { free_least: mb(30), ..Settings::default() };
    let of_300 = |name: &str, free| other(name, Vector { memory: mb(300), free, ..node(0) });
    let here = |free| Vector { memory: mb(300), free, falling: mb(200), ..node(1) };
    let young = |pid| Process { resident: mb(70), ..grows(pid, 200) };
    let goes = |free, others: &mut [Other]| usher(("a", &here(free)), 0, &[young(1)], others, &small);
    assert_eq!(goes(mb(200), &mut [of_300("b", mb(280))]), [], "a guest gets 225 MB, here it can have 270");
    assert_eq!(goes(mb(100), &mut [of_300("b", mb(200)), of_300("c", mb(210))])[0].to, "c");
    let begun = |here_ms| Process { takes: 0, here_ms, ..young(1) };
    let leaves = |p| usher(("a", &here(mb(200))), 0, &[p], &mut [of_300("b", mb(280))], &small).len();
    assert_eq!(
        (leaves(begun(900)), leaves(begun(9_000))),
        (0, 1),
        "of one that has just begun nobody knows that it takes nothing"
    );
    let asked = Asked { needs: GB, demand_milli: 1000, has: Some(0.5), by_hand: false };
    let falls = Vector { free: room + GB / 2, falling: GB, ..node(0) };
    assert!(admit(&falls, &Promised::default(), &asked, &settings).is_err(), "those that are there grow, too");
    assert_eq!(admit(&falls, &Promised::default(), &Asked { has: None, ..asked }, &settings), Ok(()));
}

#[test]
fn the_target_has_its_own_word() {
    let settings = Settings::default();
    let asked = Asked { needs: GB, demand_milli: 1000, has: Some(0.5), by_hand: false };
    let ask = |here: Vector, promised: Promised, asked: &Asked| admit(&here, &promised, asked, &settings);
    let none = Promised::default();
    assert_eq!(ask(node(0), none, &asked), Ok(()));
    assert_eq!(ask(node(1), none, &asked), Err(Refusal::Slower(0.5)), "no better than where it is");
    assert_eq!(ask(node(0), Promised { demand_milli: 1000, ..none }, &asked), Err(Refusal::Slower(0.5)));
    assert_eq!(ask(node(0), Promised { bytes: 5 * GB, ..none }, &asked), Err(Refusal::Memory(GB)));
    assert_eq!(ask(node(9), none, &Asked { has: None, ..asked.clone() }), Ok(()), "it does not come for speed");
    let owner = Vector { standing: Standing::Owner, ..node(0) };
    assert_eq!(ask(owner, none, &asked), Err(Refusal::Standing(Standing::Owner)));
    assert_eq!(ask(owner, none, &Asked { by_hand: true, ..asked }), Ok(()));
}

#[test]
fn the_first_place_is_the_best_one_and_the_next_knows_of_it() {
    let settings = Settings::default();
    let mut others = [other("b", node(0)), other("c", node(1))];
    let mut first = |here| place(("a", &here), &process(1), &mut others, &settings).node;
    assert_eq!([first(node(1)), first(node(1)), first(node(1))], ["b", "a", "a"]);
    assert_eq!(first(node(0)), "a", "no better elsewhere");
    let drained = Vector { standing: Standing::Drained, ..node(0) };
    assert_ne!(first(drained), "a");
    let tied = Process { wish: Wish { home_only: true, ..Wish::default() }, ..process(1) };
    assert_eq!(place(("a", &node(9)), &tied, &mut others, &settings).node, "a");
}

#[test]
fn cpus_that_gangs_hold_are_not_free_whatever_runs_there() {
    let held = |cpus: u32, held: u32, runnable: u32| Vector {
        cpus_milli: cpus * 1000,
        reserved_milli: held * 1000,
        ..node(runnable)
    };
    // A gang whose ranks wait leaves no CPU to guests: they go, and do not come.
    assert!(moved(held(1, 1, 1), process(1), other("b", node(0))));
    assert!(!moved(node(1), process(1), other("b", held(1, 1, 0))));
    assert!(!moved(node(2), process(1), other("b", held(1, 1, 0))), "half a CPU is more than what gangs leave");
    assert!(moved(held(2, 1, 2), process(1), other("b", held(4, 2, 0))), "two are free there");
    // Where all are held it is as it was: the crowd is shared out.
    assert!(moved(held(1, 1, 3), process(1), other("b", held(1, 1, 0))));
    assert!(!moved(held(1, 1, 1), process(1), other("b", held(1, 1, 0))), "nobody flutters");
    let mut others = [other("b", held(1, 1, 0)), other("c", node(1))];
    let placed = place(("a", &held(1, 1, 0)), &process(1), &mut others, &Settings::default());
    assert_eq!(placed.node, "c", "what begins begins there, too");
    assert_eq!(crate::rate(&held(1, 9, 0)), crate::rate(&held(1, 1, 0)), "no more than there are");
}
