//! What users say of groups of programs, and administrators and owners of their nodes, holds; and it outlives the daemon.

mod lab;

use lab::programs::{Programs, at, poor_and_rich, processes};
use lab::{fails, ok, until};
use pando_node::views::Decisions;
use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

#[test]
fn programs_that_are_to_be_apart_part() {
    let lab = poor_and_rich(&["", ""]);
    let mut programs = Programs::new(&lab);
    for _ in 0..3 {
        programs.start(&lab, &["run", "--apart", "db"]);
    }
    let places = || processes(&lab).iter().map(|p| p.place.clone()).collect::<BTreeSet<String>>();
    until("three places", || (places().len() == 3).then_some(()));
    // The node where one still is would be slower by far: it stays there all the same, for that reason.
    let stays = until("a look at the one that stays", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        (all.stays.len() == 1).then(|| all.stays[0].text.clone())
    });
    assert!(stays.contains("no other node that is known may take it") || stays.contains("ms more"), "{stays}");
    assert_eq!(places().len(), 3);
    programs.end_well();
}

#[test]
fn programs_that_are_to_be_together_stay_together() {
    let lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run", "--together", "pair"]);
    programs.start(&lab, &["run", "--together", "pair"]);
    let both_at = |place: &str| {
        until(&format!("both at {place}"), || {
            let all = processes(&lab);
            let there = all.iter().filter(|p| p.place == place && ["away", "home"].contains(&p.phase.as_str()));
            (all.len() == 2 && there.count() == 2).then_some(all)
        })
    };
    let both = both_at("n2");
    assert!(both.iter().any(|p| p.records.iter().any(|r| r.reason.starts_with("together"))), "{both:?}");
    // Where somebody sends one, the other follows.
    ok(&mut lab.nodes[0].cli(&["move", &both[0].pid.to_string(), "home"]));
    both_at("n1");
    programs.end_well();
}

#[test]
fn guests_leave_when_the_owner_is_back() {
    let keyboard = std::env::temp_dir().join(format!("pando-keyboard-{}", std::process::id()));
    let used = |ago_s: u64| {
        let when = SystemTime::now() - Duration::from_secs(ago_s);
        File::create(&keyboard).unwrap().set_times(FileTimes::new().set_accessed(when)).unwrap();
    };
    used(7200);
    let owner = format!("[owner]\ndevices = [\"{}\"]\nidle_s = 3600\n", keyboard.display());
    let lab = poor_and_rich(&[&owner]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    at(&lab, "n2", 1);
    used(0);
    let p = at(&lab, "n1", 2);
    assert!(p.records[1].reason.starts_with("owner: "), "{:?}", p.records);
    until("that it is known", || (lab.nodes[0].node("n2").standing == "owner").then_some(()));
    used(7200);
    at(&lab, "n2", 3);
    programs.end_well();
    std::fs::remove_file(keyboard).unwrap();
}

#[test]
fn a_node_takes_only_whose_guests_its_administrator_wants_and_no_more_than_it_likes() {
    let lab = poor_and_rich(&["guests.from = [\"n7\"]\n", "guests.max_load = 0.00001\n"]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let said = until("a refusal", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        all.moves.into_iter().find(|d| d.text.contains("[guests] from"))
    });
    assert!(said.text.starts_with("did not go to n2") && said.text.contains("no processes of n1"), "{said:?}");
    // By hand, too.
    let why = fails(&mut lab.nodes[0].cli(&["move", &said.pid.to_string(), "n2"]));
    assert!(why.contains("it takes no processes of n1 ([guests] from)"), "{why}");
    // The other one is idle, and takes one; with that it has enough, but who is sent by hand comes.
    ok(&mut lab.nodes[0].cli(&["move", &said.pid.to_string(), "n3"]));
    until("enough", || (lab.nodes[0].node("n3").standing == "full").then_some(()));
    programs.start(&lab, &["run", "--node", "n3"]);
    until("two at n3", || (processes(&lab).iter().filter(|p| p.place == "n3").count() == 2).then_some(()));
    programs.end_well();
}

#[test]
fn what_was_said_outlives_the_daemon() {
    let mut lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run", "--no-move"]);
    programs.start(&lab, &["run", "--node", "n2"]);
    let sent = at(&lab, "n2", 1);
    let wants = |lab: &lab::Lab| {
        until("the wish", || {
            let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
            all.stays.iter().any(|d| d.text.contains("--no-move")).then_some(())
        });
    };
    wants(&lab);
    assert!(lab.nodes[0].stop());
    lab.nodes[0].start();
    lab.settled();
    wants(&lab);
    // What was sent by hand is not moved on, except out of a node that is emptied; that outlives a crash, too.
    until("it is known again", || lab.nodes[0].process(sent.pid).filter(|p| p.phase == "away" && p.place == "n2"));
    ok(&mut lab.nodes[0].cli(&["drain", "n2"]));
    until("it is home", || lab.nodes[0].process(sent.pid).filter(|p| p.place == "n1" && p.phase == "home"));
    let kept = lab.nodes[1].state.join("kept.json");
    until("it is written", || std::fs::read_to_string(&kept).ok().filter(|text| text.contains("\"drained\":true")));
    lab.nodes[1].kill();
    lab.nodes[1].start();
    lab.settled();
    until("it is still drained", || (lab.nodes[0].node("n2").standing == "drained").then_some(()));
    programs.end_well();
}

#[test]
fn what_nodes_were_moving_when_one_crashed_is_not_taken_for_a_wish() {
    let mut lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let p = at(&lab, "n2", 1);
    lab.nodes[0].kill();
    // As if it had crashed before the end of the move was written down.
    let file = lab.nodes[0].state.join("kept.json");
    let read = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(&file).unwrap()).unwrap();
    let mut kept = read();
    assert_eq!(kept["programs"].as_array().unwrap().len(), 1);
    kept["sent"] = serde_json::json!([]);
    std::fs::write(&file, kept.to_string()).unwrap();
    lab.nodes[0].start();
    lab.settled();
    until("it is known again", || lab.nodes[0].process(p.pid).filter(|p| p.phase == "away" && p.place == "n2"));
    // The next thing that is written down is what somebody has sent: that one alone.
    programs.start(&lab, &["run", "--node", "n2"]);
    let sent = until("a process that was sent", || {
        let sent = read()["sent"].as_array().unwrap().clone();
        (!sent.is_empty()).then_some(sent)
    });
    assert!(sent.iter().all(|s| s["pid"] != p.pid && s["aim"]["Node"] == "n2"), "{sent:?}");
    programs.end_well();
}

#[test]
fn what_can_not_move_is_not_even_offered() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED what_can_not_move_is_not_even_offered: there is no python3 here");
        return;
    }
    let lab = poor_and_rich(&[""]);
    let stop = lab.dir.with_extension("stop-sharing");
    let shares = "import mmap, os, sys\nm = mmap.mmap(-1, 4096)\nwhile not os.path.exists(sys.argv[1]): pass";
    let mut command = lab.nodes[0].cli(&["run", "python3", "-c", shares]);
    let mut child = command.arg(&stop).stdin(std::process::Stdio::null()).spawn().unwrap();
    let (pid, others) = until("a refusal", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        let shares = |text: &str| text.contains("shares writable memory");
        let pid = all.moves.iter().find(|d| shares(&d.text))?.pid;
        // Before it mapped anything it may have been moved.
        Some((pid, all.moves.iter().filter(|d| d.pid == pid && !shares(&d.text)).count()))
    });
    let audit = std::fs::read_to_string(lab.nodes[0].state.join("audit.log")).unwrap();
    std::fs::write(&stop, "").unwrap();
    assert!(child.wait().unwrap().success());
    std::fs::remove_file(&stop).unwrap();
    let on = format!("\"what\":\"move\",\"on\":\"process {pid} (");
    assert_eq!(audit.lines().filter(|l| l.contains(&on)).count(), others, "{audit}");
}

#[test]
fn one_asks_another_node_what_it_decided_and_sees_who_started_whom() {
    let lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let p = at(&lab, "n2", 1);
    until("a look at the guest", || {
        let text = ok(&mut lab.nodes[0].cli(&["explain", "--node", "n2"]));
        assert!(text.starts_with("node n2 moved by itself"), "{text}");
        text.contains(&format!("process {} of n1 it stays: ", p.pid)).then_some(())
    });
    let here = ok(&mut lab.nodes[0].cli(&["explain", "--node"]));
    assert!(here.contains(&format!("process {} of n1 went to n2: it ends ", p.pid)), "{here}");
    let none = fails(&mut lab.nodes[0].cli(&["explain", "--node", "n9"]));
    assert!(none.contains("there is no node n9"), "{none}");
    // A child that moves is drawn below its parent.
    programs.start(&lab, &["run", "/bin/sh", "-c", "\"$@\" & wait $!", "sh"]);
    let child = until("a child that has moved", || {
        processes(&lab).into_iter().find(|c| c.pid != p.pid && c.under != 0 && c.place == "n2" && c.moves == 1)
    });
    let tree = ok(&mut lab.nodes[0].cli(&["ps", "--tree"]));
    let lines: Vec<&str> = tree.lines().map(str::trim_start).collect();
    let line = |pid: u32| lines.iter().position(|l| l.starts_with(&format!("{pid} "))).unwrap();
    assert_eq!(line(child.pid), line(child.under) + 1, "{tree}");
    assert!(lines[line(child.pid)].contains("└─ /bin/sh") && !lines[line(child.under)].contains('└'), "{tree}");
    // So is one that was never moved, and it is no program of its own.
    programs.start(&lab, &["run", "--home-only", "/bin/sh", "-c", "\"$@\" & wait $!", "sh"]);
    until("a child at home in the tree", || {
        let tree = ok(&mut lab.nodes[0].cli(&["ps", "--tree"]));
        tree.lines().any(|l| l.contains("└─ ") && l.contains(" home ")).then_some(())
    });
    assert!(processes(&lab).iter().all(|p| p.under == 0 || p.moves > 0), "{:?}", processes(&lab));
    programs.end_well();
}
