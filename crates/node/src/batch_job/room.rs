//! A batch job's scratch directory: made before its prolog, and gone when its epilog has ended.

use super::Job;
use crate::scratch::Scratch;

impl Job {
    /// What it needs before its script begins. An error: nothing of it can run here.
    pub(super) async fn prepare(&mut self) -> Result<(), String> {
        self.furnish()?;
        self.prolog().await
    }

    /// Who has asked for room does not begin without; others do.
    fn furnish(&mut self) -> Result<(), String> {
        let Some(wanted) = &self.task.scratch else { return Ok(()) };
        match Scratch::make(wanted, self.task.user.as_ref().map(|user| (user.0, user.1))) {
            Ok(made) => {
                let variables = made.variables().into_iter().map(|(name, value)| (name.to_owned(), value));
                self.task.variables.extend(variables);
                self.scratch = Some(made);
            }
            Err(e) if wanted.limit_mb > 0 => {
                return Err(format!("node {}: its scratch directory {}: {e}", self.task.node, wanted.dir.display()));
            }
            Err(e) => {
                let id = self.task.order.key.id;
                eprintln!("pando: the scratch directory {} of job {id}: {e}; it has none", wanted.dir.display());
            }
        }
        Ok(())
    }

    /// Who has more there than he may, and no kernel that keeps him from it, is ended.
    pub(super) fn look_at_scratch(&mut self) {
        let over = self.scratch.as_mut().and_then(Scratch::look);
        if let Some((now, limit)) = over.filter(|_| !std::mem::replace(&mut self.out_of_scratch, true)) {
            self.held.signal(libc::SIGKILL);
            let (now, limit) = (now >> 20, limit >> 20);
            self.say(&format!(
                "it has {now} MB in its scratch directory, and asked for {limit} (--scratch): it is ended"
            ));
        }
    }

    /// Nobody writes there any more.
    pub(super) fn note_scratch(&mut self) {
        self.scratch.iter_mut().for_each(Scratch::look_again);
    }

    /// It goes.
    pub(super) fn clear(&mut self) {
        self.scratch = None;
    }
}
