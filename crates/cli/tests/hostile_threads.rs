//! Lies about threads, by a target and by a home: the honest side says who it was and why, and nothing is left.

mod liar;

use liar::home::{Beginning, CODE, FOREVER, HOLE, LET_THROUGH, PID, RIP, Visit, calling, can_run, context, layout};
use liar::target::Taken;
use liar::until;
use pando_kernel::inject::THREAD_FLAGS;
use pando_migrate::message::{Context, Down, MAX_THREADS, Run, Up};
use std::time::Duration;

const THREAD: u64 = THREAD_FLAGS as u64;
/// Words of `user_regs_struct`.
const RAX: usize = 10;
const RDI: usize = 14;
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
    assert_eq!(t.call_of(born, libc::SYS_getppid, &[], &[]), i64::from(std::process::id()));
    let waits = t.send_call(libc::SYS_pause, &[], &[]);
    assert_eq!(t.call_of(born, libc::SYS_getppid, &[], &[]), i64::from(std::process::id()), "another one waits");
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
    // The end of a thread is not taken for that of the process.
    found_out("which there is not", |t, born| {
        t.send_call_of(born, libc::SYS_exit, &[0], &[]);
        t.send_call_of(-7, libc::SYS_getppid, &[], &[]);
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
            Down::Reply { seq, ret, outputs } if seq == number => {
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
    home_with(|_, x| x[512 + 7] = 1).ends_found_out("extended state");
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
        std::thread::sleep(Duration::from_micros(100 * round));
        t.say(&Up::StackGrew(t.stack_low() - 4096), &[]);
        t.say(&Up::Input(t.place()), b"x");
        t.victim.kill().unwrap();
        t.has_ended("ended");
    }
    for round in 0..20 {
        let (mut t, born) = two();
        let victim = t.tid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(500 * round));
            pando_kernel::signal::kill(victim, libc::SIGKILL).unwrap();
        });
        // Its node does not know yet, and asks for calls of threads that are gone.
        loop {
            let number = t.send_call_of(born, libc::SYS_getppid, &[], &[]);
            let answered =
                |down: &Down| matches!(down, Down::Reply { seq, .. } | Down::Interrupted { seq, .. } if *seq == number);
            let answer = loop {
                match t.hear() {
                    Ok((down, _)) if answered(&down) => break true,
                    Ok(_) => {}
                    Err(_) => break false,
                }
            };
            if !answer {
                break;
            }
        }
        killer.join().unwrap();
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

/// A start that is refused. Its first thread is there already.
fn bad_start(why: &str, change: impl FnOnce(&mut Beginning)) {
    let (mut visit, mut beginning) = (Visit::prepared(), Beginning::of(&FOREVER));
    change(&mut beginning);
    visit.begin(&beginning);
    visit.refuses(why);
}

#[test]
fn threads_of_a_start_that_make_no_sense() {
    if !can_run("threads_of_a_start_that_make_no_sense") {
        return;
    }
    bad_start("without its first thread", |b| b.threads.clear());
    bad_start("without its first thread", |b| b.threads[0].0 = 77);
    bad_start("without its first thread", |b| {
        b.add_thread(77);
        b.threads.swap(0, 1);
    });
    for tid in [77, PID] {
        bad_start("comes twice", |b| {
            b.add_thread(77);
            b.add_thread(tid);
        });
    }
    for tid in [1, 0, -1, -PID, i32::MIN, i32::MAX, (1 << 22) + 1] {
        bad_start("an id that no thread has", |b| b.add_thread(tid));
    }
    let mut visit = Visit::prepared();
    visit.say(&Down::Areas(layout().areas), &[]);
    visit.say(&Down::Areas(layout().areas), &[]);
    visit.refuses("not Areas");
    let second = |why: &str, change: fn(&mut Context, &mut Vec<u8>)| {
        bad_start(why, |b| {
            b.add_thread(77);
            let (_, context, state) = &mut b.threads[1];
            change(context, state);
        });
    };
    second("register set", |c, _| c.registers.clear());
    second("register set", |c, _| c.xstate -= 1);
    second("extended state", |_, x| x[512 + 7] = 1);
    second("registers", |c, _| c.registers[FS_BASE] = u64::MAX);
    second("signal stack", |c, _| c.altstack.clear());
    second("rseq", |c, _| c.rseq = (3, 5, 7));
    second("robust", |c, _| c.robust = (8, 9));
    second("signal", |c, _| c.undelivered = vec![[vec![19], vec![0; 127]].concat()]);
    bad_start("too many", |b| {
        b.add_thread(77);
        b.threads.iter_mut().for_each(|t| t.1.undelivered = vec![[vec![40], vec![0; 127]].concat(); 60_000]);
    });
}

#[test]
fn threads_beyond_all_limits() {
    if !can_run("threads_beyond_all_limits") {
        return;
    }
    let mut visit = Visit::prepared();
    let nothing = Context { xstate: 0, ..context() };
    for tid in 2..=MAX_THREADS as i32 + 2 {
        visit.say_thread(tid, &nothing, &[]);
    }
    visit.refuses("more others than a process may have");
    // As many as a machine has room for.
    let (mut visit, mut beginning) = (Visit::prepared(), Beginning::of(&FOREVER));
    (2..500).for_each(|tid| beginning.add_thread(tid));
    visit.begin(&beginning);
    visit.wait_for(|up, _| matches!(up, Up::Started | Up::Failed(_)).then_some(()));
    visit.ends_content();
}

/// The guest of a thread that makes threads is told a lie; it ends for `why`.
fn bad_birth(why: &str, lie: impl FnOnce(&mut Visit, u64)) {
    let mut beginning = Beginning::of(&calling(libc::SYS_clone, [THREAD, 0, 0]));
    let mut other = context();
    other.registers[RIP] = CODE + 0x800;
    beginning.pages[0].1[0x800..0x802].copy_from_slice(&FOREVER);
    beginning.add_thread(77);
    beginning.threads[1].1.registers = other.registers;
    let mut visit = Visit::begun(&beginning);
    let (tid, seq, nr, args) = visit.call_of();
    assert_eq!((tid, nr as i64, args[0]), (PID, libc::SYS_clone, THREAD));
    lie(&mut visit, seq);
    visit.refuses(why);
}

#[test]
fn births_that_make_no_sense() {
    if !can_run("births_that_make_no_sense") {
        return;
    }
    for id in [0, 1, 77, i64::from(PID), 1 << 22 | 1, 1 << 31, 1 << 32 | 99, i64::MAX, -4096, i64::MIN] {
        bad_birth("a new thread with the id", |v, seq| v.reply(seq, id));
    }
    bad_birth("which nobody made", |v, seq| (0..3).for_each(|_| v.reply(seq, 99)));
    bad_birth("that writes at", |v, seq| {
        v.say(&Down::Reply { seq, ret: 99, outputs: vec![(HOLE, 4)] }, &[1; 4]);
    });
    for tid in [99, 0, 1, -1, i32::MIN] {
        bad_birth("which there is not", |v, _| v.say(&Down::Signal(tid, [vec![40], vec![0; 127]].concat()), &[]));
    }
}

#[test]
fn a_thread_that_is_born_and_one_that_ends() {
    if !can_run("a_thread_that_is_born_and_one_that_ends") {
        return;
    }
    // All threads make threads, for ever.
    let mut visit = Visit::running(&calling(libc::SYS_clone, [THREAD, 0, 0]));
    let mut seen = Vec::new();
    for born in 4000..4100 {
        let (tid, seq, ..) = visit.call_of();
        seen.push(tid);
        visit.reply(seq, born);
    }
    assert!(seen.contains(&PID) && seen.iter().filter(|t| (4000..4100).contains(*t)).count() > 10, "{seen:?}");
    visit.ends_content();
    // The second thread ends, and no signal reaches it any more.
    let mut beginning = Beginning::of(&calling(libc::SYS_exit, [0; 3]));
    beginning.pages[0].1[0x800..0x802].copy_from_slice(&FOREVER);
    beginning.context().registers[RIP] = CODE + 0x800;
    beginning.add_thread(77);
    let mut visit = Visit::begun(&beginning);
    let (tid, seq, ..) = visit.call_of();
    assert_eq!(tid, 77);
    visit.reply(seq, -1);
    std::thread::sleep(Duration::from_millis(200));
    visit.say(&Down::Signal(77, [vec![40], vec![0; 127]].concat()), &[]);
    visit.refuses("which there is not");
    // The first one does not end before the others.
    let mut beginning = Beginning::of(&calling(libc::SYS_exit, [0; 3]));
    beginning.add_thread(77);
    beginning.threads[1].1.registers[RIP] = CODE + 0x800;
    beginning.pages[0].1[0x800..0x802].copy_from_slice(&FOREVER);
    let mut visit = Visit::begun(&beginning);
    visit.wait_for(|up, _| matches!(up, Up::WantHome(why) if why.contains("first thread")).then_some(()));
    visit.ends_content();
}

/// A program that makes `nr` with the first argument `flags` in the engine's own code, where the filter lets the engine's calls through.
fn jumping(nr: i64, flags: u64) -> Visit {
    let mut beginning = Beginning::of(&FOREVER);
    let registers = &mut beginning.context().registers;
    (registers[RAX], registers[RDI], registers[RIP]) = (nr as u64, flags, LET_THROUGH);
    Visit::begun(&beginning)
}

#[test]
fn threads_made_behind_our_back() {
    if !can_run("threads_made_behind_our_back") {
        return;
    }
    for flags in [THREAD, THREAD | 1 << 32, THREAD | 1 << 63] {
        jumping(libc::SYS_clone, flags).refuses("a thread that the program made behind our back");
    }
    // Anything but a thread like the others is the end (SIGSYS).
    let odd = [
        0,
        libc::SIGCHLD as u64,
        libc::CLONE_NEWUSER as u64,
        (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
        THREAD & !(libc::CLONE_THREAD as u64),
        THREAD | libc::CLONE_NEWUSER as u64,
        THREAD | libc::CLONE_UNTRACED as u64,
        THREAD | libc::CLONE_SETTLS as u64,
        THREAD | libc::SIGCHLD as u64,
    ];
    for flags in odd {
        jumping(libc::SYS_clone, flags).refuses("a call that no guest makes");
    }
    // So is what the engine never injects.
    for nr in [libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone3, libc::SYS_unshare, libc::SYS_execve] {
        jumping(nr, 0).refuses("a call that no guest makes");
    }
}
