//! Whom this node's ranks find the others through, if through anybody.

use super::Teller;
use super::manager::Manager;
use super::pmix::Pmix;
use super::ready::Ready;
use pando_kernel::pmix::Event;
use pando_launch::{Granted, Manager as Wanted, Modex, Order, Said, Up};
use std::ffi::OsString;
use std::sync::Arc;
use tokio::net::UnixStream;

/// See above.
pub enum Meeting {
    /// Through nobody.
    None,
    /// A server of PMI-1.
    Pmi1(Box<Manager>),
    /// One of PMIx.
    Pmix(Box<Pmix>),
}

impl Meeting {
    /// As the order wants it. The error is for people.
    pub fn make(order: &Arc<Order>, place: u32, ready: &Ready, tell: &Teller) -> Result<Meeting, String> {
        Ok(match &order.manager {
            Wanted::None => Meeting::None,
            Wanted::Pmi1 => Meeting::Pmi1(Box::new(Manager::new(order, place))),
            Wanted::Pmix { space } => Meeting::Pmix(Box::new(Pmix::start(order, space, place, ready, tell)?)),
        })
    }

    /// What a rank finds in its environment because of it.
    pub fn environment(&self, rank: u32) -> Result<Vec<(OsString, OsString)>, String> {
        if let Meeting::Pmix(pmix) = self { pmix.environment(rank) } else { Ok(Vec::new()) }
    }

    /// A rank has begun, with this connection.
    pub fn attach(&mut self, rank: u32, connection: Option<UnixStream>, tell: &Teller) {
        if let (Meeting::Pmi1(manager), Some(connection)) = (self, connection) {
            manager.attach(rank, connection, tell);
        }
    }

    /// Has it begun to speak to others, and not said that it has finished?
    pub fn is_inside(&self, rank: u32) -> bool {
        match self {
            Meeting::None => false,
            Meeting::Pmi1(manager) => manager.is_inside(rank),
            Meeting::Pmix(pmix) => pmix.is_inside(rank),
        }
    }

    /// A rank says something on its connection. What the job is to hear of it.
    pub fn line(&mut self, rank: u32, line: &str) -> Vec<Up> {
        if let Meeting::Pmi1(manager) = self { manager.line(rank, line) } else { Vec::new() }
    }

    /// A rank wants something of its PMIx server. What the job is to hear of it.
    pub fn event(&mut self, event: Event) -> Vec<Up> {
        if let Meeting::Pmix(pmix) = self { pmix.event(event) } else { Vec::new() }
    }

    /// All ranks of the job have come to the barrier. What is to be said now.
    pub fn fenced(&mut self, said: Vec<Said>) -> Vec<Up> {
        match self {
            Meeting::None => Vec::new(),
            Meeting::Pmi1(manager) => {
                manager.fenced(&said);
                Vec::new()
            }
            Meeting::Pmix(pmix) => pmix.fenced(said),
        }
    }

    /// What has come of a rank's wish. What the job is to hear of it.
    pub fn granted(&mut self, rank: u32, granted: Granted) -> Vec<Up> {
        if let Meeting::Pmi1(manager) = self { manager.granted(rank, granted) } else { Vec::new() }
    }

    /// Another node asks, or answers.
    pub fn modex(&mut self, modex: Modex, tell: &Teller) {
        if let Meeting::Pmix(pmix) = self {
            pmix.modex(modex, tell);
        }
    }
}
