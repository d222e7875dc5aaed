//! Scratch directories: each job has one of its own at its nodes, gets no more room than it asked for, and leaves nothing, whoever is killed; and other
//! limits that a job has.

mod lab;

use lab::batch::{cli, history, place, submit};
use lab::{Daemon, Lab, ok, signal, until};
use pando_kernel::procfs;
use pando_kernel::quota;
use pando_node::queue::ask::Past;
use pando_queue::{How, State};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory that is removed with this.
struct Base(PathBuf);

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn base(name: &str) -> Base {
    let dir = std::env::temp_dir().join(format!("pando-scratch-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    Base(dir)
}

fn settings(base: &Path) -> String {
    // Whatever this machine has: several jobs at once are not to wait for CPUs.
    format!("[jobs]\nroot = true\n[load]\ncpus = 4.0\n[node]\nscratch = \"{}\"\n", base.display())
}

/// All scratch directories of a node that are there.
fn left(base: &Path, node: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(base.join(format!("pando-{node}"))).unwrap();
    all.map(|found| found.unwrap().path()).collect()
}

fn wait(node: &Daemon, dir: &Path, id: &str) -> i32 {
    cli(node, dir, &["wait", id]).output().unwrap().status.code().unwrap_or(-1)
}

fn past(node: &Daemon, dir: &Path, id: &str) -> Past {
    history(node, dir).into_iter().rev().find(|p| p.outcome.id.to_string() == id).unwrap()
}

/// The helper of a job's run.
fn helper(node: &Daemon, run: &str) -> u32 {
    let is = |pid: &i32| {
        procfs::name(*pid) == "pando-batch"
            && procfs::children(*pid).iter().any(|child| {
                procfs::variable(*child, "PANDO_BATCH").is_some_and(|r| r == run)
                    && procfs::variable(*child, "PANDO_SOCKET").is_some_and(|s| Path::new(&s) == node.socket)
            })
    };
    until("its helper", || procfs::processes().into_iter().find(is)) as u32
}

#[test]
fn a_job_has_one_and_leaves_nothing_whoever_is_killed() {
    let base = base("left");
    let mut lab = Lab::new(1, &settings(&base.0));
    let dir = place(&lab, "work");
    let fills = "cd $PANDO_SCRATCH; mkdir -p a/b; head -c 3M /dev/zero >a/b/file; ln -s / a/root; chmod 0 a/b; ";
    let shows = format!("{fills} echo $TMPDIR; stat -c '%a %u' .; mktemp");
    let id = submit(&lab.nodes[0], &dir, &["-o", "out", "--wrap", &shows]);
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    let said = fs::read_to_string(dir.join("out")).unwrap();
    let there = base.0.join(format!("pando-n1/n1.{id}.0"));
    let lines: Vec<&str> = said.lines().collect();
    let me = fs::metadata(&dir).unwrap().uid();
    assert_eq!((lines[0], lines[1]), (there.to_str().unwrap(), format!("700 {me}").as_str()), "{said}");
    assert!(Path::new(lines[2]).starts_with(&there), "{said}");
    assert_eq!(left(&base.0, "n1"), Vec::<PathBuf>::new(), "the job's end is told when nothing is left of it");
    let usage = past(&lab.nodes[0], &dir, &id).outcome.usage;
    assert!((3..5).contains(&usage.scratch_mb), "{usage:?}");
    // The helper is killed, with or without its daemon, and the daemon alone.
    for (with_helper, with_daemon) in [(true, false), (true, true), (false, true)] {
        let job = format!("[ $SLURM_RESTART_COUNT = 0 ] || exit 3; {fills} touch {0}/begun; sleep 5", dir.display());
        let id = submit(&lab.nodes[0], &dir, &["-o", "out", "--wrap", &job]);
        until("it has written", || fs::remove_file(dir.join("begun")).ok());
        let there = base.0.join(format!("pando-n1/n1.{id}.0"));
        let helper = helper(&lab.nodes[0], &format!("n1/{id}/0"));
        if with_daemon {
            lab.nodes[0].kill();
        }
        if with_helper {
            signal(helper, "KILL");
        }
        if with_daemon {
            assert!(there.join("a").exists(), "nobody is there who could remove it");
            lab.nodes[0].start();
        }
        if !with_helper {
            assert!(there.join("a").exists(), "a daemon that is restarted leaves its jobs what they have");
        }
        let status = wait(&lab.nodes[0], &dir, &id);
        assert_eq!(status, [[0, 0], [137, 3]][usize::from(with_helper)][usize::from(with_daemon)]);
        assert_eq!(left(&base.0, "n1"), Vec::<PathBuf>::new(), "helper {with_helper}, daemon {with_daemon}");
    }
    // What nobody knows of goes when a daemon begins.
    fs::create_dir_all(base.0.join("pando-n1/n9.7.0/of/long/ago")).unwrap();
    lab.nodes[0].kill();
    lab.nodes[0].start();
    until("it is gone", || left(&base.0, "n1").is_empty().then_some(()));
}

#[test]
fn what_has_no_quota_is_counted() {
    let base = base("counted");
    if quota::is_enforced(&fs::File::open(&base.0).unwrap()) {
        eprintln!("SKIPPED what_has_no_quota_is_counted: {} has project quotas", base.0.display());
        return;
    }
    let lab = Lab::new(1, &(settings(&base.0) + "scratch_mb = 100\n"));
    let (n1, dir) = (&lab.nodes[0], place(&lab, "work"));
    let takes = "mkdir $TMPDIR/sub; head -c 20M /dev/zero >$TMPDIR/sub/much; sleep 1000";
    let said = cli(n1, &dir, &["submit", "--scratch=10M", "-o", "out", "--wrap", takes]).output().unwrap();
    let (text, told) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(told.contains("no project quota at n1"), "{told}");
    let id = text.trim().rsplit(' ').next().unwrap().to_owned();
    until("it runs", || {
        ok(&mut cli(n1, &dir, &["info", &id])).contains("10M of each node: n1 (counted)").then_some(())
    });
    assert_eq!(wait(n1, &dir, &id), 128 + libc::SIGXFSZ);
    let told = fs::read_to_string(dir.join("out")).unwrap();
    assert!(told.contains("20 MB in its scratch directory") && told.contains("--scratch"), "{told}");
    let past = past(n1, &dir, &id).outcome;
    assert_eq!((past.state, &past.how), (State::Failed, &How::Signal(libc::SIGXFSZ)));
    assert!((20..22).contains(&past.usage.scratch_mb), "{:?}", past.usage);
    let usage = ok(&mut cli(n1, &dir, &["usage"]));
    assert!(usage.contains("SCRATCH") && usage.contains(&format!("{}M", past.usage.scratch_mb)), "{usage}");
    assert!(left(&base.0, "n1").is_empty());
    // No megabyte is promised twice, and none that nobody has.
    let holds = submit(n1, &dir, &["--scratch=60M", "-o", "out", "--wrap", "sleep 1000"]);
    let waits = submit(n1, &dir, &["--scratch=60M", "-o", "out", "--wrap", "true"]);
    let fits = submit(n1, &dir, &["--scratch=40M", "-o", "out", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &fits), 0);
    let why = ok(&mut cli(n1, &dir, &["explain", "-j", &waits]));
    assert!(why.contains("60M of scratch"), "{why}");
    ok(&mut cli(n1, &dir, &["cancel", &holds]));
    assert_eq!(wait(n1, &dir, &waits), 0);
    for words in [&["--scratch=101M"][..], &["--scratch=1M", "-C", "scratch-quota"]] {
        let words = [&["submit"], words, &["--wrap", "true"]].concat();
        let no = cli(n1, &dir, &words).output().unwrap();
        assert!(!no.status.success(), "{words:?}: {no:?}");
    }
}

#[test]
fn ranks_have_one_at_each_of_their_nodes() {
    let base = base("ranks");
    let lab = Lab::new(2, &settings(&base.0));
    let (n1, dir) = (&lab.nodes[0], place(&lab, "work"));
    let pando = n1.cli(&[]).get_program().to_string_lossy().into_owned();
    let shows = "echo $PANDO_NODE $PANDO_SCRATCH $TMPDIR $PANDO_SCRATCH_MB; touch $TMPDIR/file";
    let lines = |text: &str| {
        let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    let of_job = ok(&mut cli(n1, &dir, &["run", "-N2", "-n2", "sh", "-c", shows]));
    for (node, line) in ["n1", "n2"].iter().zip(lines(&of_job)) {
        let words: Vec<&str> = line.split(' ').collect();
        let begin = format!("{}/pando-{node}/job-n1.", base.0.display());
        assert!(words[0] == *node && words[1].starts_with(&begin) && words[1] == words[2], "{line}");
    }
    let both = || [left(&base.0, "n1"), left(&base.0, "n2")].concat();
    until("nothing is left", || both().is_empty().then_some(()));
    let step = format!("{pando} run -N2 -n2 sh -c '{shows}'; ls $PANDO_SCRATCH");
    let id = submit(n1, &dir, &["-N2", "-n2", "--scratch=7M", "-o", "out", "--wrap", &step]);
    assert_eq!(wait(n1, &dir, &id), 0);
    let said = fs::read_to_string(dir.join("out")).unwrap();
    let said = lines(&said);
    let own = format!("{}/pando-n1/n1.{id}.0", base.0.display());
    assert!(said.contains(&format!("n1 {own} {own} 7")), "the first node's is the job's own: {said:?}");
    assert!(said.contains(&"file".to_owned()), "{said:?}");
    let begin = format!("n2 {}/pando-n2/job-n1.", base.0.display());
    assert!(said.iter().any(|line| line.starts_with(&begin) && line.ends_with(" 7")), "{said:?}");
    until("nothing is left", || both().is_empty().then_some(()));
}

#[test]
fn where_another_node_has_none_its_ranks_are_not_told_of_one() {
    let base = base("lacks");
    let own = settings(&base.0);
    let lab = Lab::with(2, |node| if node == 1 { own.clone() } else { "[jobs]\nroot = true\n".into() });
    let (n1, dir) = (&lab.nodes[0], place(&lab, "work"));
    let pando = n1.cli(&[]).get_program().to_string_lossy().into_owned();
    let step = format!("{pando} run -w n2 -n1 sh -c 'echo $PANDO_NODE:$PANDO_SCRATCH:$TMPDIR'");
    let id = submit(n1, &dir, &["-w", "n1,n2", "-N2", "-n2", "-o", "out", "--wrap", &step]);
    assert_eq!(wait(n1, &dir, &id), 0);
    assert_eq!(fs::read_to_string(dir.join("out")).unwrap(), "n2::/tmp\n");
}

/// What a shell says of its limits, in a job that a shell with others has submitted.
#[test]
fn limits_of_processes_are_those_of_who_submits() {
    let lab = Lab::new(1, "[jobs]\nroot = true\n");
    let (n1, dir) = (&lab.nodes[0], place(&lab, "work"));
    let job = "for l in f n c; do ulimit -S$l; done; head -c 2M /dev/zero >large; echo ended $?";
    let of = |name: &str, more: &str| {
        let like = cli(n1, &dir, &[]);
        let pando = like.get_program().to_string_lossy().into_owned();
        let text = format!(
            "ulimit -S -f 1000; ulimit -S -n 77; ulimit -S -c 0; {pando} submit --parsable {more} -o {name} --wrap '{job}'"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &text]).current_dir(&dir);
        like.get_envs().for_each(|(n, v)| _ = v.map(|v| shell.env(n, v)));
        let id = ok(&mut shell).trim().to_owned();
        assert_eq!(wait(n1, &dir, &id), 0);
        let said = fs::read_to_string(dir.join(name)).unwrap();
        said.lines().filter(|l| !l.contains("File size")).map(str::to_owned).collect::<Vec<_>>()
    };
    // Blocks of 512 bytes; who writes more hears SIGXFSZ.
    assert_eq!(of("all", ""), ["1000", "77", "0", &format!("ended {}", 128 + libc::SIGXFSZ)]);
    let none = of("none", "--propagate=NONE");
    assert!(none[0] == "unlimited" && none[1] != "77" && none[3] == "ended 0", "{none:?}");
    let some = of("some", "--propagate=NOFILE");
    assert!(some[0] == "unlimited" && some[1] == "77", "{some:?}");
}

/// A file system of its own with project quotas, mounted until this is dropped.
struct Image(Base);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.0.join("mnt")).status();
    }
}

fn mounted(kind: &str, make: &[&str], option: &str) -> Result<Image, String> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Err("only root mounts file systems".into());
    }
    let base = base(kind);
    let (file, mnt) = (base.0.join("image"), base.0.join("mnt"));
    fs::create_dir(&mnt).unwrap();
    fs::File::create(&file).unwrap().set_len(400 << 20).unwrap();
    let run = |command: &mut Command| {
        let done = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        if done.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}")) }
    };
    run(Command::new(format!("mkfs.{kind}")).args(make).arg(&file))?;
    run(Command::new("mount").args(["-t", kind, "-o", &format!("loop,{option}")]).arg(&file).arg(&mnt))?;
    let image = Image(base);
    match quota::is_enforced(&fs::File::open(&mnt).unwrap()) {
        true => Ok(image),
        false => Err(format!("this kernel holds nobody to quotas on {kind}")),
    }
}

/// `pando WORDS` as an ordinary user.
fn as_nobody(node: &Daemon, dir: &Path, words: &[&str]) -> Output {
    let script =
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])";
    let command = node.cli(words);
    let mut as_other = Command::new("python3");
    as_other.args(["-c", script]).arg(command.get_program()).args(command.get_args()).current_dir(dir);
    as_other.env("PANDO_SOCKET", &node.socket).output().unwrap()
}

/// What an ordinary user and root see of it.
fn held_to(kind: &str, mnt: &Path) {
    let base = mnt.join("scratch");
    fs::create_dir(&base).unwrap();
    let mut lab = Lab::new(1, &settings(&base));
    fs::set_permissions(&lab.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let dir = place(&lab, "work");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(left(&base, "n1").is_empty());
    // What there is too much of is not written, and the program is told.
    let fills = "cd $PANDO_SCRATCH; mkdir -p a/b; head -c 30M /dev/zero >a/b/file; echo ended $?; head -c 1M /dev/zero >b; echo ended $?";
    let words = ["submit", "--parsable", "--scratch=10M", "-C", "scratch-quota", "-o", "out", "--wrap", fills];
    let said = as_nobody(&lab.nodes[0], &dir, &words);
    assert!(said.status.success() && said.stderr.is_empty(), "{kind}: {said:?}");
    let id = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    let told = fs::read_to_string(dir.join("out")).unwrap();
    assert!(told.matches("ended").count() == 2 && !told.contains("ended 0"), "{kind}: {told}");
    assert!(told.contains("No space left") || told.contains("quota exceeded"), "{kind}: {told}");
    let usage = past(&lab.nodes[0], &dir, &id).outcome.usage;
    assert!((9..=10).contains(&usage.scratch_mb), "{kind}: {usage:?}");
    assert!(left(&base, "n1").is_empty());
    // Another job has its own, also when the helper or the daemon of the first was killed.
    for round in 0..2 {
        let job = format!(
            "[ $SLURM_RESTART_COUNT = 0 ] || exit 0; head -c 9M /dev/zero >$TMPDIR/file; echo >begun{round}; sleep 1000"
        );
        let words = ["submit", "--parsable", "--scratch=10M", "-o", "long", "--wrap", &job];
        let id = String::from_utf8_lossy(&as_nobody(&lab.nodes[0], &dir, &words).stdout).trim().to_owned();
        until("it has written", || dir.join(format!("begun{round}")).exists().then_some(()));
        let there = base.join(format!("pando-n1/n1.{id}.0"));
        assert!(there.join("file").exists());
        let helper = helper(&lab.nodes[0], &format!("n1/{id}/0"));
        if round == 1 {
            lab.nodes[0].kill();
        }
        signal(helper, "KILL");
        if round == 1 {
            lab.nodes[0].start();
        }
        assert_eq!(wait(&lab.nodes[0], &dir, &id), if round == 0 { 137 } else { 0 });
        assert!(left(&base, "n1").is_empty(), "{kind}, round {round}");
    }
    let second = as_nobody(&lab.nodes[0], &dir, &words);
    let id = String::from_utf8_lossy(&second.stdout).trim().to_owned();
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    assert!(!fs::read_to_string(dir.join("out")).unwrap().contains("ended 0"), "{kind}");
    // Root's are held to it all the same, by the kernel or by who looks.
    let much = "head -c 30M /dev/zero >$TMPDIR/file || exit 9; sleep 1000";
    let id = submit(&lab.nodes[0], &dir, &["--scratch=10M", "-o", "root", "--wrap", much]);
    let status = wait(&lab.nodes[0], &dir, &id);
    assert!([9, 128 + libc::SIGXFSZ].contains(&status), "{kind}: {status}");
    assert!(left(&base, "n1").is_empty());
}

#[test]
fn ext4_holds_jobs_to_what_they_asked_for() {
    match mounted("ext4", &["-q", "-O", "quota,project"], "prjquota") {
        Ok(image) => held_to("ext4", &image.0.0.join("mnt")),
        Err(why) => eprintln!("SKIPPED ext4_holds_jobs_to_what_they_asked_for: {why}"),
    }
}

#[test]
fn xfs_holds_jobs_to_what_they_asked_for() {
    match mounted("xfs", &["-q"], "pquota") {
        Ok(image) => held_to("xfs", &image.0.0.join("mnt")),
        Err(why) => eprintln!("SKIPPED xfs_holds_jobs_to_what_they_asked_for: {why}"),
    }
}
