//! Parallel jobs: this node's part in each ([`part`]), as one of its nodes ([`member`]) or as the one that the user's command speaks to ([`head`]).
//! What is decided is in crates/launch; here are its links, processes and clocks.

mod along;
mod cache;
mod goods;
mod group;
pub mod head;
pub mod link;
pub mod member;
pub mod numbers;
mod part;
mod room;
pub(crate) mod spare;
mod starter;
pub(crate) mod steps;
mod sweep;

use self::cache::Cache;
use self::spare::Spares;
use self::starter::Starter;
use crate::daemon::Node;
use crate::events::now_ms;
use crate::place::replace_file;
use crate::queue::batch;
use crate::scratch::Scratch;
use crate::views;
use crate::writer::Writer;
use numbers::{Ledger, Numbers};
use pando_kernel::{affinity, job_group, rank};
use pando_launch::{Environment, Identity, Order};
use pando_queue::gres::Gres;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Numbers are set aside on disk in blocks: no job has the number of an earlier one, even after a crash.
const BLOCK: u64 = 1000;
/// What is known of a user is looked up again after this; and so many are remembered.
const KNOWN_FOR: Duration = Duration::from_secs(10);
const MOST_USERS: usize = 256;
/// Batch jobs whose steps are counted; then it begins anew.
const MOST_STEPPING: usize = 100_000;

/// The jobs that this node has a part in.
pub struct Jobs {
    inner: Mutex<Inner>,
    outside_changed: Notify,
    file: PathBuf,
    writer: Arc<Writer>,
    /// Files that came with jobs.
    cache: Arc<Cache>,
    /// Where ranks find them: see [`along`].
    along: PathBuf,
    pub(crate) starter: Starter,
    spares: Spares,
    /// What all ranks here have in their environment.
    mark: String,
    /// See [`steps::lease`].
    own: Mutex<steps::Own>,
    placing: Mutex<()>,
    /// See [`steps::open`].
    open: Mutex<steps::Open>,
    /// Users that were looked up, and when: it takes longer than to start a rank.
    users: Mutex<BTreeMap<String, (Instant, Option<Identity>)>>,
}

struct Inner {
    next: u64,
    set_aside: u64,
    /// By the head's name and the job's number; with when it came, milliseconds since 1970.
    all: BTreeMap<(String, u64), (Arc<Order>, u64)>,
    /// CPUs that belong to ranks, and to batch jobs.
    taken: BTreeSet<u16>,
    /// Steps that batch jobs have begun here.
    steps: BTreeMap<String, u32>,
    /// CPUs of batch jobs that steps of theirs share with no other step.
    held: BTreeSet<u16>,
    /// Generic resources that do.
    numbers: Ledger,
    /// CPUs that ranks of jobs use which are no steps of batch jobs.
    outside: BTreeMap<(String, u64), u32>,
}

impl Inner {
    /// So many CPUs for each of so many ranks, of those that nobody has. All or none.
    fn take(&mut self, allowed: &[usize], ranks: u32, each: u16) -> Vec<Vec<u16>> {
        let free = allowed.iter().filter_map(|cpu| u16::try_from(*cpu).ok()).filter(|cpu| !self.taken.contains(cpu));
        let wanted = ranks as usize * usize::from(each);
        let mine: Vec<u16> = free.take(wanted).collect();
        if each == 0 || mine.len() < wanted {
            return Vec::new();
        }
        self.taken.extend(&mine);
        mine.chunks(each.into()).map(<[u16]>::to_vec).collect()
    }

    /// Of a batch job's CPUs as many as a step of it has for itself; all of them, where they are too few.
    fn hold(&mut self, of: &[u16], ranks: u32, each: Option<u16>) -> Vec<u16> {
        let wanted = ranks as usize * usize::from(each.unwrap_or(1).max(1));
        let free: Vec<u16> = of.iter().copied().filter(|cpu| !self.held.contains(cpu)).take(wanted).collect();
        if free.len() < wanted {
            return of.to_vec();
        }
        self.held.extend(&free);
        free
    }
}

/// A job is known as long as this lives.
pub struct Entry {
    node: Arc<Node>,
    key: (String, u64),
    /// The CPUs of each of its ranks here; none, if they are not to have their own, or there are not enough.
    pub cpus: Vec<Vec<u16>>,
    /// It takes turns with other gangs: its control group's list of processes, or why there is none.
    pub group: Option<Result<PathBuf, String>>,
    gang: Option<u64>,
    /// Control groups of the batch job that it is a step of.
    pub groups: Vec<ByteBuf>,
    /// Those of its CPUs that are given back at its end: what a step has of its batch job stays with that.
    taken: Vec<u16>,
    /// CPUs of its batch job that it shares with no other step.
    held: Vec<u16>,
    /// Generic resources, the same.
    numbers: Numbers,
    /// What ranks find of them in their environment.
    pub variables: Environment,
    /// It has its batch job's scratch directory.
    at_home: bool,
    /// One of its own.
    pub(super) scratch: Option<Scratch>,
}

impl Entry {
    /// It takes turns with others, on CPUs that are nobody's own.
    fn sit_down(&mut self, gang: &pando_launch::Gang, place: u32, each: u16) {
        let mine = gang.cpus.get(place as usize).map_or(&[][..], Vec::as_slice);
        self.cpus = crate::gang::cpus_of(&self.node, mine, each);
        let seat = self.node.gangs.sit_down(&self.node, gang.number, mine, &self.cpus);
        self.gang = seat.is_ok().then_some(gang.number);
        self.group = Some(seat);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(number) = self.gang {
            self.node.gangs.stand_up(number);
        }
        room::leave(self.scratch.take());
        let mut inner = self.node.jobs.inner();
        inner.all.remove(&self.key);
        self.taken.iter().for_each(|cpu| _ = inner.taken.remove(cpu));
        self.held.iter().for_each(|cpu| _ = inner.held.remove(cpu));
        inner.numbers.give_back(&self.numbers);
        let was_outside = inner.outside.remove(&self.key).is_some();
        drop(inner);
        if was_outside {
            self.node.jobs.outside_changed.notify_one();
        }
    }
}

impl Jobs {
    /// With the numbers that were set aside in this file, and the programs in that directory.
    pub fn open(file: PathBuf, programs: PathBuf, cache_mb: u64, writer: Arc<Writer>) -> io::Result<Jobs> {
        // What launchers of an earlier life have left.
        crate::launcher::sweep_scratch();
        let next = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1);
        let set_aside = next + BLOCK;
        replace_file(&file, set_aside.to_string().as_bytes())?;
        let mark = job_group::mark(file.parent().unwrap_or(&file));
        // What outlived its launcher and its daemon.
        let left = mark.clone();
        std::thread::Builder::new().name("pando-sweep".into()).spawn(move || sweep::sweep(&left, &[]))?;
        let cache = Arc::new(Cache::open(programs, cache_mb << 20));
        let along = along::base(file.parent().unwrap_or(&file));
        along::sweep(&along);
        Ok(Jobs {
            inner: Mutex::new(Inner {
                next,
                set_aside,
                all: BTreeMap::new(),
                taken: BTreeSet::new(),
                steps: BTreeMap::new(),
                held: BTreeSet::new(),
                numbers: Ledger::default(),
                outside: BTreeMap::new(),
            }),
            own: Mutex::default(),
            placing: Mutex::default(),
            open: Mutex::default(),
            outside_changed: Notify::new(),
            file,
            writer,
            cache,
            along,
            starter: Starter::default(),
            spares: Spares::default(),
            mark,
            users: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found a moment ago.
    pub(crate) fn known_user(&self, name: &str) -> Option<Option<Identity>> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.get(name).filter(|(when, _)| when.elapsed() < KNOWN_FOR).map(|(_, found)| found.clone())
    }

    /// Held from the choice of a job's nodes until the job is known here.
    fn placing(&self) -> MutexGuard<'_, ()> {
        self.placing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, steps::Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_steps(&self) -> MutexGuard<'_, steps::Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user by name, as this machine knows it, or knew it a moment ago.
    pub(crate) fn user(&self, name: &str) -> Option<Identity> {
        if let Some(known) = self.known_user(name) {
            return known;
        }
        let found = rank::user(name).map(|u| (u.uid, u.gid, u.groups));
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= MOST_USERS {
            users.clear();
        }
        users.insert(name.to_owned(), (Instant::now(), found.clone()));
        found
    }

    /// What all ranks here have in their environment.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// How many steps that batch job has begun here before.
    fn step(&self, job: String) -> u32 {
        let mut inner = self.inner();
        if inner.steps.len() >= MOST_STEPPING {
            inner.steps.clear();
        }
        let next = inner.steps.entry(job).or_default();
        *next += 1;
        *next - 1
    }

    /// A number that no job of this node has had.
    fn number(&self) -> u64 {
        let mut inner = self.inner();
        inner.next += 1;
        if inner.next + BLOCK / 2 > inner.set_aside {
            inner.set_aside += BLOCK;
            self.writer.write(&self.file, inner.set_aside.to_string().into_bytes());
        }
        inner.next - 1
    }

    /// Ranks of the jobs that this node knows, by node.
    fn ranks(&self) -> BTreeMap<String, u32> {
        let mut sum = BTreeMap::new();
        for share in self.inner().all.values().flat_map(|(order, _)| &order.nodes) {
            *sum.entry(share.node.clone()).or_default() += share.ranks;
        }
        sum
    }

    /// So many CPUs that nobody has, for a batch job; none, if there are not enough.
    pub(crate) fn take_cpus(&self, count: u32) -> Vec<u16> {
        let each = u16::try_from(count).unwrap_or(u16::MAX);
        self.inner().take(&affinity::allowed(0).unwrap_or_default(), 1, each).concat()
    }

    /// Generic resources that nobody has, for a batch job.
    pub(crate) fn take_numbers(&self, there: &BTreeMap<String, u32>, wanted: &[Gres]) -> Option<Numbers> {
        self.inner().numbers.take(there, wanted)
    }

    /// These are a batch job's, which an earlier daemon has begun.
    pub(crate) fn note_taken(&self, cpus: &[u16], numbers: &Numbers) {
        let mut inner = self.inner();
        inner.taken.extend(cpus);
        inner.numbers.note(numbers);
    }

    /// They are nobody's any more.
    pub(crate) fn give_back(&self, cpus: &[u16], numbers: &Numbers) {
        let mut inner = self.inner();
        cpus.iter().for_each(|cpu| _ = inner.taken.remove(cpu));
        inner.numbers.give_back(numbers);
    }

    /// CPUs that ranks here use which are not a batch job's: each has one at least.
    pub(crate) fn outside(&self) -> u32 {
        self.inner().outside.values().sum()
    }

    /// Returns when that may have changed.
    pub(crate) async fn outside_changed(&self) {
        self.outside_changed.notified().await;
    }

    /// What runs, in the order of heads and numbers.
    pub fn list(&self) -> Vec<views::Job> {
        self.inner().all.values().map(|(order, since_ms)| shown(order, *since_ms)).collect()
    }
}

/// Ends what is left of a batch job whose helper was killed.
pub(crate) fn sweep_batch(mark: &str, run: &str) {
    sweep::sweep(mark, &[(crate::batch_job::RUN, run)]);
}

/// As people see it.
fn shown(order: &Order, since_ms: u64) -> views::Job {
    let words = order.task.words.iter().map(|w| String::from_utf8_lossy(w).into_owned());
    let mut command = crate::owner::clean(&words.collect::<Vec<_>>().join(" "));
    command.truncate(command.floor_char_boundary(200));
    views::Job {
        job: order.job,
        name: order.name.clone(),
        head: order.nodes[0].node.clone(),
        user: order.user.clone(),
        ranks: order.size(),
        nodes: order.nodes.iter().filter(|s| s.ranks > 0).map(|s| s.node.clone()).collect(),
        command,
        since_ms,
    }
}

/// Notes that this node has a part in it. None if it has one already.
fn enter(node: &Arc<Node>, order: &Arc<Order>, place: u32) -> Option<Entry> {
    let key = (order.nodes[0].node.clone(), order.job);
    let step = batch::step(node, order);
    let mut inner = node.jobs.inner();
    if inner.all.contains_key(&key) {
        return None;
    }
    inner.all.insert(key.clone(), (order.clone(), now_ms()));
    let ranks = order.nodes.get(place as usize).map_or(0, |s| s.ranks);
    let gang = order.gang.as_ref().filter(|_| ranks > 0);
    if step.is_none() && ranks > 0 {
        inner.outside.insert(key.clone(), ranks.saturating_mul(order.cpus.unwrap_or(1).max(1).into()));
        node.jobs.outside_changed.notify_one();
    }
    let step = step.unwrap_or_default();
    let there = &node.config.node.resources;
    let numbers = inner.numbers.take(there, &step.gres).unwrap_or_default();
    let variables = match step.gres.is_empty() {
        true => Vec::new(),
        false => numbers::variables(there, &numbers),
    };
    let bytes = |text: &str| ByteBuf::from(text.as_bytes());
    let variables = variables.into_iter().map(|(name, value)| (bytes(name), bytes(&value))).collect();
    let cpus =
        match step.each.or(order.cpus).filter(|_| ranks > 0 && !order.pool && step.cpus.is_empty() && gang.is_none()) {
            Some(each) => inner.take(&affinity::allowed(0).unwrap_or_default(), ranks, each),
            None => Vec::new(),
        };
    let taken = cpus.concat();
    // Its head has seen to it that they are enough.
    let mine = if order.exclusive { inner.hold(&step.cpus, ranks, order.cpus) } else { step.cpus.clone() };
    let held = if order.exclusive { mine.clone() } else { Vec::new() };
    drop(inner);
    let cpus = if step.cpus.is_empty() { cpus } else { shared_out(&mine, ranks, order.cpus, order.pool) };
    let (node, groups, at_home) = (node.clone(), step.groups, step.at_home);
    let mut entry = Entry {
        node,
        key,
        cpus,
        group: None,
        gang: None,
        groups,
        taken,
        held,
        numbers,
        variables,
        at_home,
        scratch: None,
    };
    if let Some(gang) = gang {
        entry.sit_down(gang, place, order.cpus.unwrap_or(1));
    }
    Some(entry)
}

/// A batch job's CPUs for a step's ranks: each has its own where it asked for that and they are enough; otherwise all have all.
fn shared_out(mine: &[u16], ranks: u32, each: Option<u16>, pool: bool) -> Vec<Vec<u16>> {
    let each = each.map(usize::from).filter(|each| *each > 0 && !pool && each * ranks as usize <= mine.len());
    match each {
        Some(each) => mine.chunks(each).take(ranks as usize).map(<[u16]>::to_vec).collect(),
        None => vec![mine.to_vec(); if pool { 1 } else { ranks as usize }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_cpus_of_their_own_or_none_has() {
        let mut inner = Inner {
            next: 1,
            set_aside: 1,
            all: BTreeMap::new(),
            taken: BTreeSet::from([2]),
            steps: BTreeMap::new(),
            held: BTreeSet::new(),
            numbers: Ledger::default(),
            outside: BTreeMap::new(),
        };
        let allowed = [0, 1, 2, 3, 4];
        assert_eq!(inner.take(&allowed, 2, 2), [[0, 1], [3, 4]]);
        assert!(inner.take(&allowed, 1, 1).is_empty(), "all are taken");
        inner.taken.remove(&1);
        assert!(inner.take(&allowed, 2, 1).is_empty() && inner.taken.len() == 4);
        assert_eq!(inner.take(&allowed, 1, 1), [[1]]);
    }

    #[test]
    fn a_step_has_its_batch_jobs_cpus() {
        let mine = [3, 5, 6];
        assert_eq!(shared_out(&mine, 2, Some(1), false), [[3], [5]]);
        assert_eq!(shared_out(&mine, 2, Some(2), false), [mine, mine], "too few for that");
        assert_eq!(shared_out(&mine, 2, None, false), [mine, mine]);
        assert_eq!(shared_out(&mine, 40, None, true), [mine], "tasks of a pool are alike");
    }
}
