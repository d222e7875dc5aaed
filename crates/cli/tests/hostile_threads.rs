//! Lies about threads, by a target and by a home: the honest side says who it was and why, and nothing is left.

mod liar;

use liar::target::Taken;
use liar::until;
use pando_kernel::inject::THREAD_FLAGS;
use pando_migrate::message::{Context, Run, Up};

const THREAD: u64 = THREAD_FLAGS as u64;
/// Words of `user_regs_struct`.
const RAX: usize = 10;
const ORIG_RAX: usize = 15;
const FS_BASE: usize = 21;

/// A process with a second thread, which was made while it was at the liar.
fn two() -> (Taken, i32) {
    let mut taken = Taken::new();
    let born = taken.birth();
    assert!(born > 1, "{born}");
    (taken, born)
}

/// The same, and one lie.
fn found_out(why: &str, lie: impl FnOnce(&mut Taken, i32)) {
    let (mut taken, born) = two();
    lie(&mut taken, born);
    taken.ends_found_out(why);
}

/// A thread that will wait for ever in the place where the first one waits: in pause(2), which is made again.
fn resting(taken: &Taken) -> Context {
    let mut context = Context { rseq: (0, 0, 0), in_call: None, ..taken.context.clone() };
    (context.registers[ORIG_RAX], context.registers[RAX]) = (libc::SYS_pause as u64, -514i64 as u64);
    context
}

/// All threads, and the process, come home.
fn all_home(mut taken: Taken, others: &[i32]) {
    taken.called_home();
    let (context, xstate) = (taken.context.clone(), taken.xstate.clone());
    taken.say_thread(taken.tid(), &context, &xstate);
    let resting = resting(&taken);
    for &tid in others {
        taken.say_thread(tid, &resting, &xstate);
    }
    taken.say_frozen();
    let (pid, count) = (taken.tid(), format!("Threads:\t{}\n", others.len() + 1));
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    until("all run at home", || status().contains(&count) && status().contains("TracerPid:\t0\n"));
    taken.comes_home();
}

#[test]
fn an_honest_second_thread_works() {
    let (mut t, born) = two();
    assert_eq!(t.call_of(born, libc::SYS_gettid, &[], &[]), i64::from(born));
    let waits = t.send_call(libc::SYS_pause, &[], &[]);
    assert_eq!(t.call_of(born, libc::SYS_gettid, &[], &[]), i64::from(born), "while another one waits");
    let third = t.call_of(born, libc::SYS_clone, &[THREAD], &[]) as i32;
    assert_eq!(t.call_of(born, libc::SYS_exit, &[0], &[]), 0);
    t.context.in_call = Some(waits);
    all_home(t, &[third]);
}

#[test]
fn calls_of_threads_that_there_are_not() {
    let odd: [fn(&Taken, i32) -> i32; 8] = [
        |_, _| 0,
        |_, _| 1,
        |_, _| -1,
        |_, _| i32::MIN,
        |_, _| i32::MAX,
        |t, _| -t.tid(),
        |t, _| t.witness.id() as i32,
        |t, _| t.deputy.pid() as i32,
    ];
    for tid in odd {
        found_out("which there is not", |t, born| _ = t.send_call_of(tid(t, born), libc::SYS_getppid, &[], &[]));
    }
    found_out("which there is not", |t, born| {
        assert_eq!(t.call_of(born, libc::SYS_exit, &[0], &[]), 0);
        t.send_call_of(born, libc::SYS_getppid, &[], &[]);
    });
    found_out("another one is running", |t, born| {
        t.send_call_of(born, libc::SYS_pause, &[], &[]);
        t.send_call_of(born, libc::SYS_getppid, &[], &[]);
    });
    // On its way out it makes no more.
    let (mut t, born) = two();
    t.send_call_of(born, libc::SYS_exit, &[0], &[]);
    t.send_call_of(born, libc::SYS_exit, &[0], &[]);
    while t.hear().is_ok() {}
    let (outcome, detail) = t.stage.done();
    assert!(outcome == "failed" && detail.contains("node liar sent a call"), "{outcome}: {detail}");
}

#[test]
fn only_threads_are_born() {
    let flags = [
        0,
        libc::SIGCHLD as u64,
        libc::CLONE_VM as u64,
        (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
        libc::CLONE_NEWUSER as u64,
        THREAD & !(libc::CLONE_THREAD as u64),
        THREAD & !(libc::CLONE_VM as u64),
        THREAD & !(libc::CLONE_FILES as u64),
        THREAD | libc::SIGCHLD as u64,
        THREAD | libc::CLONE_NEWUSER as u64,
        THREAD | libc::CLONE_NEWNET as u64,
        THREAD | libc::CLONE_UNTRACED as u64,
        THREAD | libc::CLONE_PTRACE as u64,
        THREAD | libc::CLONE_PARENT as u64,
        THREAD | libc::CLONE_PIDFD as u64,
        THREAD | libc::CLONE_VFORK as u64,
    ];
    for flags in flags {
        found_out("must not be forwarded", |t, born| {
            _ = t.send_call_of(born, libc::SYS_clone, &[flags, t.place()], &[]);
        });
    }
    found_out("must not be forwarded", |t, born| _ = t.send_call_of(born, libc::SYS_clone3, &[t.place(), 88], &[]));
    // What is written at a birth is not written into the engine, nor where no program is; the stack and the TLS are the guest's affair.
    let (mut t, born) = two();
    let mut others = vec![born];
    let flags = THREAD | (libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_SETTID | libc::CLONE_SETTLS) as u64;
    let hole = t.layout.hole;
    for place in [hole - 3, hole, hole + 4090, hole + 9 * 4096, u64::MAX, u64::MAX - 4, 1 << 63, 0x7fff_ffff_f000, 0] {
        let number = t.send_call_of(born, libc::SYS_clone, &[flags, 7, place, place, u64::MAX], &[]);
        others.push(t.wait_for(|down, _| match down {
            pando_migrate::message::Down::Reply { seq, ret, outputs } if seq == number => {
                assert!(outputs.iter().all(|&(at, len)| at == 0 && len == 4), "{place:#x}: {outputs:x?}");
                Some(ret as i32)
            }
            _ => None,
        }));
    }
    all_home(t, &others);
}

#[test]
fn the_first_thread_ends_last() {
    found_out("must not be forwarded", |t, _| _ = t.send_call(libc::SYS_exit, &[0], &[]));
    let (mut t, born) = two();
    assert_eq!(t.call_of(born, libc::SYS_exit, &[0], &[]), 0);
    t.send_call(libc::SYS_exit, &[7], &[]);
    t.has_ended("ended");
    let (mut t, born) = two();
    t.send_call_of(born, libc::SYS_exit_group, &[7], &[]);
    t.has_ended("ended");
}

/// Comes home with a changed second thread.
fn home_with(change: impl FnOnce(&mut Context, &mut Vec<u8>)) -> Taken {
    let (mut t, born) = two();
    t.called_home();
    let (mut context, mut xstate) = (resting(&t), t.xstate.clone());
    change(&mut context, &mut xstate);
    t.say_thread(t.tid(), &t.context.clone(), &t.xstate.clone());
    t.say_thread(born, &context, &xstate);
    t.say_frozen();
    t
}

#[test]
fn all_threads_come_home_once_and_whole() {
    home_with(|_, _| {}).comes_home();
    let say_first = |t: &mut Taken| t.say_thread(t.tid(), &t.context.clone(), &t.xstate.clone());
    let say = |t: &mut Taken, tid: i32| t.say_thread(tid, &t.context.clone(), &t.xstate.clone());
    found_out("not all of it", |t, _| {
        t.called_home();
        t.say_frozen();
    });
    found_out("not all of it", |t, _| {
        t.called_home();
        say_first(t);
        t.say_frozen();
    });
    found_out("not all of it", |t, born| {
        t.called_home();
        say(t, born);
        t.say_frozen();
    });
    // One that is born after the others have been frozen.
    found_out("not all of it", |t, born| {
        t.called_home();
        say_first(t);
        say(t, born);
        t.birth();
        t.say_frozen();
    });
    found_out("was not asked for", |t, born| {
        t.called_home();
        say(t, born);
        say(t, born);
    });
    for odd in [0, 1, -1, i32::MIN, i32::MAX] {
        found_out("was not asked for", |t, _| {
            t.called_home();
            say(t, odd);
        });
    }
    found_out("was not asked for", say);
    home_with(|c, _| _ = c.registers.pop()).ends_found_out("register set");
    home_with(|c, _| c.registers = vec![0; 100_000]).ends_found_out("register set");
    home_with(|c, _| c.xstate += 1).ends_found_out("register set");
    home_with(|c, x| {
        x.resize(1 << 20, 0);
        c.xstate = 1 << 20;
    })
    .ends_found_out("register set");
    home_with(|c, x| {
        x.truncate(100);
        c.xstate = 100;
    })
    .ends_found_out("extended state");
    home_with(|_, x| x[512 + 40] = 1).ends_found_out("extended state");
    home_with(|c, _| c.registers[FS_BASE] = u64::MAX).ends_found_out("registers");
    for size in [0, 23, 25, 100_000] {
        home_with(|c, _| c.altstack = vec![1; size]).ends_found_out("signal stack");
    }
    home_with(|c, _| (c.rseq, c.robust, c.tid_address) = ((3, 5, 7), (8, 9), u64::MAX)).comes_home_or_dies();
    home_with(|c, _| (c.in_call, c.mask, c.cpu_abroad_ns) = (Some(u64::MAX), u64::MAX, u64::MAX)).comes_home();
}

#[test]
fn signals_of_other_threads_are_counted_too() {
    found_out("more signals", |t, tid| {
        let (seq, nr) = (t.last_seq() + 1, libc::SYS_getppid as u64);
        t.say(&Up::Call { tid, seq, nr, args: [0; 6], inputs: vec![], signals: 1, resumes: false }, &[]);
    });
    found_out("more signals", |t, born| t.say(&Up::Usage(1, vec![(born, 1)]), &[]));
    home_with(|c, _| c.signals = 1).ends_found_out("more signals");
    let info = |number: u8| [vec![number], vec![0; 127]].concat();
    home_with(|c, _| c.undelivered = vec![info(65)]).ends_found_out("a signal that there is not");
    home_with(|c, _| c.undelivered = vec![info(9)]).comes_home_or_dies();
    home_with(|c, _| c.undelivered = vec![info(40); 3_000]).comes_home_or_dies();
    // Threads do not multiply what may come along.
    found_out("more signals than may come along", |t, born| {
        t.called_home();
        let mut context = resting(t);
        context.undelivered = vec![info(40); 60_000];
        for tid in [t.tid(), born] {
            t.say_thread(tid, &context, &t.xstate.clone());
        }
    });
    // Of threads that have ended anything may be said.
    let (mut t, born) = two();
    assert_eq!(t.call_of(born, libc::SYS_exit, &[0], &[]), 0);
    t.say(&Up::Usage(1, [born, 0, -1, 1, i32::MIN].map(|tid| (tid, u64::MAX)).to_vec()), &[]);
    t.goes_on();
}

#[test]
fn endless_births_end_at_the_users_limit() {
    if !liar::is_root() {
        eprintln!("SKIPPED endless_births_end_at_the_users_limit: it needs root, to have a user with nothing else");
        return;
    }
    let (mut t, born) = two();
    let place = t.place();
    let limit: Vec<u8> = [200u64, 200].map(u64::to_le_bytes).concat();
    let nproc = u64::from(libc::RLIMIT_NPROC);
    assert_eq!(t.call(libc::SYS_prlimit64, &[0, nproc, place, 0], &[(place, &limit)]), 0);
    let mut others = vec![born];
    let last = loop {
        match t.birth() {
            tid if tid > 1 => others.push(tid),
            other => break other,
        }
        assert!(others.len() < 300, "it never ends");
    };
    assert_eq!(last, -libc::EAGAIN);
    assert!(others.len() > 20, "{}", others.len());
    all_home(t, &others);
}

#[test]
fn killed_at_home_with_threads_it_has_ended() {
    for round in 0..20 {
        let (mut t, _) = two();
        // A thread is taken out of its sleep while the process is killed.
        std::thread::sleep(std::time::Duration::from_micros(100 * round));
        t.say(&Up::StackGrew(t.stack_low() - 4096), &[]);
        t.say(&Up::Input(t.place()), b"x");
        t.victim.kill().unwrap();
        t.has_ended("ended");
    }
}

/// One of many things that a target may say of one of its threads.
fn any(t: &mut Taken, tid: i32, what: u8) {
    let call = |t: &mut Taken, nr: i64, args: &[u64]| _ = t.send_call_of(tid, nr, args, &[]);
    match what % 12 {
        0 | 1 => call(t, libc::SYS_clone, &[THREAD]),
        2 => call(t, libc::SYS_exit, &[0]),
        3 => call(t, libc::SYS_pause, &[]),
        4 => call(t, libc::SYS_getppid, &[]),
        5 => call(t, libc::SYS_munmap, &[t.place(), 4096]),
        6 => t.say(&Up::WantHome("it does".into()), &[]),
        7 | 8 => t.say_thread(tid, &resting(t), &t.xstate.clone()),
        9 => t.say_frozen(),
        10 => t.say(&Up::Usage(5, vec![(tid, 0)]), &[]),
        _ => t.say(&Up::Written(vec![Run { addr: t.place() & !4095, pages: 1, zero: false }]), &[7; 4096]),
    }
}

#[test]
fn any_order_at_all() {
    bolero::check!().with_type::<Vec<(u8, u8)>>().with_iterations(60).for_each(|steps| {
        let (mut t, born) = two();
        for &(who, what) in steps {
            let tid = [t.tid(), born, born + 1, born][usize::from(who) % 4];
            any(&mut t, tid, what);
        }
        // Home may have hung up already.
        let _ = t.raw().shutdown(std::net::Shutdown::Write);
        while t.hear().is_ok() {}
        t.has_ended_somehow();
    });
}
