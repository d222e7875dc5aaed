//! Whether a thread comes back from somebody else's code: with libfabric's shared memory it was seen that it does not, after another node was killed
//! (docs/decisions/0044). Whatever keeps such a thread, the daemon goes on over TCP.

use pando_kernel::urgency::{self, Urgency};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

/// Milliseconds in which any call comes back.
const LONGEST_MS: u64 = 3000;
/// For people.
pub const WHY: &str = "a call of it does not come back: start this daemon again";

/// See above.
pub struct Watch {
    begun: Instant,
    /// The thread; 0: not known yet.
    tid: AtomicI32,
    /// Since when it is there, milliseconds and one; 0: it is not.
    since: AtomicU64,
    stuck: AtomicBool,
}

impl Watch {
    pub fn new() -> Watch {
        let (tid, since, stuck) = (AtomicI32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Watch { begun: Instant::now(), tid, since, stuck }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64 + 1
    }

    /// The calling thread is the one.
    pub fn is_me(&self) {
        self.tid.store(urgency::me(), Ordering::SeqCst);
    }

    /// It is about to call it.
    pub fn goes_in(&self) {
        self.since.store(self.now(), Ordering::SeqCst);
    }

    /// It is back.
    pub fn comes_out(&self) {
        self.since.store(0, Ordering::SeqCst);
        if self.stuck.swap(false, Ordering::SeqCst) {
            tracing::info!("fabric: libfabric goes on");
            // Not everybody may: then it stays modest.
            let _ = urgency::set(urgency::me(), Urgency::default());
        }
    }

    /// It has not come back for long.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::SeqCst)
    }

    /// Looks; why it is stuck, if that is news. Such a thread gets only what nobody else wants of the CPUs.
    pub fn look(&self) -> Option<String> {
        let since = self.since.load(Ordering::SeqCst);
        if since == 0 || self.now().saturating_sub(since) < LONGEST_MS || self.stuck.swap(true, Ordering::SeqCst) {
            return None;
        }
        let _ = urgency::set(self.tid.load(Ordering::SeqCst), urgency::LAST);
        Some(WHY.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_thread_that_does_not_come_back_is_seen_and_is_modest_until_it_does() {
        let watch = Arc::new(Watch::new());
        let (come_back, comes) = channel::<()>();
        let its = watch.clone();
        let thread = std::thread::spawn(move || {
            its.is_me();
            its.goes_in();
            let _ = comes.recv();
            its.comes_out();
        });
        let why = loop {
            match watch.look() {
                Some(why) => break why,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert_eq!(why, WHY);
        assert!(watch.is_stuck() && watch.look().is_none(), "it is news once");
        let tid = watch.tid.load(Ordering::SeqCst);
        assert_eq!(urgency::of(tid).unwrap().policy, urgency::LAST.policy);
        come_back.send(()).unwrap();
        thread.join().unwrap();
        assert!(!watch.is_stuck() && watch.look().is_none());
    }
}
