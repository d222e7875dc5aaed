//! Reads of a moved program are really answered abroad, not only rightly. With the real engine.

mod lab;

use lab::{Lab, ok, until};
use std::process::{Command, Stdio};

/// The test once more where every process can be seen (not on this machine, perhaps): a pid namespace of its own. True: that is where we are.
fn sees_all(test: &str) -> bool {
    const ALONE: &str = "PANDO_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    if !lab::is_root(test) {
        return false;
    }
    let script = "\"$@\"; exit $?";
    let mut again = Command::new("unshare");
    again.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script, "sh"]);
    let done = again.arg(lab::this_program()).args([test, "--exact"]).env(ALONE, "1").output().unwrap();
    let (text, why) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    match why.lines().find(|l| l.starts_with("unshare: ") || l.starts_with("SKIPPED")) {
        Some(line) => eprintln!("SKIPPED {test}: {line}"),
        None => assert!(done.status.success() && text.contains("1 passed"), "{text}{why}"),
    }
    false
}

/// Nodes, and a folder with a file of 30000 bytes. None, loudly, where no leases are to be had.
fn stage(test: &str) -> Option<Lab> {
    let lab = Lab::new(2, "[test]\nwhole_machine = true\n");
    let kind = ok(Command::new("stat").args(["-f", "-c", "%T"]).arg(&lab.dir));
    if !["ext2/ext3", "xfs", "btrfs", "f2fs"].contains(&kind.trim()) {
        eprintln!("SKIPPED {test}: {} files are not", kind.trim());
        return None;
    }
    let lines: String = (0..2000).map(|i| format!("a line, {i:06}\n")).collect();
    std::fs::write(lab.dir.join("file"), lines).unwrap();
    Some(lab)
}

/// Starts the script, waits until it has made the file `ready`, moves it, and makes `go`.
fn moved(lab: &mut Lab, program: &str, script: &str) -> std::process::Child {
    let mut program = Command::new(program);
    let program = program.args([if program.get_program() == "perl" { "-e" } else { "-c" }, script]);
    let child = program.env("dir", &lab.dir).stdin(Stdio::null()).spawn().unwrap();
    until("the script", || lab.dir.join("ready").exists().then_some(()));
    ok(&mut lab.nodes[0].cli(&["move", &child.id().to_string(), "n2"]));
    std::fs::write(lab.dir.join("go"), "").unwrap();
    child
}

/// Waits until so much has been read abroad.
fn read_abroad(lab: &Lab, pid: u32, bytes: u64) -> pando_migrate::control::Io {
    until("bytes that were read abroad", || {
        let io = lab.nodes[0].process(pid)?.io;
        (io.cached > bytes).then_some(io)
    })
}

fn ends_well(lab: &Lab, mut child: std::process::Child) {
    std::fs::write(lab.dir.join("stop"), "").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_file_that_is_opened_abroad_is_read_there() {
    let Some(mut lab) = stage("a_file_that_is_opened_abroad_is_read_there") else { return };
    // Opened again and again, read in small pieces.
    let script = r#"chdir $ENV{dir}; open R, ">", "ready"; select(undef, undef, undef, 0.02) until -e "go"; until (-e "stop") {
        open(F, "<", "file") or exit 8; $n = 0; while ($got = sysread(F, $text, 100)) { $n += $got } $n == 30000 or exit 9 }"#;
    let child = moved(&mut lab, "perl", script);
    let io = read_abroad(&lab, child.id(), 30_000);
    assert!(io.read < io.cached, "only the first reads are made at home: {io:?}");
    ends_well(&lab, child);
}

#[test]
fn a_shell_reads_its_lines_abroad() {
    let Some(mut lab) = stage("a_shell_reads_its_lines_abroad") else { return };
    // It opens the file, makes that its input with dup2, and reads a byte at a time, or seeks back to the end of a line.
    let script = r#"cd $dir; : > ready; until [ -e go ]; do sleep 0.02; done; until [ -e stop ]; do
        n=0; while read a line number; do n=$((n + 1)); done < file; [ $n = 2000 ] || exit 9; done"#;
    let child = moved(&mut lab, "sh", script);
    let io = read_abroad(&lab, child.id(), 100_000);
    assert!(io.read < io.cached / 10, "only the first reads are made at home: {io:?}");
    ends_well(&lab, child);
}

#[test]
fn a_file_from_before_the_move_is_read_abroad() {
    let test = "a_file_from_before_the_move_is_read_abroad";
    let Some(mut lab) = sees_all(test).then(|| stage(test)).flatten() else { return };
    // By two descriptors of one position, in turn.
    let script = r#"chdir $ENV{dir}; open(F, "<", "file"); open(G, "<&", F); sysread(F, $text, 15); open R, ">", "ready";
        select(undef, undef, undef, 0.02) until -e "go"; until (-e "stop") { for ($n = 1; $n < 2000; $n++) {
        sysread($n % 3 ? F : G, $text, 15) == 15 && $text eq sprintf("a line, %06d\n", $n) or exit 9 }
        sysseek(G, 15, 0) == 15 or exit 8 }"#;
    let child = moved(&mut lab, "perl", script);
    let io = read_abroad(&lab, child.id(), 100_000);
    assert!(io.read < io.cached / 10, "only the first reads are made at home: {io:?}");
    ends_well(&lab, child);
}

#[test]
fn what_a_child_has_too_is_read_where_it_is() {
    let test = "what_a_child_has_too_is_read_where_it_is";
    let Some(mut lab) = sees_all(test).then(|| stage(test)).flatten() else { return };
    // The child has the file from before the move, stays at home, and reads every other line. When it ends, its parent has the file alone.
    let script = r#"chdir $ENV{dir}; open(F, "<", "file"); pipe(A, B); pipe(C, D);
        sub piece { sysread(F, $text, 15) == 15 && $text eq sprintf("a line, %06d\n", $_[0]) or exit 9 }
        if (!($pid = fork)) { close B; while (sysread(A, $n, 6)) { piece($n); syswrite(D, "y") } exit 0 }
        close A; open R, ">", "ready"; close R; select(undef, undef, undef, 0.02) until -e "go";
        until (-e "alone") { for ($n = 0; $n < 2000; $n += 4) { piece($n); piece($n + 1); piece($n + 2);
        syswrite(B, sprintf("%06d", $n + 3)); sysread(C, $y, 1) == 1 or exit 7; } sysseek(F, 0, 0); open R, ">", "round" }
        close B; waitpid($pid, 0); exit 6 if $?;
        until (-e "stop") { for ($n = 0; $n < 2000; $n++) { piece($n) } sysseek(F, 0, 0) }"#;
    let child = moved(&mut lab, "perl", script);
    until("a round by turns", || lab.dir.join("round").exists().then_some(()));
    assert_eq!(lab.nodes[0].process(child.id()).unwrap().io.cached, 0, "it has two owners");
    std::fs::write(lab.dir.join("alone"), "").unwrap();
    read_abroad(&lab, child.id(), 100_000);
    ends_well(&lab, child);
}

/// Two directories of one file system that both nodes declare as the same: `bound`, that is so; else the second one has files of its own.
fn shared_stage(test: &str, bound: bool) -> Option<(Lab, std::path::PathBuf)> {
    if !lab::is_root(test) {
        return None;
    }
    let dirs = std::env::temp_dir().join(format!("pando-{test}-{}", std::process::id()));
    let (one, two) = (dirs.join("one"), dirs.join("two"));
    [&one, &two].into_iter().for_each(|d| std::fs::create_dir_all(d).unwrap());
    let lines: String = (0..2000).map(|i| format!("a line, {i:06}\n")).collect();
    std::fs::write(one.join("file"), &lines).unwrap();
    match bound {
        true => drop(ok(Command::new("mount").arg("--bind").args([&one, &two]))),
        false => std::fs::write(two.join("file"), lines.replace('a', "A")).unwrap(),
    }
    let mut lab = Lab::new(1, &format!("[files]\nshared = [\"data={}\"]\n", one.display()));
    let second = lab.prepare("n2", &format!("[files]\nshared = [\"data={}\"]\n", two.display()));
    let token = lab.token();
    ok(&mut second.join(&token, "n2"));
    lab.nodes.push(second);
    lab.nodes[1].start();
    lab.settled();
    Some((lab, dirs))
}

fn end_of(dirs: &std::path::Path) {
    let _ = Command::new("umount").arg(dirs.join("two")).output();
    std::fs::remove_dir_all(dirs).unwrap();
}

/// Opens the file in `data` again and again, and compares all of it; once in a while it writes to it itself and reads that.
const READER: &str = r#"chdir $ENV{dir}; open R, ">", "ready"; select(undef, undef, undef, 0.02) until -e "go"; $k = 0; until (-e "stop") {
    open(F, "<", "data/file") or exit 8; for ($n = 0; $n < 2000; $n++) {
    sysread(F, $text, 15) == 15 && $text eq sprintf("a line, %06d\n", $n) or exit 9 } sysread(F, $text, 15) == 0 or exit 10;
    if (++$k % 20 == 0) { sysseek(F, 0, 0); sysread(F, $text, 15) == 15 or exit 11; open(W, "+<", "data/file") or exit 12;
    syswrite(W, "B") == 1 or exit 13; sysseek(F, 0, 0); sysread(F, $text, 15); $text eq "B line, 000000\n" or exit 14;
    sysseek(W, 0, 0); syswrite(W, "a"); sysseek(F, 0, 0); sysread(F, $text, 15); $text eq "a line, 000000\n" or exit 15; close W } }"#;

#[test]
fn a_file_on_a_shared_file_system_is_read_where_the_program_is() {
    let test = "a_file_on_a_shared_file_system_is_read_where_the_program_is";
    let Some((mut lab, dirs)) = shared_stage(test, true) else { return };
    std::os::unix::fs::symlink(dirs.join("one"), lab.dir.join("data")).unwrap();
    let child = moved(&mut lab, "perl", READER);
    let io = read_abroad(&lab, child.id(), 300_000);
    assert!(io.read < io.cached, "only the first reads are made at home: {io:?}");
    // No lease is in the way of those who write.
    let leases = std::fs::read_to_string("/proc/locks").unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(dirs.join("one/file")).unwrap());
    let held = leases.lines().any(|l| l.contains("LEASE") && l.contains(&format!(":{inode} ")));
    assert!(!held, "{leases}");
    ends_well(&lab, child);
    end_of(&dirs);
}

#[test]
fn a_file_that_only_has_the_same_name_is_read_at_home() {
    let test = "a_file_that_only_has_the_same_name_is_read_at_home";
    let Some((mut lab, dirs)) = shared_stage(test, false) else { return };
    std::os::unix::fs::symlink(dirs.join("one"), lab.dir.join("data")).unwrap();
    // It sees what is there, not what is here; by a lease, or call by call.
    let child = moved(&mut lab, "perl", READER);
    until("rounds", || lab.nodes[0].process(child.id()).filter(|p| p.io.read + p.io.cached > 3_000_000));
    ends_well(&lab, child);
    end_of(&dirs);
}
