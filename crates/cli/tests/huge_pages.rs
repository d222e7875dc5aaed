//! Memory in huge pages is so abroad, too, and comes home as it was.

mod lab;

use lab::{Lab, is_root, ok, until};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Fills memory for which it advises huge pages; `w` writes here and there, and each line is answered by whether all is as it must be.
const PROGRAM: &str = "
import mmap, sys
huge = 2 << 20
size = 8 * huge
m = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m.madvise(mmap.MADV_HUGEPAGE)
wanted = bytearray((i * 7 + i // 4096) % 256 for i in range(size // 16)) * 16
m[:] = bytes(wanted)
print('ready', flush=True)
for line in sys.stdin:
    if line[0] == 'w':
        for at in range(5000, size // 2, 700000):
            m[at] ^= 255
            wanted[at] ^= 255
    print(m[:] == wanted, flush=True)
";

struct Told {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Told {
    fn start(test: &str) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            eprintln!("SKIPPED {test}: there is no python3");
            return None;
        };
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut told = Told { child, input, output };
        assert_eq!(told.line(), "ready");
        Some(told)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().into()
    }

    fn is_right(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
        assert_eq!(self.line(), "True");
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Begin, end, and kilobytes in huge pages of each mapping that has such.
fn huge_of(pid: u32) -> Vec<(u64, u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut range, mut all) = ((0, 0), Vec::new());
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
    for line in text.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or("");
        if let Some((from, to)) = first.split_once('-') {
            range = (hex(from), hex(to));
        } else if let Some(kb) = line.strip_prefix("AnonHugePages:") {
            let kb = kb.trim().trim_end_matches(" kB").parse().unwrap_or(0);
            all.extend((kb > 0).then_some((range.0, range.1, kb)));
        }
    }
    all
}

/// Kilobytes in huge pages of a guest, a process of a guest's user, in mappings that have some of this. (What differs at home may be one mapping abroad.)
fn huge_abroad(start: u64, end: u64) -> u64 {
    const FIRST_UID: u32 = 0x7000_0000;
    let owner = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or("").to_string();
        line.split_ascii_whitespace().next().and_then(|uid| uid.parse::<u32>().ok()).unwrap_or(0)
    };
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let guests = pids.filter(|pid| owner(*pid) >= FIRST_UID);
    let inside = |areas: Vec<(u64, u64, u64)>| areas.iter().filter(|a| a.0 < end && start < a.1).map(|a| a.2).sum();
    guests.map(|pid| inside(huge_of(pid))).max().unwrap_or(0)
}

#[test]
fn huge_pages_are_huge_abroad_and_come_home() {
    let test = "huge_pages_are_huge_abroad_and_come_home";
    if !is_root(test) {
        return;
    }
    let Some(mut told) = Told::start(test) else { return };
    let Some((start, end, kb)) = huge_of(told.child.id()).into_iter().max_by_key(|a| a.2) else {
        eprintln!("SKIPPED {test}: this kernel makes no huge pages");
        return;
    };
    let lab = Lab::new(2, "");
    let pid = told.child.id().to_string();
    for _ in 0..2 {
        ok(&mut lab.nodes[0].cli(&["move", &pid, "n2"]));
        told.is_right("look");
        until("all are huge abroad", || (huge_abroad(start, end) >= kb).then_some(()));
        told.is_right("look");
        told.is_right("write");
        ok(&mut lab.nodes[0].cli(&["move", &pid, "home"]));
        told.is_right("look");
    }
}
