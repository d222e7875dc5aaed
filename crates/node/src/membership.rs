//! Who is in the cluster and how they are: the pure core of gossip (crates/gossip) with a clock, a file and this daemon's types.

use crate::config;
use crate::events::{Events, now_ms};
use crate::place::replace_file;
use crate::views::{Event, Liveness, Node};
use crate::writer::Writer;
use pando_balance::Other;
use pando_gossip::{Broken, Effect, Gossip, Identity, News, Said, Settings, State};
use pando_wire::NodeName;
use pando_wire::message::{Load, MAX_LISTED, MAX_MEMBERS, MAX_PACKET, Member, Message, OverLimit, Standing, Told};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Members that are asked to let this node in, when it knows nobody who lives.
const ASKED: usize = 8;
/// And how often.
const ASK_AGAIN_MS: u64 = 1_000;

/// A stamp that has to be renewed within this time was not late enough.
const SOON: Duration = Duration::from_secs(10);

/// A member as gossip sees it: the stamp tells its lives apart.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Member", into = "Member")]
pub struct Peer(pub Member, Option<Renewal>);

/// When this node last took a new stamp because others held to another one, and by how much that was later.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    when: Instant,
    by: u64,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Peer {}

impl TryFrom<Member> for Peer {
    type Error = String;

    fn try_from(member: Member) -> Result<Peer, String> {
        NodeName::parse(&member.name).map_err(|e| e.to_string())?;
        member.check().map_err(|e: OverLimit| e.to_string())?;
        Ok(Peer(member, None))
    }
}

impl From<Peer> for Member {
    fn from(peer: Peer) -> Member {
        peer.0
    }
}

impl Identity for Peer {
    type Addr = String;

    fn renew(&self) -> Option<Self> {
        // That was not enough: others know of a life that began much later (its clock was wrong, or its list of members is an old one), so
        // go up to it in some dozens of steps, not in as many as there are milliseconds between.
        let by = self.1.filter(|r| r.when.elapsed() < SOON).map_or(1, |r| r.by.saturating_mul(2));
        let member = Member { stamp: self.0.stamp.checked_add(by)?, ..self.0.clone() };
        Some(Peer(member, Some(Renewal { when: Instant::now(), by })))
    }

    fn addr(&self) -> String {
        self.0.name.clone()
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        self.0.stamp > other.0.stamp
    }
}

/// A message, and for whom.
pub type Outgoing = (Member, Message);
type Effects = Vec<Effect<Peer, String, Load>>;

struct Inner {
    gossip: Gossip<Peer, Load>,
    /// All that have ever been members, this node among them: those that are down are shown, too.
    known: BTreeMap<String, Member>,
    said: BTreeMap<String, Liveness>,
    load: Load,
    asked_ms: u64,
    seed: u64,
}

/// The cluster as this node knows it.
pub struct Cluster {
    inner: Mutex<Inner>,
    name: String,
    file: PathBuf,
    writer: Arc<Writer>,
    /// An older list must not replace a newer one.
    saving: Mutex<()>,
    begun: Instant,
    /// Something may be due earlier than was thought.
    due: Notify,
}

fn settings(config: &config::Membership) -> Settings {
    Settings {
        probe_ms: config.probe_ms,
        answer_ms: config.answer_ms,
        suspect_ms: config.suspect_ms,
        forget_ms: config.forget_s * 1000,
        tell_ms: config.tell_ms,
        tell_whom: config.tell_whom,
        tell_most: config.tell_most,
        window: config.window,
        oldest_ms: config.oldest_ms,
        members: MAX_MEMBERS,
    }
}

fn read(file: &Path) -> std::io::Result<Vec<Member>> {
    match std::fs::read(file) {
        Ok(bytes) => {
            let damaged = |e| std::io::Error::other(format!("{} is damaged: {e}", file.display()));
            serde_json::from_slice(&bytes).map_err(damaged)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

impl Cluster {
    /// Reads the list in `file`, if there is one, and begins a life that is later than all before.
    pub fn open(
        name: &str,
        addr: String,
        config: &config::Membership,
        file: PathBuf,
        writer: Arc<Writer>,
    ) -> std::io::Result<Self> {
        let list = read(&file)?;
        let mut known: BTreeMap<String, Member> = list.into_iter().map(|m| (m.name.clone(), m)).collect();
        // A clock that was put back must not make this life an earlier one.
        let before = known.get(name).map_or(0, |m| m.stamp);
        let me = Member { name: name.to_owned(), addr, stamp: now_ms().max(before.saturating_add(1)) };
        known.insert(name.to_owned(), me.clone());
        let mut seed = [0; 8];
        pando_wire::token::random(&mut seed);
        let (seed, life) = (u64::from_be_bytes(seed), me.stamp);
        let gossip = Gossip::new(Peer(me, None), life, settings(config), seed, 0);
        let inner = Inner { gossip, known, said: BTreeMap::new(), load: Load::default(), asked_ms: 0, seed };
        let name = name.to_owned();
        let cluster = Cluster {
            inner: Mutex::new(inner),
            name,
            file,
            writer,
            saving: Mutex::new(()),
            begun: Instant::now(),
            due: Notify::new(),
        };
        // On disk before anybody hears of this life: the next one must be later.
        replace_file(&cluster.file, &serde_json::to_vec_pretty(&cluster.members())?)?;
        Ok(cluster)
    }

    /// Never held across an await.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// This node.
    pub fn me(&self) -> Member {
        self.inner().gossip.me().0.clone()
    }

    /// All members that are known.
    pub fn members(&self) -> Vec<Member> {
        self.inner().known.values().cloned().collect()
    }

    /// One of them.
    pub fn member(&self, name: &str) -> Option<Member> {
        self.inner().known.get(name).cloned()
    }

    /// As many of them as one that joins is told of: this node and those that live come first.
    pub fn introduce(&self) -> Vec<Member> {
        let inner = self.inner();
        let (states, me) = (inner.states(), &self.name);
        let rank = |m: &&Member| (m.name != *me, states.get(m.name.as_str()) != Some(&Liveness::Up));
        let mut all: Vec<&Member> = inner.known.values().collect();
        all.sort_by_key(rank);
        all.into_iter().take(MAX_LISTED).cloned().collect()
    }

    /// All nodes with state and load, in natural order.
    pub fn nodes(&self) -> Vec<Node> {
        let (now, inner) = (self.now(), self.inner());
        let states = inner.states();
        let state = |name: &str| states.get(name).copied();
        let mut all: Vec<Node> = inner.known.values().map(|member| self.seen(&inner, now, member, state)).collect();
        all.sort_by_cached_key(|n| natural(&n.name));
        all
    }

    /// One of them.
    pub fn find(&self, name: &str) -> Option<Node> {
        let (now, inner) = (self.now(), self.inner());
        Some(self.seen(&inner, now, inner.known.get(name)?, |name| inner.state(name)))
    }

    fn seen(&self, inner: &Inner, now: u64, member: &Member, state: impl Fn(&str) -> Option<Liveness>) -> Node {
        if member.name == self.name {
            return node(member, &inner.load, Liveness::Up, Some(0), true);
        }
        let entry = inner.gossip.window().get(&member.name);
        let load = entry.map_or(Load::default(), |e| e.load);
        let state = state(&member.name).unwrap_or(Liveness::Down);
        node(member, &load, state, entry.map(|e| e.age_ms(now)), false)
    }

    /// All that are known, and how they are; the names in natural order.
    pub fn liveness(&self) -> Vec<(String, Liveness)> {
        let inner = self.inner();
        let states = inner.states();
        let of = |name: &String| match *name == self.name {
            true => Liveness::Up,
            false => states.get(name.as_str()).copied().unwrap_or(Liveness::Down),
        };
        let mut all: Vec<(String, Liveness)> = inner.known.keys().map(|name| (name.clone(), of(name))).collect();
        all.sort_by_cached_key(|(name, _)| natural(name));
        all
    }

    /// Those that were here and are not.
    pub fn down(&self) -> BTreeSet<String> {
        let inner = self.inner();
        let states = inner.states();
        let down = |name: &&String| matches!(states.get(name.as_str()), None | Some(Liveness::Down));
        inner.known.keys().filter(|name| **name != self.name).filter(down).cloned().collect()
    }

    /// Is it known to be down?
    pub fn is_down(&self, name: &str) -> bool {
        self.inner().state(name) == Some(Liveness::Down)
    }

    /// What is known of live nodes' loads, for those who decide.
    pub fn others(&self) -> Vec<Other> {
        let (now, inner) = (self.now(), self.inner());
        let states = inner.states();
        let up = |name: &String| states.get(name.as_str()) == Some(&Liveness::Up);
        let entries = inner.gossip.window().iter().filter(|(name, _)| up(name));
        entries.map(|(name, e)| Other { name: name.clone(), age_ms: e.age_ms(now), load: vector(&e.load) }).collect()
    }

    /// Takes in one that has joined; it is up as soon as it says so itself.
    pub fn admit(&self, member: Member) {
        {
            let mut inner = self.inner();
            if inner.known.len() >= MAX_MEMBERS && !inner.known.contains_key(&member.name) {
                return;
            }
            inner.note(&member);
        }
        self.save();
    }

    /// Announces this node's load.
    pub fn set_load(&self, load: Load) {
        let mut inner = self.inner();
        inner.load = load;
        inner.gossip.set_load(load);
    }

    /// Waits until something is due.
    pub async fn due(&self) {
        let next = self.inner().gossip.next_ms();
        let pause = Duration::from_millis(next.saturating_sub(self.now()).max(1));
        let _ = tokio::time::timeout(pause, self.due.notified()).await;
    }

    /// Does what is due; what is to be sent comes out.
    pub fn tick(&self) -> Vec<Outgoing> {
        let now = self.now();
        let (effects, more) = {
            let mut inner = self.inner();
            let effects = inner.gossip.tick(now);
            (effects, inner.ask_in(now))
        };
        self.heed(effects.into_iter().chain(more).collect())
    }

    /// Something came from the node with this name.
    pub fn receive(&self, from: &str, message: Message) -> Result<Vec<Outgoing>, Broken> {
        let said = match message {
            Message::Swim(packet) => Said::Swim(packet),
            Message::Loads(all) => Said::Loads(all.into_iter().map(news).collect()),
            _ => return Ok(Vec::new()),
        };
        let effects = self.inner().gossip.receive(self.now(), &from.to_owned(), said)?;
        self.due.notify_one();
        Ok(self.heed(effects))
    }

    /// Says goodbye.
    pub fn leave(&self) -> Vec<Outgoing> {
        let effects = self.inner().gossip.leave(self.now());
        self.heed(effects)
    }

    fn heed(&self, effects: Effects) -> Vec<Outgoing> {
        let mut out = Vec::new();
        let mut changed = false;
        {
            let mut inner = self.inner();
            for effect in effects {
                changed |= match effect {
                    Effect::Send(to, Said::Swim(packet)) if packet.len() <= MAX_PACKET => {
                        out.push((to.0, Message::Swim(packet)));
                        false
                    }
                    Effect::Send(_, Said::Swim(_)) | Effect::Down(_) => false,
                    Effect::Send(to, Said::Loads(all)) => {
                        out.push((to.0, Message::Loads(all.into_iter().map(told).collect())));
                        false
                    }
                    Effect::Up(who) | Effect::Renamed(who) | Effect::Rejoined(who) => inner.note(&who.0),
                };
            }
        }
        if changed {
            self.save();
        }
        out
    }

    fn save(&self) {
        let _alone = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        self.writer.write(&self.file, serde_json::to_vec_pretty(&self.members()).unwrap_or_default());
    }

    /// Says what changed in liveness since the last call.
    pub fn announce(&self, events: &Events) {
        let changes: Vec<(String, Liveness)> = {
            let mut inner = self.inner();
            let states = inner.states();
            let said = &inner.said;
            let changed =
                |(name, state): &(&&str, &Liveness)| said.get(**name).copied().unwrap_or(Liveness::Down) != **state;
            let mut changes: Vec<(String, Liveness)> =
                states.iter().filter(changed).map(|(n, s)| ((*n).to_owned(), *s)).collect();
            let forgotten = said.keys().any(|name| !states.contains_key(name.as_str()));
            if !changes.is_empty() || forgotten {
                let now = states.into_iter().map(|(name, state)| (name.to_owned(), state)).collect();
                inner.said = now;
            }
            changes.sort_by(|(a, _), (b, _)| a.cmp(b));
            changes
        };
        for (name, state) in changes {
            let text = match state {
                Liveness::Up => format!("node {name} is up"),
                Liveness::Suspect => format!("node {name} is suspect: it does not answer"),
                Liveness::Down => format!("node {name} is down"),
            };
            let reason = Some(state.as_str().to_owned());
            events.say(Event { from: Some(name), reason, ..Event::new("node", text) });
        }
    }
}

impl Inner {
    /// Of the others. It is asked for many times a second, so it copies no name.
    fn states(&self) -> HashMap<&str, Liveness> {
        self.gossip.members().map(|(peer, state)| (peer.0.name.as_str(), liveness(state))).collect()
    }

    /// Of one other.
    fn state(&self, name: &str) -> Option<Liveness> {
        self.gossip.members().find(|(peer, _)| peer.0.name == name).map(|(_, state)| liveness(state))
    }

    /// True if that is news.
    fn note(&mut self, member: &Member) -> bool {
        if self.known.get(&member.name).is_some_and(|old| old.stamp >= member.stamp) {
            return false;
        }
        self.known.insert(member.name.clone(), member.clone());
        true
    }

    /// Who knows nobody asks some of those that were there once.
    fn ask_in(&mut self, now: u64) -> Effects {
        if self.gossip.live() > 0 || now < self.asked_ms {
            return Vec::new();
        }
        self.asked_ms = now + ASK_AGAIN_MS;
        let me = self.gossip.me().0.name.clone();
        let others: Vec<Peer> = self.known.values().filter(|m| m.name != me).cloned().map(|m| Peer(m, None)).collect();
        // Others each time.
        let from = if others.is_empty() { 0 } else { self.seed as usize % others.len() };
        self.seed = self.seed.wrapping_add(ASKED as u64);
        let some: Vec<Peer> = others.iter().cycle().skip(from).take(ASKED.min(others.len())).cloned().collect();
        self.gossip.join(now, some)
    }
}

fn liveness(state: State) -> Liveness {
    match state {
        State::Alive => Liveness::Up,
        State::Suspect => Liveness::Suspect,
        State::Down => Liveness::Down,
    }
}

fn news(t: Told) -> News<String, Load> {
    News { who: t.who, life: t.life, number: t.number, age_ms: t.age_ms, load: t.load }
}

fn told(n: News<String, Load>) -> Told {
    Told { who: n.who, life: n.life, number: n.number, age_ms: n.age_ms, load: n.load }
}

/// A load as those see it who decide.
pub fn vector(load: &Load) -> pando_balance::Vector {
    pando_balance::Vector {
        cpus_milli: load.cpus_milli,
        reserved_milli: load.reserved_milli,
        speed: load.speed,
        runnable_milli: load.runnable_milli,
        memory: load.memory,
        free: load.free,
        falling: 0,
        paging: load.paging,
        guests: load.guests,
        standing: match load.standing {
            Standing::Open => pando_balance::Standing::Open,
            Standing::Full => pando_balance::Standing::Full,
            Standing::Owner => pando_balance::Standing::Owner,
            Standing::Drained => pando_balance::Standing::Drained,
        },
    }
}

fn node(member: &Member, load: &Load, state: Liveness, heard_ms: Option<u64>, here: bool) -> Node {
    let standing = match load.standing {
        Standing::Open => "open",
        Standing::Full => "full",
        Standing::Owner => "owner",
        Standing::Drained => "drained",
    };
    Node {
        name: member.name.clone(),
        addr: member.addr.clone(),
        state,
        here,
        heard_ms,
        cpus: f64::from(load.cpus_milli) / 1000.0,
        speed: if load.speed == 0 { 1.0 } else { f64::from(load.speed) / 1000.0 },
        runnable: f64::from(load.runnable_milli) / 1000.0,
        held: f64::from(load.reserved_milli) / 1000.0,
        memory: load.memory,
        free: load.free,
        paging: load.paging,
        guests: load.guests,
        standing: standing.into(),
    }
}

/// n10 after n9.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, stamp: u64) -> Result<Peer, String> {
        Peer::try_from(Member { name: name.into(), addr: "10.0.0.1:7117".into(), stamp })
    }

    #[test]
    fn a_later_life_wins_and_odd_names_are_nobody() {
        let old = peer("n1", 5).unwrap();
        assert!(old.renew().unwrap().win_addr_conflict(&old) && !old.win_addr_conflict(&old));
        assert!(peer("n1", u64::MAX).unwrap().renew().is_none(), "there is no later one");
        assert_eq!(old.renew().unwrap().0.stamp, 6);
        assert!(peer("Bad name", 1).is_err() && peer(&"n".repeat(100), 1).is_err());
    }

    /// Others remember a life of this node that began a year later, by a clock that was wrong.
    #[test]
    fn who_is_taken_for_an_old_life_of_itself_soon_overtakes_that() {
        let year = 365 * 86_400_000;
        let (mut me, future) = (peer("n1", 1_000).unwrap(), peer("n1", 1_000 + year).unwrap());
        let mut steps = 0;
        while !me.win_addr_conflict(&future) {
            me = me.renew().unwrap();
            steps += 1;
        }
        assert!(steps < 50, "{steps}");
        assert!(me.0.stamp < 1_000 + 2 * year, "no further than it must: {}", me.0.stamp);
    }

    #[test]
    fn ten_comes_after_nine() {
        let mut names = ["n10", "n9", "a"];
        names.sort_by_key(|n| natural(n));
        assert_eq!(names, ["a", "n9", "n10"]);
    }

    #[test]
    fn a_life_is_later_than_the_one_before_whatever_the_clock_says() {
        let dir = std::env::temp_dir().join(format!("pando-lives-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("members.json");
        let future = now_ms() + 1_000_000_000;
        let list = [("n1", future), ("n2", 3)].map(|(name, stamp)| peer(name, stamp).unwrap().0);
        std::fs::write(&file, serde_json::to_vec(&list).unwrap()).unwrap();
        let open = || {
            let (config, writer) = (config::Membership::default(), Writer::start().unwrap());
            Cluster::open("n1", "10.0.0.2:1".into(), &config, file.clone(), writer).unwrap()
        };
        assert_eq!(open().me().stamp, future + 1);
        let again = open();
        assert_eq!(again.me().stamp, future + 2);
        let names: Vec<_> = again.nodes().into_iter().map(|n| (n.name, n.state)).collect();
        assert_eq!(names, [("n1".to_owned(), Liveness::Up), ("n2".to_owned(), Liveness::Down)]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
