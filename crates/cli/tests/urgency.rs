//! A moved program is as nice abroad as it is at home, and becomes nicer when somebody says so there. With the real engine.

mod lab;

use lab::{Lab, ok, until};
use std::process::{Command, Stdio};

/// Nice value and scheduling class of the guest with this name.
fn guest(name: &str) -> Option<(i32, String)> {
    let table = ok(Command::new("ps").args(["-eo", "comm,ni,cls"]));
    let line = table.lines().find(|l| l.starts_with(&format!("guest:{name}")))?.to_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    Some((words[1].parse().ok()?, words[2].to_owned()))
}

#[test]
fn a_nice_program_is_nice_abroad() {
    let lab = Lab::new(2, "");
    // A name that no other test's guest has.
    let name = format!("nc{}", std::process::id());
    std::os::unix::fs::symlink("/bin/sh", lab.dir.join(&name)).unwrap();
    let script = "while [ ! -e stop ]; do sleep 0.05; done";
    let mut command = Command::new("nice");
    command.args(["-n", "7"]).arg(lab.dir.join(&name)).args(["-c", script]);
    let mut child = command.current_dir(&lab.dir).stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    until("exec", || std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.starts_with(&name).then_some(()));
    ok(&mut lab.nodes[0].cli(&["move", &pid, "n2"]));
    let is = |nice: i32, class: &'static str| {
        until("the guest's nice value", || (guest(&name)? == (nice, class.to_owned())).then_some(()))
    };
    is(7, "TS");
    ok(Command::new("renice").args(["-n", "12", "-p", &pid]));
    is(12, "TS");
    ok(Command::new("chrt").args(["--batch", "-p", "0", &pid]));
    is(12, "B");
    std::fs::write(lab.dir.join("stop"), "").unwrap();
    assert!(child.wait().unwrap().success());
}
