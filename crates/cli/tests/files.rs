//! Reads of a moved program are really answered abroad, not only rightly. With the real engine.

mod lab;

use lab::{Lab, ok, until};
use std::process::{Command, Stdio};

#[test]
fn a_file_that_is_opened_abroad_is_read_there() {
    let lab = Lab::new(2, "");
    let kind = ok(Command::new("stat").args(["-f", "-c", "%T"]).arg(&lab.dir));
    if !["ext2/ext3", "xfs", "btrfs", "f2fs"].contains(&kind.trim()) {
        return eprintln!("SKIPPED a_file_that_is_opened_abroad_is_read_there: {} files are not", kind.trim());
    }
    std::fs::write(lab.dir.join("file"), "a line of many\n".repeat(2000)).unwrap();
    // Opened again and again, read in small pieces, by a descriptor that nothing makes a second of.
    let script = r#"chdir $ENV{dir}; select(undef, undef, undef, 0.02) until -e "go"; until (-e "stop") {
        open(F, "<", "file") or exit 8; $n = 0; while ($got = sysread(F, $text, 100)) { $n += $got } $n == 30000 or exit 9 }"#;
    let mut program = Command::new("perl");
    let program = program.args(["-e", script]).env("dir", &lab.dir).stdin(Stdio::null());
    let mut child = program.spawn().unwrap();
    ok(&mut lab.nodes[0].cli(&["move", &child.id().to_string(), "n2"]));
    std::fs::write(lab.dir.join("go"), "").unwrap();
    let io = until("bytes that were read abroad", || {
        let io = lab.nodes[0].process(child.id())?.io;
        (io.cached > 30_000).then_some(io)
    });
    assert!(io.read < io.cached, "only the first reads are made at home: {io:?}");
    std::fs::write(lab.dir.join("stop"), "").unwrap();
    assert!(child.wait().unwrap().success());
}
