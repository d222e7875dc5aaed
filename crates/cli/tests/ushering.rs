//! A node that is short of memory sends programs away, one after the other, and who takes memory fastest waits for that. With the real engine, on
//! nodes of this machine of which one is told how much memory it has.

mod lab;

use lab::group::Group;
use lab::programs::{Programs, at, processes, rich, with_cpus};
use lab::{Lab, ok, until};
use pando_kernel::{procfs, signal};
use pando_node::views::{Decisions, Event};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A program that grows to 4 GB in so many half milliseconds. It is ended long before, however the test ends.
struct Grows {
    run: Child,
    pid: u32,
}

impl Grows {
    fn new(lab: &Lab, words: &[&str], time: u32) -> Self {
        let time = time.to_string();
        let work = [env!("CARGO_BIN_EXE_pando"), "__work", &time, "4000000000", &time];
        let mut grows = Grows { run: lab.nodes[0].cli(words).args(work).spawn().unwrap(), pid: 0 };
        grows.pid = until("the one that grows", || {
            processes(lab).into_iter().find(|p| p.command.contains("__work")).map(|p| p.pid)
        });
        grows
    }

    fn resident(&self) -> u64 {
        procfs::stat(self.pid as i32).unwrap().resident
    }
}

impl Drop for Grows {
    fn drop(&mut self) {
        if self.pid > 0 {
            let _ = signal::kill(self.pid as i32, libc::SIGKILL);
        }
        let _ = self.run.wait();
    }
}

/// The first event of this kind at a node, and of this process unless that is 0.
fn event(lab: &Lab, node: usize, kind: &str, pid: u32) -> Event {
    until(&format!("an event {kind:?}"), || {
        let all: Vec<Event> = lab.nodes[node].client().get("/v1/events").unwrap();
        all.into_iter().find(|e| e.kind == kind && (pid == 0 || e.pid == Some(pid)))
    })
}

#[test]
fn a_node_that_is_short_of_memory_sends_a_program_away() {
    let group = Group::new("memory");
    // Rich in CPUs, so that nothing leaves for speed.
    let lab = rich(&[&group.line(), ""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    until("a look at the one that stays", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        all.stays.iter().any(|d| d.text.contains("no place is better")).then_some(())
    });
    group.used(1000);
    let p = at(&lab, "n2", 1);
    assert!(p.records[0].reason.starts_with("memory: memory is short here, 24 MB free"), "{:?}", p.records);
    programs.end_well();
}

#[test]
fn who_takes_memory_stands_still_while_another_one_makes_room() {
    let group = Group::new("brake");
    let lab = rich(&[&group.line(), ""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let grows = Grows::new(&lab, &["run", "--no-move"], 100_000);
    let grown = |megabytes: u64| until("that it grows", || (grows.resident() > megabytes << 20).then_some(()));
    grown(20);
    group.used(1010);
    let at_n2 = at(&lab, "n2", 1);
    assert!(at_n2.records[0].reason.starts_with("memory: "), "{:?}", at_n2.records);
    let event = event(&lab, 0, "still", 0);
    assert_eq!(event.pid, Some(grows.pid), "{event:?}");
    assert!(event.text.contains("stands still for a moment: node n1 has 14 MB left"), "{event:?}");
    group.used(100);
    // Nobody holds it any more, and it goes on.
    until("that nobody traces it", || (procfs::status(grows.pid as i32).unwrap().tracer == 0).then_some(()));
    grown((grows.resident() >> 20) + 1);
    programs.end_well();
}

/// It has so much memory, and waits: home's copy does not come back soon when it has left.
fn waits(lab: &Lab, node: usize, megabytes: u32) -> Child {
    let script = format!("x = b'x' * ({megabytes} << 20); print('ready', flush=True); input()");
    let mut command = lab.nodes[node].cli(&["run", "python3", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn end_well(mut waits: Child) {
    waits.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(waits.wait().unwrap().success());
}

/// 114 MB are missing from the beginning: while memory falls fast it is taken for less than it is.
fn short(name: &str) -> Group {
    let group = Group::new(name);
    group.used(1010);
    group
}

#[test]
fn a_guest_stands_still_as_well() {
    let group = short("guest-brake");
    let lab = rich(&["", &group.line()]);
    ok(&mut lab.nodes[0].cli(&["drain", "n1"]));
    until("that n1 is known to be drained", || (lab.nodes[1].node("n1").standing == "drained").then_some(()));
    let large = waits(&lab, 1, 160);
    // 16 MB a second.
    let grows = Grows::new(&lab, &["run", "--no-move", "--node", "n2"], 500_000);
    let guest = until("the guest", || lab.nodes[1].guest(grows.pid));
    let resident = || procfs::stat(guest).unwrap().resident;
    let begun = resident();
    until("that it grows", || (resident() > begun + (4 << 20)).then_some(()));
    ok(&mut lab.nodes[0].cli(&["drain", "--undo", "n1"]));
    let event = event(&lab, 1, "still", grows.pid);
    assert_eq!(event.home.as_deref(), Some("n1"), "{event:?}");
    // The large one's memory is about to come back, as far as its node knows, for some seconds.
    until("that it stands still", || (procfs::status(guest).unwrap().state == 't').then_some(()));
    let ticks = || procfs::stat(guest).unwrap().cpu_ticks;
    let then = (ticks(), resident());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((ticks(), resident()), then);
    group.used(100);
    until("that it grows again", || (resident() > then.1).then_some(()));
    end_well(large);
}

#[test]
fn nobody_stands_still_for_a_daemon_that_is_gone() {
    // At home the tracing thread ends with the daemon; a guest's helper hears nothing more.
    for host in [0, 1] {
        let group = short(&format!("gone-{host}"));
        let mut configs = ["".to_owned(), "".to_owned()];
        configs[host] = group.line();
        let mut lab = rich(&[&configs[0], &configs[1]]);
        let there = format!("n{}", 2 - host);
        ok(&mut lab.nodes[0].cli(&["drain", &there]));
        until("that it is known to be drained", || (lab.nodes[host].node(&there).standing == "drained").then_some(()));
        let large = waits(&lab, host, 160);
        let words = ["run", "--no-move", "--node", "n2"];
        let grows = Grows::new(&lab, if host == 0 { &words[..2] } else { &words }, 500_000);
        let runs =
            until("where it runs", || if host == 0 { Some(grows.pid as i32) } else { lab.nodes[1].guest(grows.pid) });
        let resident = || procfs::stat(runs).unwrap().resident;
        let begun = resident();
        until("that it grows", || (resident() > begun + (4 << 20)).then_some(()));
        ok(&mut lab.nodes[0].cli(&["drain", "--undo", &there]));
        event(&lab, host, "still", grows.pid);
        until("that it stands still", || (procfs::status(runs).unwrap().state == 't').then_some(()));
        lab.nodes[host].kill();
        let then = resident();
        until("that it goes on", || (resident() > then).then_some(()));
        drop(grows);
        end_well(large);
    }
}

#[test]
fn memory_that_is_about_to_come_back_is_counted() {
    let group = short("coming");
    let lab = rich(&[&group.line(), ""]);
    ok(&mut lab.nodes[0].cli(&["drain", "n2"]));
    until("that n2 is known to be drained", || (lab.nodes[0].node("n2").standing == "drained").then_some(()));
    let children = [waits(&lab, 0, 130), waits(&lab, 0, 160)];
    ok(&mut lab.nodes[0].cli(&["drain", "--undo", "n2"]));
    // One of them is enough.
    let left = until("that both have left", || {
        let all: Vec<Event> = lab.nodes[0].client().get("/v1/events").unwrap();
        let left: Vec<Event> = all.into_iter().filter(|e| e.kind == "move").collect();
        (left.len() == 2).then_some(left)
    });
    let apart = left[1].time_ms - left[0].time_ms;
    assert!(apart >= 4000, "the second left when the first one's memory was about to be free: {apart} ms");
    children.into_iter().for_each(end_well);
}

#[test]
fn a_home_that_is_short_of_memory_lets_nothing_through() {
    let group = Group::new("veto");
    let lab = with_cpus(&[(0.05, &group.line()), (0.5, ""), (512.0, "")]);
    ok(&mut lab.nodes[0].cli(&["drain", "n3"]));
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    at(&lab, "n2", 1);
    group.used(1010);
    until("that memory is known to be short", || (lab.nodes[0].node("n1").free < 100 << 20).then_some(()));
    ok(&mut lab.nodes[0].cli(&["drain", "--undo", "n3"]));
    until("the veto", || {
        let all: Decisions = lab.nodes[1].client().get("/v1/decisions").unwrap();
        all.stays.iter().any(|d| d.text.contains("come by n1, which is short of memory")).then_some(())
    });
    assert_eq!(processes(&lab)[0].place, "n2");
    // Not even if it must leave: home has no room for what it has written.
    ok(&mut lab.nodes[1].cli(&["drain"]));
    until("the veto of a move that must be", || {
        let all: Decisions = lab.nodes[1].client().get("/v1/decisions").unwrap();
        let is = |text: &str| text.contains("come by n1, which is short of memory") && text.contains("drain");
        all.stays.iter().chain(&all.moves).any(|d| is(&d.text)).then_some(())
    });
    assert_eq!(processes(&lab)[0].place, "n2");
    group.used(100);
    until("that it is at n3", || (processes(&lab)[0].place == "n3").then_some(()));
    programs.end_well();
}

#[test]
fn who_was_sent_away_for_memory_goes_back_when_there_is_some() {
    let group = Group::new("back");
    let lab = rich(&["", &group.line()]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run", "--node", "n2"]);
    at(&lab, "n2", 1);
    group.used(1010);
    let p = at(&lab, "n1", 2);
    assert!(p.records[1].reason.starts_with("memory: "), "{:?}", p.records);
    // It would try again after one second, and after two more.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(processes(&lab)[0].moves, 2, "n2 has no memory for it");
    group.used(100);
    let p = at(&lab, "n2", 3);
    assert_eq!(p.records[2].reason, "goes back");
    programs.end_well();
}
