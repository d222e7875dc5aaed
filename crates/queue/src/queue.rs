//! The queue: what comes in, what is true then, and what is to be done.

use crate::array::Tasks;
use crate::away::Phase;
use crate::book::{Book, Task};
use crate::change::{Change, Effect, Event, Input, Node, Outcome, Record, Reservation, Update};
use crate::explain::Why;
use crate::job::{Asked, Cause, How, Id, Job, Run, State, Usage};
use crate::settings::Settings;
use crate::spec::{Request, Spec};
use crate::step::Step;
use std::collections::{BTreeMap, HashMap};

/// Jobs that wait, run and have just ended; nodes; and rules. Whoever drives it stores each [`Effect::Record`] before anything that follows it is
/// done, and hands them to [`Queue::restore`] when he begins anew. Time never goes back here, and a clock that jumps far ahead ends jobs
/// whose time is over then: whoever has a clock that jumps gives a steady one.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) book: Book,
    pub(crate) settings: Settings,
    /// Nodes that are there. They are not stored: who is there says so himself.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Members of the cluster that are away, with what they have; none: nobody has said who there is.
    pub(crate) absent: Option<BTreeMap<String, Node>>,
    /// When nodes were last heard before they were away, and when that was said.
    pub(crate) heard: BTreeMap<String, (u64, u64)>,
    /// What was found of requests: none of them is impossible, or why it is.
    pub(crate) judged: HashMap<Request, Option<Why>>,
    pub(crate) now: u64,
    /// Something has changed since the last pass.
    pub(crate) stirred: bool,
    /// When the next thing is due that needs nobody's input.
    pub(crate) due: Option<u64>,
    pub(crate) effects: Vec<Effect>,
}

impl Queue {
    /// An empty one.
    pub fn new(settings: Settings) -> Queue {
        Queue::restore(settings, [])
    }

    /// The one that these records are of. Then say who is there ([`Input::NodeSeen`]), what has become of those that had nodes
    /// ([`Queue::unfinished`]), and that a node is lost where nothing of it is heard for long.
    pub fn restore(settings: Settings, records: impl IntoIterator<Item = Record>) -> Queue {
        let mut book = Book::new(settings.half_life_ms);
        let mut now = 0;
        for record in records {
            now = record.at.max(now);
            book.apply(&record);
        }
        let (nodes, heard, judged) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        let (stirred, due, effects) = (true, None, Vec::new());
        Queue { book, settings, nodes, absent: None, heard, judged, now, stirred, due, effects }
    }

    /// Records that make this queue, as few as there are jobs: what a journal is shortened to.
    pub fn records(&self) -> Vec<Record> {
        self.book.records(self.now)
    }

    /// They know the same of jobs (and not of nodes, which say themselves who they are).
    pub fn knows_the_same(&self, other: &Queue) -> bool {
        self.book == other.book
    }

    /// What a caller who begins anew has to find out about: tasks that have nodes. `Start` is one of which nobody knows whether it was begun:
    /// it is to be begun only if the nodes say that it was not.
    pub fn unfinished(&self) -> Vec<Effect> {
        let mut all = Vec::new();
        for (job, task, run) in self.runs() {
            let id = job.name_of(task);
            match (&run.ending, run.began, run.suspended_at) {
                (Some(cause), _, _) => all.push(Effect::End(id, run.run, cause.clone())),
                (None, None, _) => all.push(Effect::Start(id, run.run, run.shares.clone())),
                (None, Some(_), Some(_)) => all.push(Effect::Suspend(id, run.run)),
                (None, Some(_), None) => all.push(Effect::Resume(id, run.run)),
            }
            if let Some(node) = run.goes_to().filter(|_| run.ending.is_none()) {
                all.push(Effect::Place(id, run.run, node.to_owned()));
            }
        }
        all
    }

    /// A job.
    pub fn job(&self, id: u64) -> Option<&Job> {
        self.book.jobs.get(&id)
    }

    /// What people mean by an id: each task of an array has a number of its own, too. The array's is the first task's, and means all of it.
    pub fn named(&self, id: Id) -> Id {
        let found = self.book.jobs.range(..id.job).next_back().map(|(_, job)| job);
        let task = found.filter(|_| id.task.is_none() && !self.book.jobs.contains_key(&id.job)).and_then(|job| {
            let array = job.spec.array.as_ref().filter(|array| array.numbered)?;
            Some(Id { job: job.id, task: Some(array.tasks.nth(id.job - job.id)?) })
        });
        task.unwrap_or(id)
    }

    /// What was asked for, for accounts.
    pub fn asked(&self, job: u64, task: u32) -> Option<Asked> {
        let job = self.book.jobs.get(&job)?;
        let (spec, request) = (&job.spec, &job.spec.request);
        Some(Asked {
            number: job.number_of(task),
            submitted: job.submitted,
            eligible: job.since,
            partition: request.partition.clone().unwrap_or_else(|| self.settings.usual().to_owned()),
            quality: spec.quality.clone(),
            limit_ms: spec.limit_ms,
            nodes: request.least_nodes(),
            ranks: request.least_ranks(),
            cpus: request.least_cpus(),
            memory: request.memory,
            memory_per_cpu: request.memory_per_cpu,
            features: request.features.clone(),
            reservation: request.reservation.clone(),
            wckey: spec.wckey.clone(),
        })
    }

    /// All jobs, by number.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.book.jobs.values()
    }

    /// All tasks that have nodes.
    pub fn runs(&self) -> impl Iterator<Item = (&Job, u32, &Run)> {
        self.book.running.iter().filter_map(|(id, task)| {
            let job = self.book.jobs.get(id)?;
            Some((job, *task, job.running.get(task)?))
        })
    }

    /// Nodes that are there.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Reservations.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.book.reservations.values()
    }

    /// The rules.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Other rules from now on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.judged.clear();
        self.stirred = true;
    }

    /// The latest time that it knows of.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// When a [`Input::Tick`] is wanted: at once (0), then, or not before something comes in.
    pub fn wake(&self) -> Option<u64> {
        if self.stirred { Some(0) } else { self.due }
    }

    /// Something has come.
    pub fn handle(&mut self, now: u64, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        match input {
            Input::Submit(spec) => self.submit(*spec),
            Input::Cancel { id, by } => self.known(id, |queue| queue.cancel(id, &by)),
            Input::GiveBack(job) => self.known(Id::of(job), |queue| queue.give_back(job)),
            Input::Hold { id, operator } => self.known(id, |queue| queue.hold(id, operator)),
            Input::Release { id, operator } => self.known(id, |queue| queue.release(id, operator)),
            Input::Requeue { id, hold } => self.known(id, |queue| queue.requeue(id, hold)),
            Input::Park { id, still } => self.known(id, |queue| queue.park(id, still)),
            Input::Update(job, update) => self.known(Id::of(job), |queue| queue.update(job, update)),
            Input::NodeSeen(node) => self.node_seen(node),
            Input::NodeLost(name) => self.node_lost(&name),
            Input::NodeHeard(name, ms) => _ = self.heard.insert(name, (self.now.saturating_sub(ms), self.now)),
            Input::Absent(nodes) => self.absent(nodes),
            Input::Began(id, run) => self.began(id, run),
            Input::Ended(id, run, how, usage) => self.ended(id, run, how, usage),
            Input::Placed { id, run, node, how } => self.placed(id, run, &node, how),
            Input::Step { id, run, user, step } => self.step(id, run, &user, *step),
            Input::Reserve(reservation) => self.reserve(reservation),
            Input::Unreserve(name) => {
                if self.book.reservations.contains_key(&name) {
                    self.write(Change::Unreserved(name));
                } else {
                    self.refuse(format!("there is no reservation {name}"));
                }
            }
            Input::Tick => self.tick(),
        }
        std::mem::take(&mut self.effects)
    }

    /// The only way in which anything becomes true.
    pub(crate) fn write(&mut self, change: Change) {
        self.write_at(self.now, change);
    }

    /// The same of what became true before, of which is only heard now.
    fn write_at(&mut self, at: u64, change: Change) {
        let record = Record { at, change };
        self.book.apply(&record);
        self.effects.push(Effect::Record(record));
        self.stirred = true;
    }

    pub(crate) fn refuse(&mut self, why: String) {
        self.effects.push(Effect::Refused(why));
    }

    fn known(&mut self, id: Id, what: impl FnOnce(&mut Queue)) {
        let job = self.book.jobs.get(&id.job);
        match job.is_some_and(|job| id.task.is_none_or(|task| job.is_array() && job.state(task).is_some())) {
            true => what(self),
            false => self.refuse(format!(
                "there is no job {id} in the queue: see `pando queue`, or `pando history` for old ones"
            )),
        }
    }

    fn submit(&mut self, mut spec: Spec) {
        let name = (spec.user.clone(), std::mem::take(&mut spec.ticket));
        if let Some(id) = self.book.tickets.get(&name) {
            // The answer of the first time did not come.
            return self.effects.push(Effect::Accepted(*id));
        }
        spec.ticket = name.1;
        if spec.account.is_empty() {
            spec.account.clone_from(&spec.user);
        }
        if let Err(why) = self.acceptable(&mut spec) {
            return self.refuse(why);
        }
        if let Some(why) = self.impossible(&spec.request) {
            // Scripts look for Slurm's words.
            return self.refuse(format!("Requested node configuration is not available: {why}"));
        }
        if let Some(array) = &mut spec.array {
            array.numbered = true;
        }
        let id = self.book.next;
        self.write(Change::Submitted(id, Box::new(spec)));
        self.effects.push(Effect::Accepted(id));
    }

    fn acceptable(&self, spec: &mut Spec) -> Result<(), String> {
        spec.check()?;
        let (tasks, most) = (spec.array.as_ref().map_or(0, |array| array.tasks.len()), self.settings.array_most);
        if tasks > most.into() {
            // Scripts look for Slurm's words.
            return Err(format!(
                "Invalid job array specification: this one has {tasks} tasks, and the queue takes arrays of {most} at most ([queue.rules] array_most)"
            ));
        }
        let user = &spec.user;
        let (all, own) = (self.book.of_user.values().sum::<usize>(), self.book.of_user.get(user).copied().unwrap_or(0));
        if all >= self.settings.jobs_most || own >= self.settings.jobs_each {
            return Err(format!(
                "the queue is full: it has {all} jobs, {own} of them yours; try again when some have ended"
            ));
        }
        self.takes(spec)?;
        let mut jobs = spec.dependency.terms.iter().map(|t| t.job).filter(|job| *job > 0);
        if let Some(job) = jobs.find(|job| !self.book.jobs.contains_key(job)) {
            return Err(format!(
                "it is to wait for job {job}, which is not in the queue: it never was, or ended long ago"
            ));
        }
        Ok(())
    }

    /// Partition, quality and reservation are there, and for this user.
    fn takes(&self, spec: &mut Spec) -> Result<(), String> {
        let user = &spec.user;
        let may = |users: &[String]| users.is_empty() || users.contains(user);
        let named = spec.request.partition.as_deref();
        match (self.settings.partition(named), named) {
            (None, Some(name)) if name != self.settings.usual() => {
                let all: Vec<&str> = self.settings.partitions.keys().map(String::as_str).collect();
                let known = if all.is_empty() { self.settings.usual().to_owned() } else { all.join(", ") };
                return Err(format!(
                    "there is no partition {name}, there is {known}: leave out --partition, or name that"
                ));
            }
            (Some(p), _) if p.closed => return Err("this partition takes no new jobs".into()),
            (Some(p), _) if !may(&p.users) => return Err(format!("{user} may not use this partition")),
            (Some(p), _) => {
                spec.limit_ms = spec.limit_ms.or(p.default_ms).or(p.most_ms);
                if p.most_ms.is_some_and(|most| spec.limit_ms.is_none_or(|ms| ms > most)) {
                    let most = crate::times::show(p.most_ms);
                    return Err(format!("this partition's longest time is {most}: ask for less (--time)"));
                }
            }
            (None, _) => {}
        }
        if let Some(name) = &spec.quality {
            self.settings.quality_for(user, name)?;
        }
        if let Some(name) = &spec.request.reservation {
            let reservation = self.book.reservations.get(name);
            let reservation = reservation.ok_or_else(|| format!("there is no reservation {name} (--reservation)"))?;
            if !reservation.users.contains(user) {
                return Err(format!("reservation {name} is not for {user}"));
            }
        }
        Ok(())
    }

    /// Tasks of a job that have nodes and that an id means.
    fn runs_of(&self, id: Id) -> Vec<Task> {
        let Some(job) = self.book.jobs.get(&id.job) else { return Vec::new() };
        let tasks = job.running.keys().filter(|task| id.task.is_none_or(|t| job.is_array() && t == **task));
        tasks.map(|task| (id.job, *task)).collect()
    }

    fn cancel(&mut self, id: Id, by: &str) {
        let job = &self.book.jobs[&id.job];
        let waiting = job.meant(id, &job.waiting);
        if !waiting.is_empty() {
            self.over(id.job, waiting, State::Cancelled);
        }
        for task in self.runs_of(id) {
            self.end(task, Cause::Cancelled(by.to_owned()));
        }
    }

    fn give_back(&mut self, job: u64) {
        if !self.book.jobs[&job].spec.tied {
            return self.refuse(format!("job {job} is no allocation: `pando cancel` ends it"));
        }
        let waiting = self.book.jobs[&job].waiting.clone();
        if !waiting.is_empty() {
            self.over(job, waiting, State::Cancelled);
        }
        self.runs_of(Id::of(job)).into_iter().for_each(|task| self.end(task, Cause::GivenBack));
    }

    /// Tasks that wait won't start.
    pub(crate) fn over(&mut self, job: u64, tasks: Tasks, state: State) {
        self.write(Change::Over(job, tasks, state));
        self.tell_if_over(job);
    }

    /// A task that has nodes is to end. One that was told so hears it again only if somebody wants it to end for good and it would have come back.
    pub(crate) fn end(&mut self, task: Task, cause: Cause) {
        let Some(run) = self.book.run(task) else { return };
        let comes_back = |cause: &Cause| matches!(cause, Cause::Requeue { .. } | Cause::NodeFail(_));
        if run.ending.as_ref().is_some_and(|before| !comes_back(before) || comes_back(&cause)) {
            return;
        }
        let (number, id) = (run.run, self.book.jobs[&task.0].name_of(task.1));
        self.write(Change::Ending(task.0, task.1, cause.clone()));
        self.effects.push(Effect::End(id, number, cause));
    }

    fn hold(&mut self, id: Id, operator: bool) {
        let job = &self.book.jobs[&id.job];
        let tasks = job.meant(id, &job.waiting.without(&job.held));
        let all = if tasks.is_empty() && operator && !job.held_by_operator { job.meant(id, &job.held) } else { tasks };
        match all.is_empty() {
            true => self.refuse(format!("nothing of job {id} waits that is not held")),
            false => self.write(Change::Held(id.job, all, operator)),
        }
    }

    fn release(&mut self, id: Id, operator: bool) {
        let job = &self.book.jobs[&id.job];
        let tasks = job.meant(id, &job.held);
        match tasks.is_empty() {
            _ if job.held_by_operator && !operator => {
                self.refuse(format!("an operator holds job {id}, and has to release it"))
            }
            true => self.refuse(format!("nothing of job {id} is held")),
            false => self.write(Change::Released(id.job, tasks)),
        }
    }

    fn requeue(&mut self, id: Id, hold: bool) {
        let job = &self.book.jobs[&id.job];
        let mut ended = Tasks::default();
        job.over.values().for_each(|tasks| ended.extend(&job.meant(id, tasks)));
        let running = self.runs_of(id);
        if ended.is_empty() && running.is_empty() {
            return self.refuse(format!("job {id} waits already"));
        }
        if !ended.is_empty() {
            self.write(Change::Revived(id.job, ended, hold));
        }
        running.into_iter().for_each(|task| self.end(task, Cause::Requeue { hold }));
    }

    fn park(&mut self, id: Id, still: bool) {
        let all = self.runs_of(id);
        let is_meant = |task: &Task| self.book.run(*task).is_some_and(|r| r.ending.is_none() && r.parked != still);
        let meant: Vec<Task> = all.into_iter().filter(is_meant).collect();
        if meant.is_empty() {
            let what = if still { "runs" } else { "was suspended by an operator" };
            return self.refuse(format!("nothing of job {id} {what}"));
        }
        for task in meant {
            let Some(run) = self.book.run(task).cloned() else { continue };
            self.write(Change::Parked(task.0, task.1, still));
            // Who is let go goes on with a pass that finds his CPUs free.
            if still && run.suspended_at.is_none() {
                self.write(Change::Suspended(task.0, task.1));
                self.effects.push(Effect::Suspend(self.book.jobs[&task.0].name_of(task.1), run.run));
            }
        }
    }

    fn update(&mut self, id: u64, update: Update) {
        let job = &self.book.jobs[&id];
        if let Err(why) = update.fits(job) {
            return self.refuse(why);
        }
        let mut spec = job.spec.clone();
        update.apply(&mut spec);
        let asks = spec.request != job.spec.request || spec.quality != job.spec.quality;
        let checked = spec.check().and_then(|()| if asks { self.takes(&mut spec) } else { Ok(()) });
        if let Err(why) = checked {
            return self.refuse(why);
        }
        match self.impossible(&spec.request).filter(|_| asks) {
            Some(why) => self.refuse(format!("Requested node configuration is not available: {why}")),
            None => self.write(Change::Updated(id, update)),
        }
    }

    fn node_seen(&mut self, node: Node) {
        let before = self.nodes.get(&node.name);
        self.stirred |= before != Some(&node);
        // What it has on it and whether it takes jobs is no matter there.
        let has = |n: &Node| Node { busy: 0, drained: false, silent: false, ..n.clone() };
        if before.map(has) != Some(has(&node)) {
            self.judged.clear();
        }
        self.nodes.insert(node.name.clone(), node);
    }

    fn node_lost(&mut self, name: &str) {
        self.stirred |= self.nodes.remove(name).is_some();
        self.judged.clear();
        // Those that were on their way there come back to their home, or are lost: that says which.
        let was_there = |run: &Run| run.away.as_ref().is_some_and(|a| a.node == name && a.phase != Phase::Going);
        let there = |run: &Run| run.shares.iter().any(|s| s.node == name) || was_there(run);
        let lost: Vec<Task> =
            self.runs().filter(|(_, _, run)| there(run)).map(|(job, task, _)| (job.id, task)).collect();
        lost.into_iter().for_each(|task| self.end(task, Cause::NodeFail(name.to_owned())));
    }

    /// When a run was over: nobody knows of what ran at a node that was lost after it was last heard.
    fn over_at(&self, run: &Run, how: &How) -> u64 {
        let lost = match (how, &run.ending) {
            (How::NodeLost(name), _) | (_, Some(Cause::NodeFail(name))) => name,
            _ => return self.now,
        };
        let is_lost = !matches!(how, How::Exit(_) | How::Signal(_) | How::OutOfMemory);
        // What was said before it began is of another time. It may have begun just after its node was last heard.
        let heard = self.heard.get(lost).filter(|(_, said)| is_lost && *said > run.started);
        heard.map_or(self.now, |(at, _)| (*at).max(run.started)).min(self.now)
    }

    fn reserve(&mut self, reservation: Reservation) {
        let Reservation { name, nodes, begin, end, .. } = &reservation;
        match begin < end && !name.is_empty() && name.len() <= 256 && nodes.len() <= 65_536 {
            true => self.write(Change::Reserved(reservation)),
            false => self.refuse(format!(
                "reservation {name} has no name, no time between its begin and its end, or too many nodes"
            )),
        }
    }

    /// The task that an id and a number of a run mean, if that is what it is at now.
    pub(crate) fn run_of(&self, id: Id, run: u32) -> Option<Task> {
        let task = (id.job, id.task.unwrap_or(0));
        let same = |job: &&Job| job.name_of(task.1) == id;
        self.book.jobs.get(&id.job).filter(same)?;
        self.book.run(task).filter(|r| r.run == run).map(|_| task)
    }

    fn began(&mut self, id: Id, run: u32) {
        let Some(task) = self.run_of(id, run) else { return };
        if self.book.run(task).is_some_and(|r| r.began.is_none()) {
            self.write(Change::Began(task.0, task.1));
            self.tell(id, Event::Begun);
        }
    }

    fn step(&mut self, id: Id, run: Option<u32>, user: &str, step: Step) {
        let number = run.or_else(|| self.book.run((id.job, id.task.unwrap_or(0))).map(|run| run.run));
        let task = number.and_then(|number| self.run_of(id, number));
        let of_user = |task: &Task| self.book.jobs.get(&task.0).is_some_and(|job| job.spec.user == user);
        if let Some(task) = task.filter(of_user).filter(|_| step.is_sound()) {
            self.write(Change::Stepped(task.0, task.1, Box::new(step)));
        }
    }

    fn ended(&mut self, id: Id, number: u32, how: How, mut usage: Usage) {
        let Some(task) = self.run_of(id, number) else { return };
        // Of a short one its end may be heard of first.
        if matches!(how, How::Exit(_) | How::Signal(_) | How::OutOfMemory) {
            self.began(id, number);
        }
        let Some(mut run) = self.book.run(task).cloned() else { return };
        let at = self.over_at(&run, &how);
        run.steps.close(at);
        usage.add(&run.steps.away);
        // Who holds its nodes has no end of its own.
        let how = if run.ending == Some(Cause::GivenBack) { How::Exit(0) } else { how };
        let (state, again) = self.verdict(task, &run, &how);
        match again {
            Some((not_before, hold)) => self.write_at(at, Change::Requeued(task.0, task.1, not_before, hold)),
            None => self.write_at(at, Change::Ended(task.0, task.1, state, how.clone(), usage)),
        }
        let spec = self.book.jobs.get(&task.0).map(|job| (job.spec.directory.clone(), job.spec.files.clone()));
        let (directory, files) = spec.unwrap_or_default();
        let asked = self.asked(task.0, task.1).unwrap_or_default();
        let outcome = Outcome { id, state, how, usage, run, ended: at, directory, files, asked };
        self.effects.push(Effect::Outcome(Box::new(outcome)));
        match again {
            Some(_) => self.tell(id, Event::Requeued),
            None => {
                let each = self.book.jobs.get(&task.0).is_some_and(|j| j.is_array() && j.spec.tell.each_task);
                if each {
                    self.tell(id, Event::Ended(state));
                }
                self.tell_if_over(task.0);
            }
        }
    }

    /// What a task has come to, and whether it waits again: not before when, and held or not.
    fn verdict(&self, task: Task, run: &Run, how: &How) -> (State, Option<(u64, bool)>) {
        let tries_left = run.run + 1 < self.settings.runs;
        let may = self.book.jobs.get(&task.0).is_some_and(|job| job.spec.requeue);
        let node_lost = if may && tries_left { (State::Requeued, Some((0, false))) } else { (State::NodeFail, None) };
        match (&run.ending, how) {
            (Some(Cause::Cancelled(_)), _) => (State::Cancelled, None),
            (Some(Cause::GivenBack), _) => (State::Completed, None),
            (Some(Cause::Timeout), _) => (State::Timeout, None),
            (Some(Cause::Deadline), _) => (State::Deadline, None),
            (Some(Cause::Requeue { hold }), _) => (State::Requeued, Some((0, *hold))),
            // It was cut off, and its work was done all the same.
            (Some(Cause::NodeFail(_)), How::Exit(0)) => (State::Completed, None),
            (Some(Cause::NodeFail(_)), _) | (None, How::NodeLost(_)) => node_lost,
            (None, How::NotBegun(_)) => {
                let later = self.settings.again_ms.saturating_mul(1 << run.run.min(16));
                (State::Requeued, Some((self.now.saturating_add(later), !tries_left)))
            }
            (None, How::Exit(0)) => (State::Completed, None),
            (None, How::OutOfMemory) => (State::OutOfMemory, None),
            (None, How::Exit(_) | How::Signal(_) | How::CantBegin(_)) => (State::Failed, None),
        }
    }

    fn tell_if_over(&mut self, job: u64) {
        let Some(state) = self.book.jobs.get(&job).and_then(Book::result) else { return };
        self.tell(Id::of(job), Event::Ended(state));
    }

    fn tell(&mut self, id: Id, event: Event) {
        let Some(job) = self.book.jobs.get(&id.job) else { return };
        let tell = &job.spec.tell;
        let begun = job.running.values().filter(|run| run.began.is_some()).count();
        let first = tell.each_task || id.task.is_none() || job.over.is_empty() && begun == 1;
        let wanted = match event {
            Event::Begun => tell.begin && first,
            Event::Ended(State::Completed) => tell.end,
            Event::Ended(_) => tell.end || tell.fail,
            Event::Requeued => tell.requeue,
        };
        if wanted && (tell.mail.is_some() || tell.webhook.is_some()) {
            self.effects.push(Effect::Notify(id, event));
        }
    }
}
