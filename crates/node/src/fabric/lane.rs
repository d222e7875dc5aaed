//! One connection's way beside it, by libfabric: what is large and due on a link goes as sealed messages from endpoint to endpoint, and the connection
//! only says in which place each belongs. So order, and that nothing is lost, stay the session's, and whatever goes wrong here ends the connection:
//! the next one is made without a lane, and sends again what has not come.
//!
//! A lane is used when a first message has come to the other end, and that has said so.

use super::rail::{Ends, Rail, Wanted};
use super::wire::{Frame, Ticket, VERSION};
use crate::link::broken;
use pando_fabric::Key;
use pando_wire::datagram::{AROUND, Label, MAX_BODY, Seal};
use pando_wire::{frame, token};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Smaller messages stay on the connection.
const LEAST: usize = 16 << 10;
/// No more bytes go beside a connection than this ahead of what the other end has said that it has. More than it takes until it says so.
const AHEAD: usize = 6 << 20;
/// Nor are more messages kept here that the connection has not named: the other end is wrong.
const MOST_KEPT: usize = 2 * AHEAD / LEAST;
/// The first message.
const TRIAL: u32 = 0;

/// See above.
pub struct Lane {
    rail: Arc<Rail>,
    peer: Ends,
    ours: Ticket,
    /// Opens what comes.
    pub seal: Seal,
    theirs: OnceLock<(Ticket, Seal)>,
    /// Wakes who writes to the connection.
    wake: OnceLock<Arc<Notify>>,
    came: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What has come and was not named yet, by number.
    kept: BTreeMap<u32, Vec<u8>>,
    /// The next that is named, and the one that somebody waits for.
    expected: u32,
    waits: Option<u32>,
    /// The next that is sent.
    next: u32,
    /// What was sent and may not be there: places in the session, and bytes.
    ahead: VecDeque<(u64, usize)>,
    /// The other end's first message has come; and it was told.
    tried: bool,
    told: bool,
    /// Ours has.
    proven: bool,
    since: Option<Instant>,
    /// Until the other end's first message has come.
    awaits: Option<Wanted>,
    failed: Option<String>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.rail.forget(self.ours.tag);
    }
}

impl Lane {
    /// This end of one, which the other end is told of.
    pub fn new(rail: &Arc<Rail>, peer: Ends) -> Arc<Lane> {
        let (mut tag, mut key) = ([0; 8], Key([0; 32]));
        token::random(&mut tag);
        token::random(&mut key.0);
        let (tag, seal) = (u64::from_be_bytes(tag), Seal::new(&key.0));
        let ours = Ticket { provider: rail.provider.clone(), address: rail.address.clone(), tag, key };
        let lane = Arc::new(Lane {
            rail: rail.clone(),
            peer,
            ours,
            seal,
            theirs: OnceLock::new(),
            wake: OnceLock::new(),
            came: Notify::new(),
            state: Mutex::new(State { expected: TRIAL + 1, next: TRIAL, ..State::default() }),
        });
        rail.learn(tag, &lane);
        lane
    }

    /// What the other end is to know.
    pub fn ticket(&self) -> Ticket {
        self.ours.clone()
    }

    /// The other end as it is named in the log.
    pub fn peer(&self) -> &Ends {
        &self.peer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other end has one, too: it is tried.
    pub fn join(self: &Arc<Lane>, theirs: Option<Ticket>, wake: &Arc<Notify>) -> Option<Arc<Lane>> {
        let no = |why: String| {
            self.rail.refuse(&self.peer, &why);
            None
        };
        let Some(theirs) = theirs else { return no("it has none, or not for now".into()) };
        if !theirs.is_sound() || theirs.provider != self.ours.provider {
            return no(format!("it has provider {}", crate::owner::clean(&theirs.provider)));
        }
        let seal = Seal::new(&theirs.key.0);
        let _ = self.theirs.set((theirs, seal));
        let _ = self.wake.set(wake.clone());
        {
            let mut state = self.state();
            state.since = Some(Instant::now());
            state.awaits = Some(Wanted::new(&self.rail));
        }
        self.send(&[]).ok()?;
        Some(self.clone())
    }

    /// Sends the next one; its number.
    fn send(self: &Arc<Lane>, body: &[u8]) -> io::Result<u32> {
        let (theirs, seal) = self.theirs.get().ok_or_else(|| broken("nobody knows where to"))?;
        let number = {
            let mut state = self.state();
            let number = state.next;
            // A number never has two texts.
            state.next = number.checked_add(1).ok_or_else(|| broken("all numbers of a lane are used"))?;
            number
        };
        let mut sealed = Vec::with_capacity(body.len() + AROUND);
        seal.seal(Label { tag: theirs.tag, number }, body, &mut sealed).map_err(broken)?;
        self.rail.send(self.ours.tag, self, &theirs.address, sealed);
        Ok(number)
    }

    /// Whether more may be sent, when so many messages have come to the other end.
    pub fn has_room(&self, there: u64) -> bool {
        let mut state = self.state();
        while state.ahead.front().is_some_and(|(place, _)| *place < there) {
            state.ahead.pop_front();
        }
        state.ahead.iter().map(|(_, bytes)| bytes).sum::<usize>() < AHEAD
    }

    /// What goes over the connection of these messages, the first of which has this place in the session: of the large ones only which they are.
    pub fn divert(self: &Arc<Lane>, first: u64, all: Vec<Arc<Vec<u8>>>) -> io::Result<Vec<Arc<Vec<u8>>>> {
        if let Some(why) = self.failed() {
            return Err(broken(why));
        }
        let (proven, told) = {
            let mut state = self.state();
            let tried = state.tried;
            let told = tried && !std::mem::replace(&mut state.told, tried);
            (state.proven, told)
        };
        let mut due = Vec::with_capacity(all.len() + 1);
        if told {
            due.push(Arc::new(frame::encode(VERSION, &Frame::Reached).map_err(broken)?));
        }
        for (place, message) in (first..).zip(all) {
            let fits = (LEAST..=MAX_BODY).contains(&message.len());
            if !proven || !fits {
                due.push(message);
                continue;
            }
            let number = self.send(&message)?;
            self.state().ahead.push_back((place, message.len()));
            due.push(Arc::new(frame::encode(VERSION, &Frame::Beside(number)).map_err(broken)?));
        }
        Ok(due)
    }

    /// Something is to be said, though there is no message.
    pub fn has_news(&self) -> bool {
        let state = self.state();
        state.failed.is_some() || state.tried && !state.told
    }

    /// Ours has come there.
    pub fn reached(&self) {
        self.state().proven = true;
        self.rail.accept(&self.peer);
    }

    /// It is used.
    pub fn is_proven(&self) -> bool {
        let state = self.state();
        state.proven && state.failed.is_none()
    }

    /// After so long it is known that it can't be used: the connection goes on without.
    pub fn doubt(&self, patience: Duration) {
        let mut state = self.state();
        if state.since.is_none_or(|since| since.elapsed() < patience) {
            return;
        }
        (state.since, state.awaits) = (None, None);
        let proven = state.proven;
        drop(state);
        if !proven {
            self.rail.refuse(&self.peer, "the first message did not get through");
        }
    }

    /// The message with this number, when it has come. `patience`: it should not take longer.
    pub async fn take(&self, number: u32, patience: Duration) -> io::Result<Vec<u8>> {
        {
            let mut state = self.state();
            if number != state.expected {
                return Err(broken(format!("message {number} beside the connection, after {}", state.expected)));
            }
            state.expected = number.checked_add(1).ok_or_else(|| broken("all numbers of a lane are used"))?;
            if let Some(message) = state.kept.remove(&number) {
                return Ok(message);
            }
            state.waits = Some(number);
        }
        let _wanted = Wanted::new(&self.rail);
        let until = Instant::now() + patience;
        loop {
            {
                let mut state = self.state();
                if let Some(why) = &state.failed {
                    return Err(broken(why));
                }
                if let Some(message) = state.kept.remove(&number) {
                    state.waits = None;
                    return Ok(message);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if timeout(left, self.came.notified()).await.is_err() {
                self.fail(&format!("what it has sent does not come within {patience:?}"));
            }
        }
    }

    /// A message has come whose seal is good. False: nobody needs it (any more).
    pub fn comes(&self, number: u32, body: &[u8]) -> bool {
        let mut state = self.state();
        if number == TRIAL {
            let first = !std::mem::replace(&mut state.tried, true);
            state.awaits = None;
            drop(state);
            self.wake.get().iter().for_each(|wake| wake.notify_one());
            return first;
        }
        let late = number < state.expected && state.waits != Some(number);
        if late || state.kept.len() >= MOST_KEPT || state.kept.contains_key(&number) {
            return false;
        }
        state.kept.insert(number, body.to_vec());
        drop(state);
        self.came.notify_one();
        true
    }

    /// It can't go on, and so the connection can't.
    pub fn fail(&self, why: &str) {
        self.state().failed.get_or_insert_with(|| format!("libfabric: {why}"));
        self.rail.refuse(&self.peer, why);
        self.came.notify_one();
        self.wake.get().iter().for_each(|wake| wake.notify_one());
    }

    fn failed(&self) -> Option<String> {
        self.state().failed.clone()
    }
}
