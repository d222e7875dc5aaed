//! Getting a node ready to take the process, while the process still runs.

use super::{HomeError, Result};
use crate::channel::{Channel, ChannelError};
use crate::control::{Destination, Limits};
use crate::message::{CLOCK_QUESTIONS, Down, Layout, Offer, Special, Up, said};
use pando_kernel::clock;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a preparation needs to know.
#[derive(Clone)]
pub(crate) struct Request {
    pub dest: Destination,
    pub identity_dir: String,
    pub limits: Limits,
    pub offer: Offer,
    pub layout: Layout,
    /// What the process's time namespace adds to this helper's clocks.
    pub clocks_ahead: (i64, i64),
}

/// A node with a sandbox that waits for a start.
pub(crate) struct Prepared {
    pub node: String,
    pub chan: Channel,
    /// Pages may follow after the start.
    pub post_copy: bool,
    /// Where it has put the kernel's own mappings; a later change of the map does not move them.
    pub special: Vec<Special>,
    /// Other processes of this owner that it has.
    pub kin: Vec<i32>,
}

/// Connects, offers, has the sandbox made. Blocks up to the limits.
pub(crate) fn prepare(request: Request) -> Result<Prepared> {
    let Destination::Node { name, addr } = &request.dest else {
        return Err(HomeError::Refused("home needs no preparation".into()));
    };
    let failed = |source| HomeError::Target { node: name.clone(), source };
    let refused = |e: String| HomeError::Declined { node: name.clone(), why: e };
    let connect = Duration::from_millis(request.limits.connect_ms);
    let prepare = Duration::from_millis(request.limits.prepare_ms);
    let identity =
        pando_wire::Identity::load(&PathBuf::from(&request.identity_dir)).map_err(|e| refused(e.to_string()))?;
    let config = identity.client_config().map_err(|e| refused(e.to_string()))?;
    let sni = rustls::pki_types::ServerName::try_from(pando_wire::SNI_MOVE).map_err(|e| refused(e.to_string()))?;
    let tls = rustls::ClientConnection::new(config, sni).map_err(|e| failed(e.into()))?;
    let addr: SocketAddr = addr.parse().map_err(|_| refused(format!("has a strange address {addr:?}")))?;
    let tcp = TcpStream::connect_timeout(&addr, connect).map_err(|e| failed(e.into()))?;
    let mut chan = Channel::establish(tcp, tls.into(), connect).map_err(failed)?;
    chan.squeeze_below(request.limits.compress_below());
    if chan.peer().as_deref() != Some(name) {
        let who = chan.peer().unwrap_or_default();
        return Err(refused(format!("is not who answers at {addr}: {who} is")));
    }
    chan.send(&Down::Offer(request.offer.clone()), &[]).map_err(failed)?;
    let (mut questions, begun) = (0, Instant::now());
    loop {
        // All of it together has a limit, however much it says.
        let left = prepare.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(failed(ChannelError::Timeout(prepare.as_millis() as u64)));
        }
        match chan.wait::<Up>(left).map_err(failed)?.0 {
            Up::Agree { .. } => {}
            Up::AskClock if questions < CLOCK_QUESTIONS => {
                let (monotonic, boottime) = request.clocks_ahead;
                let clocks = Down::Clock {
                    monotonic: clock::monotonic_ns().wrapping_add_signed(monotonic),
                    boottime: clock::boottime_ns().wrapping_add_signed(boottime),
                    realtime: clock::realtime_ns(),
                };
                chan.send(&clocks, &[]).map_err(failed)?;
                questions += 1;
                if questions == CLOCK_QUESTIONS {
                    chan.send(&Down::Prepare(request.layout.clone()), &[]).map_err(failed)?;
                }
            }
            Up::Decline(why) => return Err(refused(format!("declines: {}", said(&why)))),
            Up::Prepared { post_copy, kin } => {
                return Ok(Prepared { node: name.clone(), chan, post_copy, special: request.layout.special, kin });
            }
            Up::Failed(why) => return Err(refused(format!("could not make a place for it: {}", said(&why)))),
            other => return Err(refused(said(&format!("answered out of turn: {other:?}")))),
        }
    }
}
