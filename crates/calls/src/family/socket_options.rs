//! Options of sockets, most of them flat.

use crate::walk::{Walk, u32_at, u64_at};

const SOL_SOCKET: u64 = 1;
const SO_ATTACH_FILTER: u64 = 26;
const SO_ATTACH_REUSEPORT_CBPF: u64 = 51;
const REASON: &str = "it uses a socket option that can't be forwarded";
/// Longer options are not copied by any protocol that is forwarded.
const MAX_OPTION: u64 = 1 << 20;

/// Options whose values hold pointers, or that map memory.
fn is_unknown(level: u64, option: u64) -> bool {
    match (level, option) {
        // Tables of netfilter (iptables, arptables, ebtables).
        (0, 64..=67 | 96..=99 | 128..=131) | (41, 64 | 65 | 68 | 69) => true,
        // TCP_ZEROCOPY_RECEIVE
        (6, 35) => true,
        // SCTP_SOCKOPT_CONNECTX3
        (132, 111) => true,
        // PACKET_RX_RING, PACKET_TX_RING, PACKET_FANOUT_DATA
        (263, 5 | 13 | 22) => true,
        // RDS, XDP, MPTCP
        (276 | 283 | 284, _) => true,
        _ => false,
    }
}

pub(super) fn set(w: &mut Walk<'_>) {
    let (level, option, value, len) = (w.uint(1), w.uint(2), w.arg(3), w.int(4));
    if is_unknown(level, option) {
        return w.come_home(REASON);
    }
    w.input(value, len.min(MAX_OPTION));
    if level == SOL_SOCKET && matches!(option, SO_ATTACH_FILTER | SO_ATTACH_REUSEPORT_CBPF) && w.planning() {
        // struct sock_fprog: how many instructions, and where.
        if let Some(program) = w.peek(value, 16) {
            w.input(u64_at(&program, 8), u64::from(u32_at(&program, 0) & 0xffff) * 8);
        }
    }
}

pub(super) fn get(w: &mut Walk<'_>) {
    let (level, option, value, len_at) = (w.uint(1), w.uint(2), w.arg(3), w.arg(4));
    // What SO_GET_FILTER calls a length is a number of instructions.
    if is_unknown(level, option) || (level == SOL_SOCKET && option == SO_ATTACH_FILTER) {
        return w.come_home(REASON);
    }
    let Some(len) = w.fetch(len_at, 4) else {
        return;
    };
    let len = u64::try_from(u32_at(&len, 0) as i32).unwrap_or(0);
    w.output(len_at, 4);
    w.input(value, len.min(MAX_OPTION));
    if w.succeeds() {
        w.output(value, len.min(MAX_OPTION));
    }
}
