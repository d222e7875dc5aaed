//! What the daemon does around a move: who is asked, who is told, what outlives what. The engine here is a fake one
//! that only talks.

mod lab;

use lab::{Lab, Sleeper, fails, ok, signal, this_program, until};
use pando_node::client::Client;
use pando_node::views::{Event, MoveAnswer, MoveRequest, Process};

/// Run by a daemon as its engine; nothing in an ordinary run of the tests.
#[test]
fn __deputy() {
    lab::fake::deputy();
}

/// The same for guests.
#[test]
fn __guest() {
    lab::fake::guest();
}

fn fake_lab(count: usize) -> Lab {
    Lab::new(count, &format!("engine_program = {:?}", this_program()))
}

fn mv(client: &Client, pid: u32, dest: &str, reason: &str) -> Result<MoveAnswer, String> {
    let request = MoveRequest { pid, dest: dest.into(), reason: Some(reason.into()), family: false };
    client.post("/v1/move", &request).map_err(|e| e.to_string())
}

#[test]
fn a_process_goes_on_and_home_and_is_listed() {
    let lab = fake_lab(3);
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    let pid = sleeper.pid();
    let word = pid.to_string();
    let said = ok(&mut n1.cli(&["move", &word, "n2"]));
    assert!(said.contains("n1 -> n2 (frozen 2.5 ms"), "{said}");
    let table = ok(&mut n1.cli(&["ps"]));
    let row = table.lines().find(|l| l.trim_start().starts_with(&word)).unwrap();
    assert!(row.contains("n2") && row.contains("away") && row.contains("1.2s"), "{table}");
    assert_eq!(mv(&n1.client(), pid, "n2", "user").unwrap().record.map(|r| r.to), None, "it is there already");
    let best = mv(&n1.client(), pid, "best", "user").unwrap();
    assert!(["n1", "n3"].contains(&best.place.as_str()), "another place than n2: {best:?}");
    mv(&n1.client(), pid, "n3", "user").unwrap();
    let home = mv(&n1.client(), pid, "home", "user").unwrap();
    assert_eq!(home.place, "n1");
    until("the deputy's end", || n1.process(pid).is_some_and(|p| p.helper.is_none()).then_some(()));
    let known: Process = n1.process(pid).unwrap();
    assert_eq!((known.place.as_str(), known.phase.as_str()), ("n1", "home"));
    assert!(known.moves >= 3 && known.records.len() as u32 == known.moves, "{known:?}");
    let already = ok(&mut n1.cli(&["move", &word, "home"]));
    assert!(already.contains("already"), "{already}");
    mv(&n1.client(), pid, "n2", "user").expect("it may leave again");
    let explained = ok(&mut n1.cli(&["explain", &word]));
    assert!(explained.contains("best other node") && explained.contains("moved n1 -> n2"), "{explained}");
    let events = ok(&mut n1.cli(&["events"]));
    assert!(events.contains("went from n1 to n2"), "{events}");
    assert!(n1.audit().contains("\"what\":\"move\""));
    until("no zombies", || (n1.zombies() == 0).then_some(()));
    let deputy = n1.process(pid).unwrap().helper.unwrap();
    drop(sleeper);
    signal(deputy, "KILL");
    until("it is forgotten", || n1.process(pid).is_none().then_some(()));
}

#[test]
fn refusals_name_the_thing_the_cause_and_the_next_step() {
    let mut lab = fake_lab(2);
    lab.nodes[1].kill();
    until("n2 down", || (lab.nodes[0].node("n2").state == pando_node::views::Liveness::Down).then_some(()));
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    let pid = sleeper.pid().to_string();
    for (words, parts) in [
        (["move", &pid, "n2"], ["node n2 is down", "pando nodes"]),
        (["move", &pid, "n9"], ["there is no node n9", "`pando nodes` shows n1, n2"]),
        (["move", &pid, "best"], ["no other node is up", "pando nodes"]),
        (["move", "4194000", "n2"], ["there is no process 4194000", "ps"]),
        (["move", &n1.pid().to_string(), "n2"], ["is part of Pando itself", "process"]),
    ] {
        let said = fails(&mut n1.cli(&words));
        assert!(parts.iter().all(|p| said.contains(p)), "{words:?}: {said}");
    }
}

#[test]
fn a_helper_that_fails_is_told_about_and_leaves_nothing() {
    let lab = fake_lab(2);
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    let crashed = mv(&n1.client(), sleeper.pid(), "n2", "crash").unwrap_err();
    assert!(crashed.contains("ended without an answer") && crashed.contains("helpers.log"), "{crashed}");
    let early = mv(&n1.client(), sleeper.pid(), "n2", "complain").unwrap_err();
    assert_eq!(early, "the moon is in the way");
    assert_eq!(mv(&n1.client(), sleeper.pid(), "n2", "user").unwrap().place, "n2");
    let deputy = n1.process(sleeper.pid()).unwrap().helper.unwrap();
    signal(deputy, "KILL");
    n1.logs("its home helper here died; what was away is lost");
    until("no zombies", || (n1.zombies() == 0).then_some(()));
    let events: Vec<Event> = n1.client().get("/v1/events").unwrap();
    assert!(events.iter().any(|e| e.kind == "lost"), "{events:?}");
}

#[test]
fn helpers_outlive_their_daemon_and_serve_the_next() {
    let mut lab = fake_lab(3);
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    mv(&lab.nodes[0].client(), pid, "n2", "user").unwrap();
    let deputy = lab.nodes[0].process(pid).unwrap().helper.unwrap();
    for end in ["KILL", "TERM"] {
        match end {
            "KILL" => lab.nodes[0].kill(),
            _ => assert!(lab.nodes[0].stop()),
        }
        lab.nodes[0].start();
        lab.settled();
        let n1 = &lab.nodes[0];
        let known = until("the deputy's return", || n1.process(pid).filter(|p| p.helper == Some(deputy)));
        assert_eq!(known.phase, "away");
        let dest = if end == "KILL" { "n3" } else { "n2" };
        assert_eq!(mv(&n1.client(), pid, dest, "user").unwrap().place, dest);
    }
    assert_eq!(lab::lines_of(&lab.nodes[0].state.join("deputy-orders")).len(), 1, "the same deputy all the time");
}

#[test]
fn two_requests_for_one_process_start_one_deputy() {
    let lab = fake_lab(2);
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    let pid = sleeper.pid();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let client = n1.client();
            std::thread::spawn(move || mv(&client, pid, "n2", "user"))
        })
        .collect();
    let answers: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let moved = answers.iter().filter(|a| a.as_ref().is_ok_and(|a| a.record.is_some())).count();
    assert_eq!(moved, 1, "{answers:?}");
    for refused in answers.iter().filter_map(|a| a.as_ref().err()) {
        assert!(refused.contains("is being moved just now"), "{refused}");
    }
    assert_eq!(lab::lines_of(&n1.state.join("deputy-orders")).len(), 1);
}
