//! Home gives its copies of memory back, and a program that comes home has all of it again (docs/decisions/0022). With the real engine; here nodes give back
//! after every move.

mod lab;

use lab::{Lab, is_root, ok, until};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Keeps 64 MB of known content, says its sum when a line comes, and changes some of it after that.
const PROGRAM: &str = "\
import os, select, sys
data = [bytearray((i * 7 + j) % 251 for j in range(4096)) * 256 for i in range(64)]
print('ready', flush=True)
while True:
    # It computes: while all of its threads wait in calls nobody is there to give memory back.
    while not select.select([0], [], [], 0)[0]: sum(range(50000))
    line = os.read(0, 100)
    if not line: break
    print(sum(sum(block[::4093]) for block in data), flush=True)
    data[len(line) % 64][5] = 9
";

#[test]
fn memory_goes_from_home_and_comes_back() {
    let what = "memory_goes_from_home_and_comes_back";
    if Command::new("python3").arg("-V").output().is_err() {
        return eprintln!("SKIPPED {what}: there is no python3 to be moved");
    }
    if !is_root(what) {
        return;
    }
    let lab = Lab::new(3, "[test]\nrelease = true\n");
    let start = || {
        let mut command = Command::new("python3");
        command.args(["-SIc", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        (child, lines)
    };
    let ((mut moved, mut said), (mut stays, mut right)) = (start(), start());
    let pid = moved.id();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kb = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap().trim().trim_end_matches(" kB");
        kb.parse::<u64>().unwrap() >> 10
    };
    let full = resident();
    assert!(full > 60, "{full} MB");
    for (round, dest) in ["n2", "n3", "home", "n3", "home"].into_iter().enumerate() {
        ok(&mut lab.nodes[0].cli(&["move", &pid.to_string(), dest]));
        if dest != "home" {
            until("its memory goes from home", || (resident() < full / 2).then_some(()));
        }
        let line = format!("{}\n", "x".repeat(round));
        for child in [&mut moved, &mut stays] {
            child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        }
        let sums = (said.next().unwrap().unwrap(), right.next().unwrap().unwrap());
        assert_eq!(sums.0, sums.1, "after the move to {dest}");
    }
    assert!(resident() > 60, "it is all there again");
    for mut child in [moved, stays] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
