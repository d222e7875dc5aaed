//! Files that go along with jobs beside the program: its libraries and what `--with` names. Ranks find them, can't change them, and nothing of them is
//! left in the jobs' directories, whatever ended the job.

mod lab;

use lab::{Daemon, Lab, is_root, ok, signal, until};
use pando_launch::{Frames, Kind, Parcel, Request, Stdin, Tell, encode, sum};
use pando_node::views::Job;
use serde_bytes::ByteBuf;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\narity = 1\n";

/// It says what its libraries say and where the loader found them, and what a plug-in says if there is one.
const MAIN: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
const char *beside(void);
const char *elsewhere(void);
int main(int count, char **words) {
    Dl_info a, b;
    dladdr(beside, &a);
    dladdr(elsewhere, &b);
    printf("%s %s %s %s\n", beside(), a.dli_fname, elsewhere(), b.dli_fname);
    if (count > 1) {
        void *plug = dlopen(words[1], RTLD_NOW);
        const char *(*says)(void) = plug ? (const char *(*)(void))dlsym(plug, "says") : 0;
        printf("%s\n", says ? says() : dlerror());
    }
    return 0;
}
"#;

fn run(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["run"]);
    command.args(words);
    command
}

fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(status.code() == Some(125) && text.contains("nothing was started"), "{status} {text}");
    text
}

fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What is in the directories of jobs.
fn left(lab: &Lab) -> Vec<PathBuf> {
    let of = |name: &str| fs::read_dir(lab.dir.join(format!("{name}-jobs"))).into_iter().flatten().flatten();
    lab.nodes.iter().flat_map(|n| of(&n.name)).map(|e| e.path()).collect()
}

/// What a node has kept: where, and which inodes.
fn kept(node: &Daemon) -> Vec<(PathBuf, u64)> {
    let users = fs::read_dir(node.state.join("programs")).into_iter().flatten().flatten();
    let files = users.flat_map(|u| fs::read_dir(u.path()).unwrap().flatten());
    let mut all: Vec<_> = files.map(|f| (f.path(), f.metadata().unwrap().ino())).collect();
    all.sort();
    all
}

/// `app/main`, a library beside it (RUNPATH) that wants another one, one that only LD_LIBRARY_PATH finds, and a plug-in.
fn made(lab: &Lab, test: &str) -> Option<PathBuf> {
    let app = lab.dir.join("app");
    let (lib, far) = (app.join("lib"), app.join("far"));
    [&lib, &far].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    let gcc = |words: &[&str], source: &str| {
        let mut child = Command::new("gcc")
            .args(["-x", "c", "-", "-x", "none"])
            .args(words)
            .current_dir(&app)
            .stdin(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(source.as_bytes()).ok()?;
        child.wait().ok().filter(|status| status.success())
    };
    let says = |name: &str, text: &str| format!("const char *{name}(void) {{ return \"{text}\"; }}");
    let shared = ["-shared", "-fPIC", "-o"];
    let with = |more: &[&'static str]| -> Vec<&'static str> { [&shared[..], more].concat() };
    let all = [
        (with(&["lib/libdeep.so"]), says("deep", "deep")),
        (
            with(&["lib/libbeside.so.1", "-Llib", "-ldeep", "-Wl,-rpath,$ORIGIN,-soname,libbeside.so.1"]),
            "const char *deep(void); const char *beside(void) { return deep(); }".into(),
        ),
        (with(&["far/libelsewhere.so"]), says("elsewhere", "elsewhere")),
        (with(&["far/plug.so"]), says("says", "plugged")),
        (
            [
                &["-o", "main", "-Wl,-rpath,$ORIGIN/lib", "-Wl,-rpath-link,lib", "-Llib", "-l:libbeside.so.1"][..],
                &["-Lfar", "-lelsewhere", "-ldl"],
            ]
            .concat(),
            MAIN.into(),
        ),
    ];
    for (words, source) in all {
        if gcc(&words, &source).is_none() {
            eprintln!("SKIPPED {test}: gcc makes no program here");
            return None;
        }
    }
    Some(app)
}

/// Two nodes, of which the second sees nothing of `app` but what `more` makes.
fn differing(test: &str, more: &str) -> Option<(Lab, PathBuf)> {
    if !is_root(test) {
        return None;
    }
    let mut lab = Lab::new(2, JOBS);
    let app = made(&lab, test)?;
    lab.nodes[1].kill();
    lab.nodes[1].before = Some(format!("cd '{}' && mount -t tmpfs none app && cd / {more}", lab.dir.display()));
    lab.nodes[1].start();
    lab.settled();
    Some((lab, app))
}

/// `main`'s lines at both nodes, in the order of ranks.
fn lines(lab: &Lab, app: &Path, words: &[&str], arguments: &[&str]) -> Vec<String> {
    let mut command = run(&lab.nodes[0], &["-N2", "-n2", "-D", "/", "-l"]);
    command.args(words).arg(app.join("main")).args(arguments).env("LD_LIBRARY_PATH", app.join("far"));
    let mut lines: Vec<String> = ok(&mut command).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn libraries_go_to_those_who_have_not_got_them() {
    let Some((lab, app)) = differing("libraries_go_to_those_who_have_not_got_them", "") else { return };
    let (near, far, theirs) =
        (app.join("lib/libbeside.so.1"), app.join("far/libelsewhere.so"), lab.dir.join("n2-jobs"));
    let at_home = format!("0: deep {} elsewhere {}", near.display(), far.display());
    let abroad = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let came = |word: &str, name: &str| Path::new(word).starts_with(&theirs) && word.ends_with(name);
        words[..2] == ["1:", "deep"] && came(words[2], "/libbeside.so.1") && came(words[4], "/libelsewhere.so")
    };
    let first = lines(&lab, &app, &[], &[]);
    assert!(first[0] == at_home && abroad(&first[1]), "{first:?}");
    assert!(left(&lab).is_empty(), "{:?}", left(&lab));
    // The program, three libraries; and they need not come again.
    let before = kept(&lab.nodes[1]);
    assert!(before.len() == 4 && kept(&lab.nodes[0]).is_empty(), "{before:?}");
    assert!(abroad(&lines(&lab, &app, &[], &[])[1]));
    assert_eq!(kept(&lab.nodes[1]), before);
    // Another one of the same name.
    let source = "const char *elsewhere(void) { return \"new\"; }";
    let script = format!("echo '{source}' | gcc -x c - -shared -fPIC -o {}", far.display());
    ok(Command::new("sh").args(["-c", &script]));
    let changed = lines(&lab, &app, &[], &[]);
    assert!(changed.iter().all(|line| line.contains(" new /")), "{changed:?}");
    // All come, whoever has them; and what the program itself opens.
    let plug = app.join("far/plug.so");
    let all = lines(&lab, &app, &["--bcast", "--with", word(&plug)], &["plug.so"]);
    assert!(
        all.len() == 4 && all[0].contains("n1-jobs") && all[1] == "0: plugged" && all[3] == "1: plugged",
        "{all:?}"
    );
    // Named for the loader by its path.
    let mut command = run(&lab.nodes[0], &["-w", "n2", "-D", "/", "sh", "-c", "echo $LD_PRELOAD"]);
    let text = ok(command.env("LD_PRELOAD", &plug));
    assert!(text.starts_with(word(&theirs)) && text.ends_with("/plug.so\n"), "{text}");
    // Nothing goes.
    let text = refused(run(&lab.nodes[0], &["-w", "n2", "-D", "/", "--bcast=never"]).arg(app.join("main")));
    assert!(text.contains("there is no such file here"), "{text}");
    assert!(left(&lab).is_empty(), "{:?}", left(&lab));
}

#[test]
fn a_node_says_which_library_it_lacks() {
    let Some((lab, app)) = differing("a_node_says_which_library_it_lacks", "") else { return };
    // For this command there is something in /opt that no node has.
    fs::create_dir(app.join("opt")).unwrap();
    fs::rename(app.join("far/libelsewhere.so"), app.join("opt/libelsewhere.so")).unwrap();
    let script = format!("mount --bind {} /opt && exec \"$@\"", app.join("opt").display());
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_pando"), "run", "-w", "n2", "-D", "/"]);
    command.arg(app.join("main")).env("PANDO_SOCKET", &lab.nodes[0].socket).env("LD_LIBRARY_PATH", "/opt");
    let text = refused(&mut command);
    assert!(text.contains("node n2: the program needs libelsewhere.so, which is not installed here"), "{text}");
}

#[test]
fn nobody_waits_for_what_is_no_file() {
    let more =
        "&& mkdir \"$OLDPWD/app/lib\" && mkfifo \"$OLDPWD/app/lib/libdeep.so\" && ln -s /dev/zero \"$OLDPWD/app/main\"";
    let Some((lab, app)) = differing("nobody_waits_for_what_is_no_file", more) else { return };
    let all = lines(&lab, &app, &[], &[]);
    assert!(all[1].starts_with("1: deep ") && all[1].contains("n2-jobs"), "{all:?}");
    // Nor does the user's command.
    let fifo = lab.dir.join("fifo");
    ok(Command::new("mkfifo").arg(&fifo));
    let text = refused(&mut run(&lab.nodes[0], &["-w", "n2", "-D", "/", "--with", word(&fifo), "true"]));
    assert!(text.contains("it is no file"), "{text}");
    fs::rename(&fifo, app.join("lib/libelsewhere.so")).unwrap();
    let mut command = run(&lab.nodes[0], &["-w", "n2", "-D", "/"]);
    command.arg(app.join("main")).env("LD_LIBRARY_PATH", format!("{0}/lib:{0}/far", app.display()));
    ok(&mut command);
}

#[test]
fn ranks_read_what_came_with_them_and_change_nothing() {
    let lab = Lab::new(2, JOBS);
    fs::set_permissions(&lab.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let (data, empty) = (lab.dir.join("data.txt"), lab.dir.join("empty"));
    fs::write(&data, "x\n".repeat(700_000)).unwrap();
    fs::write(&empty, "").unwrap();
    let with = |words: &[&'static str]| -> Vec<String> {
        let files = ["--with", word(&data), "--with", word(&empty), "--bcast"];
        words.iter().chain(&files).map(|w| (*w).to_owned()).collect()
    };
    let script = "cd $PANDO_JOB_DIR && wc -l <data.txt && wc -c <empty && ls | wc -l";
    let mut command = lab.nodes[0].cli(&["run"]);
    assert_eq!(ok(command.args(with(&["-w", "n2"])).args(["sh", "-c", script])), "700000\n0\n2\n");
    let mut command = lab.nodes[0].cli(&["map"]);
    command.args(with(&["-w", "n2", "-D", "/"])).args(["sh", "-c", "wc -l <$PANDO_JOB_DIR/data.txt; : {}"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"1\n2\n").unwrap();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), "700000\n700000\n");
    assert!(left(&lab).is_empty(), "{:?}", left(&lab));
    if !is_root("ranks_read_what_came_with_them_and_change_nothing") {
        return;
    }
    let before = kept(&lab.nodes[1]);
    let script = "cd $PANDO_JOB_DIR; cat data.txt | wc -l; for f in data.txt empty; do (echo y >$f); chmod 777 $f; rm -f $f; done; touch new; chmod 777 .; \
                  ls | wc -l; ls -A .. ";
    let program =
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])";
    let mut command = Command::new("python3");
    command.args(["-c", program, env!("CARGO_BIN_EXE_pando"), "run"]).args(with(&["-w", "n2", "-D", "/"]));
    command.args(["sh", "-c", script]).env("PANDO_SOCKET", &lab.nodes[0].socket);
    let Output { stdout, .. } = command.output().unwrap();
    assert_eq!(String::from_utf8(stdout).unwrap(), "700000\n2\n");
    assert!(left(&lab).is_empty(), "{:?}", left(&lab));
    // Each user has his own.
    assert_eq!(kept(&lab.nodes[1]).len(), 2 * before.len());
}

#[test]
fn what_finds_no_room_is_refused_and_nothing_is_left() {
    let mut lab = Lab::new(2, &format!("{JOBS}cache_mb = 1\n"));
    let data = lab.dir.join("data");
    fs::write(&data, vec![7; 3 << 20]).unwrap();
    let words = ["-w", "n2", "-D", "/", "--bcast", "--with", word(&data), "true"];
    let text = refused(&mut run(&lab.nodes[0], &words));
    assert!(text.contains("node n2: the 3 MB that go along are more than [jobs] cache_mb allows"), "{text}");
    let twin = lab.dir.join("twin/data");
    fs::create_dir(lab.dir.join("twin")).unwrap();
    fs::copy(&data, &twin).unwrap();
    let text = refused(&mut run(&lab.nodes[0], &["-w", "n2", "--with", word(&data), "--with", word(&twin), "true"]));
    assert!(text.contains("two files of one name go along"), "{text}");
    if !is_root("what_finds_no_room_is_refused_and_nothing_is_left") {
        return;
    }
    let mut small = lab.prepare("n3", JOBS);
    let programs = small.state.join("programs");
    fs::create_dir(&programs).unwrap();
    ok(&mut small.join(&lab.token(), "n3"));
    small.before = Some(format!("mount -t tmpfs -o size=1m none '{}'", programs.display()));
    small.start();
    lab.nodes.push(small);
    lab.settled();
    let text = refused(&mut run(&lab.nodes[2], &["-w", "n3", "-D", "/", "--bcast", "--with", word(&data), "true"]));
    assert!(text.contains("node n3: data can't be kept: No space left on device"), "{text}");
    assert!(left(&lab).is_empty(), "{:?}", left(&lab));
}

#[test]
fn a_file_that_changes_while_it_is_sent_ends_the_job() {
    let lab = Lab::new(2, JOBS);
    let data = lab.dir.join("data");
    fs::write(&data, vec![7; 3 << 20]).unwrap();
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    for always in ["--bcast", "--bcast=auto"] {
        fs::write(&data, vec![always.len() as u8; 3 << 20]).unwrap();
        signal(n2.pid(), "STOP");
        let mut command = run(n1, &["-w", "n2", "-D", "/", always, "--with", word(&data), "true"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("the job", || (!n1.client().get::<Vec<Job>>("/v1/jobs").unwrap().is_empty()).then_some(()));
        // As long, and another.
        fs::write(&data, vec![8; 3 << 20]).unwrap();
        signal(n2.pid(), "CONT");
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(
            child.wait().unwrap().code() == Some(125) && text.contains("data was changed while it was sent"),
            "{text}"
        );
    }
    assert!(left(&lab).is_empty(), "{:?}", left(&lab));
}

#[test]
fn what_a_dead_daemon_has_left_the_next_one_takes_away() {
    let mut lab = Lab::new(2, JOBS);
    let data = lab.dir.join("data");
    fs::write(&data, "x").unwrap();
    let words = ["-N2", "-D", "/", "--with", word(&data), "sh", "-c", "echo begun; exec sleep 1000"];
    let begin = |lab: &Lab| {
        let mut command = run(&lab.nodes[0], &words);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        (0..2).for_each(|_| _ = out.read_line(&mut line).unwrap());
        assert_eq!((line.as_str(), left(lab).len()), ("begun\nbegun\n", 2));
        child
    };
    let mut child = begin(&lab);
    lab.nodes[1].kill();
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert_eq!(left(&lab).len(), 1, "that of the node that died");
    lab.nodes[1].start();
    assert!(left(&lab).is_empty());
    lab.settled();
    // The launcher, and the user's command.
    let mut child = begin(&lab);
    signal(lab::launchers_of(&lab.nodes[1])[0] as u32, "KILL");
    assert_eq!(child.wait().unwrap().code(), Some(137));
    until("nothing left", || left(&lab).is_empty().then_some(()));
    let mut child = begin(&lab);
    child.kill().unwrap();
    child.wait().unwrap();
    until("nothing left", || left(&lab).is_empty().then_some(()));
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    let lab = Lab::new(1, JOBS);
    let content = b"evil".as_slice();
    for name in ["../evil", "/tmp/evil", "..", "a/b", "a\0b", ""] {
        let file = Parcel {
            kind: Kind::File,
            name: ByteBuf::from(name),
            path: ByteBuf::from("/evil"),
            size: content.len() as u64,
            sums: vec![sum(content)],
            always: true,
        };
        let request = Request {
            ranks: Some(1),
            nodes: None,
            per_node: None,
            cpus: None,
            among: Vec::new(),
            exclude: Vec::new(),
            slots: Vec::new(),
            oversubscribe: false,
            terminal: None,
            name: String::new(),
            time_ms: None,
            task: pando_launch::Task {
                words: vec![ByteBuf::from("true")],
                directory: ByteBuf::from("/"),
                ..Default::default()
            },
            stdin: Stdin::None,
            kill_on_bad: true,
            grace_ms: 0,
            hold: false,
            gang: Default::default(),
            exclusive: Vec::new(),
            memory_mb: 0,
            quality: None,
            pool: false,
            files: vec![file],
            needs: Vec::new(),
            mpi: pando_launch::Mpi::None,
        };
        let mut stream = lab.nodes[0].client().upgrade("/v1/jobs", "pando-job").unwrap();
        stream.write_all(&encode(&request).unwrap()).unwrap();
        let (mut frames, mut buffer) = (Frames::default(), [0; 4096]);
        let tell = loop {
            match frames.take::<Tell>().unwrap() {
                Some(Tell::StdinTaken(0)) => {}
                Some(tell) => break tell,
                None => {
                    let read = stream.read(&mut buffer).unwrap();
                    assert!(read > 0, "it hung up");
                    frames.room().extend_from_slice(&buffer[..read]);
                }
            }
        };
        assert!(matches!(&tell, Tell::No(why) if why.contains("no file may go along as this one does")), "{tell:?}");
    }
    assert!(left(&lab).is_empty() && kept(&lab.nodes[0]).is_empty());
}
