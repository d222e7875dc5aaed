//! Why a job is where it is, with the numbers, and when it is expected to start.

use crate::job::{Id, Job, State};
use crate::pass::{Pass, longest};
use crate::plan::Need;
use crate::priority::Priority;
use crate::queue::Queue;
use crate::settings::Policy;
use crate::spec::Request;
use crate::times;
use std::fmt::{self, Display, Formatter};

/// Jobs before it whose places in the future are worked out, at most.
const AHEAD: usize = 50;

/// What is in a job's way.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// Somebody holds it.
    Held {
        /// An operator does.
        operator: bool,
    },
    /// It is too early: it asked for that, or could not be begun before.
    NotBefore {
        /// When it is not.
        at: u64,
        /// It has had nodes before.
        again: bool,
    },
    /// Other jobs are not where it wants them.
    Depends(String),
    /// So many of its tasks run already.
    AtOnce {
        /// How many may.
        most: u32,
    },
    /// There are not enough licences left.
    Licences {
        /// Of this kind.
        kind: String,
        /// It wants so many.
        wants: u32,
        /// So many are in use.
        used: u32,
        /// And so many there are.
        all: u32,
    },
    /// Its user has enough CPUs of its quality of service.
    QualityCpus {
        /// The quality.
        quality: String,
        /// CPUs that are in use.
        used: u64,
        /// And may be.
        most: u64,
    },
    /// No node has such a resource.
    NoSuchGres(String),
    /// Its reservation is over.
    NoReservation(String),
    /// A node that it wants is not there, takes no jobs, or is not in its partition.
    NodeNotThere(String),
    /// Even if nothing else ran it would be too little.
    Never {
        /// What it wants.
        wants: String,
        /// CPUs that it could have if nothing else ran.
        cpus: u64,
        /// On so many nodes.
        nodes: usize,
    },
    /// Nodes that take jobs now are too few or too small for it; with these, which do not, it may be enough.
    Away {
        /// What it wants.
        wants: String,
        /// Those that are away or drained.
        nodes: Vec<String>,
    },
    /// Too little is free now.
    NoRoom {
        /// What it wants.
        wants: String,
        /// CPUs that it could have now.
        cpus: u64,
        /// On so many nodes.
        nodes: usize,
        /// Reservations that it is not in, and that have nodes then.
        reserved: Vec<String>,
    },
    /// There is room, but not for so long: somebody before it, or a reservation, has it then.
    Delays {
        /// How long it may take; None: as long as it wants.
        ms: Option<u64>,
        /// As in `NoRoom`.
        reserved: Vec<String>,
    },
    /// It may not overtake.
    Behind {
        /// So many.
        ahead: usize,
        /// The first of them.
        first: u64,
    },
    /// Nothing: it starts with the next pass.
    Nothing,
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Why::Held { operator: true } => write!(f, "an operator holds it, and has to release it"),
            Why::Held { operator: false } => write!(f, "it is held: `pando release` lets it start"),
            Why::NotBefore { again: false, .. } => write!(f, "it is to begin later (--begin)"),
            Why::NotBefore { again: true, .. } => {
                write!(f, "it could not be begun before, and is tried again in a while")
            }
            Why::Depends(on) => write!(f, "it waits for other jobs: {on}"),
            Why::AtOnce { most } => write!(f, "{most} of its tasks run, and no more may (--array ...%{most})"),
            Why::Licences { kind, wants, used, all } => {
                write!(f, "it wants {wants} of licence {kind}: {used} of {all} are in use")
            }
            Why::QualityCpus { quality, used, most } => {
                write!(f, "its user's jobs of quality {quality} have {used} CPUs, and may have {most}")
            }
            Why::NoSuchGres(kind) => write!(f, "no node has a {kind} (--gres)"),
            Why::NoReservation(name) => write!(f, "its reservation {name} is over (--reservation)"),
            Why::NodeNotThere(name) => {
                write!(f, "node {name}, which it wants, is not there, takes no jobs, or is not in its partition")
            }
            Why::Never { wants, cpus, nodes } => {
                write!(
                    f,
                    "it wants {wants}: if nothing else ran it could have {cpus} CPUs on {nodes} nodes, so it never starts"
                )
            }
            Why::Away { wants, nodes } => {
                write!(
                    f,
                    "it wants {wants}: the nodes that take jobs now can't run it, and {}, which may, take none: they are down or drained",
                    nodes.join(", ")
                )
            }
            Why::NoRoom { wants, cpus, nodes, reserved } => {
                write!(f, "it wants {wants}: it could have {cpus} CPUs on {nodes} nodes now")?;
                match reserved.is_empty() {
                    true => Ok(()),
                    false => write!(f, ", and {} has nodes that it may not have", named(reserved)),
                }
            }
            Why::Delays { ms, reserved } => {
                let who = if reserved.is_empty() { "somebody before it".to_owned() } else { named(reserved) };
                match ms {
                    Some(ms) => {
                        write!(f, "there is room now, but not for its {}: {who} has it then", times::show(Some(*ms)))
                    }
                    None => write!(
                        f,
                        "there is room now, but {who} has it later, and nobody said how long it takes: with a limit (--time) it may start before"
                    ),
                }
            }
            Why::Behind { ahead, first } => {
                write!(f, "{ahead} jobs come before it, job {first} first, and nobody overtakes (FCFS)")
            }
            Why::Nothing => write!(f, "nothing: it starts with the next pass"),
        }
    }
}

/// What is to be said of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// How it stands with it, or with the first of its tasks that waits.
    pub state: State,
    /// What is in its way, if it waits.
    pub why: Option<Why>,
    /// Its priority, and jobs that have more.
    pub priority: Option<(Priority, usize)>,
    /// When it will start at the latest, if all that run take the time that they may, no node is lost, and nobody comes who goes before it.
    pub expected: Option<u64>,
    /// When those that run must end at the latest.
    pub ends: Option<u64>,
}

/// As people are told of reservations.
fn named(reserved: &[String]) -> String {
    format!("{} {}", if reserved.len() == 1 { "reservation" } else { "reservations" }, reserved.join(", "))
}

pub(crate) fn wants(need: &Need, kinds: &[String]) -> String {
    let cpus = u64::from(need.cpus) * u64::from(need.ranks);
    let (least, most) = need.nodes;
    let nodes = if least == 1 { "node" } else { "nodes" };
    let or_more = if most > least && need.ranks > least { " or more" } else { "" };
    let mut all = vec![format!("{cpus} CPUs on {least} {nodes}{or_more}")];
    if need.memory > 0 {
        all.push(format!("{} on each", crate::sizes::show(need.memory)));
    }
    if need.memory_per_cpu > 0 {
        all.push(format!("{} for each CPU", crate::sizes::show(need.memory_per_cpu)));
    }
    let resource = |(kind, n): (&String, u32)| match kind == crate::gres::SCRATCH {
        true => format!("{} of scratch on each", crate::sizes::show(n.into())),
        false => format!("{n} {kind} on each"),
    };
    all.extend(kinds.iter().zip(need.gres).filter(|(_, n)| *n > 0).map(resource));
    if need.exclusive {
        all.push("nobody else on them".into());
    }
    all.join(", ")
}

impl Queue {
    /// What a job, or one of its tasks, waits for, and when it is expected to start. Nothing changes.
    pub fn explain(&self, id: Id) -> Option<Explanation> {
        let job = self.job(id.job)?;
        let task = id.task.or(job.waiting.first()).or(job.running.keys().next().copied());
        let state = task.and_then(|task| job.state(task)).or(crate::book::Book::result(job))?;
        let mut said = Explanation { state, why: None, priority: None, expected: None, ends: None };
        if state != State::Pending {
            let run = task.and_then(|task| job.running.get(&task));
            let left = run.zip(job.spec.limit_ms).map(|(run, limit)| limit.saturating_sub(run.ran(self.now)));
            said.ends = left.map(|left| self.now.saturating_add(left));
            return Some(said);
        }
        let mut pass = Pass::new(self);
        let order = self.order();
        let ahead = order.iter().take_while(|p| p.job != job.id || p.suspended.is_some()).count();
        let cpus = self.cpus();
        let whose = (job.spec.account.clone(), job.spec.user.clone());
        let share = self.shares().get(&whose).copied().unwrap_or(1.0);
        said.priority = Some((self.priority_of(job, share, cpus), ahead));
        let shape = pass.shape(self, &job.spec.request);
        // One task that is held, of many that are not.
        let held = task.is_some_and(|task| job.held.contains(task));
        let hurdle =
            if held { Err(Why::Held { operator: job.held_by_operator }) } else { pass.hurdle(self, job).map(|_| ()) };
        let not_before = match hurdle {
            Ok(()) => self.now,
            Err(Why::NotBefore { at, again }) => {
                said.why = Some(Why::NotBefore { at, again });
                at
            }
            Err(why) => {
                said.why = Some(why);
                return Some(said);
            }
        };
        let need = match pass.need_of(shape) {
            Ok(need) => need.clone(),
            Err(why) => {
                said.why.get_or_insert(why.clone());
                return Some(said);
            }
        };
        let ms = longest(job);
        if let Some(why) = self.never(&pass, &job.spec.request, &need, ms) {
            said.why = Some(why);
            return Some(said);
        }
        let now = pass.plan.choose(&need, self.now, ms).is_some();
        let reserved = self.reserved(&job.spec.request, ms);
        let why = self.no_room(&pass, &need, job.spec.limit_ms, &reserved);
        let mut first = None;
        for place in order.iter().take(ahead.min(AHEAD)).filter(|p| p.suspended.is_none()) {
            self.place_ahead(&mut pass, place.job, &mut first);
        }
        said.expected = pass.plan.earliest(&need, ms).map(|(at, _)| at.max(not_before));
        let then = pass.plan.choose(&need, self.now, ms).is_some();
        let why = match (now, then, first) {
            (false, _, _) => why,
            (true, _, Some(first)) if self.settings.policy == Policy::Fcfs => Why::Behind { ahead, first },
            (true, false, _) => Why::Delays { ms: job.spec.limit_ms, reserved },
            (true, true, _) => Why::Nothing,
        };
        said.why.get_or_insert(why);
        Some(said)
    }

    /// Gives a job that comes before a place in the future.
    fn place_ahead(&self, pass: &mut Pass, id: u64, first: &mut Option<u64>) {
        let Some(job) = self.job(id) else { return };
        let Ok(tasks) = pass.hurdle(self, job) else { return };
        let shape = pass.shape(self, &job.spec.request);
        let Ok(need) = pass.need_of(shape).cloned() else { return };
        let at_once = job.spec.array.as_ref().and_then(|a| a.at_once).unwrap_or(u32::MAX);
        for _ in 0..tasks.len().min(u64::from(at_once)).min(8) {
            let Some((at, choice)) = pass.plan.earliest(&need, longest(job)) else { return };
            pass.plan.take(&need, &choice, at, longest(job));
            first.get_or_insert(id);
        }
    }

    /// Why it could not run if it were alone.
    fn never(&self, pass: &Pass, request: &Request, need: &Need, ms: u64) -> Option<Why> {
        // Those that run may have no end that is known.
        if pass.plan.earliest(need, ms).is_some() || pass.plan.is_enough(need) {
            return None;
        }
        if let Some(why) = self.away(request, wants(need, &pass.plan.kinds)) {
            return Some(why);
        }
        self.judge(request)
    }

    fn no_room(&self, pass: &Pass, need: &Need, limit: Option<u64>, reserved: &[String]) -> Why {
        if pass.plan.choose(need, self.now, 1).is_some() {
            return Why::Delays { ms: limit, reserved: reserved.to_vec() };
        }
        let (cpus, nodes) = pass.plan.could_have(need, false);
        Why::NoRoom { wants: wants(need, &pass.plan.kinds), cpus, nodes, reserved: reserved.to_vec() }
    }

    /// Reservations that have nodes of those that it may have while it would run, and that it is not in.
    fn reserved(&self, request: &Request, ms: u64) -> Vec<String> {
        let until = self.now.saturating_add(ms);
        let has = |nodes: &[String]| {
            nodes.is_empty() || request.wanted.is_empty() || nodes.iter().any(|node| request.wanted.contains(node))
        };
        let others = self.reservations().filter(|r| request.reservation.as_ref() != Some(&r.name));
        others.filter(|r| r.begin < until && r.end > self.now && has(&r.nodes)).map(|r| r.name.clone()).collect()
    }

    /// What runs there, for one who is about to drain a node.
    pub fn on_node(&self, name: &str) -> impl Iterator<Item = Id> {
        let there = self.runs().filter(move |(_, _, run)| run.holds().any(|held| held.node == name));
        let ids: Vec<Id> = there.map(|(job, task, _): (&Job, u32, _)| job.name_of(task)).collect();
        ids.into_iter()
    }
}
