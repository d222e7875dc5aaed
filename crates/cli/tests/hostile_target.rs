//! A target that has taken a process and lies: home's helper refuses, says who it was and why, and nobody else is harmed.

mod liar;

use liar::Stage;
use liar::target::{Taken, connected, prepared};
use pando_migrate::channel::ChannelError;
use pando_migrate::message::{Context, Down, MAX_MAP_CALLS, MapCall, Owners, Run, Up};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// One lie after which the process is ended, with these words in the log.
fn found_out(why: &str, lie: impl FnOnce(&mut Taken)) {
    let mut taken = Taken::new();
    lie(&mut taken);
    taken.ends_found_out(why);
}

fn page(addr: u64) -> Up {
    Up::Written(vec![Run { addr, pages: 1, zero: false }])
}

#[test]
fn an_honest_end_of_the_stage_works() {
    Taken::new().goes_on();
}

#[test]
fn pages_go_only_into_the_program() {
    for offset in [0, 4096, 9 * 4096] {
        found_out("not the program's", |t| t.say(&page(t.layout.hole + offset), &[0xcc; PAGE]));
    }
    for addr in [1, 0x7fff_ffff_f000, u64::MAX - 4095, u64::MAX] {
        found_out("makes no sense", |t| t.say(&page(addr), &[0xcc; PAGE]));
    }
    let many = |addr, pages, zero| Up::Written(vec![Run { addr, pages, zero }]);
    found_out("makes no sense", |t| t.say(&many(0x10000, u32::MAX, false), &[1; PAGE]));
    found_out("makes no sense", |t| t.say(&many(0x10000, 2, false), &[1; PAGE]));
    found_out("makes no sense", |t| t.say(&many(0x7fff_0000_0000, u32::MAX, true), &[]));
    found_out("not the program's", |t| t.say(&many(t.layout.hole - 4096, 3, true), &[]));
    // Where nothing is mapped there is nothing to harm.
    let mut taken = Taken::new();
    taken.say(&page(0x7000_0000_0000), &[0xcc; PAGE]);
    taken.goes_on();
}

#[test]
fn input_goes_only_into_the_program() {
    found_out("not the program's", |t| t.say(&Up::Input(t.layout.hole + 4090), &[0; 100]));
    found_out("not the program's", |t| t.say(&Up::Input(t.layout.hole - 50), &[0; 100]));
    found_out("not the program's", |t| t.say(&Up::Input(u64::MAX - 10), &[0; 100]));
    found_out("not the program's", |t| _ = t.send_call(libc::SYS_getpid, &[], &[(t.layout.hole, b"x")]));
    found_out("too few bytes", |t| {
        let inputs = vec![(t.place(), u32::MAX)];
        let (tid, seq, signals) = (t.tid(), t.start.calls + 1, t.context.signals);
        t.say(&Up::Call { tid, seq, nr: 1, args: [0; 6], inputs, signals, resumes: false }, &[]);
    });
}

#[test]
fn calls_that_only_home_makes_are_not_made() {
    let calls = [
        libc::SYS_execve,
        libc::SYS_fork,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_vfork,
        libc::SYS_ptrace,
        libc::SYS_seccomp,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_process_madvise,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pkey_mprotect,
        libc::SYS_remap_file_pages,
        libc::SYS_shmat,
        libc::SYS_unshare,
        libc::SYS_setns,
        462, // mseal
        100_000,
        1 << 32,
    ];
    for nr in calls {
        found_out("must not be forwarded", |t| _ = t.send_call(nr, &[], &[]));
    }
    let by_argument: [(i64, &[u64]); 10] = [
        (libc::SYS_prctl, &[libc::PR_SET_SECCOMP as u64, 1]),
        (libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 0]),
        (libc::SYS_prctl, &[libc::PR_SET_MM as u64, 1]),
        (libc::SYS_arch_prctl, &[0x1002, 0]),
        (libc::SYS_arch_prctl, &[0x1012, 0]),
        (libc::SYS_personality, &[0]),
        (libc::SYS_mmap, &[0, 4096, 3, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64, u64::MAX, 0]),
        (libc::SYS_mmap, &[0, 4096, 3, 0x122, u64::MAX, 0]), // MAP_GROWSDOWN
        (libc::SYS_mremap, &[0x10000, 0, 4096, 1]),
        (libc::SYS_madvise, &[0x10000, 4096, libc::MADV_REMOVE as u64]),
    ];
    for (nr, args) in by_argument {
        found_out("must not be forwarded", |t| _ = t.send_call(nr, args, &[]));
    }
}

#[test]
fn the_engines_pages_are_out_of_reach_of_calls() {
    let mut t = Taken::new();
    let (hole, place) = (t.layout.hole, t.place());
    let (page, fixed) = (PAGE as u64, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64);
    let refused = i64::from(libc::EINVAL);
    for at in [hole, hole + page, hole + 9 * page] {
        for (start, len) in [(at, page), (hole - page, 1 << 40), (at - page, u64::MAX - page), (at - page, u64::MAX)] {
            assert_eq!(t.call(libc::SYS_munmap, &[start, len], &[]), -refused, "{start:#x} {len:#x}");
        }
        assert_eq!(t.call(libc::SYS_mprotect, &[at, page, 0], &[]), -refused);
        assert_eq!(t.call(libc::SYS_madvise, &[at, page, libc::MADV_DONTNEED as u64], &[]), -refused);
        assert_eq!(t.call(libc::SYS_mmap, &[at, page, 0, fixed, u64::MAX, 0], &[]), -refused);
        assert_eq!(t.call(libc::SYS_mremap, &[at, page, page, 3, 0x10000], &[]), -refused);
        assert_eq!(t.call(libc::SYS_mremap, &[place & !4095, page, page, 3, at], &[]), -refused);
        assert_eq!(t.call(libc::SYS_read, &[0, at, 1], &[]), -i64::from(libc::EFAULT));
    }
    // An array of buffers that points there.
    let vector = [at_bytes(hole), at_bytes(4)].concat();
    assert_eq!(t.call(libc::SYS_readv, &[0, place, 1], &[(place, &vector)]), -i64::from(libc::EFAULT));
    t.goes_on();
}

fn mapped(nr: i64, args: [u64; 4]) -> Up {
    Up::Mapped(vec![MapCall { nr: nr as u32, args }])
}

#[test]
fn memory_that_changed_abroad_changes_at_home_only_so_far() {
    const OWN: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let (free, page) = (0x1234_5600_0000, PAGE as u64);
    let unasked = "must not be made without home";
    for nr in [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect] {
        found_out(unasked, |t| t.say(&mapped(nr, [t.layout.hole, page, 1, OWN]), &[]));
        found_out(unasked, |t| t.say(&mapped(nr, [t.layout.hole - page, 1 << 40, 1, OWN]), &[]));
        found_out(unasked, |t| t.say(&mapped(nr, [free, u64::MAX - page + 1, 1, OWN]), &[]));
        found_out(unasked, |t| t.say(&mapped(nr, [free, 0, 1, OWN]), &[]));
    }
    for flags in [libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::MAP_PRIVATE, libc::MAP_LOCKED | OWN as i32] {
        found_out(unasked, |t| t.say(&mapped(libc::SYS_mmap, [free, page, 3, flags as u64]), &[]));
    }
    found_out(unasked, |t| t.say(&mapped(libc::SYS_madvise, [free, page, libc::MADV_REMOVE as u64, 0]), &[]));
    found_out(unasked, |t| t.say(&mapped(libc::SYS_write, [1, page, 10, 0]), &[]));
    found_out("out of place", |t| {
        let one = MapCall { nr: libc::SYS_munmap as u32, args: [free, page, 0, 0] };
        t.say(&Up::Mapped(vec![one; MAX_MAP_CALLS + 1]), &[]);
    });
    // What home's kernel refuses, nobody can be told any more.
    let refused = "which fails here";
    found_out(refused, |t| t.say(&mapped(libc::SYS_mmap, [t.place() & !(page - 1), page, 3, OWN]), &[]));
    found_out(refused, |t| t.say(&mapped(libc::SYS_mprotect, [free, page, 1, 0]), &[]));
    found_out(refused, |t| t.say(&mapped(libc::SYS_brk, [1, 0, 0, 0]), &[]));
    // And all that an honest one does.
    let mut t = Taken::new();
    t.say(&mapped(libc::SYS_mmap, [free, 3 * page, 3, OWN]), &[]);
    t.say(&self::page(free), &[0xaa; PAGE]);
    t.say(&mapped(libc::SYS_munmap, [free + page, page, 0, 0]), &[]);
    let there = |t: &mut Taken, at| t.call(libc::SYS_madvise, &[at, page, libc::MADV_NORMAL as u64], &[]);
    assert_eq!([there(&mut t, free), there(&mut t, free + 2 * page)], [0, 0]);
    assert_eq!(there(&mut t, free + page), -i64::from(libc::ENOMEM));
    t.say(&mapped(libc::SYS_munmap, [free, 3 * page, 0, 0]), &[]);
    assert_eq!(there(&mut t, free), -i64::from(libc::ENOMEM));
    t.goes_on();
}

fn at_bytes(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

#[test]
fn forged_calls_have_the_users_rights_and_no_more() {
    if !liar::is_root() {
        eprintln!(
            "SKIPPED forged_calls_have_the_users_rights_and_no_more: it needs root, to have somebody to be kept from"
        );
        return;
    }
    let mut t = Taken::new();
    let place = t.place();
    let denied = |e: i32| -i64::from(e);
    let shadow: &[u8] = b"/etc/shadow\0";
    assert_eq!(t.call(libc::SYS_openat, &[u64::MAX - 99, place, 0, 0], &[(place, shadow)]), denied(libc::EACCES));
    let key = format!("{}/ca.key\0", t.stage.identity_dir("honest"));
    assert_eq!(
        t.call(libc::SYS_openat, &[u64::MAX - 99, place, 0, 0], &[(place, key.as_bytes())]),
        denied(libc::EACCES)
    );
    // The helper, the test in place of the daemon, another user's process, and the machine's first one.
    let mut stranger = std::process::Command::new("sleep").arg("1000").uid(12_321).gid(12_321).spawn().unwrap();
    let (helper, test) = (u64::from(t.deputy.pid()), u64::from(std::process::id()));
    for other in [helper, test, u64::from(stranger.id()), 1] {
        assert_eq!(t.call(libc::SYS_kill, &[other, 9], &[]), denied(libc::EPERM));
        assert_eq!(t.call(libc::SYS_prlimit64, &[other, 0, place, 0], &[(place, &[0; 16])]), denied(libc::EPERM));
        let memory = format!("/proc/{other}/mem\0");
        let opened = t.call(libc::SYS_openat, &[u64::MAX - 99, place, 2, 0], &[(place, memory.as_bytes())]);
        assert_eq!(opened, denied(libc::EACCES));
        let handle = t.call(libc::SYS_pidfd_open, &[other, 0], &[]);
        assert!(handle >= 0);
        assert_eq!(t.call(libc::SYS_pidfd_getfd, &[handle as u64, 0, 0], &[]), denied(libc::EPERM));
        assert_eq!(t.call(libc::SYS_pidfd_send_signal, &[handle as u64, 9, 0, 0], &[]), denied(libc::EPERM));
        assert_eq!(t.call(libc::SYS_tgkill, &[other, other, 9], &[]), denied(libc::EPERM));
        assert_eq!(t.call(libc::SYS_setpriority, &[0, other, 19], &[]), denied(libc::EPERM));
        let one = [1u8, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(t.call(libc::SYS_sched_setaffinity, &[other, 8, place], &[(place, &one)]), denied(libc::EPERM));
        for file in ["environ", "maps", "fd/0", "root/etc", "cwd/.."] {
            let path = format!("/proc/{other}/{file}\0");
            let opened = t.call(libc::SYS_openat, &[u64::MAX - 99, place, 0, 0], &[(place, path.as_bytes())]);
            assert_eq!(opened, denied(libc::EACCES), "{path}");
        }
    }
    assert!(stranger.try_wait().unwrap().is_none(), "nobody has harmed it");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(t.call(libc::SYS_setuid, &[0], &[]), denied(libc::EPERM));
    // What the user may do, it may do: the witness is the same user's. Here it is only asked whether it is there.
    assert_eq!(t.call(libc::SYS_kill, &[u64::from(t.witness.id()), 0], &[]), 0);
    t.goes_on();
}

#[test]
fn the_helper_is_out_of_reach_of_its_own_user() {
    let mut t = Taken::new();
    let (place, helper) = (t.place(), u64::from(t.deputy.pid()));
    for file in ["mem", "fd/0", "environ"] {
        let path = format!("/proc/{helper}/{file}\0");
        let opened = t.call(libc::SYS_openat, &[u64::MAX - 99, place, 0, 0], &[(place, path.as_bytes())]);
        assert_eq!(opened, -i64::from(libc::EACCES), "{path}");
    }
    let handle = t.call(libc::SYS_pidfd_open, &[helper, 0], &[]);
    assert!(handle >= 0);
    assert_eq!(t.call(libc::SYS_pidfd_getfd, &[handle as u64, 0, 0], &[]), -i64::from(libc::EPERM));
    t.goes_on();
}

/// Messages of which any byte may have changed. Of the calls only harmless ones: the others have their user's rights, and in this test
/// that is somebody's account.
fn any_messages(t: &mut Taken, changes: &[(u8, u16, u8)]) {
    let place = t.place();
    let (tid, context) = (t.tid(), Box::new(t.context.clone()));
    let good = [
        Up::Pull(place & !4095, 3),
        Up::StackGrew(t.stack_low() - 4096),
        Up::Input(place),
        Up::Written(vec![Run { addr: place & !4095, pages: 1, zero: false }]),
        Up::WantHome("it does".into()),
        Up::Undelivered,
        Up::Thread(tid, context),
        Up::Frozen { timers: t.timers, cpu_ns: 5, brk: None },
        Up::Usage(7, vec![(tid, 0), (1, 3)]),
        Up::Ask(3, 1, Owners::Unknown),
        Up::Position(1, 4),
        Up::Fetch(1, 2, 3),
        Up::Release(1),
        Up::NotShared(1),
        Up::Renew(9),
        Up::Served(9),
        Up::Ping,
        Up::Call {
            tid,
            seq: t.start.calls + 1,
            nr: 110,
            args: [place; 6],
            inputs: vec![(place, 8)],
            signals: 0,
            resumes: false,
        },
    ];
    let body = t.xstate.clone();
    for &(which, at, to) in changes {
        let mut bytes = postcard::to_stdvec(&good[usize::from(which) % good.len()]).unwrap();
        let at = usize::from(at) % (2 * bytes.len());
        bytes.get_mut(at).into_iter().for_each(|b| *b = to);
        let Ok(up) = postcard::from_bytes::<Up>(&bytes) else { continue };
        let harmless = [libc::SYS_getppid, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_brk, libc::SYS_pause];
        if matches!(up, Up::Call { nr, .. } if !harmless.contains(&(nr as i64))) {
            continue;
        }
        t.say(&up, &body);
    }
}

#[test]
fn any_messages_at_all() {
    bolero::check!().with_type::<Vec<(u8, u16, u8)>>().with_iterations(60).for_each(|changes| {
        let mut t = Taken::new();
        any_messages(&mut t, changes);
        // Home may have hung up already.
        let _ = t.raw().shutdown(std::net::Shutdown::Write);
        while t.hear().is_ok() {}
        t.has_ended_somehow();
    });
}

#[test]
fn the_stack_grows_only_where_a_stack_may() {
    let odd: [fn(&Taken) -> u64; 5] =
        [|t| t.layout.hole, |_| 0, |t| t.stack_low() - 4097, |_| 0x1_0000, |t| (t.place() & !4095) - (1 << 30)];
    for to in odd {
        found_out("a stack", |t| {
            t.say(&Up::StackGrew(to(t)), &[]);
            t.send_call(libc::SYS_getppid, &[], &[]);
        });
    }
    // Above where it is already: nothing to do.
    let mut t = Taken::new();
    t.say(&Up::StackGrew(t.place()), &[]);
    t.say(&Up::StackGrew(u64::MAX), &[]);
    let low = t.stack_low();
    t.say(&Up::StackGrew(low - 8 * PAGE as u64), &[]);
    t.say(&page(low - 8 * PAGE as u64), &[0xaa; PAGE]);
    t.goes_on();
}

#[test]
fn messages_out_of_their_phase_are_refused() {
    let early = |up: Up| {
        let mut taken = Taken::new();
        taken.say(&up, &[]);
        taken.ends_found_out("out of place");
    };
    early(Up::AskClock);
    early(Up::Started);
    early(Up::Prepared { post_copy: true, kin: Vec::new() });
    early(Up::Decline("no".into()));
    found_out("was not asked for", |t| {
        let context = Box::new(t.context.clone());
        t.say(&Up::Thread(t.tid(), context), &t.xstate.clone());
    });
    found_out("was not asked for", |t| t.say_frozen());
    found_out("another page", |t| {
        t.called_home();
        let (tid, context, xstate) = (t.tid(), t.context.clone(), t.xstate.clone());
        t.say_thread(tid, &context, &xstate);
        t.say(&Up::Frozen { timers: t.timers, cpu_ns: 1, brk: Some(t.start.brk + 0x20_0000) }, &[]);
    });
    found_out("signals that it can't have", |t| t.say(&Up::Undelivered, &[0; 128]));
    found_out("was not asked to take", |t| t.say(&Up::Took(vec![(t.place() & !4095, t.place())]), &[]));
    for range in [(0x10000, 0x11000), (0x10001, 0x11000), (0x11000, 0x10000), (0, u64::MAX)] {
        found_out("was not told of", |t| t.say(&Up::Unknown(vec![range]), &[]));
    }
    found_out("lost it", |t| t.say(&Up::Failed("x".repeat(900_000)), &[]));
}

#[test]
fn numbers_count_up_by_one() {
    for offset in [0, 2, u64::MAX, u64::MAX / 2] {
        found_out("call number", |t| {
            let seq = t.start.calls.wrapping_add(offset);
            let up = Up::Call {
                tid: t.tid(),
                seq,
                nr: libc::SYS_getppid as u64,
                args: [0; 6],
                inputs: vec![],
                signals: 0,
                resumes: false,
            };
            t.say(&up, &[]);
        });
    }
    found_out("more signals", |t| {
        let (tid, seq, signals) = (t.tid(), t.start.calls + 1, t.context.signals + 1);
        t.say(
            &Up::Call { tid, seq, nr: libc::SYS_getppid as u64, args: [0; 6], inputs: vec![], signals, resumes: false },
            &[],
        );
    });
    found_out("another one is running", |t| {
        t.send_call(libc::SYS_pause, &[], &[]);
        t.send_call(libc::SYS_getppid, &[], &[]);
    });
    // Times that nobody has had are not believed, and do not overflow.
    let mut t = Taken::new();
    for _ in 0..3 {
        t.say(&Up::Usage(u64::MAX, Vec::new()), &[]);
    }
    t.goes_on();
}

/// Comes home with a changed context.
fn home_with(change: impl FnOnce(&mut Context, &mut Vec<u8>)) -> Taken {
    let mut taken = Taken::new();
    let (mut context, mut xstate) = (taken.context.clone(), taken.xstate.clone());
    change(&mut context, &mut xstate);
    taken.freeze(context, &xstate);
    taken
}

/// Words of `user_regs_struct`.
const RIP: usize = 16;
const CS: usize = 17;
const FLAGS: usize = 18;
const RSP: usize = 19;
const FS_BASE: usize = 21;
const DS: usize = 23;

#[test]
fn registers_that_the_kernel_refuses_are_refused() {
    for (word, value) in [(FS_BASE, u64::MAX), (FS_BASE + 1, 1 << 63), (DS, 0xfff8), (DS + 2, 3 << 3)] {
        home_with(|c, _| c.registers[word] = value).ends_found_out("registers");
    }
    home_with(|c, _| _ = c.registers.pop()).ends_found_out("register set");
    home_with(|c, _| c.registers.clear()).ends_found_out("register set");
    home_with(|c, _| c.xstate += 1).ends_found_out("register set");
    // A part that no CPU has; one more than there is; MXCSR bits that do not exist.
    home_with(|_, x| x[512 + 7] = 1).ends_found_out("extended state");
    let longer = |c: &mut Context, x: &mut Vec<u8>| {
        x.push(0);
        c.xstate += 1;
    };
    home_with(longer).ends_found_out("extended state");
    home_with(|_, x| x[24..28].fill(0xff)).ends_found_out("extended state");
    let short = |c: &mut Context, x: &mut Vec<u8>| {
        x.truncate(100);
        c.xstate = 100;
    };
    home_with(short).ends_found_out("extended state");
}

#[test]
fn registers_of_the_user_are_the_users_business() {
    // Selectors, flags of the system and addresses outside user space: the process may die of them, nothing else.
    home_with(|c, _| c.registers[CS] = 0x10).comes_home();
    home_with(|c, _| c.registers[FLAGS] = !(1 << 8)).comes_home_or_dies();
    home_with(|c, _| c.registers[RIP] = 1 << 63).comes_home_or_dies();
    home_with(|c, _| c.registers[RIP] = 0x8000_0000_0000).comes_home_or_dies();
    home_with(|c, _| c.registers[RSP] = u64::MAX).comes_home_or_dies();
}

#[test]
fn signals_and_timers_that_nobody_sent() {
    let info = |number: i32, code: i32| {
        let mut info = vec![0; 128];
        info[..4].copy_from_slice(&number.to_le_bytes());
        info[8..12].copy_from_slice(&code.to_le_bytes());
        info
    };
    // The program handles none, so those that the kernel takes end it, and only it.
    for number in [1, 9, 5, 34, 64] {
        for code in [0, 0x80, 1, -1, -6] {
            home_with(|c, _| c.undelivered = vec![info(number, code)]).comes_home_or_dies();
        }
    }
    for number in [0, 65, -1, 256 + 9, i32::MAX, i32::MIN] {
        home_with(|c, _| c.undelivered = vec![info(number, 0)]).ends_found_out("signal");
    }
    home_with(|c, _| c.undelivered = vec![vec![9; 3], Vec::new(), vec![0; 500]]).ends_found_out("signal");
    home_with(|c, _| c.undelivered = vec![info(40, -1); 5_000]).comes_home_or_dies();
    let mut taken = Taken::new();
    taken.timers = [[u64::MAX; 4]; 2];
    taken.freeze(taken.context.clone(), &taken.xstate.clone());
    taken.comes_home();
    home_with(|c, _| (c.rseq, c.altstack) = ((u64::MAX - 5, 7, 9), vec![0xff; 24])).comes_home_or_dies();
    home_with(|c, _| (c.in_call, c.mask) = (Some(u64::MAX), u64::MAX)).comes_home();
}

#[test]
fn a_flood_of_questions_waits_for_those_who_ask() {
    let mut t = Taken::new();
    let code = t.areas.iter().filter(|a| a.prot == 5).max_by_key(|a| a.end - a.start).unwrap().start;
    // Answers are a thousand times as large as questions; nobody reads them.
    for _ in 0..20_000 {
        if t.chan.send(&Up::Pull(code, 64), &[]).is_err() || t.chan.wants_write() {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    t.deputy.is_unharmed(0);
    t.ends_found_out_unheard("liar");
}

#[test]
fn a_flood_before_the_commit_ends_the_move_and_not_the_process() {
    let flood = |ready: bool| {
        let mut stage = Stage::new();
        (stage.limits.prepare_ms, stage.limits.freeze_ms) = (500, 500);
        let (stage, mut victim, mut deputy, mut chan) = connected(stage);
        let up = if ready {
            prepared(&mut chan);
            chan.send(&Up::Prepared { post_copy: true, kin: Vec::new() }, &[]).unwrap();
            Up::Ping
        } else {
            assert!(matches!(chan.wait::<Down>(liar::PATIENCE).unwrap().0, Down::Offer(_)));
            Up::AskClock
        };
        let begun = Instant::now();
        // Sent as fast as it goes.
        while begun.elapsed() < Duration::from_secs(15) && chan.send(&up, &[]).is_ok() {
            while chan.wants_write() && chan.flush().is_ok() {}
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "it listens for ever");
        let (outcome, detail) = stage.done();
        assert!(outcome == "failed" && detail.contains("node liar"), "{outcome}: {detail}");
        deputy.ends_well();
        let tracer = std::fs::read_to_string(format!("/proc/{}/status", victim.id())).unwrap();
        assert!(tracer.contains("TracerPid:\t0"), "it is still held");
        victim.kill().unwrap();
        victim.wait().unwrap();
    };
    flood(false);
    flood(true);
}

#[test]
fn silence_and_half_a_frame_are_a_lost_node() {
    let mut stage = Stage::new();
    stage.limits.lost_after_ms = 600;
    let taken = Taken::on(stage);
    taken.ends_found_out("no answer within 600 ms");
    let mut stage = Stage::new();
    stage.limits.lost_after_ms = 600;
    let taken = Taken::on(stage);
    // The header of a frame, and no more.
    taken.raw().write_all(&[5, 0, 0, 0, 0, 0, 1, 0]).unwrap();
    taken.ends_found_out("no answer within 600 ms");
    let taken = Taken::new();
    taken.raw().write_all(&[0xff; 64]).unwrap();
    taken.ends_found_out("a frame of more than");
    let taken = Taken::new();
    taken
        .raw()
        .write_all(&[2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18])
        .unwrap();
    taken.ends_found_out("tampered");
    let taken = Taken::new();
    taken.raw().shutdown(std::net::Shutdown::Both).unwrap();
    taken.ends_found_out("closed the connection");
}

#[test]
fn pages_that_wait_for_a_call_have_a_limit() {
    let mut t = Taken::new();
    let fixed = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let length = 4u64 << 30;
    let big = t.call(libc::SYS_mmap, &[0, length, 3, fixed, u64::MAX, 0], &[]) as u64;
    let pipe = t.place();
    assert_eq!(t.call(libc::SYS_pipe2, &[pipe, 0], &[]), 0);
    // The first two descriptors that are free.
    t.send_call(libc::SYS_read, &[3, big, 0x7fff_f000], &[]);
    let body = vec![7; 1 << 18];
    for i in 0..(length >> 18) {
        let run = Run { addr: big + (i << 18), pages: 64, zero: false };
        if t.chan.send(&Up::Written(vec![run]), &[&body]).is_err() {
            break;
        }
        t.chan.drain(Duration::from_secs(5));
        if matches!(t.chan.next_frame::<Down>(), Err(ChannelError::Closed | ChannelError::Io(_))) {
            break;
        }
    }
    t.ends_found_out("wait for a call");
}
