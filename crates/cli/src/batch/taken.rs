//! A submission that is heard once, whoever goes down before he has answered; and a word to whoever waits.

use super::{COMES_BACK, PAUSE, is_passing, said};
use pando_node::client::{Client, ClientError};
use pando_node::queue::ask::Ask;
use pando_queue::Spec;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Nobody wonders before.
const PATIENCE: Duration = Duration::from_secs(2);

/// As long as it is there, somebody at a terminal is told after a while what is waited for.
pub struct Waits(#[allow(dead_code, reason = "its end is what is heard")] Option<Sender<()>>);

impl Waits {
    /// From now on.
    pub fn begin() -> Waits {
        if !std::io::stderr().is_terminal() {
            return Waits(None);
        }
        let (sender, ends) = channel::<()>();
        std::thread::spawn(move || {
            if ends.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!(
                    "pando: waits for the node that keeps the queue (another one takes over when it is lost, if [queue.etcd] is configured)"
                );
            }
        });
        Waits(Some(sender))
    }
}

/// Has the queue take a job, and gives its number. Who gets no answer asks again, with the same ticket.
pub fn submit(client: &Client, mut spec: Spec) -> Result<u64, String> {
    let mut random = [0; 16];
    pando_wire::token::random(&mut random);
    spec.ticket = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let (what, begun, _waits) = (Ask::Submit(Box::new(spec)), Instant::now(), Waits::begin());
    let mut was_there = false;
    loop {
        match client.post("/v1/queue", &what) {
            // Where there was no daemon to begin with there is none.
            Err(e @ ClientError::NoDaemon { .. }) if !was_there => return Err(said(e)),
            Err(e) if is_passing(&e) && begun.elapsed() < COMES_BACK => {
                was_there = true;
                std::thread::sleep(PAUSE);
            }
            answer => return answer.map_err(said),
        }
    }
}
