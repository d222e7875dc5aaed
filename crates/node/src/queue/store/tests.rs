//! The journal means the same in a file and in etcd. Against a real etcd, of the test's own.

use super::super::journal::{Journal, Search};
use super::super::tell::To;
use super::super::tenure::ends;
use super::*;
use crate::config::EtcdStore;
use pando_queue::{Change, How, Id, Outcome, Run, Spec, State, Usage, Work};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tokio::runtime::Runtime;

const LONG: Duration = Duration::from_secs(600);

/// etcd on loopback; it goes with this.
struct Server {
    child: Child,
    url: String,
    dir: PathBuf,
}

impl Server {
    fn start(name: &str) -> Option<Server> {
        let dir = std::env::temp_dir().join(format!("pando-etcd-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (url, peer) = (format!("http://127.0.0.1:{}", port()), format!("http://127.0.0.1:{}", port()));
        let mut command = Command::new("etcd");
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        command.arg("--data-dir").arg(&dir).arg("--unsafe-no-fsync").stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Server { child, url, dir }),
            Err(e) => {
                eprintln!("SKIPPED: {name}: etcd can't be started ({e}): apt-get install etcd-server");
                None
            }
        }
    }

    fn place(&self, runtime: &Runtime) -> Arc<Place> {
        let config = EtcdStore { endpoints: vec![self.url.clone()], ..EtcdStore::default() };
        let place =
            Place { etcd: Arc::new(Etcd::new(&config).unwrap()), prefix: "/p/c".into(), state: self.dir.clone() };
        let begun = Instant::now();
        while runtime.block_on(place.bounds()).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Arc::new(place)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// As an election leaves it: the leader's key is made anew.
fn elected(place: &Place, runtime: &Runtime) -> Tenure {
    let key = place.leader();
    let none = Value::Array(Vec::new());
    let end = [&key[..], &[0]].concat();
    runtime
        .block_on(place.etcd.txn(none.clone(), Value::from(vec![delete(&key, &end)]), none.clone(), PATIENCE))
        .unwrap();
    let made = Value::from(vec![put(&key, b"n1")]);
    let txn = runtime.block_on(place.etcd.txn(Value::from(vec![made_at(&key, 0)]), made, none, PATIENCE)).unwrap();
    assert!(txn.succeeded);
    Tenure::new(txn.header.revision as u64, key, ends(Instant::now(), LONG))
}

fn submitted(id: u64, script: usize) -> Record {
    let work = Work::Script { text: vec![b'x'; script].into(), arguments: Vec::new() };
    Record {
        at: 1000 + id,
        change: Change::Submitted(id, Box::new(Spec { user: "ann".into(), work, ..Spec::default() })),
    }
}

fn old(job: u64) -> Old {
    let run = Run { began: Some(1000), ..Run::new(0, 1000, Vec::new()) };
    let (how, usage, directory, files) = (How::Exit(0), Usage::default(), "/".into(), Default::default());
    let (id, state, ended, asked) = (Id::of(job), State::Completed, 2000 + job, Default::default());
    let outcome = Outcome { id, state, how, usage, run, ended, directory, files, asked };
    Old { name: "j".into(), user: "ann".into(), account: "ann".into(), outcome }
}

fn notice(job: u64) -> Notice {
    let [name, user, event, state] = ["j", "ann", "END", "COMPLETED"].map(str::to_owned);
    Notice { to: To::Mail("a@b".into()), job: Id::of(job), name, user, event, state, at: 5 }
}

/// What is said and heard, by a journal that `again` opens anew in between.
fn means(mut journal: Journal, again: impl Fn(Journal) -> Journal) -> Vec<String> {
    let mut heard = Vec::new();
    let look = |journal: &Journal, heard: &mut Vec<String>| {
        let past = journal.history(&Search { most: 100, ..Search::default() }).unwrap();
        let told: Vec<Notice> = journal.notices(0).unwrap().into_iter().map(|(_, notice)| notice).collect();
        heard.push(format!("{:?} {past:?} {told:?}", journal.records().unwrap()));
    };
    look(&journal, &mut heard);
    journal.write(&[submitted(1, 10), submitted(2, 10)], &[], &[notice(1)]).unwrap();
    journal.write(&[submitted(3, 10)], &[old(1), old(2)], &[notice(2), notice(3)]).unwrap();
    look(&journal, &mut heard);
    let (number, _) = journal.notices(0).unwrap()[1];
    journal.strike(number).unwrap();
    journal = again(journal);
    look(&journal, &mut heard);
    // Twice is once.
    journal.write(&[submitted(4, 10)], &[old(2), old(4)], &[]).unwrap();
    journal.shorten(&[submitted(9, 10)]).unwrap();
    look(&journal, &mut heard);
    journal.write(&[submitted(10, 10)], &[], &[notice(10)]).unwrap();
    let newest = journal.notices(0).unwrap().last().unwrap().0;
    assert!(newest > number && journal.notices(newest).unwrap().is_empty());
    journal = again(journal);
    look(&journal, &mut heard);
    heard
}

#[test]
fn a_file_and_etcd_mean_the_same() {
    let runtime = Runtime::new().unwrap();
    let Some(server) = Server::start("same") else { return };
    let place = server.place(&runtime);
    let open = || Store::open(place.clone(), elected(&place, &runtime), runtime.handle().clone()).unwrap();
    let shared = means(Journal::Shared(Box::new(open())), |_| Journal::Shared(Box::new(open())));
    let file = server.dir.join("file.db");
    let disk = || Journal::Disk(Sqlite::open(&file).unwrap());
    assert_eq!(
        shared,
        means(disk(), |journal| {
            drop(journal);
            disk()
        })
    );
}

#[test]
fn who_was_overtaken_writes_nothing() {
    let runtime = Runtime::new().unwrap();
    let Some(server) = Server::start("overtaken") else { return };
    let place = server.place(&runtime);
    let open = || Store::open(place.clone(), elected(&place, &runtime), runtime.handle().clone()).unwrap();
    let mut first = open();
    first.write(&[submitted(1, 10)], &[], &[notice(1)]).unwrap();
    let (number, _) = first.notices(0)[0];
    let mut second = open();
    assert_eq!(second.records().unwrap(), [submitted(1, 10)]);
    // It stood still, and does not know: its own clock says that it may.
    assert!(first.tenure().holds());
    assert!(matches!(first.write(&[submitted(2, 10)], &[], &[]), Err(Broken::Lost(_))));
    assert!(matches!(first.shorten(&[]), Err(Broken::Lost(_))));
    first.strike(number).unwrap();
    second.write(&[submitted(3, 10)], &[], &[]).unwrap();
    let third = open();
    assert_eq!(third.records().unwrap(), [submitted(1, 10), submitted(3, 10)]);
    assert_eq!(third.notices(0).len(), 1, "what is struck by one who was overtaken is told again");
}

#[test]
fn what_is_larger_than_a_transaction_is_there_as_a_whole_or_not_at_all() {
    let runtime = Runtime::new().unwrap();
    let Some(server) = Server::start("large") else { return };
    let place = server.place(&runtime);
    let open = || Store::open(place.clone(), elected(&place, &runtime), runtime.handle().clone()).unwrap();
    let mut store = open();
    let large: Vec<Record> = (1..=5).map(|id| submitted(id, 2 << 20)).collect();
    store.write(&large, &[], &[]).unwrap();
    // One who dies before the last transaction has written some pieces of the next batch.
    let pieces = store.cut(&format!("r/{:016x}", store.bounds.last + 1), &vec![b'['; 200_000]);
    store.send(&Value::from(pieces.into_iter().map(|(put, _)| put).collect::<Vec<_>>()), &store.bounds).unwrap();
    let mut next = open();
    assert!(next.records().unwrap() == large);
    next.write(&[submitted(6, 10)], &[], &[]).unwrap();
    assert_eq!(open().records().unwrap().len(), 6);
    // Many small ones in one go: more operations than a transaction takes.
    let all: Vec<Notice> = (0..1000).map(notice).collect();
    next = open();
    next.write(&[submitted(7, 10)], &[], &all).unwrap();
    assert_eq!(open().notices(0).len(), 1000);
}

#[test]
fn the_history_in_etcd_has_bounds_and_all_of_it_is_at_each_node_that_looks() {
    let runtime = Runtime::new().unwrap();
    let Some(server) = Server::start("history") else { return };
    let place = server.place(&runtime);
    let mut store = Store::open(place.clone(), elected(&place, &runtime), runtime.handle().clone()).unwrap();
    let other = server.dir.join("other");
    std::fs::create_dir(&other).unwrap();
    let follower = Place { etcd: place.etcd.clone(), prefix: place.prefix.clone(), state: other };
    let rows = 1000;
    for batch in 0..(MOST_PAST + SOME_MORE) / rows + 5 {
        let ended: Vec<Old> = (0..rows).map(|i| old(batch * rows + i)).collect();
        store.write(&[submitted(batch + 1, 10)], &ended, &[]).unwrap();
        if batch % 7 == 0 {
            runtime.block_on(async { follower.copy().await }).unwrap();
        }
    }
    let bounds = runtime.block_on(async { follower.copy().await }).unwrap().unwrap();
    let prefix = place.key("h/");
    let names = runtime.block_on(place.etcd.names(&prefix, &end_of(&prefix), PATIENCE)).unwrap();
    let first: Vec<u64> = names
        .kvs
        .iter()
        .filter(|p| place.numbers("h", &p.key)[2] == 0)
        .map(|p| place.numbers("h", &p.key)[1])
        .collect();
    let left: u64 = first.iter().sum();
    assert!((MOST_PAST - rows..=MOST_PAST + SOME_MORE).contains(&left), "{left}");
    let all = Search { most: u32::MAX, ..Search::default() };
    let there = Sqlite::open(&follower.copy_file(&bounds)).unwrap().history(&all).unwrap();
    assert_eq!(
        (there.len() as u64, &there),
        ((MOST_PAST + SOME_MORE) + 5 * rows, &store.past().history(&all).unwrap())
    );
}
