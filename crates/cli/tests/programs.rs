//! Programs that go along with jobs: sent once, checked, kept, executed with the user's rights, and gone where they did not come whole.

mod lab;

use lab::{Daemon, Lab, is_root, ok, until};
use pando_node::views::Job;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\narity = 1\n";

fn run(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["run"]);
    command.args(words);
    command
}

/// A program that prints its rank, and has so many bytes.
fn program(lab: &Lab, name: &str, bytes: usize) -> PathBuf {
    let path = lab.dir.join(name);
    let noise: Vec<u8> = (0..bytes as u32).map(|i| b'a' + (i.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
    let text = [b"#!/bin/sh\necho rank $PANDO_RANK \"$@\"\nexit 0\n# ".as_slice(), &noise].concat();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// What a node has kept, and what is only begun.
fn kept(node: &Daemon) -> Vec<PathBuf> {
    let users = fs::read_dir(node.state.join("programs")).into_iter().flatten().flatten();
    users.flat_map(|u| fs::read_dir(u.path()).unwrap().flatten()).map(|f| f.path()).collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_program_goes_to_those_who_have_not_got_it() {
    let lab = Lab::new(4, JOBS);
    let (n1, path) = (&lab.nodes[0], program(&lab, "p", 3_000_000));
    let ranks = ["rank 0 x", "rank 1 x", "rank 2 x", "rank 3 x"];
    assert_eq!(sorted(&ok(&mut run(n1, &["-N4", "--bcast", word(&path), "x"]))), ranks);
    let files: Vec<PathBuf> = lab.nodes.iter().flat_map(kept).collect();
    assert_eq!(files.len(), 4);
    assert!(files.iter().all(|f| fs::read(f).unwrap() == fs::read(&path).unwrap()));
    let inodes = || files.iter().map(|f| fs::metadata(f).unwrap().ino()).collect::<Vec<_>>();
    let before = inodes();
    assert_eq!(sorted(&ok(&mut run(n1, &["-N4", "--bcast", word(&path), "x"]))), ranks);
    assert_eq!(inodes(), before, "they had it");
    // One of them lacks it: its parent has it, or the head.
    fs::remove_file(&files[2]).unwrap();
    assert_eq!(sorted(&ok(&mut run(n1, &["-w", "n2,n3,n4", "--bcast", word(&path), "x"]))), ranks[..3]);
    assert_eq!(fs::read(&files[2]).unwrap().len(), fs::read(&path).unwrap().len());
    // Who has the same file needs no other one.
    let other = program(&lab, "q", 100);
    assert_eq!(sorted(&ok(&mut run(n1, &["-N4", word(&other), "x"]))), ranks);
    assert_eq!(lab.nodes.iter().flat_map(kept).count(), 4);
    // An ELF program, held between its two lives.
    let path = lab.dir.join("echo");
    fs::copy("/bin/echo", &path).unwrap();
    let mut command = Command::new("sh");
    let script = "\"$@\" 2>held & p=$!; until grep -q held held; do sleep 0.05; done; kill -CONT $p; wait $p";
    command.current_dir(&lab.dir).args([
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_pando"),
        "run",
        "-N4",
        "--hold",
        "--bcast",
    ]);
    command.args([word(&path), "y"]).env("PANDO_SOCKET", &n1.socket);
    assert_eq!(ok(&mut command), "y\n".repeat(4));
}

#[test]
fn a_program_that_finds_no_place_is_refused_and_one_that_breaks_off_is_gone() {
    let mut lab = Lab::new(3, &format!("{JOBS}cache_mb = 1\n"));
    let path = program(&lab, "p", 3_000_000);
    let output = run(&lab.nodes[0], &["-w", "n3", "--bcast", word(&path)]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(125) && text.contains("more than [jobs] cache_mb allows"), "{text}");
    let mut large = lab.prepare("n4", JOBS);
    ok(&mut large.join(&lab.token(), "n4"));
    large.start();
    lab.nodes.push(large);
    lab.settled();
    // The user's command dies in the middle of it: nothing is left that is not whole.
    let path = program(&lab, "large", 300_000_000);
    let mut command = run(&lab.nodes[3], &["-w", "n4", "--bcast", word(&path)]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the first pieces", || {
        kept(&lab.nodes[3]).first().filter(|f| fs::metadata(f).is_ok_and(|m| m.len() > 0)).cloned()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    until("no job", || lab.nodes[3].client().get::<Vec<Job>>("/v1/jobs").unwrap().is_empty().then_some(()));
    until("nothing half", || kept(&lab.nodes[3]).iter().all(|f| f.extension().is_none()).then_some(()));
}

#[test]
fn a_program_is_read_and_run_with_its_users_rights() {
    if !is_root("a_program_is_read_and_run_with_its_users_rights") {
        return;
    }
    let lab = Lab::new(2, JOBS);
    fs::set_permissions(&lab.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let dir = lab.dir.join("home");
    fs::create_dir(&dir).unwrap();
    let as_nobody = |file: &Path| -> Output {
        let script =
            "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])";
        let mut command = Command::new("python3");
        command.args(["-c", script, env!("CARGO_BIN_EXE_pando"), "run", "-w", "n2", "-D", "/", "--bcast", word(file)]);
        command.env("PANDO_SOCKET", &lab.nodes[0].socket).output().unwrap()
    };
    // Nobody else can look into this directory.
    let own = dir.join("own");
    fs::copy("/usr/bin/id", &own).unwrap();
    for path in [&dir, &own] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let output = as_nobody(&own);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("uid=65534(nobody)"), "{output:?}");
    // And nobody can have another's file read for him.
    let secret = lab.dir.join("secret");
    fs::write(&secret, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o711)).unwrap();
    let output = as_nobody(&secret);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(125) && text.contains("Permission denied"), "{text}");
}
