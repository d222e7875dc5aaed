//! How large what nodes tell each other is.

use crate::node::Told;
use pando_balance::Vector;
use pando_gossip::{News, Said};
use postcard::ser_flavors::Size;
use serde::Serialize;

/// As long as a node's name may well be.
const NAME: &str = "node0001";

#[derive(Serialize)]
struct Line {
    who: &'static str,
    life: u64,
    number: u64,
    age_ms: u64,
    load: Vector,
}

/// Bytes of a message, as the daemon would write it.
pub fn bytes(said: &Said<u32, Told>) -> usize {
    let line = |n: &News<u32, Told>| {
        // A node's life is the time at which it began.
        let life = 1_700_000_000_000 + n.life;
        let line = Line { who: NAME, life, number: n.number, age_ms: n.age_ms, load: n.load.load };
        postcard::serialize_with_flavor::<Line, Size, usize>(&line, Size::default()).unwrap_or(0)
    };
    match said {
        Said::Swim(packet) => packet.len(),
        Said::Loads(all) => all.iter().map(line).sum(),
    }
}
