//! This daemon's starter (see the launcher's), which is there from the first job on.

use crate::daemon::Node;
use crate::helper;
use crate::launcher::{BATCH, LAUNCH};
use pando_kernel::scm;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// The connection to it, if it runs.
#[derive(Default)]
pub struct Starter(Mutex<Option<UnixStream>>);

impl Starter {
    /// Has a launcher begin, with this end of a connection.
    pub fn launch(&self, node: &Node, connection: &OwnedFd) -> io::Result<()> {
        self.say(node, |to| scm::send(to.as_raw_fd(), LAUNCH, connection.as_raw_fd()))
    }

    /// Has the helper of a batch job begin, with this end of a connection.
    pub fn batch(&self, node: &Node, connection: &OwnedFd) -> io::Result<()> {
        self.say(node, |to| scm::send(to.as_raw_fd(), BATCH, connection.as_raw_fd()))
    }

    fn say(&self, node: &Node, what: impl Fn(&UnixStream) -> io::Result<()>) -> io::Result<()> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if socket.as_ref().is_some_and(|there| what(there).is_ok()) {
            return Ok(());
        }
        // It has ended, or there was none.
        let (ours, theirs) = UnixStream::pair()?;
        let mut child = helper::spawn_starter(node, OwnedFd::from(theirs))?;
        tokio::spawn(async move { child.wait().await });
        what(&ours)?;
        *socket = Some(ours);
        Ok(())
    }
}
