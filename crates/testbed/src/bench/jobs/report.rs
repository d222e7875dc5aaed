//! The figures for people, with the aims beside them.

use super::{Figures, Rate};
use pando_queue::Policy;
use sim::table::Table;
use std::fmt::Write;

/// Aims: submissions and jobs of `true` a second, milliseconds to the first act and for a pass, and how many times Slurm's array.
const SUBMISSIONS: f64 = 2000.0;
const JOBS: f64 = 500.0;
const FIRST_MS: f64 = 30.0;
const PASS_MS: f64 = 50.0;
const TIMES: f64 = 20.0;

fn mark(reached: bool) -> &'static str {
    if reached { "ok" } else { "MISSED" }
}

/// All of it.
pub fn text(figures: &Figures) -> String {
    let busy = if figures.load > figures.cpus as f64 * 0.5 { " (a busy machine: the figures say little)" } else { "" };
    let mut out = format!("{} CPUs, load {:.1} at the start{busy}\n\n", figures.cpus, figures.load);
    out += &rates(figures).text();
    if !figures.passes.is_empty() {
        out += "\n";
        out += &passes(figures).text();
    }
    out += "\n";
    for line in lines(figures) {
        out += &line;
        out += "\n";
    }
    for (what, why) in &figures.failed {
        _ = writeln!(out, "{what}: NOT MEASURED: {why}");
    }
    for (what, why) in &figures.skipped {
        _ = writeln!(out, "{what}: SKIPPED: {why}");
    }
    out
}

fn rates(figures: &Figures) -> Table {
    let mut table = Table::new(&["", "how many", "s", "a second", "aim"]);
    let mut row = |what: &str, rate: Option<Rate>, aim: Option<f64>| {
        let Some(rate) = rate else { return };
        let (s, each) = (format!("{:.2}", rate.seconds), format!("{:.0}", rate.per_second));
        let aim = aim.map_or(String::new(), |aim| format!("{aim:.0}  {}", mark(rate.per_second >= aim)));
        table.row(&[&what, &rate.count, &s, &each, &aim]);
    };
    row("submissions, stored", figures.submitted, Some(SUBMISSIONS));
    row("jobs of `true`", figures.batch, Some(JOBS));
    row("an array of `true`", figures.array, Some(JOBS));
    if let Some(slurm) = figures.slurm {
        row("sbatch", slurm.submitted, None);
        row("Slurm's array of `true`", slurm.array, None);
    }
    table
}

fn passes(figures: &Figures) -> Table {
    let mut table = Table::new(&["a pass, 4096 nodes", "run", "wait", "ms", "explain ms", "aim"]);
    for pass in &figures.passes {
        let (policy, [ms, explain]) =
            (format!("{:?}", pass.policy), [pass.pass_ms, pass.explain_ms].map(|ms| format!("{ms:.1}")));
        let judged = pass.policy != Policy::Conservative;
        let aim = if judged { format!("{PASS_MS:.0} ms  {}", mark(pass.pass_ms <= PASS_MS)) } else { String::new() };
        table.row(&[&policy, &pass.running, &pass.waiting, &ms, &explain, &aim]);
    }
    table
}

fn lines(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(disk) = figures.disk {
        lines.push(format!("the disk stores a page {disk:.0} times a second, one after the other"));
    }
    if let (Some(first), Some(p95)) = (figures.first, figures.first_p95_ms) {
        let reached = mark(first.median_ms <= FIRST_MS);
        let half = first.median_ms;
        lines.push(format!("submit to first act: {half:.1} ms, 95 % {p95:.1} ms; aim: {FIRST_MS:.0} ms  {reached}"));
    }
    if let Some(memory) = figures.memory {
        let (rest, then) = (memory.rest / 1e6, memory.then / 1e6);
        lines.push(format!("memory of the daemon: {rest:.0} MB, {then:.0} MB when {} jobs wait", memory.waiting));
    }
    if let (Some(ours), Some(theirs)) = (figures.array, figures.slurm.and_then(|slurm| slurm.array)) {
        let times = ours.per_second / theirs.per_second;
        lines.push(format!("array: {times:.1} times Slurm's; aim: {TIMES:.0}  {}", mark(times >= TIMES)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn aims_are_judged() {
        let rate = |per_second: usize| Some(Rate::of(per_second, Duration::from_secs(1)));
        let figures = Figures { submitted: rate(2500), batch: rate(400), ..Figures::default() };
        let text = text(&figures);
        let line = |what: &str| text.lines().find(|l| l.contains(what)).unwrap().to_owned();
        assert!(line("submissions").ends_with("2000  ok"), "{text}");
        assert!(line("jobs of").ends_with("500  MISSED"), "{text}");
    }
}
