//! What users say of batch jobs besides: logs, allocations, joining one, and Slurm's words, on real daemons.

mod lab;

use lab::batch::Place;
use lab::{Daemon, Lab, ok, until};
use pando_node::queue::ask::{Cluster, Line, Past};
use pando_queue::State;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const JOBS: &str = "[jobs]\nroot = true\n[queue]\nlost_after_ms = 3000\n";

impl Place {
    fn pando(&self, node: &Daemon, words: &[&str]) -> Command {
        self.called(node, "pando", words)
    }

    fn submit(&self, node: &Daemon, words: &[&str]) -> String {
        ok(&mut self.pando(node, &[&["submit", "--parsable"], words].concat())).trim().to_owned()
    }

    fn list(&self, node: &Daemon) -> Vec<Line> {
        serde_json::from_str(&ok(&mut self.pando(node, &["queue", "--all", "--json"]))).unwrap()
    }

    fn runs(&self, node: &Daemon, id: &str) {
        until("it runs", || self.list(node).iter().any(|l| l.id == id && l.state == State::Running).then_some(()));
    }

    /// Nothing of the queue waits or runs.
    fn empty(&self, node: &Daemon) {
        until("an empty queue", || self.list(node).iter().all(|l| l.state.is_final()).then_some(()));
    }
}

/// Status, output, errors.
fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn what_a_job_writes_is_seen_from_everywhere() {
    let lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    // It writes what it is told to, so that nothing here depends on time.
    let script = "echo first; echo wrong >&2; until test -e go; do sleep 0.05; done; echo second; exit 7";
    let id = place.submit(n1, &["-w", "n2", "-o", "out.%j", "-e", "err.%j", "--wrap", script]);
    let mut follower = place.pando(n1, &["logs", "-f", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = [0; 6];
    follower.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"first\n");
    assert_eq!(ok(&mut place.pando(n1, &["logs", "--err", &id])), "wrong\n");
    let attached = place.pando(n2, &["attach", &id]).stdout(Stdio::piped()).spawn().unwrap();
    // Another one joins it with a command of its own.
    let step = ok(&mut place.called(n1, "srun", &["--jobid", &id, "sh", "-c", "echo $SLURM_JOB_ID at $PANDO_NODE"]));
    assert_eq!(step, format!("{id} at n2\n"));
    let explained = ok(&mut place.pando(n1, &["explain", "-j", &id]));
    assert!(explained.contains("runs on n2"), "{explained}");
    fs::write(place.dir.join("go"), "").unwrap();
    let mut rest = String::new();
    follower.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), follower.wait().unwrap().code()), ("second\n", Some(7)));
    let attached = attached.wait_with_output().unwrap();
    assert_eq!(attached.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&attached.stdout).ends_with("second\n"));
    assert_eq!(ok(&mut place.pando(n1, &["logs", "-n", "1", &id])), "second\n");
    // Nobody gets at what a daemon has open.
    let out = place.dir.join(format!("out.{id}"));
    std::fs::remove_file(&out).unwrap();
    std::os::unix::fs::symlink("/proc/self/fd/1", &out).unwrap();
    let (code, _, why) = said(&mut place.pando(n1, &["logs", &id]));
    assert!(code == 1 && why.contains("can't be read"), "{why}");
    let mode = |name: &str| std::fs::metadata(n1.state.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("queue.db"), mode("queue.db-wal")), (0o600, 0o600));
    // Whose files can't be opened is not tried again.
    let lost = place.submit(n1, &["-o", "/nowhere/out", "--wrap", "true"]);
    assert_eq!(said(&mut place.pando(n1, &["wait", &lost])).0, 1);
    let (code, _, why) = said(&mut place.pando(n2, &["logs", "999"]));
    assert!(code == 1 && why.contains("no job 999"), "{why}");
    let held = place.submit(n1, &["-H", "--wrap", "true"]);
    let (code, _, why) = said(&mut place.pando(n2, &["logs", &held]));
    assert!(code == 1 && why.contains("has not begun"), "{why}");
    assert!(ok(&mut place.pando(n2, &["explain", "-j", &held])).contains("it is held"));
}

#[test]
fn an_allocation_ends_with_its_command_whoever_is_killed() {
    let lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let inner =
        "echo $SLURM_JOB_NODELIST $SLURM_NTASKS; srun sh -c 'echo rank $SLURM_PROCID at $SLURMD_NODENAME'; exit 5";
    let (code, out, why) = said(&mut place.called(n2, "salloc", &["-N", "2", "sh", "-c", inner]));
    assert_eq!(code, 5, "{out}{why}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["n1,n2 2", "rank 0 at n1", "rank 1 at n2"]);
    for what in ["Pending job allocation", "Granted job allocation", "Nodes n1,n2 are ready", "Relinquishing"] {
        assert!(why.contains(&format!("salloc: {what}")), "{why}");
    }
    assert!(!why.contains("revoked"), "{why}");
    place.empty(n1);
    let past: Vec<Past> = serde_json::from_str(&ok(&mut place.pando(n1, &["history", "--json"]))).unwrap();
    assert_eq!(past[0].outcome.state, State::Completed);
    // Interrupted while it waits.
    let mut waits = place.pando(n2, &["alloc", "-H", "true"]).stderr(Stdio::null()).spawn().unwrap();
    until("it waits", || place.list(n1).iter().any(|l| l.state == State::Pending).then_some(()));
    lab::signal(waits.id(), "TERM");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&waits.wait().unwrap()), Some(15));
    place.empty(n1);
    // Killed while its command runs; then with the one that speaks for it.
    for both in [false, true] {
        let mut runs = place.pando(n2, &["alloc", "sleep", "1000"]).stderr(Stdio::null()).spawn().unwrap();
        until("it runs", || place.list(n1).iter().any(|l| l.state == State::Running).then_some(()));
        let tie = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.windows(5).any(|w| w == b"__tie")
        };
        let children = || pando_kernel::procfs::children(runs.id() as i32);
        let ties = until("who speaks for it", || children().into_iter().find(tie));
        let sleeps = until("its command", || children().into_iter().find(|pid| !tie(pid)));
        if both {
            lab::signal(ties as u32, "KILL");
        }
        runs.kill().unwrap();
        runs.wait().unwrap();
        place.empty(n1);
        lab::signal(sleeps as u32, "KILL");
    }
    // One that is cancelled tells its command.
    let mut runs = place.pando(n2, &["alloc", "sleep", "1000"]).stderr(Stdio::piped()).spawn().unwrap();
    until("it runs", || place.list(n1).iter().any(|l| l.state == State::Running).then_some(()));
    ok(&mut place.called(n1, "scancel", &["--me"]));
    let mut why = String::new();
    runs.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(!runs.wait().unwrap().success() && why.contains("has been revoked"), "{why}");
}

#[test]
fn slurms_words_are_understood() {
    let lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let call = |name: &str, words: &[&str]| ok(&mut place.called(n1, name, words));
    let long = place.submit(n2, &["-J", "long", "-t", "10", "-p", "batch", "--wrap", "sleep 1000"]);
    let held = place.submit(n2, &["-J", "held", "-H", "--wrap", "true"]);
    let array = place.submit(n2, &["-J", "many", "-H", "--array", "1-3,7", "--wrap", "true"]);
    place.runs(n1, &long);
    assert_eq!(
        call("squeue", &["-h", "-t", "R", "-o", "%.6i|%j|%T|%l|%D"]),
        format!("{long:>6}|long|RUNNING|00:10:00|1\n")
    );
    assert_eq!(call("squeue", &["-h", "-n", "held", "-o", "%i %t %r"]), format!("{held} PD JobHeldUser\n"));
    assert!(call("squeue", &[]).contains("NODELIST(REASON)") && call("squeue", &["--start"]).contains("START_TIME"));
    let (code, _, why) = said(&mut place.called(n1, "squeue", &["-o", "%!"]));
    assert!(code == 1 && why.contains("`%!`"), "{why}");
    // scontrol.
    let shown = call("scontrol", &["show", "job", &long]);
    assert!(shown.contains(&format!("JobId={long}")) && shown.contains("JobState=RUNNING"), "{shown}");
    call("scontrol", &["update", &format!("JobId={held}"), "Name=other", "TimeLimit=5", "Nice=7"]);
    assert_eq!(call("squeue", &["-h", "-n", "other", "-o", "%i %l %y"]), format!("{held} 00:05:00 7\n"));
    call("scontrol", &["suspend", &long]);
    until("it stands still", || (call("squeue", &["-h", "-j", &long, "-o", "%t"]) == "S\n").then_some(()));
    call("scontrol", &["resume", &long]);
    place.runs(n1, &long);
    assert!(call("scontrol", &["ping"]).contains("is UP") && call("scontrol", &["show", "config"]).contains("policy"));
    assert!(call("scontrol", &["show", "partition"]).contains("PartitionName=batch"));
    let (code, _, why) = said(&mut place.called(n1, "scontrol", &["reconfigure"]));
    assert!(code == 1 && why.contains("`reconfigure` is not known here"), "{why}");
    // sinfo, also of a node that is drained.
    let cluster = || -> Cluster { serde_json::from_str(&call("sinfo", &["--json"])).unwrap() };
    assert_eq!(cluster().nodes.len(), 2);
    assert!(call("sinfo", &[]).contains("batch*"));
    ok(&mut place.pando(n1, &["drain", "n2"]));
    let state = || cluster().nodes.iter().find(|n| n.node.name == "n2").map(|n| n.state.clone());
    until("it is drained", || state().is_some_and(|s| s.starts_with("drain")).then_some(()));
    assert!(call("sinfo", &["-N", "-h", "-o", "%N %T"]).contains("n2 drain"));
    ok(&mut place.pando(n1, &["drain", "--undo", "n2"]));
    // scancel by state and by name.
    call("scancel", &["-n", "many"]);
    assert!(!call("squeue", &["-h"]).contains(&array));
    call("scancel", &["-t", "PENDING"]);
    assert_eq!(call("squeue", &["-h", "-o", "%i"]), format!("{long}\n"));
    call("scancel", &["-u", &pando_node::sys::user_name(pando_node::sys::effective_uid())]);
    place.empty(n1);
    let past = call("sacct", &["-n", "-P", "-j", &long, "--format=JobID,JobName,State,AllocCPUS"]);
    assert!(past.starts_with(&format!("{long}|long|CANCELLED by ")) && past.ends_with("|1\n"), "{past}");
    assert!(call("sacct", &["-X", "-s", "CANCELLED"]).contains("JobID"));
    // What is wrong, and what is harmless.
    let (code, _, why) = said(&mut place.called(n1, "sbatch", &["-p", "bogus", "--wrap", "true"]));
    assert!(code == 1 && why.contains("there is no partition bogus, there is batch"), "{why}");
    let (code, _, why) = said(&mut place.called(n1, "sbatch", &["--hint=nomultithread", "-H", "--wrap", "true"]));
    assert!(code == 0 && why.contains("--hint means nothing here"), "{why}");
    let (code, _, why) = said(&mut place.called(n1, "sbatch", &["-H", "-N", "9", "--wrap", "true"]));
    assert!(code == 1 && why.contains("Requested node configuration is not available: it wants 9 CPUs"), "{why}");
    assert!(call("squeue", &["--version"]).starts_with("pando "));
    for name in ["sbatch", "squeue", "scancel", "srun", "sacct", "sinfo", "salloc"] {
        assert!(call(name, &["--help"]).contains("Usage"), "{name}");
    }
}

#[test]
fn scripts_find_what_they_know() {
    let lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    // PBS's variables, and its file, which goes when the job does.
    let pbs = "#!/bin/sh\n#PBS -N named\n#PBS -l nodes=2:ppn=1\n#PBS -o pbs\ncd $PBS_O_WORKDIR\ncp $PBS_NODEFILE hosts\n\
               echo $PBS_NODEFILE >name; echo $PBS_JOBID $PBS_JOBNAME $PBS_NP\n";
    fs::write(place.dir.join("pbs.sh"), pbs).unwrap();
    let id = place.submit(n1, &["pbs.sh"]);
    assert_eq!(said(&mut place.pando(n1, &["wait", &id])).0, 0);
    assert_eq!(read(&place.dir.join("pbs")), format!("{id} named 2\n"));
    assert_eq!(read(&place.dir.join("hosts")), "n1\nn2\n");
    assert!(!Path::new(read(&place.dir.join("name")).trim()).exists());
    // Steps are counted, know the job's name and task, and those that run at once are spread.
    let step = "srun -n1 sh -c 'touch $SLURM_STEP_ID.$SLURM_JOB_NAME.$SLURM_ARRAY_TASK_ID.$SLURMD_NODENAME; until test -e go; do sleep 0.05; done'";
    let script = format!("srun --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME' | sort; {step} & {step} & wait");
    let id = place.submit(n1, &["-N", "2", "-n", "2", "--array=4", "-J", "name", "-o", "steps", "--wrap", &script]);
    let at = |node: &str| {
        let names = fs::read_dir(&place.dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
        names.into_iter().find(|n| n.ends_with(&format!(".name.4.{node}")))
    };
    let (first, second) = until("a step at each", || at("n1").zip(at("n2")));
    let mut numbers = [&first[..1], &second[..1]];
    numbers.sort_unstable();
    assert_eq!(numbers, ["1", "2"]);
    fs::write(place.dir.join("go"), "").unwrap();
    assert_eq!(said(&mut place.pando(n1, &["wait", &id])).0, 0);
    assert_eq!(read(&place.dir.join("steps")), "n1\nn2\n");
    // The script is warned, or its steps are.
    let script = "trap 'echo warned; exit 3' USR1; while :; do sleep 0.1; done";
    let id = place.submit(n1, &["-t", "1", "--signal=B:USR1@58", "-o", "warned", "--wrap", script]);
    assert_eq!(said(&mut place.pando(n1, &["wait", &id])).0, 3);
    assert_eq!(read(&place.dir.join("warned")), "warned\n");
    let inner = "trap \"echo step; exit 4\" USR1; while :; do sleep 0.1; done";
    let script = format!("srun -n1 sh -c '{inner}'");
    let id = place.submit(n1, &["-t", "1", "--signal=USR1@55", "-o", "step", "--wrap", &script]);
    assert_eq!(said(&mut place.pando(n1, &["wait", &id])).0, 4);
    assert!(read(&place.dir.join("step")).contains("step\n"));
}

#[test]
fn what_scripts_ask_in_slurms_words_has_slurms_answers() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let call = |name: &str, words: &[&str]| ok(&mut place.called(n1, name, words));
    // The queue knows of its nodes.
    call("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    let held = place.submit(n1, &["-H", "--mem-per-cpu=200", "--wrap", "true"]);
    let one = |columns: &str| call("squeue", &["-h", "-j", &held, "-o", columns]).trim().to_owned();
    let all: Vec<f64> = one("%Q %p").split(' ').map(|n| n.parse().unwrap()).collect();
    assert!(all.len() == 2 && all.iter().all(|priority| *priority > 0.0), "{all:?}");
    assert_eq!(one("%m"), "200M");
    assert_eq!((one("%all").split('|').count(), call("sinfo", &["-h", "-o", "%all"]).split('|').count()), (45, 21));
    let shown = call("scontrol", &["show", "job", &held]);
    for word in [" Reason=JobHeldUser ", "   MinMemoryCPU=200M ", &format!("Priority={} ", all[0])] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // A trial is a sentence, and says what a submission would.
    let (code, out, why) = said(&mut place.called(n1, "sbatch", &["--test-only", "-N", "9", "-t", "5", "--wrap", "x"]));
    assert_eq!((code, out.as_str()), (0, ""), "{why}");
    assert!(why.contains("9 tasks on 9 nodes, time limit 00:05:00; nothing") && why.contains("it wants 9"), "{why}");
    let json = call("sbatch", &["--test-only", "--json", "-N", "9", "--wrap", "x"]);
    assert!(serde_json::from_str::<pando_queue::Spec>(&json).is_ok(), "{json}");
    // The command line, then the environment, then the script.
    fs::write(place.dir.join("own.sh"), "#!/bin/sh\n#SBATCH -H -t 5 -J own\n").unwrap();
    let ids = [&[][..], &["-t", "9"]].map(|words| {
        let mut command = place.called(n1, "sbatch", &[&["--parsable"], words, &["own.sh"]].concat());
        ok(command.env("SBATCH_TIMELIMIT", "7")).trim().to_owned()
    });
    let mut squeue = place.called(n1, "squeue", &["-h", "-n", "own"]);
    squeue.env("SQUEUE_FORMAT", "%i %l").env("SQUEUE_SORT", "-i");
    assert_eq!(ok(&mut squeue), format!("{} 00:09:00\n{} 00:07:00\n", ids[1], ids[0]));
    let mut sacct = place.called(n1, "sacct", &["-nXP", "-j", &held]);
    assert_eq!(ok(sacct.env("SACCT_FORMAT", "jobid,reqmem")), format!("{held}|200M\n"));
}

#[test]
fn signals_reach_whom_they_are_meant_for() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let rank = "trap \"touch step.$SLURM_JOB_ID\" USR1; touch there.$SLURM_JOB_ID; until test -e go.$SLURM_JOB_ID; do sleep 0.05; done";
    let script = format!("#!/bin/sh\ntrap 'touch script.$SLURM_JOB_ID' USR1\nsrun -n1 sh -c '{rank}'\ntrue\n");
    fs::write(place.dir.join("own.sh"), script).unwrap();
    let cases: [(&str, &[&str], bool); 3] = [
        ("scancel", &["-s", "USR1"], false),
        ("scancel", &["-f", "-s", "USR1"], true),
        ("pando", &["cancel", "-s", "USR1"], true),
    ];
    for (name, words, whole) in cases {
        let id = place.submit(n1, &["own.sh"]);
        let is = |what: &str| place.dir.join(format!("{what}.{id}")).exists();
        until("its step runs", || is("there").then_some(()));
        ok(&mut place.called(n1, name, &[words, &[&id]].concat()));
        until("its step has heard it", || is("step").then_some(()));
        fs::write(place.dir.join(format!("go.{id}")), "").unwrap();
        place.empty(n1);
        assert_eq!(is("script"), whole, "{name} {words:?}");
    }
}

#[test]
fn who_waits_for_the_queues_node_is_told_once() {
    let mut lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    lab.nodes[0].kill();
    let cases: [(&str, &[&str]); 2] = [("sbatch", &["--wrap", "true"]), ("salloc", &["true"])];
    let mut waiting = cases.map(|(name, words)| {
        place.called(&lab.nodes[1], name, words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    // Both have said it before the node is there again.
    let told = waiting.each_mut().map(|command| {
        let mut line = String::new();
        let mut err = std::io::BufReader::new(command.stderr.take().unwrap());
        std::io::BufRead::read_line(&mut err, &mut line).unwrap();
        (line, err)
    });
    lab.nodes[0].start();
    for ((line, mut err), mut command) in told.into_iter().zip(waiting) {
        let (mut rest, begin) = (String::new(), "pando: waiting for the node that keeps the queue: ");
        err.read_to_string(&mut rest).unwrap();
        assert!(line.starts_with(begin) && !rest.contains(begin), "{line}{rest}");
        assert!(command.wait().unwrap().success(), "{line}{rest}");
    }
}
