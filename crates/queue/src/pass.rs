//! One look at who can start: in the order of priority, those who can't are overtaken by those who delay nobody.

use crate::array::Tasks;
use crate::book::Task;
use crate::change::{Change, Effect};
use crate::depend::{Kind, Standing};
use crate::explain::Why;
use crate::job::{Job, Share, State};
use crate::plan::{Choice, Free, Need, Plan};
use crate::queue::Queue;
use crate::settings::Policy;
use crate::spec::Request;
use crate::tick::Earliest;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// What of a request says which nodes it may have: partition, excluded ones, features, reservation.
type Where = (Option<String>, Vec<String>, Vec<String>, Option<String>);

/// Everything of one pass that is not stored.
pub(crate) struct Pass {
    pub(crate) plan: Plan,
    /// Needs, and the shortest time for which nothing was found.
    pub(crate) shapes: Vec<(Result<Need, Why>, u64)>,
    of_request: HashMap<Request, usize>,
    lines: HashMap<Where, Rc<Vec<u32>>>,
    /// What is in use of what the cluster has so many of.
    licences: BTreeMap<String, u32>,
    /// CPUs of a quality's user.
    cpus_of: BTreeMap<(String, String), u64>,
    /// Names that somebody waits for the earlier ones of: (user, name) and the earliest job.
    earliest: Earliest,
}

/// How long a job takes at most.
pub(crate) fn longest(job: &Job) -> u64 {
    job.spec.limit_ms.unwrap_or(u64::MAX / 2)
}

impl Pass {
    pub(crate) fn new(queue: &Queue) -> Pass {
        let mut pass = Pass {
            plan: Plan::new(queue, None),
            shapes: Vec::new(),
            of_request: HashMap::new(),
            lines: HashMap::new(),
            licences: BTreeMap::new(),
            cpus_of: BTreeMap::new(),
            earliest: Earliest::new(),
        };
        for (job, _, run) in queue.runs() {
            pass.uses(queue, job, run.cpus());
        }
        let single = |job: &Job| job.spec.dependency.terms.iter().any(|t| t.kind == Kind::Singleton);
        if queue.waiting().any(single) {
            for job in queue.jobs().filter(|job| !job.is_over()) {
                let key = (job.spec.user.clone(), job.spec.name.clone());
                pass.earliest.entry(key).or_insert(job.id);
            }
        }
        pass
    }

    fn uses(&mut self, queue: &Queue, job: &Job, cpus: u64) {
        for licence in &job.spec.request.licences {
            *self.licences.entry(licence.kind.clone()).or_default() += licence.count;
        }
        if let Some(name) = &job.spec.quality
            && queue.settings.quality(Some(name)).cpus_each.is_some()
        {
            *self.cpus_of.entry((name.clone(), job.spec.user.clone())).or_default() += cpus;
        }
    }

    /// The need of a request, as a number.
    pub(crate) fn shape(&mut self, queue: &Queue, request: &Request) -> usize {
        if let Some(shape) = self.of_request.get(request) {
            return *shape;
        }
        let need = self.need(queue, request);
        self.shapes.push((need, u64::MAX));
        self.of_request.insert(request.clone(), self.shapes.len() - 1);
        self.shapes.len() - 1
    }

    pub(crate) fn need_of(&self, shape: usize) -> Result<&Need, &Why> {
        self.shapes[shape].0.as_ref()
    }

    fn need(&mut self, queue: &Queue, request: &Request) -> Result<Need, Why> {
        let nodes = request.least_nodes();
        let each = match (request.ranks, request.ranks_per_node) {
            (Some(_), Some(each)) => (1, each),
            (None, Some(each)) => (each, each),
            (Some(_), None) => (1, u32::MAX),
            // One on each, if nothing is said.
            (None, None) => (1, 1),
        };
        let gres = self.plan.counts(&request.gres).map_err(Why::NoSuchGres)?;
        let number = |name: &String| queue.book.reservations.keys().position(|n| n == name);
        let reservation = match &request.reservation {
            Some(name) => Some(number(name).ok_or_else(|| Why::NoReservation(name.clone()))?),
            None => None,
        };
        let lines = self.lines(queue, request);
        let wanted = request.wanted.iter().map(|name| {
            let line = self.plan.line(name).filter(|l| lines.contains(l));
            line.ok_or_else(|| Why::NodeNotThere(name.clone()))
        });
        let wanted = wanted.collect::<Result<Vec<u32>, Why>>()?;
        let need = Need {
            cpus: request.cpus_per_rank.max(1),
            turns: queue.settings.turns.max(1),
            each,
            ranks: request.least_ranks(),
            nodes: (nodes, request.nodes_max.unwrap_or(u32::MAX)),
            memory: request.memory,
            memory_per_cpu: request.memory_per_cpu,
            gres,
            exclusive: request.exclusive,
            lines,
            wanted,
            reservation,
        };
        Ok(need)
    }

    /// Lines that a request may have: of its partition and its reservation, with its features, not excluded.
    fn lines(&mut self, queue: &Queue, request: &Request) -> Rc<Vec<u32>> {
        let Request { partition, excluded, features, reservation, .. } = request;
        let key = (partition.clone(), excluded.clone(), features.clone(), reservation.clone());
        if let Some(lines) = self.lines.get(&key) {
            return lines.clone();
        }
        let of = |names: &[String]| -> Vec<bool> {
            let mut all = vec![names.is_empty(); self.plan.lines.len()];
            names.iter().filter_map(|n| self.plan.line(n)).for_each(|l| all[l as usize] = true);
            all
        };
        let in_partition = of(queue.settings.partition(partition.as_deref()).map_or(&[], |p| &p.nodes));
        let reserved = reservation.as_ref().and_then(|name| queue.book.reservations.get(name));
        let in_reservation = of(reserved.map_or(&[], |r| &r.nodes));
        let fits = |line: &usize| {
            let name = &self.plan.lines[*line].name;
            let has = |f: &String| queue.nodes.get(name).is_some_and(|n| n.features.contains(f));
            in_partition[*line] && in_reservation[*line] && !excluded.contains(name) && features.iter().all(has)
        };
        let lines: Rc<Vec<u32>> = Rc::new((0..self.plan.lines.len()).filter(fits).map(|l| l as u32).collect());
        self.lines.insert(key, lines.clone());
        lines
    }

    /// What, besides nodes, is in the way of a job: and otherwise the tasks that may start.
    pub(crate) fn hurdle(&self, queue: &Queue, job: &Job) -> Result<Tasks, Why> {
        let mut tasks = if job.held.is_empty() { job.waiting.clone() } else { job.waiting.without(&job.held) };
        if tasks.is_empty() {
            return Err(Why::Held { operator: job.held_by_operator });
        }
        if job.not_before > queue.now {
            return Err(Why::NotBefore { at: job.not_before, again: !job.again.is_empty() });
        }
        let dependency = &job.spec.dependency;
        if !dependency.terms.is_empty() {
            if queue.standing(job, None, &self.earliest) != Standing::Met {
                return Err(Why::Depends(dependency.to_string()));
            }
            for term in dependency.terms.iter().filter(|t| t.kind == Kind::AfterCorr && !dependency.any) {
                let well =
                    queue.job(term.job).map(|other| other.over.get(&State::Completed).cloned().unwrap_or_default());
                tasks = well.map_or(tasks.clone(), |well| tasks.both(&well));
            }
            if tasks.is_empty() {
                return Err(Why::Depends(dependency.to_string()));
            }
        }
        let at_once = job.spec.array.as_ref().and_then(|a| a.at_once);
        if let Some(most) = at_once.filter(|most| job.running.len() as u64 >= u64::from(*most)) {
            return Err(Why::AtOnce { most });
        }
        self.counted(queue, job)?;
        Ok(tasks)
    }

    /// What the cluster or a quality has only so much of.
    fn counted(&self, queue: &Queue, job: &Job) -> Result<(), Why> {
        for licence in &job.spec.request.licences {
            let all = queue.settings.licences.iter().find(|l| l.kind == licence.kind).map_or(0, |l| l.count);
            let used = self.licences.get(&licence.kind).copied().unwrap_or(0);
            if used.saturating_add(licence.count) > all {
                return Err(Why::Licences { kind: licence.kind.clone(), wants: licence.count, used, all });
            }
        }
        let Some(name) = &job.spec.quality else { return Ok(()) };
        let most = queue.settings.quality(Some(name)).cpus_each;
        let used = self.cpus_of.get(&(name.clone(), job.spec.user.clone())).copied().unwrap_or(0);
        match most {
            Some(most) if used + job.spec.request.least_cpus() > most => {
                Err(Why::QualityCpus { quality: name.clone(), used, most })
            }
            _ => Ok(()),
        }
    }
}

/// What happened with a job in a pass.
enum Went {
    /// All that may start has.
    Started,
    /// It finds no nodes.
    NoRoom(usize),
    /// Something else is in its way, or the pass is over.
    Else,
}

/// The state of a pass beside its plan.
pub(crate) struct Count {
    starts: usize,
    tries: usize,
    /// How often it was looked whether others could give way.
    pub(crate) looks: usize,
    /// What got a place in the future: shape, choice, when, how long.
    pub(crate) held: Vec<(usize, Choice, u64, u64)>,
}

impl Queue {
    /// Starts who can; there is more to do when it says so.
    pub(crate) fn pass(&mut self) -> bool {
        if self.nodes.is_empty() || self.book.waiting.is_empty() && self.book.running.is_empty() {
            return false;
        }
        let mut pass = Pass::new(self);
        let order = self.order();
        let mut count = Count { starts: 0, tries: 0, looks: 0, held: Vec::new() };
        let reserved = match self.settings.policy {
            Policy::Fcfs => 0,
            Policy::Easy => 1,
            Policy::Conservative => self.settings.reserved,
        };
        let mut closed = false;
        for place in order {
            // What stands still may hold what the first one waits for, so it goes on even where nobody overtakes.
            if let Some(task) = place.suspended {
                self.go_on(&mut pass, (place.job, task));
                continue;
            }
            if closed {
                continue;
            }
            match self.start_tasks(&mut pass, &mut count, place.job) {
                Went::NoRoom(shape) if count.held.len() < reserved => {
                    self.hold_place(&mut pass, &mut count, shape, place.job);
                }
                // One that no node could take keeps nobody waiting.
                Went::NoRoom(shape) if reserved == 0 => closed = self.possible(&pass, shape, place.job),
                _ => {}
            }
            // There is another pass at once.
            if count.starts >= self.settings.starts_at_once {
                return true;
            }
            closed |= count.tries >= self.settings.tries;
        }
        self.settle(&mut pass);
        false
    }

    fn possible(&self, pass: &Pass, shape: usize, job: u64) -> bool {
        let ms = self.job(job).map_or(0, longest);
        pass.need_of(shape).is_ok_and(|need| pass.plan.earliest(need, ms).is_some())
    }

    /// Gives a job that can't start now a place in the future, which those behind it do not get.
    fn hold_place(&self, pass: &mut Pass, count: &mut Count, shape: usize, job: u64) {
        let ms = self.job(job).map_or(0, longest);
        let Ok(need) = pass.need_of(shape).cloned() else { return };
        if let Some((at, choice)) = pass.plan.earliest(&need, ms) {
            pass.plan.take(&need, &choice, at, ms);
            count.held.push((shape, choice, at, ms));
        }
    }

    fn start_tasks(&mut self, pass: &mut Pass, count: &mut Count, id: u64) -> Went {
        let Some(job) = self.book.jobs.get(&id) else { return Went::Else };
        let Ok(tasks) = pass.hurdle(self, job) else { return Went::Else };
        let ms = longest(job);
        let most = job.spec.array.as_ref().and_then(|a| a.at_once).map_or(usize::MAX, |m| m as usize);
        let most = most.saturating_sub(job.running.len());
        let shape = pass.shape(self, &job.spec.request);
        let Ok(need) = pass.need_of(shape).cloned() else { return Went::Else };
        let level = self.settings.quality(job.spec.quality.as_deref()).level;
        let counts = !job.spec.request.licences.is_empty() || job.spec.quality.is_some();
        for task in tasks.iter().take(most) {
            if count.starts >= self.settings.starts_at_once {
                return Went::Else;
            }
            let job = &self.book.jobs[&id];
            if counts && pass.counted(self, job).is_err() {
                return Went::Else;
            }
            // Who asks for the same, for as long or longer, has found nothing.
            let known = pass.shapes[shape].1 <= ms;
            let choice = if known { None } else { pass.plan.choose(&need, self.now, ms) };
            count.tries += usize::from(!known);
            let choice = match choice {
                None if level > 0 => self.make_room(pass, count, &need, ms, level),
                choice => choice,
            };
            let Some(choice) = choice else {
                pass.shapes[shape].1 = pass.shapes[shape].1.min(ms);
                return Went::NoRoom(shape);
            };
            self.start(pass, &need, (id, task), &choice, ms);
            count.starts += 1;
        }
        Went::Started
    }

    fn start(&mut self, pass: &mut Pass, need: &Need, task: Task, choice: &Choice, ms: u64) {
        let shares: Vec<Share> =
            choice.iter().map(|(line, ranks)| self.share(&pass.plan, need, task.0, *line, *ranks)).collect();
        let cpus = shares.iter().map(|s| u64::from(s.cpus)).sum();
        pass.plan.take(need, choice, self.now, ms);
        self.write(Change::Started(task.0, task.1, shares.clone()));
        let job = &self.book.jobs[&task.0];
        pass.uses(self, job, cpus);
        let (id, run) = (job.name_of(task.1), job.running[&task.1].run);
        self.effects.push(Effect::Start(id, run, shares));
    }

    fn share(&self, plan: &Plan, need: &Need, job: u64, line: u32, ranks: u32) -> Share {
        let line = &plan.lines[line as usize];
        let Free { cpus, memory, .. } = need.taken(ranks, &line.total);
        Share { node: line.name.clone(), ranks, cpus, memory, gres: self.book.jobs[&job].spec.request.gres.clone() }
    }

    /// Lets a task that stands still go on if its CPUs are free; otherwise keeps what is free of them for it.
    fn go_on(&mut self, pass: &mut Pass, task: Task) {
        let Some(run) = self.book.run(task) else { return };
        let (number, id) = (run.run, self.book.jobs[&task.0].name_of(task.1));
        let ms = longest(&self.book.jobs[&task.0]).saturating_sub(run.ran(self.now)).max(1);
        let held = run.holds().filter(|held| held.cpus > 0);
        let lines: Vec<(Option<u32>, u32)> = held.map(|held| (pass.plan.line(held.node), held.cpus)).collect();
        // A node that is drained, or not heard, has no line.
        let free = |(line, cpus): &(Option<u32>, u32)| line.is_none_or(|l| pass.plan.has(l, *cpus));
        let goes = lines.iter().all(free) && !self.drained_and_busy(task);
        for (line, cpus) in lines.iter().filter_map(|(line, cpus)| line.map(|l| (l, *cpus))) {
            pass.plan.take_of(line, &Free { cpus, ..Free::default() }, self.now, ms);
        }
        if goes {
            self.write(Change::Resumed(task.0, task.1));
            self.effects.push(Effect::Resume(id, number));
        }
    }

    /// Some node of a task that stands still takes no new jobs, and those that run there leave it no CPUs.
    fn drained_and_busy(&self, task: Task) -> bool {
        let Some(own) = self.book.run(task) else { return true };
        own.holds().filter(|held| held.cpus > 0).any(|own| {
            let Some(node) = self.nodes.get(own.node) else { return true };
            let running = self.runs().filter(|(_, _, run)| run.suspended_at.is_none() || run.ending.is_some());
            let on = running.flat_map(|(_, _, run)| run.holds()).filter(|held| held.node == own.node);
            (node.drained || node.silent)
                && on.map(|held| u64::from(held.cpus)).sum::<u64>() + u64::from(own.cpus) > u64::from(node.cpus)
        })
    }
}
