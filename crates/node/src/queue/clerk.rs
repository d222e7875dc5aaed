//! The queue's own thread: what comes in is decided by crates/queue, stored, and only then answered and done. What comes while the disk is busy
//! is stored with the next turn of the disk, all together.

use super::journal::{Broken, Journal, Old};
use super::tell::{self, Notice};
use pando_queue::array::Tasks;
use pando_queue::{Change, Effect, How, Input, Outcome, Queue, Record, Run, Settings, State, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{oneshot, watch};

/// What is taken in one turn.
const AT_ONCE: usize = 4096;
/// Longest sleep.
const LOOK: Duration = Duration::from_secs(60);
/// The journal is shortened when it has so many records more than it would have then.
const TOO_LONG: usize = 20_000;

/// A look at what there is, after all that came before it is stored.
pub type Look = Box<dyn FnOnce(&Queue, &Journal) + Send>;

/// For the clerk.
pub enum Note {
    /// Something comes in. The answer: effects that are for who said it, when it is stored.
    In(Box<Input>, Option<oneshot::Sender<Vec<Effect>>>),
    /// A node says what has become of a run. It counts only if that is the node which runs it; the answer comes in any case.
    Of(String, Box<Input>, Option<oneshot::Sender<Vec<Effect>>>),
    /// Somebody wants to see something.
    Look(Look),
    /// This node keeps the queue no longer.
    Stop,
}

/// The way to it.
#[derive(Clone)]
pub struct Desk {
    notes: Sender<Note>,
    /// Counts what has changed.
    pub changed: watch::Receiver<u64>,
    /// Which keeper's time it is, where the journal outlives its keeper's node.
    pub term: Option<u64>,
    /// Nobody is behind it any more.
    over: Arc<AtomicBool>,
}

impl Desk {
    /// Has something come in, and waits until it is stored.
    pub async fn take(&self, input: Input) -> Result<Vec<Effect>, String> {
        let (sender, answer) = oneshot::channel();
        self.put(Note::In(Box::new(input), Some(sender)));
        answer.await.map_err(|_| GONE.to_owned())
    }

    /// The same without waiting.
    pub fn say(&self, input: Input) {
        self.put(Note::In(Box::new(input), None));
    }

    /// Has something come in that a node says of a run, and waits until it is stored.
    pub async fn take_of(&self, node: &str, input: Input) -> Result<Vec<Effect>, String> {
        let (sender, answer) = oneshot::channel();
        self.put(Note::Of(node.to_owned(), Box::new(input), Some(sender)));
        answer.await.map_err(|_| GONE.to_owned())
    }

    /// The same without waiting.
    pub fn say_of(&self, node: &str, input: Input) {
        self.put(Note::Of(node.to_owned(), Box::new(input), None));
    }

    /// Looks at what there is.
    pub async fn look<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Queue, &Journal) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (sender, answer) = oneshot::channel();
        self.put(Note::Look(Box::new(move |queue, journal| drop(sender.send(what(queue, journal))))));
        answer.await.map_err(|_| GONE.to_owned())
    }

    /// Nobody is behind it any more: what was not answered was not done, or nobody knows.
    pub fn is_closed(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.changed.has_changed().is_err()
    }

    /// Until nobody is behind it.
    pub async fn closed(&self) {
        let mut changed = self.changed.clone();
        while changed.changed().await.is_ok() {}
    }

    /// Has it end after what it does now.
    pub fn stop(&self) {
        self.put(Note::Stop);
    }

    fn put(&self, note: Note) {
        // Who waits for an answer finds that there is none.
        let _ = self.notes.send(note);
    }
}

pub const GONE: &str = "the queue has stopped: the node's log says why";

/// Whatever has to be done besides: called in the clerk's thread, in the order of things, when what led to it is stored. `again`: it may have been
/// done already, before the queue began.
pub type Act = Box<dyn FnMut(&Queue, Effect, bool) + Send>;

struct Clerk {
    queue: Queue,
    journal: Journal,
    settings: Settings,
    notes: Receiver<Note>,
    changed: watch::Sender<u64>,
    /// Set before anybody is left without an answer.
    over: Arc<AtomicBool>,
    act: Act,
    clock: Clock,
    /// Records in the journal.
    stored: usize,
    /// No pass before: one over a long queue takes a while, and what comes in is to have half of the time.
    rests_until: Instant,
}

/// Goes on evenly whatever is done to the system's clock, and begins with what that says, or later.
struct Clock {
    base_ms: u64,
    begun: Instant,
}

impl Clock {
    /// `wall`: what the system's says. Nothing happens before what is stored: that was set back since then.
    fn new(wall_ms: u64, last_ms: u64) -> Clock {
        Clock { base_ms: wall_ms.max(last_ms), begun: Instant::now() }
    }

    fn now(&self) -> u64 {
        self.base_ms + self.begun.elapsed().as_millis() as u64
    }
}

/// Begins with what is in the journal. What was under way is done once more: nobody knows how far it came.
pub fn start(journal: Journal, settings: Settings, act: impl FnOnce(Desk) -> Act) -> Result<Desk, String> {
    let records = journal.records().map_err(|e| e.to_string())?;
    // One says later than the others what was over earlier.
    let last = records.iter().map(|r| r.at).max().unwrap_or(0);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let clock = Clock::new(wall, last);
    let stored = records.len();
    let queue = Queue::restore(settings.clone(), records);
    let (sender, notes) = channel();
    let (changed, watches) = watch::channel(0);
    let over = Arc::new(AtomicBool::new(false));
    let desk = Desk { notes: sender, changed: watches, term: journal.term(), over: over.clone() };
    let act = act(desk.clone());
    let mut clerk =
        Clerk { queue, journal, settings, notes, changed, over, act, clock, stored, rests_until: Instant::now() };
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        let _in = runtime.enter();
        for effect in clerk.queue.unfinished() {
            (clerk.act)(&clerk.queue, effect, true);
        }
        clerk.shorten();
        clerk.work();
    };
    std::thread::Builder::new().name("pando-queue".into()).spawn(work).map_err(|e| e.to_string())?;
    Ok(desk)
}

/// One that came in, and what follows.
type Handled = (Option<oneshot::Sender<Vec<Effect>>>, Vec<Effect>);

impl Clerk {
    fn work(&mut self) {
        while let Some(notes) = self.next() {
            if !self.journal.holds() {
                return self.end();
            }
            let (mut handled, mut looks) = (Vec::new(), Vec::new());
            let mut old = Vec::new();
            for note in notes {
                match note {
                    Note::In(input, answer) => {
                        let effects = self.queue.handle(self.clock.now(), *input);
                        self.note_old(&effects, &mut old);
                        handled.push((answer, effects));
                    }
                    Note::Of(node, input, answer) => {
                        let counts = self.runs_at(&input, &node);
                        let effects = if counts { self.queue.handle(self.clock.now(), *input) } else { Vec::new() };
                        self.note_old(&effects, &mut old);
                        handled.push((answer, effects));
                    }
                    Note::Look(look) => looks.push(look),
                    Note::Stop => return self.end(),
                }
            }
            let begun = Instant::now();
            if begun >= self.rests_until && self.queue.wake().is_some_and(|at| at <= self.clock.now()) {
                let effects = self.queue.handle(self.clock.now(), Input::Tick);
                self.note_old(&effects, &mut old);
                handled.push((None, effects));
                self.rests_until = Instant::now() + begun.elapsed();
            }
            let goes_on = self.store(handled, &old);
            // What somebody else has decided since then would be missing in what is shown.
            if !goes_on || !self.journal.holds() {
                return self.end();
            }
            looks.into_iter().for_each(|look| look(&self.queue, &self.journal));
        }
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Only the node that runs it speaks for it.
    fn runs_at(&self, input: &Input, node: &str) -> bool {
        let (Input::Began(id, run) | Input::Ended(id, run, ..)) = input else { return false };
        let found = self.queue.job(id.job).and_then(|job| job.running.get(&id.task.unwrap_or(0)));
        found.is_some_and(|r| r.run == *run && r.shares.first().is_some_and(|share| share.node == node))
    }

    /// What has come, at once if something is due. None: nobody can say anything any more.
    fn next(&self) -> Option<Vec<Note>> {
        let now = self.clock.now();
        let pause = self.queue.wake().map_or(LOOK, |at| Duration::from_millis(at.saturating_sub(now)).min(LOOK));
        let pause = pause.max(self.rests_until.saturating_duration_since(Instant::now()));
        let first = match self.notes.recv_timeout(pause) {
            Ok(note) => Some(note),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        Some(first.into_iter().chain(self.notes.try_iter()).take(AT_ONCE).collect())
    }

    fn note_old(&self, effects: &[Effect], old: &mut Vec<Old>) {
        for effect in effects {
            if let Effect::Outcome(outcome) = effect {
                let spec = self.queue.job(outcome.id.job).map(|job| &job.spec);
                let [name, user, account] = match spec {
                    Some(spec) => [&spec.name, &spec.user, &spec.account].map(String::clone),
                    None => Default::default(),
                };
                old.push(Old { name, user, account, outcome: (**outcome).clone() });
            }
            if let Effect::Record(Record { at, change: Change::Over(job, tasks, state) }) = effect {
                old.extend(self.never_begun(*job, tasks, *state, *at));
            }
        }
    }

    /// One row for tasks that waited and won't begin any more, under the name of the first.
    fn never_begun(&self, job: u64, tasks: &Tasks, state: State, at: u64) -> Option<Old> {
        let job = self.queue.job(job)?;
        let more = match tasks.len() {
            1 => String::new(),
            all => format!(", nor did {} more", all - 1),
        };
        let why = match self.queue.unmet(job.id) {
            Some(unmet) => format!("it never began{more}: it was to wait for {unmet}, which can't be met any more"),
            None => format!("it never began{more}"),
        };
        // No run has this number, and no task ends like this twice.
        let run = Run::new(u32::MAX, at, Vec::new());
        let first = tasks.first()?;
        let (id, asked) = (job.name_of(first), self.queue.asked(job.id, first).unwrap_or_default());
        let spec = &job.spec;
        let (usage, directory, files) = (Usage::default(), spec.directory.clone(), spec.files.clone());
        let outcome = Outcome { id, state, how: How::NotBegun(why), usage, run, ended: at, directory, files, asked };
        Some(Old { name: spec.name.clone(), user: spec.user.clone(), account: spec.account.clone(), outcome })
    }

    /// False: this node keeps the queue no longer.
    fn store(&mut self, handled: Vec<Handled>, old: &[Old]) -> bool {
        let is_record = |effect: &&Effect| matches!(effect, Effect::Record(_));
        let records: Vec<Record> = handled
            .iter()
            .flat_map(|(_, effects)| effects)
            .filter_map(|effect| if let Effect::Record(record) = effect { Some(record.clone()) } else { None })
            .collect();
        if !records.is_empty() {
            let tells = handled.iter().flat_map(|(_, effects)| effects);
            let notices: Vec<Notice> = tells.flat_map(|effect| self.notices(effect)).collect();
            match self.journal.write(&records, old, &notices) {
                Ok(()) => {}
                // Nobody is told anything: the next keeper knows what was stored.
                Err(e @ Broken::Lost(_)) => {
                    tracing::warn!("queue: {e}");
                    self.end();
                    return false;
                }
                Err(e) => {
                    self.forget(handled, &e);
                    return true;
                }
            }
            self.stored += records.len();
        }
        for (answer, effects) in handled {
            let (mine, others): (Vec<Effect>, Vec<Effect>) =
                effects.into_iter().filter(|effect| !is_record(&effect)).partition(is_answer);
            others.into_iter().for_each(|effect| (self.act)(&self.queue, effect, false));
            let _ = answer.map(|answer| answer.send(mine));
        }
        if !records.is_empty() {
            self.changed.send_modify(|n| *n += 1);
            self.shorten();
        }
        true
    }

    fn notices(&self, effect: &Effect) -> Vec<Notice> {
        match effect {
            Effect::Notify(id, event) => tell::notices(&self.queue, *id, *event),
            _ => Vec::new(),
        }
    }

    /// What could not be stored has not happened.
    fn forget(&mut self, handled: Vec<Handled>, why: &Broken) {
        tracing::error!("queue: {why}");
        let nodes: Vec<_> = self.queue.nodes().cloned().collect();
        match self.journal.records() {
            Ok(records) => {
                self.queue = Queue::restore(self.settings.clone(), records);
                let now = self.clock.now();
                nodes.into_iter().for_each(|node| drop(self.queue.handle(now, Input::NodeSeen(node))));
            }
            Err(e) => tracing::error!("queue: {e}"),
        }
        let refused = || vec![Effect::Refused(format!("nothing was changed: {why}"))];
        for (answer, _) in handled {
            let _ = answer.map(|answer| answer.send(refused()));
        }
        // A full disk is not asked again and again.
        std::thread::sleep(Duration::from_millis(200));
    }

    fn shorten(&mut self) {
        let short = || self.queue.jobs().count() * 2 + TOO_LONG;
        if self.stored <= short() {
            return;
        }
        let records = self.queue.records();
        match self.journal.shorten(&records) {
            Ok(()) => self.stored = records.len(),
            Err(e) => tracing::warn!("queue: the journal can't be shortened: {e}"),
        }
    }
}

fn is_answer(effect: &Effect) -> bool {
    matches!(effect, Effect::Accepted(_) | Effect::Refused(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job with a limit of an hour has run for a minute when its daemon dies, and the system's clock is set meanwhile.
    fn after(wall_ms: i64) -> (u64, Vec<Effect>) {
        const NOW: u64 = 1_800_000_000_000;
        const MINUTE: u64 = 60_000;
        let mut queue = Queue::new(Settings::default());
        let node = pando_queue::Node { name: "n1".into(), cpus: 1, memory: 1000, ..Default::default() };
        let work = pando_queue::Work::Words(vec!["true".into()]);
        let mut spec = pando_queue::Spec { user: "ann".into(), work, directory: "/".into(), ..Default::default() };
        spec.limit_ms = Some(60 * MINUTE);
        queue.handle(NOW, Input::NodeSeen(node.clone()));
        queue.handle(NOW, Input::Submit(Box::new(spec)));
        queue.handle(NOW, Input::Tick);
        let id = pando_queue::Id::of(1);
        queue.handle(NOW + MINUTE, Input::Began(id, 0));
        let records = queue.records();
        let last = records.last().unwrap().at;
        let clock = Clock::new(last.saturating_add_signed(wall_ms), last);
        let mut queue = Queue::restore(Settings::default(), records);
        queue.handle(clock.now(), Input::NodeSeen(node));
        let effects = queue.handle(clock.now(), Input::Tick);
        (clock.now() - last, effects)
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_time_go_back() {
        for back in [-1, -3_600_000, -1_000_000_000_000] {
            let (later, effects) = after(back);
            assert!(later < 3_600_000, "{later}");
            assert_eq!(effects, [], "the job goes on");
        }
    }

    #[test]
    fn time_while_nobody_was_there_counts_once_and_evenly_from_then_on() {
        assert_eq!(after(30 * 60_000).1, []);
        // The journal can't tell two hours without a daemon from a clock that was set: the limit counts.
        let (_, effects) = after(2 * 3_600_000);
        assert!(effects.iter().any(|e| matches!(e, Effect::End(_, 0, pando_queue::Cause::Timeout))), "{effects:?}");
        let clock = Clock::new(5_000, 1_000);
        let (first, second) = (clock.now(), clock.now());
        assert!(first >= 5_000 && second >= first);
    }
}
