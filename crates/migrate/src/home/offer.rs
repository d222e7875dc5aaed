//! What a node is told before it takes a process: whose it is, what it needs, how its memory lies.

use super::target::Request;
use super::{HomeError, Result, at, describe};
use crate::control::{DeputyOrder, Destination};
use crate::cpu;
use crate::hold::{Holds, Side};
use crate::layout::{HOLE_BYTES, choose_hole};
use crate::message::{Area, Layout, Offer, Special, VERSION};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::procfs::{self, Mapping};
use pando_kernel::{clock, vdso};
use std::time::{Duration, Instant};

/// How long a process that begins another program meanwhile is looked at anew: that one's file may have to come from a disk.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Where tests hold this helper.
pub(super) fn holds(order: &DeputyOrder) -> Holds {
    Holds::new(order.holds.as_deref(), Side::Home, order.pid as i32)
}

/// What the target of a first move is told, and the hole. The process runs, and may begin another program at any moment: what is read must be
/// of one and the same.
pub(super) fn of_running(order: &DeputyOrder, fixed: &[(u64, u64)]) -> Result<(Request, u64)> {
    let pid = order.pid as i32;
    let refused = |why: &str| HomeError::Refused(format!("process {pid} {why}"));
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let maps = at("its map", procfs::maps(pid))?;
        if maps.is_empty() {
            return Err(refused("has no memory of its own (a kernel thread, or it has ended)"));
        }
        let hole = choose_hole(&maps).ok_or_else(|| refused("leaves no room for the engine"))?;
        let request = target_request(order, order.dest.clone(), &maps, (hole, fixed), 1, 0)?;
        let code = maps.iter().find(|m| m.name == "[vdso]").map_or(0, |m| m.end - m.start);
        let same = special_of(&at("its map", procfs::maps(pid))?) == request.layout.special;
        // In the middle of exec(2) there is no vDSO yet, and of that there is no code either.
        if same && code > 0 && request.layout.vdso.len() as u64 == code {
            return Ok((request, hole));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(refused("has no vDSO, or begins another program again and again: try again later"))
}

pub(super) fn target_request(
    order: &DeputyOrder,
    dest: Destination,
    maps: &[Mapping],
    (hole, fixed): (u64, &[(u64, u64)]),
    epoch: u64,
    abroad_ns: u64,
) -> Result<Request> {
    let (uid, command) = describe(order.pid as i32);
    Ok(Request {
        dest,
        identity_dir: order.identity_dir.clone(),
        limits: order.limits.clone(),
        clocks_ahead: clock::ahead_of_us(order.pid as i32),
        offer: Offer {
            version_min: VERSION,
            version_max: VERSION,
            epoch,
            home: order.node.clone(),
            pid: order.pid as i32,
            inner_pid: at("its pid", procfs::innermost_tid(order.pid as i32))?,
            uid,
            command,
            needs: cpu::needs(order.pid as i32),
            lost_after_ms: order.limits.lost_after_ms,
        },
        layout: Layout {
            hole,
            areas: areas_of(maps, hole, fixed),
            vdso: vdso_of(order.pid as i32, maps),
            special: special_of(maps),
            limits: guest_limits(order.pid as i32, abroad_ns),
        },
    })
}

/// The kernel's own mappings.
pub(super) fn special_of(maps: &[Mapping]) -> Vec<Special> {
    let special = maps.iter().filter(|m| vdso::is_special(m));
    special.map(|m| Special { start: m.start, end: m.end, name: m.name.clone() }).collect()
}

fn vdso_of(pid: i32, maps: &[Mapping]) -> Vec<u8> {
    let Some(m) = maps.iter().find(|m| m.name == "[vdso]") else { return Vec::new() };
    let mut code = vec![0; (m.end - m.start) as usize];
    let got = ProcessMemory::open(pid).map_or(0, |memory| memory.read(m.start, &mut code));
    code.truncate(got);
    code
}

/// Stack and CPU-time limits, less the time already used, and no core files: those are home's.
fn guest_limits(pid: i32, abroad_ns: u64) -> Vec<(u32, u64, u64)> {
    let mut out = stack_limit(pid);
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let mut words = text.lines().find_map(|l| l.strip_prefix("Max cpu time")).unwrap_or("").split_ascii_whitespace();
    let used = (clock::process_cpu_ns(pid) + abroad_ns) / 1_000_000_000;
    let mut left = || {
        words.next().and_then(|w| w.parse::<u64>().ok()).map_or(libc::RLIM_INFINITY, |l| l.saturating_sub(used).max(1))
    };
    let (soft, hard) = (left(), left());
    out.push((libc::RLIMIT_CPU, soft.min(hard), hard));
    out
}

fn stack_limit(pid: i32) -> Vec<(u32, u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("Max stack size")).unwrap_or("");
    let value = |w: &str| w.parse().unwrap_or(libc::RLIM_INFINITY);
    let mut words = line.split_ascii_whitespace().skip(3);
    match (words.next(), words.next()) {
        (Some(soft), Some(hard)) => vec![(libc::RLIMIT_STACK, value(soft), value(hard)), (libc::RLIMIT_CORE, 0, 0)],
        _ => vec![(libc::RLIMIT_CORE, 0, 0)],
    }
}

/// The program's areas, without the kernel's and our own.
pub(super) fn areas_of(maps: &[Mapping], hole: u64, fixed: &[(u64, u64)]) -> Vec<Area> {
    let ours = |m: &&Mapping| m.end <= hole || m.start >= hole + HOLE_BYTES;
    let program = maps.iter().filter(|m| !vdso::is_special(m)).filter(ours);
    let is_fixed = |m: &Mapping| fixed.iter().any(|&(start, end)| m.start < end && m.end > start);
    let own = |m: &Mapping| !m.shared && m.inode == 0 && m.name != "[stack]" && !is_fixed(m);
    let area = |m: &Mapping| Area { start: m.start, end: m.end, prot: m.prot, stack: m.name == "[stack]", own: own(m) };
    program.map(area).collect()
}
