//! What a site's administrator expects of batch jobs: nothing is left of them, they have what they were given and no more, and he is told.

mod lab;

use lab::{Daemon, Lab, ok, until};
use pando_kernel::job_group::JobGroup;
use pando_kernel::procfs;
use pando_node::queue::ask::Past;
use pando_queue::State;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const JOBS: &str = "[jobs]\nroot = true\n";

/// `pando WORDS` at a node, in a directory.
fn cli(node: &Daemon, dir: &Path, words: &[&str]) -> Command {
    let mut command = node.cli(words);
    command.current_dir(dir);
    command
}

/// The number of the job that was made.
fn submit(node: &Daemon, dir: &Path, words: &[&str]) -> String {
    let said = ok(&mut cli(node, dir, &[&["submit", "--parsable"], words].concat()));
    said.trim().to_owned()
}

/// Its status.
fn wait(node: &Daemon, dir: &Path, id: &str) -> i32 {
    cli(node, dir, &["wait", id]).output().unwrap().status.code().unwrap_or(-1)
}

fn past(node: &Daemon, dir: &Path, id: &str) -> Past {
    let all: Vec<Past> = serde_json::from_str(&ok(&mut cli(node, dir, &["history", "--json"]))).unwrap();
    all.into_iter().rev().find(|p| p.outcome.id.to_string() == id).unwrap()
}

/// A directory of its own for a test's jobs.
fn place(lab: &Lab, name: &str) -> PathBuf {
    let dir = lab.nodes[0].state.parent().unwrap().join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Does this machine let us make control groups that count memory?
fn has_groups(what: &str) -> bool {
    let name = format!("pando-try-{}", std::process::id());
    let group = JobGroup::make(&name, Some(1 << 30));
    let has = group.holds_memory();
    let _ = group.remove();
    if !has {
        eprintln!("SKIPPED: {what}: no control group can be made here");
    }
    has
}

/// Processes whose program and words are these.
fn called(words: &str) -> Vec<i32> {
    procfs::processes().into_iter().filter(|pid| procfs::command(*pid) == words).collect()
}

#[test]
fn what_hides_from_its_job_ends_with_it() {
    if !has_groups("what hides from its job") {
        return;
    }
    let mut lab = Lab::new(1, JOBS);
    let dir = place(&lab, "hiding");
    let number = std::process::id();
    // In a session of its own, with an empty environment, and nobody's child.
    let hides =
        |seconds: u32| format!("setsid env -i sh -c 'sleep {seconds}.{number} & exit' </dev/null >/dev/null 2>&1");
    let id = submit(&lab.nodes[0], &dir, &["-o", "out", "--wrap", &format!("{}; sleep 0.1; echo over", hides(7001))]);
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    assert!(called(&format!("sleep 7001.{number}")).is_empty(), "the job's end is told when nothing is left of it");
    // The helper is killed, with or without a daemon.
    let hidden = format!("sleep 7002.{number}");
    for with_daemon in [true, false] {
        let job = format!("{}; echo begun >begun; sleep 1000", hides(7002));
        let id = submit(&lab.nodes[0], &dir, &["-o", "out", "--wrap", &job]);
        until("it hides", || (dir.join("begun").exists() && called(&hidden).len() == 1).then_some(()));
        fs::remove_file(dir.join("begun")).unwrap();
        let helper = procfs::processes().into_iter().find(|pid| {
            procfs::name(*pid) == "pando-batch"
                && procfs::children(*pid).iter().any(|c| {
                    procfs::variable(*c, "PANDO_BATCH").is_some_and(|run| run == format!("n1/{id}/0"))
                        && procfs::variable(*c, "PANDO_SOCKET").is_some_and(|s| Path::new(&s) == lab.nodes[0].socket)
                })
        });
        if !with_daemon {
            lab.nodes[0].kill();
        }
        lab::signal(helper.unwrap() as u32, "KILL");
        if !with_daemon {
            lab.nodes[0].start();
        }
        assert_eq!(wait(&lab.nodes[0], &dir, &id), 137);
        assert!(called(&hidden).is_empty(), "daemon: {with_daemon}");
    }
}

#[test]
fn memory_is_what_was_asked_for_and_told_with_what_files_take() {
    if !has_groups("limits of memory") {
        return;
    }
    let lab = Lab::new(1, JOBS);
    let dir = place(&lab, "memory");
    let n1 = &lab.nodes[0];
    // A process of the job that is ended for want of memory ends the job, whatever the script makes of it.
    let takes = "head -c 200M /dev/zero | tail -c 190M | wc -c; echo went on; sleep 1000";
    let id = submit(n1, &dir, &["--mem=64M", "-o", "much", "--wrap", takes]);
    assert_eq!(wait(n1, &dir, &id), 137);
    let told = fs::read_to_string(dir.join("much")).unwrap();
    assert!(told.contains("--mem"), "{told}");
    assert_eq!(past(n1, &dir, &id).outcome.state, State::OutOfMemory);
    // What lies in a memory file system is the job's, too; and time is counted of whom nobody waited for.
    let file = format!("/dev/shm/pando-site-{}", std::process::id());
    let work = "setsid sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo >done' & wait; sleep 0.1";
    let job = format!("head -c 48M /dev/zero >{file}; rm {file}; {work}");
    let id = submit(n1, &dir, &["--mem=256M", "-o", "shm", "--wrap", &job]);
    assert_eq!(wait(n1, &dir, &id), 0, "{}", fs::read_to_string(dir.join("shm")).unwrap());
    let usage = past(n1, &dir, &id).outcome.usage;
    assert!((48..=256).contains(&usage.memory_mb), "{usage:?}");
    assert!(usage.cpu_ms > 0, "{usage:?}");
}

#[test]
fn jobs_and_their_steps_run_on_their_own_cpus() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        eprintln!("SKIPPED: CPUs of their own: there is one");
        return;
    }
    let mut lab = Lab::new(1, JOBS);
    let dir = place(&lab, "cpus");
    let pando = lab.nodes[0].cli(&[]).get_program().to_string_lossy().into_owned();
    let show = |name: &str| {
        let list = "sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status";
        format!(
            "{list} >{name}; {pando} run -n1 {list} >{name}.step; echo >{name}.there; while [ ! -e {name}.go ]; do sleep 0.05; done"
        )
    };
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap().trim().to_owned();
    let start = |lab: &Lab, name: &str| {
        let id = submit(&lab.nodes[0], &dir, &["-n1", "-c1", "-o", &format!("{name}.out"), "--wrap", &show(name)]);
        until(name, || dir.join(format!("{name}.there")).exists().then_some(()));
        id
    };
    let first = start(&lab, "first");
    // A daemon that begins anew knows whose CPUs they are.
    lab.nodes[0].kill();
    lab.nodes[0].start();
    let second = start(&lab, "second");
    for name in ["first", "second"] {
        assert!(read(name).parse::<u32>().is_ok(), "one CPU: {}", read(name));
        assert_eq!(read(name), read(&format!("{name}.step")));
        fs::write(dir.join(format!("{name}.go")), "").unwrap();
    }
    assert_ne!(read("first"), read("second"));
    for id in [first, second] {
        assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    }
    // They are given back.
    let all = submit(&lab.nodes[0], &dir, &["--exclusive", "-o", "all", "--wrap", "nproc"]);
    assert_eq!(wait(&lab.nodes[0], &dir, &all), 0);
    assert_eq!(read("all"), cpus.to_string());
}

#[test]
fn what_a_node_has_is_given_to_who_asks_for_it() {
    let lab = Lab::new(1, &format!("{JOBS}[node]\nfeatures = [\"ib\"]\n[node.resources]\ngpu = 2\n"));
    let dir = place(&lab, "has");
    let n1 = &lab.nodes[0];
    let job = "echo $PANDO_RESOURCES $CUDA_VISIBLE_DEVICES >$OUT; while [ ! -e $OUT.go ]; do sleep 0.05; done";
    let start = |out: &str, words: &[&str]| {
        let job = format!("OUT={out}; {job}");
        let id = submit(n1, &dir, &[words, &["-o", "log", "--wrap", &job]].concat());
        until(out, || fs::read_to_string(dir.join(out)).ok().filter(|text| text.ends_with('\n')));
        id
    };
    let first = start("first", &["--gres=gpu:1", "-C", "ib"]);
    let second = start("second", &["--gres=gpu:1", "-n1"]);
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap().trim().to_owned();
    assert_eq!((read("first"), read("second")), ("gpu=0 0".into(), "gpu=1 1".into()));
    fs::write(dir.join("first.go"), "").unwrap();
    assert_eq!(wait(n1, &dir, &first), 0);
    // Its GPU is free again; who has none sees none.
    let third = start("third", &["--gres=gpu:1"]);
    assert_eq!(read("third"), "gpu=0 0");
    fs::write(dir.join("second.go"), "").unwrap();
    let (fourth, none) = (submit(n1, &dir, &["-C", "roce", "--wrap", "true"]), start("none", &[]));
    assert_eq!(read("none"), "");
    for out in ["third", "none"] {
        fs::write(dir.join(format!("{out}.go")), "").unwrap();
    }
    for id in [second, third, none] {
        assert_eq!(wait(n1, &dir, &id), 0);
    }
    let said = ok(&mut cli(n1, &dir, &["info", &fourth]));
    assert!(said.contains("never starts"), "what no node has is waited for: {said}");
}

#[test]
fn batch_jobs_keep_off_cpus_that_parallel_jobs_use() {
    let lab = Lab::new(2, JOBS);
    lab.settled();
    let dir = place(&lab, "outside");
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let cpus = std::thread::available_parallelism().unwrap().get().to_string();
    let there = submit(n1, &dir, &["-w", "n2", "--exclusive", "-o", "log", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &there), 0);
    let mut outside = cli(n2, &dir, &["run", "-n", &cpus, "-w", "n2", "sleep", "1000"]).spawn().unwrap();
    let busy = |wanted: u32| {
        let ask = pando_node::queue::ask::Ask::Nodes;
        let all: Vec<pando_queue::Node> = n2.client().post("/v1/queue", &ask).unwrap();
        all.into_iter().any(|n| n.name == "n2" && n.busy == wanted).then_some(())
    };
    until("the queue knows", || busy(cpus.parse().unwrap()));
    let id = submit(n1, &dir, &["-o", "where", "-n1", "-x", "n1", "--wrap", "true"]);
    let elsewhere = submit(n1, &dir, &["-o", "log", "-n1", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &elsewhere), 0);
    assert!(!dir.join("where").exists(), "it waits for the CPUs of n2");
    lab::signal(outside.id(), "INT");
    outside.wait().unwrap();
    until("they are free again", || busy(0));
    assert_eq!(wait(n1, &dir, &id), 0);
}
