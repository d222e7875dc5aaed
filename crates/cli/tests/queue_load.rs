//! The queue under a load that a cluster sees on its worst day: thousands of submissions at once, clients and daemons that are killed in the middle of
//! them, and a disk that is full.

mod lab;

use lab::{Daemon, Lab, is_root, ok, until};
use pando_node::queue::ask::Line;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const JOBS: &str = "[jobs]\nroot = true\n";
/// Submissions, and who makes them at the same time.
const ALL: usize = 10_000;
const CLIENTS: usize = 20;

fn submission(name: &str) -> Value {
    json!({ "Submit": {
        "name": name, "work": { "Words": ["true"] }, "directory": "/", "environment": [], "files": { "output": "/dev/null" }, "hold": true
    } })
}

/// What is said to a daemon; `wait`: for the answer. None: there is none.
fn ask(socket: &Path, question: &Value, wait: bool) -> Option<Result<Value, String>> {
    let text = question.to_string();
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let head = "POST /v1/queue HTTP/1.1\r\nHost: pando\r\nConnection: close\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()?;
    if !wait {
        return None;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    // An answer that was cut off is none.
    let body: Value = serde_json::from_str(body).ok()?;
    Some(if head.starts_with("HTTP/1.1 200") { Ok(body) } else { Err(body["error"].as_str()?.to_owned()) })
}

fn list(node: &Daemon) -> Vec<Line> {
    serde_json::from_str(&ok(&mut node.cli(&["queue", "--all", "--json"]))).unwrap()
}

/// A client's part: names that were acknowledged, with their numbers. After an answer that did not come it goes on with another job, as
/// nobody knows what became of that one; each 50th time it does not wait for an answer.
fn client(socket: &Path, number: usize, acknowledged: &AtomicUsize) -> Vec<(String, u64)> {
    let mut mine = Vec::new();
    let mut tried = 0;
    while acknowledged.fetch_add(1, Ordering::Relaxed) < ALL {
        loop {
            tried += 1;
            let name = format!("c{number}-{tried}");
            match ask(socket, &submission(&name), tried % 50 != 0) {
                Some(Ok(id)) => {
                    mine.push((name, id.as_u64().unwrap()));
                    break;
                }
                Some(Err(why)) => panic!("it is refused: {why}"),
                // The daemon is not there, or this client did not wait.
                None => std::thread::yield_now(),
            }
        }
    }
    mine
}

#[test]
fn ten_thousand_submissions_and_what_was_acknowledged_is_there_once() {
    let mut lab = Lab::new(1, JOBS);
    let socket = lab.nodes[0].socket.clone();
    let acknowledged = AtomicUsize::new(0);
    let mut all: Vec<(String, u64)> = Vec::new();
    std::thread::scope(|scope| {
        let (socket, acknowledged) = (&socket, &acknowledged);
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(socket, number, acknowledged))).collect();
        // In the middle of them, twice.
        for part in [3, 2] {
            until("some to be taken", || (acknowledged.load(Ordering::Relaxed) > ALL / part).then_some(()));
            lab.nodes[0].kill();
            lab.nodes[0].start();
        }
        clients.into_iter().for_each(|client| all.extend(client.join().unwrap()));
    });
    lab.nodes[0].kill();
    lab.nodes[0].start();
    assert_eq!(all.len(), ALL);
    let mut there: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    list(&lab.nodes[0]).into_iter().for_each(|line| there.entry(line.name).or_default().push(line.job));
    for (name, id) in &all {
        assert_eq!(there.get(name), Some(&vec![*id]), "{name}");
    }
    let twice = there.iter().find(|(_, ids)| ids.len() > 1);
    assert_eq!(twice, None, "what nobody was told of is there once or not");
}

#[test]
fn a_full_disk_refuses_jobs_and_loses_none() {
    if !is_root("a disk that is full") {
        return;
    }
    let mut lab = Lab::new(1, JOBS);
    let node = &mut lab.nodes[0];
    node.kill();
    let state = node.state.display().to_string();
    node.before = Some(format!(
        "cp -a {state} {state}.old && mount -t tmpfs -o size=6m none {state} && cp -a {state}.old/. {state}/"
    ));
    node.start();
    let inside = Path::new("/proc").join(node.pid().to_string()).join("root").join(state.trim_start_matches('/'));
    let submit = |name: &str| ask(&node.socket, &submission(name), true).expect("an answer");
    let mut taken: Vec<u64> = (0..20).map(|i| submit(&format!("before{i}")).unwrap().as_u64().unwrap()).collect();
    let filler = inside.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
    // What the journal still has room for is taken, and then no more is.
    let mut refused = None;
    for i in 0..5000 {
        match submit(&format!("full{i}")) {
            Ok(id) => taken.push(id.as_u64().unwrap()),
            Err(why) => refused = Some(why),
        }
        if refused.is_some() {
            break;
        }
        while file.write_all(&[7; 512]).is_ok() {}
    }
    let why = refused.expect("a full disk takes no more");
    assert!(why.contains("nothing was changed") && why.contains("full"), "{why}");
    fs::remove_file(&filler).unwrap();
    drop(file);
    taken.push(submit("after").expect("there is room again").as_u64().unwrap());
    let there = list(node);
    let mut ids: Vec<u64> = there.iter().map(|line| line.job).collect();
    ids.sort_unstable();
    assert_eq!(ids, taken);
}
