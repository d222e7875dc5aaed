//! A helper of batch jobs serves one after the other: whoever is killed, stopped or in the way meanwhile, each job is its own.

mod lab;

use lab::batch::{cli, history, place};
use lab::{Daemon, Lab, lines_of, ok, until};
use pando_kernel::{job_group, procfs};
use pando_queue::State;
use std::fs;
use std::path::Path;
use std::process::Command;

const JOBS: &str = "[jobs]\nroot = true\n";

/// The number of the job that was made.
fn submit(node: &Daemon, dir: &Path, words: &[&str]) -> String {
    lab::batch::submit(node, dir, &[&["-o", "/dev/null"], words].concat())
}

/// Its status.
fn wait(node: &Daemon, dir: &Path, id: &str) -> i32 {
    cli(node, dir, &["wait", id]).output().unwrap().status.code().unwrap_or(-1)
}

/// Processes whose program and words are these.
fn called(words: &str) -> Vec<i32> {
    procfs::processes().into_iter().filter(|pid| procfs::command(*pid) == words).collect()
}

fn is_there(helper: i32) -> bool {
    procfs::name(helper) == "pando-batch"
}

/// Tasks, one after the other, each by a helper that writes down whom it has served. The one that finds that its helper has served another one before
/// does this. Gives the array's number when it is there, and its helper; none where helpers serve one job only, for nobody counts their memory.
fn second_of_a_helper(node: &Daemon, dir: &Path, what: &str) -> Option<(String, i32)> {
    let script = format!(
        "if grep -qx $PPID parents && mkdir second; then echo $SLURM_ARRAY_TASK_ID >task; echo $PPID >there; {what}; fi
         echo $PPID >>parents; echo $SLURM_ARRAY_TASK_ID >>done"
    );
    fs::write(dir.join("parents"), "").unwrap();
    let id = submit(node, dir, &["--array=0-19%1", "--wrap", &script]);
    let found = until("one by a helper that has served before", || {
        let there = fs::read_to_string(dir.join("there")).ok().and_then(|text| text.trim().parse().ok());
        there.map(Some).or_else(|| (lines_of(&dir.join("done")).len() == 20).then_some(None))
    });
    if found.is_none() {
        eprintln!("SKIPPED: no control group counts memory here, so each job has a helper of its own");
    }
    Some((id, found?))
}

#[test]
fn a_helper_is_killed_with_its_second_job_alone() {
    let lab = Lab::new(1, JOBS);
    let (n1, dir) = (&lab.nodes[0], place(&lab, "second"));
    let hidden = format!("sleep 7101.{}", std::process::id());
    let Some((id, helper)) = second_of_a_helper(n1, &dir, &format!("setsid {hidden} & sleep 1000")) else { return };
    until("what it has started", || (called(&hidden).len() == 1).then_some(()));
    lab::signal(helper as u32, "KILL");
    assert_eq!(wait(n1, &dir, &id), 137);
    assert!(called(&hidden).is_empty(), "nothing is left of it");
    let killed: u32 = fs::read_to_string(dir.join("task")).unwrap().trim().parse().unwrap();
    let mut past: Vec<_> =
        history(n1, &dir).into_iter().map(|p| (p.outcome.id.task.unwrap(), p.outcome.state)).collect();
    past.sort_unstable_by_key(|(task, _)| *task);
    let state = |task| if task == killed { State::Failed } else { State::Completed };
    assert_eq!(past, (0..20).map(|task| (task, state(task))).collect::<Vec<_>>());
    let mut done: Vec<u32> = lines_of(&dir.join("done")).iter().map(|l| l.parse().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..20).filter(|task| *task != killed).collect::<Vec<_>>(), "each has run once");
}

#[test]
fn a_second_job_outlives_the_daemon_as_a_first_one_does() {
    let mut lab = Lab::new(1, JOBS);
    let dir = place(&lab, "daemons");
    let waits = "while ! [ -e go ]; do sleep 0.1; done";
    let Some((id, helper)) = second_of_a_helper(&lab.nodes[0], &dir, waits) else { return };
    lab.nodes[0].kill();
    assert!(is_there(helper));
    lab.nodes[0].start();
    fs::write(dir.join("go"), "").unwrap();
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    let mut done: Vec<u32> = lines_of(&dir.join("done")).iter().map(|l| l.parse().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..20).collect::<Vec<_>>(), "each has run once");
    // What it was started for is gone with its daemon.
    until("its end", || (!is_there(helper)).then_some(()));
}

#[test]
fn what_is_in_the_way_of_one_job_holds_up_no_other() {
    let lab = Lab::new(1, JOBS);
    let (n1, dir) = (&lab.nodes[0], place(&lab, "ways"));
    // One whose helper stands still, and one that waits for who reads what it writes.
    let slow = submit(n1, &dir, &["--wrap", "echo $PPID >stands; while ! [ -e go ]; do sleep 0.1; done"]);
    let stands: u32 = until("it runs", || fs::read_to_string(dir.join("stands")).ok()?.trim().parse().ok());
    lab::signal(stands, "STOP");
    ok(Command::new("mkfifo").arg(dir.join("fifo")));
    let fifo = ok(&mut cli(n1, &dir, &["submit", "--parsable", "-o", "fifo", "--wrap", "exec >fifo; echo text"]));
    let quick = submit(n1, &dir, &["--array=0-99", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &quick), 0);
    let past = history(n1, &dir);
    assert_eq!(past.iter().filter(|p| p.outcome.id.job.to_string() == quick).count(), 100);
    let _ = cli(n1, &dir, &["cancel", fifo.trim()]).output();
    lab::signal(stands, "CONT");
    fs::write(dir.join("go"), "").unwrap();
    assert_eq!(wait(n1, &dir, &slow), 0);
}

#[test]
fn a_helper_that_rests_may_be_killed_and_then_goes() {
    let lab = Lab::new(1, JOBS);
    let (n1, dir) = (&lab.nodes[0], place(&lab, "rests"));
    let mut all = Vec::new();
    for _ in 0..10 {
        let id = submit(n1, &dir, &["--wrap", "echo $PPID >parent"]);
        assert_eq!(wait(n1, &dir, &id), 0);
        let helper: i32 = fs::read_to_string(dir.join("parent")).unwrap().trim().parse().unwrap();
        // It may have gone already.
        let _ = pando_kernel::signal::kill(helper, libc::SIGKILL);
        all.push(helper);
    }
    assert!(history(n1, &dir).iter().all(|p| p.outcome.state == State::Completed));
    let id = submit(n1, &dir, &["--wrap", "echo $PPID >parent"]);
    assert_eq!(wait(n1, &dir, &id), 0);
    all.push(fs::read_to_string(dir.join("parent")).unwrap().trim().parse().unwrap());
    until("all have gone", || (!all.iter().any(|helper| is_there(*helper))).then_some(()));
}

#[test]
fn what_a_job_has_used_is_not_told_of_the_next_one() {
    let lab = Lab::new(1, JOBS);
    let (n1, dir) = (&lab.nodes[0], place(&lab, "used"));
    let burn = "if [ $SLURM_ARRAY_TASK_ID = 0 ]; then timeout 1 sh -c 'while :; do :; done'; head -c 200M /dev/zero | tail -n 1 | wc -c; fi; true";
    let id = submit(n1, &dir, &["--array=0-9%1", "--wrap", burn]);
    assert_eq!(wait(n1, &dir, &id), 0);
    let past = history(n1, &dir);
    let used = |task| past.iter().find(|p| p.outcome.id.task == Some(task)).unwrap().outcome.usage;
    let (all, first) = ((0..10).map(used).collect::<Vec<_>>(), used(0));
    assert!(first.cpu_ms > 0 && first.memory_mb >= 200, "{first:?}");
    assert!(all[1..].iter().all(|u| u.cpu_ms < first.cpu_ms && u.memory_mb < 50), "{all:?}");
}

#[test]
fn control_groups_are_one_job_s_after_the_other_and_go_with_their_helper() {
    let lab = Lab::new(1, JOBS);
    let (n1, dir) = (&lab.nodes[0], place(&lab, "groups"));
    let id = submit(n1, &dir, &["--array=0-19%1", "--wrap", "echo $PPID $(grep :memory: /proc/self/cgroup) >>groups"]);
    assert_eq!(wait(n1, &dir, &id), 0);
    let lines = lines_of(&dir.join("groups"));
    // Where it is, and which: of one helper always the same.
    let groups: std::collections::BTreeSet<(&str, &str)> =
        lines.iter().filter_map(|line| line.split_once(' ')).collect();
    let helpers: std::collections::BTreeSet<&str> = groups.iter().map(|(helper, _)| *helper).collect();
    assert_eq!(lines.len(), 20);
    match groups.iter().all(|(_, group)| group.contains("/pando-")) {
        true => assert!(groups.len() == helpers.len() && helpers.len() < 20, "{groups:?}"),
        false => eprintln!("SKIPPED: no control group of version 1 counts memory here"),
    }
    let left = || job_group::of_node(&n1.state).iter().flat_map(|group| group.dirs().to_vec()).collect::<Vec<_>>();
    until("their end", || left().is_empty().then_some(()));
    assert_eq!(fs::read_dir(n1.state.join("batch-spare")).unwrap().count(), 0);
    // Nor is anything left of one that is killed while it rests.
    let id = submit(n1, &dir, &["--wrap", "echo $PPID >parent"]);
    assert_eq!(wait(n1, &dir, &id), 0);
    let helper: i32 = fs::read_to_string(dir.join("parent")).unwrap().trim().parse().unwrap();
    let _ = pando_kernel::signal::kill(helper, libc::SIGKILL);
    until("its end, too", || left().is_empty().then_some(()));
}
