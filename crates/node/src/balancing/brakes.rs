//! Those that stand still while this node is nearly out of memory (pando_balance::brake): programs of this node by a thread of ours
//! that traces them, guests by their helpers.

use super::facts::Key;
use crate::daemon::Node;
use crate::engine::Engine;
use crate::views::Event;
use pando_balance::{Process, Taker, Vector, brake};
use pando_kernel::procfs;
use pando_migrate::brake::Brake;
use pando_migrate::control::Command;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A guest's helper is told anew at every look; should this daemon end, the guest goes on after this time, milliseconds.
const GUEST_MS: u64 = 2_000;
/// For so long it is remembered who stood still.
const REMEMBERED: Duration = Duration::from_secs(60);

/// One that stands still.
struct Held {
    since: Instant,
    /// Bytes that it took in a second.
    takes: u64,
    /// None for a guest, whose helper holds it.
    brake: Option<Brake>,
}

/// All of them.
#[derive(Default)]
pub struct Brakes {
    held: BTreeMap<Key, Held>,
    rested: BTreeMap<Key, Instant>,
}

impl Brakes {
    /// Somebody stands still.
    pub fn are_on(&self) -> bool {
        !self.held.is_empty()
    }

    /// For so long it has stood still.
    pub fn holds(&self, key: &Key) -> Option<Duration> {
        self.held.get(key).map(|h| h.since.elapsed())
    }

    /// It goes on, if it stood still: nobody of us traces it when what this returns has been dropped, which can take a moment.
    #[must_use]
    pub fn let_go(&mut self, key: &Key, engine: &Engine) -> Option<Brake> {
        let held = self.held.remove(key)?;
        self.rested.insert(key.clone(), Instant::now());
        if held.brake.is_none() {
            still(engine, key, 0);
        }
        held.brake
    }

    fn put_on(&mut self, key: &Key, takes: u64, me: &str, engine: &Engine) -> bool {
        let brake = match key.0 == me {
            true => {
                let begun = procfs::start_time(key.1 as i32).ok();
                let Some(brake) = begun.and_then(|begun| Brake::put_on(key.1, begun).ok()) else { return false };
                Some(brake)
            }
            false if still(engine, key, GUEST_MS) => None,
            false => return false,
        };
        self.held.insert(key.clone(), Held { since: Instant::now(), takes, brake });
        true
    }

    /// Those whose brake has come off by itself, and those that are not here any more.
    fn prune(&mut self, processes: &[Process]) -> Vec<Held> {
        let here = |key: &Key| processes.iter().any(|p| (&p.home, p.pid) == (&key.0, key.1));
        let ended = |(key, held): (&Key, &Held)| {
            (!here(key) || held.brake.as_ref().is_some_and(|b| !b.is_on())).then(|| key.clone())
        };
        let off: Vec<Key> = self.held.iter().filter_map(ended).collect();
        self.rested.extend(off.iter().map(|key| (key.clone(), Instant::now())));
        self.rested.retain(|_, when| when.elapsed() < REMEMBERED);
        off.iter().filter_map(|key| self.held.remove(key)).collect()
    }

    fn taker(&self, p: &Process) -> Taker {
        let key = (p.home.clone(), p.pid);
        let held = self.held.get(&key);
        let ms = |d: Duration| d.as_millis() as u64;
        Taker {
            takes: held.map_or(p.takes, |h| h.takes),
            still_ms: held.map(|h| ms(h.since.elapsed())),
            rested_ms: self.rested.get(&key).map(|when| ms(when.elapsed())),
        }
    }
}

/// A guest's helper is told; false if there is none.
fn still(engine: &Engine, key: &Key, ms: u64) -> bool {
    engine.guest(key).is_some_and(|orders| orders.try_send(Command::StandStill { ms }).is_ok())
}

/// Holds those that are to stand still and lets the others go on. `processes`: all that run here. `helped`: memory is on its way back.
pub fn work(node: &Node, here: &Vector, processes: &[Process], helped: bool) {
    let mut brakes = node.balancing.brakes();
    if !helped && !brakes.are_on() {
        return;
    }
    // To take brakes off can take a moment: that is done when others may look again.
    let (gone, mut let_go) = (brakes.prune(processes), Vec::new());
    let takers: Vec<Taker> = processes.iter().map(|p| brakes.taker(p)).collect();
    let chosen = brake(here, &takers, helped, &node.config.balance);
    let me = node.name();
    for (i, p) in processes.iter().enumerate() {
        let key = (p.home.clone(), p.pid);
        if !chosen.contains(&i) {
            let_go.extend(brakes.let_go(&key, &node.engine));
            continue;
        }
        if brakes.held.get(&key).is_some_and(|h| h.brake.is_none()) {
            still(&node.engine, &key, GUEST_MS);
        }
        // One that is on its way stands still soon enough. Whoever begins to move it lets it go after it has said so, which waits for this.
        let moves = node.balancing.goes_to(&key.0, key.1).is_some() || key.0 == me && node.engine.is_moving(key.1);
        if !brakes.held.contains_key(&key) && !moves && brakes.put_on(&key, takers[i].takes, &me, &node.engine) {
            say(node, &key, here, takers[i].takes);
        }
    }
    drop(brakes);
    drop((gone, let_go));
}

fn say(node: &Node, key: &Key, here: &Vector, takes: u64) {
    let (pid, home, mb) = (key.1, &key.0, |bytes: u64| bytes >> 20);
    let reason = format!(
        "node {} has {} MB left, it takes {} MB a second, and some is on its way back",
        node.name(),
        mb(here.free),
        mb(takes)
    );
    let text = format!("process {pid} of {home} stands still for a moment: {reason}");
    let uid = node.table().get(key).map(|k| k.view.uid);
    let (home, from) = (Some(home.clone()), Some(node.name()));
    node.events.say(Event { uid, pid: Some(pid), home, from, reason: Some(reason), ..Event::new("still", text) });
}

/// For tests (`[test] still`): all that Pando knows of here stand still again and again, whatever memory there is.
pub async fn exercise(node: std::sync::Arc<Node>) {
    const PERIOD: Duration = Duration::from_millis(17);
    let me = node.name();
    loop {
        tokio::time::sleep(PERIOD).await;
        let is_here = |k: &&crate::processes::Known| match k.view.role.as_str() {
            "guest" => k.view.phase == "away",
            _ => k.view.phase == "home" && k.view.place == me,
        };
        let all: Vec<Key> = node.table().all().filter(is_here).map(|k| (k.view.home.clone(), k.view.pid)).collect();
        tokio::task::block_in_place(|| {
            let mut brakes = node.balancing.brakes();
            let held: Vec<Key> = brakes.held.keys().cloned().collect();
            let let_go: Vec<Brake> = held.iter().filter_map(|key| brakes.let_go(key, &node.engine)).collect();
            for key in all.iter().filter(|key| !held.contains(key)) {
                let moves = key.0 == me && node.engine.is_moving(key.1);
                if !moves {
                    brakes.put_on(key, 0, &me, &node.engine);
                }
            }
            drop(brakes);
            drop(let_go);
        });
    }
}
