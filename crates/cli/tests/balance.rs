//! Nodes move processes by themselves: to where they end sooner, not against their users' wishes, and out of a node that is drained. With the real
//! engine, on two nodes of this machine of which one says that it has hardly any CPU.

mod lab;

use lab::programs::{Programs, at, poor_and_rich, processes, rich};
use lab::{Lab, fails, ok, until};
use pando_node::views::{Decisions, Event};
use std::path::PathBuf;

/// What a node takes for its memory group: 1 GB, of which a test says how much is used.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Group {
        let dir = std::env::temp_dir().join(format!("pando-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("memory.max"), (1u64 << 30).to_string()).unwrap();
        let group = Group(dir);
        group.used(100);
        group
    }

    fn used(&self, megabytes: u64) {
        std::fs::write(self.0.join("memory.current"), (megabytes << 20).to_string()).unwrap();
    }

    /// Of the node's configuration.
    fn line(&self) -> String {
        format!("memory_cgroup = {:?}\n", self.0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_goes_where_it_ends_sooner_and_comes_back_when_that_node_is_drained() {
    let lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let p = at(&lab, "n2", 1);
    assert!(p.records[0].reason.starts_with("balance: it ends "), "{:?}", p.records);
    let said: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
    assert!(said.moves.iter().any(|d| d.pid == p.pid && d.text.starts_with("went to n2: it ends ")), "{said:?}");
    ok(&mut lab.nodes[0].cli(&["drain", "n2"]));
    let p = at(&lab, "n1", 2);
    assert!(p.records[1].reason.starts_with("drain: "), "{:?}", p.records);
    lab.nodes[1].logs("node n2 is being drained (asked for n1)");
    // Nothing goes there now.
    until("that n2 is known to be drained", || (lab.nodes[0].node("n2").standing == "drained").then_some(()));
    let explained = until("a reason", || {
        let text = ok(&mut lab.nodes[0].cli(&["explain", &p.pid.to_string()]));
        text.contains("balance: it stays: no other node").then_some(text)
    });
    assert!(explained.contains("decided"), "{explained}");
    ok(&mut lab.nodes[0].cli(&["drain", "--undo", "n2"]));
    at(&lab, "n2", 3);
    programs.end_well();
}

#[test]
fn what_users_want_is_heeded() {
    let lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let mine = at(&lab, "n2", 1);
    let wishes =
        [&["run", "--home-only"][..], &["run", "--no-move"], &["run", "--nodes", "n1"], &["run", "--max-moves", "0"]];
    wishes.iter().for_each(|words| programs.start(&lab, words));
    // A program that was put somewhere by hand stays there.
    programs.start(&lab, &["run", "--node", "n2"]);
    let home = until("that all are looked at", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        let reasons =
            ["its user said --home-only", "its user said --no-move", "no other node", "its user said --max-moves"];
        let said = |why: &&&str| all.stays.iter().any(|d| d.text.contains(**why));
        let all = processes(&lab);
        let sent = all.iter().filter(|p| p.place == "n2" && p.moves == 1).count() == 2;
        (sent && reasons.iter().filter(said).count() == reasons.len()).then_some(all)
    });
    assert_eq!(home.iter().filter(|p| p.place == "n1" && p.moves == 0).count(), 4, "{home:?}");
    // Its user calls the first one home: it stays there, too.
    ok(&mut lab.nodes[0].cli(&["move", &mine.pid.to_string(), "home"]));
    until("looks at those that stay, twice", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        (!all.stays.iter().any(|d| d.pid == mine.pid) && all.stays.len() == 4).then_some(())
    });
    assert_eq!(lab.nodes[0].process(mine.pid).unwrap().place, "n1");
    programs.end_well();
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
    // Grows to 4 GB in some minutes; it is ended long before.
    let work = ["__work", "100000", "4000000000", "100000"];
    let pando = env!("CARGO_BIN_EXE_pando");
    let mut grows = lab.nodes[0].cli(&["run", "--no-move", pando]).args(work).spawn().unwrap();
    let pid = until("the one that grows", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        all.stays.iter().find(|d| d.text.contains("--no-move")).map(|d| d.pid)
    });
    let resident = || pando_kernel::procfs::stat(pid as i32).unwrap().resident;
    let begun = resident();
    until("that it grows", || (resident() > begun + (10 << 20)).then_some(()));
    group.used(1010);
    let at_n2 = at(&lab, "n2", 1);
    assert!(at_n2.records[0].reason.starts_with("memory: "), "{:?}", at_n2.records);
    let event = until("that somebody stands still", || {
        let all: Vec<Event> = lab.nodes[0].client().get("/v1/events").unwrap();
        all.into_iter().find(|e| e.kind == "still")
    });
    assert_eq!(event.pid, Some(pid), "{event:?}");
    assert!(event.text.contains("stands still for a moment: node n1 has 14 MB left"), "{event:?}");
    group.used(100);
    // Nobody holds it any more, and it goes on.
    until("that nobody traces it", || (pando_kernel::procfs::status(pid as i32).unwrap().tracer == 0).then_some(()));
    let then = resident();
    until("that it grows again", || (resident() > then).then_some(()));
    pando_kernel::signal::kill(pid as i32, 9).unwrap();
    assert!(!grows.wait().unwrap().success());
    programs.end_well();
}

#[test]
fn a_drained_node_is_emptied_even_where_nothing_moves_by_itself() {
    let lab = Lab::new(2, "");
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run", "--node", "n2"]);
    at(&lab, "n2", 1);
    ok(&mut lab.nodes[0].cli(&["drain", "n2"]));
    let p = at(&lab, "n1", 2);
    assert!(p.records[1].reason.starts_with("drain: "), "{:?}", p.records);
    assert!(lab.nodes[1].audit().contains("drain"), "{}", lab.nodes[1].audit());
    // Nor does anybody get there by hand.
    let refused = fails(&mut lab.nodes[0].cli(&["move", &p.pid.to_string(), "n2"]));
    assert!(refused.contains("it is being drained"), "{refused}");
    programs.end_well();
}
