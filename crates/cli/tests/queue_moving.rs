//! Batch jobs that give way by moving: a job of a lower level goes on at another node while one of a higher level has its CPUs. With the real engine.

mod lab;

use lab::batch::{cli, history, place, submit};
use lab::{Daemon, Lab, is_root, ok, signal, until};
use pando_node::queue::ask::Line;
use pando_node::views::Process;
use pando_queue::State;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RULES: &str = "[load]\ncpus = 2.0\nspeed = 1.0\n[jobs]\nroot = true\n[test]\nholds = true\n[queue.rules]\nhome_after_ms = 500\n\
    [queue.rules.qualities]\nhigh = { priority = 1000, level = 1 }\nnormal = { preempt = \"move\" }\n";

/// Two processes compute, with what they have done before and after the file `gate` is there as their result; a third one begins when `late` is there.
const LOW: &str = "#!/bin/sh
some() { i=0; while [ $i -lt 20000 ]; do i=$((i+1)); s=$(( (s * 69069 + i) % 2147483647 )); done; }
work() {
    s=$1; some
    while [ ! -e gate ]; do j=0; while [ $j -lt 999 ]; do j=$((j+1)); done; done
    some; echo \"$1: $s\"
}
work 1 > one & a=$!
work 2 > two & b=$!
while [ ! -e late ]; do sleep 0.1; done
work 3 > three & c=$!
for p in $a $b $c; do wait $p || exit 3; done
cat one two three
";

struct Jobs {
    lab: Lab,
    dir: PathBuf,
}

impl Jobs {
    fn new(nodes: usize, name: &str) -> Jobs {
        let lab = Lab::new(nodes, RULES);
        let dir = place(&lab, name);
        fs::write(dir.join("low"), LOW).unwrap();
        fs::create_dir_all(lab.nodes[0].state.join("holds")).unwrap();
        Jobs { lab, dir }
    }

    fn n1(&self) -> &Daemon {
        &self.lab.nodes[0]
    }

    fn low(&self) -> String {
        let id = submit(self.n1(), &self.dir, &["-n", "2", "-o", "low.out", "low"]);
        until("two that compute", || (self.computing().len() == 2).then_some(()));
        assert_eq!(self.line(&id).nodes, ["n1"]);
        id
    }

    /// Of higher level, at n1; it ends when the file `over` is there.
    fn high(&self) -> String {
        let script = "while [ ! -e over ]; do sleep 0.1; done";
        submit(self.n1(), &self.dir, &["-n", "2", "--qos", "high", "-w", "n1", "-o", "high.out", "--wrap", script])
    }

    fn line(&self, id: &str) -> Line {
        let all: Vec<Line> =
            serde_json::from_str(&ok(&mut cli(self.n1(), &self.dir, &["queue", "--json", "--all"]))).unwrap();
        all.into_iter().find(|line| line.id == id).unwrap_or_else(|| panic!("job {id} is not in the queue"))
    }

    fn is(&self, id: &str, state: State) {
        until(&format!("job {id} {state}"), || (self.line(id).state == state).then_some(()));
    }

    /// Processes of the job that compute, by what they have done.
    fn computing(&self) -> Vec<u32> {
        let script = format!("{}\0", "slurm_script");
        let of_it = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let here = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.dir);
            here && String::from_utf8_lossy(&words).contains(&script)
        };
        let all: Vec<i32> = pando_kernel::procfs::processes().into_iter().filter(of_it).collect();
        let has_parent = |pid: &i32| pando_kernel::procfs::parent(*pid).is_some_and(|p| all.contains(&p));
        all.iter().filter(|pid| has_parent(pid)).map(|pid| pid.unsigned_abs()).collect()
    }

    fn places(&self) -> Vec<String> {
        let known: Vec<Process> = self.n1().client().get("/v1/processes").unwrap();
        let at =
            |pid: u32| known.iter().find(|p| p.pid == pid && p.role == "home").map_or("n1".into(), |p| p.place.clone());
        self.computing().into_iter().map(at).collect()
    }

    fn all_at(&self, node: &str, count: usize) {
        until(&format!("{count} at {node}"), || {
            let places = self.places();
            (places.len() == count && places.iter().all(|place| place == node)).then_some(())
        });
    }

    fn touch(&self, name: &str) {
        fs::write(self.dir.join(name), "").unwrap();
    }

    /// Lets it go on to its end; its output is that of one that nobody disturbed.
    fn ends_well(&self, id: &str) {
        self.touch("late");
        self.touch("gate");
        ok(&mut cli(self.n1(), &self.dir, &["wait", id]));
        let out = fs::read_to_string(self.dir.join("low.out")).unwrap();
        let alone = self.dir.join("alone");
        fs::create_dir_all(&alone).unwrap();
        ["late", "gate"].iter().for_each(|name| fs::write(alone.join(name), "").unwrap());
        assert_eq!(out, ok(Command::new("/bin/sh").arg(self.dir.join("low")).current_dir(&alone)));
        let all = history(self.n1(), &self.dir);
        let ends: Vec<State> = all
            .iter()
            .filter(|p| p.outcome.id.to_string() == id)
            .map(|p| p.outcome.state)
            .filter(|s| s.is_final())
            .collect();
        assert_eq!(ends, [State::Completed]);
    }
}

fn words(path: &Path, name: &str) -> String {
    fs::read_to_string(path.join(name)).unwrap_or_default()
}

#[test]
fn a_lower_job_goes_on_at_another_node_and_comes_home() {
    let jobs = Jobs::new(2, "goes");
    let low = jobs.low();
    let high = jobs.high();
    jobs.is(&high, State::Running);
    jobs.all_at("n2", 2);
    let line = jobs.line(&low);
    assert_eq!((line.state, line.reason.as_str()), (State::Running, "computes at n2"));
    let why = ok(&mut cli(jobs.n1(), &jobs.dir, &["explain", "-j", &low]));
    assert!(why.contains("its processes compute at n2"), "{why}");
    let nodes = ok(&mut cli(jobs.n1(), &jobs.dir, &["info", &low]));
    assert!(nodes.contains("where      its processes compute at n2"), "{nodes}");
    // What it uses there is its own, and seen before its end.
    let used = || {
        let shown = ok(&mut cli(jobs.n1(), &jobs.dir, &["info", &low]));
        let line = shown.lines().find_map(|line| line.strip_prefix("used ")?.split_once("CPU ")).map(|(_, rest)| rest);
        line.and_then(|rest| rest.split('s').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    let before = used();
    until("it uses CPU time at n2", || (used() > before + 0.5).then_some(()));
    // What begins later goes there, too.
    jobs.touch("late");
    jobs.all_at("n2", 3);
    jobs.touch("over");
    jobs.is(&high, State::Completed);
    jobs.all_at("n1", 3);
    until("the books", || jobs.line(&low).reason.is_empty().then_some(()));
    jobs.ends_well(&low);
    let used =
        history(jobs.n1(), &jobs.dir).into_iter().find(|p| p.outcome.id.to_string() == low).unwrap().outcome.usage;
    assert!(used.cpu_ms > 0, "{used:?}");
    assert!(jobs.n1().audit().contains("\"place\""), "{}", jobs.n1().audit());
}

#[test]
fn a_daemon_that_is_killed_while_a_job_moves_loses_nothing() {
    let mut jobs = Jobs::new(2, "killed");
    let low = jobs.low();
    let one = jobs.computing()[0];
    let hold = jobs.n1().state.join("holds").join(format!("home-freeze-{one}"));
    fs::write(&hold, "").unwrap();
    let high = jobs.high();
    until("the middle of a move", || hold.with_extension("held").exists().then_some(()));
    assert_eq!(jobs.line(&low).reason, "moves to n2");
    jobs.lab.nodes[0].kill();
    fs::remove_file(hold.with_extension("held")).unwrap();
    jobs.lab.nodes[0].start();
    jobs.lab.settled();
    jobs.is(&high, State::Running);
    jobs.all_at("n2", 2);
    // Also when it is there.
    jobs.lab.nodes[0].kill();
    jobs.lab.nodes[0].start();
    jobs.lab.settled();
    until("what was known", || (jobs.line(&low).reason == "computes at n2").then_some(()));
    jobs.touch("late");
    jobs.all_at("n2", 3);
    jobs.touch("over");
    jobs.is(&high, State::Completed);
    jobs.ends_well(&low);
}

#[test]
fn who_computes_at_a_node_that_is_lost_runs_again() {
    let jobs = Jobs::new(2, "lost");
    let low = jobs.low();
    let high = jobs.high();
    jobs.is(&high, State::Running);
    jobs.all_at("n2", 2);
    // As if the machine were gone: the half that computes, and who could tell of it.
    let guests: Vec<Process> = jobs.lab.nodes[1].client().get("/v1/processes").unwrap();
    let helpers: Vec<u32> = guests.iter().filter(|p| p.role == "guest").filter_map(|p| p.helper).collect();
    assert!(!helpers.is_empty());
    helpers.iter().for_each(|pid| signal(*pid, "KILL"));
    until("it is told", || {
        let all = history(jobs.n1(), &jobs.dir);
        let again = |o: &pando_queue::Outcome| o.id.to_string() == low && o.state == State::Requeued;
        all.iter().any(|p| again(&p.outcome)).then_some(())
    });
    jobs.touch("over");
    jobs.ends_well(&low);
    assert_eq!(words(&jobs.dir, "high.out"), "");
}

#[test]
fn who_cant_be_moved_stands_still_and_goes_on() {
    if !is_root("who_cant_be_moved_stands_still_and_goes_on") {
        return;
    }
    let jobs = Jobs::new(2, "rooted");
    let script = "exec unshare -fp sh -c 'i=0; while [ ! -e gate ]; do i=$((i+1)); done; echo done'";
    let low = submit(jobs.n1(), &jobs.dir, &["-n", "2", "-o", "low.out", "--wrap", script]);
    jobs.is(&low, State::Running);
    until("it computes", || {
        let is = |pid: &i32| pando_kernel::procfs::command(*pid).contains("echo done");
        (pando_kernel::procfs::processes().iter().filter(|pid| is(pid)).count() > 1).then_some(())
    });
    let high = jobs.high();
    jobs.is(&high, State::Running);
    jobs.is(&low, State::Suspended);
    let why = ok(&mut cli(jobs.n1(), &jobs.dir, &["explain", "-j", &low]));
    assert!(why.contains("it could not be moved to n2") && why.contains("pid namespace"), "{why}");
    jobs.touch("over");
    jobs.is(&high, State::Completed);
    jobs.is(&low, State::Running);
    jobs.touch("gate");
    ok(&mut cli(jobs.n1(), &jobs.dir, &["wait", &low]));
    assert_eq!(words(&jobs.dir, "low.out"), "done\n");
}
