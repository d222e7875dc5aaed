//! Who gets a place among gangs, and what else a node with gangs has: the line, levels, and one picture of load.

mod lab;

use lab::gangs::{Running, gang, groups, missing, status, together, until};
use lab::{Daemon, Lab, ok};
use pando_node::views::{GangJob, GangStatus, Node, Process};
use std::fs;
use std::process::Stdio;

/// One CPU for gangs at each node, and turns so long that a busy machine can be looked at within one.
const ONE: &str =
    "[jobs]\nroot = true\n[gang]\nquantum_ms = 400.0\ncpus = [0]\n[load]\ncpus = 1.0\n[gang.rules]\nrows = 1\n";
const SPIN: [&str; 3] = ["sh", "-c", "while :; do :; done"];

fn names(all: &[GangJob]) -> Vec<&str> {
    all.iter().map(|gang| gang.name.as_str()).collect()
}

/// One that waits, and says so.
fn waits(node: &Daemon, name: &str, words: &[&str], seen_by: &Daemon) -> Running {
    let words = [&["-J", name], words, &SPIN].concat();
    let gang = gang(node, &words);
    until("it waits", || names(&status(seen_by).waiting).contains(&name));
    gang
}

#[test]
fn whoever_asked_first_gets_the_first_place() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED whoever_asked_first_gets_the_first_place: {why}");
    }
    let mut lab = Lab::new(3, ONE);
    together(&lab);
    let manager = status(&lab.nodes[0]).manager;
    let at = lab.nodes.iter().position(|n| n.name == manager).unwrap();
    let others: Vec<usize> = (0..3).filter(|i| *i != at).collect();
    let (n1, n2) = (&lab.nodes[others[0]], &lab.nodes[others[1]]);
    let both = format!("{},{}", n1.name, n2.name);
    let (wide, narrow) = (["--nodelist", &both, "-n", "2"], ["--nodelist", &n2.name, "-n", "1"]);
    let first = gang(n1, &[&["-J", "first"], &wide[..], &SPIN].concat());
    until("it has its place", || names(&status(n1).gangs) == ["first"]);
    // The second one needs both nodes, those after it only one of them: they could have it sooner than it.
    let second = waits(n2, "second", &wide, n1);
    let third = waits(n1, "third", &narrow, n1);
    let gives_up = waits(n1, "gives-up", &narrow, n1);
    let fifth = waits(n2, "fifth", &narrow, n1);
    let now = status(n1);
    assert_eq!(names(&now.waiting), ["second", "third", "gives-up", "fifth"]);
    assert!(now.waiting.iter().all(|g| g.standing == "waits" && g.user == "root" && g.job > 0), "{now:?}");
    let shown = ok(&mut n1.cli(&["gang"]));
    assert!(shown.starts_with("1 gang; 4 wait; nobody takes turns"), "{shown}");
    drop(gives_up);
    until("it is not in the line any more", || names(&status(n1).waiting) == ["second", "third", "fifth"]);
    // Another node orders: it learns who has what, and who was first.
    lab.nodes[at].kill();
    let (n1, n2) = (&lab.nodes[others[0]], &lab.nodes[others[1]]);
    let told = |node: &Daemon| node.cli(&["gang", "--json"]).output().ok().filter(|o| o.status.success());
    let now = || told(n1).and_then(|o| serde_json::from_slice::<GangStatus>(&o.stdout).ok());
    let is =
        |s: &GangStatus, gangs: &[&str], waiting: &[&str]| names(&s.gangs) == gangs && names(&s.waiting) == waiting;
    until("the new one knows the line", || {
        now().is_some_and(|s| s.manager != manager && is(&s, &["first"], &["second", "third", "fifth"]))
    });
    drop(first);
    until("the second one has its place", || now().is_some_and(|s| is(&s, &["second"], &["third", "fifth"])));
    until("and runs", || groups(n1).len() == 1 && groups(n2).len() == 1);
    drop(second);
    until("the third one has its place", || now().is_some_and(|s| is(&s, &["third"], &["fifth"])));
    drop(third);
    until("the last one, too", || now().is_some_and(|s| is(&s, &["fifth"], &[])));
    drop(fifth);
    until("nobody is left", || now().is_some_and(|s| is(&s, &[], &[])));
}

#[test]
fn gangs_of_a_higher_level_run_first_and_qualities_say_whose_they_are() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED gangs_of_a_higher_level_run_first_and_qualities_say_whose_they_are: {why}");
    }
    let qualities = "[queue.rules.qualities.urgent]\nlevel = 2\nusers = [\"root\"]\n\
                     [queue.rules.qualities.theirs]\nlevel = 3\nusers = [\"ann\"]\n[queue]\nturns = 2\n";
    let lab = Lab::new(2, &format!("{ONE}{qualities}"));
    together(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let low = gang(n1, &[&["-J", "low", "-n", "2"], &SPIN[..]].concat());
    let running = |node: &Daemon| groups(node).values().filter(|runs| **runs).count();
    until("it runs", || groups(n2).len() == 1 && running(n1) + running(n2) == 2);
    // The matrix has one row, and still there is room: levels lie on top of each other.
    let words = ["-J", "high", "--qos", "urgent", "-n", "1", "--nodelist", "n2"];
    let high = gang(n2, &[&words[..], &SPIN].concat());
    let standing = |name: &str| {
        let found = status(n1).gangs.into_iter().find(|gang| gang.name == name);
        found.map(|gang| (gang.level, gang.standing))
    };
    until("it has its place", || standing("high") == Some((2, "runs".into())));
    assert_eq!(standing("low"), Some((0, "outranked".into())));
    until("the lower one stands still, all of it", || groups(n2).len() == 2 && running(n1) == 0 && running(n2) == 1);
    let shown = ok(&mut n1.cli(&["gang"]));
    assert!(shown.lines().any(|l| l.contains("high") && l.contains("runs   ")), "{shown}");
    let said = |words: &[&str]| {
        let no = n2.cli(words).output().unwrap();
        assert!(!no.status.success());
        String::from_utf8_lossy(&no.stderr).into_owned()
    };
    let no = said(&["run", "--gang", "--qos", "theirs", "-n", "1", "true"]);
    assert!(no.contains("root may not use quality of service theirs"), "{no}");
    assert!(
        said(&["run", "--gang", "--qos", "none", "-n", "1", "true"]).contains("there is no quality of service none")
    );
    drop(high);
    until("the lower one goes on", || running(n1) + running(n2) == 2);
    // A step has the level of its batch job.
    let path =
        format!("{}:/usr/bin:/bin", std::path::Path::new(env!("CARGO_BIN_EXE_pando")).parent().unwrap().display());
    let spin = format!("pando run -J step -n 1 {}", "sh -c 'until [ -e go ]; do :; done'");
    let mut submit = n1.cli(&["submit", "--parsable", "--qos", "urgent", "-n", "1", "-o", "out", "--wrap", &spin]);
    let id = ok(submit.current_dir(&lab.dir).env("PATH", path));
    until("the step has its place", || standing("step") == Some((2, "runs".into())));
    fs::write(lab.dir.join("go"), "").unwrap();
    ok(&mut n1.cli(&["wait", id.trim()]));
    drop(low);
}

#[test]
fn guests_go_where_no_gang_has_the_cpus() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED guests_go_where_no_gang_has_the_cpus: {why}");
    }
    let lab = Lab::new(
        2,
        &format!("{ONE}[balance]\nevery_ms = 200\nmin_cpu_ms = 50\nresidency_ms = 500\nno_return_ms = 800\n"),
    );
    together(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    // It ends with the lab: nobody who is killed himself ends it.
    let spin = "while [ -d $PANDO_STATE ]; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done";
    let roams = n1.cli(&["run", "--", "sh", "-c", spin]);
    let _roams = Running({ roams }.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let place = || {
        let all: Vec<Process> = n1.client().get("/v1/processes").unwrap_or_default();
        all.iter().find(|p| p.role == "home").map(|p| p.place.clone())
    };
    until("it runs", || place().is_some());
    let held = |by: &Daemon, of: &str| {
        let nodes: Vec<Node> = by.client().get("/v1/nodes").unwrap();
        nodes.into_iter().find(|n| n.name == of).map(|n| n.held)
    };
    for (gangs, free) in [(n1, n2), (n2, n1)] {
        let name = gangs.name.as_str();
        let sleeps = gang(gangs, &["--nodelist", name, "-n", "1", "sleep", "1000"]);
        until("all know that its CPU is not free", || [n1, n2].iter().all(|n| held(n, name) == Some(1.0)));
        assert_eq!(held(n1, &free.name), Some(0.0));
        // It waits all the time, and still no CPU of its is free.
        until("the other program is where no gang is", || place().as_deref() == Some(free.name.as_str()));
        let shown = ok(&mut n1.cli(&["nodes"]));
        let line = shown.lines().find(|l| l.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(line[5], "1", "{shown}");
        let why = ok(&mut n1.cli(&["explain", "--node", name]));
        assert!(why.starts_with(&format!("node {name} has 1 CPU held by 1 gang: ")), "{why}");
        drop(sleeps);
        until("it is free again", || [n1, n2].iter().all(|n| held(n, name) == Some(0.0)));
    }
}

/// A partition's gangs have turns of their own length, those of others the usual one, at the same time.
#[test]
fn a_partition_has_turns_of_its_own_length() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED a_partition_has_turns_of_its_own_length: {why}");
    }
    let rules = "[queue]\nturns = 2\n[queue.rules.partitions]\nbatch = {}\nquick = { quantum_ms = 100 }\n";
    let one = ONE.replace("quantum_ms = 400.0", "quantum_ms = 1000.0").replace("rows = 1", "rows = 2");
    let lab = Lab::new(2, &format!("{one}{rules}"));
    together(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let path =
        format!("{}:/usr/bin:/bin", std::path::Path::new(env!("CARGO_BIN_EXE_pando")).parent().unwrap().display());
    let spin = "pando run -J quick -n 1 sh -c 'until [ -e go ]; do :; done'";
    let jobs: Vec<String> = (0..2)
        .map(|_| {
            let words = ["submit", "--parsable", "-p", "quick", "-w", &n1.name, "-n", "1", "-o", "out", "--wrap", spin];
            ok(n1.cli(&words).current_dir(&lab.dir).env("PATH", &path)).trim().to_owned()
        })
        .collect();
    let slow: Vec<Running> =
        (0..2).map(|_| gang(n2, &[&["-J", "slow", "--nodelist", &n2.name, "-n", "1"], &SPIN[..]].concat())).collect();
    let turns = |name: &str| {
        let all = status(n1).gangs.into_iter().filter(|gang| gang.name == name);
        all.map(|gang| gang.turn_us).collect::<Vec<_>>()
    };
    until("all have their places", || (turns("quick"), turns("slow")) == (vec![100_000; 2], vec![1_000_000; 2]));
    let shown = ok(&mut n1.cli(&["gang"]));
    assert!(shown.contains(" 100 ms ") && shown.contains(" 1000 ms "), "{shown}");
    until("two take turns at each", || [n1, n2].iter().all(|n| groups(n).len() == 2));
    // How often another one has had the CPU at each node, looked at in the same moments.
    let (mut switches, mut last) = ([0, 0], [groups(n1), groups(n2)]);
    until("the slow ones have had some turns", || {
        for (at, now) in [groups(n1), groups(n2)].into_iter().enumerate() {
            // Within a switch both may seem to run.
            if now.values().filter(|runs| **runs).count() == 1 && now != last[at] {
                switches[at] += 1;
                last[at] = now;
            }
        }
        switches[1] >= 4
    });
    assert!(switches[0] > 2 * switches[1], "{switches:?}");
    fs::write(lab.dir.join("go"), "").unwrap();
    jobs.iter().for_each(|id| drop(ok(&mut n1.cli(&["wait", id]))));
    drop(slow);
}
