//! The crate `foca` behind our own kind of face: what it wants to be done is collected.

use crate::core::{Broken, Effect, Said, Settings};
use crate::timers::Timers;
use foca::{
    Codec, Config, Foca, Header, Identity, Member, Notification, PeriodicParams, PostcardCodec, Runtime, Timer,
};
use rand::rngs::StdRng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

/// Largest packet. It goes over a stream, so this is for fairness only.
pub const MAX_PACKET: usize = 16 * 1024;
/// Asked to look for one that does not answer.
const INDIRECT: usize = 3;

/// How often each piece of news about members is passed on, by the size of the cluster: four times its decimal logarithm, as others do.
fn transmissions(members: usize) -> NonZeroU8 {
    let times = 4.0 * ((members + 10) as f64).log10();
    NonZeroU8::new(times.clamp(4.0, 60.0) as u8).unwrap_or(NonZeroU8::MIN)
}

fn config(settings: &Settings, members: usize) -> Config {
    let ms = Duration::from_millis;
    let most = |n: usize| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
    let each = |every_ms: u64| Some(PeriodicParams { frequency: ms(every_ms), num_members: most(1) });
    // A larger cluster takes longer to hear that somebody refutes.
    let patience = ((members.max(10)) as f64).log10();
    Config {
        probe_period: ms(settings.probe_ms),
        probe_rtt: ms(settings.answer_ms),
        num_indirect_probes: most(INDIRECT),
        max_transmissions: transmissions(members),
        suspect_to_down_after: ms((settings.suspect_ms as f64 * patience) as u64),
        remove_down_after: Some(ms(settings.forget_ms)),
        max_packet_size: most(MAX_PACKET),
        notify_down_members: true,
        periodic_announce: each(settings.probe_ms * 15),
        periodic_announce_to_down_members: each(settings.probe_ms * 4),
        periodic_gossip: each(settings.probe_ms / 4 + 1),
    }
}

/// What foca wants, collected.
struct Wants<'a, T: Identity, K, V> {
    now_ms: u64,
    timers: &'a mut Timers<Timer<T>>,
    effects: &'a mut Vec<Effect<T, K, V>>,
}

impl<T: Identity, K, V> Runtime<T> for Wants<'_, T, K, V> {
    fn notify(&mut self, notification: Notification<'_, T>) {
        match notification {
            Notification::MemberUp(who) => self.effects.push(Effect::Up(who.clone())),
            Notification::MemberDown(who) => self.effects.push(Effect::Down(who.clone())),
            Notification::Rename(_, who) => self.effects.push(Effect::Renamed(who.clone())),
            Notification::Rejoin(me) => self.effects.push(Effect::Rejoined(me.clone())),
            Notification::Active | Notification::Idle | Notification::Defunct => {}
        }
    }

    fn send_to(&mut self, to: T, data: &[u8]) {
        self.effects.push(Effect::Send(to, Said::Swim(data.to_vec())));
    }

    fn submit_after(&mut self, event: Timer<T>, after: Duration) {
        self.timers.set(self.now_ms + after.as_millis() as u64, event);
    }
}

/// Membership.
pub struct Swim<T: Identity> {
    foca: Foca<T, PostcardCodec, StdRng, foca::NoCustomBroadcast>,
    timers: Timers<Timer<T>>,
    settings: Settings,
    /// For how many members it is set.
    set_for: usize,
}

impl<T: Identity + Serialize + DeserializeOwned> Swim<T> {
    pub fn new(me: T, settings: &Settings, rng: StdRng) -> Self {
        let foca = Foca::new(me, config(settings, 1), rng, PostcardCodec);
        Swim { foca, timers: Timers::default(), settings: settings.clone(), set_for: 1 }
    }

    pub fn me(&self) -> &T {
        self.foca.identity()
    }

    /// All but this node that are known, those that are down among them.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Member<T>> {
        self.foca.iter_membership_state()
    }

    /// Those that are up or suspect.
    pub fn live(&self) -> impl Iterator<Item = &T> {
        self.foca.iter_members().map(Member::id)
    }

    pub fn live_count(&self) -> usize {
        self.foca.num_members()
    }

    pub fn next(&self) -> Option<u64> {
        self.timers.next()
    }

    /// What is due.
    pub fn tick<K, V>(&mut self, now_ms: u64, effects: &mut Vec<Effect<T, K, V>>) {
        while let Some(event) = self.timers.take(now_ms) {
            // Timers of an earlier life are passed over; nothing else can go wrong with ours.
            let _ = self.with(now_ms, effects, |foca, wants| foca.handle_timer(event, wants));
        }
        self.fit();
    }

    /// Asks this node to be let in.
    pub fn announce<K, V>(&mut self, now_ms: u64, to: T, effects: &mut Vec<Effect<T, K, V>>) {
        let _ = self.with(now_ms, effects, |foca, wants| foca.announce(to, wants));
    }

    /// Takes in what is known from elsewhere (a list that was kept); others are told.
    pub fn know<K, V>(&mut self, now_ms: u64, members: Vec<T>, effects: &mut Vec<Effect<T, K, V>>) {
        let members = members.into_iter().map(Member::alive);
        let _ = self.with(now_ms, effects, |foca, wants| foca.apply_many(members, true, wants));
    }

    /// Says goodbye: others need not find out.
    pub fn leave<K, V>(&mut self, now_ms: u64, effects: &mut Vec<Effect<T, K, V>>) {
        let _ = self.with(now_ms, effects, |foca, wants| foca.leave_cluster(wants));
    }

    /// A packet from the node with that name.
    pub fn receive<K, V>(
        &mut self,
        now_ms: u64,
        from: &T::Addr,
        packet: &[u8],
        effects: &mut Vec<Effect<T, K, V>>,
    ) -> Result<(), Broken> {
        if packet.len() > MAX_PACKET {
            return Err(Broken::Packet(format!("{} bytes, the limit is {MAX_PACKET}", packet.len())));
        }
        let header: Header<T> = PostcardCodec.decode_header(packet).map_err(|e| Broken::Packet(e.to_string()))?;
        if header.src.addr() != *from {
            return Err(Broken::Name);
        }
        self.has_room(packet)?;
        self.with(now_ms, effects, |foca, wants| foca.handle_data(packet, wants))
            .map_err(|e| Broken::Packet(e.to_string()))
    }

    /// Nobody may make this node remember members without end.
    fn has_room(&self, packet: &[u8]) -> Result<(), Broken> {
        // A member takes some bytes, at least.
        const SMALLEST: usize = 4;
        let (known, most) = (self.foca.iter_membership_state().len(), self.settings.members);
        if known + packet.len() / SMALLEST <= most {
            return Ok(());
        }
        let mut rest = packet;
        let bad = |e: &dyn std::fmt::Display| Broken::Packet(e.to_string());
        let _: Header<T> = PostcardCodec.decode_header(&mut rest).map_err(|e| bad(&e))?;
        let Some((count, mut rest)) = rest.split_first_chunk::<2>() else { return Ok(()) };
        let mut fresh = 0;
        for _ in 0..u16::from_be_bytes(*count) {
            let member: Member<T> = PostcardCodec.decode_member(&mut rest).map_err(|e| bad(&e))?;
            let addr = member.id().addr();
            fresh += usize::from(!self.foca.iter_membership_state().any(|m| m.id().addr() == addr));
        }
        if known + fresh > most { Err(Broken::TooManyMembers(most)) } else { Ok(()) }
    }

    fn with<K, V>(
        &mut self,
        now_ms: u64,
        effects: &mut Vec<Effect<T, K, V>>,
        what: impl FnOnce(
            &mut Foca<T, PostcardCodec, StdRng, foca::NoCustomBroadcast>,
            &mut Wants<'_, T, K, V>,
        ) -> Result<(), foca::Error>,
    ) -> Result<(), foca::Error> {
        let before = effects.len();
        let mut wants = Wants { now_ms, timers: &mut self.timers, effects };
        let done = what(&mut self.foca, &mut wants);
        if effects[before..].iter().any(|e| matches!(e, Effect::Rejoined(_))) {
            self.come_back(now_ms, effects);
        }
        // An earlier life of this node is a member that is down, and foca would ask it to come back: that is a word to oneself.
        let me = self.foca.identity().addr();
        let mut at = 0;
        effects.retain(|e| {
            at += 1;
            at <= before || !matches!(e, Effect::Send(to, _) if to.addr() == me)
        });
        done
    }

    /// After foca took a new identity it does nothing until somebody speaks to that. When all have new ones at a time (a slow network is
    /// over), everybody speaks to old ones, which nobody answers to; but all hear an announcement.
    fn come_back<K, V>(&mut self, now_ms: u64, effects: &mut Vec<Effect<T, K, V>>) {
        let mut wants = Wants { now_ms, timers: &mut self.timers, effects };
        let _ = self.foca.apply_many(std::iter::empty(), false, &mut wants);
        let some: Vec<T> = self.foca.iter_members().take(INDIRECT).map(|m| m.id().clone()).collect();
        for to in some {
            let _ = self.foca.announce(to, &mut wants);
        }
    }

    /// Patience and repetition follow the size of the cluster.
    fn fit(&mut self) {
        let members = self.foca.num_members() + 1;
        if members > self.set_for * 2 || members * 2 < self.set_for {
            self.set_for = members;
            let _ = self.foca.set_config(config(&self.settings, members));
        }
    }
}
