//! A home that sends a process and lies: the helper at the target refuses, says who it was and why, and nothing is left.

mod liar;

use liar::home::{Beginning, CODE, DATA, FOREVER, HOLE, LET_THROUGH, PID, Visit};
use liar::home::{calling, can_run, layout, offer, special};
use pando_migrate::cpu::Needs;
use pando_migrate::message::{Area, Down, Layout, Offer, Run, Special, Up};
use std::time::Duration;

const PAGE: u64 = 4096;
const TOP: u64 = 0x7fff_ffff_f000;

#[test]
fn an_honest_guest_of_the_stage_runs() {
    if can_run("an_honest_guest_of_the_stage_runs") {
        Visit::running(&FOREVER).ends_content();
    }
}

#[test]
fn offers_that_make_no_sense() {
    let refused = |down: Down, why: &str| {
        let mut visit = Visit::new();
        visit.say(&down, &[]);
        visit.refuses(why);
    };
    refused(Down::Ping, "not an offer");
    refused(Down::Prepare(layout()), "not an offer");
    refused(Down::Offer(Offer { home: "honest".into(), ..offer() }), "in the name of");
    refused(Down::Offer(Offer { home: "x".repeat(500_000), ..offer() }), "in the name of");
    refused(Down::Offer(Offer { inner_pid: 1, ..offer() }), "pid 1");
    refused(Down::Offer(Offer { inner_pid: i32::MIN, ..offer() }), "pid 1");
    refused(Down::Offer(Offer { version_min: 9, version_max: 3, ..offer() }), "protocol");
    refused(
        Down::Offer(Offer { needs: Needs { flags: vec!["flag".into(); 100_000], ..offer().needs }, ..offer() }),
        "lacks",
    );
    let layout = vec![(2, 0, u32::MAX); 100_000];
    refused(Down::Offer(Offer { needs: Needs { layout, ..offer().needs }, ..offer() }), "extended registers");
    let mut visit = Visit::new();
    visit.say(&Down::Offer(Offer { command: "long\n".repeat(100_000), inner_pid: 1, ..offer() }), &[]);
    visit.refuses("declined");
}

#[test]
fn layouts_that_make_no_sense() {
    let refused = |layout: Layout, why: &str| {
        let mut visit = Visit::new();
        visit.prepare(layout);
        visit.refuses(why);
    };
    for hole in [0, 1, PAGE, HOLE + 1, TOP, u64::MAX, u64::MAX - 4095] {
        refused(Layout { hole, ..layout() }, "a hole outside");
    }
    let one = |start, end, prot| Area { start, end, prot, stack: false, own: false };
    let bad = [
        vec![one(0, 0, 3)],
        vec![one(PAGE, 0, 3)],
        vec![one(5, PAGE, 3)],
        vec![one(PAGE, 5000, 3)],
        vec![one(PAGE, u64::MAX - 4095, 3)],
        vec![one(TOP, TOP + PAGE, 3)],
        vec![one(CODE, CODE + PAGE, 8)],
        vec![one(CODE, CODE + PAGE, u32::MAX)],
        vec![one(HOLE, HOLE + PAGE, 3)],
        vec![one(HOLE - PAGE, TOP, 3)],
        vec![one(HOLE + 9 * PAGE, HOLE + 10 * PAGE, 7)],
        vec![one(CODE, CODE + 2 * PAGE, 3), one(CODE + PAGE, CODE + 3 * PAGE, 3)],
        vec![one(DATA, DATA + PAGE, 3), one(CODE, CODE + PAGE, 3)],
        vec![one(CODE, CODE + PAGE, 3); 2],
    ];
    for areas in bad {
        refused(Layout { areas, ..layout() }, "strange areas");
    }
    let kernels = |start, end| vec![Special { start, end, name: "[vdso]".into() }];
    refused(Layout { special: kernels(HOLE, HOLE + PAGE), ..layout() }, "strange");
    refused(Layout { special: kernels(CODE, CODE + PAGE), ..layout() }, "the kernel's mappings");
    refused(Layout { special: kernels(u64::MAX, 0), ..layout() }, "strange");
    refused(Layout { special: kernels(PAGE, TOP), ..layout() }, "strange");
    refused(Layout { special: vec![kernels(PAGE, 2 * PAGE).remove(0); 9], ..layout() }, "strange");
    let limit = |r, soft, hard| Layout { limits: vec![(r, soft, hard)], ..layout() };
    for limits in [limit(libc::RLIMIT_CORE, 0, 1), limit(libc::RLIMIT_NPROC, 9, 9), limit(libc::RLIMIT_STACK, 9, 8)] {
        refused(limits, "limits");
    }
    refused(limit(u32::MAX, 0, 0), "limits");
}

#[test]
fn any_bytes_will_do_for_a_vdso() {
    if !can_run("any_bytes_will_do_for_a_vdso") {
        return;
    }
    for bytes in [vec![], vec![0xff; 8192], vec![0x7f; 500_000], (0..20_000).map(|i| (i * 7) as u8).collect()] {
        let mut visit = Visit::new();
        visit.prepare(special(bytes));
        assert!(matches!(visit.hear().unwrap().0, Up::Prepared { .. }));
        visit.ends_content();
    }
}

/// A start that is refused.
fn bad_start(why: &str, change: impl FnOnce(&mut Beginning)) {
    let mut visit = Visit::prepared();
    let mut beginning = Beginning::of(&FOREVER);
    change(&mut beginning);
    visit.begin(&beginning);
    visit.refuses(why);
}

#[test]
fn starts_that_make_no_sense() {
    if !can_run("starts_that_make_no_sense") {
        return;
    }
    bad_start("register set", |b| b.context().xstate += 1);
    bad_start("register set", |b| b.context().xstate = u32::MAX);
    bad_start("register set", |b| b.xstate().extend([0; 4096]));
    bad_start("register set", |b| {
        *b.xstate() = vec![0; 1 << 20];
        b.context().xstate = 1 << 20;
    });
    bad_start("extended state", |b| {
        b.xstate().truncate(5);
        b.context().xstate = 5;
    });
    bad_start("extended state", |b| b.xstate()[512 + 7] = 1);
    bad_start("extended state", |b| {
        // MXCSR is looked at when SSE is in use.
        b.xstate()[512] |= 3;
        b.xstate()[24..28].fill(0xff);
    });
    bad_start("register set", |b| b.context().registers.truncate(3));
    bad_start("registers", |b| b.context().registers[21] = u64::MAX);
    bad_start("registers", |b| b.context().registers[23] = 8);
    bad_start("strange areas", |b| b.areas[0].start = HOLE);
    bad_start("strange areas", |b| b.areas.swap(0, 1));
    bad_start("handlers", |b| b.start.handlers = vec![(11, vec![1; 31])]);
    bad_start("handlers", |b| b.start.handlers = vec![(65, vec![1; 32])]);
    bad_start("handlers", |b| b.start.handlers = vec![(i32::MIN, vec![1; 32])]);
    bad_start("signal stack", |b| b.context().altstack = vec![1; 25]);
    bad_start("signal stack", |b| b.context().altstack.clear());
    bad_start("counted to", |b| b.start.calls = u64::MAX);
    bad_start("counted to", |b| b.context().signals = u64::MAX);
    bad_start("counted to", |b| b.start.brk = u64::MAX);
    bad_start("setitimer", |b| b.start.timers = [[u64::MAX; 4]; 2]);
    bad_start("Undelivered", |b| b.context().undelivered = vec![vec![1; 3]]);
    for number in [0u8, 65, 255, 9, 19] {
        bad_start("signal", |b| b.context().undelivered = vec![[vec![number], vec![0; 127]].concat()]);
    }
    bad_start("rseq", |b| b.context().rseq = (3, 5, 7));
    bad_start("robust", |b| b.context().robust = (DATA, 7));
}

#[test]
fn odd_numbers_in_a_start_do_no_harm() {
    if !can_run("odd_numbers_in_a_start_do_no_harm") {
        return;
    }
    // times(NULL), for ever
    let mut beginning = Beginning::of(&[0xb8, 100, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, 0xeb, 0xf5]);
    let start = &mut beginning.start;
    (start.clock, start.cpu_abroad_ns, start.ignored) = (i64::MIN as u64, u64::MAX, u64::MAX);
    start.free_break = Some((0, u64::MAX));
    let context = beginning.context();
    (context.mask, context.in_call, context.cpu_abroad_ns) = (u64::MAX, Some(u64::MAX), u64::MAX);
    (context.tid_address, context.robust) = (u64::MAX, (u64::MAX, 24));
    beginning.pages.push((HOLE, vec![1; 4096]));
    let mut visit = Visit::begun(&beginning);
    let (seq, ..) = visit.call();
    visit.reply(seq, 5);
    visit.call();
    visit.ends_content();
}

/// The guest of `code` makes a call; the answer is a lie that ends it.
fn bad_answer(why: &str, code: &[u8], lie: impl FnOnce(&mut Visit, u64)) {
    let mut visit = Visit::running(code);
    let (seq, ..) = visit.call();
    lie(&mut visit, seq);
    visit.refuses(why);
}

#[test]
fn answers_that_make_no_sense() {
    if !can_run("answers_that_make_no_sense") {
        return;
    }
    let pid = calling(libc::SYS_getppid, [0; 3]);
    bad_answer("which nobody made", &pid, |v, seq| {
        v.reply(seq, 1);
        v.reply(seq, 1);
        v.reply(seq, 1);
    });
    bad_answer("answer to call 99", &pid, |v, _| v.reply(99, 0));
    bad_answer("restart code", &pid, |v, seq| v.say(&Down::Interrupted { seq, code: 7 }, &[]));
    bad_answer("a short reply", &pid, |v, seq| {
        v.say(&Down::Reply { seq, ret: 0, outputs: vec![(DATA, u32::MAX)] }, &[1; 100]);
    });
    for addr in [HOLE, HOLE - 1, HOLE + 9 * PAGE, TOP, u64::MAX - 10] {
        bad_answer("that writes at", &pid, |v, seq| {
            v.say(&Down::Reply { seq, ret: 0, outputs: vec![(addr, 100)] }, &[1; 100]);
        });
        bad_answer("output at", &pid, |v, _| v.say(&Down::Output(addr), &[1; 100]));
    }
    let mut visit = Visit::running(&FOREVER);
    visit.say(&Down::Output(DATA), &[1; 100]);
    visit.refuses("output at");
    let beginning = Beginning::of(&FOREVER);
    let places = [
        Down::Offer(offer()),
        Down::Clock { monotonic: 1, boottime: 2, realtime: 3 },
        Down::Prepare(layout()),
        Down::Areas(layout().areas),
    ];
    let special = Down::Special(layout().special);
    let threads = [special, Down::Thread(9, Box::default()), Down::Undelivered, Down::Start(Box::new(beginning.start))];
    for down in places.into_iter().chain(threads) {
        let mut visit = Visit::running(&FOREVER);
        visit.say(&down, &[]);
        visit.refuses("out of place");
    }
}

#[test]
fn memory_calls_do_not_reach_the_engines_pages() {
    if !can_run("memory_calls_do_not_reach_the_engines_pages") {
        return;
    }
    let mmap = calling(libc::SYS_mmap, [0, PAGE, 3]);
    for ret in [HOLE, HOLE + PAGE, TOP, i64::MAX as u64 - 4095, (-8192i64) as u64] {
        bad_answer("mmap that changes", &mmap, |v, seq| v.reply(seq, ret as i64));
    }
    let brk = calling(libc::SYS_brk, [0; 3]);
    for ret in [HOLE + PAGE, u64::MAX >> 1, i64::MIN as u64] {
        bad_answer("brk that changes", &brk, |v, seq| v.reply(seq, ret as i64));
    }
    for (nr, why) in
        [(libc::SYS_munmap, "munmap that"), (libc::SYS_mprotect, "mprotect that"), (libc::SYS_madvise, "madvise that")]
    {
        for (start, len) in [(HOLE, PAGE), (0, u64::MAX), (HOLE - PAGE, 2 * PAGE)] {
            bad_answer(why, &calling(nr, [start, len, 4]), |v, seq| v.reply(seq, 0));
        }
    }
    bad_answer("mremap that", &calling(libc::SYS_mremap, [DATA, PAGE, PAGE]), |v, seq| v.reply(seq, HOLE as i64));
}

#[test]
fn pages_that_make_no_sense() {
    if !can_run("pages_that_make_no_sense") {
        return;
    }
    let bad = |runs: Vec<Run>, body: &[u8]| {
        let mut visit = Visit::running(&FOREVER);
        visit.say(&Down::Pages(runs), body);
        visit.refuses("page message");
    };
    let run = |addr, pages, zero| Run { addr, pages, zero };
    // Of a guest that is not there, or is another user's.
    for (pages, sums) in [(1, 1), (0, 0), (u32::MAX, 1), (17, 1), (64, 4)] {
        let mut visit = Visit::running(&FOREVER);
        visit.say(&Down::Known { kin: 5, addr: DATA, pages, sums: vec![[0; 32]; sums] }, &[]);
        visit.refuses("known pages that make no sense");
    }
    bad(vec![run(DATA, 2, false)], &[1; 4096]);
    bad(vec![run(DATA + 1, 1, false)], &[1; 4096]);
    bad(vec![run(DATA, u32::MAX, true)], &[]);
    bad(vec![run(u64::MAX - 4095, 2, true)], &[]);
    bad(vec![run(DATA, 1, true); 5000], &[]);
    let mut visit = Visit::running(&FOREVER);
    // Where no area is: nothing happens.
    for addr in [0, HOLE, HOLE + PAGE, TOP, 0x1234_5000] {
        visit.say(&Down::Pages(vec![run(addr, 1, false)]), &[0xcc; 4096]);
        visit.say(&Down::Pages(vec![run(addr, 1, true)]), &[]);
    }
    std::thread::sleep(Duration::from_millis(50));
    visit.ends_content();
}

#[test]
fn signals_that_there_are_not() {
    if !can_run("signals_that_there_are_not") {
        return;
    }
    for info in [vec![], vec![1; 127], vec![0; 128], vec![65; 128], [vec![9], vec![0; 127]].concat()] {
        let mut visit = Visit::running(&FOREVER);
        visit.say(&Down::Signal(PID, info), &[]);
        visit.refuses("sig");
    }
    // One that nobody handles is home's business.
    let mut visit = Visit::running(&FOREVER);
    visit.say(&Down::Signal(PID, [vec![10], vec![0; 127]].concat()), &[]);
    let why = visit.wait_for(|up, _| if let Up::WantHome(why) = up { Some(why) } else { None });
    assert!(why.contains("signal 10"), "{why}");
    visit.ends_content();
    // More than the kernel queues.
    let mut visit = Visit::running(&FOREVER);
    visit.say(&Down::Pause, &[]);
    for _ in 0..200_000 {
        if visit.chan.send(&Down::Signal(PID, [vec![40], vec![0; 127]].concat()), &[]).is_err() {
            break;
        }
        visit.chan.drain(Duration::from_secs(5));
    }
    visit.refuses("liar");
}

#[test]
fn a_guest_that_changes_the_engines_code_does_not_hold_it_up() {
    if !can_run("a_guest_that_changes_the_engines_code_does_not_hold_it_up") {
        return;
    }
    // mprotect(HOLE, 4096, RWX) by the engine's own instruction. The int3 that follows is caught by a handler, which fills the engine's
    // code with jumps to themselves and then makes a call that the engine has to mirror.
    let mut code = vec![0x48, 0xbf];
    code.extend(HOLE.to_le_bytes());
    code.extend([0xb9, 32, 0, 0, 0, 0x66, 0xb8, 0xeb, 0xfe, 0xf3, 0x66, 0xab]); // 32 times `jmp .`
    code.extend(calling(libc::SYS_mmap, [0, PAGE, 3]));
    let mut beginning = Beginning::of(&code);
    let registers = &mut beginning.context().registers;
    // One entry of the table is left (r12), and its result goes behind rbx.
    (registers[3], registers[5]) = (1, DATA);
    (registers[10], registers[14], registers[13], registers[12]) = (10, HOLE, PAGE, 7);
    registers[liar::home::RIP] = LET_THROUGH;
    let handler: Vec<u8> = [CODE, 0x0400_0000, CODE, 0].map(u64::to_le_bytes).concat();
    beginning.start.handlers = vec![(libc::SIGTRAP, handler)];
    let mut visit = Visit::begun(&beginning);
    let (seq, nr, _) = visit.call();
    assert_eq!(nr as i64, libc::SYS_mmap);
    visit.reply(seq, 0x7000_0000_0000);
    visit.refuses("did not end within");
}
