//! The tables against the truth: each case is run twice by this kernel. Once as it is; once as it would be forwarded, over a
//! memory in which all but the inputs is garbage, with only the outputs brought back. Both have to end alike, and no byte may
//! change that is not an output.

mod arena;
mod files;
mod processes;
mod queues;
mod sockets;
mod waiting;

use arena::{Arena, Call, Case, sys};
use pando_calls::{Class, Plan, Range, class, clip, name, outputs, plan};

const GARBAGE: u8 = 0xc3;

struct Outcome {
    ret: i64,
    memory: Vec<u8>,
    seen: Option<Vec<u8>>,
    stable: bool,
}

/// The parts of the arena that these ranges cover.
fn covered(arena: &Arena, ranges: &[Range]) -> Vec<bool> {
    let mut map = vec![false; arena.bytes().len()];
    for r in ranges {
        let from = r.addr.saturating_sub(arena.start()).min(map.len() as u64) as usize;
        let to = r.end().saturating_sub(arena.start()).min(map.len() as u64) as usize;
        map[from..to].fill(true);
    }
    map
}

fn run(what: &str, case: fn(&mut Arena) -> Call, arena: &mut Arena, forwarded: bool) -> Outcome {
    arena.reset();
    let call = case(arena);
    let nr = call.nr as u64;
    assert!(!matches!(class(nr, &call.args), Class::Home(_)), "{what}: {:?}", class(nr, &call.args));
    let Plan::Forward { inputs, outputs_max } = plan(nr, &call.args, arena) else {
        panic!("{what}: {:?}", plan(nr, &call.args, arena))
    };
    let before = arena.bytes().to_vec();
    if forwarded {
        let sent = covered(arena, &inputs);
        for (byte, _) in arena.bytes_mut().iter_mut().zip(sent).filter(|(_, sent)| !sent) {
            *byte = GARBAGE;
        }
    }
    let at_home = arena.bytes().to_vec();
    let ret = sys(call.nr, &call.args);
    let after = arena.bytes().to_vec();
    let written = clip(&outputs(nr, &call.args, ret, arena), &outputs_max);
    let back = covered(arena, &written);
    for at in 0..after.len() {
        assert!(
            back[at] || at_home[at] == after[at],
            "{what} = {ret}: byte {at:#x} of the arena at {:#x} is not an output; args {:x?}, outputs {written:x?}",
            arena.start(),
            call.args
        );
    }
    let memory = before.iter().zip(&after).zip(&back).map(|((b, a), &back)| if back { *a } else { *b }).collect();
    let memory = if forwarded { memory } else { after };
    Outcome { ret, memory, seen: call.probe.map(|p| p()), stable: call.stable }
}

fn check(cases: &[Case], arena: &mut Arena) {
    // Descriptors from here on are those of a case.
    let first = arena::must(libc::SYS_epoll_create1, &[0]);
    assert_eq!(sys(libc::SYS_close, &[first]), 0);
    for &(what, case) in cases {
        let mut outcomes = [false, true].map(|forwarded| {
            let outcome = run(what, case, arena, forwarded);
            assert_eq!(sys(libc::SYS_close_range, &[first, u64::from(u32::MAX), 0]), 0);
            outcome
        });
        let [truth, forwarded] = &mut outcomes;
        eprintln!("{what} = {}", truth.ret);
        if truth.stable {
            assert_eq!(truth.ret, forwarded.ret, "{what}");
            let differs = (0..truth.memory.len()).find(|&i| truth.memory[i] != forwarded.memory[i]);
            if let Some(at) = differs {
                let (t, f) = (&truth.memory[at..at + 16], &forwarded.memory[at..at + 16]);
                panic!("{what}: differs at {at:#x}: {t:x?} forwarded {f:x?}");
            }
        } else {
            assert_eq!(truth.ret < 0, forwarded.ret < 0, "{what}: {} {}", truth.ret, forwarded.ret);
        }
        assert_eq!(truth.seen, forwarded.seen, "{what}");
    }
}

#[test]
fn forwarded_calls_end_as_the_kernel_has_it() {
    assert_eq!(name(libc::SYS_read as u64), "read");
    let mut arena = Arena::new();
    // One test, since the cases share signals, children and the numbers of descriptors.
    for cases in [files::CASES, sockets::CASES, waiting::CASES, processes::CASES, queues::CASES] {
        check(cases, &mut arena);
    }
}
