//! An open file description of the program, as far as reads of it may be answered here: its file, and who knows where it stands. Pure.

use super::ahead::Ahead;
use crate::message::Owners;

/// Reads by offset that are forwarded before the file is asked for.
const READS_BEFORE: u32 = 4;
/// After a refusal it is asked again after so long, then after twice that ...
pub(super) const FIRST_PATIENCE: u64 = 20_000_000;
/// ... up to this.
const LAST_PATIENCE: u64 = 8_000_000_000;
/// The same where other processes have the description, or may have: home looks for them at most so often.
const FIRST_LOOK: u64 = 1_000_000_000;
const LOOKS: u32 = 8;

/// Who knows where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Home.
    Home,
    /// We do. `told`: home has heard.
    Here { at: u64, told: bool },
}

/// What is to be done about a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Home makes it.
    Forward,
    /// An answer is on its way.
    Wait,
    /// Ask this first, and wait.
    Ask(u64, Owners),
    /// Answer it here, from this file at this offset.
    Serve(u64, u64),
}

/// It.
#[derive(Debug)]
pub(crate) struct Description {
    pub place: Place,
    pub file: Option<u64>,
    pub ahead: Ahead,
    /// Are all who can move it the descriptors that are known here?
    pub ours: bool,
    /// How many descriptors that is.
    pub numbers: u32,
    /// The question on its way. If it is in doubt, the position in the answer is of no use.
    pub asked: Option<u64>,
    pub doubt: bool,
    /// With the question home is to look who has it.
    pub looking: bool,
    /// Calls at home that may be moving it.
    pub busy: u32,
    /// Full reads that were forwarded.
    pub reads: u32,
    patience: u64,
    not_before: u64,
    looks: u32,
    no_look_before: u64,
}

impl Description {
    pub fn new(ours: bool) -> Self {
        Description {
            place: Place::Home,
            file: None,
            ahead: Ahead::default(),
            ours,
            numbers: 0,
            asked: None,
            doubt: false,
            looking: false,
            busy: 0,
            reads: 0,
            patience: FIRST_PATIENCE,
            not_before: 0,
            looks: 0,
            no_look_before: 0,
        }
    }

    /// What becomes of a read at `offset`, or where it stands. `question`: the number of the next one.
    pub fn read(&mut self, offset: Option<u64>, now: u64, question: u64) -> Choice {
        let at = match (offset, self.place) {
            (Some(offset), _) => Some(offset),
            (None, Place::Here { at, .. }) => Some(at),
            (None, Place::Home) => None,
        };
        if let (Some(id), Some(at)) = (self.file, at) {
            return Choice::Serve(id, at);
        }
        if self.asked.is_some() {
            return Choice::Wait;
        }
        let known = self.file.is_some();
        let enough = if offset.is_some() { READS_BEFORE } else { 1 };
        let owners = match offset {
            Some(_) if !self.ours => Owners::Any,
            None if !self.ours && (self.looks >= LOOKS || now < self.no_look_before) => return Choice::Forward,
            None if !self.ours => Owners::Unknown,
            _ => Owners::Known,
        };
        if self.busy > 0 || now < self.not_before || !known && self.reads < enough {
            return Choice::Forward;
        }
        (self.asked, self.doubt, self.looking) = (Some(question), false, owners == Owners::Unknown);
        Choice::Ask(question, owners)
    }

    /// The file can't be had now.
    pub fn refused(&mut self, now: u64) {
        self.asked = None;
        self.wait_a_while(now);
    }

    fn wait_a_while(&mut self, now: u64) {
        self.not_before = now.saturating_add(self.patience);
        self.patience = (self.patience * 2).min(LAST_PATIENCE);
    }

    /// It can, under this name.
    pub fn granted(&mut self, id: u64) {
        (self.asked, self.file, self.patience) = (None, Some(id), FIRST_PATIENCE);
    }

    /// The file is not ours any more: it is asked for again after a while.
    pub fn forget(&mut self, now: u64) {
        self.file = None;
        self.wait_a_while(now);
        self.bring_home();
    }

    /// Others have it, or may have.
    pub fn shared(&mut self, now: u64) {
        self.ours = false;
        self.no_look_before = now.saturating_add(FIRST_LOOK << self.looks.min(LOOKS));
        self.doubt = true;
        self.bring_home();
    }

    /// Home has found others, or could not look.
    pub fn others_found(&mut self, now: u64) {
        self.shared(now);
        self.looks += 1;
    }

    /// A call at home uses it from now on.
    pub fn used(&mut self) {
        (self.busy, self.doubt) = (self.busy + 1, true);
        self.bring_home();
    }

    /// The call has been answered. `full`: it was a read that got all it asked for.
    pub fn answered(&mut self, full: bool) {
        self.busy -= 1;
        self.reads = if full { self.reads.saturating_add(1) } else { 0 };
    }

    pub fn bring_home(&mut self) {
        if let Place::Here { told, .. } = self.place {
            debug_assert!(told, "home must hear first");
            self.place = Place::Home;
        }
    }

    /// It stands there now, which home has yet to hear.
    pub fn moved(&mut self, to: u64) {
        if let Place::Here { at, told } = &mut self.place {
            (*told, *at) = (*told && *at == to, to);
        }
    }
}
