//! A whole command, with all the processes that it starts, roams between the nodes: `pando-suite tree -- COMMAND`.

pub mod options;
pub mod roam;

use crate::evidence;
use crate::judge;
use crate::mover::{Mover, Still};
use crate::processes::{self, MARK};
use crate::random::Random;
use crate::run::{Outcome, describe};
use crate::suite::unique;
use crate::testbed::{self, Testbed};
use crate::{aftermath, pando};
use options::Options;
use roam::{Roamed, Tree};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether the command has ended.
const TICK: Duration = Duration::from_millis(10);
/// What the command and the engine leave has this long to go away.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command as the options say and prints what came of it; whether all was well.
pub fn work(options: &Options) -> Result<bool, String> {
    if let Some(why) = testbed::missing() {
        return Err(why);
    }
    let scratch = std::env::temp_dir().join(format!("pando-tree-{}", unique()));
    fs::create_dir_all(&scratch).map_err(|e| e.to_string())?;
    let name = options.name.clone().unwrap_or(format!("tree-{}", unique()));
    let testbed = Testbed::up(&pando::find()?, &name, 3, options.keep)?;
    let failed = |e: io::Error| format!("{}: {e}", options.command[0]);
    let reference = match options.compare {
        true => Some(run(options, &testbed, &scratch.join("unmoved"), false).map_err(failed)?.0),
        false => None,
    };
    let (outcome, roamed) = run(options, &testbed, &scratch.join("moved"), true).map_err(failed)?;
    let mut wrong = aftermath::left_behind(&testbed, &BTreeSet::new(), LEFTOVER_PATIENCE);
    wrong.extend(complaints(&aftermath::logs(&testbed)));
    match &reference {
        Some(reference) => {
            wrong.extend(judge::differences(reference, &outcome));
            println!("unmoved {:6.2} s  {}", reference.took.as_secs_f64(), reference.ended);
        }
        None => {
            wrong.extend(outcome.left.iter().map(|p| format!("left behind: {p}")));
            show(&outcome);
        }
    }
    if roamed.freezes.len() < options.at_least {
        wrong.push(format!(
            "{} moves, not {} at the least: this shows nothing",
            roamed.freezes.len(),
            options.at_least
        ));
    }
    if let Some(seen) = &outcome.hang {
        wrong.push(format!("it did not end:\n{seen}"));
    }
    println!("moved   {:6.2} s  {}", outcome.took.as_secs_f64(), outcome.ended);
    report(&roamed, options.seed);
    wrong.iter().for_each(|w| println!("WRONG     {w}"));
    if wrong.is_empty() {
        let _ = fs::remove_dir_all(&scratch);
    } else {
        println!("see {}", scratch.display());
    }
    Ok(wrong.is_empty())
}

/// Runs the command once in a fresh `dir`, moved or not.
fn run(options: &Options, testbed: &Testbed, dir: &Path, moved: bool) -> io::Result<(Outcome, Roamed)> {
    fs::create_dir_all(dir)?;
    let mark = unique();
    let mover: &dyn Mover = if moved { testbed } else { &Still };
    let mut child = testbed
        .command(Path::new(&options.command[0]))
        .args(&options.command[1..])
        .env(MARK, &mark)
        .stdin(Stdio::null())
        .stdout(File::create(dir.join("stdout"))?)
        .stderr(File::create(dir.join("stderr"))?)
        .spawn()?;
    let started = Instant::now();
    let tree = Tree { root: child.id(), mark, only: options.only.clone() };
    let over = AtomicBool::new(false);
    let mut roamed = Roamed::default();
    let mut outcome = Outcome { pid: child.id(), ..Outcome::default() };
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..if moved { options.movers } else { 0 })
            .map(|n| {
                let random = Random::named(options.seed, &n.to_string());
                let (tree, over) = (&tree, &over);
                scope.spawn(move || roam::roam(tree, mover, random, options.ms, over))
            })
            .collect();
        let waited = wait(&mut child, started, options.limit);
        if let Ok(None) = waited {
            outcome.hang = Some(seen(&tree, testbed));
        }
        over.store(true, Ordering::Relaxed);
        movers.into_iter().for_each(|m| roamed.add(m.join().unwrap_or_default()));
        waited.map(|status| outcome.ended = status.map_or("nothing".into(), describe))
    })?;
    outcome.took = started.elapsed();
    outcome.left = end(&tree, outcome.hang.is_some());
    let _ = child.try_wait();
    outcome.stdout = fs::read(dir.join("stdout"))?;
    outcome.stderr = fs::read(dir.join("stderr"))?;
    Ok((outcome, roamed))
}

fn wait(child: &mut Child, started: Instant, limit: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(TICK);
    }
    Ok(None)
}

/// What is to be seen of a tree that does not end.
fn seen(tree: &Tree, testbed: &Testbed) -> String {
    let members = tree.members();
    let mut out: String = members.iter().map(|p| evidence::of_process(p.pid)).collect();
    out += &evidence::of_testbed(tree.root, &testbed.nodes);
    out
}

/// Waits for what outlived the command, and kills what stays.
fn end(tree: &Tree, hung: bool) -> Vec<String> {
    let until = Instant::now() + if hung { Duration::ZERO } else { LEFTOVER_PATIENCE };
    while !tree.members().is_empty() && Instant::now() < until {
        std::thread::sleep(TICK);
    }
    let left = tree.members();
    left.iter().for_each(|p| {
        processes::signal(p.pid, "KILL");
    });
    left.iter().map(|p| format!("{} {} ({})", p.pid, p.args.join(" "), p.state)).collect()
}

/// Lines of the nodes' logs that should not be there, whatever the tree does.
fn complaints(logs: &str) -> Vec<String> {
    let bad = |l: &&str| l.contains(" ERROR ") || l.contains("panicked");
    logs.lines().filter(bad).map(|l| format!("log: {l}")).collect()
}

fn show(outcome: &Outcome) {
    let _ = io::stdout().write_all(&outcome.stdout);
    let _ = io::stderr().write_all(&outcome.stderr);
}

fn report(roamed: &Roamed, seed: u64) {
    let mut freezes = roamed.freezes.clone();
    freezes.sort_unstable();
    let at = |n: usize| freezes.get(n).map_or(0.0, |f| *f as f64 / 1000.0);
    println!(
        "{} moves of {} processes, {} ended meanwhile; freeze {:.1} ms, at most {:.1}; seed {seed}",
        freezes.len(),
        roamed.movers.len(),
        roamed.ended,
        at(freezes.len() / 2),
        at(freezes.len().saturating_sub(1))
    );
    let by_name: Vec<String> = roamed.moves.iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!("  moved: {}", by_name.join(", "));
    for (why, (count, example)) in &roamed.refusals {
        let example: String = example.chars().take(80).collect();
        println!("  refused {count}: {why}  [{}]", example.trim());
    }
}
