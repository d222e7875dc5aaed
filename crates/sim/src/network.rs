//! The network: delays, losses, things that come twice or late, cuts; and what it all costs.

use crate::queue::{MS, SECOND};
use rand::RngExt;
use rand::rngs::StdRng;

/// How good it is.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Shortest way, microseconds.
    pub least_us: u64,
    /// Added to it: exponential, with this mean.
    pub mean_us: u64,
    /// Of so many (thousandths) the way is long: exponential with a mean of 50 ms. They come after what was sent later.
    pub late_milli: u32,
    /// So many (thousandths) get lost.
    pub lost_milli: u32,
    /// So many (thousandths) come twice.
    pub twice_milli: u32,
    /// Bytes a second that a node sends or takes at most when processes move.
    pub bandwidth: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { least_us: 100, mean_us: 200, late_milli: 5, lost_milli: 1, twice_milli: 1, bandwidth: 500 << 20 }
    }
}

/// What a message takes besides what it says: headers of TCP, IP and TLS, and the frame's.
pub const AROUND: usize = 70;

/// The network.
pub struct Network {
    pub shape: Shape,
    rng: StdRng,
    /// Nodes of one side hear each other.
    side: Vec<u32>,
    /// Extra way to and from a slow node, microseconds.
    slow: Vec<u64>,
    /// Messages and bytes that each node has sent.
    pub sent: Vec<(u64, u64)>,
}

impl Network {
    pub fn new(shape: Shape, nodes: usize, rng: StdRng) -> Self {
        Network { shape, rng, side: vec![0; nodes], slow: vec![0; nodes], sent: vec![(0, 0); nodes] }
    }

    /// Puts a node on a side.
    pub fn side(&mut self, node: u32, side: u32) {
        self.side[node as usize] = side;
    }

    /// All on one side.
    pub fn heal(&mut self) {
        self.side.fill(0);
    }

    /// So much longer to and from that node.
    pub fn slow(&mut self, node: u32, us: u64) {
        self.slow[node as usize] = us;
    }

    /// Do they hear each other?
    pub fn joined(&self, a: u32, b: u32) -> bool {
        self.side[a as usize] == self.side[b as usize]
    }

    fn way(&mut self, from: u32, to: u32) -> u64 {
        let mean = match self.rng.random_range(0..1000) < self.shape.late_milli {
            true => 50 * MS,
            false => self.shape.mean_us,
        };
        let u: f64 = self.rng.random();
        let extra = -(1.0 - u).ln() * mean as f64;
        self.shape.least_us + (extra as u64).min(2 * SECOND) + self.slow[from as usize].max(self.slow[to as usize])
    }

    /// Sends so many bytes. How long each copy that arrives is on its way.
    pub fn send(&mut self, from: u32, to: u32, bytes: usize) -> Vec<u64> {
        let sent = &mut self.sent[from as usize];
        *sent = (sent.0 + 1, sent.1 + (bytes + AROUND) as u64);
        if !self.joined(from, to) || self.rng.random_range(0..1000) < self.shape.lost_milli {
            return Vec::new();
        }
        let mut ways = vec![self.way(from, to)];
        if self.rng.random_range(0..1000) < self.shape.twice_milli {
            ways.push(self.way(from, to));
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn it_loses_doubles_and_cuts() {
        let shape = Shape { lost_milli: 100, twice_milli: 100, ..Shape::default() };
        let mut net = Network::new(shape, 3, StdRng::seed_from_u64(1));
        let all: Vec<usize> = (0..1000).map(|_| net.send(0, 1, 10).len()).collect();
        let count = |n| all.iter().filter(|&&ways| ways == n).count();
        assert!((70..130).contains(&count(0)) && (60..120).contains(&count(2)), "{} {}", count(0), count(2));
        assert_eq!(net.sent[0], (1000, 1000 * (10 + AROUND as u64)));
        net.side(1, 7);
        assert!((0..100).all(|_| net.send(0, 1, 10).is_empty()));
        net.heal();
        net.slow(1, SECOND);
        assert!((0..100).flat_map(|_| net.send(1, 0, 10)).all(|way| way > SECOND));
    }
}
