//! What `pando events` shows: fields for programs, choice for people, and all of it again after a crash of the daemon.

mod lab;

use lab::{Lab, Sleeper, fails, ok, this_program, until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Run by a daemon as its engine; nothing in an ordinary run of the tests.
#[test]
fn __deputy() {
    lab::fake::deputy();
}

fn events(lab: &Lab, words: &[&str]) -> Vec<Value> {
    let text = ok(&mut lab.nodes[0].cli(&[&["events", "--json"], words].concat()));
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn lab_with_a_move() -> (Lab, Sleeper) {
    let lab = Lab::new(2, &format!("engine_program = {:?}", this_program()));
    let sleeper = Sleeper::new();
    ok(&mut lab.nodes[0].cli(&["move", &sleeper.pid().to_string(), "n2"]));
    (lab, sleeper)
}

#[test]
fn programs_find_who_moved_from_where_to_where_and_why() {
    let (lab, sleeper) = lab_with_a_move();
    let all = events(&lab, &[]);
    let moved = all.iter().find(|e| e["kind"] == "move").unwrap_or_else(|| panic!("{all:?}"));
    let expected = [("home", "n1"), ("from", "n1"), ("to", "n2"), ("reason", "user")];
    for (field, value) in expected {
        assert_eq!(moved[field], value, "{field} of {moved}");
    }
    assert_eq!(moved["pid"], sleeper.pid());
    let me = moved["uid"].as_u64().unwrap();
    let named =
        String::from_utf8(std::process::Command::new("id").args(["-un", &me.to_string()]).output().unwrap().stdout);
    assert_eq!(moved["user"].as_str().unwrap(), named.unwrap().trim());
    let time = moved["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    assert_eq!(events(&lab, &["--since", time]).first(), Some(moved), "what is printed is understood");
    let other = Sleeper::new();
    let request = serde_json::json!({ "pid": other.pid(), "dest": "n2", "reason": "complain" });
    let refused: Result<Value, _> = lab.nodes[0].client().post("/v1/move", &request);
    assert!(refused.is_err());
    let failed = events(&lab, &["-n", "1"]);
    assert_eq!(failed.len(), 1);
    for (field, value) in [("kind", "failed"), ("from", "n1"), ("to", "n2"), ("reason", "the moon is in the way")] {
        assert_eq!(failed[0][field], value, "{field} of {}", failed[0]);
    }
}

#[test]
fn the_last_ones_and_those_since_a_time() {
    let (lab, _sleeper) = lab_with_a_move();
    let all = events(&lab, &[]);
    assert!(all.len() >= 3, "{all:?}");
    assert_eq!(events(&lab, &["-n", "2"]), all[all.len() - 2..]);
    assert_eq!(events(&lab, &["-n", "9999"]), all);
    assert_eq!(events(&lab, &["-n", "0"]).len(), 0);
    assert_eq!(events(&lab, &["--since", "1h"]), all);
    assert_eq!(events(&lab, &["--since", "-1h"]), all);
    let later = format!("@{}", all.last().unwrap()["time_ms"].as_u64().unwrap() / 1000 + 1);
    assert_eq!(events(&lab, &["--since", &later]).len(), 0);
    let said = fails(&mut lab.nodes[0].cli(&["events", "--since", "teatime"]));
    assert!(said.contains("teatime") && said.contains("10m"), "{said}");
}

#[test]
fn a_crash_of_the_daemon_costs_no_event() {
    let (mut lab, _sleeper) = lab_with_a_move();
    let before = events(&lab, &[]);
    lab.nodes[0].kill();
    // As a crash of the machine may leave it.
    let file = lab.nodes[0].state.join("events.jsonl");
    std::fs::File::options().append(true).open(&file).unwrap().write_all(b"{\"seq\":99,\"kind\":\"no").unwrap();
    lab.nodes[0].start();
    let after = events(&lab, &[]);
    assert_eq!(after[..before.len()], before);
    let numbers: Vec<u64> = after.iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "{numbers:?}");
    lab.nodes[0].kill();
    lab.nodes[0].start();
    assert_eq!(events(&lab, &[])[..after.len()], after, "what came behind the torn line, too");
}

#[test]
fn who_follows_sees_what_comes_and_not_what_was() {
    let (lab, sleeper) = lab_with_a_move();
    let mut command = lab.nodes[0].cli(&["events", "-f", "-n", "1", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|l| l.unwrap());
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap();
    let first = next();
    assert!(events(&lab, &[]).contains(&first));
    ok(&mut lab.nodes[0].cli(&["move", &sleeper.pid().to_string(), "home"]));
    let home = until("the way home", || Some(next()).filter(|e| e["kind"] == "move"));
    assert!(home["to"] == "n1" && home["seq"].as_u64() > first["seq"].as_u64(), "{home}");
    child.kill().unwrap();
    child.wait().unwrap();
}
