//! Who goes where its family is. Pure.
//!
//! What a moved process starts begins at home, where a short-lived program is cheapest (docs/decisions/0013), and exec brings a
//! process home. Whoever placed `make` at another node wants the compilers there, though. So each process that began under a placed one
//! inherits where that was sent, and goes there once it has used enough CPU time to be worth the move; a
//! process that came home by itself goes back in the same way. Each return and each refusal doubles what it must use before
//! the next attempt.
//!
//! Where Pando chose the place (`best`), it also takes back a process that does little there but make calls that home answers.

pub mod watch;

use std::collections::{BTreeMap, BTreeSet};

/// Processes of one user that are followed at a time: no user can use up another's.
const MAX_MEMBERS: usize = 16_384;
/// Reasons why processes of one family could not move that are told apart.
const MAX_REASONS: usize = 16;
/// Attempts that failed, one after the other, after which a process is left where it is.
const MAX_FAILED: u32 = 6;
/// So long a process is looked at abroad before it is judged, milliseconds.
const WINDOW_MS: u64 = 1500;
/// More calls than this in a second, and less than half of a CPU used: what it does is mostly to wait for home.
const CALLS_A_SECOND: u64 = 1000;
/// By how much longer one that was taken home for this stays there than one that came by itself.
const WAITS_LONGER: u64 = 5;
/// The most CPU time that a process must use between two attempts.
const LONGEST_MS: u64 = 30_000;

/// Where somebody sent a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// It is to stay at home, and so are its children.
    Home,
    /// There.
    Node(String),
    /// Wherever there is most room when it goes.
    Best,
}

/// A process that was moved on request.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Pid at home.
    pub pid: u32,
    /// As in [`Seen`].
    pub start_time: u64,
    /// Owner.
    pub uid: u32,
    /// Where to.
    pub aim: Aim,
    /// As in [`Seen`].
    pub cpu_ms: u64,
    /// When, in the unit of `start_time`: its children from then on inherit the aim.
    pub since: u64,
}

/// A process as `/proc` shows it, and where it is.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Pid at home.
    pub pid: u32,
    /// Field 22 of `stat`, clock ticks since the machine started.
    pub start_time: u64,
    /// Its parent.
    pub parent: u32,
    /// Its user, if it is one and the same in all respects.
    pub uid: Option<u32>,
    /// CPU time used at home.
    pub cpu_ms: u64,
    /// It computes at home, and nobody is moving it.
    pub native: bool,
    /// Calls that it made abroad and home answered, and CPU time used there, as far as has been reported.
    pub calls: u64,
    /// See there.
    pub cpu_abroad_ms: u64,
}

/// A move that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Going {
    /// Who.
    pub pid: u32,
    /// On whose behalf.
    pub uid: u32,
    /// Where to.
    pub aim: Aim,
    /// Why, for the log.
    pub why: String,
    /// The process that was placed, under which it began; itself if that is the one.
    pub family: u32,
    /// It was placed itself, and came home by itself.
    pub back: bool,
    /// It comes home, where its calls are answered; later it may leave again.
    pub returns: bool,
}

/// How a move that was due ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is there.
    Went,
    /// Home has as much room as any other node.
    NotNow,
    /// It was refused, or failed.
    Failed,
}

struct Member {
    start_time: u64,
    uid: u32,
    aim: Aim,
    since: u64,
    /// Under whom it began; none if it was placed itself.
    parent: Option<u32>,
    /// The first one of its family, which was.
    family: u32,
    /// CPU time when it began, came home or failed to move; and what it must use beyond that.
    used_ms: u64,
    needs_ms: u64,
    cpu_ms: u64,
    failed: u32,
    state: State,
    mark: Option<Mark>,
}

/// Since when a process is looked at abroad, and what it had done before.
#[derive(Clone, Copy)]
struct Mark {
    at_ms: u64,
    calls: u64,
    cpu_abroad_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Home,
    Going,
    Abroad,
    Coming,
}

/// All that are followed.
pub struct Follow {
    after_ms: u64,
    members: BTreeMap<u32, Member>,
    /// By family: how often a move was refused for a reason.
    refused: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Follow {
    /// Nobody yet; a process goes after `after_ms` of CPU time, never if that is 0.
    pub fn new(after_ms: u64) -> Self {
        Follow { after_ms, members: BTreeMap::new(), refused: BTreeMap::new() }
    }

    /// Somebody placed a process (it has arrived, or was there already).
    pub fn placed(&mut self, p: Placed) {
        let full = || self.counts().get(&p.uid).is_some_and(|n| *n >= MAX_MEMBERS);
        if self.after_ms == 0 || (!self.members.contains_key(&p.pid) && full()) {
            return;
        }
        self.refused.remove(&p.pid);
        let state = if p.aim == Aim::Home { State::Home } else { State::Abroad };
        let member = Member {
            start_time: p.start_time,
            uid: p.uid,
            aim: p.aim,
            since: p.since,
            parent: None,
            family: p.pid,
            used_ms: p.cpu_ms,
            needs_ms: self.after_ms,
            cpu_ms: p.cpu_ms,
            failed: 0,
            state,
            mark: None,
        };
        self.members.insert(p.pid, member);
    }

    /// Those of `pids` that are followed already go elsewhere from now on.
    pub fn redirect(&mut self, pids: &[u32], aim: &Aim) {
        for pid in pids {
            if let Some(member) = self.members.get_mut(pid) {
                (member.aim, member.failed, member.needs_ms) = (aim.clone(), 0, self.after_ms);
            }
        }
    }

    /// Whether this very process is followed.
    pub fn knows(&self, pid: u32, start_time: u64) -> bool {
        self.members.get(&pid).is_some_and(|m| m.start_time == start_time)
    }

    /// Those to look at, with all their descendants; by user.
    pub fn pids(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.members.iter().for_each(|(pid, m)| all.entry(m.uid).or_default().push(*pid));
        all
    }

    /// How many each user has.
    fn counts(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        self.members.values().for_each(|m| *counts.entry(m.uid).or_default() += 1);
        counts
    }

    /// It is nobody's business any more.
    pub fn forget(&mut self, pid: u32) {
        self.members.remove(&pid);
    }

    /// A process of this family could not move. How many could not for this reason by now; numbers in it don't make it another one.
    pub fn refused(&mut self, family: u32, why: &str) -> u64 {
        let plain =
            |word: &str| if word.contains(|c: char| c.is_ascii_digit()) { "#".to_owned() } else { word.to_owned() };
        let why = why.split_whitespace().map(plain).collect::<Vec<_>>().join(" ");
        let reasons = self.refused.entry(family).or_default();
        let why = if reasons.len() < MAX_REASONS || reasons.contains_key(&why) { why } else { String::new() };
        let count = reasons.entry(why).or_default();
        *count += 1;
        *count
    }

    /// What is to be done, given all members and their descendants, parents before children. Members that are not among them have ended.
    /// `now_ms` is a clock that never goes back.
    pub fn step(&mut self, now_ms: u64, seen: &[Seen]) -> Vec<Going> {
        let mut due = Vec::new();
        let mut counts = self.counts();
        for s in seen {
            if !self.knows(s.pid, s.start_time) {
                self.members.remove(&s.pid);
                let Some(born) = self.born(s) else { continue };
                let count = counts.entry(born.uid).or_default();
                if *count >= MAX_MEMBERS {
                    continue;
                }
                *count += 1;
                self.members.insert(s.pid, born);
            }
            if let Some(member) = self.members.get_mut(&s.pid) {
                due.extend(member.look(now_ms, s));
            }
        }
        let there: BTreeSet<u32> = seen.iter().map(|s| s.pid).collect();
        self.members.retain(|pid, _| there.contains(pid));
        let families: BTreeSet<u32> = self.members.values().map(|m| m.family).collect();
        self.refused.retain(|family, _| families.contains(family));
        due
    }

    /// What a process inherits that began under a member.
    fn born(&self, s: &Seen) -> Option<Member> {
        let parent = self.members.get(&s.parent)?;
        let inherits = parent.aim != Aim::Home && s.start_time >= parent.since && s.uid == Some(parent.uid);
        inherits.then(|| Member {
            start_time: s.start_time,
            uid: parent.uid,
            aim: parent.aim.clone(),
            since: s.start_time,
            parent: Some(s.parent),
            family: parent.family,
            used_ms: 0,
            needs_ms: self.after_ms,
            cpu_ms: s.cpu_ms,
            failed: 0,
            state: State::Home,
            mark: None,
        })
    }

    /// Has nobody said otherwise meanwhile?
    pub fn still_goes(&self, going: &Going) -> bool {
        self.members.get(&going.pid).is_some_and(|m| match going.returns {
            true => m.state == State::Coming && m.aim == Aim::Best,
            false => m.state == State::Going && m.aim == going.aim,
        })
    }

    /// How a move that was due ended.
    pub fn ended(&mut self, pid: u32, how: Ended) {
        let Some(member) = self.members.get_mut(&pid) else { return };
        match how {
            _ if !matches!(member.state, State::Going | State::Coming) => {}
            Ended::Went if member.state == State::Coming => {
                // What it does is more likely to go on than to change.
                member.needs_ms *= WAITS_LONGER;
                member.rest();
            }
            // It is looked at once more.
            _ if member.state == State::Coming => (member.state, member.mark) = (State::Abroad, None),
            Ended::Went => (member.state, member.failed) = (State::Abroad, 0),
            Ended::NotNow => member.rest(),
            Ended::Failed => {
                member.failed += 1;
                member.rest();
            }
        }
    }

    /// For people: where a process is to go and when; none if it is not followed or where it should be.
    pub fn explain(&self, pid: u32, start_time: u64) -> Option<String> {
        let m = self.members.get(&pid).filter(|m| m.start_time == start_time && m.state == State::Home)?;
        let aim = match &m.aim {
            Aim::Home => return None,
            Aim::Node(name) => format!("goes to {name}"),
            Aim::Best => "goes to the best node".into(),
        };
        if m.failed >= MAX_FAILED {
            return Some("stays here: it could not be moved several times".into());
        }
        let whom = m.parent.map_or("where it was sent".into(), |p| format!("like process {p}, under which it began"));
        let left = (m.used_ms + m.needs_ms).saturating_sub(m.cpu_ms);
        Some(format!("{aim}, {whom}, when it has used {left} ms more of CPU time"))
    }
}

impl Member {
    fn look(&mut self, now_ms: u64, s: &Seen) -> Option<Going> {
        self.cpu_ms = s.cpu_ms;
        match self.state {
            State::Going | State::Coming => return None,
            State::Abroad if s.native => self.rest(),
            State::Abroad => return self.judge(now_ms, s),
            State::Home if !s.native => self.state = State::Abroad,
            State::Home => {}
        }
        let ready = self.state == State::Home && self.aim != Aim::Home && self.failed < MAX_FAILED;
        if !ready || s.cpu_ms < self.used_ms + self.needs_ms {
            return None;
        }
        self.state = State::Going;
        let why = match self.parent {
            Some(parent) => format!("follows {parent}"),
            None => "goes back".into(),
        };
        Some(Going {
            pid: s.pid,
            uid: self.uid,
            aim: self.aim.clone(),
            why,
            family: self.family,
            back: self.parent.is_none(),
            returns: false,
        })
    }

    /// Does it do more than to wait for home's answers?
    fn judge(&mut self, now_ms: u64, s: &Seen) -> Option<Going> {
        let now = Mark { at_ms: now_ms, calls: s.calls, cpu_abroad_ms: s.cpu_abroad_ms };
        let Some(mark) = self.mark.filter(|m| m.calls <= s.calls && m.cpu_abroad_ms <= s.cpu_abroad_ms) else {
            self.mark = Some(now);
            return None;
        };
        let elapsed = now_ms.saturating_sub(mark.at_ms);
        if elapsed < WINDOW_MS {
            return None;
        }
        self.mark = Some(now);
        let calls = (s.calls - mark.calls) * 1000 / elapsed;
        let computes = (s.cpu_abroad_ms - mark.cpu_abroad_ms) * 2 >= elapsed;
        if self.aim != Aim::Best || calls < CALLS_A_SECOND || computes {
            return None;
        }
        self.state = State::Coming;
        Some(Going {
            pid: s.pid,
            uid: self.uid,
            aim: Aim::Home,
            why: format!("it makes {calls} calls a second, which home answers"),
            family: self.family,
            back: false,
            returns: true,
        })
    }

    /// It is at home, and must use more before it leaves again.
    fn rest(&mut self) {
        (self.state, self.mark) = (State::Home, None);
        self.used_ms = self.cpu_ms;
        self.needs_ms = (self.needs_ms * 2).min(LONGEST_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(pid: u32, aim: Aim) -> Placed {
        Placed { pid, start_time: 1, uid: 7, aim, cpu_ms: 500, since: 10 }
    }

    fn seen(pid: u32, parent: u32, cpu_ms: u64, native: bool) -> Seen {
        let start_time = if parent == 1 { 1 } else { 20 };
        Seen { pid, start_time, parent, uid: Some(7), cpu_ms, native, calls: 0, cpu_abroad_ms: 0 }
    }

    fn n2() -> Aim {
        Aim::Node("n2".into())
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
        assert!(f.step(0, &[]).is_empty());
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
}
