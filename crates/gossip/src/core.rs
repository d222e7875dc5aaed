//! Both protocols together.

use crate::swim::Swim;
use crate::window::{News, Window};
use foca::{Identity, State};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Times in milliseconds, and sizes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Each so often one member is asked whether it lives.
    pub probe_ms: u64,
    /// It must answer within this time, or others are asked to ask it. Well below `probe_ms`.
    pub answer_ms: u64,
    /// Nobody heard it within `probe_ms`: it is suspect, and after this time (longer in a large cluster) it is down.
    pub suspect_ms: u64,
    /// A member that is down is forgotten after this time.
    pub forget_ms: u64,
    /// Each so often loads are told.
    pub tell_ms: u64,
    /// To so many members.
    pub tell_whom: usize,
    /// So many loads at a time, the own one first.
    pub tell_most: usize,
    /// So many are known at a time.
    pub window: usize,
    /// None that is older than this.
    pub oldest_ms: u64,
    /// Most members that anybody may make this node remember.
    pub members: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            probe_ms: 1_000,
            answer_ms: 300,
            suspect_ms: 4_000,
            forget_ms: 24 * 3_600_000,
            tell_ms: 1_000,
            tell_whom: 2,
            tell_most: 32,
            window: 256,
            oldest_ms: 30_000,
            members: 16_384,
        }
    }
}

/// What one node says to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said<K, V> {
    /// A packet of the membership protocol.
    Swim(Vec<u8>),
    /// Loads: the sender's first.
    Loads(Vec<News<K, V>>),
}

/// What is to be done, or has become known. `T`: a member; `K`: its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<T, K, V> {
    /// Send this. It may get lost.
    Send(T, Said<K, V>),
    /// A member is up.
    Up(T),
    /// A member is down, or has left.
    Down(T),
    /// A member has another identity now (a later life).
    Renamed(T),
    /// Others had taken this node for dead: it goes on under this identity.
    Rejoined(T),
}

/// Why something that came in was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It makes no sense.
    #[error("a membership packet that makes no sense: {0}")]
    Packet(String),
    /// It was sent in the name of another one.
    #[error("a membership packet in another node's name")]
    Name,
    /// There is no room for so many members.
    #[error("more members than the {0} that there may be")]
    TooManyMembers(usize),
    /// Loads that make no sense.
    #[error("loads of more nodes ({0}) than are told at a time")]
    TooManyLoads(usize),
}

/// Membership and loads as one node knows them.
pub struct Gossip<T: Identity, V>
where
    T::Addr: Ord + Clone,
{
    settings: Settings,
    swim: Swim<T>,
    window: Window<T::Addr, V>,
    rng: StdRng,
    own: Option<V>,
    /// See [`News`].
    life: u64,
    number: u64,
    tell_at: u64,
}

impl<T, V> Gossip<T, V>
where
    T: Identity + Serialize + DeserializeOwned,
    T::Addr: Ord + Clone + std::fmt::Debug,
    V: Clone,
{
    /// A node alone. `life` is higher than in any life of it before; the same seed gives the same choices.
    pub fn new(me: T, life: u64, settings: Settings, seed: u64, now_ms: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let swim = Swim::new(me, &settings, StdRng::seed_from_u64(rng.random()));
        // Not all at the same time.
        let tell_at = now_ms + rng.random_range(0..settings.tell_ms.max(1));
        let window = Window::new(settings.window);
        Gossip { settings, swim, window, rng, own: None, life, number: 0, tell_at }
    }

    /// This node, as others know it.
    pub fn me(&self) -> &T {
        self.swim.me()
    }

    /// Asks these to let it in.
    pub fn join(&mut self, now_ms: u64, them: Vec<T>) -> Vec<Effect<T, T::Addr, V>> {
        let mut effects = Vec::new();
        for to in them {
            self.swim.announce(now_ms, to, &mut effects);
        }
        effects
    }

    /// These are members, says a list that was kept or somebody who has let them in.
    pub fn know(&mut self, now_ms: u64, them: Vec<T>) -> Vec<Effect<T, T::Addr, V>> {
        let mut effects = Vec::new();
        self.swim.know(now_ms, them, &mut effects);
        effects
    }

    /// Says goodbye.
    pub fn leave(&mut self, now_ms: u64) -> Vec<Effect<T, T::Addr, V>> {
        let mut effects = Vec::new();
        self.swim.leave(now_ms, &mut effects);
        effects
    }

    /// This node's load from now on.
    pub fn set_load(&mut self, load: V) {
        self.own = Some(load);
        self.number += 1;
    }

    /// When something is due.
    pub fn next_ms(&self) -> u64 {
        self.swim.next().map_or(self.tell_at, |at| at.min(self.tell_at))
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect<T, T::Addr, V>> {
        let mut effects = Vec::new();
        self.swim.tick(now_ms, &mut effects);
        if now_ms >= self.tell_at {
            self.tell_at = now_ms + self.settings.tell_ms.max(1);
            self.tell(now_ms, &mut effects);
        }
        self.mind(&effects);
        effects
    }

    fn tell(&mut self, now_ms: u64, effects: &mut Vec<Effect<T, T::Addr, V>>) {
        self.window.age(now_ms, self.settings.oldest_ms);
        let Some(load) = self.own.clone() else { return };
        let (life, number) = (self.life, self.number);
        let mut news = vec![News { who: self.me().addr(), life, number, age_ms: 0, load }];
        news.extend(self.window.newest(now_ms, self.settings.tell_most.saturating_sub(1)));
        let whom: Vec<T> =
            self.swim.live().sample(&mut self.rng, self.settings.tell_whom).into_iter().cloned().collect();
        effects.extend(whom.into_iter().map(|to| Effect::Send(to, Said::Loads(news.clone()))));
    }

    /// Something has come from the node with this name.
    pub fn receive(
        &mut self,
        now_ms: u64,
        from: &T::Addr,
        said: Said<T::Addr, V>,
    ) -> Result<Vec<Effect<T, T::Addr, V>>, Broken> {
        let mut effects = Vec::new();
        match said {
            Said::Swim(packet) => self.swim.receive(now_ms, from, &packet, &mut effects)?,
            Said::Loads(all) => {
                if all.len() > self.settings.tell_most {
                    return Err(Broken::TooManyLoads(all.len()));
                }
                let me = self.me().addr();
                for news in all {
                    // What one says of itself is as old as its way here; others may lie about anybody, and no more than that.
                    if news.who != me && news.age_ms <= self.settings.oldest_ms {
                        self.window.hear(now_ms, news);
                    }
                }
            }
        }
        self.mind(&effects);
        Ok(effects)
    }

    /// The load of one that is gone is of no use.
    fn mind(&mut self, effects: &[Effect<T, T::Addr, V>]) {
        for effect in effects {
            if let Effect::Down(who) = effect {
                self.window.forget(&who.addr());
            }
        }
    }

    /// All others that are known, and how they are.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (&T, State)> {
        self.swim.all().map(|m| (m.id(), m.state()))
    }

    /// How many others live.
    pub fn live(&self) -> usize {
        self.swim.live_count()
    }

    /// What is known of others' loads.
    pub fn window(&self) -> &Window<T::Addr, V> {
        &self.window
    }

    /// The same, to note there what was done about it meanwhile.
    pub fn window_mut(&mut self) -> &mut Window<T::Addr, V> {
        &mut self.window
    }
}
