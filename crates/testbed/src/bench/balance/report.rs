//! What `pando bench balance` prints: the table of `sim balance`, once measured and once simulated, and how far they agree.

use super::play::Play;
use super::work::Speed;
use super::{Found, OF_MEMORY};
use serde::Serialize;
use serde_json::{Value, json};
use sim::balance::{COLUMNS, Played, Summary};
use sim::experiment::{Job, Trial};
use sim::table::Table;
use std::fmt::Display;

/// The aim: so much slower than the best possible, percent, at most.
const AIM: f64 = 10.0;
/// More of the time than this with less CPU time than was promised, percent, and figures say little.
const STARVED: f64 = 10.0;

/// One experiment, measured and simulated.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Which.
    pub experiment: u32,
    /// Nodes.
    pub nodes: usize,
    /// Results of processes that were not the same moved and unmoved.
    pub different: usize,
    /// What went wrong in the simulator.
    pub wrong: Vec<String>,
    /// How processes that were lost ended, unmoved and moved.
    pub lost: [Vec<String>; 2],
    /// For each seed when each process was done, seconds, unmoved and moved.
    pub ends_s: Vec<[Vec<f64>; 2]>,
    /// And what the nodes moved.
    pub events: Vec<Vec<String>>,
    /// Percent of the time in which nodes did not get the CPU time that they were promised, at worst.
    pub starved: f64,
    /// How much slower than its share the slowest node was, percent, at worst.
    pub slowest_percent: f64,
    /// How fast a process that has a node for itself takes memory, MB a second, at most.
    pub grows_mb_s: f64,
    #[serde(skip)]
    measured: Summary,
    #[serde(skip)]
    simulated: Summary,
}

impl Compared {
    /// Nothing yet.
    pub fn new(experiment: u32, nodes: usize) -> Compared {
        let (measured, simulated) = (Summary::default(), Summary::default());
        Compared {
            experiment,
            nodes,
            different: 0,
            wrong: Vec::new(),
            lost: Default::default(),
            ends_s: Vec::new(),
            events: Vec::new(),
            starved: 0.0,
            slowest_percent: 0.0,
            grows_mb_s: 0.0,
            measured,
            simulated,
        }
    }

    /// What else is known of a play.
    pub fn note(&mut self, speed: &Speed, unmoved: &Play, moved: &Play) {
        self.slowest_percent = self.slowest_percent.max(speed.slowest_percent);
        self.starved = self.starved.max(unmoved.starved).max(moved.starved);
        let differs = |(a, b): &(&Option<String>, &Option<String>)| a.is_some() && b.is_some() && a != b;
        self.different += unmoved.results.iter().zip(&moved.results).filter(differs).count();
        self.lost[0].extend(unmoved.lost.iter().cloned());
        self.lost[1].extend(moved.lost.iter().cloned());
        self.ends_s.push([unmoved.ends_s.clone(), moved.ends_s.clone()]);
        self.events.push(moved.events.clone());
    }

    /// One seed.
    pub fn add(&mut self, trial: &Trial, measured: &Played, simulated: &Played) {
        let fastest = trial.sites.iter().map(|s| s.size.speed).fold(0.0, f64::max);
        let grows = |j: &Job| j.size as f64 / f64::from(1 << 20) / (j.grow_ms / 1000.0 / fastest);
        let growing = trial.jobs.iter().filter(|j| j.grow_ms > 0.0);
        self.grows_mb_s = growing.map(grows).fold(self.grows_mb_s, f64::max);
        self.measured.add(trial, measured);
        self.simulated.add(trial, simulated);
        self.wrong.extend(simulated.unmoved.wrong.iter().chain(&simulated.moved.wrong).cloned());
    }

    /// Is something not as it must be, whatever the figures are?
    pub fn is_wrong(&self) -> bool {
        self.different > 0 || !self.wrong.is_empty() || !self.lost[1].is_empty()
    }

    /// How far both agree, and whether the aim is reached.
    fn verdict(&self) -> String {
        let [unmoved, moved] = self.measured.slower();
        let [unmoved_too, moved_too] = self.simulated.slower();
        let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.0} %"));
        let apart =
            |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(String::new(), |(a, b)| format!(", {:.0} apart", a - b));
        let mut text = format!(
            "{}: slower than the best possible: unmoved {} (simulated {}{}), moved {} (simulated {}{})",
            self.experiment,
            percent(unmoved),
            percent(unmoved_too),
            apart(unmoved, unmoved_too),
            percent(moved),
            percent(moved_too),
            apart(moved, moved_too),
        );
        text += match (self.experiment, moved) {
            (OF_MEMORY, _) if self.lost[1].is_empty() => "; aim: none is lost for want of memory  ok",
            (OF_MEMORY, _) => "; aim: none is lost for want of memory  MISSED",
            (_, Some(moved)) if moved <= AIM => "; aim: 10 %  ok",
            _ => "; aim: 10 %  MISSED",
        };
        text + "\n"
    }

    fn doubts(&self, swap: bool) -> String {
        let mut text = String::new();
        let e = self.experiment;
        if e == OF_MEMORY && !swap {
            text += "3: this machine has no swap: a node that runs out of memory does not page, the kernel ends a process there\n";
        }
        if e == OF_MEMORY {
            text += &format!(
                "3: a process takes up to {:.0} MB a second here; the more --seconds, the slower\n",
                self.grows_mb_s
            );
        }
        for (how, ends) in ["unmoved", "moved"].iter().zip(&self.lost) {
            if !ends.is_empty() {
                let mut kinds = ends.clone();
                kinds.sort();
                kinds.dedup();
                text += &format!("{e}: {} {how} processes LOST ({}): no time is given\n", ends.len(), kinds.join("; "));
            }
        }
        if self.different > 0 {
            text += &format!("{e}: {} processes came to ANOTHER RESULT moved than unmoved\n", self.different);
        }
        for wrong in &self.wrong {
            text += &format!("{e}: simulator: {wrong}\n");
        }
        if self.starved > STARVED {
            text += &format!(
                "{e}: in {:.0} % of the time nodes did not get the CPU time that they were promised: the figures say little\n",
                self.starved
            );
        }
        if self.slowest_percent > 5.0 {
            text += &format!("{e}: the slowest node got {:.0} % less done than its share\n", self.slowest_percent);
        }
        text
    }
}

impl Found {
    fn table(&self) -> Table {
        let mut table = Table::new(&[&["experiment", "nodes", ""][..], &COLUMNS].concat());
        for c in &self.experiments {
            for (how, sum) in [("measured", &c.measured), ("simulated", &c.simulated)] {
                let cells = sum.cells();
                let cells = cells.iter().map(|c| c as &dyn Display);
                table
                    .row(&[&c.experiment as &dyn Display, &c.nodes, &how].into_iter().chain(cells).collect::<Vec<_>>());
            }
        }
        table
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.experiments.is_empty() {
            text += &self.table().text();
            text.extend(self.experiments.iter().map(Compared::verdict));
            text.extend(self.experiments.iter().map(|c| c.doubts(self.swap)));
        }
        if !self.at_rest.is_empty() {
            text += &super::at_rest::table(&self.at_rest).text();
        }
        text
    }

    /// For programs.
    pub fn as_json(&self) -> Value {
        json!({
            "cpus": self.cpus,
            "swap": self.swap,
            "table": self.table().json(),
            "experiments": self.experiments,
            "at_rest": self.at_rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::balance::Outcome;
    use sim::ideal::{Times, one_computer};

    fn compared(factor: f64, lost: usize) -> Compared {
        let trial = Trial::new(2, 4, 1);
        let best = one_computer(&trial);
        let outcome = |factor: f64, lost| Outcome {
            times: Times { last: best.last * factor, mean: best.mean * factor },
            lost,
            ..Outcome::default()
        };
        let played = |lost| Played { unmoved: outcome(1.5, 0), moved: outcome(factor, lost) };
        let mut compared = Compared::new(2, 4);
        compared.add(&trial, &played(lost), &played(0));
        compared.lost[1] = vec!["signal: 9 (SIGKILL)".to_string(); lost];
        compared
    }

    #[test]
    fn aims_are_judged_and_losses_are_no_times() {
        let text = compared(1.05, 0).verdict();
        assert!(text.contains("unmoved 50 % (simulated 50 %, 0 apart), moved 5 %") && text.contains("ok"), "{text}");
        assert!(compared(1.2, 0).verdict().contains("MISSED"));
        let lost = compared(1.0, 2);
        assert!(lost.verdict().contains("moved - (simulated 0 %)") && lost.is_wrong(), "{}", lost.verdict());
        assert!(lost.doubts(true).contains("2 moved processes LOST (signal: 9 (SIGKILL))"));
    }

    #[test]
    fn the_table_has_both_rows() {
        let found = Found { cpus: 2, experiments: vec![compared(1.0, 0)], ..Found::default() };
        let text = found.text();
        assert!(text.contains(" measured ") && text.contains(" simulated "), "{text}");
        assert_eq!(found.as_json()["table"][0]["moved_%"], 0.0);
    }
}
