//! A submission that is heard once, whoever goes down before he has answered; and a word to whoever waits.

use super::format::plain;
use super::{COMES_BACK, PAUSE, is_passing, said};
use pando_node::client::{Client, ClientError};
use pando_node::queue::ask::Ask;
use pando_queue::Spec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nobody wonders before.
const PATIENCE: Duration = Duration::from_secs(2);

/// It has been said.
static SAID: AtomicBool = AtomicBool::new(false);

/// As long as it is there, whoever waits, a person or a script's log, is told after a while what for; once.
pub struct Waits {
    /// What the last attempt came to.
    why: Arc<Mutex<String>>,
    #[allow(dead_code, reason = "its end is what is heard")]
    ends: Sender<()>,
}

impl Waits {
    /// From now on.
    pub fn begin() -> Waits {
        let why = Arc::new(Mutex::new("no answer yet".to_owned()));
        let (ends, heard) = channel::<()>();
        let known = why.clone();
        std::thread::spawn(move || {
            let is_over = heard.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout);
            if !is_over && !SAID.swap(true, Ordering::Relaxed) {
                let why = plain(&known.lock().unwrap_or_else(PoisonError::into_inner));
                eprintln!("pando: waiting for the node that keeps the queue: {why}");
            }
        });
        Waits { why, ends }
    }

    /// An attempt came to nothing.
    fn because(&self, why: String) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// Has the queue take a job, and gives its number. Who gets no answer asks again, with the same ticket.
pub fn submit(client: &Client, mut spec: Spec) -> Result<u64, String> {
    let mut random = [0; 16];
    pando_wire::token::random(&mut random);
    spec.ticket = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let (what, begun, waits) = (Ask::Submit(Box::new(spec)), Instant::now(), Waits::begin());
    let mut was_there = false;
    loop {
        match client.post("/v1/queue", &what) {
            // Where there was no daemon to begin with there is none.
            Err(e @ ClientError::NoDaemon { .. }) if !was_there => return Err(said(e)),
            Err(e) if is_passing(&e) && begun.elapsed() < COMES_BACK => {
                was_there = true;
                waits.because(said(e));
                std::thread::sleep(PAUSE);
            }
            answer => return answer.map_err(said),
        }
    }
}
