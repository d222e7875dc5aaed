//! The PMIx server of this node's ranks: what they want of it comes from the library's threads to the main loop, and goes up the tree from there.

use super::ready::Ready;
use super::scratch::{self, Scratch};
use super::wishes::{Waiter, Wishes};
use super::{Teller, Told};
use crate::sys::{effective_gid, effective_uid};
use pando_kernel::pmix::{Answer, Event, Host, Job, NOT_FOUND, Server};
use pando_launch::{Granted, Modex, Order, Said, Share, Stream, Up};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of what one rank has said that are sent to one that asks.
const MOST_SAID: usize = 4 << 20;
/// For a rank that would start others.
const NO_MORE: &str = "pando: MPI_Comm_spawn: ranks of Open MPI's programs begin with their job, and no more are started: ask for all with -n\n";
/// Where Open MPI (4 and 5) puts the memory that ranks of a node share: where it goes with the job, however that ends.
const BACKING: [&str; 3] =
    ["OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_osc_sm_backing_directory"];

/// Ranks that have begun, and not finished.
type Inside = Arc<Mutex<BTreeSet<u32>>>;

/// See above. What waits goes first, then the server, then its files.
pub struct Pmix {
    /// Barriers of all ranks, in the order in which they were come to: what is said, until it has been sent, and who waits.
    barriers: VecDeque<(Option<Vec<u8>>, Waiter)>,
    asked: BTreeMap<u64, Answer>,
    wishes: Wishes,
    server: Server,
    scratch: Scratch,
    next: u64,
    inside: Inside,
    ranks: Range<u32>,
    size: u32,
    place: u32,
    /// Variables that the user has set.
    set: BTreeSet<OsString>,
}

fn lock(inside: &Inside) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pmix {
    /// For the ranks of a place. The error is for people.
    pub fn start(order: &Order, space: &str, place: u32, ready: &Ready, tell: &Teller) -> Result<Pmix, String> {
        scratch::sweep();
        let user = ready.user.as_ref().map(|u| (u.uid, u.gid));
        let scratch = Scratch::make(user).map_err(|e| format!("a directory for PMIx: {e}"))?;
        let mut shares: Vec<&Share> = order.nodes.iter().filter(|s| s.ranks > 0).collect();
        shares.sort_by_key(|s| s.first);
        let share = &order.nodes[place as usize];
        let here = shares.iter().position(|s| s.first == share.first).ok_or("no ranks run here")?;
        let hosts: Vec<Host> = shares.iter().map(|s| Host { name: &s.node, first: s.first, ranks: s.ranks }).collect();
        let (uid, gid) = user.unwrap_or_else(|| (effective_uid(), effective_gid()));
        let directory = &scratch.ranks;
        let programs: Vec<u32> = (0..order.size()).map(|rank| order.program_of(rank) as u32).collect();
        let programs = &programs;
        let job = Job { space, number: order.job, hosts: &hosts, here, programs, user: uid, group: gid, directory };
        let inside = Inside::default();
        let (known, tell) = (inside.clone(), tell.clone());
        // Who has finished may end at once: that is noted before it goes on, not when the main loop has time.
        let listener = move |event| match event {
            Event::Connected(rank) => _ = lock(&known).insert(rank),
            Event::Finalized(rank) => _ = lock(&known).remove(&rank),
            other => _ = tell.send(Told::Pmix(other)),
        };
        let server = Server::start(&scratch.own, &job, Box::new(listener))?;
        Ok(Pmix {
            barriers: VecDeque::new(),
            asked: BTreeMap::new(),
            wishes: Wishes::new(place),
            server,
            next: 0,
            inside,
            ranks: share.first..share.first + share.ranks,
            size: order.size(),
            place,
            set: order
                .task
                .environment
                .iter()
                .filter(|(_, value)| is_the_users(value))
                .map(|(name, _)| os(name))
                .collect(),
            scratch,
        })
    }

    /// Has it begun to speak to others, and not said that it has finished?
    pub fn is_inside(&self, rank: u32) -> bool {
        lock(&self.inside).contains(&rank)
    }

    /// What a rank finds in its environment.
    pub fn environment(&self, rank: u32) -> Result<Vec<(OsString, OsString)>, String> {
        let mut all = self.server.environment(rank)?;
        let backing = BACKING.iter().map(OsString::from).filter(|name| !self.set.contains(name));
        all.extend(backing.map(|name| (name, self.scratch.ranks.clone().into_os_string())));
        Ok(all)
    }

    /// A rank wants something. What the job is to hear of it.
    pub fn event(&mut self, event: Event) -> Vec<Up> {
        match event {
            Event::Connected(_) | Event::Finalized(_) => Vec::new(),
            Event::Abort { rank, status, done } => {
                lock(&self.inside).remove(&rank);
                drop(done);
                vec![Up::Abort { rank, status: status as u8 }]
            }
            Event::Fence { ranks, said, answer } => self.fence(ranks, said, Waiter::Bytes(answer)),
            Event::Meet { ranks, done } => self.fence(ranks, Vec::new(), Waiter::Done(done)),
            Event::Spawn(rank) => {
                // MPI has only "an error" for it.
                let (place, stream, bytes) = (self.place, Stream::Err, NO_MORE.as_bytes().to_vec());
                vec![Up::Output { place, rank, stream, bytes }]
            }
            Event::Publish { rank, published, once, done } => self.wishes.publish(rank, published, once, done),
            Event::Lookup { rank, names, waits, answer } => self.wishes.lookup(rank, names, waits, answer),
            Event::Unpublish { rank, names, done } => self.wishes.unpublish(rank, names, done),
            Event::Modex { rank, .. } if rank >= self.size => Vec::new(),
            Event::Modex { rank, answer } => {
                self.next += 1;
                self.asked.insert(self.next, answer);
                vec![Up::Modex(Modex::Wanted { place: self.place, number: self.next, rank })]
            }
        }
    }

    /// Some come to their head; all of the job to the tree.
    fn fence(&mut self, ranks: Option<Vec<u32>>, said: Vec<u8>, waiter: Waiter) -> Vec<Up> {
        let ranks: Option<BTreeSet<u32>> = ranks.map(|ranks| ranks.into_iter().collect());
        let some = ranks.filter(|some| some.len() < self.size as usize);
        let Some(some) = some else {
            self.barriers.push_back((Some(said), waiter));
            return if self.barriers.len() == 1 { self.come() } else { Vec::new() };
        };
        if some.iter().all(|rank| self.ranks.contains(rank)) {
            waiter.end(Ok(said));
            return Vec::new();
        }
        match some.iter().find(|rank| self.ranks.contains(rank)).copied() {
            Some(rank) => self.wishes.meet(rank, some.into_iter().collect(), said, waiter),
            None => {
                waiter.end(Err(NOT_FOUND));
                Vec::new()
            }
        }
    }

    /// What has come of a rank's wish. What the job is to hear of it.
    pub fn granted(&mut self, number: u64, granted: Granted) -> Vec<Up> {
        self.wishes.granted(number, granted);
        Vec::new()
    }

    /// The tree brings one barrier after the other.
    fn come(&mut self) -> Vec<Up> {
        let said = self.barriers.front_mut().and_then(|(said, _)| said.take());
        let place = self.place.to_string();
        said.map(|said| Up::Fence(vec![(place, ByteBuf::from(said))])).into_iter().collect()
    }

    /// All ranks of the job have come to the barrier. What is to be said now.
    pub fn fenced(&mut self, mut said: Vec<Said>) -> Vec<Up> {
        said.sort_by_key(|(place, _)| place.parse::<u32>().unwrap_or(u32::MAX));
        if let Some((_, waiter)) = self.barriers.pop_front() {
            waiter.end(Ok(said.into_iter().flat_map(|(_, bytes)| bytes.into_vec()).collect()));
        }
        self.come()
    }

    /// Another node asks, or answers.
    pub fn modex(&mut self, modex: Modex, tell: &Teller) {
        match modex {
            Modex::Wanted { place, number, rank } => {
                let tell = tell.clone();
                let asked = move |said: Option<Vec<u8>>| {
                    let said = said.filter(|said| said.len() <= MOST_SAID).map(ByteBuf::from);
                    let _ = tell.send(Told::Say(Up::Modex(Modex::Found { place, number, rank, said })));
                };
                self.server.ask(rank, Box::new(asked));
            }
            Modex::Found { number, said, .. } => {
                let Some(answer) = self.asked.remove(&number) else { return };
                match said {
                    Some(said) => answer.give(said.into_vec()),
                    None => answer.fail(NOT_FOUND),
                }
            }
        }
    }
}

/// And not what a job of ours, which it was started in, has set.
fn is_the_users(value: &[u8]) -> bool {
    !String::from_utf8_lossy(value).contains(scratch::PREFIX)
}

fn os(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}
