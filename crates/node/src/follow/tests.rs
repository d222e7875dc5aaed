//! Families that follow, step by step.

use super::*;

fn placed(pid: u32, aim: Aim) -> Placed {
    Placed { pid, start_time: 1, uid: 7, aim, cpu_ms: 500, after_ms: None, since: 10 }
}

fn seen(pid: u32, parent: u32, cpu_ms: u64, native: bool) -> Seen {
    let start_time = if parent == 1 { 1 } else { 20 };
    Seen { pid, start_time, parent, uid: Some(7), cpu_ms, native, calls: 0, cpu_abroad_ms: 0 }
}

fn n2() -> Aim {
    Aim::Node("n2".into())
}

#[test]
fn children_go_when_their_user_wants_it() {
    let goes = |after_ms: Option<u64>, cpu_ms: u64| {
        let mut f = Follow::new(100);
        f.placed(Placed { after_ms, ..placed(10, n2()) });
        let child = seen(20, 10, cpu_ms, true);
        f.step(0, &[seen(10, 1, 500, false), child.clone()]).len() + f.step(50, &[seen(10, 1, 500, false), child]).len()
    };
    assert_eq!((goes(None, 99), goes(None, 100)), (0, 1));
    assert_eq!((goes(Some(0), 0), goes(Some(7), 6), goes(Some(7), 7)), (1, 0, 1));
    assert_eq!(goes(Some(NEVER), 1 << 40), 0);
    // One that came home at once does not go at once again.
    let mut f = Follow::new(0);
    f.placed(Placed { after_ms: Some(0), ..placed(10, n2()) });
    let home = |cpu_ms| seen(10, 1, cpu_ms, true);
    assert_eq!(f.step(0, &[home(500)]).len(), 0);
    assert_eq!((f.step(50, &[home(599)]).len(), f.step(100, &[home(600)]).len()), (0, 1));
}

#[test]
fn what_is_placed_while_others_are_looked_at_is_not_forgotten() {
    let mut f = Follow::new(100);
    f.placed(placed(10, Aim::Best));
    f.step(0, &[]);
    assert!(f.knows(10, 1));
    f.step(0, &[]);
    assert!(!f.knows(10, 1));
}

#[test]
fn a_grandchild_goes_where_the_family_is_once_it_has_computed() {
    let mut f = Follow::new(100);
    f.placed(placed(10, n2()));
    let mut all = [seen(10, 1, 500, false), seen(11, 10, 0, true), seen(12, 11, 90, true)];
    assert!(f.step(0, &all).is_empty());
    assert!(f.explain(12, 20).unwrap().contains("10 ms more"), "{:?}", f.explain(12, 20));
    all[2].cpu_ms = 100;
    let due = f.step(0, &all);
    assert_eq!(
        due,
        [Going { pid: 12, uid: 7, aim: n2(), why: "follows 11".into(), family: 10, back: false, returns: false }]
    );
    assert!(f.step(0, &all).is_empty(), "once");
    f.ended(12, Ended::Went);
    all[2].native = false;
    assert!(f.step(0, &all).is_empty());
    // Its parent has ended and it is another's child now: it keeps what it inherited.
    (all[2].native, all[2].cpu_ms, all[2].parent) = (true, 150, 1);
    assert!(f.step(0, &[all[0].clone(), all[2].clone()]).is_empty(), "it has just come home");
    all[2].cpu_ms = 350;
    assert_eq!(f.step(0, &[all[0].clone(), all[2].clone()]).len(), 1);
}

#[test]
fn who_was_there_before_belongs_to_another_or_is_under_one_at_home_stays() {
    let mut f = Follow::new(100);
    f.placed(placed(10, n2()));
    let (mut older, mut other) = (seen(11, 10, 900, true), seen(12, 10, 900, true));
    (older.start_time, other.uid) = (9, None);
    assert!(f.step(0, &[seen(10, 1, 500, false), older, other]).is_empty());
    f.placed(placed(10, Aim::Home));
    assert!(f.step(0, &[seen(10, 1, 5_000, true), seen(13, 10, 900, true)]).is_empty());
}

#[test]
fn a_process_that_comes_home_by_itself_goes_back_ever_later() {
    let mut f = Follow::new(100);
    f.placed(placed(10, n2()));
    assert!(f.step(0, &[seen(10, 1, 500, true)]).is_empty());
    assert!(f.step(0, &[seen(10, 1, 699, true)]).is_empty());
    assert_eq!(f.step(0, &[seen(10, 1, 700, true)])[0].why, "goes back");
    f.ended(10, Ended::Went);
    assert!(f.step(0, &[seen(10, 1, 1099, true)]).is_empty());
    assert!(f.step(0, &[seen(10, 1, 1498, true)]).is_empty());
    assert_eq!(f.step(0, &[seen(10, 1, 1499, true)]).len(), 1);
}

#[test]
fn one_that_can_not_move_is_left_in_peace() {
    let mut f = Follow::new(100);
    f.placed(placed(10, n2()));
    let mut tries = 0;
    for cpu in (500..1_000_000).step_by(50) {
        for _ in f.step(0, &[seen(10, 1, cpu, true)]) {
            tries += 1;
            f.ended(10, Ended::Failed);
        }
    }
    assert_eq!(tries, MAX_FAILED);
    assert!(f.explain(10, 1).unwrap().contains("could not be moved"));
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let mut f = Follow::new(100);
    f.placed(placed(10, n2()));
    let mut stranger = seen(10, 1, 9_000, true);
    stranger.start_time = 77;
    assert!(f.step(0, &[stranger]).is_empty());
    assert!(f.pids().is_empty());
    f.placed(placed(10, n2()));
    for _ in 0..2 {
        assert!(f.step(0, &[]).is_empty());
    }
    assert!(f.pids().is_empty(), "it has ended");
}

#[test]
fn one_user_can_not_use_up_what_others_may_have() {
    let mut f = Follow::new(100);
    let of = |uid: u32, pid: u32| Placed { uid, ..placed(pid, n2()) };
    f.placed(of(7, 1000));
    f.placed(of(8, 10));
    let child = Seen { uid: Some(8), ..seen(11, 10, 0, true) };
    let mut all = vec![seen(1000, 1, 0, false)];
    all.extend((0..MAX_MEMBERS as u32 + 5).map(|n| seen(2000 + n, 1000, 0, true)));
    all.extend([seen(10, 1, 500, false), child]);
    f.step(0, &all);
    f.placed(of(7, 9));
    assert_eq!((f.pids()[&7].len(), &f.pids()[&8][..]), (MAX_MEMBERS, &[10, 11][..]));
    f.forget(11);
    assert_eq!(f.pids()[&8], [10]);
}

#[test]
fn refusals_are_counted_by_family_and_reason() {
    let mut f = Follow::new(100);
    f.placed(placed(10, n2()));
    f.placed(placed(20, n2()));
    assert_eq!(f.refused(10, "it maps a device: 7f1a-7f2a (/dev/x)"), 1);
    assert_eq!(f.refused(10, "it maps a device: 80-90 (/dev/x)"), 2);
    assert_eq!(f.refused(10, "it is stopped"), 1);
    assert_eq!(f.refused(20, "it is stopped"), 1);
    (0..100).for_each(|n| assert!(f.refused(10, &"x".repeat(n)) > 0));
    assert!(f.refused[&10].len() <= MAX_REASONS + 1);
    f.step(0, &[seen(10, 1, 0, false), seen(11, 10, 0, true)]);
    f.step(0, &[Seen { parent: 1, ..seen(11, 10, 0, true) }]);
    assert_eq!(f.refused(10, "it is stopped"), 2, "the family lives on without its first one");
    f.step(0, &[seen(20, 1, 0, false)]);
    assert_eq!(f.refused(10, "it is stopped"), 1, "the family has ended");
}

/// Followed abroad for some time: calls and milliseconds of CPU time for each second. Whether it is taken home.
fn is_taken_home(aim: Aim, calls: u64, cpu_ms: u64) -> Option<Going> {
    let mut follow = Follow::new(100);
    follow.placed(placed(1, aim));
    (0..100u64).find_map(|i| {
        let second = i / 20;
        let s = Seen { calls: calls * second, cpu_abroad_ms: cpu_ms * second, ..seen(1, 1, 500, false) };
        follow.step(i * 50, &[s]).pop()
    })
}

#[test]
fn what_mostly_waits_for_home_is_taken_there() {
    let going = is_taken_home(Aim::Best, 6000, 100).unwrap();
    assert!(going.returns && going.aim == Aim::Home, "{going:?}");
    assert!(is_taken_home(Aim::Best, 6000, 900).is_none(), "it computes");
    assert!(is_taken_home(Aim::Best, 300, 100).is_none(), "it sleeps");
    assert!(is_taken_home(Aim::Node("n2".into()), 6000, 100).is_none(), "somebody wants it there");
}

#[test]
fn who_was_taken_home_leaves_later_each_time() {
    let mut follow = Follow::new(100);
    follow.placed(placed(1, Aim::Best));
    let away = |calls| Seen { calls, ..seen(1, 1, 500, false) };
    assert!(follow.step(0, &[away(0)]).is_empty());
    let going = follow.step(2000, &[away(9000)]).pop().unwrap();
    assert!(follow.still_goes(&going));
    assert!(follow.step(2050, &[away(9000)]).is_empty(), "on its way");
    follow.ended(1, Ended::Went);
    assert!(follow.step(2100, &[seen(1, 1, 1499, true)]).is_empty());
    assert!(!follow.step(2150, &[seen(1, 1, 1500, true)]).pop().unwrap().returns);
}
