//! Who goes where its family is. Pure.
//!
//! What a moved process starts begins at home, where a short-lived program is cheapest (docs/decisions/0013), and exec brings a
//! process home. Whoever placed `make` at another node wants the compilers there, though. So each process that began under a placed one
//! inherits where that was sent, and goes there once it has used enough CPU time to be worth the move; a
//! process that came home by itself goes back in the same way. Each return and each refusal doubles what it must use before
//! the next attempt.
//!
//! Where Pando chose the place (`best`), it also takes back a process that does little there but make calls that home answers.

#[cfg(test)]
mod tests;
pub mod watch;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// CPU time after which a process of whom that was asked goes nowhere.
pub const NEVER: u64 = u64::MAX;
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
/// The least CPU time that a process must use between two attempts, however soon the first one comes.
const SHORTEST_MS: u64 = 100;
/// The most.
const LONGEST_MS: u64 = 30_000;

/// Where somebody sent a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// CPU time that it and its children must use before they go; none: the configured one.
    pub after_ms: Option<u64>,
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
    after_ms: u64,
    /// CPU time when it began, came home or failed to move; and what it must use beyond that.
    used_ms: u64,
    needs_ms: u64,
    cpu_ms: u64,
    failed: u32,
    state: State,
    mark: Option<Mark>,
    /// Placed since the last step, which may not have looked at it.
    fresh: bool,
    /// Pando has brought it home, since that is best for it: it does not go back for having been away.
    settled: bool,
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
        // 0 in the configuration is never; who asks for 0 wants it at once.
        let configured = (self.after_ms > 0).then_some(self.after_ms);
        let Some(after_ms) = p.after_ms.or(configured) else { return };
        if !self.members.contains_key(&p.pid) && full() {
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
            after_ms,
            used_ms: p.cpu_ms,
            needs_ms: after_ms,
            cpu_ms: p.cpu_ms,
            failed: 0,
            state,
            mark: None,
            fresh: true,
            settled: false,
        };
        self.members.insert(p.pid, member);
    }

    /// Those of `pids` that are followed already go elsewhere from now on.
    pub fn redirect(&mut self, pids: &[u32], aim: &Aim) {
        for pid in pids {
            if let Some(member) = self.members.get_mut(pid) {
                (member.aim, member.failed, member.needs_ms) = (aim.clone(), 0, member.after_ms);
            }
        }
    }

    /// Whether this very process is followed.
    pub fn knows(&self, pid: u32, start_time: u64) -> bool {
        self.members.get(&pid).is_some_and(|m| m.start_time == start_time)
    }

    /// Where somebody sent it, or the process under which it began.
    pub fn aim(&self, pid: u32, start_time: u64) -> Option<Aim> {
        self.members.get(&pid).filter(|m| m.start_time == start_time).map(|m| m.aim.clone())
    }

    /// All that were sent somewhere themselves: pid, start time, where to.
    pub fn sent(&self) -> Vec<(u32, u64, Aim)> {
        let sent = self.members.iter().filter(|(_, m)| m.parent.is_none());
        sent.map(|(pid, m)| (*pid, m.start_time, m.aim.clone())).collect()
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

    /// Nobody asked for it to be where it was, and it has been brought home by itself: it stays till it is sent again.
    pub fn settle(&mut self, pid: u32) {
        if let Some(member) = self.members.get_mut(&pid).filter(|m| m.aim == Aim::Best) {
            (member.state, member.mark, member.settled) = (State::Home, None, true);
        }
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
        self.members.retain(|pid, m| std::mem::take(&mut m.fresh) || there.contains(pid));
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
            after_ms: parent.after_ms,
            used_ms: 0,
            needs_ms: parent.after_ms,
            cpu_ms: s.cpu_ms,
            failed: 0,
            state: State::Home,
            mark: None,
            fresh: false,
            settled: false,
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
                member.needs_ms = member.needs_ms.saturating_mul(WAITS_LONGER);
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
        let m =
            self.members.get(&pid).filter(|m| m.start_time == start_time && m.state == State::Home && !m.settled)?;
        let aim = match &m.aim {
            Aim::Home => return None,
            Aim::Node(name) => format!("goes to {name}"),
            Aim::Best => "goes to the best node".into(),
        };
        if m.failed >= MAX_FAILED {
            return Some("stays here: it could not be moved several times".into());
        }
        let whom = m.parent.map_or("where it was sent".into(), |p| format!("like process {p}, under which it began"));
        let left = m.used_ms.saturating_add(m.needs_ms).saturating_sub(m.cpu_ms);
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
            State::Home if !s.native => (self.state, self.settled) = (State::Abroad, false),
            State::Home => {}
        }
        let ready = self.state == State::Home && self.aim != Aim::Home && self.failed < MAX_FAILED && !self.settled;
        if !ready || s.cpu_ms < self.used_ms.saturating_add(self.needs_ms) {
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
        self.needs_ms = match self.after_ms {
            NEVER => NEVER,
            _ => (self.needs_ms * 2).clamp(SHORTEST_MS, LONGEST_MS),
        };
    }
}
