//! What a site's administrator expects of batch jobs: nothing is left of them, they have what they were given and no more, and he is told.

mod lab;

use lab::batch::{cli, submit};
use lab::{Daemon, Lab, ok, until};
use pando_kernel::job_group::JobGroup;
use pando_kernel::procfs;
use pando_node::queue::ask::Past;
use pando_node::queue::usage::Row;
use pando_queue::State;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

const JOBS: &str = "[jobs]\nroot = true\n";

/// Its status.
fn wait(node: &Daemon, dir: &Path, id: &str) -> i32 {
    cli(node, dir, &["wait", id]).output().unwrap().status.code().unwrap_or(-1)
}

fn past(node: &Daemon, dir: &Path, id: &str) -> Past {
    let all: Vec<Past> = serde_json::from_str(&ok(&mut cli(node, dir, &["history", "--json"]))).unwrap();
    all.into_iter().rev().find(|p| p.outcome.id.to_string() == id).unwrap()
}

/// A directory of its own for a test's jobs.
fn place(lab: &Lab, name: &str) -> PathBuf {
    let dir = lab.nodes[0].state.parent().unwrap().join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Does this machine let us make control groups that count memory?
fn has_groups(what: &str) -> bool {
    let name = format!("pando-try-{}", std::process::id());
    let group = JobGroup::make(&name, Some(1 << 30));
    let has = group.holds_memory();
    let _ = group.remove();
    if !has {
        eprintln!("SKIPPED: {what}: no control group can be made here");
    }
    has
}

/// Processes whose program and words are these.
fn called(words: &str) -> Vec<i32> {
    procfs::processes().into_iter().filter(|pid| procfs::command(*pid) == words).collect()
}

#[test]
fn what_hides_from_its_job_ends_with_it() {
    if !has_groups("what hides from its job") {
        return;
    }
    let mut lab = Lab::new(1, JOBS);
    let dir = place(&lab, "hiding");
    let number = std::process::id();
    // In a session of its own, with an empty environment, and nobody's child.
    let hides =
        |seconds: u32| format!("setsid env -i sh -c 'sleep {seconds}.{number} & exit' </dev/null >/dev/null 2>&1");
    let id = submit(&lab.nodes[0], &dir, &["-o", "out", "--wrap", &format!("{}; sleep 0.1; echo over", hides(7001))]);
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    assert!(called(&format!("sleep 7001.{number}")).is_empty(), "the job's end is told when nothing is left of it");
    // The helper is killed, with or without a daemon.
    let hidden = format!("sleep 7002.{number}");
    for with_daemon in [true, false] {
        let job = format!("[ $SLURM_RESTART_COUNT = 0 ] || exit 3; {}; echo begun >begun; sleep 1000", hides(7002));
        let id = submit(&lab.nodes[0], &dir, &["-o", "out", "--wrap", &job]);
        until("it hides", || (dir.join("begun").exists() && called(&hidden).len() == 1).then_some(()));
        fs::remove_file(dir.join("begun")).unwrap();
        let helper = procfs::processes().into_iter().find(|pid| {
            procfs::name(*pid) == "pando-batch"
                && procfs::children(*pid).iter().any(|c| {
                    procfs::variable(*c, "PANDO_BATCH").is_some_and(|run| run == format!("n1/{id}/0"))
                        && procfs::variable(*c, "PANDO_SOCKET").is_some_and(|s| Path::new(&s) == lab.nodes[0].socket)
                })
        });
        if !with_daemon {
            lab.nodes[0].kill();
        }
        lab::signal(helper.unwrap() as u32, "KILL");
        if !with_daemon {
            lab.nodes[0].start();
        }
        // With the daemon it went down as with the whole machine: it runs again.
        assert_eq!(wait(&lab.nodes[0], &dir, &id), if with_daemon { 137 } else { 3 });
        assert!(called(&hidden).is_empty(), "daemon: {with_daemon}");
    }
}

#[test]
fn memory_is_what_was_asked_for_and_told_with_what_files_take() {
    if !has_groups("limits of memory") {
        return;
    }
    let lab = Lab::new(1, JOBS);
    let dir = place(&lab, "memory");
    let n1 = &lab.nodes[0];
    // A process of the job that is ended for want of memory ends the job, whatever the script makes of it.
    let takes = "head -c 200M /dev/zero | tail -c 190M | wc -c; echo went on; sleep 1000";
    let id = submit(n1, &dir, &["--mem=64M", "-o", "much", "--wrap", takes]);
    assert_eq!(wait(n1, &dir, &id), 137);
    let told = fs::read_to_string(dir.join("much")).unwrap();
    assert!(told.contains("--mem"), "{told}");
    assert_eq!(past(n1, &dir, &id).outcome.state, State::OutOfMemory);
    // What lies in a memory file system is the job's, too; and time is counted of whom nobody waited for.
    let file = format!("/dev/shm/pando-site-{}", std::process::id());
    let work = "setsid sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo >done' & wait; sleep 0.1";
    let job = format!("head -c 48M /dev/zero >{file}; rm {file}; {work}");
    let id = submit(n1, &dir, &["--mem=256M", "-o", "shm", "--wrap", &job]);
    assert_eq!(wait(n1, &dir, &id), 0, "{}", fs::read_to_string(dir.join("shm")).unwrap());
    let usage = past(n1, &dir, &id).outcome.usage;
    assert!((48..=256).contains(&usage.memory_mb), "{usage:?}");
    assert!(usage.cpu_ms > 0, "{usage:?}");
}

#[test]
fn jobs_and_their_steps_run_on_their_own_cpus() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        eprintln!("SKIPPED: CPUs of their own: there is one");
        return;
    }
    let mut lab = Lab::new(1, JOBS);
    let dir = place(&lab, "cpus");
    let pando = lab.nodes[0].cli(&[]).get_program().to_string_lossy().into_owned();
    let show = |name: &str| {
        let list = "sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status";
        format!(
            "{list} >{name}; {pando} run -n1 {list} >{name}.step; echo >{name}.there; while [ ! -e {name}.go ]; do sleep 0.05; done"
        )
    };
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap().trim().to_owned();
    let start = |lab: &Lab, name: &str| {
        let id = submit(&lab.nodes[0], &dir, &["-n1", "-c1", "-o", &format!("{name}.out"), "--wrap", &show(name)]);
        until(name, || dir.join(format!("{name}.there")).exists().then_some(()));
        id
    };
    let first = start(&lab, "first");
    // A daemon that begins anew knows whose CPUs they are.
    lab.nodes[0].kill();
    lab.nodes[0].start();
    let second = start(&lab, "second");
    for name in ["first", "second"] {
        assert!(read(name).parse::<u32>().is_ok(), "one CPU: {}", read(name));
        assert_eq!(read(name), read(&format!("{name}.step")));
        fs::write(dir.join(format!("{name}.go")), "").unwrap();
    }
    assert_ne!(read("first"), read("second"));
    for id in [first, second] {
        assert_eq!(wait(&lab.nodes[0], &dir, &id), 0);
    }
    // They are given back.
    let all = submit(&lab.nodes[0], &dir, &["--exclusive", "-o", "all", "--wrap", "nproc"]);
    assert_eq!(wait(&lab.nodes[0], &dir, &all), 0);
    assert_eq!(read("all"), cpus.to_string());
}

#[test]
fn what_a_node_has_is_given_to_who_asks_for_it() {
    let lab = Lab::new(1, &format!("{JOBS}[node]\nfeatures = [\"ib\"]\n[node.resources]\ngpu = 2\n"));
    let dir = place(&lab, "has");
    let n1 = &lab.nodes[0];
    let job = "echo $PANDO_RESOURCES $CUDA_VISIBLE_DEVICES >$OUT; while [ ! -e $OUT.go ]; do sleep 0.05; done";
    let start = |out: &str, words: &[&str]| {
        let job = format!("OUT={out}; {job}");
        let id = submit(n1, &dir, &[words, &["-o", "log", "--wrap", &job]].concat());
        until(out, || fs::read_to_string(dir.join(out)).ok().filter(|text| text.ends_with('\n')));
        id
    };
    let first = start("first", &["--gres=gpu:1", "-C", "ib"]);
    let second = start("second", &["--gres=gpu:1", "-n1"]);
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap().trim().to_owned();
    assert_eq!((read("first"), read("second")), ("gpu=0 0".into(), "gpu=1 1".into()));
    fs::write(dir.join("first.go"), "").unwrap();
    assert_eq!(wait(n1, &dir, &first), 0);
    // Its GPU is free again; who has none sees none.
    let third = start("third", &["--gres=gpu:1"]);
    assert_eq!(read("third"), "gpu=0 0");
    fs::write(dir.join("second.go"), "").unwrap();
    let said = lab::fails(&mut cli(n1, &dir, &["submit", "-C", "roce", "--wrap", "true"]));
    assert!(said.contains("not available"), "what no node has is refused: {said}");
    let none = start("none", &[]);
    assert_eq!(read("none"), "");
    for out in ["third", "none"] {
        fs::write(dir.join(format!("{out}.go")), "").unwrap();
    }
    for id in [second, third, none] {
        assert_eq!(wait(n1, &dir, &id), 0);
    }
}

#[test]
fn batch_jobs_keep_off_cpus_that_parallel_jobs_use() {
    let lab = Lab::new(2, JOBS);
    lab.settled();
    let dir = place(&lab, "outside");
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let cpus = std::thread::available_parallelism().unwrap().get().to_string();
    let there = submit(n1, &dir, &["-w", "n2", "--exclusive", "-o", "log", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &there), 0);
    let mut outside = cli(n2, &dir, &["run", "-n", &cpus, "-w", "n2", "sleep", "1000"]).spawn().unwrap();
    let busy = |wanted: u32| {
        let ask = pando_node::queue::ask::Ask::Nodes;
        let all: Vec<pando_queue::Node> = n2.client().post("/v1/queue", &ask).unwrap();
        all.into_iter().any(|n| n.name == "n2" && n.busy == wanted).then_some(())
    };
    until("the queue knows", || busy(cpus.parse().unwrap()));
    let id = submit(n1, &dir, &["-o", "where", "-n1", "-x", "n1", "--wrap", "true"]);
    let elsewhere = submit(n1, &dir, &["-o", "log", "-n1", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &elsewhere), 0);
    assert!(!dir.join("where").exists(), "it waits for the CPUs of n2");
    lab::signal(outside.id(), "INT");
    outside.wait().unwrap();
    until("they are free again", || busy(0));
    assert_eq!(wait(n1, &dir, &id), 0);
}

/// One request that a listener gets: its headers and its body. It is answered with this status.
fn hear(listener: &TcpListener, status: &str) -> (String, serde_json::Value) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).unwrap();
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        let whole = text.split_once("\r\n\r\n").filter(|(head, body)| {
            let length =
                head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            length.is_some_and(|length: usize| body.len() >= length)
        });
        if let Some((head, body)) = whole {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            return (head.to_owned(), serde_json::from_str(body).unwrap());
        }
        assert!(read > 0, "{text}");
    }
}

#[test]
fn users_are_told_by_mail_and_by_webhook_until_they_were() {
    let base = std::env::temp_dir().join(format!("pando-mail-{}", std::process::id()));
    fs::create_dir_all(&base).unwrap();
    let (mailer, letters) = (base.join("sendmail"), base.join("letters"));
    // It fails the first time.
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = '-oi -t' ] || exit 2\ncat >{0}.new\n[ -e {0}.tried ] || {{ touch {0}.tried; exit 75; }}\n\
         cat {0}.new >>{0}\necho END >>{0}\n",
        letters.display()
    );
    fs::write(&mailer, script).unwrap();
    fs::set_permissions(&mailer, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!("{JOBS}[queue]\nwebhooks = true\nmailer = {mailer:?}\n");
    let mut lab = Lab::new(1, &settings);
    let dir = place(&lab, "told");
    let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
    let mail = ["--mail-type=BEGIN,FAIL", "--mail-user=ann@example.org", "-J", "Größe"];
    let job = "while [ ! -e go ]; do sleep 0.05; done; exit 3";
    let id = submit(&lab.nodes[0], &dir, &[&mail[..], &["-o", "log", "--wrap", job]].concat());
    let told = |count: usize| {
        let text = fs::read_to_string(&letters).ok();
        text.filter(|text| text.lines().filter(|l| *l == "END").count() == count)
    };
    until("one letter", || told(1));
    fs::write(dir.join("go"), "").unwrap();
    assert_eq!(wait(&lab.nodes[0], &dir, &id), 3);
    let all = until("both letters", || told(2));
    assert!(all.contains("To: ann@example.org\n") && all.contains(&format!("Pando job {id} ")), "{all}");
    assert!(all.contains("BEGIN, RUNNING") && all.contains("FAIL, FAILED"), "{all}");
    // A webhook that is not well, and a daemon that is killed before it was told again: it is told by the next one, with the same identity.
    let id = submit(&lab.nodes[0], &dir, &["--webhook", &url, "-o", "log", "--wrap", "true"]);
    let (head, first) = hear(&listener, "503 Busy");
    assert!(head.starts_with("POST /hook?a=b HTTP/1.1"), "{head}");
    assert_eq!((first["job"].as_str(), first["event"].as_str()), (Some(id.as_str()), Some("END")));
    lab.nodes[0].kill();
    lab.nodes[0].start();
    let (_, again) = hear(&listener, "204 Told");
    assert_eq!(first, again);
    // Nothing is left to tell.
    let id = submit(&lab.nodes[0], &dir, &["--webhook", &url, "-o", "log", "--wrap", "exit 1"]);
    let (_, next) = hear(&listener, "200 OK");
    assert_eq!((next["job"].as_str(), next["state"].as_str()), (Some(id.as_str()), Some("FAILED")));
    assert_ne!(next["id"], first["id"]);
    let refused = cli(&lab.nodes[0], &dir, &["submit", "--webhook", "ftp://h/", "--wrap", "true"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("http://"));
    fs::remove_dir_all(&base).unwrap();
}

#[test]
fn where_nobody_is_told_that_is_said_and_operators_may_be_a_group() {
    // Nobody's group, which is everywhere.
    let groups = fs::read_to_string("/etc/group").unwrap();
    let group = groups.lines().find(|l| l.split(':').nth(2) == Some("65534")).and_then(|l| l.split(':').next());
    let lab = Lab::new(1, &format!("{JOBS}[queue]\noperators = [\"@{}\"]\n", group.unwrap_or("nobody")));
    let dir = place(&lab, "untold");
    let n1 = &lab.nodes[0];
    let output = cli(n1, &dir, &["submit", "--mail-type=ALL", "-H", "--wrap", "true"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("sends no mail"));
    let output = cli(n1, &dir, &["submit", "--webhook=http://127.0.0.1/", "--wrap", "true"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("[queue] webhooks"));
    if group.is_none() || !lab::is_root("an operator by his group") {
        return;
    }
    let mine = submit(n1, &dir, &["-H", "--wrap", "true"]);
    let theirs = n1.cli(&["cancel", &mine]);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(theirs.get_program())
        .args(theirs.get_args());
    theirs.get_envs().for_each(|(n, v)| _ = v.map(|v| command.env(n, v)));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Permission denied")
        || said.contains("no node runs")
        || said.is_empty() && output.status.code().is_none()
    {
        eprintln!("SKIPPED: an operator by his group: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(n1.audit().contains("an operator"));
}

fn program(file: &Path, text: &str) -> String {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    file.display().to_string()
}

#[test]
fn prolog_and_epilog_are_run_and_a_node_that_fails_there_takes_no_more() {
    let base = std::env::temp_dir().join(format!("pando-hooks-{}", std::process::id()));
    fs::create_dir_all(&base).unwrap();
    let log = base.join("log").display().to_string();
    let text = format!(
        "#!/bin/sh\n[ -z \"$SECRET\" ] || exit 9\necho prolog $SLURM_JOB_ID $PANDO_USER >>{log}\n\
         [ $PANDO_NODE != \"$(cat {0}/bad)\" ]\n",
        base.display()
    );
    let prolog = program(&base.join("prolog"), &text);
    let epilog =
        program(&base.join("epilog"), &format!("#!/bin/sh\necho epilog $SLURM_JOB_ID $PANDO_STATUS >>{log}\n"));
    fs::write(base.join("bad"), "").unwrap();
    let hooks = format!("prolog = {prolog:?}\nepilog = {epilog:?}\n");
    let lab = Lab::new(2, &format!("{JOBS}[queue]\n{hooks}[queue.rules]\nagain_ms = 100\n"));
    lab.settled();
    let dir = place(&lab, "hooks");
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let read = || fs::read_to_string(&log).unwrap();
    let user = pando_node::sys::user_name(pando_node::sys::effective_uid());
    let mut command = cli(n1, &dir, &["submit", "--parsable", "-w", "n2", "-o", "out", "--wrap", "exit 4"]);
    let id = ok(command.env("SECRET", "x")).trim().to_owned();
    assert_eq!(wait(n1, &dir, &id), 4);
    assert_eq!(read(), format!("prolog {id} {user}\nepilog {id} 4\n"));
    // n2 is not well: the job runs at n1, and nothing more at n2.
    fs::write(base.join("bad"), "n2").unwrap();
    fs::remove_file(&log).unwrap();
    let first = submit(n1, &dir, &["-n1", "-x", "n1", "-o", "never", "--wrap", "true"]);
    until("n2 is drained", || (n1.node("n2").standing == "drained").then_some(()));
    assert!(n2.audit().contains("the prolog") && n2.audit().contains("status 1"), "{}", n2.audit());
    assert!(!dir.join("never").exists() && !read().contains("epilog"));
    until("why", || ok(&mut cli(n1, &dir, &["info", &first])).contains("the prolog").then_some(()));
    let next = submit(n1, &dir, &["-n1", "-o", "where", "--wrap", "echo $PANDO_NODE"]);
    assert_eq!(wait(n1, &dir, &next), 0);
    assert_eq!(fs::read_to_string(dir.join("where")).unwrap().trim(), "n1");
    fs::remove_dir_all(&base).unwrap();
}

#[test]
fn what_was_used_is_added_up() {
    let lab = Lab::new(1, JOBS);
    let dir = place(&lab, "used");
    let n1 = &lab.nodes[0];
    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit $STATUS";
    for status in ["0", "1"] {
        let mut command = cli(n1, &dir, &["submit", "--parsable", "-J", "counts", "-o", "log", "--wrap", work]);
        let id = ok(command.env("STATUS", status)).trim().to_owned();
        assert_eq!(wait(n1, &dir, &id).to_string(), status);
    }
    let all: Vec<Row> = serde_json::from_str(&ok(&mut cli(n1, &dir, &["usage", "--json"]))).unwrap();
    // At midnight they are two.
    let sum = |of: fn(&Row) -> u64| all.iter().map(of).sum::<u64>();
    assert!(all.iter().all(|row| row.name == "counts"), "{all:?}");
    assert_eq!((sum(|r| r.sum.tasks), sum(|r| r.sum.failed)), (2, 1));
    assert!(sum(|r| r.sum.cpu_ms) > 0 && sum(|r| r.sum.wall_ms) > 0, "{all:?}");
    let shown = ok(&mut cli(n1, &dir, &["usage"]));
    assert!(shown.contains("counts") && shown.contains("CPUTIME") && shown.contains("ENERGY"), "{shown}");
    assert!(!ok(&mut cli(n1, &dir, &["usage", "--user", "nobody-of-that-name"])).contains("counts"));
}

#[test]
fn nodes_are_reserved_and_maintained_by_who_may() {
    let lab = Lab::new(1, JOBS);
    let (n1, dir) = (&lab.nodes[0], place(&lab, "reserved"));
    let call = |words: &[&str]| ok(&mut cli(n1, &dir, words));
    // A job that would still run when it begins waits until it is over; a short one does not.
    call(&["reserve", "update", "--nodes", "n1", "--start", "now+1hour", "--duration", "30"]);
    assert!(call(&["reserve"]).contains("nobody (maintenance)"));
    let long = submit(n1, &dir, &["-t", "2:00:00", "-o", "out", "--wrap", "true"]);
    let short = submit(n1, &dir, &["-t", "10", "-o", "out", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &short), 0);
    let why = call(&["explain", "-j", &long]);
    assert!(why.contains("reservation") && why.contains("starts"), "{why}");
    let shown = call(&["__scontrol", "show", "reservation", "update"]);
    assert!(shown.contains("Nodes=n1") && shown.contains("Duration=00:30:00") && shown.contains("MAINT"), "{shown}");
    call(&["__scontrol", "delete", "ReservationName=update"]);
    assert_eq!(wait(n1, &dir, &long), 0);
    // One that is for somebody: his jobs name it.
    let made = ["__scontrol", "create", "reservation", "StartTime=now", "Duration=60", "Nodes=ALL", "Users=root"];
    assert_eq!(call(&made), "Reservation created: resv_1\n");
    let other = submit(n1, &dir, &["-t", "10", "-o", "out", "--wrap", "true"]);
    let mine = submit(n1, &dir, &["--reservation=resv_1", "-t", "10", "-o", "out", "--wrap", "true"]);
    assert_eq!(wait(n1, &dir, &mine), 0);
    assert!(call(&["queue"]).contains(&other));
    let no = |words: &[&str]| {
        let said = cli(n1, &dir, words).output().unwrap();
        assert!(!said.status.success(), "{words:?}");
        String::from_utf8(said.stderr).unwrap()
    };
    assert!(no(&["submit", "--reservation=none", "--wrap", "true"]).contains("no reservation none"));
    assert!(no(&["reserve", "x", "--nodes", "n7", "--duration", "5"]).contains("no node n7"));
    assert!(no(&["reserve", "x", "--nodes", "n1"]).contains("--duration"));
    assert!(no(&["reserve", "x", "--remove"]).contains("no reservation x"));
    assert!(no(&made.map(|w| if w == "Users=root" { "Colour=red" } else { w })).contains("colour"));
    call(&["__scontrol", "update", "reservationname=resv_1", "duration=90"]);
    assert!(call(&["__scontrol", "show", "res"]).contains("Duration=01:30:00"));
    call(&["reserve", "resv_1", "--remove"]);
    assert_eq!(wait(n1, &dir, &other), 0);
}
