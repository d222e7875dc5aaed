//! Ranks that start others (MPI_Comm_spawn, over PMI-1): they run on the job's nodes, meet, belong to the job, and are gone with it, whoever dies.

mod lab;

use lab::{Daemon, Lab, launchers_of, signal, until};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";
/// Speaks PMI-1 itself.
const PMI: &str = include_str!("spawn/pmi.py");
const PROGRAM: &str = include_str!("spawn/ranks.c");

fn script(lab: &Lab) -> PathBuf {
    let file = lab.dir.join("pmi.py");
    fs::write(&file, PMI).unwrap();
    file
}

fn command(node: &Daemon, words: &[&str], more: &[&Path], how: &str) -> Command {
    let mut command = node.cli(&["run"]);
    command.args(words).args(more).arg(how).stdin(Stdio::null());
    command
}

/// Its status, what it said in the order of lines, and its complaints.
fn ended(mut command: Command) -> (i32, Vec<String>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    (status.code().unwrap_or(-1), lines, String::from_utf8(stderr).unwrap())
}

fn python(lab: &Lab, words: &[&str], how: &str) -> (i32, Vec<String>, String) {
    ended(command(&lab.nodes[0], words, &[Path::new("python3"), &script(lab)], how))
}

#[test]
fn ranks_that_were_started_have_a_space_of_their_own() {
    let lab = Lab::new(3, JOBS);
    let here = std::env::current_dir().unwrap();
    let (status, lines, text) = python(&lab, &["-N3", "-n3"], "all");
    let first = |rank: u32| format!("{rank}/4 program 0 x=y cmd=abort in {}: port of 0$a=b, said by 3", here.display());
    let mut expected: Vec<String> = (0..3).map(first).collect();
    expected.push("3/4 program 1 last in /: port of 0$a=b, said by 3".into());
    expected.push("cmd=spawn_result rc=0".into());
    assert_eq!((status, lines), (0, expected), "{text}");
    // They are ranks of the job for its user: their numbers go on.
    let (status, lines, text) = python(&lab, &["-N3", "-n3", "-l"], "all");
    let labels: String = lines.iter().map(|line| line.trim_start().split(':').next().unwrap()).collect();
    assert_eq!((status, labels.as_str()), (0, "03456"), "{lines:?} {text}");
    // Those who were started start others. The command is there till the last of them has ended.
    let (status, lines, text) = python(&lab, &["-N2", "-n2"], "deep");
    let last = lines.iter().filter(|line| line.contains("program 0 4 in")).count();
    assert_eq!((status, lines.len(), last), (0, 9, 2), "{lines:?} {text}");
}

#[test]
fn what_came_with_the_job_is_there_for_ranks_that_are_started() {
    let lab = Lab::new(3, JOBS);
    let file = script(&lab);
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = command(&lab.nodes[0], &["-N3", "-n3", "--bcast"], &[&file], "alone");
    command.env("SELF", &file);
    let (status, lines, text) = ended(command);
    let started = lines.iter().filter(|line| line.contains("/4 program 0 x")).count();
    assert_eq!((status, started, file.exists()), (0, 4, false), "{lines:?} {text}");
}

#[test]
fn what_can_not_be_started_is_an_error_for_who_asked() {
    let lab = Lab::new(2, JOBS);
    let (status, lines, text) = python(&lab, &["-N2", "-n2"], "bad");
    let refused = lines.iter().filter(|line| line.starts_with("cmd=spawn_result rc=-1")).count();
    assert_eq!(
        (status, refused, lines.last().unwrap().as_str()),
        (0, 4, "cmd=spawn_result rc=-1 msg=not_started status=-1")
    );
    for why in ["no-such-program: there is no such program in PATH", "this job has no ranks at n9", "1 to 65536 ranks"]
    {
        assert!(text.contains("MPI_Comm_spawn: ") && text.contains(why), "{why}: {text}");
    }
    assert!(lines.contains(&"True".to_owned()), "{lines:?}");
}

#[test]
fn whoever_was_started_and_ends_badly_ends_all() {
    let lab = Lab::new(3, JOBS);
    let (status, _, text) = python(&lab, &["-N3", "-n3"], "exit");
    assert!(status == 5 && text.contains("rank 6 at n") && text.contains("exit status 5"), "{status} {text}");
    // They end well, and those who started them would wait for ever.
    let (status, _, text) = python(&lab, &["-N3", "-n3"], "early");
    assert!(status == 1 && text.contains("without MPI_Finalize"), "{status} {text}");
    // Who says what nobody understands would wait for an answer.
    let (status, _, text) = python(&lab, &["-N3", "-n3"], "long");
    assert!(status == 1 && text.contains("a line of more than 16384 bytes"), "{status} {text}");
}

/// A job, and the processes of those ranks that have said who they are.
struct Running {
    child: Child,
    /// And whether others have started it.
    pids: Vec<(u32, bool)>,
}

impl Running {
    fn new(lab: &Lab, how: &str, ranks: usize) -> Running {
        let mut command = command(&lab.nodes[0], &["-N3", "-n3"], &[Path::new("python3"), &script(lab)], how);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut pid = || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            let pid = line.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{line}"));
            (pid, line.ends_with("waits\n"))
        };
        let pids = (0..ranks).map(|_| pid()).collect();
        // What they still say is not waited for.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        Running { child, pids }
    }

    fn one(&self, was_started: bool) -> u32 {
        self.pids.iter().find(|(_, started)| *started == was_started).unwrap().0
    }

    /// What its command said at its end; nothing of its ranks is left.
    fn ended(mut self) -> (i32, String) {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap().code().unwrap_or(-1);
        for (pid, _) in &self.pids {
            let gone = || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(());
            until(&format!("the end of process {pid}: {text}"), gone);
        }
        (status, text)
    }
}

fn nothing_runs(lab: &Lab) {
    for node in lab.nodes.iter().filter(|node| node.child_lives()) {
        until("no launcher", || launchers_of(node).is_empty().then_some(()));
        until("no job", || lab::ok(&mut node.cli(&["jobs", "--json"])).trim().eq("[]").then_some(()));
    }
}

#[test]
fn nothing_is_left_whoever_dies() {
    let mut lab = Lab::new(3, JOBS);
    // One that was started, and who started it.
    for was_started in [true, false] {
        let job = Running::new(&lab, "wait", 5);
        signal(job.one(was_started), "KILL");
        let (status, text) = job.ended();
        assert!(status == 137 && text.contains("ended by signal 9"), "{status} {text}");
        nothing_runs(&lab);
    }
    // A launcher; the group's or the others'.
    let job = Running::new(&lab, "wait", 5);
    let launchers = launchers_of(&lab.nodes[1]);
    assert_eq!(launchers.len(), 2);
    signal(*launchers.last().unwrap() as u32, "KILL");
    let (status, text) = job.ended();
    assert!(status == 137 && text.contains("node n2 was lost"), "{status} {text}");
    nothing_runs(&lab);
    // The user's command.
    let mut job = Running::new(&lab, "wait", 5);
    job.child.kill().unwrap();
    job.ended();
    nothing_runs(&lab);
    // A node, and the one that the user's command speaks to.
    for node in [2, 0] {
        let job = Running::new(&lab, "wait", 5);
        lab.nodes[node].kill();
        let (status, text) = job.ended();
        assert!(status != 0, "{text}");
        nothing_runs(&lab);
        lab.nodes[node].start();
        lab.settled();
    }
}

#[test]
fn nodes_that_die_while_ranks_are_started_leave_nothing() {
    let mut lab = Lab::new(3, JOBS);
    for (said, node) in [(3, 1), (4, 2), (6, 0), (7, 1)] {
        let job = Running::new(&lab, "many", said);
        lab.nodes[node].kill();
        let (status, text) = job.ended();
        assert!(status != 0, "{text}");
        nothing_runs(&lab);
        lab.nodes[node].start();
        lab.settled();
    }
}

/// The program, made by an MPICH that can start ranks; otherwise its test says aloud that it was not run. PANDO_MPICC names another compiler.
fn program(lab: &Lab, test: &str) -> Option<PathBuf> {
    let (source, program) = (lab.dir.join("ranks.c"), lab.dir.join("ranks"));
    fs::write(&source, PROGRAM).unwrap();
    let compiler = std::env::var("PANDO_MPICC").unwrap_or_else(|_| "mpicc.mpich".into());
    let made = Command::new(&compiler).arg("-o").arg(&program).arg(&source).output();
    let why = match made {
        Ok(made) if made.status.success() => {
            let (_, lines, text) = mpi(&lab.nodes[0], &["-n1"], &program, "one");
            match lines.iter().any(|line| line == "refused") {
                true => format!("it asks nobody for more ranks (device ucx before MPICH 4.1): {text}"),
                false => return Some(program),
            }
        }
        Ok(made) => String::from_utf8_lossy(&made.stderr).into_owned(),
        Err(e) => e.to_string(),
    };
    eprintln!("SKIPPED {test}: {compiler}: {why}");
    None
}

/// All nodes are on one machine: their ranks speak over its loopback.
fn mpi(node: &Daemon, words: &[&str], program: &Path, how: &str) -> (i32, Vec<String>, String) {
    let mut command = command(node, words, &[program], how);
    command.env("FI_PROVIDER", "tcp").env("UCX_TLS", "tcp,self");
    ended(command)
}

#[test]
fn programs_of_mpich_start_others() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "programs_of_mpich_start_others") else { return };
    let (status, lines, text) = mpi(&lab.nodes[1], &["-N3", "-n4"], &program, "one");
    let mut expected: Vec<String> =
        (0..4).flat_map(|r| [format!("parent {r} of 7: 21"), format!("{r}: an error")]).collect();
    expected.extend((4..7).map(|r| format!("child, program 0 {r} of 7: 21")));
    expected.sort();
    assert_eq!((status, lines), (0, expected), "{text}");
    let (status, lines, text) = mpi(&lab.nodes[0], &["-N2", "-n2"], &program, "multiple");
    let expected = [
        "first, program 0 2 of 5: 10",
        "first, program 0 3 of 5: 10",
        "last, program 1 4 of 5: 10",
        "parent 0 of 5: 10",
        "parent 1 of 5: 10",
    ];
    assert_eq!((status, lines), (0, expected.map(str::to_owned).to_vec()), "{text}");
    let (status, lines, text) = mpi(&lab.nodes[0], &["-N2", "-n2"], &program, "meet");
    let met = lines.iter().filter(|line| line.starts_with("opens ") || line.starts_with("comes "));
    assert_eq!((status, met.count()), (0, 4), "{lines:?} {text}");
    let (status, _, text) = mpi(&lab.nodes[0], &["-N2", "-n2"], &program, "abort");
    assert!(status == 9 && text.contains("rank 3 has ended the job with status 9"), "{status} {text}");
}
