//! Memory calls of a moved program are really made abroad, not only rightly. With the real engine.

mod lab;

use lab::{Lab, ok, until};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn what_is_allocated_and_freed_abroad_makes_no_calls_at_home() {
    let lab = Lab::new(2, "");
    // Each string is a mapping of its own: 1000 come and go in a round.
    let script = r#"chdir $ENV{dir}; select(undef, undef, undef, 0.02) until -e "go"; $rounds = 0; until (-e "stop") {
        for (1 .. 1000) { my $x = "a" x 200000; undef $x }
        open(F, ">", "new") or exit 8; print F ++$rounds; close F; rename("new", "rounds") or exit 9 }"#;
    let mut program = Command::new("perl");
    program.args(["-e", script]).env("dir", &lab.dir).env("MALLOC_MMAP_THRESHOLD_", "65536").stdin(Stdio::null());
    let mut child = program.spawn().unwrap();
    ok(&mut lab.nodes[0].cli(&["move", &child.id().to_string(), "n2"]));
    std::fs::write(lab.dir.join("go"), "").unwrap();
    let rounds = || std::fs::read_to_string(lab.dir.join("rounds")).ok()?.parse::<u64>().ok();
    // Its figures are told once a second: what counts is what happens between two of those times.
    let figures = |beyond: (u64, u64)| {
        until("figures of some more rounds", || {
            let calls = lab.nodes[0].process(child.id()).filter(|p| p.place == "n2")?.calls;
            let done = rounds()?;
            (calls > beyond.0 && done > beyond.1 + 2).then_some((calls, done))
        })
    };
    let first = figures((0, 0));
    let second = figures(first);
    let (calls, mapped) = (second.0 - first.0, (second.1 - first.1) * 1000);
    assert!(calls < mapped, "{calls} calls were made at home while {mapped} mappings came and went");
    std::fs::write(lab.dir.join("stop"), "").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_break_abroad_is_the_kernels() {
    let lab = Lab::new(2, "");
    let script = "\
import ctypes, sys, time
sbrk = ctypes.CDLL(None).sbrk
sbrk.restype, sbrk.argtypes = ctypes.c_void_p, [ctypes.c_long]
for line in sys.stdin:
    sbrk(int(line))
    print('%x' % sbrk(0), flush=True)
";
    let mut program = Command::new("python3");
    let mut child = program.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut moves_by = |bytes: i64| {
        writeln!(stdin, "{bytes}").unwrap();
        u64::from_str_radix(&lines.next().unwrap().unwrap(), 16).unwrap()
    };
    // Where the kernel has the end of what it takes for the heap.
    let end = |pid: i32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let heap = maps.lines().rfind(|line| line.ends_with("[heap]")).unwrap_or_else(|| panic!("no heap: {maps}"));
        let range = heap.split_whitespace().next().unwrap();
        u64::from_str_radix(range.split_once('-').unwrap().1, 16).unwrap()
    };
    moves_by(1 << 20);
    ok(&mut lab.nodes[0].cli(&["move", &child.id().to_string(), "n2"]));
    let guest = until("the guest", || lab.nodes[1].guest(child.id()));
    for bytes in [3 << 20, -(2 << 20), 0] {
        let at = moves_by(bytes);
        assert_eq!(end(guest), at.next_multiple_of(4096), "after {bytes}");
    }
    ok(&mut lab.nodes[0].cli(&["move", &child.id().to_string(), "home"]));
    let at = moves_by(1 << 20);
    assert_eq!(end(child.id() as i32), at.next_multiple_of(4096));
    drop(stdin);
    assert!(child.wait().unwrap().success());
}
