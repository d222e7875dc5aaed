//! Batch jobs on real daemons: what Slurm's users know, and that a job which was acknowledged runs once, whoever is killed and started again.

mod lab;

use lab::batch::{cli, history, place, submit};
use lab::{Daemon, Lab, is_root, ok, until};
use pando_kernel::procfs;
use pando_node::queue::ask::{Line, Past};
use pando_queue::State;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const JOBS: &str = "[jobs]\nroot = true\n[queue]\nlost_after_ms = 120000\n";

fn status(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    (output.status.code().unwrap_or(-1), said)
}

fn wait(node: &Daemon, dir: &Path, id: &str) -> i32 {
    status(&mut cli(node, dir, &["wait", id])).0
}

fn list(node: &Daemon, dir: &Path) -> Vec<Line> {
    serde_json::from_str(&ok(&mut cli(node, dir, &["queue", "--all", "--json"]))).unwrap()
}

#[test]
fn what_users_of_slurm_know_works() {
    let lab = Lab::new(2, JOBS);
    lab.settled();
    let dir = place(&lab, "slurm");
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let script = "#!/bin/sh\n#SBATCH -J two -N 2\n#SBATCH --ntasks=2 --time=5\necho job $SLURM_JOB_ID $SLURM_NTASKS $1\n\
                  srun sh -c 'echo rank $PANDO_RANK $SLURM_JOB_ID'\n";
    fs::write(dir.join("job.sh"), script).unwrap();
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    let exe = n1.cli(&[]).get_program().to_owned();
    for name in ["sbatch", "squeue", "scancel", "srun", "sacct"] {
        symlink(&exe, bin.join(name)).unwrap();
    }
    let called = |node: &Daemon, name: &str, words: &[&str]| {
        let like = node.cli(&[]);
        let mut command = Command::new(bin.join(name));
        command.args(words).current_dir(&dir);
        like.get_envs().for_each(|(n, v)| _ = v.map(|v| command.env(n, v)));
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command
    };
    // At the node that does not keep the queue.
    let said = ok(&mut called(n2, "sbatch", &["job.sh", "argument"]));
    let id = said.trim().strip_prefix("Submitted batch job ").unwrap().to_owned();
    let code = wait(n1, &dir, &id);
    let out = fs::read_to_string(dir.join(format!("slurm-{id}.out"))).unwrap();
    assert_eq!(code, 0, "{out}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected = [format!("job {id} 2 argument"), format!("rank 0 {id}"), format!("rank 1 {id}")];
    assert_eq!(lines, expected);
    // An array, and one that waits for it.
    let first = submit(n2, &dir, &["--array=1-3", "-o", "a.%a", "--wrap", "sleep 0.3; echo $SLURM_ARRAY_TASK_ID"]);
    let dependency = format!("--dependency=afterok:{first}");
    let second = submit(n1, &dir, &[&dependency, "-o", "sum", "--wrap", "cat a.1 a.2 a.3"]);
    assert!(ok(&mut called(n1, "squeue", &["-h"])).contains("Dependency"));
    assert_eq!(wait(n2, &dir, &second), 0);
    assert_eq!(fs::read_to_string(dir.join("sum")).unwrap(), "1\n2\n3\n");
    // One that is cancelled, and one that fails.
    let long = submit(n1, &dir, &["--wrap", "trap '' TERM; sleep 1000 & wait; sleep 1000"]);
    until("it runs", || list(n1, &dir).iter().any(|l| l.id == long && l.state == State::Running).then_some(()));
    ok(&mut called(n2, "scancel", &[&long]));
    assert_ne!(wait(n1, &dir, &long), 0);
    let bad = submit(n1, &dir, &["--wrap", "exit 3"]);
    assert_eq!(wait(n1, &dir, &bad), 3);
    let past = history(n2, &dir);
    let state = |id: &str| past.iter().find(|p| p.outcome.id.to_string() == id).unwrap().outcome.state;
    assert_eq!((state(&long), state(&bad)), (State::Cancelled, State::Failed));
    assert!(ok(&mut called(n2, "sacct", &["-j", &bad])).contains("3:0"));
}

#[test]
fn what_can_not_be_is_said_and_what_is_held_waits() {
    let lab = Lab::new(1, JOBS);
    let dir = place(&lab, "refused");
    let n1 = &lab.nodes[0];
    fs::write(dir.join("typo.sh"), "#!/bin/sh\n\n#SBATCH --nodse=2\n").unwrap();
    let (code, said) = status(&mut cli(n1, &dir, &["submit", "typo.sh"]));
    assert!(code == 1 && said.contains("line 3") && said.contains("--nodse=2"), "{said}");
    let (code, said) = status(&mut cli(n1, &dir, &["cancel", "99"]));
    assert!(code == 1 && said.contains("no job 99"), "{said}");
    let id = submit(n1, &dir, &["-H", "--wrap", "true"]);
    // What never begins is remembered, too.
    ok(&mut cli(n1, &dir, &["cancel", &id]));
    until("its end", || {
        let is = |p: &Past| p.outcome.id.to_string() == id && p.outcome.state == State::Cancelled;
        history(n1, &dir).iter().any(is).then_some(())
    });
    let (code, said) = status(&mut cli(n1, &dir, &["submit", "--nodse=2", "--wrap", "true"]));
    assert!(code != 0 && said.contains("--nodse"), "{said}");
    let attached = submit(n1, &dir, &["-n1", "-c1", "-t5", "-oattached", "--wrap", "echo 1"]);
    assert_eq!(wait(n1, &dir, &attached), 0);
    // Steps stay on the job's nodes.
    let step = format!("{} run -n1 -w elsewhere true", n1.cli(&[]).get_program().to_string_lossy());
    let step = submit(n1, &dir, &["-o", "step", "--wrap", &step]);
    assert_eq!(wait(n1, &dir, &step), 125);
    assert!(fs::read_to_string(dir.join("step")).unwrap().contains("none of this batch job's"));
    // More than there is.
    until("it is refused", || {
        let (code, said) = status(&mut cli(n1, &dir, &["submit", "--parsable", "-N", "5", "--wrap", "true"]));
        if code == 0 {
            ok(&mut cli(n1, &dir, &["cancel", said.lines().last().unwrap().trim()]));
        }
        (code == 1 && said.contains("Requested node configuration is not available")).then_some(())
    });
    let held = submit(n1, &dir, &["-H", "-o", "held", "--wrap", "echo begun"]);
    assert!(ok(&mut cli(n1, &dir, &["info", &held])).contains("it is held"));
    ok(&mut cli(n1, &dir, &["release", &held]));
    assert_eq!(wait(n1, &dir, &held), 0);
    // Its time, and its memory.
    let late = submit(n1, &dir, &["-t", "0:1", "-o", "late", "--wrap", "sleep 1000"]);
    assert_eq!(wait(n1, &dir, &late), 124);
    assert!(fs::read_to_string(dir.join("late")).unwrap().contains("its time is over"));
    if is_root("what another user may not") {
        let other = |words: &[&str]| {
            let ours = n1.cli(words);
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(ours.get_program());
            command.args(ours.get_args());
            ours.get_envs().for_each(|(n, v)| _ = v.map(|v| command.env(n, v)));
            command
        };
        let mine = submit(n1, &dir, &["-H", "--wrap", "secret-word"]);
        let (code, said) = status(&mut other(&["cancel", &mine]));
        // Where the binary or the socket can't be reached by others there is nothing to see.
        if said.contains("Permission denied") || said.contains("no node runs") {
            eprintln!("SKIPPED: what another user may not: {said}");
        } else {
            assert!(code == 1 && said.contains("not yours"), "{code} {said}");
            assert!(!ok(&mut other(&["info", &mine, "--json"])).contains("secret-word"));
        }
        ok(&mut cli(n1, &dir, &["cancel", &mine]));
    }
}

#[test]
fn who_ends_while_nobody_is_there_leaves_nothing() {
    let mut lab = Lab::new(1, JOBS);
    let dir = place(&lab, "alone");
    let mark = dir.to_string_lossy().into_owned();
    let left = || -> Vec<i32> {
        let mine = |pid: &i32| procfs::variable(*pid, "MARK").is_some_and(|m| m == mark);
        procfs::processes().into_iter().filter(mine).collect()
    };
    let mut command = cli(&lab.nodes[0], &dir, &["submit", "--parsable", "-o", "long", "--wrap"]);
    let script = "[ $SLURM_RESTART_COUNT = 0 ] || exit 3; sleep 1000 & echo begun; wait";
    command.arg(script).env("MARK", &mark);
    let id = ok(&mut command).trim().to_owned();
    until("it runs", || fs::read_to_string(dir.join("long")).is_ok_and(|t| t.contains("begun")).then_some(()));
    // Its helper is killed while there is no daemon, as with a machine that goes down and is soon back: the next daemon tells, and ends what is
    // left; the job runs again.
    let script = left().into_iter().find(|pid| procfs::parent(*pid).is_some_and(|p| procfs::name(p) == "pando-batch"));
    let helper = script.and_then(procfs::parent).unwrap();
    lab.nodes[0].kill();
    lab::signal(helper as u32, "KILL");
    lab.nodes[0].start();
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 3);
    let states: Vec<State> = history(&lab.nodes[0], &dir).iter().map(|p| p.outcome.state).collect();
    assert_eq!(states, [State::Requeued, State::Failed]);
    until("nothing of it", || left().is_empty().then_some(()));
}

#[test]
fn whoever_is_killed_each_job_runs_once_and_none_is_lost() {
    let mut lab = Lab::new(2, JOBS);
    lab.settled();
    let dir = place(&lab, "killed");
    let mut ids = Vec::new();
    let job = "echo $SLURM_JOB_ID >>begun; sleep 0.5; echo $SLURM_JOB_ID >>ended";
    for round in 0..3 {
        for _ in 0..6 {
            ids.push(submit(&lab.nodes[0], &dir, &["-o", "/dev/null", "--wrap", job]));
        }
        until("some have begun", || {
            let begun = fs::read_to_string(dir.join("begun")).unwrap_or_default();
            (begun.lines().count() > round * 6).then_some(())
        });
        // The node that keeps the queue, the other one, and both: one after the other, for their ports are new ones each time.
        for node in [0, 1].into_iter().filter(|n| round == 2 || *n == round) {
            lab.nodes[node].kill();
            lab.nodes[node].start();
            lab.settled();
        }
    }
    lab.settled();
    for id in &ids {
        assert_eq!(wait(&lab.nodes[0], &dir, id), 0, "job {id}");
    }
    for file in ["begun", "ended"] {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        let mut seen: Vec<u64> = text.lines().map(|l| l.parse().unwrap()).collect();
        seen.sort_unstable();
        let mut expected: Vec<u64> = ids.iter().map(|id| id.parse().unwrap()).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{file}");
    }
    let past = history(&lab.nodes[0], &dir);
    assert_eq!(past.len(), ids.len());
    assert!(past.iter().all(|p| p.outcome.state == State::Completed), "{past:?}");
}
