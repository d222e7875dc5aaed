//! Plans over a memory that is partly elsewhere.

use std::collections::BTreeMap;

use libc as n;
use pando_calls::{Class, Memory, NativeRule, Plan, Range, class, clock_owner, natives, outputs, plan, temporary_mask};

const PAGE: u64 = 4096;
const BASE: u64 = 0x7f00_0000_0000;

/// Pages that are here, or absent but mapped; others are not mapped.
#[derive(Default)]
struct Pages(BTreeMap<u64, Option<Vec<u8>>>);

impl Pages {
    fn here(pages: u64) -> Pages {
        let mut p = Pages::default();
        (0..pages).for_each(|i| drop(p.0.insert(BASE + i * PAGE, Some(vec![0; PAGE as usize]))));
        p
    }

    fn absent(mut self, page: u64) -> Pages {
        self.0.insert(BASE + page * PAGE, None);
        self
    }

    fn with(mut self, at: u64, bytes: &[u8]) -> Pages {
        for (i, byte) in bytes.iter().enumerate() {
            let addr = BASE + at + i as u64;
            if let Some(Some(page)) = self.0.get_mut(&(addr & !(PAGE - 1))) {
                page[(addr % PAGE) as usize] = *byte;
            }
        }
        self
    }

    fn words(self, at: u64, words: &[u64]) -> Pages {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.with(at, &bytes)
    }
}

impl Memory for Pages {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        let Some(Some(page)) = self.0.get(&(addr & !(PAGE - 1))) else {
            return 0;
        };
        let from = (addr % PAGE) as usize;
        let len = buf.len().min(page.len() - from);
        buf[..len].copy_from_slice(&page[from..from + len]);
        len
    }

    fn can_pull(&mut self, page: u64) -> bool {
        self.0.get(&page).is_some_and(Option::is_none)
    }
}

fn r(at: u64, len: u64) -> Range {
    Range { addr: BASE + at, len }
}

fn planned(nr: i64, args: &[u64], memory: &mut Pages) -> Plan {
    plan(nr as u64, &six(args), memory)
}

fn six(args: &[u64]) -> [u64; 6] {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    all
}

fn inputs(nr: i64, args: &[u64], memory: &mut Pages) -> Vec<Range> {
    match planned(nr, args, memory) {
        Plan::Forward { inputs, .. } => inputs,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_string_ends_at_its_end() {
    let mut memory = Pages::here(2).with(100, b"/etc/passwd\0");
    assert_eq!(inputs(n::SYS_open, &[BASE + 100], &mut memory), [r(100, 12)]);
    // Across the end of a page.
    let mut memory = Pages::here(2).with(PAGE - 3, b"abcdef\0");
    assert_eq!(inputs(n::SYS_open, &[BASE + PAGE - 3], &mut memory), [r(PAGE - 3, 7)]);
    // No end.
    let mut memory = Pages::here(3).with(0, &[b'x'; 9000]);
    assert_eq!(inputs(n::SYS_open, &[BASE + 10], &mut memory), [r(10, 4096)]);
}

#[test]
fn a_string_goes_on_after_an_absent_page() {
    // It may end in the absent page or go on in the next, which may be newer than the one at home.
    let mut memory = Pages::here(2).absent(0).with(PAGE, b"def\0");
    assert_eq!(inputs(n::SYS_open, &[BASE + PAGE - 3], &mut memory), [r(PAGE - 3, 7)]);
    let mut memory = Pages::here(2).absent(1).with(PAGE - 3, b"abc");
    assert_eq!(inputs(n::SYS_open, &[BASE + PAGE - 3], &mut memory), [r(PAGE - 3, 4096)]);
}

#[test]
fn nested_pointers_are_pulled_first() {
    let args = [1, BASE + PAGE - 16, 3];
    let mut memory = Pages::here(1).absent(1);
    assert_eq!(planned(n::SYS_writev, &args, &mut memory), Plan::NeedPages(vec![BASE + PAGE]));
    let mut memory = Pages::here(1).absent(0).absent(1);
    assert_eq!(planned(n::SYS_writev, &args, &mut memory), Plan::NeedPages(vec![BASE, BASE + PAGE]));
    let mut memory = Pages::here(2).words(PAGE - 16, &[BASE + 64, 5, 0, 0, BASE + 128, 6]);
    assert_eq!(inputs(n::SYS_writev, &args, &mut memory), [r(PAGE - 16, 48), r(64, 5), r(128, 6)]);
    // Not mapped: the kernel fails, and home may find that out itself.
    let mut memory = Pages::here(1);
    assert_eq!(inputs(n::SYS_writev, &args, &mut memory), [r(PAGE - 16, 48)]);
}

#[test]
fn a_message_header_leads_to_pages() {
    let header = [BASE + PAGE, 16, BASE + 2 * PAGE, 2, BASE + 300, 24, 0];
    let mut memory = Pages::here(1).absent(1).absent(2).words(0, &header);
    // The name and the data are not looked into.
    assert_eq!(planned(n::SYS_sendmsg, &[1, BASE], &mut memory), Plan::NeedPages(vec![BASE + 2 * PAGE]));
    let mut memory = Pages::here(3).words(0, &header).words(2 * PAGE, &[BASE + 400, 4, BASE + 500, 5]);
    assert_eq!(
        inputs(n::SYS_sendmsg, &[1, BASE], &mut memory),
        [r(0, 56), r(PAGE, 16), r(300, 24), r(2 * PAGE, 32), r(400, 4), r(500, 5)]
    );
}

#[test]
fn select_reads_sets_time_and_mask() {
    let mut memory = Pages::here(1).words(512, &[BASE + 600, 8]);
    let args = [65, BASE, 0, BASE + 64, BASE + 128, BASE + 512];
    let sets = [r(0, 16), r(64, 16), r(128, 16)];
    assert_eq!(inputs(n::SYS_pselect6, &args, &mut memory), [&sets[..], &[r(512, 16), r(600, 8)]].concat());
    let after = |ret, memory: &mut Pages| outputs(n::SYS_pselect6 as u64, &args, ret, memory);
    assert_eq!(after(1, &mut memory), sets);
    assert_eq!(after(-4, &mut memory), sets);
    assert_eq!(after(-22, &mut memory), []);
}

#[test]
fn outputs_are_what_was_written() {
    let mut memory = Pages::here(1).words(0, &[BASE + 64, 5, BASE + 128, 6]);
    let args = six(&[0, BASE, 2]);
    let readv = |ret, memory: &mut Pages| outputs(n::SYS_readv as u64, &args, ret, memory);
    assert_eq!(readv(0, &mut memory), []);
    assert_eq!(readv(-11, &mut memory), []);
    assert_eq!(readv(3, &mut memory), [r(64, 3)]);
    assert_eq!(readv(7, &mut memory), [r(64, 5), r(128, 2)]);
    assert_eq!(readv(700, &mut memory), [r(64, 5), r(128, 6)]);
    let sleep = |ret| outputs(n::SYS_nanosleep as u64, &six(&[BASE, BASE + 16]), ret, &mut Pages::default());
    assert_eq!(sleep(0), []);
    assert_eq!(sleep(-22), []);
    assert_eq!(sleep(-4), [r(16, 16)]);
    assert_eq!(sleep(-516), [r(16, 16)]);
}

#[test]
fn too_many_vectors_are_none() {
    let mut memory = Pages::here(8);
    assert_eq!(inputs(n::SYS_writev, &[1, BASE, 1025], &mut memory), []);
    let mut memory = Pages::here(1).words(0, &[BASE, 1 << 63]);
    assert_eq!(inputs(n::SYS_writev, &[1, BASE, 1], &mut memory), [r(0, 16)]);
}

#[test]
fn ioctls_by_their_number() {
    let request = |dir: u64, size: u64, family: u8| dir << 30 | size << 16 | u64::from(family) << 8 | 1;
    let flat = [3, request(3, 24, b'q'), BASE];
    let mut memory = Pages::here(1).words(0, &[5, 1 << 20, u64::MAX]);
    let whole = vec![r(0, 24)];
    assert_eq!(planned(n::SYS_ioctl, &flat, &mut memory), Plan::Forward { inputs: whole.clone(), outputs_max: whole });
    // Something like a pointer in what goes in.
    let mut memory = Pages::here(1).words(0, &[5, BASE, 0]);
    assert!(matches!(planned(n::SYS_ioctl, &flat, &mut memory), Plan::Home(_)));
    // What only comes out may have held anything.
    assert_eq!(inputs(n::SYS_ioctl, &[3, request(2, 24, b'q'), BASE], &mut memory), [r(0, 24)]);
    let mut memory = Pages::here(1).absent(0);
    assert_eq!(planned(n::SYS_ioctl, &flat, &mut memory), Plan::NeedPages(vec![BASE]));
    for unknown in [request(3, 24, b'd'), request(0, 0, b'q'), 0x5999, 0x8912, 0x8946] {
        let class = class(n::SYS_ioctl as u64, &six(&[3, unknown, BASE]));
        assert!(matches!(class, Class::Home(_)), "{unknown:x}");
    }
}

#[test]
fn calls_by_their_command() {
    let home = |nr: i64, args: &[u64]| matches!(class(nr as u64, &six(args)), Class::Home(_));
    assert!(home(n::SYS_prctl, &[n::PR_SET_MM as u64]));
    assert!(home(n::SYS_prctl, &[n::PR_SET_DUMPABLE as u64, 0]));
    assert!(!home(n::SYS_prctl, &[n::PR_SET_DUMPABLE as u64, 1]));
    assert!(home(n::SYS_fcntl, &[0, 12345]));
    assert!(home(n::SYS_semctl, &[0, 0, 13]));
    assert!(home(n::SYS_timer_create, &[2]));
    assert!(!home(n::SYS_timer_create, &[1]));
    assert!(home(n::SYS_clock_nanosleep, &[2]));
    assert!(home(n::SYS_personality, &[0x4_0000]));
    for nr in [n::SYS_execve, n::SYS_shmat, n::SYS_io_uring_enter, n::SYS_ptrace, 4000] {
        assert!(home(nr, &[]), "{nr}");
    }
    assert_eq!(class(57, &[0; 6]), Class::Birth);
    assert_eq!(planned(57, &[], &mut Pages::default()), Plan::Home("it called fork"));
    assert_eq!(class(4000, &[0; 6]), Class::Home("it made a call that is not known"));
}

#[test]
fn classes() {
    let of = |nr: i64, args: &[u64]| class(nr as u64, &six(args));
    assert_eq!(of(n::SYS_getpid, &[]), Class::Native);
    assert_eq!(of(n::SYS_futex, &[0, 128]), Class::Native);
    // With priority inheritance, and wake and operate, which has a second word.
    assert_eq!(of(n::SYS_futex, &[BASE, 6 | 128]), Class::Words([BASE, BASE]));
    assert_eq!(of(n::SYS_futex, &[BASE, 5, 1, 1, BASE + 8]), Class::Words([BASE, BASE + 8]));
    // To requeue between kinds of futexes, and what there is no longer.
    for operation in [2, 11, 12, 99] {
        assert!(matches!(of(n::SYS_futex, &[BASE, operation]), Class::Home(_)), "{operation}");
    }
    for nr in [n::SYS_clone, n::SYS_clone3, n::SYS_fork, n::SYS_vfork] {
        assert_eq!(of(nr, &[]), Class::Birth);
    }
    assert_eq!(of(n::SYS_clock_gettime, &[1]), Class::Native);
    assert_eq!(of(n::SYS_clock_gettime, &[2]), Class::CpuTime);
    assert_eq!(of(n::SYS_clock_gettime, &[11]), Class::Forward);
    assert_eq!(of(n::SYS_setitimer, &[0]), Class::Forward);
    assert_eq!(of(n::SYS_setitimer, &[1]), Class::CpuTimer);
    assert_eq!(of(n::SYS_rt_sigaction, &[]), Class::Both);
    assert_eq!(of(n::SYS_mmap, &[0, 4096, 3, 0x22]), Class::Memory);
    assert!(matches!(of(n::SYS_mmap, &[0, 4096, 3, 0x21]), Class::Home(_)), "shared memory");
    assert_eq!(of(n::SYS_getrusage, &[]), Class::CpuTime);
    assert_eq!(of(n::SYS_restart_syscall, &[]), Class::Forward);
    for rule in natives() {
        let NativeRule { nr, arg } = *rule;
        let mut args = [0; 6];
        if let Some((i, values)) = arg {
            args[usize::from(i)] = u64::from(values[0]);
        }
        assert!(matches!(class(u64::from(nr), &args), Class::Native | Class::CpuTimer), "{rule:?}");
    }
}

#[test]
fn clocks_have_owners() {
    assert_eq!(clock_owner(2), Some(0));
    assert_eq!(clock_owner(3), Some(0));
    assert_eq!(clock_owner(1), None);
    // What clock_getcpuclockid gives for process 1234, and the clock of descriptor 5.
    assert_eq!(clock_owner((!1234i32 << 3 | 2) as u64), Some(1234));
    assert_eq!(clock_owner((!5i32 << 3 | 3) as u64), None);
    assert_eq!(clock_owner(u64::from((!1234i32 << 3 | 6) as u32)), Some(1234));
}

#[test]
fn masks_while_waiting() {
    let mut memory = Pages::here(1).words(0, &[0x55, BASE, 8]);
    let mut mask = |nr: i64, args: &[u64]| temporary_mask(nr as u64, &six(args), &mut memory);
    assert_eq!(mask(n::SYS_rt_sigsuspend, &[BASE]), Some(0x55));
    assert_eq!(mask(n::SYS_ppoll, &[0, 0, 0, BASE]), Some(0x55));
    assert_eq!(mask(n::SYS_ppoll, &[0, 0, 0, 0]), None);
    assert_eq!(mask(n::SYS_pselect6, &[0, 0, 0, 0, 0, BASE + 8]), Some(0x55));
    assert_eq!(mask(n::SYS_epoll_pwait, &[0, 0, 0, 0, BASE]), Some(0x55));
    assert_eq!(mask(n::SYS_poll, &[BASE]), None);
}
