//! What a process shares with another one since a fork is neither sent to a node that has it of that one, nor is there twice at home because it is
//! sent (docs/decisions/0049). With the real engine.

mod lab;

use lab::{Lab, is_root, ok, until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Has 48 MB of content that nothing else has, makes a child for each line `fork`, and then changes some itself. A child changes blocks 3, 13, ...;
/// each of them says the sum of all when the line comes for it (they read one after the other).
const PROGRAM: &str = "\
import os, select, sys, hashlib
data = [bytearray(os.urandom(65536)) * 8 for i in range(96)]
def say(who): print(who, os.getpid(), hashlib.sha256(b''.join(data)).hexdigest(), flush=True)
def wait(fd):
    while not select.select([fd], [], [], 0)[0]: sum(range(50000))
    return os.read(fd, 1)
say('parent')
pipes = []
while (word := wait(0)):
    if word == b'f':
        mine, theirs = os.pipe()
        if os.fork() == 0:
            os.close(theirs)
            for block in range(3, 96, 10): data[block][7] = 7
            say('child')
            while wait(mine): say('child')
            os._exit(0)
        pipes.append(theirs)
        for block in range(5, 96, 10): data[block][9] = 9
        say('parent')
    elif word == b's':
        for pipe in pipes: os.write(pipe, b's')
        say('parent')
";

/// Resident at home, in proportion to how many share it, MB.
fn proportional(pid: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn what_is_shared_is_not_sent_where_it_is() {
    let what = "what_is_shared_is_not_sent_where_it_is";
    if Command::new("python3").arg("-V").output().is_err() {
        return eprintln!("SKIPPED {what}: there is no python3 to be moved");
    }
    if !is_root(what) {
        return;
    }
    let lab = Lab::new(3, "[follow]\nafter_ms = 0\n");
    let n1 = &lab.nodes[0];
    let mut command = Command::new("python3");
    let mut program = command.args(["-SIc", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut hear = || {
        let line = lines.next().unwrap().unwrap();
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap();
        (next(), next(), next())
    };
    let go = |pid: &str, to: &str| drop(ok(&mut n1.cli(&["move", pid, to])));
    let counted = |pid: &str, key: &str| {
        let all: Value = serde_json::from_str(&ok(&mut n1.cli(&["ps", "-a", "--json"]))).unwrap();
        let all = all.as_array().cloned().unwrap_or_else(|| all["processes"].as_array().unwrap().clone());
        let one = all.iter().find(|p| p["pid"].as_u64().is_some_and(|n| n.to_string() == pid)).unwrap();
        one[key].as_u64().unwrap()
    };
    let parent = hear().1;
    go(&parent, "n2");
    // All of it is there before the forks.
    until("the parent's memory is at n2", || (counted(&parent, "pushed") > 12_000).then_some(()));
    let mut input = program.stdin.take().unwrap();
    let mut sums: Vec<(String, String)> = Vec::new();
    for _ in 0..2 {
        input.write_all(b"f").unwrap();
        for (who, pid, sum) in [hear(), hear()] {
            if who == "child" {
                sums.push((pid, sum));
            }
        }
    }
    let (first, second) = (sums[0].0.clone(), sums[1].0.clone());
    let before = proportional(&first) + proportional(&second) + proportional(&parent);
    go(&first, "n2");
    // Nothing of it is at n3.
    go(&second, "n3");
    until("the first is all there", || (counted(&first, "found") + counted(&first, "pushed") > 12_000).then_some(()));
    until("the second is all there", || (counted(&second, "pushed") > 12_000).then_some(()));
    // It wrote to ten blocks of 96, and its parent to ten others since.
    assert!(counted(&first, "found") > 8_000, "{} found", counted(&first, "found"));
    assert_eq!(counted(&second, "found"), 0);
    let after = proportional(&first) + proportional(&second) + proportional(&parent);
    assert!(after < before + 10, "{after} MB at home, {before} before they were sent");
    go(&second, "n2");
    go(&first, "n3");
    go(&first, "home");
    input.write_all(b"s").unwrap();
    for (_, pid, sum) in [hear(), hear(), hear()] {
        assert!(pid == parent || sums.contains(&(pid, sum)), "a child has other memory than it had");
    }
    drop(input);
    assert!(program.wait().unwrap().success());
}
