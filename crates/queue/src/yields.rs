//! Who gives way to jobs of a higher level, and how: moved to a node that has room for what they hold, where their quality has it so, and standing still
//! otherwise. Those that were moved come home when there is room.

use crate::away::Phase;
use crate::book::Task;
use crate::change::{Change, Effect};
use crate::job::{Id, Job, Run};
use crate::pass::{Count, Pass, longest};
use crate::plan::{Choice, Free, Need, Plan};
use crate::queue::Queue;
use crate::settings::Preempt;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often one pass looks whether others could give way to a job.
const LOOKS: usize = 16;

/// Where one may go, and what it takes there.
struct Way {
    node: String,
    line: u32,
    takes: Free,
    ms: u64,
}

impl Queue {
    /// Has tasks of a lower level give way where that makes room for a job. Its nodes, if it is there now: those that are to be moved are there first.
    pub(crate) fn make_room(
        &mut self,
        pass: &mut Pass,
        count: &mut Count,
        need: &Need,
        ms: u64,
        level: u8,
    ) -> Option<Choice> {
        if count.looks >= LOOKS {
            return None;
        }
        let lower = self.lower(level);
        if lower.is_empty() {
            return None;
        }
        count.looks += 1;
        let mut plan = Plan::new(self, Some(level));
        again(pass, count, &mut plan);
        let choice = plan.choose(need, self.now, ms)?;
        let mut short: BTreeMap<&str, u32> = BTreeMap::new();
        for (line, ranks) in &choice {
            let l = &pass.plan.lines[*line as usize];
            let missing = need.taken(*ranks, &l.total).cpus.saturating_sub(l.steps[0].1.cpus);
            short.insert(&plan.lines[*line as usize].name, missing);
        }
        let waits = self.leaving(&lower, &mut short);
        let mut scratch = pass.plan.clone();
        scratch.take(need, &choice, self.now, ms);
        let (mut goes, mut still) = (Vec::new(), Vec::new());
        for task in lower {
            let Some(run) = self.book.run(task).filter(|run| !run.is_moving()) else { continue };
            let is_short = |node: &str| short.get(node).is_some_and(|missing| *missing > 0);
            if !run.holds().any(|held| held.cpus > 0 && is_short(held.node)) {
                continue;
            }
            for held in run.holds() {
                if let Some(missing) = short.get_mut(held.node) {
                    *missing = missing.saturating_sub(held.cpus);
                }
            }
            match self.way_out(pass, &scratch, task) {
                Some(way) => {
                    scratch.take_of(way.line, &way.takes, self.now, way.ms);
                    goes.push((task, way));
                }
                None => still.push((task, run.run)),
            }
        }
        if short.values().any(|missing| *missing > 0) {
            // It is not CPUs of now that are in the way.
            return None;
        }
        // Who can't be moved stands still no sooner than the others are gone: only then it helps.
        let moves = waits || !goes.is_empty();
        goes.into_iter().for_each(|(task, way)| self.send(task, way.node));
        if !moves {
            still.into_iter().for_each(|(task, run)| self.stand_still(task, run));
        }
        let mut plan = Plan::new(self, None);
        again(pass, count, &mut plan);
        pass.plan = plan;
        // There may be room now where there was none.
        pass.shapes.iter_mut().for_each(|s| s.1 = u64::MAX);
        (!moves).then_some(choice)
    }

    /// Tasks below a level that run: the least of them first, and of those the ones that have run least.
    fn lower(&self, level: u8) -> Vec<Task> {
        let mut lower = Vec::new();
        for (job, task, run) in self.runs() {
            let of = self.settings.quality(job.spec.quality.as_deref()).level;
            if of < level && run.ending.is_none() && run.suspended_at.is_none() {
                lower.push((of, Reverse(run.started), (job.id, task)));
            }
        }
        lower.sort_unstable();
        lower.into_iter().map(|(_, _, task)| task).collect()
    }

    /// Takes from what is short what those leave that are on their way; whether there are such.
    fn leaving(&self, lower: &[Task], short: &mut BTreeMap<&str, u32>) -> bool {
        let mut some = false;
        for held in lower.iter().filter_map(|task| self.book.run(*task)).flat_map(Run::holds).filter(|h| h.leaves) {
            if let Some(missing) = short.get_mut(held.node).filter(|missing| **missing > 0) {
                *missing = missing.saturating_sub(held.cpus);
                some = true;
            }
        }
        some
    }

    fn stand_still(&mut self, task: Task, run: u32) {
        let id = self.book.jobs[&task.0].name_of(task.1);
        self.write(Change::Suspended(task.0, task.1));
        self.effects.push(Effect::Suspend(id, run));
    }

    fn send(&mut self, task: Task, node: String) {
        let Some(run) = self.book.run(task).map(|run| run.run) else { return };
        let id = self.book.jobs[&task.0].name_of(task.1);
        self.write(Change::Sent(task.0, task.1, node.clone()));
        self.effects.push(Effect::Place(id, run, node));
    }

    /// What may be moved at all: one node's processes, and nothing that only that node has.
    fn may_move(&self, job: &Job, run: &Run) -> bool {
        let request = &job.spec.request;
        let plain = !request.exclusive && request.wanted.is_empty() && request.gres.is_empty() && !job.spec.tied;
        let runs = run.began.is_some() && run.ending.is_none() && run.suspended_at.is_none() && !run.is_moving();
        // Where jobs share CPUs by turns it is their steps that take them, as gangs.
        let alone = self.settings.turns <= 1;
        plain && runs && alone && run.shares.len() == 1 && !run.is_rooted(self.now)
    }

    /// Where a task may go from where it computes: home from elsewhere, and elsewhere from home if its quality has it so.
    fn way_out(&self, pass: &mut Pass, plan: &Plan, task: Task) -> Option<Way> {
        let job = self.book.jobs.get(&task.0)?;
        let run = job.running.get(&task.1).filter(|run| self.may_move(job, run))?;
        let share = run.shares.first()?;
        let home = plan.line(&share.node);
        let shape = pass.shape(self, &job.spec.request);
        let need = pass.need_of(shape).ok()?.clone();
        let (each, nodes) = ((share.ranks, share.ranks), (1, 1));
        let mut need = Need { each, nodes, ranks: share.ranks, wanted: Vec::new(), ..need };
        if run.away.is_some() {
            // Its memory is there.
            (need.memory, need.memory_per_cpu, need.lines) = (0, 0, Rc::new(home.into_iter().collect()));
        } else if self.settings.quality(job.spec.quality.as_deref()).preempt == Preempt::Move {
            need.lines = Rc::new(need.lines.iter().copied().filter(|line| Some(*line) != home).collect());
        } else {
            return None;
        }
        let ms = longest(job).saturating_sub(run.ran(self.now)).max(1);
        let (line, _) = plan.choose(&need, self.now, ms)?.first().copied()?;
        let (memory, cpus) = (if run.away.is_some() { 0 } else { share.memory }, share.cpus);
        let takes = Free { cpus, memory, ..Free::default() };
        Some(Way { node: plan.lines[line as usize].name.clone(), line, takes, ms })
    }

    /// At the end of a pass, when all who wait have had their look: who is away comes home if there is room, and who computes at a node that takes no
    /// jobs goes, if he can.
    pub(crate) fn settle(&mut self, pass: &mut Pass) {
        let (now, after) = (self.now, self.settings.home_after_ms);
        let drained = |node: &str| self.nodes.get(node).is_some_and(|node| node.drained);
        let is_due = |run: &Run| match &run.away {
            Some(away) => {
                away.phase == Phase::There && (away.since.saturating_add(after) <= now || drained(&away.node))
            }
            None => run.home().is_some_and(drained),
        };
        let due: Vec<Task> =
            self.runs().filter(|(_, _, run)| is_due(run)).map(|(job, task, _)| (job.id, task)).collect();
        if due.is_empty() {
            return;
        }
        let mut plan = pass.plan.clone();
        for task in due {
            if let Some(way) = self.way_out(pass, &plan, task) {
                plan.take_of(way.line, &way.takes, now, way.ms);
                self.send(task, way.node);
            }
        }
        pass.plan = plan;
    }

    /// The node has done what [`Effect::Place`] wanted, or not.
    pub(crate) fn placed(&mut self, id: Id, number: u32, node: &str, how: Result<(), String>) {
        let Some(task) = self.run_of(id, number) else { return };
        if self.book.run(task).is_none_or(|run| run.goes_to() != Some(node)) {
            return;
        }
        let (job, task, node) = (task.0, task.1, node.to_owned());
        self.write(match how {
            Ok(()) => Change::Placed(job, task, node),
            Err(why) => Change::Stayed(job, task, node, why),
        });
    }
}

/// Takes the places in the future once more that a pass has given.
fn again(pass: &Pass, count: &Count, plan: &mut Plan) {
    for (shape, choice, at, ms) in &count.held {
        if let Ok(need) = &pass.shapes[*shape].0 {
            plan.take(need, choice, *at, *ms);
        }
    }
}
