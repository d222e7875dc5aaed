//! Links to other nodes, and launchers, that a job has left ready: the next one starts without a handshake, and without a process but its ranks.

use super::link::is_quiet;
use crate::daemon::Node;
use crate::launcher::SPARE;
use pando_kernel::{procfs, signal};
use pando_launch::Frames;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// What nobody has needed for so long is closed.
const KEPT: Duration = Duration::from_secs(60);
/// The other end of a link waits longer, so it is rarely the one that closes while this end takes the link.
pub const WAITS: Duration = Duration::from_secs(120);
/// So many at most, in all and to one node.
const MOST_LINKS: usize = 512;
const MOST_TO_ONE: usize = 32;
const MOST_LAUNCHERS: usize = 8;

/// A launcher that has no job.
pub struct Launcher {
    /// Its connection.
    pub stream: UnixStream,
    /// Its process.
    pub pid: i32,
}

/// One that does nothing is not waited for: somebody has stopped it.
pub fn give_up(pid: i32) {
    if procfs::name(pid) == SPARE {
        let _ = signal::kill(pid, libc::SIGKILL);
    }
}

#[derive(Default)]
struct Inner {
    /// By the node at the other end.
    links: BTreeMap<String, Vec<(Instant, TlsStream<TcpStream>)>>,
    launchers: Vec<(Instant, Launcher)>,
    /// Somebody closes them when their time has come.
    tended: bool,
}

/// See above.
#[derive(Default)]
pub struct Spares(Mutex<Inner>);

/// A node has several: links of jobs, and those of errands of its queue.
pub type Of = fn(&Node) -> &Spares;

/// Those of parallel jobs.
pub fn of_jobs(node: &Node) -> &Spares {
    &node.jobs.spares
}

impl Spares {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link to that node, the one that was used last.
    pub async fn link(&self, to: &str) -> Option<TlsStream<TcpStream>> {
        loop {
            let mut stream = self.inner().links.get_mut(to).and_then(Vec::pop)?.1;
            if is_quiet(&mut stream).await {
                return Some(stream);
            }
        }
    }

    /// A launcher, the one that was used last.
    pub async fn launcher(&self) -> Option<Launcher> {
        loop {
            let mut launcher = self.inner().launchers.pop()?.1;
            if is_quiet(&mut launcher.stream).await {
                return Some(launcher);
            }
        }
    }

    /// A job to that node is over, and has left this. Nothing of what comes next may have been read.
    pub fn keep_link(node: &Arc<Node>, of: Of, to: &str, stream: TlsStream<TcpStream>, frames: &Frames) {
        let mut inner = of(node).inner();
        let all: usize = inner.links.values().map(Vec::len).sum();
        let mine = inner.links.entry(to.to_owned()).or_default();
        if frames.is_empty() && all < MOST_LINKS && mine.len() < MOST_TO_ONE {
            mine.push((Instant::now(), stream));
        }
        tend(node, of, &mut inner);
    }

    /// As for links.
    pub fn keep_launcher(node: &Arc<Node>, launcher: Launcher, frames: &Frames) {
        let mut inner = node.jobs.spares.inner();
        if frames.is_empty() && inner.launchers.len() < MOST_LAUNCHERS {
            inner.launchers.push((Instant::now(), launcher));
        }
        tend(node, of_jobs, &mut inner);
    }
}

fn tend(node: &Arc<Node>, of: Of, inner: &mut Inner) {
    if std::mem::replace(&mut inner.tended, true) {
        return;
    }
    let node = Arc::downgrade(node);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(KEPT / 4).await;
            let Some(node) = node.upgrade() else { return };
            let mut inner = of(&node).inner();
            inner.launchers.retain(|(since, _)| since.elapsed() < KEPT);
            inner.links.values_mut().for_each(|all| all.retain(|(since, _)| since.elapsed() < KEPT));
            inner.links.retain(|_, all| !all.is_empty());
            inner.tended = !(inner.links.is_empty() && inner.launchers.is_empty());
            if !inner.tended {
                return;
            }
        }
    });
}
