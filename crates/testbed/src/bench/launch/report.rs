//! The figures for people, with the aims beside them.

use super::fit::{Fit, LARGE};
use super::larger::LINES;
use super::map::BARE;
use super::program::{OURS, THEIRS, WRITTEN};
use super::{Figures, Spread, Start, hyperqueue};
use sim::table::Table;
use std::fmt::Write;

/// All of it.
pub fn text(figures: &Figures) -> String {
    let mut out = format!(
        "{} nodes on {} CPUs, load {:.1} at the start{}\n",
        figures.nodes,
        figures.cpus,
        figures.load,
        if figures.load > figures.cpus as f64 * 0.5 { " (a busy machine: the figures say little)" } else { "" }
    );
    let tables =
        [starts(figures), tasks(figures), mapped(figures), programs(figures), loaded(figures), larger(figures)];
    for table in tables.into_iter().flatten() {
        out += "\n";
        out += &table.text();
    }
    out += "\n";
    let mut lines = aims(figures);
    lines.extend(rest(figures));
    for line in lines {
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

fn ms(value: f64) -> String {
    format!("{value:.1}")
}

fn of(spread: &Spread) -> [String; 2] {
    [ms(spread.median_ms), ms(spread.worst_ms)]
}

fn starts(figures: &Figures) -> Option<Table> {
    let names =
        ["`true`, a rank each", "nodes", "ms", "worst", "first", "last exit to prompt ms", "worst", "daemons' CPU ms"];
    let mut table = Table::new(&names);
    for s in &figures.starts {
        let ([half, worst], [prompt, latest]) = (of(&s.whole), s.prompt.as_ref().map(of).unwrap_or_default());
        let daemons = s.daemons_ms.map_or(String::new(), ms);
        table.row(&[&s.launcher, &s.nodes, &half, &worst, &ms(s.first_ms), &prompt, &latest, &daemons]);
    }
    for s in &figures.without {
        let ([half, worst], [prompt, latest]) = (of(&s.whole), s.prompt.as_ref().map(of).unwrap_or_default());
        let name = format!("{}, no daemons", s.launcher);
        table.row(&[&name, &s.nodes, &half, &worst, &ms(s.first_ms), &prompt, &latest, &""]);
    }
    (!figures.starts.is_empty()).then_some(table)
}

fn tasks(figures: &Figures) -> Option<Table> {
    let mut table = Table::new(&["many tasks", "tasks", "nodes", "ms", "worst", "tasks/s"]);
    for t in &figures.tasks {
        let [half, worst] = of(&t.whole);
        table.row(&[&t.launcher, &t.tasks, &t.nodes, &half, &worst, &format!("{:.0}", t.per_second)]);
    }
    (!figures.tasks.is_empty()).then_some(table)
}

fn mapped(figures: &Figures) -> Option<Table> {
    let mut table = Table::new(&["separate tasks", "tasks", "nodes", "ms", "worst", "tasks/s"]);
    for m in &figures.mapped {
        let [half, worst] = of(&m.whole);
        table.row(&[&m.who, &m.tasks, &m.nodes, &half, &worst, &format!("{:.0}", m.per_second)]);
    }
    (!figures.mapped.is_empty()).then_some(table)
}

fn programs(figures: &Figures) -> Option<Table> {
    let mut table = Table::new(&["a program of 12 MB", "nodes", "cold ms", "worst", "cached ms", "worst"]);
    for p in &figures.programs {
        let ([cold, coldest], [cached, worst]) = (of(&p.cold), p.cached.as_ref().map(of).unwrap_or_default());
        table.row(&[&p.launcher, &p.nodes, &cold, &coldest, &cached, &worst]);
    }
    (!figures.programs.is_empty()).then_some(table)
}

fn loaded(figures: &Figures) -> Option<Table> {
    let mut table = Table::new(&["`true` under load", "load", "nodes", "ms", "worst"]);
    for l in &figures.loaded {
        let [half, worst] = of(&l.whole);
        table.row(&[&l.launcher, &l.load, &l.nodes, &half, &worst]);
    }
    (!figures.loaded.is_empty()).then_some(table)
}

fn mark(reached: bool) -> &'static str {
    if reached { "ok" } else { "MISSED" }
}

/// What was aimed at, for the largest job.
fn aims(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    let ours = |nodes: usize| figures.starts.iter().find(|s| s.launcher == "pando run" && s.nodes == nodes);
    let Some(largest) = figures.starts.iter().map(|s| s.nodes).max() else { return lines };
    let theirs = |s: &&Start| s.nodes == largest && s.launcher != "pando run";
    for their in figures.starts.iter().filter(theirs) {
        let Some(our) = ours(largest) else { continue };
        let part = our.whole.median_ms / their.whole.median_ms;
        let aim = if their.launcher == "Hydra" { 3.0 } else { 10.0 };
        let name = their.launcher;
        let reached = mark(part <= 1.0 / aim);
        lines.push(format!("`true` on {largest} nodes: {part:.2} of {name}'s time; aim: 1/{aim}  {reached}"));
    }
    for sent in figures.programs.iter().filter(|s| s.launcher == OURS) {
        let nodes = sent.nodes;
        if let (Some(our), Some(cached)) = (ours(nodes), sent.cached) {
            let part = cached.median_ms / our.whole.median_ms;
            let reached = mark(part <= 1.2);
            lines.push(format!("12 MB cached on {nodes} nodes: {part:.2} of `true`; aim: 1.2  {reached}"));
        }
        let theirs = figures.programs.iter().find(|s| s.launcher == THEIRS && s.nodes == nodes);
        if let Some(their) = theirs {
            let part = sent.cold.median_ms / their.cold.median_ms;
            let reached = mark(part <= 0.2);
            let written = figures.programs.iter().find(|s| s.launcher == WRITTEN && s.nodes == nodes);
            let limit = written.map(|w| w.cold.median_ms / their.cold.median_ms);
            let limit = limit.map_or(String::new(), |part| format!(" (to write the copies alone: {part:.2})"));
            lines.push(format!(
                "12 MB cold on {nodes} nodes: {part:.2} of the time of {THEIRS}{limit}; aim: 1/5  {reached}"
            ));
        }
    }
    lines.extend(of_tasks(figures));
    if let Some(largest) = figures.larger.last() {
        let (nodes, longest) = (largest.nodes, largest.simulated_ms.max(largest.program_ms[0]));
        let reached = mark(longest <= 1000.0);
        lines.push(format!(
            "simulated on {nodes} nodes, 12 MB cold on slow lines: {longest:.0} ms; aim: 1000  {reached}"
        ));
    }
    lines
}

/// Many tasks a second, beside what only starts them, and beside HyperQueue: the aim is to be so much faster.
fn of_tasks(figures: &Figures) -> Option<String> {
    const TIMES: f64 = 3.0;
    let rate = |who: &str| figures.mapped.iter().find(|m| m.who == who).map(|m| m.per_second);
    let (tasks, ours) = figures.mapped.iter().find(|m| m.who == "pando map").map(|m| (m.tasks, m.per_second))?;
    let bare = rate(BARE).map_or(String::new(), |bare| format!(" (who only starts them: {bare:.0})"));
    let against = match rate(hyperqueue::NAME) {
        Some(theirs) => format!(
            "{:.1} times {}'s {theirs:.0}; aim: {TIMES}  {}",
            ours / theirs,
            hyperqueue::NAME,
            mark(ours >= TIMES * theirs)
        ),
        None => format!("aim: {TIMES} times {}'s, which is not here", hyperqueue::NAME),
    };
    Some(format!("{tasks} separate tasks: {ours:.0} a second{bare}, {against}"))
}

fn rest(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(figures.fit.as_ref().map(|fit| fitted(fit, figures.cpus)));
    if let Some(alone) = &figures.alone {
        lines.push(format!("`true` without a launcher: {} ms, worst {}", ms(alone.median_ms), ms(alone.worst_ms)));
    }
    if let Some(script) = &figures.script {
        let [half, worst] = of(script);
        lines.push(format!(
            "Hydra gets into nodes by a script in place of ssh: {half} ms, worst {worst}, for each node"
        ));
    }
    if let Some(d) = &figures.daemons {
        let [mean, most] = d.resident.map(|bytes| bytes / f64::from(1 << 20));
        let ([cpu, time], rest) = (d.cpu_s, d.rest * 100.0);
        lines.push(format!(
            "daemons at rest: {rest:.0} % of a CPU, all together, whoever is measured (\"no daemons\": they were ended before)"
        ));
        lines.push(format!(
            "daemons: {cpu:.1} s of CPU in {time:.0} s, all together; {mean:.1} MB resident, at most {most:.1}"
        ));
    }
    lines
}

/// What the measured times come to.
fn fitted(fit: &Fit, cpus: usize) -> String {
    let Fit { base_ms, level_ms, node_ms, large_ms, .. } = fit;
    let verdict = match fit.holds() {
        true => mark(*large_ms <= 1000.0).to_owned(),
        false if fit.sizes <= 3 => "NOT SAID: three numbers fit any three sizes".into(),
        false if *level_ms < 0.0 => "NOT SAID: no level takes less than none".into(),
        false => format!("NOT SAID: it misses a time by {:.0} % of the longest", fit.off * 100.0),
    };
    format!(
        "`pando run` takes {base_ms:.1} ms, {level_ms:.1} for each level (log8 of nodes), {node_ms:.2} for each node, as all share {cpus} CPUs; \
         with CPUs of their own {large_ms:.0} ms on {LARGE}; aim: 1000  {verdict}"
    )
}

fn larger(figures: &Figures) -> Option<Table> {
    let [slow, fast] = LINES.map(|line| format!("12 MB cold, {} MB/s", line >> 20));
    let names = ["larger clusters, ms", "`true`, fitted", "`true`, simulated", &slow, &fast, "STORM, 12 MB (2002)"];
    let mut table = Table::new(&names);
    for l in &figures.larger {
        let line = l.line_ms.map_or_else(|| "-".into(), ms);
        let [slow, fast] = l.program_ms.map(ms);
        table.row(&[&l.nodes, &line, &ms(l.simulated_ms), &slow, &fast, &l.storm.unwrap_or_default()]);
    }
    (!figures.larger.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::super::{map::Mapped, program::Sent};
    use super::*;

    fn spread(median_ms: f64) -> Spread {
        Spread { median_ms, worst_ms: median_ms, runs: 1 }
    }

    #[test]
    fn each_peer_has_an_aim_of_its_own() {
        let start = |launcher, ms| Start {
            launcher,
            nodes: 4,
            first_ms: ms,
            whole: spread(ms),
            prompt: None,
            daemons_ms: None,
        };
        let sent = |launcher, ms, cached| Sent { launcher, nodes: 4, cold: spread(ms), cached };
        let mapped = |who, per_second| Mapped { who, tasks: 10, nodes: 4, whole: spread(5.0), per_second };
        let figures = Figures {
            starts: vec![start("pando run", 20.0), start("Hydra", 50.0), start("srun", 300.0)],
            programs: vec![sent(OURS, 100.0, Some(spread(22.0))), sent(THEIRS, 600.0, None), sent(WRITTEN, 60.0, None)],
            mapped: vec![mapped("pando map", 2000.0), mapped(BARE, 2100.0), mapped(hyperqueue::NAME, 500.0)],
            ..Figures::default()
        };
        let wanted = [
            "`true` on 4 nodes: 0.40 of Hydra's time; aim: 1/3  MISSED",
            "`true` on 4 nodes: 0.07 of srun's time; aim: 1/10  ok",
            "12 MB cached on 4 nodes: 1.10 of `true`; aim: 1.2  ok",
            "12 MB cold on 4 nodes: 0.17 of the time of sbcast and srun (to write the copies alone: 0.10); aim: 1/5  ok",
            "10 separate tasks: 2000 a second (who only starts them: 2100), 4.0 times HyperQueue's 500; aim: 3  ok",
        ];
        assert_eq!(aims(&figures), wanted);
        let alone = Figures { mapped: vec![mapped("pando map", 2000.0)], ..Figures::default() };
        assert_eq!(
            of_tasks(&alone).unwrap(),
            "10 separate tasks: 2000 a second, aim: 3 times HyperQueue's, which is not here"
        );
    }
}
