//! Code inside a guest that a lying home has put there: what it can do at the target by the target's own kernel is to compute, and to
//! use memory and threads up to a limit.

mod liar;

use liar::home::{Beginning, CODE, DATA, FOREVER, LET_THROUGH, PID, RIP, Visit, calling, can_run};
use pando_kernel::inject::THREAD_FLAGS;
use pando_migrate::message::{Down, Run, Up};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
/// Words of `user_regs_struct`.
const RAX: usize = 10;
const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
/// No kernel has calls beyond this yet.
const LAST_CALL: u32 = 480;
/// Threads of one guest that each try one call.
const AT_ONCE: usize = 160;
/// Made after the call that is tried: who gets so far has had an answer.
const MARKER: u32 = libc::SYS_getppid as u32;
const X32: u32 = 0x4000_0000;

/// `syscall` or `int 0x80`, the marker, and no more.
fn trying(instruction: [u8; 2]) -> Vec<u8> {
    let marker = [0xb8, MARKER as u8, 0, 0, 0, 0x0f, 0x05];
    [&instruction[..], &marker[..], &FOREVER[..]].concat()
}

/// How often all threads are found held before it is believed.
const LOOKS: u32 = 4;

/// Which of these calls, each made by its own thread with `arg` as all arguments, were answered here, without home.
fn answered_here(instruction: [u8; 2], numbers: &[u32], arg: u64) -> BTreeSet<u32> {
    let mut beginning = Beginning::of(&trying(instruction));
    beginning.pages[0].1[0x800..0x802].copy_from_slice(&FOREVER);
    beginning.context().registers[RIP] = CODE + 0x800;
    beginning.pages.push((DATA, vec![0; PAGE as usize]));
    let tid = |i: usize| 100 + i as i32;
    for (i, &nr) in numbers.iter().enumerate() {
        beginning.add_thread(tid(i));
        let registers = &mut beginning.threads[i + 1].1.registers;
        registers[RIP] = CODE;
        registers[RAX] = u64::from(nr);
        ARGUMENTS.iter().for_each(|&r| registers[r] = arg);
    }
    let mut visit = Visit::begun(&beginning);
    let (_, body) = visit.sandbox();
    let mut here = BTreeSet::new();
    // Held in its own call a thread may still be answered here, and be held again in the marker: so more than one look.
    for _ in 0..LOOKS {
        liar::until("every thread is held", || {
            let Ok(threads) = fs::read_dir(format!("/proc/{body}/task")) else {
                panic!("calls {numbers:?}: the guest has ended: {:?}", visit.stage.done());
            };
            let held =
                |path: std::path::PathBuf| fs::read_to_string(path.join("wchan")).is_ok_and(|w| w.contains("seccomp"));
            threads.flatten().filter(|t| held(t.path())).count() == numbers.len()
        });
        visit.say(&Down::Ping, &[]);
        // Everything that came before this has come.
        visit.wait_for(|up, _| match up {
            Up::Call { tid, nr, .. } => {
                let own = numbers[(tid - 100) as usize];
                if nr == u64::from(MARKER) && own != MARKER {
                    here.insert(own);
                }
                None
            }
            Up::Usage(..) => Some(()),
            _ => None,
        });
    }
    visit.ends_content();
    here
}

/// What concerns only the guest's own threads, clocks and memory. A longer list than this one wants a thought. With arguments that are
/// not 0 the calls of the second list mean something else.
fn harmless(arg: u64) -> BTreeSet<u32> {
    use libc::*;
    const FUTEX_WAKE_2: i64 = 454; // and _wait, _requeue
    let always = [
        [SYS_sched_yield, SYS_getpid, SYS_gettid, SYS_gettimeofday, SYS_time, SYS_getcpu, SYS_getrandom],
        [
            SYS_membarrier,
            SYS_rseq,
            SYS_set_robust_list,
            SYS_set_tid_address,
            SYS_futex_waitv,
            SYS_sigaltstack,
            FUTEX_WAKE_2,
        ],
    ];
    let with_0 = [SYS_get_robust_list, SYS_futex, SYS_clock_gettime, SYS_clock_getres];
    let with_0 = with_0.into_iter().filter(|_| arg == 0);
    always.into_iter().flatten().chain([FUTEX_WAKE_2 + 1, FUTEX_WAKE_2 + 2]).chain(with_0).map(|nr| nr as u32).collect()
}

/// These bring other threads to a stop: each is tried alone.
const BIRTHS: [i64; 4] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone3];

/// The end of a signal handler that there is not: home is told of the mask in its frame, or the guest faults.
const END_OF_HANDLER: u32 = libc::SYS_rt_sigreturn as u32;

/// Newer kernels (6.14, 6.18) show these to no filter. Made by a program, the first is SIGILL and the second the error ENXIO.
const UNFILTERED: [u32; 2] = [URETPROBE, UPROBE];
const URETPROBE: u32 = 335;
const UPROBE: u32 = 336;

#[test]
fn no_call_but_the_harmless_is_made_here() {
    if !can_run("no_call_but_the_harmless_is_made_here") {
        return;
    }
    let alone = |nr: &u32| BIRTHS.contains(&i64::from(*nr)) || UNFILTERED.contains(nr) || *nr == END_OF_HANDLER;
    let all: Vec<u32> = (0..=LAST_CALL).filter(|nr| !alone(nr)).collect();
    for arg in [0, DATA] {
        let mut here = BTreeSet::new();
        all.chunks(AT_ONCE).for_each(|some| here.extend(answered_here([0x0f, 0x05], some, arg)));
        assert_eq!(here, harmless(arg), "with the argument {arg:#x}");
    }
    for nr in BIRTHS {
        let mut visit = Visit::running(&calling(nr, [0; 3]));
        visit.wait_for(|up, _| matches!(up, Up::Call { .. } | Up::WantHome(_)).then_some(()));
        visit.sandbox();
        visit.ends_content();
    }
    assert!(answered_here([0x0f, 0x05], &[UPROBE], 0).is_subset(&BTreeSet::from([UPROBE])));
    let mut visit = Visit::running(&calling(URETPROBE.into(), [0; 3]));
    let why = visit.wait_for(|up, _| if let Up::WantHome(why) = up { Some(why) } else { None });
    assert!(why.contains("signal 4") || why.contains("call"), "{why}");
    visit.ends_content();
}

#[test]
fn no_call_of_another_kernel_interface_is_made_here() {
    if !can_run("no_call_of_another_kernel_interface_is_made_here") {
        return;
    }
    let all: Vec<u32> = (0..=LAST_CALL).collect();
    for some in all.chunks(AT_ONCE) {
        // As the 32-bit kernel counts them; as x32 does.
        assert_eq!(answered_here([0xcd, 0x80], some, 0), BTreeSet::new());
        let x32: Vec<u32> = some.iter().map(|nr| nr | X32).collect();
        assert_eq!(answered_here([0x0f, 0x05], &x32, 0), BTreeSet::new());
    }
}

/// Makes `nr` in the engine's own code, where the filter lets the engine's calls through.
fn by_the_engines_code(nr: i64, args: [u64; 6]) -> Visit {
    let mut beginning = Beginning::of(&FOREVER);
    let registers = &mut beginning.context().registers;
    (registers[RAX], registers[RIP]) = (nr as u64, LET_THROUGH);
    ARGUMENTS.iter().zip(args).for_each(|(&r, arg)| registers[r] = arg);
    Visit::begun(&beginning)
}

#[test]
fn the_engines_instruction_is_no_way_out() {
    if !can_run("the_engines_instruction_is_no_way_out") {
        return;
    }
    use libc::*;
    let ways = [
        // Files, the network, what others have.
        [SYS_open, SYS_openat, SYS_openat2, SYS_socket, SYS_connect, SYS_sendmsg, SYS_recvmsg, SYS_ioctl],
        [SYS_read, SYS_write, SYS_dup, SYS_fcntl, SYS_memfd_create, SYS_mknod, SYS_bind, SYS_name_to_handle_at],
        // Other processes.
        [SYS_kill, SYS_tgkill, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_open, 0, 1],
        [SYS_pidfd_getfd, SYS_kcmp, SYS_prlimit64, SYS_process_madvise, SYS_process_mrelease, SYS_execve, 0, 1],
        // Namespaces and roots.
        [SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_open_tree, SYS_clone3],
        [SYS_move_mount, SYS_fsopen, SYS_fsmount, SYS_mount_setattr, SYS_sethostname, SYS_fork, SYS_vfork, 0],
        // The rest of what kernels have been broken by, and the supervisor's own.
        [SYS_io_uring_setup, SYS_bpf, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_perf_event_open, 0, 1],
        [SYS_userfaultfd, SYS_seccomp, SYS_prctl, SYS_shmget, SYS_semget, SYS_msgget, SYS_setuid, SYS_capset],
        [SYS_io_setup, SYS_timer_create, SYS_mlock, SYS_mlockall, SYS_remap_file_pages, SYS_modify_ldt, 0, 1],
        [SYS_setrlimit, SYS_sched_setscheduler, SYS_setpriority, SYS_reboot, SYS_init_module, SYS_iopl, 0, 1],
    ];
    let ways: BTreeSet<i64> = ways.into_iter().flatten().collect();
    for nr in ways {
        by_the_engines_code(nr, [0; 6]).refuses("a call that no guest makes");
    }
    // Memory that would stay when its pages are let go here, or that other limits than the guest's count.
    let flags = [MAP_SHARED, MAP_SHARED_VALIDATE, MAP_PRIVATE | MAP_HUGETLB, MAP_PRIVATE | MAP_LOCKED, 4, 8];
    for flags in flags.map(|f| (f | MAP_ANONYMOUS) as u64).into_iter().chain([MAP_PRIVATE as u64]) {
        by_the_engines_code(SYS_mmap, [0, PAGE, 3, flags, u64::MAX, 0]).refuses("a call that no guest makes");
    }
}

fn lines<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|l| l.strip_prefix(key)).flat_map(str::split_ascii_whitespace).collect()
}

#[test]
fn nothing_of_this_machine_is_in_the_sandbox() {
    if !can_run("nothing_of_this_machine_is_in_the_sandbox") {
        return;
    }
    let visit = Visit::running(&FOREVER);
    let (init, body) = visit.sandbox();
    let status = fs::read_to_string(format!("/proc/{body}/status")).unwrap();
    let ours = fs::read_to_string("/proc/self/status").unwrap();
    for caps in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(lines(&status, caps), ["0000000000000000"], "{caps}");
    }
    assert_eq!((lines(&status, "NoNewPrivs:"), lines(&status, "Seccomp:")), (vec!["1"], vec!["2"]));
    assert_eq!(lines(&status, "NSpid:").last(), Some(&PID.to_string().as_str()));
    if liar::is_root() {
        assert!(lines(&status, "Uid:").iter().all(|uid| uid.parse::<u32>().unwrap() >= 0x7000_0000), "{status}");
        assert!(lines(&status, "Gid:").iter().all(|gid| gid.parse::<u32>().unwrap() >= 0x7000_0000), "{status}");
        assert_eq!(lines(&status, "Groups:"), Vec::<&str>::new());
    } else {
        assert_eq!(lines(&status, "Uid:"), lines(&ours, "Uid:"));
    }
    let spaces = ["mnt", "pid", "net", "ipc", "uts", "time"].iter().chain((!liar::is_root()).then_some(&"user"));
    for space in spaces {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{space}")).unwrap();
        assert_ne!(of(&body.to_string()), of("self"), "{space}");
    }
    let list = |path: String| fs::read_dir(path).unwrap().flatten().map(|e| e.file_name()).collect::<Vec<_>>();
    assert_eq!(list(format!("/proc/{body}/fd")).len(), 0, "no descriptors");
    assert_eq!(list(format!("/proc/{body}/root/")).len(), 0, "an empty root");
    let made = fs::File::create(format!("/proc/{body}/root/file"));
    assert!(made.is_err() || !liar::is_root(), "nothing can be put there");
    let devices = fs::read_to_string(format!("/proc/{body}/net/dev")).unwrap();
    assert!(devices.lines().skip(2).all(|l| l.trim_start().starts_with("lo:")), "{devices}");
    // The init has its line to the helper, and the next thread id. Nothing else lives there.
    assert!(list(format!("/proc/{init}/fd")).len() <= 2);
    assert_eq!(list(format!("/proc/{init}/root/")).len(), 0);
    for pid in [init, body] {
        assert_eq!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(), "1000");
    }
    let limits = fs::read_to_string(format!("/proc/{body}/limits")).unwrap();
    assert!(limits.lines().any(|l| l.starts_with("Max locked memory         0 ")), "{limits}");
    visit.ends_content();
}

/// Asks for 4 GiB, counts so far, and writes to each page of them.
fn glutton(patience: u64) -> Vec<u8> {
    let mut code = vec![0x48, 0xb8];
    code.extend((libc::SYS_mmap as u64).to_le_bytes());
    code.extend([0x31, 0xff, 0x48, 0xbe]);
    code.extend((4u64 << 30).to_le_bytes());
    code.extend([0xba, 3, 0, 0, 0, 0x41, 0xba, 0x22, 0, 0, 0, 0x0f, 0x05]);
    code.extend([0x48, 0xb9]);
    code.extend(patience.to_le_bytes());
    code.extend([0x48, 0xff, 0xc9, 0x75, 0xfb]); // 1: dec rcx; jnz 1
    // 1: mov byte [rax], 1; add rax, 4096; jmp 1
    code.extend([0xc6, 0x00, 0x01, 0x48, 0x05, 0, 0x10, 0, 0, 0xeb, 0xf5]);
    code
}

#[test]
fn memory_has_a_limit() {
    if !can_run("memory_has_a_limit") {
        return;
    }
    let mut visit = Visit::with(|l| (l.guest_memory_mb, l.lost_after_ms) = (64, 1_500));
    visit.is_prepared();
    visit.has_begun(&Beginning::of(&glutton(1)));
    let (seq, nr, _) = visit.call();
    assert_eq!(nr as i64, libc::SYS_mmap);
    visit.reply(seq, 0x7000_0000_0000);
    // An honest home would take it back now.
    let why = visit.wait_for(|up, _| if let Up::WantHome(why) = up { Some(why) } else { None });
    assert!(why.contains("than a guest gets here, 64 MiB"), "{why}");
    let (_, body) = visit.sandbox();
    let used = || pando_kernel::procfs::footprint(body as i32) >> 20;
    liar::until("it stands still", || {
        fs::read_to_string(format!("/proc/{body}/stat")).is_ok_and(|s| s.contains(") t "))
    });
    let then = used();
    assert!((64..1024).contains(&then), "{then} MiB");
    let (mut most, mut alive) = (then, true);
    while alive {
        visit.say(&Down::Ping, &[]);
        most = most.max(used());
        alive = liar::state(body).is_some_and(|s| s != 'Z');
    }
    assert_eq!(most, then, "it took no more");
    let text = visit.stage.logged("its home did not take it back");
    assert!(text.contains("liar"), "{text}");
    while visit.hear().is_ok() {}
    visit.guest.ends_well();
}

#[test]
fn threads_have_a_limit() {
    if !can_run("threads_have_a_limit") {
        return;
    }
    const MOST: u32 = 10;
    let mut visit = Visit::with(|l| l.guest_threads = MOST);
    visit.is_prepared();
    visit.has_begun(&Beginning::of(&calling(libc::SYS_clone, [u64::from(THREAD_FLAGS), 0, 0])));
    // All threads make threads. Several ask at once before they are many.
    let mut born = 4000;
    let why = loop {
        match visit.hear().expect("the helper goes on speaking").0 {
            Up::Call { seq, .. } => {
                visit.reply(seq, born);
                born += 1;
            }
            Up::Pull(addr, _) => visit.say(&Down::Pages(vec![Run { addr, pages: 1, zero: true }]), &[]),
            Up::WantHome(why) => break why,
            _ => {}
        }
    };
    assert!(why.contains("than a guest gets here, 10"), "{why}");
    let (_, body) = visit.sandbox();
    let threads = fs::read_dir(format!("/proc/{body}/task")).unwrap().count() as u32;
    assert!((MOST..=2 * MOST).contains(&threads), "{threads}");
    let limits = fs::read_to_string(format!("/proc/{body}/limits")).unwrap();
    let kernels = lines(&limits, "Max processes").first().and_then(|w| w.parse::<u32>().ok());
    assert!(kernels.is_some_and(|k| k < 10 * MOST), "{limits}");
    visit.ends_content();
    // As many at once are not taken in.
    let mut visit = Visit::with(|l| l.guest_threads = MOST);
    visit.is_prepared();
    let mut beginning = Beginning::of(&FOREVER);
    (100..100 + MOST as i32).for_each(|tid| beginning.add_thread(tid));
    visit.begin(&beginning);
    visit.refuses("more threads than a guest gets here, 10");
}

/// The groups of the guest, as `/proc/PID/cgroup` has them; where there are none the test is skipped.
fn groups_of(test: &str, visit: &Visit) -> Vec<(String, PathBuf)> {
    let (_, body) = visit.sandbox();
    let all = fs::read_to_string(format!("/proc/{body}/cgroup")).unwrap();
    let name = format!("pando-guest-{}", visit.guest.pid());
    let ours = all.lines().filter(|l| l.ends_with(&name)).map(|line| {
        let (controller, path) = line.split_once(':').unwrap().1.split_once(':').unwrap();
        (controller.to_string(), Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')))
    });
    let ours: Vec<_> = ours.collect();
    if ours.is_empty() {
        eprintln!("SKIPPED {test}: no control group can be made here:\n{all}");
    }
    ours
}

#[test]
fn the_kernel_knows_the_limits_too() {
    if !can_run("the_kernel_knows_the_limits_too") {
        return;
    }
    let mut visit = Visit::with(|l| (l.guest_memory_mb, l.guest_threads, l.lost_after_ms) = (64, 10, 30_000));
    visit.is_prepared();
    visit.has_begun(&Beginning::of(&glutton(1 << 31)));
    let groups = groups_of("the_kernel_knows_the_limits_too", &visit);
    for (controller, dir) in &groups {
        let file = if controller == "pids" { "pids.max" } else { "memory.limit_in_bytes" };
        let bound: u64 = fs::read_to_string(dir.join(file)).unwrap().trim().parse().unwrap();
        assert!(bound < if controller == "pids" { 100 } else { 512 << 20 }, "{controller}: {bound}");
    }
    if groups.iter().any(|g| g.0 == "memory") {
        // Nobody looks while it takes what it can.
        let (seq, ..) = visit.call();
        visit.reply(seq, 0x7000_0000_0000);
        let (_, body) = visit.sandbox();
        let helper = visit.guest.pid() as i32;
        let ended = || matches!(liar::state(body), None | Some('Z'));
        let runs = || fs::read_to_string(format!("/proc/{body}/wchan")).is_ok_and(|w| w == "0");
        // A page that it faults on may be with the helper, which then must not stand still: another try.
        liar::until("the kernel ends it", || {
            pando_kernel::signal::kill(helper, libc::SIGCONT).unwrap();
            liar::until("it runs on", || ended() || runs());
            pando_kernel::signal::kill(helper, libc::SIGSTOP).unwrap();
            (0..100).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                ended()
            })
        });
        pando_kernel::signal::kill(helper, libc::SIGCONT).unwrap();
        visit.refuses("no more memory for it: a guest gets 64 MiB");
    } else {
        visit.ends_content();
    }
    for (_, dir) in groups {
        assert!(!dir.exists(), "{} is left", dir.display());
    }
}
