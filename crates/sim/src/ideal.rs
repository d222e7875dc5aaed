//! The best possible, computed.
//!
//! *One computer*: all CPUs in one machine. Everything that runs gets the same share of them, but no more than one CPU each; when there are
//! fewer processes than CPUs, the fastest are used, in turn. Memory is one, too. Nothing is ever in the wrong place, and who has half a CPU
//! and who a whole one changes all the time. Nothing treats all more alike; who knows what is to come can be done sooner than that, and so can a
//! cluster where other users' processes, which nobody moves, get less than their share.
//!
//! *Whole places*: the same all-knowing balancer, with moves that cost nothing, but a process stays where it is until something begins or
//! ends. At each of these moments the places are shared out anew as evenly as whole processes can be, and those that have most left get
//! the best ones. With 17 processes on 16 CPUs two share one until the others are done, which takes half as long again: that is not the
//! balancer's fault.

use crate::experiment::{Load, Site, Trial};
use crate::machine::Size;
use crate::queue::SECOND;

/// How long it took, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Until the last one was done.
    pub last: f64,
    /// A process, in the mean, from its beginning.
    pub mean: f64,
}

impl Times {
    /// Of these ends, by job.
    pub fn of(trial: &Trial, ends_us: &[u64]) -> Times {
        let last = ends_us.iter().max().copied().unwrap_or(0) as f64;
        let each = trial.jobs.iter().zip(ends_us).map(|(j, end)| end.saturating_sub(j.from_us) as f64);
        let mean = each.sum::<f64>() / trial.jobs.len().max(1) as f64;
        Times { last: last / SECOND as f64, mean: mean / SECOND as f64 }
    }
}

/// Who is there at a time, by job: what each gets done in a millisecond.
type Rates = fn(&Trial, now: u64, left: &[(usize, f64)]) -> Vec<f64>;

/// One computer.
pub fn one_computer(trial: &Trial) -> Times {
    play(trial, one_rates)
}

/// Whole places.
pub fn whole_places(trial: &Trial) -> Times {
    play(trial, place_rates)
}

fn open(trial: &Trial, now: u64) -> impl Iterator<Item = (usize, &Site)> {
    trial.sites.iter().enumerate().filter(move |(_, s)| s.from_us <= now && now < s.until_us)
}

fn loads(trial: &Trial, now: u64) -> impl Iterator<Item = &Load> {
    trial.loads.iter().filter(move |l| l.from_us <= now && now < l.until_us)
}

fn one_rates(trial: &Trial, now: u64, left: &[(usize, f64)]) -> Vec<f64> {
    let mut cpus: Vec<(f64, f64)> = open(trial, now).map(|(_, s)| (s.size.speed, s.size.cpus)).collect();
    cpus.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all = (left.len() + loads(trial, now).count()) as f64;
    let (mut wanted, mut got) = (all, 0.0);
    for (speed, count) in cpus {
        let used = f64::min(count, wanted);
        got += speed * used;
        wanted -= used;
    }
    vec![got / all.max(1.0); left.len()]
}

fn place_rates(trial: &Trial, now: u64, left: &[(usize, f64)]) -> Vec<f64> {
    struct Place {
        size: Size,
        there: f64,
        ours: usize,
    }
    let rate = |p: &Place, there: f64| p.size.speed * (p.size.cpus / there.max(1.0)).min(1.0);
    let on = |i: usize| loads(trial, now).filter(|l| l.node as usize == i).count() as f64;
    let mut places: Vec<Place> = open(trial, now).map(|(i, s)| Place { size: s.size, there: on(i), ours: 0 }).collect();
    for _ in left {
        let best = |a: &&mut Place, b: &&mut Place| rate(a, a.there + 1.0).total_cmp(&rate(b, b.there + 1.0));
        if let Some(place) = places.iter_mut().max_by(best) {
            place.there += 1.0;
            place.ours += 1;
        }
    }
    let mut seats: Vec<f64> = places.iter().flat_map(|p| vec![rate(p, p.there); p.ours]).collect();
    seats.sort_by(|a, b| b.total_cmp(a));
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by(|&a, &b| left[b].1.total_cmp(&left[a].1));
    let mut rates = vec![0.0; left.len()];
    for (i, rate) in order.into_iter().zip(seats) {
        rates[i] = rate;
    }
    rates
}

/// From moment to moment.
fn play(trial: &Trial, rates: Rates) -> Times {
    let mut moments: Vec<u64> = trial.jobs.iter().map(|j| j.from_us).collect();
    moments.extend(trial.loads.iter().flat_map(|l| [l.from_us, l.until_us]));
    moments.extend(trial.sites.iter().flat_map(|s| [s.from_us, s.until_us]));
    moments.sort_unstable();
    moments.dedup();
    let (mut now, mut ends) = (0, vec![0; trial.jobs.len()]);
    let mut waiting: Vec<usize> = (0..trial.jobs.len()).collect();
    let mut left: Vec<(usize, f64)> = Vec::new();
    loop {
        waiting.retain(|&i| {
            let comes = trial.jobs[i].from_us <= now;
            if comes {
                left.push((i, trial.jobs[i].work_ms));
            }
            !comes
        });
        let next = moments.iter().find(|&&m| m > now).copied();
        if left.is_empty() && waiting.is_empty() {
            return Times::of(trial, &ends);
        }
        let rates = rates(trial, now, &left);
        let first = left.iter().zip(&rates).map(|(l, r)| l.1 / r).fold(f64::INFINITY, f64::min);
        let done = if first.is_finite() { now + (first * 1000.0).ceil() as u64 } else { u64::MAX };
        let then = next.unwrap_or(u64::MAX).min(done);
        if then == u64::MAX {
            // No machine is left for what is left.
            return Times { last: f64::INFINITY, mean: f64::INFINITY };
        }
        let ms = (then - now) as f64 / 1000.0;
        now = then;
        for (l, rate) in left.iter_mut().zip(&rates) {
            l.1 -= rate * ms;
        }
        left.retain(|(i, rest)| {
            if *rest <= 1e-6 {
                ends[*i] = now;
            }
            *rest > 1e-6
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Job;

    fn trial(sites: &[(f64, f64)], works: &[f64]) -> Trial {
        let site = |&(cpus, speed): &(f64, f64)| Site {
            size: Size { cpus, speed, memory: 1 },
            from_us: 0,
            until_us: u64::MAX,
            gone_us: u64::MAX,
        };
        let job = |&work_ms: &f64| Job { home: 0, from_us: 0, work_ms, size: 0, grow_ms: 0.0 };
        Trial { sites: sites.iter().map(site).collect(), jobs: works.iter().map(job).collect(), loads: Vec::new() }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn seventeen_on_sixteen() {
        let t = trial(&[(1.0, 1.0); 16], &[10_000.0; 17]);
        assert!(close(one_computer(&t).last, 10.625));
        let whole = whole_places(&t);
        assert!(close(whole.last, 15.0) && close(whole.mean, (15.0 * 10.0 + 2.0 * 15.0) / 17.0), "{whole:?}");
    }

    #[test]
    fn unequal_speeds_and_a_load() {
        // The fast one takes two, the slow one takes one: 1 each.
        let mut t = trial(&[(1.0, 2.0), (1.0, 1.0)], &[10_000.0; 3]);
        assert!(close(whole_places(&t).last, 10.0) && close(one_computer(&t).last, 10.0));
        // Somebody else is there for a time: four share three.
        t.loads.push(Load { node: 0, from_us: 0, until_us: 4 * SECOND });
        assert!(close(one_computer(&t).last, 11.0));
        // The second machine comes late.
        t.loads.clear();
        t.sites[1].from_us = 6 * SECOND;
        assert!(close(one_computer(&t).last, 12.0));
    }
}
