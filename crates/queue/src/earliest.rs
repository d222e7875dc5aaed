//! The earliest moment for which a job finds nodes. All lines are gone through together, from one moment at which the room of one of them may change
//! to the next: whoever finds nodes soon looks at few of them, and it is known without trying whether there are enough.

use crate::plan::{Choice, Line, Need, Plan};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The room that there is at a moment.
struct Sum {
    /// Of each line.
    rooms: Vec<u32>,
    /// Lines with room.
    nodes: u32,
    /// All rooms together.
    ranks: u64,
    /// How many lines have so much: kept only for those who take no more than so many lines, and without the lines that they must have.
    lines_with: Option<BTreeMap<u32, u32>>,
}

impl Sum {
    fn new(need: &Need, lines: usize) -> Sum {
        let limited = (need.nodes.1 as usize) < need.lines.len();
        Sum { rooms: vec![0; lines], nodes: 0, ranks: 0, lines_with: limited.then(BTreeMap::new) }
    }

    fn set(&mut self, need: &Need, line: u32, room: u32) {
        let before = std::mem::replace(&mut self.rooms[line as usize], room);
        self.nodes = self.nodes + u32::from(room > 0) - u32::from(before > 0);
        self.ranks = self.ranks + u64::from(room) - u64::from(before);
        let Some(lines_with) = self.lines_with.as_mut().filter(|_| !need.wanted.contains(&line)) else { return };
        if let Some(count) = lines_with.get_mut(&before) {
            *count -= 1;
            if *count == 0 {
                lines_with.remove(&before);
            }
        }
        if room > 0 {
            *lines_with.entry(room).or_default() += 1;
        }
    }

    /// There are nodes for it.
    fn is_enough(&self, need: &Need) -> bool {
        let has_room = |line: &u32| self.rooms[*line as usize] > 0;
        self.nodes >= need.nodes.0
            && self.ranks >= u64::from(need.ranks)
            && need.wanted.iter().all(has_room)
            && self.lines_with.as_ref().is_none_or(|with| self.most(need, with) >= u64::from(need.ranks))
    }

    /// Room of as many lines as it takes at most: those that it must have, and then the emptiest.
    fn most(&self, need: &Need, lines_with: &BTreeMap<u32, u32>) -> u64 {
        let mut wanted: Vec<u32> = need.wanted.iter().map(|line| self.rooms[*line as usize]).collect();
        wanted.sort_unstable_by_key(|room| Reverse(*room));
        let mut left = need.nodes.1;
        let mut sum = 0;
        let others = lines_with.iter().rev().map(|(room, lines)| (*room, *lines));
        for (room, lines) in wanted.into_iter().map(|room| (room, 1)).chain(others) {
            let lines = lines.min(left);
            sum += u64::from(room) * u64::from(lines);
            left -= lines;
            if left == 0 || sum >= u64::from(need.ranks) {
                break;
            }
        }
        sum
    }
}

impl Line {
    /// The next moment at which the room for so long may be another one.
    fn next(&self, need: &Need, at: u64, ms: u64) -> Option<u64> {
        let until = at.saturating_add(ms);
        let given_back = self.steps.partition_point(|s| s.0 <= at);
        // Room becomes less when what it takes reaches into somebody else's time.
        let taken = self.steps.partition_point(|s| s.0 < until).max(1);
        let taken = (taken..self.steps.len()).find(|i| self.steps[*i].1.is_less(&self.steps[i - 1].1));
        let into = |begin: u64| begin.saturating_sub(ms).saturating_add(1);
        let shut = self.closed.iter().filter(|c| need.reservation != Some(c.2));
        let shut = shut.flat_map(|c| [(c.0 >= until).then(|| into(c.0)), (c.1 > at).then_some(c.1)]).flatten();
        let steps = [self.steps.get(given_back).map(|s| s.0), taken.map(|i| into(self.steps[i].0))];
        let next = steps.into_iter().flatten().chain(shut).min();
        // The end of what has no end.
        next.filter(|next| *next > at && *next < u64::MAX)
    }
}

impl Plan {
    /// The earliest moment for which nodes are found, and which.
    pub(crate) fn earliest(&self, need: &Need, ms: u64) -> Option<(u64, Choice)> {
        let mut sum = Sum::new(need, self.lines.len());
        let room = |line: u32, at: u64| {
            let room = self.lines[line as usize].room(need, at, ms);
            if room >= need.each.0 { room } else { 0 }
        };
        let mut next: Vec<Reverse<(u64, u32)>> = Vec::new();
        for &line in need.lines.iter().filter(|line| self.lines[**line as usize].could_fit(need)) {
            sum.set(need, line, room(line, self.now));
            next.extend(self.lines[line as usize].next(need, self.now, ms).map(|at| Reverse((at, line))));
        }
        let mut next = BinaryHeap::from(next);
        let mut at = self.now;
        loop {
            if sum.is_enough(need) {
                let rooms = need.lines.iter().map(|line| (*line, sum.rooms[*line as usize]));
                if let Some(choice) = self.choose_among(need, rooms.filter(|(_, room)| *room > 0).collect()) {
                    return Some((at, choice));
                }
            }
            at = next.peek()?.0.0;
            while let Some(Reverse((_, line))) = next.peek().filter(|n| n.0.0 == at).copied() {
                sum.set(need, line, room(line, at));
                match self.lines[line as usize].next(need, at, ms) {
                    Some(later) => *next.peek_mut()? = Reverse((later, line)),
                    None => _ = next.pop(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{Pass, longest};
    use crate::trial::busy;

    /// What is meant, in as few words as there are for it: each moment at which anything changes is tried.
    fn plain(plan: &Plan, need: &Need, ms: u64) -> Option<(u64, Choice)> {
        let lines = need.lines.iter().map(|line| &plan.lines[*line as usize]);
        let times = lines.flat_map(|line| {
            let closed = line.closed.iter().flat_map(|c| [c.0, c.1]);
            line.steps.iter().map(|s| s.0).chain(closed).collect::<Vec<u64>>()
        });
        let mut times: Vec<u64> =
            times.flat_map(|at| [at, at.saturating_sub(ms).saturating_add(1)]).filter(|at| *at >= plan.now).collect();
        times.sort_unstable();
        times.dedup();
        times.into_iter().filter(|at| *at < u64::MAX).find_map(|at| Some((at, plan.choose(need, at, ms)?)))
    }

    #[test]
    fn the_quick_way_finds_what_is_meant() {
        let mut later = 0;
        for seed in 0..400 {
            let queue = busy(seed);
            let mut pass = Pass::new(&queue);
            for job in queue.waiting() {
                let shape = pass.shape(&queue, &job.spec.request);
                let Ok(need) = pass.need_of(shape).cloned() else { continue };
                let ms = longest(job);
                let found = pass.plan.earliest(&need, ms);
                assert_eq!(found, plain(&pass.plan, &need, ms), "seed {seed}, job {}: {need:?}", job.id);
                // Those that follow find what it leaves.
                if let Some((at, choice)) = found {
                    later += u32::from(at > queue.now);
                    pass.plan.take(&need, &choice, at, ms);
                }
            }
        }
        assert!(later > 1000, "{later} had to wait");
    }
}
