//! Batch jobs that this node runs: each has a helper (pool.rs, crates/node/src/batch_job) that outlives the daemon and speaks to it; what it says goes
//! to the node that keeps the queue, until that has stored it.

pub mod away;
pub mod scratch;

use super::errand::{BEGAN, Errand, KNOWN, Key, Order};
use super::keeper;
use super::pool::{self, Helpers, Order as Given};
use crate::audit::Entry;
use crate::batch_job::claim;
use crate::batch_job::held::{self, Kept};
use crate::batch_job::hooks::Hooks;
use crate::batch_job::{self, Task, Told};
use crate::daemon::Node;
use crate::jobs;
use crate::jobs::member;
use crate::jobs::numbers::{self, Numbers};
use crate::owner::clean;
use crate::scratch::Place;
use crate::sys::effective_uid;
use crate::views::Drain;
use pando_kernel::job_group::{self, JobGroup};
use pando_launch::Identity;
use pando_queue::gres::Gres;
use pando_queue::{How, Usage};
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Helpers of an earlier daemon come back within this.
pub(super) const BACK_WITHIN: Duration = Duration::from_secs(5);
/// A helper that was started says within this that it is there.
const COMES_WITHIN: Duration = Duration::from_secs(10);
/// A helper says within this what its job has used.
const SAYS_WITHIN: Duration = Duration::from_secs(1);
/// In the node's state: a file for each run that is here.
const FILES: &str = "batch";
/// And for each helper that has had one and waits for another.
const SPARES: &str = "batch-spare";
/// What the queue's node could not be told is told again after this.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// Runs that have been called off before they came are remembered: so many.
const MOST_CALLED_OFF: usize = 10_000;
/// Batch jobs at a node at a time.
const MOST: usize = 10_000;

/// One that is here.
struct Here {
    /// The way to its helper, once that is there.
    tell: Option<UnboundedSender<Told>>,
    /// What it is to be told when it comes.
    waits: Vec<Told>,
    kept: Kept,
    /// It runs, or has run.
    began: bool,
    /// Who wants to know what it has used until now.
    asked: Vec<oneshot::Sender<Usage>>,
    /// Launchers of its steps know its control groups.
    lent: bool,
    abroad: away::Abroad,
}

impl Here {
    fn new(kept: Kept) -> Here {
        let abroad = away::Abroad::default();
        Here { tell: None, waits: Vec::new(), kept, began: false, asked: Vec::new(), lent: false, abroad }
    }
}

/// What is known of one that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet.
    No,
    /// It is here; what becomes of it will be told.
    Yes,
    /// It runs, or has run.
    Began,
}

impl Known {
    /// As an answer to an errand.
    pub fn answer(self) -> &'static [u8] {
        match self {
            Known::No => b"",
            Known::Yes => KNOWN,
            Known::Began => BEGAN,
        }
    }
}

#[derive(Default)]
struct Inner {
    all: BTreeMap<Key, Here>,
    /// They were to end before they came: they do not begin.
    called_off: VecDeque<Key>,
    /// Why this node was drained, if it was because of a job.
    unfit: Option<String>,
}

/// All that are here.
pub struct Ward {
    inner: Mutex<Inner>,
    begun: Instant,
    /// Where jobs have scratch directories.
    scratch: OnceLock<Place>,
    pub(super) helpers: Helpers,
}

impl Default for Ward {
    fn default() -> Self {
        let (scratch, helpers) = (OnceLock::new(), Helpers::default());
        Ward { inner: Mutex::default(), begun: Instant::now(), scratch, helpers }
    }
}

impl Ward {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ward(node: &Node) -> &Ward {
    &node.queue.ward
}

/// Whose rights it gets here, if it may run here; none: ours, and we have no others. The error is for people.
fn user(node: &Node, order: &Order, peer: &str) -> Result<Option<Identity>, String> {
    match peer == node.name() {
        true if node.balancing.is_drained() => return Err(member::DRAINED.to_owned()),
        true => {}
        false => member::takes_jobs(node, peer, &order.user)?,
    }
    // To have a task of the runtime wait takes longer than to remember.
    let known = node.jobs.known_user(&order.user);
    let user = known.unwrap_or_else(|| tokio::task::block_in_place(|| node.jobs.user(&order.user)));
    let user = user.ok_or_else(|| format!("node {}: there is no user {}", node.name(), order.user))?;
    match effective_uid() {
        0 => Ok(Some(user)),
        me if me == user.0 => Ok(None),
        _ => Err(format!("node {} runs in personal mode, and not for {}", node.name(), order.user)),
    }
}

/// Takes one in. None: it is new.
fn enter(node: &Arc<Node>, key: &Key, user: &str) -> Result<Option<Known>, String> {
    let mut inner = ward(node).inner();
    let has_helper = file(node, key).exists();
    match () {
        () if inner.all.get(key).is_some_and(|here| here.began) => return Ok(Some(Known::Began)),
        () if inner.all.contains_key(key) => return Ok(Some(Known::Yes)),
        () if has_helper && may_come_back(node).is_err() => return Ok(Some(Known::No)),
        () if inner.called_off.contains(key) => return Err("it was called off".into()),
        () if inner.all.len() >= MOST => return Err(format!("node {} runs {MOST} batch jobs", node.name())),
        () => {}
    }
    let kept = Kept::new(key.clone(), user);
    inner.all.insert(key.clone(), Here::new(if has_helper { read(&file(node, key)).unwrap_or(kept) } else { kept }));
    if has_helper {
        // It has been here, and its helper is no more.
        tokio::spawn(lost(node.clone(), key.clone(), went_away(node)));
        return Ok(Some(Known::Yes));
    }
    Ok(None)
}

/// Begins one; if it has begun already, that is well.
pub async fn begin(node: &Arc<Node>, order: Order, peer: &str) -> Result<Known, String> {
    let key = order.key.clone();
    let user = user(node, &order, peer).map_err(|why| with_reason(node, why));
    let (who, on) = (format!("{} at {}", clean(&order.user), key.keeper), format!("batch job {}", key.id));
    let why = user.as_ref().err().cloned().unwrap_or_else(|| "the queue starts it".into());
    node.audit.note(&Entry { who, what: "batch", on, allowed: user.is_ok(), why });
    let user = user?;
    ward(node).inner().unfit = None;
    if let Some(known) = enter(node, &key, &order.user)? {
        return Ok(known);
    }
    let cpus = own_cpus(node, &order);
    let there = &node.config.node.resources;
    let wanted = order.shares.first().map_or(&[][..], |share| &share.gres);
    let Some(numbers) = node.jobs.take_numbers(there, wanted) else {
        node.jobs.give_back(&cpus, &Numbers::new());
        ward(node).inner().all.remove(&key);
        return Err(format!("node {}: its generic resources are not free ([node.resources])", node.name()));
    };
    let scratch = scratch::wanted(node, &order).inspect_err(|_| {
        node.jobs.give_back(&cpus, &numbers);
        ward(node).inner().all.remove(&key);
    })?;
    let dir = scratch.as_ref().map(|wanted| wanted.dir.clone());
    note(node, &key, |kept| (kept.cpus, kept.numbers, kept.scratch) = (cpus.clone(), numbers.clone(), dir));
    let variables = numbers::variables(there, &numbers).into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
    let task = Task {
        mark: mark(node),
        node: node.name(),
        socket: socket(node),
        api: node.place.socket.clone(),
        file: file(node, &key),
        spare: PathBuf::new(),
        fresh: false,
        user,
        order,
        cpus,
        numbers,
        variables,
        scratch,
        hooks: hooks(node),
    };
    let (sender, came) = oneshot::channel();
    let given = Given { key: key.clone(), came: Some(sender), task: Box::new(task) };
    if let Err(e) = pool::begin(node, given) {
        remove(node, &key);
        return Err(format!("node {}: its helper can't be started: {e}", node.name()));
    }
    // From here on it tells by itself what becomes of it, to whichever daemon there is.
    Ok(match timeout(COMES_WITHIN, came).await {
        Ok(Ok(true)) => Known::Began,
        Ok(_) => Known::Yes,
        Err(_) => Known::No,
    })
}

/// Of those that are found when a daemon begins, without helpers: the machine was away, or most of its processes were.
fn went_away(node: &Node) -> How {
    How::NodeLost(node.name())
}

/// Its helper is no more, and its script with it: what that has started ends.
pub(super) async fn lost(node: Arc<Node>, key: Key, how: How) {
    let (mark, run) = (mark(&node), batch_job::name_of(&key));
    // What it has put into its environment, and whom it has left, is no matter there.
    let kept = read(&file(&node, &key)).unwrap_or_else(|| Kept::new(key.clone(), ""));
    let sweeps = move || {
        held::end_group(&JobGroup::again(kept.groups));
        jobs::sweep_batch(&mark, &run);
        scratch::clear(kept.scratch);
    };
    tokio::task::spawn_blocking(sweeps).await.ok();
    // Its helper may not have done it.
    batch_job::script::remove(&file(&node, &key));
    over(&node, key, how, Usage::default(), None).await;
}

/// Tells of those that were here under an earlier daemon and whose helpers do not come back.
pub(super) async fn recover(node: Arc<Node>) {
    tokio::time::sleep(BACK_WITHIN).await;
    let files = std::fs::read_dir(node.place.state.join(FILES)).into_iter().flatten().flatten();
    for found in files {
        let Some(kept) = read(&found.path()) else {
            // Its helper ended before it had written its name, and so before it began anything.
            let _ = std::fs::remove_file(found.path());
            continue;
        };
        let key = kept.key.clone();
        let is_here = {
            let mut inner = ward(&node).inner();
            let is_here = inner.all.contains_key(&key);
            inner.all.entry(key.clone()).or_insert_with(|| Here::new(kept));
            is_here
        };
        if !is_here {
            tokio::spawn(lost_before(node.clone(), key));
        }
    }
}

/// One that an earlier daemon has begun: it was over before this one began.
async fn lost_before(node: Arc<Node>, key: Key) {
    let ms = ward(&node).begun.elapsed().as_millis() as u64;
    // Without it accounts have it for some seconds longer.
    let _ = keeper::tell(&node, &key, &Errand::Back(ms)).await;
    let how = went_away(&node);
    lost(node, key, how).await;
}

/// What says that a run has, or has had, a helper here.
pub(super) fn file(node: &Node, key: &Key) -> PathBuf {
    node.place.state.join(FILES).join(format!("{}.{}.{}", key.keeper, key.id, key.run))
}

/// What a run's file is called while its helper waits for another one.
pub(super) fn spare(node: &Node, helper: &str) -> PathBuf {
    node.place.state.join(SPARES).join(helper)
}

/// What all of them have in their environment, and no rank of a parallel job has: those end with the daemon.
fn mark(node: &Node) -> String {
    job_group::batch_mark(node.jobs.mark())
}

/// What is known of a run by its file.
fn read(file: &Path) -> Option<Kept> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn note(node: &Node, key: &Key, what: impl FnOnce(&mut Kept)) {
    if let Some(here) = ward(node).inner().all.get_mut(key) {
        what(&mut here.kept);
    }
}

/// It is here no more; its CPUs are nobody's.
fn remove(node: &Node, key: &Key) -> Option<Here> {
    let here = ward(node).inner().all.remove(key);
    if let Some(Here { kept, .. }) = &here {
        node.jobs.give_back(&kept.cpus, &kept.numbers);
    }
    here
}

/// CPUs of this node that are this job's alone, as many as the queue has given it. None where they are not to be bound, or too few are left: parallel
/// jobs that are no batch jobs may have asked for some (`-c`).
fn own_cpus(node: &Node, order: &Order) -> Vec<u16> {
    match order.shares.first() {
        Some(share) if binds(node) => node.jobs.take_cpus(share.cpus),
        _ => Vec::new(),
    }
}

/// CPUs that batch jobs have here as their own.
pub fn cpus(node: &Node) -> u32 {
    ward(node).inner().all.values().map(|here| here.kept.cpus.len() as u32).sum()
}

/// Several nodes on one machine would all take the same CPUs.
fn binds(node: &Node) -> bool {
    let load = &node.config.load;
    node.config.queue.bind && load.cpus.is_none() && load.cgroup.is_none()
}

/// What the ranks of a parallel job have of the batch job that it is a step of.
#[derive(Default)]
pub struct Step {
    /// The batch job's CPUs at this node.
    pub cpus: Vec<u16>,
    /// At another node than the batch job's first one: CPUs of each rank, which are taken as long as the step runs.
    pub each: Option<u16>,
    /// The same of generic resources.
    pub gres: Vec<Gres>,
    /// It is at the batch job's first node, whose scratch directory it shares.
    pub at_home: bool,
    /// The batch job's control groups at this node.
    pub groups: Vec<serde_bytes::ByteBuf>,
}

/// The batch job of which this parallel job is a step, as its environment says. Nobody gets into another user's.
pub fn step(node: &Node, order: &pando_launch::Order) -> Option<Step> {
    let variable = |name: &[u8]| {
        let found = order.task.environment.iter().find(|(n, _)| n.as_slice() == name)?;
        std::str::from_utf8(&found.1).ok()
    };
    let run = variable(batch_job::RUN.as_bytes())?;
    let mut inner = ward(node).inner();
    let here = inner.all.values_mut().find(|here| batch_job::name_of(&here.kept.key) == run);
    match here {
        Some(here) if here.kept.user == order.user => {
            here.lent = true;
            let group = |dir: &PathBuf| serde_bytes::ByteBuf::from(dir.as_os_str().as_bytes());
            let groups = here.kept.groups.iter().map(group).collect();
            Some(Step { cpus: here.kept.cpus.clone(), at_home: true, groups, ..Step::default() })
        }
        Some(_) => None,
        None => {
            let each = variable(b"SLURM_CPUS_PER_TASK").and_then(|cpus| cpus.parse().ok());
            let each = order.cpus.or(each).filter(|_| binds(node));
            let gres = variable(b"PANDO_RESOURCES").map(numbers::counts).unwrap_or_default();
            Some(Step { each, gres, ..Step::default() })
        }
    }
}

/// Before anything begins here: what an earlier daemon's batch jobs have. What is left of groups that nobody knows of goes.
pub fn adopt(node: &Node) {
    // Helpers of an earlier daemon have no other job.
    let _ = std::fs::remove_dir_all(node.place.state.join(SPARES));
    for dir in [FILES, SPARES] {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(node.place.state.join(dir));
        if let Err(e) = made {
            tracing::error!("queue: the directory of batch jobs can't be made: {e}");
        }
    }
    let files = std::fs::read_dir(node.place.state.join(FILES)).into_iter().flatten().flatten();
    let all: Vec<Kept> = files.filter_map(|found| read(&found.path())).collect();
    all.iter().for_each(|kept| node.jobs.note_taken(&kept.cpus, &kept.numbers));
    scratch::adopt(node, &all);
    let known: Vec<&PathBuf> = all.iter().flat_map(|kept| &kept.groups).collect();
    for group in job_group::named(&job_group::prefix(&mark(node))) {
        if !group.dirs().iter().all(|dir| known.contains(&dir)) {
            let _ = group.remove();
        }
    }
}

/// Where helpers come.
pub fn socket(node: &Node) -> std::path::PathBuf {
    node.place.state.join("batch.sock")
}

/// Nobody knows yet which ones of an earlier daemon are here.
fn may_come_back(node: &Node) -> Result<(), String> {
    match ward(node).begun.elapsed() < BACK_WITHIN {
        true => Err("its daemon has just begun, and does not know yet".into()),
        false => Ok(()),
    }
}

fn tell(node: &Node, key: &Key, told: Told) -> Result<bool, String> {
    let mut inner = ward(node).inner();
    match inner.all.get_mut(key) {
        Some(Here { tell: Some(tell), .. }) => _ = tell.send(told),
        Some(here) => here.waits.push(told),
        None => {
            drop(inner);
            may_come_back(node)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ends one; one that is not here will not begin.
pub fn end(node: &Node, key: &Key, why: &str) -> Result<bool, String> {
    let known = tell(node, key, Told::End(clean(why)))?;
    if !known {
        let mut inner = ward(node).inner();
        if inner.called_off.len() >= MOST_CALLED_OFF {
            inner.called_off.pop_front();
        }
        inner.called_off.push_back(key.clone());
    }
    Ok(known)
}

/// To all its processes.
pub fn signal(node: &Node, key: &Key, number: i32) -> Result<bool, String> {
    match (1..=64).contains(&number) {
        true => tell(node, key, Told::Signal(number)),
        false => Err(format!("there is no signal {number}")),
    }
}

/// To its script alone, or to its steps.
pub fn warn(node: &Node, key: &Key, number: i32, script: bool) -> Result<bool, String> {
    match (1..=64).contains(&number) {
        true => tell(node, key, Told::Warn { number, script }),
        false => Err(format!("there is no signal {number}")),
    }
}

/// Is it here?
pub fn is_known(node: &Node, key: &Key) -> Result<bool, String> {
    // Of one whose helper is no more its end is told.
    if ward(node).inner().all.contains_key(key) || file(node, key).exists() {
        return Ok(true);
    }
    may_come_back(node).map(|()| false)
}

/// What those of them that are here have used until now; of one that does not say it soon nothing.
pub async fn uses(node: &Node, keys: Vec<Key>) -> Vec<(Key, Usage)> {
    let ask = |key: Key| {
        let mut inner = ward(node).inner();
        let here = inner.all.get_mut(&key)?;
        here.tell.as_ref()?.send(Told::Measure).ok()?;
        let (sender, answer) = oneshot::channel();
        here.asked.push(sender);
        Some((key, answer))
    };
    let asked: Vec<_> = keys.into_iter().take(MOST).filter_map(ask).collect();
    let until = tokio::time::Instant::now() + SAYS_WITHIN;
    let mut all = Vec::new();
    for (key, answer) in asked {
        if let Ok(Ok(usage)) = tokio::time::timeout_at(until, answer).await {
            all.push((key, usage));
        }
    }
    all
}

/// A helper says it.
pub(super) fn used(node: &Node, key: &Key, usage: Usage) {
    let mut inner = ward(node).inner();
    let Some(here) = inner.all.get_mut(key) else { return };
    let usage = Usage { cpu_ms: usage.cpu_ms + here.abroad.cpu_ms(), ..usage };
    here.asked.drain(..).for_each(|asked| _ = asked.send(usage));
}

/// Does it run here?
pub fn is_here(node: &Node, key: &Key) -> bool {
    ward(node).inner().all.contains_key(key)
}

/// All that are here of that node's queue.
pub fn all(node: &Node, keeper: &str) -> Vec<Key> {
    ward(node).inner().all.keys().filter(|key| key.keeper == keeper).cloned().collect()
}

/// Has a helper come for it?
pub(super) fn is_silent(node: &Node, key: &Key) -> bool {
    ward(node).inner().all.get(key).is_some_and(|here| here.tell.is_none())
}

/// Its helper is there, and has made these groups (none: its file knows). Gives what it is to be told.
pub(super) fn came(node: &Node, key: &Key, began: bool, groups: Option<Vec<PathBuf>>) -> UnboundedReceiver<Told> {
    let (sender, queue) = unbounded_channel();
    let found = || read(&file(node, key)).unwrap_or_else(|| Kept::new(key.clone(), ""));
    let mut inner = ward(node).inner();
    let here = inner.all.entry(key.clone()).or_insert_with(|| Here::new(found()));
    match groups {
        Some(groups) => here.kept.groups = groups,
        None => here.kept = found(),
    }
    here.began = began;
    here.waits.drain(..).for_each(|told| _ = sender.send(told));
    here.tell = Some(sender);
    queue
}

/// Why a node is drained, where that is the reason that it takes nothing.
fn with_reason(node: &Node, why: String) -> String {
    let inner = ward(node).inner();
    match &inner.unfit {
        Some(unfit) if node.balancing.is_drained() => format!("node {}: {why}: {unfit}", node.name()),
        _ => why,
    }
}

/// Nothing more begins here until an administrator says so: what was to be prepared for jobs, or put in order after one, is not.
pub(super) fn unfit(node: &Node, key: &Key, why: &str) {
    let why = clean(why);
    ward(node).inner().unfit = Some(why.clone());
    if !node.balancing.is_drained() {
        tracing::error!("queue: this node takes no more jobs: {why}; `pando drain --undo` when it is well again");
    }
    let (who, on) = (format!("batch job {}", key.id), format!("node {}", node.name()));
    node.audit.note(&Entry { who, what: "drain", on, allowed: true, why: why.clone() });
    let by = format!("batch job {}", key.id);
    let drain = Drain { reason: why.clone(), by: by.clone(), at: crate::events::now_ms() };
    node.balancing.drain(node, Some(drain), &format!("by {by}: {why}"));
}

fn hooks(node: &Node) -> Hooks {
    let rules = &node.config.queue;
    Hooks { prolog: rules.prolog.clone(), epilog: rules.epilog.clone(), limit: Duration::from_secs(rules.hook_s) }
}

/// Until the queue's node has heard it; or it has ended meanwhile, which says as much.
pub(super) async fn report_begin(node: Arc<Node>, key: Key) {
    while keeper::tell(&node, &key, &Errand::Began(key.clone())).await.is_err() {
        tokio::time::sleep(AGAIN).await;
        if !ward(&node).inner().all.contains_key(&key) {
            return;
        }
    }
}

/// Tells the queue's node until it has stored it; then the helper may go. `spare`: the run's file is its helper's from then on, under this name. Gives
/// whether others know the run's control groups.
pub(super) fn over(
    node: &Arc<Node>,
    key: Key,
    how: How,
    usage: Usage,
    spare: Option<PathBuf>,
) -> Pin<Box<dyn Future<Output = bool> + Send>> {
    let node = node.clone();
    // Boxed, for to send something may lead here.
    Box::pin(async move {
        let (lost, abroad_ms) = away::sum(&node, &key).await;
        let how = lost.map_or(how, How::NodeLost);
        let usage = Usage { cpu_ms: usage.cpu_ms + abroad_ms, ..usage };
        let mut pause = AGAIN;
        while let Err(failure) = keeper::tell(&node, &key, &Errand::Ended(key.clone(), how.clone(), usage)).await {
            tracing::debug!("batch job {} of {}: {}", key.id, key.keeper, failure.why);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
        // Without it nobody believes that it was here; and it is told of no more.
        claim::give_up(&file(&node, &key), spare.as_deref());
        remove(&node, &key).is_some_and(|here| here.lent)
    })
}
