//! The fabric of transfers and the strobe: who is in it, and which ways its bytes take.

use serde::{Deserialize, Serialize};

/// Administratively scoped (RFC 2365): it stays within a site, and with a TTL of 1 on the wire.
const DEFAULT_GROUP: &str = "239.192.71.17:7118";

/// `[fabric]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fabric {
    /// Milliseconds after which a member that can't be reached is left out, though gossip hears of it.
    pub lost_after_ms: u64,
    /// Most children of a node in a tree.
    pub arity: u32,
    /// Most megabytes of all regions at this node; 0: a fifth of what it may use.
    pub regions_mb: u64,
    /// Milliseconds between two beats of the strobe in a fabric that this node founds; 0 for none.
    pub strobe_ms: u64,
    /// Where large transfers are cast, `GROUP:PORT`; `off`: nowhere.
    pub multicast: String,
    /// Bytes of a datagram; 0: as many as fit into a packet.
    pub datagram: u32,
    /// The provider of libfabric that carries what is large; `off`: none.
    pub libfabric: String,
    /// The library.
    pub libfabric_file: String,
}

impl Default for Fabric {
    fn default() -> Self {
        let multicast = DEFAULT_GROUP.to_owned();
        let (libfabric, libfabric_file) = ("off".into(), "libfabric.so.1".into());
        let (lost_after_ms, arity, regions_mb, strobe_ms, datagram) = (5_000, 4, 0, 1000, 0);
        Fabric { lost_after_ms, arity, regions_mb, strobe_ms, multicast, datagram, libfabric, libfabric_file }
    }
}

impl Fabric {
    /// Group and port of multicast; none: it is off, or is no group.
    pub fn group(&self) -> Option<std::net::SocketAddrV4> {
        self.multicast.parse().ok().filter(|at: &std::net::SocketAddrV4| at.ip().is_multicast() && at.port() > 0)
    }
}
