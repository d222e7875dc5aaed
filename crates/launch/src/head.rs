//! Who decides in a job: what a rank's end, a node's loss and the user's signals mean for the others.

use crate::groups::{Bid, From, Groups, Word};
use crate::meetings::Meetings;
use crate::message::{Ask, Asker, Down, Ending, Granted, Tell, Up, Wish};
use crate::names::{Name, Names};
use crate::order::Order;
use crate::spawn::Spawn;
use serde_bytes::ByteBuf;
use std::sync::Arc;

const SIGTERM: u8 = 15;
/// SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP: who has not begun is not ended by them.
const GOES_ON: [u8; 4] = [17, 18, 19, 20];
/// Bytes of standard input, or of a place's output beyond its window, that may have come and not been taken: who sends more does not keep
/// to the rules.
const MOST_AHEAD: u64 = 8 << 20;

/// Most names that are waited for.
const MOST_AWAITED: usize = 4096;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Say it to the head's own part of the tree.
    Down(Down),
    /// Say it to the user's command; of a group, to the job's head.
    Tell(Tell),
    /// Of a group: say it to the job's head.
    Wish(Asker, Wish),
    /// Begin a group of ranks with this number and order, of which only the job's number is missing; it has a head of its own.
    Begin(u32, Box<Order>),
    /// Say it to that group's head.
    Group(u32, Bid),
}

/// The head. Times are milliseconds of any clock that does not go back.
pub struct Head {
    order: Arc<Order>,
    /// One that ends badly ends all.
    kill_on_bad: bool,
    /// Between asking ranks to end and ending them, milliseconds.
    grace_ms: u64,
    /// How long it may run, milliseconds; and until when.
    time_ms: Option<u64>,
    /// See there.
    late_at: Option<u64>,
    begun: bool,
    /// Nobody listens any more.
    alone: bool,
    /// When all that is left is killed.
    ends_at: Option<u64>,
    killed: bool,
    over: bool,
    /// Bytes of standard input that came, and that were taken.
    stdin: (u64, u64),
    /// Bytes of each place's output that were told, and that nobody has said to have taken.
    told: Vec<u64>,
    names: Names,
    /// Names that are waited for, and barriers of some ranks.
    awaited: Vec<(String, From)>,
    meetings: Meetings,
    /// All that its ranks have started; and its own tree is over.
    groups: Groups,
    tree_over: bool,
}

impl Head {
    /// Of a job that has not begun.
    pub fn new(order: Arc<Order>, kill_on_bad: bool, grace_ms: u64) -> Head {
        let (told, stdin) = (vec![0; order.nodes.len()], (0, 0));
        let (begun, alone, ends_at, killed, over) = (false, false, None, false, false);
        let (time_ms, late_at, names) = (None, None, Names::default());
        let (groups, tree_over) = (Groups::new(&order), false);
        Head {
            order,
            kill_on_bad,
            grace_ms,
            time_ms,
            late_at,
            begun,
            alone,
            ends_at,
            killed,
            over,
            stdin,
            told,
            names,
            awaited: Vec::new(),
            meetings: Meetings::default(),
            groups,
            tree_over,
        }
    }

    /// It may run for so many milliseconds.
    pub fn limited(self, time_ms: Option<u64>) -> Head {
        Head { time_ms, ..self }
    }

    /// Nothing is left of the job.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// When [`Head::tick`] has something to do.
    pub fn due(&self) -> Option<u64> {
        self.ends_at.or(self.late_at).filter(|_| !self.killed && !self.over)
    }

    fn node(&self, place: u32) -> String {
        self.order.nodes.get(place as usize).map_or_else(String::new, |s| s.node.clone())
    }

    /// The tree says something.
    pub fn up(&mut self, up: Up, now: u64) -> Vec<Act> {
        let mut out = Vec::new();
        match up {
            Up::Ready if self.killed => {}
            Up::Ready => {
                self.begun = true;
                self.late_at = self.time_ms.map(|time| now.saturating_add(time));
                let (job, step, nodes) = (self.order.job, self.order.step(), self.order.nodes.clone());
                out.extend([Act::Tell(Tell::Begun { job, step, nodes }), Act::Down(Down::Start)]);
            }
            Up::Refused { place, why } => {
                // The first one says why; the others follow from it.
                if !self.killed {
                    out.push(Act::Tell(Tell::No(format!("node {}: {why}", self.node(place)))));
                }
                self.kill(&mut out);
            }
            // Its tasks, and those of everybody below it, are run by others.
            Up::Lost { place, why } if self.order.pool && self.begun => {
                for place in [vec![place], self.order.below(place)].concat() {
                    out.push(Act::Tell(Tell::Without { place, why: why.clone() }));
                }
            }
            Up::Returned { place, tasks } => out.push(Act::Tell(Tell::Returned { place, tasks })),
            Up::Done { place, task, how, ran_ms } => out.push(Act::Tell(Tell::Done { place, task, how, ran_ms })),
            Up::Lost { place, why } => {
                let node = self.node(place);
                if !self.killed {
                    let lost =
                        if self.begun { Tell::Lost { node, why } } else { Tell::No(format!("node {node}: {why}")) };
                    out.push(Act::Tell(lost));
                }
                self.kill(&mut out);
            }
            Up::Ended { place, rank, how } => self.ended(self.node(place), rank, how, now, &mut out),
            Up::Abort { rank, status } => self.abort(rank, status, now, &mut out),
            Up::Output { place, rank, stream, bytes } => {
                self.wrote(place, bytes.len(), Tell::Output { place, rank, stream, bytes }, &mut out);
            }
            Up::StdinTaken(bytes) => {
                self.stdin.1 = self.stdin.1.max(bytes);
                out.push(Act::Tell(Tell::StdinTaken(bytes)));
            }
            Up::Want { file, upto } => out.push(Act::Tell(Tell::Want { file, upto })),
            Up::Wish { asker, wish: Wish::Meet { ranks, said } } => self.meet(asker, ranks, said, &mut out),
            // The job's head grants it.
            Up::Wish { asker, wish } if self.order.group.is_some() => out.push(Act::Wish(asker, wish)),
            Up::Wish { asker, wish } => self.wish((None, asker), wish, &mut out),
            Up::Fence(said) => out.push(Act::Down(Down::Fenced(said))),
            Up::Gone => {
                self.tree_over = true;
                self.settle(&mut out);
            }
            // The head's own place has found the way for it.
            Up::Modex(_) | Up::Beat | Up::Launcher(_) | Up::Used(_) => {}
        }
        if self.alone {
            out.retain(|a| !matches!(a, Act::Tell(_)));
        }
        out
    }

    /// A rank has not ended well.
    fn ended(&mut self, node: String, rank: u32, how: Ending, now: u64, out: &mut Vec<Act>) {
        let fatal = self.kill_on_bad && self.ends_at.is_none() && !self.killed;
        out.push(Act::Tell(Tell::Ended { node, rank, how, fatal }));
        if fatal {
            self.end(now, out);
        }
    }

    fn abort(&mut self, rank: u32, status: u8, now: u64, out: &mut Vec<Act>) {
        if self.ends_at.is_none() && !self.killed {
            out.push(Act::Tell(Tell::Abort { rank, status }));
            self.end(now, out);
        }
    }

    /// Nothing is left of its own ranks, nor of those that they have started.
    fn settle(&mut self, out: &mut Vec<Act>) {
        if self.tree_over && self.groups.is_empty() && !self.over {
            self.over = true;
            out.push(Act::Tell(Tell::Over));
        }
    }

    fn wish(&mut self, asker: From, wish: Wish, out: &mut Vec<Act>) {
        match wish {
            Wish::Name(name) => self.name(asker, name, out),
            Wish::Await(name) => match self.names.ask(Name::Lookup(name.clone())) {
                Err(_) if self.awaited.len() < MOST_AWAITED => self.awaited.push((name, asker)),
                found => out.push(grant(asker, Granted::Named(found))),
            },
            Wish::Spawn(spawn) => match self.plan(spawn, asker) {
                Ok((group, order)) => out.push(Act::Begin(group, Box::new(order))),
                Err(why) => out.push(grant(asker, Granted::Spawned(Err(why)))),
            },
            // Its own head has done that.
            Wish::Meet { .. } => {}
        }
    }

    fn name(&mut self, asker: From, name: Name, out: &mut Vec<Act>) {
        let answer = self.names.ask(name.clone());
        let published = answer.is_ok();
        out.push(grant(asker, Granted::Named(answer)));
        let Name::Publish { name, .. } = name else { return };
        // In the order in which they came; for as long as there is something to be found.
        while let Some(at) = self.awaited.iter().position(|(wanted, _)| published && *wanted == name) {
            let Ok(found) = self.names.ask(Name::Lookup(name.clone())) else { return };
            let (_, asker) = self.awaited.remove(at);
            out.push(grant(asker, Granted::Named(Ok(found))));
        }
    }

    fn meet(&mut self, asker: Asker, ranks: Vec<u32>, said: ByteBuf, out: &mut Vec<Act>) {
        match self.meetings.come(&self.order, asker, ranks, said) {
            Ok(None) => {}
            Ok(Some((all, said))) => {
                out.extend(all.into_iter().map(|asker| grant((None, asker), Granted::Met(Ok(said.clone())))));
            }
            Err(why) => out.push(grant((None, asker), Granted::Met(Err(why)))),
        }
    }

    fn plan(&mut self, spawn: Spawn, asker: From) -> Result<(u32, Order), String> {
        if self.killed || self.ends_at.is_some() {
            return Err("the job is being ended".into());
        }
        self.groups.plan(&self.order, spawn, asker)
    }

    /// The head of a group says something.
    pub fn group(&mut self, group: u32, word: Word, now: u64) -> Vec<Act> {
        let mut out = Vec::new();
        match word {
            Word::Wish(asker, wish) => self.wish((Some(group), asker), wish, &mut out),
            Word::Tell(tell) => {
                // One that is over says no more.
                if let Some(told) = self.groups.told(group, tell) {
                    self.group_told(group, told, now, &mut out);
                }
            }
        }
        if self.alone {
            out.retain(|a| !matches!(a, Act::Tell(_)));
        }
        out
    }

    fn group_told(&mut self, group: u32, tell: Tell, now: u64, out: &mut Vec<Act>) {
        match tell {
            Tell::More(nodes) => {
                out.push(Act::Tell(Tell::More(nodes)));
                let asker = self.groups.asker(group);
                out.extend(asker.map(|asker| grant(asker, Granted::Spawned(Ok(())))));
            }
            // It never began. Whoever asked for it decides what follows.
            Tell::No(why) => {
                let asker = self.groups.asker(group);
                out.extend(asker.map(|asker| grant(asker, Granted::Spawned(Err(why)))));
            }
            Tell::Ended { node, rank, how, .. } => self.ended(node, rank, how, now, out),
            Tell::Abort { rank, status } => self.abort(rank, status, now, out),
            Tell::Lost { node, why } => {
                if !self.killed {
                    out.push(Act::Tell(Tell::Lost { node, why }));
                }
                self.kill(out);
            }
            Tell::Output { place, bytes, .. } if self.alone => {
                let taken =
                    |(group, place)| Act::Group(group, Bid::Ask(Ask::Taken { place, bytes: bytes.len() as u32 }));
                out.extend(self.groups.place_of(place).map(taken));
            }
            tell @ Tell::Output { .. } => out.push(Act::Tell(tell)),
            // The user's command sends nothing twice.
            Tell::Want { .. } => {
                let why = "what came with the job is not kept at all of its nodes any more ([jobs] cache_mb)";
                let asker = self.groups.asker(group);
                out.extend(asker.map(|asker| grant(asker, Granted::Spawned(Err(why.into())))));
                bid(vec![group], &Ask::Kill, out);
            }
            Tell::Over => {
                let asker = self.groups.asker(group);
                out.extend(
                    asker.map(|asker| grant(asker, Granted::Spawned(Err("it was ended before it began".into())))),
                );
                self.groups.over(group);
                self.settle(out);
            }
            _ => {}
        }
    }

    /// Of a group: the job's head has granted a rank's wish, or not.
    pub fn granted(&mut self, asker: Asker, granted: Granted) -> Vec<Act> {
        vec![Act::Down(Down::Granted { asker, granted })]
    }

    /// Ranks of a place have written so much.
    fn wrote(&mut self, place: u32, bytes: usize, tell: Tell, out: &mut Vec<Act>) {
        if self.alone {
            // Nobody will take it: ranks that wait to write would never end.
            return out.push(Act::Down(Down::Taken { place, bytes: bytes as u32 }));
        }
        if let Some(told) = self.told.get_mut(place as usize) {
            *told += bytes as u64;
            // What a launcher says in a rank's name is beyond its window, and little.
            if *told > u64::from(self.order.window) + MOST_AHEAD {
                return self.kill(out);
            }
        }
        out.push(Act::Tell(tell));
    }

    /// The user's command says something.
    pub fn ask(&mut self, ask: Ask) -> Vec<Act> {
        let mut out = Vec::new();
        match ask {
            Ask::Stdin(bytes) => {
                self.stdin.0 += bytes.len() as u64;
                // Nobody may fill the memory of others: a command that keeps to the rules never comes to this.
                match self.stdin.0.saturating_sub(self.stdin.1) > MOST_AHEAD {
                    true => self.kill(&mut out),
                    false => out.push(Act::Down(Down::Stdin(bytes))),
                }
            }
            Ask::StdinEnds => out.push(Act::Down(Down::StdinEnds)),
            // Before there are ranks any signal that ends a program ends the job.
            Ask::Signal(number) if !self.begun => {
                if !GOES_ON.contains(&number) {
                    self.kill(&mut out);
                }
            }
            Ask::Signal(number) => {
                out.push(Act::Down(Down::Signal(number)));
                // Ranks that are being started get what comes when they run.
                bid(self.groups.begun(), &Ask::Signal(number), &mut out);
            }
            Ask::Taken { place, bytes: all } => {
                // No more than there was.
                let told = self.told.get_mut(place as usize);
                let bytes = told.map_or(0, |told| {
                    let bytes = u64::from(all).min(*told);
                    *told -= bytes;
                    bytes
                });
                if bytes > 0 {
                    out.push(Act::Down(Down::Taken { place, bytes: bytes as u32 }));
                }
                // It bounds what was said to it.
                if let Some((group, place)) = self.groups.place_of(place) {
                    out.push(Act::Group(group, Bid::Ask(Ask::Taken { place, bytes: all })));
                }
            }
            Ask::Task { place, task, words } => out.push(Act::Down(Down::Task { place, task, words })),
            Ask::Recall(place) => out.push(Act::Down(Down::Recall(place))),
            Ask::NoMore => out.push(Act::Down(Down::NoMore)),
            Ask::Piece { file, index, bytes } => {
                let bytes = Arc::new(bytes);
                out.push(Act::Down(Down::Piece { file, index, bytes }));
            }
            Ask::Size(rows, columns) => out.push(Act::Down(Down::Size(rows, columns))),
            Ask::Kill => self.kill(&mut out),
        }
        out
    }

    /// The user's command is gone.
    pub fn user_gone(&mut self) -> Vec<Act> {
        let mut out = Vec::new();
        self.alone = true;
        self.kill(&mut out);
        out
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) -> Vec<Act> {
        let mut out = Vec::new();
        match self.due().filter(|at| now >= *at) {
            Some(_) if self.ends_at.is_some() => self.kill(&mut out),
            Some(_) => {
                out.push(Act::Tell(Tell::TimeOver));
                self.end(now, &mut out);
            }
            None => {}
        }
        out
    }

    /// Asks the ranks to end.
    fn end(&mut self, now: u64, out: &mut Vec<Act>) {
        self.ends_at = Some(now.saturating_add(self.grace_ms));
        out.push(Act::Down(Down::Signal(SIGTERM)));
        bid(self.groups.numbers(), &Ask::Signal(SIGTERM), out);
    }

    fn kill(&mut self, out: &mut Vec<Act>) {
        if !std::mem::replace(&mut self.killed, true) {
            out.push(Act::Down(Down::Kill));
            bid(self.groups.numbers(), &Ask::Kill, out);
        }
    }
}

/// The same to several groups.
fn bid(groups: Vec<u32>, ask: &Ask, out: &mut Vec<Act>) {
    out.extend(groups.into_iter().map(|group| Act::Group(group, Bid::Ask(ask.clone()))));
}

/// To whom it is for.
fn grant((group, asker): From, granted: Granted) -> Act {
    match group {
        None => Act::Down(Down::Granted { asker, granted }),
        Some(group) => Act::Group(group, Bid::Granted(asker, granted)),
    }
}

impl Ending {
    /// The exit status that a shell would give.
    pub fn status(self) -> i32 {
        match self {
            Ending::Exit(status) => i32::from(status),
            Ending::Signal(number) => 128 + i32::from(number),
            Ending::Early => 1,
            Ending::Late => 124,
            Ending::OutOfMemory => 137,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Exit(status) => write!(f, "ended with exit status {status}"),
            Ending::Signal(number) => write!(f, "was ended by signal {number}"),
            Ending::OutOfMemory => write!(f, "was ended, for its job had more memory there than it may (--mem)"),
            Ending::Late => write!(f, "took longer than it may, and was ended"),
            Ending::Early => write!(f, "ended with exit status 0 without MPI_Finalize, and others may wait for it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::order;

    #[test]
    fn one_that_ends_badly_ends_all_first_gently() {
        let mut head = Head::new(Arc::new(order(2, 2, 2, true)), true, 2000);
        assert_eq!(head.up(Up::Ready, 5)[1], Act::Down(Down::Start));
        let bad = Up::Ended { place: 1, rank: 3, how: Ending::Exit(7) };
        let acts = head.up(bad.clone(), 10);
        assert!(matches!(&acts[0], Act::Tell(Tell::Ended { node, rank: 3, fatal: true, .. }) if node == "n1"));
        assert_eq!((acts[1].clone(), head.due()), (Act::Down(Down::Signal(15)), Some(2010)));
        assert!(matches!(&head.up(bad, 11)[..], [Act::Tell(Tell::Ended { fatal: false, .. })]), "it is being ended");
        assert_eq!(head.tick(2009), []);
        assert_eq!(head.tick(2010), [Act::Down(Down::Kill)]);
        assert_eq!((head.due(), head.up(Up::Gone, 2020)), (None, vec![Act::Tell(Tell::Over)]));
    }

    #[test]
    fn a_job_that_has_run_for_as_long_as_it_may_is_ended_first_gently() {
        let mut head = Head::new(Arc::new(order(2, 1, 2, true)), true, 2000).limited(Some(500));
        assert_eq!(head.due(), None, "it has not begun");
        head.up(Up::Ready, 100);
        assert_eq!((head.due(), head.tick(599)), (Some(600), vec![]));
        assert_eq!(head.tick(600), [Act::Tell(Tell::TimeOver), Act::Down(Down::Signal(15))]);
        let ended = head.up(Up::Ended { place: 1, rank: 1, how: Ending::Signal(15) }, 601);
        assert!(matches!(&ended[..], [Act::Tell(Tell::Ended { fatal: false, .. })]), "that is no news");
        assert_eq!((head.due(), head.tick(2600)), (Some(2600), vec![Act::Down(Down::Kill)]));
        assert_eq!(head.due(), None);
        // One that is ending for another reason has its grace, and no other.
        let mut head = Head::new(Arc::new(order(2, 1, 2, true)), true, 2000).limited(Some(500));
        head.up(Up::Ready, 0);
        head.up(Up::Ended { place: 1, rank: 1, how: Ending::Exit(1) }, 400);
        assert_eq!((head.tick(500), head.due()), (vec![], Some(2400)));
    }

    #[test]
    fn a_refusal_is_told_once_and_nobody_begins() {
        let mut head = Head::new(Arc::new(order(3, 1, 2, true)), true, 2000);
        let no = |place| Up::Refused { place, why: "no".into() };
        assert_eq!(head.up(no(2), 0), [Act::Tell(Tell::No("node n2: no".into())), Act::Down(Down::Kill)]);
        assert_eq!(head.up(no(1), 0), []);
        assert_eq!(head.up(Up::Ready, 0), []);
    }

    #[test]
    fn names_may_be_waited_for() {
        let mut head = Head::new(Arc::new(order(2, 1, 2, true)), true, 2000);
        head.up(Up::Ready, 0);
        let asker = |place: u32, number| Asker { place, rank: place, number };
        let wish = |head: &mut Head, place, number, wish| head.up(Up::Wish { asker: asker(place, number), wish }, 1);
        let granted = |place, number, named| {
            let granted = Granted::Named(named);
            Act::Down(Down::Granted { asker: asker(place, number), granted })
        };
        assert_eq!(wish(&mut head, 1, 1, Wish::Await("a".into())), []);
        assert_eq!(wish(&mut head, 1, 2, Wish::Await("b".into())), []);
        let publish = Wish::Name(Name::Publish { name: "a".into(), port: "p".into(), once: false });
        let found = || Ok(Some("p".to_owned()));
        assert_eq!(wish(&mut head, 0, 3, publish), [granted(0, 3, Ok(None)), granted(1, 1, found())]);
        assert_eq!(wish(&mut head, 0, 4, Wish::Await("a".into())), [granted(0, 4, found())]);
        // Only the first one finds what is there once.
        assert_eq!(wish(&mut head, 0, 5, Wish::Await("b".into())), []);
        let once = Wish::Name(Name::Publish { name: "b".into(), port: "p".into(), once: true });
        assert_eq!(wish(&mut head, 1, 6, once.clone()), [granted(1, 6, Ok(None)), granted(1, 2, found())]);
        assert_eq!(wish(&mut head, 1, 7, once), [granted(1, 7, Ok(None)), granted(0, 5, found())]);
    }

    #[test]
    fn nobody_fills_anothers_memory() {
        let begun = || {
            let mut head = Head::new(Arc::new(order(2, 1, 2, true)), true, 2000);
            head.up(Up::Ready, 0);
            head
        };
        let (mut head, mut sent) = (begun(), 0);
        while head.ask(Ask::Stdin(vec![0; 1 << 20])) != [Act::Down(Down::Kill)] {
            sent += 1;
            assert!(sent < 64);
        }
        let (mut head, mut wrote) = (begun(), 0);
        let output = |bytes| Up::Output { place: 1, rank: 1, stream: crate::Stream::Out, bytes };
        while head.up(output(vec![0; 1 << 20]), 0) != [Act::Down(Down::Kill)] {
            wrote += 1;
            assert!(wrote < 64);
        }
        // No place may write more than was taken of it.
        let mut head = begun();
        head.up(output(vec![0; 100]), 0);
        assert_eq!(
            head.ask(Ask::Taken { place: 1, bytes: u32::MAX }),
            [Act::Down(Down::Taken { place: 1, bytes: 100 })]
        );
        assert_eq!(head.ask(Ask::Taken { place: 1, bytes: 1 }), []);
        assert_eq!(head.ask(Ask::Signal(18)), [Act::Down(Down::Signal(18))]);
    }

    #[test]
    fn when_the_user_is_gone_nothing_waits_for_him() {
        let mut head = Head::new(Arc::new(order(1, 1, 2, true)), true, 2000);
        head.up(Up::Ready, 0);
        assert_eq!(head.user_gone(), [Act::Down(Down::Kill)]);
        let output = Up::Output { place: 0, rank: 0, stream: crate::Stream::Out, bytes: vec![1, 2] };
        assert_eq!(head.up(output, 1), [Act::Down(Down::Taken { place: 0, bytes: 2 })]);
    }
}
