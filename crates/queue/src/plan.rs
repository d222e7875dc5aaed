//! What is free on each node, now and later: a line of steps for each node. Jobs that run give back what they have when their time is over,
//! reservations take what they have for as long as they last.

use crate::away::Holds;
use crate::gres::Gres;
use crate::queue::Queue;
use std::collections::HashMap;

/// Kinds of generic resources that a cluster has at most.
const KINDS: usize = 8;

/// What is free, or taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) cpus: u32,
    pub(crate) memory: u64,
    pub(crate) gres: [u32; KINDS],
}

impl Free {
    fn less(self, other: &Free) -> Free {
        let mut gres = self.gres;
        gres.iter_mut().zip(other.gres).for_each(|(g, o)| *g = g.saturating_sub(o));
        Free { cpus: self.cpus.saturating_sub(other.cpus), memory: self.memory.saturating_sub(other.memory), gres }
    }

    /// Of something there is less.
    pub(crate) fn is_less(&self, other: &Free) -> bool {
        let gres = self.gres.iter().zip(&other.gres).any(|(a, b)| a < b);
        self.cpus < other.cpus || self.memory < other.memory || gres
    }

    fn more(self, other: &Free) -> Free {
        let mut gres = self.gres;
        gres.iter_mut().zip(other.gres).for_each(|(g, o)| *g = g.saturating_add(o));
        Free { cpus: self.cpus.saturating_add(other.cpus), memory: self.memory.saturating_add(other.memory), gres }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) total: Free,
    /// From when what is free; the first is from now.
    pub(crate) steps: Vec<(u64, Free)>,
    /// For nobody but a reservation's own: from, until, which.
    pub(crate) closed: Vec<(u64, u64, usize)>,
}

impl Line {
    /// Ranks that it has room for, for so long from then on.
    pub(crate) fn room(&self, need: &Need, from: u64, ms: u64) -> u32 {
        let until = from.saturating_add(ms);
        let shut = |c: &(u64, u64, usize)| c.0 < until && c.1 > from && need.reservation != Some(c.2);
        if self.closed.iter().any(shut) {
            return 0;
        }
        // From the step that it begins in.
        let first = self.steps.partition_point(|s| s.0 <= from).saturating_sub(1);
        let mut room = u32::MAX;
        for (i, (at, free)) in self.steps[first..].iter().enumerate() {
            if i > 0 && *at >= until {
                break;
            }
            room = room.min(need.fits(free, &self.total));
            if room < need.each.0 {
                return 0;
            }
        }
        room
    }

    /// If nothing else ran, it might have room.
    pub(crate) fn could_fit(&self, need: &Need) -> bool {
        need.fits(&self.total, &self.total) >= need.each.0
    }
}

/// What a job needs of lines: made of a [`Request`](crate::Request) once, however many jobs have the same.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// How often each CPU is counted.
    pub(crate) turns: u32,
    pub(crate) cpus: u32,
    /// Ranks of each node: at least, at most.
    pub(crate) each: (u32, u32),
    /// Ranks in all.
    pub(crate) ranks: u32,
    /// Nodes: at least, at most.
    pub(crate) nodes: (u32, u32),
    pub(crate) memory: u64,
    pub(crate) memory_per_cpu: u64,
    pub(crate) gres: [u32; KINDS],
    pub(crate) exclusive: bool,
    /// Lines that it may have.
    pub(crate) lines: std::rc::Rc<Vec<u32>>,
    /// Lines that it must have.
    pub(crate) wanted: Vec<u32>,
    /// The reservation that it is in.
    pub(crate) reservation: Option<usize>,
}

/// Lines and ranks.
pub(crate) type Choice = Vec<(u32, u32)>;

impl Need {
    /// How many ranks what is free is enough for.
    fn fits(&self, free: &Free, total: &Free) -> u32 {
        if self.memory > free.memory || self.gres.iter().zip(&free.gres).any(|(n, f)| n > f) {
            return 0;
        }
        let cpus = match self.exclusive {
            true if free.cpus < total.cpus => return 0,
            true => total.cpus,
            false => free.cpus,
        };
        // No rank has its job's CPU a second time, though there are as many turns.
        let own = cpus.min(total.cpus / self.turns);
        let by_cpus = (own / self.cpus).min(self.each.1);
        let each = self.memory_per_cpu.saturating_mul(u64::from(self.cpus));
        let by_memory = free.memory.checked_div(each).unwrap_or(u64::MAX);
        by_cpus.min(by_memory.min(u64::from(u32::MAX)) as u32)
    }

    /// What so many ranks take of a node.
    pub(crate) fn taken(&self, ranks: u32, total: &Free) -> Free {
        let cpus = ranks.saturating_mul(self.cpus);
        let memory = self.memory.max(self.memory_per_cpu.saturating_mul(u64::from(cpus)));
        Free { cpus: if self.exclusive { total.cpus } else { cpus }, memory, gres: self.gres }
    }
}

/// Those that are on their way elsewhere are reckoned with for so long: nobody else is to begin meanwhile in the place that they make.
const MOVES_MS: u64 = 1_000;

/// What others than this queue's jobs use now is reckoned with for so long: nobody says when they end.
const OTHERS_MS: u64 = 10 * crate::times::MINUTE;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) now: u64,
    pub(crate) lines: Vec<Line>,
    pub(crate) kinds: Vec<String>,
    index: HashMap<String, u32>,
    /// CPUs that are free now, of each line.
    free: Vec<u32>,
}

impl Plan {
    /// Of all nodes that take jobs. Tasks of a lower level than `above` count as if they stood still.
    pub(crate) fn new(queue: &Queue, above: Option<u8>) -> Plan {
        let mut kinds: Vec<String> = Vec::new();
        for gres in queue.nodes.values().flat_map(|n| &n.gres) {
            if !kinds.contains(&gres.kind) && kinds.len() < KINDS {
                kinds.push(gres.kind.clone());
            }
        }
        let mut plan = Plan { now: queue.now, lines: Vec::new(), kinds, index: HashMap::new(), free: Vec::new() };
        for node in queue.nodes.values().filter(|n| !n.drained && !n.silent) {
            let total = Free { cpus: node.cpus, memory: node.memory, gres: plan.gres(&node.gres) };
            plan.index.insert(node.name.clone(), plan.lines.len() as u32);
            plan.lines.push(Line { name: node.name.clone(), total, steps: Vec::new(), closed: Vec::new() });
        }
        let mut ends = plan.ends(queue, above);
        let until = queue.now.saturating_add(OTHERS_MS);
        for node in queue.nodes.values().filter(|n| n.busy > 0) {
            if let Some(line) = plan.line(&node.name) {
                let (ends, total) = (&mut ends[line as usize], node.cpus);
                let mine: u32 = ends.iter().map(|(_, taken)| taken.cpus).sum();
                let busy = Free { cpus: node.busy.min(total.saturating_sub(mine)), ..Free::default() };
                ends.insert(ends.partition_point(|e| e.0 <= until), (until, busy));
            }
        }
        let used = ends.iter().map(|ends| ends.iter().fold(Free::default(), |sum, (_, taken)| sum.more(taken)));
        let used: Vec<Free> = used.collect();
        for ((line, ends), mut used) in plan.lines.iter_mut().zip(ends).zip(used) {
            line.steps.push((queue.now, line.total.less(&used)));
            for (at, taken) in ends {
                used = used.less(&taken);
                let free = line.total.less(&used);
                match line.steps.last_mut() {
                    Some(last) if last.0 >= at => last.1 = free,
                    _ => line.steps.push((at, free)),
                }
            }
        }
        plan.free = plan.lines.iter().map(|l| l.steps[0].1.cpus).collect();
        for (number, reservation) in queue.book.reservations.values().enumerate() {
            let closed = (reservation.begin, reservation.end, number);
            match reservation.nodes.is_empty() {
                true => plan.lines.iter_mut().for_each(|l| l.closed.push(closed)),
                false => {
                    let lines: Vec<u32> = reservation.nodes.iter().filter_map(|n| plan.line(n)).collect();
                    lines.into_iter().for_each(|l| plan.lines[l as usize].closed.push(closed));
                }
            }
        }
        plan
    }

    /// For each line when what is given back, the earliest first.
    fn ends(&self, queue: &Queue, above: Option<u8>) -> Vec<Vec<(u64, Free)>> {
        let mut ends: Vec<Vec<(u64, Free)>> = vec![Vec::new(); self.lines.len()];
        let soon = queue.now.saturating_add(queue.settings.end_ms);
        for (job, _, run) in queue.runs() {
            let left = job.spec.limit_ms.map(|limit| limit.saturating_sub(run.ran(queue.now)));
            // One whose time is over ends soon.
            let end = left.map_or(u64::MAX, |left| queue.now.saturating_add(left).max(soon));
            let end = if run.ending.is_some() { soon } else { end };
            let yields = above.is_some_and(|level| queue.settings.quality(job.spec.quality.as_deref()).level < level);
            let still = run.ending.is_none() && (run.suspended_at.is_some() || yields);
            let moved = end.min(queue.now.saturating_add(MOVES_MS));
            for held in run.holds() {
                let Some(line) = self.line(held.node) else { continue };
                let mut taken = self.taken(&held);
                // Where it is about to be it gives way when it is there.
                if still && (run.suspended_at.is_some() || held.leaves || !run.is_moving()) {
                    taken.cpus = 0;
                }
                if held.leaves {
                    let cpus = std::mem::take(&mut taken.cpus);
                    ends[line as usize].push((moved, Free { cpus, ..Free::default() }));
                }
                ends[line as usize].push((end, taken));
            }
        }
        ends.iter_mut().for_each(|ends| ends.sort_by_key(|e| e.0));
        ends
    }

    pub(crate) fn line(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    pub(crate) fn taken(&self, held: &Holds) -> Free {
        Free { cpus: held.cpus, memory: held.memory, gres: self.gres(held.gres) }
    }

    fn gres(&self, list: &[Gres]) -> [u32; KINDS] {
        let mut all = [0; KINDS];
        for gres in list {
            if let Some(at) = self.kinds.iter().position(|k| *k == gres.kind) {
                all[at] = gres.count;
            }
        }
        all
    }

    /// A list as numbers; the name of a kind that no node has.
    pub(crate) fn counts(&self, list: &[Gres]) -> Result<[u32; KINDS], String> {
        let strange = list.iter().find(|g| g.count > 0 && !self.kinds.contains(&g.kind));
        strange.map_or(Ok(self.gres(list)), |g| Err(g.kind.clone()))
    }

    /// Nodes for a job that begins then and takes so long; those that it fills best.
    pub(crate) fn choose(&self, need: &Need, from: u64, ms: u64) -> Option<Choice> {
        let least = need.cpus * need.each.0;
        if from <= self.now && u64::from(need.ranks) * u64::from(need.cpus) > self.free_cpus() {
            return None;
        }
        let may = |line: &&u32| from > self.now || self.free[**line as usize] >= least;
        let room = |line: &u32| (*line, self.lines[*line as usize].room(need, from, ms));
        let rooms = need.lines.iter().filter(may).map(room).filter(|(_, room)| *room >= need.each.0);
        self.choose_among(need, rooms.collect())
    }

    /// Of lines with so much room each.
    pub(crate) fn choose_among(&self, need: &Need, rooms: Vec<(u32, u32)>) -> Option<Choice> {
        // Nodes with something special are for those who want it, as long as there are others.
        if need.wanted.is_empty() && !self.kinds.is_empty() && need.gres == [0; KINDS] {
            let plain = |(line, _): &&(u32, u32)| self.lines[*line as usize].total.gres == [0; KINDS];
            let plain: Vec<(u32, u32)> = rooms.iter().filter(plain).copied().collect();
            if let Some(choice) = pick(need, plain) {
                return Some(choice);
            }
        }
        pick(need, rooms)
    }

    /// Takes what a choice takes, from then on for so long.
    pub(crate) fn take(&mut self, need: &Need, choice: &Choice, from: u64, ms: u64) {
        for (line, ranks) in choice {
            let taken = need.taken(*ranks, &self.lines[*line as usize].total);
            self.take_of(*line, &taken, from, ms);
        }
    }

    pub(crate) fn take_of(&mut self, line: u32, taken: &Free, from: u64, ms: u64) {
        let steps = &mut self.lines[line as usize].steps;
        let until = from.saturating_add(ms);
        let mut cut = |at: u64| match steps.binary_search_by_key(&at, |s| s.0) {
            Ok(i) => i,
            // Nothing is before now.
            Err(0) => 0,
            Err(i) => {
                steps.insert(i, (at, steps[i - 1].1));
                i
            }
        };
        let begin = cut(from);
        let end = cut(until);
        steps[begin..end.max(begin)].iter_mut().for_each(|s| s.1 = s.1.less(taken));
        self.free[line as usize] = steps[0].1.cpus;
    }

    /// CPUs, and nodes that have them, that a job could have now, or if nothing else ran.
    pub(crate) fn could_have(&self, need: &Need, alone: bool) -> (u64, usize) {
        let room = |line: &u32| match alone {
            true => need.fits(&self.lines[*line as usize].total, &self.lines[*line as usize].total),
            false => self.lines[*line as usize].room(need, self.now, 1),
        };
        let rooms: Vec<u32> = need.lines.iter().map(room).filter(|room| *room >= need.each.0).collect();
        (rooms.iter().map(|room| u64::from(*room) * u64::from(need.cpus)).sum(), rooms.len())
    }

    /// Is there enough of everything, if nothing ran?
    pub(crate) fn is_enough(&self, need: &Need) -> bool {
        let room =
            |line: &u32| (*line, need.fits(&self.lines[*line as usize].total, &self.lines[*line as usize].total));
        let rooms = need.lines.iter().map(room).filter(|(_, room)| *room >= need.each.0);
        self.choose_among(need, rooms.collect()).is_some()
    }

    /// CPUs that are free now.
    fn free_cpus(&self) -> u64 {
        self.free.iter().map(|free| u64::from(*free)).sum()
    }

    /// A line has so many CPUs free now.
    pub(crate) fn has(&self, line: u32, cpus: u32) -> bool {
        self.free[line as usize] >= cpus
    }
}

/// Of lines with room those that a job takes, and how many ranks on each: as few nodes as it takes, and of these the fullest ones.
fn pick(need: &Need, mut rooms: Vec<(u32, u32)>) -> Option<Choice> {
    let (least, most) = need.nodes;
    if rooms.len() < least as usize {
        return None;
    }
    let is_wanted = |line: u32| need.wanted.contains(&line);
    if need.wanted.iter().any(|w| !rooms.iter().any(|r| r.0 == *w)) {
        return None;
    }
    // The smallest number of nodes: with those that have most room.
    rooms.sort_unstable_by_key(|(line, room)| (!is_wanted(*line), std::cmp::Reverse(*room), *line));
    let (mut sum, mut count) = (0u64, 0usize);
    while count < rooms.len() && (count < least as usize || sum < u64::from(need.ranks)) {
        sum += u64::from(rooms[count].1);
        count += 1;
    }
    if sum < u64::from(need.ranks) || count > most as usize {
        return None;
    }
    let even = need.ranks.div_ceil(count as u32);
    // If the same number on each will do, larger holes are left for others.
    if need.wanted.is_empty() {
        let enough = rooms.iter().take_while(|r| r.1 >= even).count();
        if enough >= count {
            rooms.truncate(enough);
            rooms.sort_unstable_by_key(|(line, room)| (*room, *line));
        }
    }
    rooms.truncate(count);
    rooms.sort_unstable();
    let mut left = need.ranks - need.each.0 * count as u32;
    let mut choice: Choice = rooms.iter().map(|(line, _)| (*line, need.each.0)).collect();
    let mut first = true;
    while left > 0 {
        for (place, (_, room)) in choice.iter_mut().zip(&rooms) {
            let up_to = if first { even.min(*room) } else { *room };
            let more = up_to.saturating_sub(place.1).min(left);
            place.1 += more;
            left -= more;
        }
        first = false;
    }
    Some(choice)
}
