//! What accounts know of jobs: tasks of arrays by numbers of their own, steps with what they used on all nodes, and jobs that ended long ago.

mod lab;

use lab::batch::Place;
use lab::{Daemon, Lab, ok, until};
use pando_node::queue::ask::{Line, Past};
use pando_queue::State;
use std::fs;
use std::process::Command;

const JOBS: &str = "[jobs]\nroot = true\n";

impl Place {
    fn call(&self, node: &Daemon, words: &[&str]) -> String {
        ok(&mut self.called(node, words[0], &words[1..]))
    }

    fn submit(&self, node: &Daemon, words: &[&str]) -> String {
        self.call(node, &[&["sbatch", "--parsable"], words].concat()).trim().to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    fn wait(&self, node: &Daemon, id: &str) -> i32 {
        self.called(node, "pando", &["wait", id]).output().unwrap().status.code().unwrap_or(-1)
    }

    /// Its last one, of a task of this name.
    fn past(&self, node: &Daemon, id: &str) -> Past {
        let all: Vec<Past> = serde_json::from_str(&self.call(node, &["pando", "history", "--json"])).unwrap();
        all.into_iter().rev().find(|p| p.outcome.id.to_string() == id).unwrap()
    }
}

/// Status, output, errors.
fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn tasks_of_an_array_have_numbers_of_their_own() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let script = "echo $SLURM_JOB_ID $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID; until test -e go; do sleep 0.05; done";
    let array = place.submit(n1, &["-a", "4-8:2%1", "-o", "out.%j.%A.%a", "--wrap", script]);
    assert_eq!(array, "1");
    let runs = |id: &str| place.call(n1, &["squeue", "-h", "-t", "R", "-o", "%i %A %F %K"]) == id;
    until("the first runs", || runs("1_4 1 1 4\n").then_some(()));
    // The next job's number is after those of the tasks.
    let next = place.submit(n1, &["-H", "--wrap", "true"]);
    assert_eq!(next, "4");
    // The last by its own number: held, looked at, let go, and cancelled.
    place.call(n1, &["scontrol", "hold", "3"]);
    assert_eq!(place.call(n1, &["squeue", "-h", "-j", "3", "-o", "%i %t"]), "1_[8] PD\n");
    assert!(place.call(n1, &["pando", "info", "2"]).contains("job        1_6"));
    let shown = place.call(n1, &["scontrol", "show", "job", "3"]);
    assert!(shown.contains("JobId=3 ArrayJobId=1 ArrayTaskId=8 "), "{shown}");
    place.call(n1, &["scancel", "3"]);
    fs::write(place.dir.join("go"), "").unwrap();
    assert_eq!((place.wait(n1, "2"), place.wait(n1, "1")), (0, 1), "one of them was cancelled");
    assert_eq!((place.read("out.1.1.4"), place.read("out.2.1.6")), ("1 1 4\n".into(), "2 1 6\n".into()));
    assert_eq!(place.call(n1, &["sacct", "-nXP", "-j2", "-o", "jobid,jobidraw,state"]), "1_6|2|COMPLETED\n");
    assert_eq!(place.call(n1, &["pando", "logs", "2"]), "2 1 6\n");
}

#[test]
fn what_steps_use_on_all_nodes_is_the_jobs() {
    let lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    // Each rank has used 0.3 s of CPU time and 60 MB before it says so, and goes on when it is told to.
    let rank = "python3 -c 'import time,sys\nx=bytearray(60<<20)\nwhile time.process_time()<0.3: pass\nprint(\"used\",flush=True)'; \
                until test -e go; do sleep 0.05; done; exit 3";
    fs::write(place.dir.join("rank.sh"), format!("#!/bin/sh\n{rank}\n")).unwrap();
    let script = "srun -N2 -n2 -J both sh rank.sh; srun -n1 true; exit 0";
    let id = place.submit(n2, &["-N2", "-n2", "-o", "out", "--wrap", script]);
    until("both have used it", || (place.read("out").matches("used").count() == 2).then_some(()));
    // While it runs.
    let rows = || place.call(n1, &["sacct", "-nP", "-j", &id, "-o", "jobid,jobname,state,ntasks,nodelist"]);
    let running = [
        format!("{id}|wrap|RUNNING||n1,n2"),
        format!("{id}.batch|batch|RUNNING|1|n1"),
        format!("{id}.0|both|RUNNING|2|n1,n2"),
    ];
    until("the step is known", || rows().lines().eq(running.iter().map(String::as_str)).then_some(()));
    fs::write(place.dir.join("go"), "").unwrap();
    assert_eq!(place.wait(n1, &id), 0);
    let over = place.call(n1, &["sacct", "-nP", "-j", &id, "-o", "jobid,state,exitcode"]);
    let expected = [
        format!("{id}|COMPLETED|0:0"),
        format!("{id}.batch|COMPLETED|0:0"),
        format!("{id}.0|FAILED|3:0"),
        format!("{id}.1|COMPLETED|0:0"),
    ];
    assert_eq!(over.lines().collect::<Vec<_>>(), expected);
    let past = place.past(n2, &id).outcome;
    let step = &past.run.steps.all[0];
    assert!(step.usage.cpu_ms >= 600 && step.usage.memory_mb >= 60, "{step:?}");
    assert!(step.away.cpu_ms >= 300, "the rank at the other node: {step:?}");
    assert!(past.usage.cpu_ms >= 600, "{:?}", past.usage);
    assert!(place.call(n1, &["pando", "info", &id]).contains(&format!("step       {id}.0 both: 2 ranks on n1,n2 ran")));
}

#[test]
fn a_step_has_what_it_asks_for_and_no_more_than_its_job() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let script = "#!/bin/bash\necho $0\nsrun -n 9 true; echo $?; srun -O -n 3 echo over | wc -l\n\
        srun --mem 50M python3 -c 'x=bytearray(200<<20); import time; time.sleep(1000)'; echo $?\n\
        srun --exclusive -n1 sh -c 'touch holds; until test -e go; do sleep 0.05; done; rm holds' &\n\
        until test -e holds; do sleep 0.05; done\n\
        srun --exclusive -n1 sh -c 'test -e holds; echo alone $?' 2>waits &\n\
        until grep -q waiting waits; do sleep 0.05; done; srun --overlap -n1 echo beside; touch go; wait\n";
    fs::write(place.dir.join("own.sh"), script).unwrap();
    let id = place.submit(n1, &["-n1", "-o", "out", "-e", "err", "own.sh"]);
    assert_eq!(place.wait(n1, &id), 0);
    let (out, err) = (place.read("out"), place.read("err"));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].ends_with(&format!("n1.{id}.0/slurm_script")), "{out}");
    assert_eq!(lines[1..], ["125", "3", "137", "beside", "alone 1"], "{out}{err}");
    assert!(!std::path::Path::new(lines[0]).exists());
    assert!(err.contains("More processors requested than permitted: 9 CPUs"), "{err}");
    assert!(err.contains("MB of memory here, and asked for 50 (--mem)"), "{err}");
    let steps = place.past(n1, &id).outcome.run.steps.all;
    assert!(steps.iter().any(|step| step.state() == State::OutOfMemory), "{steps:?}");
}

#[test]
fn an_empty_environment_has_a_path() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let mut command =
        place.called(n1, "sbatch", &["-W", "--export=NONE", "-o", "out", "--wrap", "ls / >/dev/null && env"]);
    let (code, _, why) = said(command.env("SECRET", "x"));
    let out = place.read("out");
    assert!(
        code == 0 && out.contains("\nPATH=/") && out.contains("SLURM_JOB_ID=") && !out.contains("SECRET"),
        "{out}{why}"
    );
}

#[test]
fn who_waits_in_vain_is_told_why() {
    let lab = Lab::new(1, "[jobs]\nroot = true\n");
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let held = place.submit(n1, &["-H", "--wrap", "exit 1"]);
    let never = place.submit(n1, &["-d", &format!("afterok:{held}"), "--wrap", "true"]);
    place.call(n1, &["pando", "release", &held]);
    until("its end", || {
        let why = place.call(n1, &["sacct", "-nXP", "-j", &never, "-o", "state,reason"]);
        let all = why.contains(&format!("it was to wait for afterok:{held}, which can't be met any more"));
        (why.starts_with("CANCELLED") && all).then_some(())
    });
}

#[test]
fn jobs_that_ended_long_ago_can_be_waited_for() {
    // What has ended is forgotten at once.
    let lab = Lab::new(1, "[jobs]\nroot = true\n[queue.rules]\nkeep_ms = 0\n");
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let (good, bad) = (
        place.submit(n1, &["--wrap", "true"]),
        place.submit(n1, &["-a", "0-1", "--wrap", "exit $SLURM_ARRAY_TASK_ID"]),
    );
    assert_eq!((place.wait(n1, &good), place.wait(n1, &bad)), (0, 1));
    let list =
        || -> Vec<Line> { serde_json::from_str(&place.call(n1, &["pando", "queue", "--all", "--json"])).unwrap() };
    until("they are forgotten", || list().is_empty().then_some(()));
    let all = format!("afterok:{good},afterany:{bad},afterok:{bad}_0,afternotok:{bad}");
    let next = place.submit(n1, &["-d", &all, "--wrap", "true"]);
    assert_eq!(place.wait(n1, &next), 0);
    for wrong in [format!("afterok:{bad}"), format!("afternotok:{good}")] {
        let (code, _, why) = said(&mut place.called(n1, "sbatch", &["-d", &wrong, "--wrap", "true"]));
        assert!(code == 1 && why.contains("can't be met any more"), "{why}");
    }
    let (code, _, why) = said(&mut place.called(n1, "sbatch", &["-d", "afterok:999", "--wrap", "true"]));
    assert!(code == 1 && why.contains("job 999"), "{why}");
    let (code, _, why) = said(&mut place.called(n1, "pando", &["logs", &bad]));
    assert!(code == 1 && why.contains(&format!("is an array: say which of its tasks, like {bad}_")), "{why}");
    // By the number of a task that is forgotten.
    let number = (bad.parse::<u64>().unwrap() + 1).to_string();
    assert_eq!(place.call(n1, &["sacct", "-nXP", "-j", &number, "-o", "jobid,state"]), format!("{bad}_1|FAILED\n"));
}
