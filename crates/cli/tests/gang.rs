//! Gangs on real daemons: all ranks of a job run by turns at once, on all nodes; a place is given back by whoever ends, and kept whoever orders.

mod lab;

use lab::gangs::{gang, groups, lists, members, missing, status, together, turn, until};
use lab::{Lab, ok};
use pando_node::views::{FabricStatus, GangStatus};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Turns so long that a busy machine can be looked at within one.
const TURNS: &str = "[jobs]\nroot = true\n[gang]\nquantum_ms = 400.0\ncpus = [0]\n[gang.rules]\nrows = 2\n\
                     [load]\ncpus = 1.0\n[queue]\nturns = 2\n";

#[test]
fn all_ranks_of_a_gang_have_their_turns_together() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED all_ranks_of_a_gang_have_their_turns_together: {why}");
    }
    let lab = Lab::new(2, TURNS);
    together(&lab);
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let spin = ["-n", "2", "sh", "-c", "while :; do :; done"];
    let mut jobs = vec![gang(n1, &spin)];
    until("the first has its place", || status(n1).gangs.len() == 1);
    assert_eq!(status(n2).rows, 1, "alone it needs no turns");
    until("both ranks run", || groups(n1).len() == 1 && groups(n2).len() == 1);
    assert!(groups(n1).values().chain(groups(n2).values()).all(|runs| *runs), "nobody else is there");
    jobs.push(gang(n2, &spin));
    until("both take turns", || status(n1).rows == 2 && groups(n1).len() == 2 && groups(n2).len() == 2);
    // From the next beat on.
    until("the first turn", || [n1, n2].iter().all(|n| groups(n).values().filter(|runs| **runs).count() == 1));
    // All of one gang, and never both: in many looks each has had its turn, and both nodes agree. (A daemon that the machine lets wait may be
    // a beat behind, but not for long.)
    let (mut seen, mut looks, mut apart) = (BTreeSet::new(), 0, 0);
    until("many turns", || {
        if let Some(all) = turn(&[n1, n2]) {
            if all.len() > 1 {
                apart += 1;
                return false;
            }
            let now: Vec<String> = all.into_iter().flatten().filter(|(_, runs)| *runs).map(|(n, _)| n).collect();
            assert!(now.len() <= 1, "one gang at a time: {now:?}");
            seen.extend(now);
            looks += 1;
        }
        looks > 50 && seen.len() == 2
    });
    assert!(apart < looks / 2, "the nodes were in different rows in {apart} looks, in the same in {looks}");
    // Whoever is no gang runs besides.
    assert_eq!(ok(&mut n1.cli(&["run", "-n", "1", "echo", "here"])), "here\n");
    // No room for a rank of two CPUs on nodes that have one.
    let no = n1.cli(&["run", "--gang", "-n", "2", "-c", "2", "true"]).output().unwrap();
    assert!(!no.status.success() && String::from_utf8_lossy(&no.stderr).contains("CPU"), "{no:?}");
    // Nor in a third row, of two: it waits, and begins when there is room.
    let mut third = n2.cli(&["run", "--gang", "-n", "2", "echo", "there"]);
    let mut third = third.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(third.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("waiting: "));
    assert_eq!(status(n1).gangs.len(), 2);
    // The end of one, whose command is killed with -9.
    jobs.remove(0);
    let third = third.wait_with_output().unwrap();
    assert_eq!((third.status.code(), String::from_utf8_lossy(&third.stdout)), (Some(0), "there\nthere\n".into()));
    until("one is left", || status(n2).gangs.len() == 1 && groups(n1).len() == 1 && groups(n2).len() == 1);
    until("it runs all the time", || groups(n1).values().chain(groups(n2).values()).all(|runs| *runs));
    // As if it had been begun just when the others were put back.
    let (list, aside) = lists(n1);
    let rank = fs::read_to_string(&list).unwrap().lines().next().unwrap().to_owned();
    fs::write(&aside, &rank).unwrap();
    until("it is not left aside", || fs::read_to_string(&list).is_ok_and(|all| all.lines().any(|pid| pid == rank)));
    jobs.clear();
    until("nobody is left", || status(n1).gangs.is_empty() && groups(n1).is_empty() && groups(n2).is_empty());
    let fabric = || serde_json::from_str::<FabricStatus>(&ok(&mut n1.cli(&["fabric", "--json"]))).unwrap();
    until("the strobe is as it was", || fabric().strobe.period_us == 1_000_000);
}

#[test]
fn a_gang_keeps_its_place_when_another_node_orders() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED a_gang_keeps_its_place_when_another_node_orders: {why}");
    }
    let mut lab = Lab::new(3, TURNS);
    together(&lab);
    let manager = status(&lab.nodes[0]).manager;
    let at = lab.nodes.iter().position(|n| n.name == manager).unwrap();
    let others: Vec<usize> = (0..3).filter(|i| *i != at).collect();
    let names: Vec<String> = others.iter().map(|i| lab.nodes[*i].name.clone()).collect();
    let head = &lab.nodes[others[0]];
    let list = names.join(",");
    let spin = ["--nodelist", list.as_str(), "-n", "2", "sh", "-c", "while :; do :; done"];
    let first = gang(head, &spin);
    until("it has its place", || status(head).gangs.len() == 1);
    let before = status(head);
    lab.nodes[at].kill();
    let head = &lab.nodes[others[0]];
    let told = || Command::output(&mut head.cli(&["gang", "--json"])).ok().filter(|o| o.status.success());
    let now = || told().and_then(|o| serde_json::from_slice::<GangStatus>(&o.stdout).ok());
    until("another one orders and knows it", || now().is_some_and(|s| s.manager != manager && s.gangs.len() == 1));
    assert_eq!(status(head).gangs[0].nodes, before.gangs[0].nodes);
    let second = gang(&lab.nodes[others[1]], &spin);
    until("the next one takes turns with it", || now().is_some_and(|s| s.rows == 2 && s.gangs.len() == 2));
    drop((first, second));
    until("nobody is left", || now().is_some_and(|s| s.gangs.is_empty()));
    let fabric = || serde_json::from_str::<FabricStatus>(&ok(&mut head.cli(&["fabric", "--json"]))).unwrap();
    until("the strobe is as it was", || fabric().strobe.period_us == 1_000_000);
}

#[test]
fn whose_head_was_away_for_a_moment_keeps_its_place() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED whose_head_was_away_for_a_moment_keeps_its_place: {why}");
    }
    let lab = Lab::new(3, TURNS);
    together(&lab);
    let manager = status(&lab.nodes[0]).manager;
    let orders = lab.nodes.iter().find(|n| n.name == manager).unwrap();
    let head = lab.nodes.iter().find(|n| n.name != manager).unwrap();
    let _gang = gang(head, &["--nodelist", &head.name, "-n", "1", "sh", "-c", "while :; do :; done"]);
    until("it has its place", || status(orders).gangs.len() == 1 && groups(head).len() == 1);
    let before = status(orders).gangs;
    lab::signal(head.pid(), "STOP");
    until("it is taken for lost", || status(orders).gangs.is_empty());
    lab::signal(head.pid(), "CONT");
    until("it is known again", || status(orders).gangs == before);
    assert!(groups(head).values().all(|runs| *runs));
}

#[test]
fn batch_jobs_that_share_cpus_take_turns() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED batch_jobs_that_share_cpus_take_turns: {why}");
    }
    let lab = Lab::new(2, TURNS);
    together(&lab);
    let (n1, dir) = (&lab.nodes[0], lab.dir.join("batch"));
    fs::create_dir(&dir).unwrap();
    // Each takes both nodes, and waits in its step until both were seen there.
    let script = "#!/bin/sh\n#SBATCH -N 2 -n 2\npando run -n 2 sh -c \
                  \"until [ -e both ]; do :; done; echo rank \\$PANDO_RANK\"\n";
    fs::write(dir.join("job.sh"), script).unwrap();
    let path = PathBuf::from(env!("CARGO_BIN_EXE_pando"));
    let path = format!("{}:/usr/bin:/bin", path.parent().unwrap().display());
    let pando = |words: &[&str]| {
        let mut command = n1.cli(words);
        command.current_dir(&dir).env("PATH", &path);
        command
    };
    let ids = ["1", "2"].map(|n| ok(&mut pando(&["submit", "--parsable", "job.sh", n])).trim().to_owned());
    until("their steps take turns", || status(n1).gangs.len() == 2);
    let all_in = |node| groups(node).len() == 2 && groups(node).keys().all(|number| members(node, number) > 0);
    until("their ranks are switched", || lab.nodes.iter().all(all_in));
    fs::write(dir.join("both"), "").unwrap();
    for id in ids {
        ok(&mut pando(&["wait", &id]));
        let said = fs::read_to_string(dir.join(format!("slurm-{id}.out")));
        let said = said.or_else(|_| fs::read_to_string(dir.join(format!("pando-{id}.out")))).unwrap();
        assert_eq!(said.lines().collect::<BTreeSet<_>>(), BTreeSet::from(["rank 0", "rank 1"]), "{said}");
    }
    assert!(status(n1).gangs.is_empty());
    // What does not fit into the matrix runs as it would elsewhere: nobody has said --gang.
    let wide = ["submit", "--parsable", "-n", "1", "-o", "wide", "--wrap", "pando run --overcommit -n 4 echo here"];
    let id = ok(&mut pando(&wide));
    ok(&mut pando(&["wait", id.trim()]));
    assert_eq!(fs::read_to_string(dir.join("wide")).unwrap(), "here\n".repeat(4));
}
