//! The queue goes on at another node when the one that keeps it is lost: killed, cut off from etcd, or stopped beyond its lease. What was acknowledged runs once,
//! and what runs elsewhere does not notice.

mod lab;

use lab::etcd::{Etcd, Way};
use lab::{Daemon, Lab, PATIENCE, ok, signal, until};
use pando_kernel::procfs;
use pando_node::queue::ask::{Ask, Line, Past};
use pando_node::queue::usage::Row;
use pando_queue::array::Array;
use pando_queue::depend::Dependency;
use pando_queue::{Bytes, Files, Request, Spec, State, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Those that may keep the queue; one more may not, and is asked.
const MAY: usize = 3;

struct Site {
    lab: Lab,
    ways: Vec<Way>,
    etcd: Etcd,
    dir: PathBuf,
}

fn site(name: &str, lost_after_ms: u32) -> Option<Site> {
    let etcd = Etcd::new(name)?;
    let ways: Vec<Way> = (0..MAY).map(|_| etcd.way()).collect();
    let lab = Lab::with(MAY + 1, |index| {
        let common = "[jobs]\nroot = true\n[queue]\nnodes = [\"n1\", \"n2\", \"n3\"]\nturns = 16\n";
        let own =
            ways.get(index - 1).map(|way| format!("[queue.etcd]\nendpoints = [\"{}\"]\nlease_ms = 2000\n", way.url()));
        format!("{common}lost_after_ms = {lost_after_ms}\n{}", own.unwrap_or_default())
    });
    lab.settled();
    let dir = lab.dir.join("jobs");
    fs::create_dir(&dir).unwrap();
    until("somebody keeps it", || {
        lab.nodes[MAY].cli(&["queue", "--keeper"]).output().unwrap().status.success().then_some(())
    });
    Some(Site { lab, ways, etcd, dir })
}

impl Site {
    /// The node that is never harmed.
    fn client(&self) -> &Daemon {
        &self.lab.nodes[MAY]
    }

    /// Where the queue is kept, by what the clients' node hears: one of those that may, by index.
    fn keeper(&self) -> usize {
        let said = ok(&mut self.client().cli(&["queue", "--keeper"]));
        said.trim().strip_prefix('n').unwrap().parse::<usize>().unwrap() - 1
    }

    /// As soon as it is another one.
    fn another(&self, than: usize) -> usize {
        until("another keeper", || {
            let said = self.client().cli(&["queue", "--keeper"]).output().unwrap().stdout;
            let name = String::from_utf8_lossy(&said).trim().to_owned();
            let index = name.strip_prefix('n')?.parse::<usize>().ok()? - 1;
            (index != than).then_some(index)
        })
    }

    fn cli(&self, node: usize, words: &[&str]) -> Command {
        let mut command = self.lab.nodes[node].cli(words);
        command.current_dir(&self.dir);
        command
    }

    fn submit(&self, node: usize, words: &[&str]) -> String {
        ok(&mut self.cli(node, &[&["submit", "--parsable", "-o", "/dev/null"], words].concat())).trim().to_owned()
    }

    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join("ran")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn spec(dir: &Path, script: &str) -> Spec {
    let work = Work::Script { text: Bytes(format!("#!/bin/sh\n{script}\n").into_bytes()), arguments: Vec::new() };
    let files = Files { output: Some("/dev/null".into()), ..Files::default() };
    let directory = Bytes::from(dir.to_str().unwrap());
    Spec { work, directory, files, request: Request::default(), limit_ms: Some(600_000), ..Spec::default() }
}

fn past(node: &Daemon) -> Vec<Past> {
    serde_json::from_str(&ok(&mut node.cli(&["history", "--json"]))).unwrap()
}

/// Each ran once, ended once, and counts once; those with `true` have five tasks. There is one job more, the first.
fn each_ended_once(site: &Site, all: &BTreeSet<(u64, bool)>) {
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for (id, is_array) in all {
        match is_array {
            true => expected.extend((1..=5).map(|task| format!("{id}_{task}"))),
            false => _ = expected.insert(id.to_string()),
        }
    }
    assert!(expected.len() > 300, "{}", expected.len());
    let last = all.iter().map(|(id, _)| *id).max().unwrap();
    let words: Vec<String> = all.iter().map(|(id, _)| id.to_string()).collect();
    let wait: Vec<&str> = ["wait"].into_iter().chain(words.iter().map(String::as_str)).collect();
    ok(&mut site.cli(MAY, &wait));
    // Each ran once, and ended once.
    let ran = site.ran();
    assert_eq!(ran.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(ran.len(), expected.len(), "what ran twice is in it twice");
    let before = all.iter().filter(|(id, _)| *id < last).map(|(_, is_array)| if *is_array { 5 } else { 1 });
    assert_eq!(last, 2 + before.sum::<u64>(), "nobody has made jobs that were not acknowledged");
    let mut ends: BTreeMap<String, Vec<State>> = BTreeMap::new();
    past(site.client())
        .into_iter()
        .for_each(|p| ends.entry(p.outcome.id.to_string()).or_default().push(p.outcome.state));
    for id in &expected {
        assert_eq!(ends.get(id), Some(&vec![State::Completed]), "{id}");
    }
    let rows: Vec<Row> = serde_json::from_str(&ok(&mut site.cli(MAY, &["usage", "--json"]))).unwrap();
    assert_eq!(rows.iter().map(|row| row.sum.tasks).sum::<u64>(), expected.len() as u64);
}

#[test]
fn whoever_keeps_it_is_killed_in_the_middle_of_a_load() {
    let Some(mut site) = site("load", 120_000) else { return };
    let long = site.submit(MAY, &["-w", "n4", "--wrap", "echo $$ >>long; while [ ! -e end ]; do sleep 0.2; done"]);
    until("it runs", || fs::read_to_string(site.dir.join("long")).ok().filter(|text| text.ends_with('\n')));
    // Arrays, each with one that waits for all of it, until there were enough changes.
    let (over, acknowledged, tickets) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()), AtomicU64::new(0));
    let (client, dir) = (site.client().client(), site.dir.clone());
    let begun = Instant::now();
    let submit = || {
        // Where the test fails it ends all the same.
        while !over.load(Ordering::SeqCst) && begun.elapsed() < 6 * PATIENCE {
            let number = tickets.fetch_add(1, Ordering::SeqCst);
            let mut array = spec(&dir, "echo ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID >>ran");
            (array.ticket, array.array) = (format!("a{number}"), Some(Array::read("1-5").unwrap()));
            let first: u64 = client.post("/v1/queue", &Ask::Submit(Box::new(array.clone()))).unwrap();
            // As if the answer had not come.
            let again: u64 = client.post("/v1/queue", &Ask::Submit(Box::new(array))).unwrap();
            assert_eq!(first, again, "one ticket, one job");
            let mut after = spec(&dir, "echo $SLURM_JOB_ID >>ran");
            (after.ticket, after.dependency) =
                (format!("b{number}"), Dependency::read(&format!("afterok:{first}")).unwrap());
            let second: u64 = client.post("/v1/queue", &Ask::Submit(Box::new(after))).unwrap();
            let mut all = acknowledged.lock().unwrap();
            assert!(all.insert((first, true)) && all.insert((second, false)));
            drop(all);
            // Not more of them than this machine runs meanwhile.
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(submit)).collect();
        for _ in 0..4 {
            let (keeper, before) = (site.keeper(), acknowledged.lock().unwrap().len());
            until("some to be taken", || (acknowledged.lock().unwrap().len() > before + 20).then_some(()));
            site.lab.nodes[keeper].kill();
            let next = site.another(keeper);
            let (before, ran) = (acknowledged.lock().unwrap().len(), site.ran().len());
            until("more to be taken", || (acknowledged.lock().unwrap().len() > before + 6).then_some(()));
            until("more to run", || (site.ran().len() > ran + 6).then_some(()));
            assert_ne!(next, keeper);
            site.lab.nodes[keeper].start();
        }
        over.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    each_ended_once(&site, &acknowledged.into_inner().unwrap());
    // What ran all the time did not notice.
    fs::write(site.dir.join("end"), "").unwrap();
    ok(&mut site.cli(MAY, &["wait", &long]));
    assert_eq!(fs::read_to_string(site.dir.join("long")).unwrap().lines().count(), 1);
}

#[test]
fn jobs_of_a_node_that_is_lost_with_the_queue_run_again_elsewhere_and_others_go_on() {
    let Some(mut site) = site("lost", 3000) else { return };
    let script = "echo $$ >>pid.$SLURM_JOB_ID; while [ ! -e end ]; do sleep 0.1; done; echo $SLURM_JOB_ID >>ran";
    let mut jobs: Vec<String> = (0..=MAY).map(|_| site.submit(MAY, &["--exclusive", "--wrap", script])).collect();
    let pids = |id: &String| -> Vec<i32> {
        let text = fs::read_to_string(site.dir.join(format!("pid.{id}"))).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    until("one to run at each node", || jobs.iter().all(|id| pids(id).len() == 1).then_some(()));
    let keeper = site.keeper();
    let all: Vec<Line> = serde_json::from_str(&ok(&mut site.cli(MAY, &["queue", "--json"]))).unwrap();
    let name = site.lab.nodes[keeper].name.clone();
    let lost = all.into_iter().find(|line| line.nodes == [name.clone()]).unwrap().id;
    let pid = pids(&lost)[0];
    let helper = procfs::parent(pid).unwrap();
    site.lab.nodes[keeper].kill();
    [helper, pid].into_iter().for_each(|pid| signal(pid as u32, "KILL"));
    site.another(keeper);
    until("it is found to be lost", || {
        past(site.client()).iter().any(|p| p.outcome.id.to_string() == lost).then_some(())
    });
    fs::write(site.dir.join("end"), "").unwrap();
    let words: Vec<&str> = ["wait"].into_iter().chain(jobs.iter().map(String::as_str)).collect();
    ok(&mut site.cli(MAY, &words));
    jobs.sort();
    let mut ran = site.ran();
    ran.sort();
    assert_eq!(ran, jobs);
    for id in &jobs {
        let pids = fs::read_to_string(site.dir.join(format!("pid.{id}"))).unwrap().lines().count();
        assert_eq!(pids, if *id == lost { 2 } else { 1 }, "{id}");
        let ends: Vec<State> = past(site.client())
            .into_iter()
            .filter(|p| p.outcome.id.to_string() == *id)
            .map(|p| p.outcome.state)
            .collect();
        assert_eq!(
            ends,
            if *id == lost { vec![State::Requeued, State::Completed] } else { vec![State::Completed] },
            "{id}"
        );
    }
}

#[test]
fn a_keeper_that_is_cut_off_or_stands_still_is_none_and_does_no_harm() {
    let Some(mut site) = site("cut", 120_000) else { return };
    let long = site.submit(0, &["-w", "n4", "--wrap", "echo $$ >>long; while [ ! -e end ]; do sleep 0.2; done"]);
    until("it runs", || fs::read_to_string(site.dir.join("long")).ok().filter(|text| text.ends_with('\n')));
    let mut jobs = Vec::new();
    // It reaches every node, but not etcd: it stops by itself, and asks the next one.
    let first = site.keeper();
    site.ways[first].cut(true);
    let second = site.another(first);
    jobs.push(site.submit(first, &["--wrap", "echo $SLURM_JOB_ID >>ran"]));
    assert_eq!(ok(&mut site.cli(first, &["queue", "--keeper"])).trim(), format!("n{}", second + 1));
    site.ways[first].cut(false);
    // It stands still beyond its lease, in the middle of what users ask.
    let pid = site.lab.nodes[second].pid();
    signal(pid, "STOP");
    let third = site.another(second);
    jobs.push(site.submit(MAY, &["--wrap", "echo $SLURM_JOB_ID >>ran"]));
    signal(pid, "CONT");
    jobs.push(site.submit(second, &["--wrap", "echo $SLURM_JOB_ID >>ran"]));
    until("it says who keeps it", || {
        let said = site.cli(second, &["queue", "--keeper"]).output().unwrap().stdout;
        (String::from_utf8_lossy(&said).trim() == format!("n{}", third + 1)).then_some(())
    });
    site.lab.nodes[second].logs("keeps the queue of batch jobs no longer");
    // etcd is away: nothing is acknowledged, and nothing is lost.
    site.etcd.kill();
    let mut waits = site.cli(MAY, &["submit", "--parsable", "-o", "/dev/null", "--wrap", "echo $SLURM_JOB_ID >>ran"]);
    let mut waits = waits.stdout(std::process::Stdio::piped()).spawn().unwrap();
    site.lab.nodes[third].logs("keeps the queue of batch jobs no longer");
    assert!(waits.try_wait().unwrap().is_none(), "who submits waits");
    assert!(site.etcd.start());
    let output = waits.wait_with_output().unwrap();
    assert!(output.status.success());
    jobs.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // Whose node is drained hands it on; and so does one whose daemon ends.
    let keeper = site.keeper();
    ok(&mut site.cli(keeper, &["drain"]));
    let next = site.another(keeper);
    ok(&mut site.cli(keeper, &["drain", "--undo"]));
    assert!(site.lab.nodes[next].stop());
    site.another(next);
    jobs.push(site.submit(MAY, &["--wrap", "echo $SLURM_JOB_ID >>ran"]));
    site.lab.nodes[next].start();
    let words: Vec<&str> = ["wait"].into_iter().chain(jobs.iter().map(String::as_str)).collect();
    ok(&mut site.cli(MAY, &words));
    let mut ran = site.ran();
    ran.sort();
    jobs.sort();
    assert_eq!(ran, jobs);
    fs::write(site.dir.join("end"), "").unwrap();
    ok(&mut site.cli(MAY, &["wait", &long]));
    assert_eq!(fs::read_to_string(site.dir.join("long")).unwrap().lines().count(), 1);
    // All that keep the history have all of it.
    let all = past(site.client()).len();
    assert_eq!(all, jobs.len() + 1);
}

/// `/pando/pando/leader`.
const LEADER: &str = "L3BhbmRvL3BhbmRvL2xlYWRlcg==";

#[test]
fn whose_name_was_removed_keeps_the_queue_no_longer_though_its_lease_lives() {
    let Some(site) = site("name", 120_000) else { return };
    let first = site.keeper();
    site.etcd.remove(LEADER);
    site.lab.nodes[first].logs("keeps the queue of batch jobs no longer");
    let of = |node: usize| {
        String::from_utf8_lossy(&site.cli(node, &["queue", "--keeper"]).output().unwrap().stdout).into_owned()
    };
    until("all say who keeps it", || {
        let all: BTreeSet<String> = (0..=MAY).map(of).collect();
        (all.len() == 1 && all.iter().all(|name| !name.is_empty())).then_some(())
    });
    // Ends at each node are told to the one who stores them.
    let each =
        |node: usize| site.submit(node, &["-w", &format!("n{}", node + 1), "--wrap", "echo $SLURM_JOB_ID >>ran"]);
    let mut jobs: Vec<String> = (0..=MAY).map(each).collect();
    let words: Vec<&str> = ["wait"].into_iter().chain(jobs.iter().map(String::as_str)).collect();
    ok(&mut site.cli(MAY, &words));
    let mut ran = site.ran();
    ran.sort();
    jobs.sort();
    assert_eq!(ran, jobs);
}
