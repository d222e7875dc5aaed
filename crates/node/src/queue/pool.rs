//! The helpers of batch jobs (crates/node/src/batch_job) as their daemon has them. Each serves one job at a time. Who has served one rests for a while,
//! there for another one of the same user: to make a process, and to take it down, takes longer than all else that is done for a short job.

use super::batch;
use super::errand::Key;
use crate::batch_job::{Said, Task, Told};
use crate::daemon::Node;
use crate::jobs::link::next;
use crate::sys::effective_uid;
use pando_kernel::job_group::JobGroup;
use pando_launch::{Frames, Identity, encode};
use pando_queue::{How, Usage};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};
use tokio::time::sleep;

/// Who has no other job within this ends.
const RESTS: Duration = Duration::from_millis(300);
/// So many rest at most.
const MOST: usize = 64;

/// A job for a helper.
pub struct Order {
    /// Which.
    pub key: Key,
    /// What there is to do.
    pub task: Box<Task>,
    /// Hears once whether it runs, when its helper is there.
    pub came: Option<oneshot::Sender<bool>>,
}

/// One that has no job.
struct Resting {
    /// Whose it was.
    user: Option<Identity>,
    next: oneshot::Sender<Order>,
}

/// Those that have none.
pub struct Helpers {
    resting: Mutex<Vec<Resting>>,
    /// When this daemon began, milliseconds since 1970, and how many it has started.
    begun: u64,
    started: AtomicU64,
}

impl Default for Helpers {
    fn default() -> Self {
        Helpers { resting: Mutex::default(), begun: crate::events::now_ms(), started: AtomicU64::new(0) }
    }
}

impl Helpers {
    /// Of one that is to be started, and of no other one, whichever daemon has started it.
    fn name(&self) -> String {
        let (process, number) = (std::process::id(), self.started.fetch_add(1, Ordering::Relaxed));
        format!("{:x}.{process}.{number}", self.begun)
    }

    /// One that may serve this user, the one that served last.
    fn take(&self, user: &Option<Identity>) -> Option<Resting> {
        let mut all = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().rposition(|resting| resting.user == *user)?;
        Some(all.remove(at))
    }

    /// None: there are enough.
    fn rest(&self, user: Option<Identity>) -> Option<oneshot::Receiver<Order>> {
        let (next, order) = oneshot::channel();
        let mut all = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|resting| !resting.next.is_closed());
        (all.len() < MOST).then(|| all.push(Resting { user, next }))?;
        Some(order)
    }
}

/// Has a helper take it on: one that rests, or a new one.
pub fn begin(node: &Arc<Node>, mut order: Order) -> io::Result<()> {
    while let Some(resting) = node.queue.ward.helpers.take(&order.task.user) {
        match resting.next.send(order) {
            Ok(()) => return Ok(()),
            // It has ended meanwhile.
            Err(back) => order = back,
        }
    }
    let line = start(node)?;
    tokio::spawn(serve_with(node.clone(), line, order));
    Ok(())
}

/// A new one; the connection ends when it does.
fn start(node: &Node) -> io::Result<Line> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    node.jobs.starter.batch(node, &OwnedFd::from(theirs))?;
    ours.set_nonblocking(true)?;
    let spare = batch::spare(node, &node.queue.ward.helpers.name());
    Ok(Line { stream: UnixStream::from_std(ours)?, frames: Frames::default(), spare, groups: Vec::new() })
}

/// What has become of a job.
enum End {
    /// The helper has ended without a word.
    Unheard,
    /// It has ended later: somebody has killed it, and its child with it.
    Killed,
    /// The job has ended; whether the helper stays.
    Over(How, Usage, bool),
}

struct Line {
    stream: UnixStream,
    frames: Frames,
    /// What its runs' file is called between two of them.
    spare: PathBuf,
    /// Control groups of its job, or of the last one.
    groups: Vec<PathBuf>,
}

impl Drop for Line {
    fn drop(&mut self) {
        // There may be none.
        let _ = std::fs::remove_file(&self.spare);
    }
}

impl Line {
    async fn say(&mut self, told: &Told) -> io::Result<()> {
        self.stream.write_all(&encode(told).map_err(io::Error::other)?).await
    }

    async fn next(&mut self) -> Option<Said> {
        next(&mut self.stream, &mut self.frames).await.ok()?
    }

    /// Removes the groups that it has for its next job: there is none. It does so itself, unless somebody has killed it.
    fn tidy(&self) {
        let groups = self.groups.clone();
        tokio::task::spawn_blocking(move || _ = JobGroup::again(groups).remove());
    }

    /// To the job's end. `told`: where what it is to be told comes from, if its helper has come already.
    async fn hear(
        &mut self,
        node: &Arc<Node>,
        key: &Key,
        mut told: Words,
        mut came: Option<oneshot::Sender<bool>>,
    ) -> End {
        let mut stays = false;
        loop {
            let said = tokio::select! {
                said = self.next() => said,
                Some(tell) = heard(&mut told) => match self.say(&tell).await {
                    Ok(()) => continue,
                    Err(_) => None,
                },
            };
            match said {
                Some(Said::Took { began, groups }) => {
                    self.groups.clone_from(&groups);
                    told = Some(batch::came(node, key, began, Some(groups)));
                    // Who has it begin tells it with his answer.
                    let unsaid = came.take().is_none_or(|came| came.send(began).is_err());
                    if began && unsaid {
                        tokio::spawn(batch::report_begin(node.clone(), key.clone()));
                    }
                }
                Some(Said::Began) => drop(tokio::spawn(batch::report_begin(node.clone(), key.clone()))),
                Some(Said::Stays) => stays = true,
                Some(Said::Ended(how, usage)) => return End::Over(how, usage, stays),
                Some(Said::Unfit(why)) => batch::unfit(node, key, &why),
                Some(Said::Used(usage)) => batch::used(node, key, usage),
                Some(Said::Here { .. }) => {}
                None if told.is_none() => return End::Unheard,
                None => return End::Killed,
            }
        }
    }
}

type Words = Option<UnboundedReceiver<Told>>;

/// What a helper is to be told; nothing before it has come.
async fn heard(told: &mut Words) -> Option<Told> {
    match told {
        Some(told) => told.recv().await,
        None => std::future::pending().await,
    }
}

/// The life of one that this daemon has started.
async fn serve_with(node: Arc<Node>, mut line: Line, mut order: Order) {
    let (mut is_new, mut lent) = (true, false);
    loop {
        let (key, user) = (order.key.clone(), order.task.user.clone());
        (order.task.spare, order.task.fresh) = (line.spare.clone(), lent);
        let told = Told::Take(order.task);
        let end = match line.say(&told).await {
            Ok(()) => line.hear(&node, &key, None, order.came.take()).await,
            Err(_) => End::Unheard,
        };
        match end {
            End::Over(how, usage, stays) => {
                lent = batch::over(&node, key, how, usage, stays.then(|| line.spare.clone())).await;
                if line.say(&Told::Bye).await.is_err() || !stays {
                    return;
                }
            }
            End::Killed => return batch::lost(node, key, How::Signal(libc::SIGKILL)).await,
            // It was killed while it rested, and has made nothing.
            End::Unheard
                if !is_new
                    && !batch::file(&node, &key).exists()
                    && let Told::Take(task) = told =>
            {
                line.tidy();
                match start(&node) {
                    Ok(another) => (line, order, is_new) = (another, Order { key, task, came: None }, true),
                    Err(e) => return never_begun(&node, key, format!("its helper can't be started: {e}")).await,
                }
                continue;
            }
            End::Unheard => return unheard(&node, key).await,
        }
        match rest(&node, &mut line, user).await {
            Some(next) => (order, is_new) = (next, false),
            None => return line.tidy(),
        }
    }
}

/// Until there is another job for it. None: it ends.
async fn rest(node: &Node, line: &mut Line, user: Option<Identity>) -> Option<Order> {
    let mut next = node.queue.ward.helpers.rest(user)?;
    tokio::select! {
        order = &mut next => return order.ok(),
        // It says nothing while it rests: it has ended.
        _ = line.next() => {}
        () = sleep(RESTS) => {}
    }
    // What came just now is not to be lost.
    next.close();
    next.try_recv().ok()
}

/// If an earlier daemon has started one, too, and that was first, that one comes.
async fn unheard(node: &Arc<Node>, key: Key) {
    if batch::is_silent(node, &key) {
        sleep(batch::BACK_WITHIN).await;
    }
    if batch::is_silent(node, &key) {
        never_begun(node, key, "its helper ended before it began: see the node's helpers.log".into()).await;
    }
}

async fn never_begun(node: &Arc<Node>, key: Key, why: String) {
    batch::lost(node.clone(), key, How::NotBegun(why)).await;
}

/// Takes in those that an earlier daemon has started, until this one ends.
pub async fn serve(node: Arc<Node>, listener: UnixListener) {
    tokio::spawn(batch::recover(node.clone()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let me = effective_uid();
                if stream.peer_cred().is_ok_and(|cred| cred.uid() == me || cred.uid() == 0) {
                    let (frames, spare, groups) = (Frames::default(), PathBuf::new(), Vec::new());
                    tokio::spawn(talk(node.clone(), Line { stream, frames, spare, groups }));
                }
            }
            Err(e) => {
                tracing::error!("the socket of batch jobs: {e}");
                sleep(batch::AGAIN).await;
            }
        }
    }
}

async fn talk(node: Arc<Node>, mut line: Line) {
    let Some(Said::Here { key, began }) = line.next().await else { return };
    let told = batch::came(&node, &key, began, None);
    tokio::spawn(batch::away::accompany(node.clone(), key.clone()));
    if began {
        tokio::spawn(batch::report_begin(node.clone(), key.clone()));
    }
    match line.hear(&node, &key, Some(told), None).await {
        End::Over(how, usage, _) => {
            batch::over(&node, key, how, usage, None).await;
            // If it does not hear this it asks, and finds that nobody knows of its job.
            let _ = line.say(&Told::Bye).await;
        }
        End::Killed | End::Unheard => batch::lost(node, key, How::Signal(libc::SIGKILL)).await,
    }
}
