//! Children of a placed process, and what it becomes by exec, go where it was sent once they compute. With the real engine.

mod lab;

use lab::{Lab, ok, until};
use pando_node::views::{Event, Process};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Computes until the file `stop` is there.
const COMPUTE: &str = "compute() { while [ ! -e $stop ]; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done; }";

/// A program that is told to stop, and waited for, however the test ends.
struct Program {
    child: Child,
    stop: PathBuf,
}

impl Program {
    fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.stop, "");
        let _ = self.child.wait();
    }
}

fn start(lab: &Lab, words: &[&str], script: &str) -> Program {
    let mut command = match words {
        [] => Command::new("/bin/sh"),
        words => lab.nodes[0].cli(words),
    };
    if !words.is_empty() {
        command.arg("/bin/sh");
    }
    let stop = lab.dir.join("stop");
    command.args(["-c", &format!("{COMPUTE}\n{script}")]).env("stop", &stop).env("COMPUTE", COMPUTE);
    Program { child: command.stdin(Stdio::null()).spawn().unwrap(), stop }
}

fn processes(lab: &Lab) -> Vec<Process> {
    lab.nodes[0].client().get("/v1/processes").unwrap()
}

/// Waits for a process at `place` that somebody moved for this reason.
fn arrived(lab: &Lab, place: &str, reason: &str) -> Process {
    until(&format!("one that {reason} at {place}"), || {
        let is = |p: &Process| p.place == place && p.records.last().is_some_and(|r| r.reason.starts_with(reason));
        processes(lab).into_iter().find(is)
    })
}

fn first_child(pid: u32) -> u32 {
    until("a child", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

fn finish(mut program: Program) {
    std::fs::write(&program.stop, "").unwrap();
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn children_and_grandchildren_that_compute_go_to_the_family_and_home_with_it() {
    let lab = Lab::new(3, "");
    let child =
        start(&lab, &["run", "--node", "n2"], "(true; compute; exit 0) & /bin/sh -c \"$COMPUTE; compute\"; wait $!");
    let root = arrived(&lab, "n2", "run");
    until("two that follow", || {
        let all = processes(&lab);
        let follow =
            |p: &&Process| p.place == "n2" && p.records.first().is_some_and(|r| r.reason.starts_with("follows "));
        (all.iter().filter(follow).count() == 2).then_some(())
    });
    ok(&mut lab.nodes[0].cli(&["move", "--family", &root.pid.to_string(), "n3"]));
    assert!(processes(&lab).iter().all(|p| p.place == "n3"), "{:?}", processes(&lab));
    ok(&mut lab.nodes[0].cli(&["move", "--family", &root.pid.to_string(), "home"]));
    assert!(processes(&lab).iter().all(|p| p.place == "n1"), "{:?}", processes(&lab));
    let said = ok(&mut lab.nodes[0].cli(&["explain", &root.pid.to_string()]));
    assert!(!said.contains("it goes to"), "who was sent home stays there: {said}");
    finish(child);
}

#[test]
fn a_program_goes_back_after_exec_and_its_older_children_stay() {
    let lab = Lab::new(2, "");
    let child = start(
        &lab,
        &[],
        "compute & echo; while [ ! -e $stop.go ]; do sleep 0.02; done; exec /bin/sh -c \"$COMPUTE; compute\"",
    );
    let pid = child.id();
    let older = first_child(pid);
    ok(&mut lab.nodes[0].cli(&["move", &pid.to_string(), "n2"]));
    std::fs::write(lab.dir.join("stop.go"), "").unwrap();
    let back = arrived(&lab, "n2", "goes back");
    assert_eq!(back.pid, pid);
    assert!(back.records.iter().any(|r| r.to == "n1" && r.reason.contains("exec")), "{:?}", back.records);
    assert!(processes(&lab).iter().all(|p| p.pid != older), "it was there before anything was moved");
    finish(child);
    until("the child's end", || (!std::path::Path::new(&format!("/proc/{older}")).exists()).then_some(()));
}

#[test]
fn nobody_follows_where_that_is_switched_off() {
    let lab = Lab::new(2, "[follow]\nafter_ms = 0");
    let parent = start(&lab, &["run", "--node", "n2"], "compute & wait");
    let root = arrived(&lab, "n2", "run");
    let child = first_child(root.pid);
    until("half a second of CPU time", || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        let ticks = stat.split_whitespace().nth(13)?.parse::<u32>().ok()?;
        (ticks > 50).then_some(())
    });
    assert!(processes(&lab).iter().all(|p| p.pid != child));
    finish(parent);
}

#[test]
fn a_family_that_can_not_follow_is_told_of_once_and_then_counted() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED a_family_that_can_not_follow_is_told_of_once_and_then_counted: there is no python3 here");
        return;
    }
    let lab = Lab::new(2, "");
    let child = "import mmap, os\nm = mmap.mmap(-1, 4096)\nwhile not os.path.exists(os.environ['stop']): pass";
    let script = format!("for i in 1 2 3 4 5 6; do python3 -c \"{child}\" & done; wait");
    let parent = start(&lab, &["run", "--node", "n2"], &script);
    let root = arrived(&lab, "n2", "run").pid;
    let told = || -> Vec<Event> {
        let all: Vec<Event> = lab.nodes[0].client().get("/v1/events").unwrap();
        all.into_iter().filter(|e| e.kind == "failed").collect()
    };
    until("ten refusals", || told().iter().any(|e| e.text.contains("number 10 of this family")).then_some(()));
    let told = told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|e| e.text.contains(&format!("follows {root}"))), "{told:?}");
    assert!(told.iter().all(|e| e.reason.as_ref().is_some_and(|r| r.contains("shares writable memory"))), "{told:?}");
    assert_eq!((told[0].to.as_deref(), told[0].home.as_deref()), (Some("n2"), Some("n1")));
    // Between two attempts: what never moved is not listed.
    until("nobody but the parent", || processes(&lab).iter().all(|p| p.pid == root).then_some(()));
    finish(parent);
}

#[test]
fn who_mostly_waits_for_home_comes_back_unless_somebody_wants_it_there() {
    let lab = Lab::new(2, "");
    let asks = "while [ ! -e $stop ]; do :; done";
    let free = start(&lab, &["run", "-b"], asks);
    let wanted = start(&lab, &["run", "--node", "n2"], asks);
    until("one that is taken home", || {
        let home = |p: &Process| p.place == "n1" && p.records.last().is_some_and(|r| r.reason.starts_with("it makes "));
        processes(&lab).iter().any(home).then_some(())
    });
    let there: Vec<Process> = processes(&lab).into_iter().filter(|p| p.place == "n2").collect();
    assert!(there.iter().any(|p| p.records.iter().all(|r| r.to == "n2")), "{there:?}");
    finish(free);
    finish(wanted);
}
