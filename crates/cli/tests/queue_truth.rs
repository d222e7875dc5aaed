//! What the queue says is so: why a job does not run, what it has used, why a node is drained, when what was lost has ended.

mod lab;

use lab::batch::Place;
use lab::{Daemon, Lab, ok, until};
use pando_node::queue::ask::{Cluster, Past};
use pando_node::views::{Info, Node};
use pando_queue::{How, State};
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const JOBS: &str = "[jobs]\nroot = true\n[queue]\nlost_after_ms = 600000\n";

impl Place {
    fn call(&self, node: &Daemon, words: &[&str]) -> String {
        ok(&mut self.called(node, words[0], &words[1..]))
    }

    fn submit(&self, node: &Daemon, words: &[&str]) -> String {
        self.call(node, &[&["sbatch", "--parsable"], words].concat()).trim().to_owned()
    }

    fn reason(&self, node: &Daemon, id: &str) -> String {
        self.call(node, &["squeue", "-h", "-j", id, "-o", "%R"]).trim().to_owned()
    }

    fn past(&self, node: &Daemon, id: &str) -> Option<Past> {
        let all: Vec<Past> = serde_json::from_str(&self.call(node, &["pando", "history", "--json"])).unwrap();
        all.into_iter().rev().find(|p| p.outcome.id.to_string() == id)
    }

    fn running(&self, node: &Daemon, id: &str) {
        until("it runs", || (self.call(node, &["squeue", "-h", "-j", id, "-o", "%t"]) == "R\n").then_some(()));
    }
}

/// Status, output and errors.
fn said(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}

/// The queue knows of so many nodes all that there is to know.
fn known(place: &Place, node: &Daemon, count: usize) {
    until("all nodes", || {
        let all: Cluster = serde_json::from_str(&place.call(node, &["sinfo", "--json"])).unwrap();
        (all.nodes.iter().filter(|n| n.state != "down" && !n.node.vague).count() == count).then_some(())
    });
}

#[test]
fn what_can_never_run_is_refused_and_what_a_node_may_bring_waits_for_it() {
    let mut lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    {
        let n1 = &lab.nodes[0];
        known(&place, n1, 2);
        for words in [&["-N", "3"][..], &["-c", "4000"], &["--mem", "900T"], &["-C", "tape"], &["--gres=gpu:1"]] {
            let words = [words, &["--wrap", "true"]].concat();
            let refused = || {
                let (code, text) = said(&mut place.called(n1, "sbatch", &words));
                (code == 1 && text.contains("Requested node configuration is not available: ")).then_some(())
            };
            // Who is there besides is said a moment after the first node is.
            until(&format!("{words:?} is refused"), || {
                let refused = refused();
                place.call(n1, &["scancel", "--me"]);
                refused
            });
        }
        // A node that is drained, and one that is away.
        place.call(n1, &["scontrol", "update", "nodename=n2", "state=drain", "reason=new disk"]);
        let wants = place.submit(n1, &["-w", "n2", "--wrap", "true"]);
        until("why it waits", || (place.reason(n1, &wants) == "(ReqNodeNotAvail, UnavailableNodes:n2)").then_some(()));
        let held = place.submit(n1, &["-H", "--wrap", "true"]);
        assert_eq!(place.reason(n1, &held), "(JobHeldUser)");
        assert!(place.call(n1, &["scontrol", "show", "job", &wants]).contains("Reason=ReqNodeNotAvail"));
    }
    lab.nodes[1].kill();
    let n1 = &lab.nodes[0];
    let both = place.submit(n1, &["-N", "2", "--wrap", "true"]);
    until("why it waits", || place.reason(n1, &both).contains("UnavailableNodes:n2").then_some(()));
    assert!(place.call(n1, &["pando", "explain", "-j", &both]).contains("down or drained"));
}

#[test]
fn a_drain_has_its_reason_also_after_a_restart() {
    let mut lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    known(&place, &lab.nodes[0], 2);
    place.call(&lab.nodes[0], &["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=disk full"]);
    let shows = |place: &Place, node: &Daemon| {
        until("the reason", || {
            let text = place.call(node, &["sinfo", "-R"]);
            let row = text.lines().find(|line| line.starts_with("disk full"))?.to_owned();
            (row.ends_with("n2") && !row.contains("Unknown")).then_some(())
        });
        let text = place.call(node, &["scontrol", "show", "node", "n2"]);
        assert!(text.contains("Reason=disk full [") && text.contains("@20"), "{text}");
    };
    shows(&place, &lab.nodes[0]);
    for node in [1, 0] {
        lab.nodes[node].kill();
        lab.nodes[node].start();
        // Each start takes another port: who is killed before he has heard of that does not find the other one again.
        until("they know where they are", || {
            let addr = |of: &Daemon| of.client().get::<Info>("/v1/info").ok().map(|info| info.addr);
            let knows = |at: &Daemon, of: &Daemon| {
                let all = at.client().get::<Vec<Node>>("/v1/nodes").unwrap_or_default();
                all.iter().any(|n| n.name == of.name && Some(&n.addr) == addr(of).as_ref())
            };
            let [a, b] = &lab.nodes[..] else { return None };
            (knows(a, b) && knows(b, a)).then_some(())
        });
        shows(&place, &lab.nodes[0]);
    }
    let n1 = &lab.nodes[0];
    let (code, why) = said(&mut place.called(n1, "pando", &["drain", "n2", "--reason", &"x".repeat(100_000)]));
    assert!(code == 1 && why.contains("256 bytes at most, and this one has 100000"), "{why}");
    let much = format!("reason={}", "x".repeat(100_000));
    let (code, why) = said(&mut place.called(n1, "scontrol", &["update", "nodename=n2", "state=drain", &much]));
    assert!(code == 1 && why.contains("256 bytes at most"), "{why}");
    ok(&mut place.called(n1, "pando", &["drain", "n2", "--reason", "another one"]));
    until("pando nodes says it, too", || {
        let text = place.call(n1, &["pando", "nodes"]);
        let row = text.lines().find(|line| line.starts_with("n2"))?;
        (row.contains(" drained ") && row.ends_with(" another one")).then_some(())
    });
    until("the other", || place.call(n1, &["sinfo", "-R", "-h"]).starts_with("another one").then_some(()));
    place.call(n1, &["scontrol", "update", "nodename=n2", "state=resume"]);
    until("none", || place.call(n1, &["sinfo", "-R", "-h"]).is_empty().then_some(()));
    assert!(!place.call(n1, &["scontrol", "show", "node", "n2"]).contains("Reason="));
}

#[test]
fn whose_directory_or_file_is_not_there_fails_at_once_and_says_so() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    for (words, why) in [
        (["-D", "/no/such/place"], "there is no directory /no/such/place (--chdir takes another one)"),
        (["-o", "/no/such/file"], "/no/such/file can't be written: No such file or directory"),
    ] {
        let id = place.submit(n1, &[&words[..], &["--wrap", "true"]].concat());
        assert_eq!(said(&mut place.called(n1, "pando", &["wait", &id])).0, 1);
        let past = place.past(n1, &id).unwrap();
        assert_eq!((past.outcome.state, past.outcome.run.run), (State::Failed, 0), "it was not tried again");
        let row = place.call(n1, &["sacct", "-nP", "-j", &id, "-o", "state,exitcode,reason"]);
        assert!(row.starts_with("FAILED|1:0|node n1: ") && row.contains(why), "{row}");
        assert!(place.call(n1, &["pando", "info", &id]).contains(why));
        let shown = place.call(n1, &["scontrol", "show", "job", &id]);
        assert!(shown.contains("JobState=FAILED") && shown.contains("ExitCode=1:0") && shown.contains(why), "{shown}");
    }
}

#[test]
fn what_runs_has_used_something_and_has_its_priority() {
    let lab = Lab::new(1, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    let script = "python3 -c 'import time\nx=bytearray(40<<20)\nwhile time.process_time()<0.3: pass\nprint(1,flush=True)\ntime.sleep(1000)'";
    let id = place.submit(n1, &["-o", "out", "--wrap", script]);
    until("it has used it", || (fs::read_to_string(place.dir.join("out")).ok()? == "1\n").then_some(()));
    place.running(n1, &id);
    let rows = place.call(n1, &["sacct", "-nP", "-j", &id, "-o", "jobid,totalcpu,maxrss"]);
    for row in rows.lines().take(2) {
        let cells: Vec<&str> = row.split('|').collect();
        let seconds: f64 = cells[1].rsplit(':').next().unwrap().parse().unwrap();
        let megabytes: u64 = cells[2].trim_end_matches('M').parse().unwrap();
        // 0.3 s of its own, and what it took to begin.
        assert!((0.3..60.0).contains(&seconds) && cells[1].contains('.') && megabytes >= 40, "{rows}");
    }
    assert!(place.call(n1, &["pando", "info", &id]).contains("until now"));
    let waiting = place.submit(n1, &["-H", "--wrap", "true"]);
    let priority = |id: &str| place.call(n1, &["squeue", "-h", "-j", id, "-o", "%Q"]).trim().parse::<i64>().unwrap();
    assert!(priority(&id) > 0 && priority(&waiting) > 0);
    place.call(n1, &["scancel", &id]);
    let over = until("its end", || place.past(n1, &id));
    assert!(over.outcome.usage.cpu_ms >= 300);
}

#[test]
fn what_was_lost_with_its_node_ended_when_that_was_last_heard() {
    let mut lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    known(&place, &lab.nodes[0], 2);
    let id =
        place.submit(&lab.nodes[0], &["-w", "n2", "--no-requeue", "-o", "pid", "--wrap", "echo $PPID; sleep 1000"]);
    let helper: u32 = until("its helper", || fs::read_to_string(place.dir.join("pid")).ok()?.trim().parse().ok());
    place.running(&lab.nodes[0], &id);
    // As if the machine had lost its power.
    lab.nodes[1].kill();
    lab::signal(helper, "KILL");
    until("it is down", || (lab.nodes[0].node("n2").state == pando_node::views::Liveness::Down).then_some(()));
    lab.nodes[1].start();
    let back = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let past = until("its end", || place.past(&lab.nodes[0], &id));
    assert_eq!((past.outcome.state, &past.outcome.how), (State::NodeFail, &How::NodeLost("n2".into())));
    let o = &past.outcome;
    assert!(o.ended < back && o.ended >= o.run.started, "{} is not before {back}", o.ended);
}

#[test]
fn jobs_that_wait_are_changed_and_steps_are_ended() {
    let lab = Lab::new(
        2,
        &format!("{JOBS}[queue.rules.partitions.batch]\n[queue.rules.partitions.second]\nnodes = [\"n2\"]\n"),
    );
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    known(&place, n1, 2);
    let id = place.submit(n1, &["-H", "--wrap", "true"]);
    let job = format!("JobId={id}");
    let words = ["partition=second", "minmemorynode=20M", "timelimit=7", "jobname=other", "nice=5"];
    place.call(n1, &[&["scontrol", "update", job.as_str()], &words[..]].concat());
    assert_eq!(place.call(n1, &["squeue", "-h", "-j", &id, "-o", "%P %m %l %j %y"]), "second 20M 00:07:00 other 5\n");
    let (code, why) = said(&mut place.called(n1, "scontrol", &["update", &job, "partition=third"]));
    assert!(code == 1 && why.contains("there is no partition third"), "{why}");
    until("it is refused", || {
        let (_, why) = said(&mut place.called(n1, "scontrol", &["update", &job, "numnodes=2"]));
        let refused = why.contains("Requested node configuration is not available");
        place.call(n1, &["scontrol", "update", &job, "numnodes=1"]);
        refused.then_some(())
    });
    place.call(n1, &["scontrol", "release", &id]);
    assert_eq!(said(&mut place.called(n1, "pando", &["wait", &id])).0, 0);
    assert_eq!(place.past(n1, &id).unwrap().outcome.run.shares[0].node, "n2");
    // A step is ended, and its script goes on.
    let script = "srun -o step.%j.%s.%t sh -c 'echo $PANDO_BATCH_STEP; sleep 1000'; echo ended $?";
    let id = place.submit(n1, &["-N", "2", "-o", "out", "--wrap", script]);
    let name = |rank: u32| place.dir.join(format!("step.{id}.0.{rank}"));
    until("both write", || (0..2).all(|rank| fs::read_to_string(name(rank)).is_ok_and(|t| t == "0\n")).then_some(()));
    let (code, why) = said(&mut place.called(n1, "scontrol", &["update", &format!("jobid={id}"), "numnodes=1"]));
    assert!(code == 1 && why.contains("no longer pending"), "{why}");
    until("it is known", || (place.call(n1, &["squeue", "-hs"]).contains(&format!("{id}.0"))).then_some(()));
    assert_eq!(said(&mut place.called(n1, "scancel", &[&format!("{id}.7")])).0, 1);
    place.call(n1, &["scancel", &format!("{id}.0")]);
    assert_eq!(said(&mut place.called(n1, "pando", &["wait", &id])).0, 0);
    assert_eq!(fs::read_to_string(place.dir.join("out")).unwrap().lines().last(), Some("ended 143"));
    let rows = place.call(n1, &["sacct", "-nP", "-S", "now-1hour", "-j", &id, "-o", "jobid,state"]);
    assert!(rows.contains(&format!("{id}.0|CANCELLED\n")), "{rows}");
    assert_eq!(place.call(n1, &["sacct", "-nPX", "-S", "now+1hour", "-j", &id, "-o", "jobid"]), "");
}

/// A step of three ranks, of which one uses more than the others and ends badly.
fn every_rank_is_accounted_for(place: &Place, node: &Daemon, before: &str) {
    let script = "srun -n 3 -O --kill-on-bad-exit=0 --multi-prog uneven";
    let busy = "import time\nx=bytearray(50<<20)\nwhile time.process_time()<0.3: pass\nexit(3)";
    fs::write(place.dir.join("busy.py"), busy).unwrap();
    fs::write(place.dir.join("uneven"), "0,2 true\n1 python3 busy.py\n").unwrap();
    let id =
        place.submit(node, &["-d", &format!("afterany:{before}"), "-N", "2", "-o", "uneven.out", "--wrap", script]);
    said(&mut place.called(node, "pando", &["wait", &id]));
    let text = place.call(node, &["pando", "info", &id, "--ranks", "--json"]);
    let all: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let of = |key: &str| all.iter().map(|row| row[key].as_u64().unwrap_or(u64::MAX)).collect::<Vec<_>>();
    assert_eq!(of("rank"), [0, 1, 2], "{text}");
    assert!(of("cpu_ms")[1] >= 300 && of("memory_kb")[1] >= 50 << 10 && of("cpu_ms")[0] < 300, "{text}");
    assert_eq!(all.iter().map(|row| row["how"]["Exit"].as_i64().unwrap()).collect::<Vec<_>>(), [0, 3, 0]);
    let columns = "jobid,maxrsstask,maxrssnode,mincputask,averss,mincpu,avecpu";
    let rows = place.call(node, &["sacct", "-nP", "-j", &id, "-o", columns]);
    let row: Vec<&str> = rows.lines().last().unwrap().split('|').collect();
    assert_eq!((row[0], row[1]), (format!("{id}.0").as_str(), "1"), "{rows}");
    assert_eq!(row[2], all[1]["node"].as_str().unwrap());
    assert!(row[3] != "1" && row[4].ends_with('K') && !row[5].is_empty() && !row[6].is_empty(), "{rows}");
}

#[test]
fn steps_of_several_programs_and_on_later_nodes() {
    let lab = Lab::new(2, JOBS);
    let place = Place::new(&lab);
    let n1 = &lab.nodes[0];
    known(&place, n1, 2);
    fs::write(place.dir.join("several"), "0 echo head %t $HOME\n* sh -c 'echo worker %t:%o at $PANDO_NODE'\n").unwrap();
    let script = "srun -n 3 -O --multi-prog several | sort; srun -r 1 -N 1 -n 1 sh -c 'echo $PANDO_NODE'; srun -r 2 -n 1 true; echo $?";
    let id = place.submit(n1, &["-N", "2", "-o", "out", "--wrap", script]);
    assert_eq!(said(&mut place.called(n1, "pando", &["wait", &id])).0, 0);
    let text = fs::read_to_string(place.dir.join("out")).unwrap();
    every_rank_is_accounted_for(&place, n1, &id);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "head 0 $HOME", "{text}");
    assert!(lines[1].starts_with("worker 1:0 at n") && lines[2].starts_with("worker 2:1 at n"), "{text}");
    assert_eq!(lines[3], "n2", "{text}");
    assert!(text.contains("--relative 2") && text.ends_with("125\n"), "{text}");
    // Columns from the environment.
    let held = place.submit(n1, &["-H", "-J", "called", "--wrap", "true"]);
    let with = |name: &str, variable: &str, value: &str| ok(place.called(n1, name, &["-h"]).env(variable, value));
    assert_eq!(with("squeue", "SQUEUE_FORMAT", "%i=%j"), format!("{held}=called\n"));
    assert_eq!(with("squeue", "SQUEUE_FORMAT2", "jobid:4,name:6"), format!("{held:<4}called\n"));
    assert_eq!(with("sinfo", "SINFO_FORMAT", "%R:%D"), "batch:2\n");
}

/// Who is down has what it had, before it counts as lost and after that.
#[test]
fn a_node_that_is_down_keeps_its_cpus_and_memory_in_sinfo() {
    let mut lab = Lab::new(2, "[jobs]\nroot = true\n[queue]\nlost_after_ms = 3000\n");
    let place = Place::new(&lab);
    known(&place, &lab.nodes[0], 2);
    let name = lab.nodes[1].name.clone();
    let shown = |lab: &Lab| place.call(&lab.nodes[0], &["sinfo", "-h", "-N", "-n", &name, "-o", "%T %c %m"]);
    let before = shown(&lab);
    let has = before.trim().strip_prefix("idle ").unwrap_or_else(|| panic!("{before}")).to_owned();
    lab.nodes[1].kill();
    until("it is down", || shown(&lab).starts_with("down").then_some(()));
    assert_eq!(shown(&lab).trim(), format!("down {has}"));
    until("it is lost", || {
        let all: Cluster = serde_json::from_str(&place.call(&lab.nodes[0], &["sinfo", "--json"])).unwrap();
        all.absent.iter().any(|node| node.name == name).then_some(())
    });
    assert_eq!(shown(&lab).trim(), format!("down {has}"));
    until("members have forgotten what it had", || {
        let all: Vec<Node> = lab.nodes[0].client().get("/v1/nodes").unwrap();
        all.iter().any(|node| node.name == name && node.cpus == 0.0).then_some(())
    });
    assert_eq!(shown(&lab).trim(), format!("down {has}"));
}
