//! Polling, sleeping, timers and signals.

use std::time::Duration;

use libc as n;

use crate::arena::{Arena, Call, Case, must};

extern "C" fn nothing(_: i32) {}

/// A signal with a handler comes to this thread soon, several times, lest it comes before the call.
fn interrupt() {
    // SAFETY: the handler does nothing.
    unsafe {
        let mut action: n::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        n::sigaction(n::SIGUSR1, &action, std::ptr::null_mut());
    }
    let (pid, tid) = (u64::from(std::process::id()), must(n::SYS_gettid, &[]));
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(80));
        must(n::SYS_tgkill, &[pid, tid, n::SIGUSR1 as u64]);
    });
}

fn polled(a: &mut Arena) -> u64 {
    let (ready, idle) = (a.pipe_with(b"x"), a.pipe().0);
    a.ints(&[ready as i32, 0x7fff_0001, idle as i32, 0x7fff_0001, -1, 1])
}

fn set(a: &mut Arena, fd: u64) -> u64 {
    let mut words = [0u64; 2];
    words[(fd / 64) as usize] |= 1 << (fd % 64);
    a.words(&words)
}

fn watched(a: &mut Arena, count: u64) -> u64 {
    let epoll = must(n::SYS_epoll_create1, &[0]);
    for i in 0..count {
        let fd = a.pipe_with(b"x");
        let mut event = vec![1, 0, 0, 0];
        event.extend((0x1122_3344_5566_7700 + i).to_le_bytes());
        let event = a.put(&event);
        must(n::SYS_epoll_ctl, &[epoll, 1, fd, event]);
    }
    epoll
}

/// A queued, blocked SIGUSR2.
fn pending(a: &mut Arena) -> u64 {
    let mask = a.words(&[1 << (n::SIGUSR2 - 1)]);
    must(n::SYS_rt_sigprocmask, &[0, mask, 0, 8]);
    must(n::SYS_tgkill, &[u64::from(std::process::id()), must(n::SYS_gettid, &[]), n::SIGUSR2 as u64]);
    mask
}

fn take_pending() -> Vec<u8> {
    let (mask, no_time) = ([1u64 << (n::SIGUSR2 - 1)], [0u64; 2]);
    let ret = crate::arena::sys(n::SYS_rt_sigtimedwait, &[mask.as_ptr() as u64, 0, no_time.as_ptr() as u64, 8]);
    vec![ret as u8]
}

fn timer_fd(a: &mut Arena) -> u64 {
    let fd = must(n::SYS_timerfd_create, &[1, 0]);
    must(n::SYS_timerfd_settime, &[fd, 0, a.words(&[5, 0, 100, 0]), 0]);
    fd
}

pub const CASES: &[Case] = &[
    ("poll", |a| Call::new(n::SYS_poll, &[polled(a), 3, 1000])),
    ("poll, interrupted", |a| {
        let fd = a.pipe().0;
        interrupt();
        Call::new(n::SYS_poll, &[a.ints(&[fd as i32, 0x7fff_0001]), 1, 5000])
    }),
    ("ppoll", |a| Call::new(n::SYS_ppoll, &[polled(a), 3, a.words(&[5, 0]), a.words(&[0]), 8]).unstable()),
    ("ppoll, interrupted", |a| {
        let fd = a.pipe().0;
        interrupt();
        let fds = a.ints(&[fd as i32, 0x7fff_0001]);
        Call::new(n::SYS_ppoll, &[fds, 1, a.words(&[5, 0]), a.words(&[0]), 8]).unstable()
    }),
    ("select", |a| {
        let (ready, idle) = (a.pipe_with(b"x"), a.pipe().0);
        let (read, except) = (set(a, ready), set(a, idle));
        Call::new(n::SYS_select, &[100, read, 0, except, a.words(&[5, 0])]).unstable()
    }),
    ("select, times out", |a| {
        let idle = a.pipe().0;
        Call::new(n::SYS_select, &[100, set(a, idle), 0, 0, a.words(&[0, 20_000])])
    }),
    ("select, interrupted", |a| {
        let idle = a.pipe().0;
        interrupt();
        Call::new(n::SYS_select, &[100, set(a, idle), 0, 0, a.words(&[5, 0])]).unstable()
    }),
    ("select, bad descriptor", |a| Call::new(n::SYS_select, &[100, set(a, 99), 0, 0, a.words(&[5, 0])]).unstable()),
    ("pselect6", |a| {
        let ready = a.pipe_with(b"x");
        let (read, mask) = (set(a, ready), a.words(&[0]));
        Call::new(n::SYS_pselect6, &[100, read, 0, 0, a.words(&[5, 0]), a.words(&[mask, 8])]).unstable()
    }),
    ("epoll_ctl", |a| {
        let (epoll, fd) = (must(n::SYS_epoll_create1, &[0]), a.pipe_with(b"x"));
        Call::new(n::SYS_epoll_ctl, &[epoll, 1, fd, a.put(&[1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])]).probe(move || {
            let events = [0u8; 24];
            must(n::SYS_epoll_wait, &[epoll, events.as_ptr() as u64, 2, 0]);
            std::hint::black_box(events).to_vec()
        })
    }),
    ("epoll_wait", |a| Call::new(n::SYS_epoll_wait, &[watched(a, 3), a.room(120), 10, 100])),
    ("epoll_wait, nothing", |a| Call::new(n::SYS_epoll_wait, &[watched(a, 0), a.room(120), 10, 0])),
    ("epoll_pwait", |a| Call::new(n::SYS_epoll_pwait, &[watched(a, 3), a.room(24), 2, 100, a.words(&[0]), 8])),
    ("epoll_pwait2", |a| {
        let (epoll, events) = (watched(a, 1), a.room(24));
        Call::new(n::SYS_epoll_pwait2, &[epoll, events, 2, a.words(&[0, 100]), a.words(&[0]), 8])
    }),
    ("nanosleep", |a| Call::new(n::SYS_nanosleep, &[a.words(&[0, 1000]), a.room(16)])),
    ("nanosleep, interrupted", |a| {
        interrupt();
        Call::new(n::SYS_nanosleep, &[a.words(&[5, 0]), a.room(16)]).unstable()
    }),
    ("nanosleep, wrong", |a| Call::new(n::SYS_nanosleep, &[a.words(&[0, u64::MAX]), a.room(16)])),
    ("clock_nanosleep, interrupted", |a| {
        interrupt();
        Call::new(n::SYS_clock_nanosleep, &[1, 0, a.words(&[5, 0]), a.room(16)]).unstable()
    }),
    ("clock_nanosleep to a time, interrupted", |a| {
        interrupt();
        Call::new(n::SYS_clock_nanosleep, &[1, 1, a.words(&[1 << 40, 0]), a.room(16)])
    }),
    ("clock_gettime", |a| Call::new(n::SYS_clock_gettime, &[11, a.room(16)]).unstable()),
    ("clock_getres", |a| Call::new(n::SYS_clock_getres, &[9, a.room(16)])),
    ("gettimeofday", |a| Call::new(n::SYS_gettimeofday, &[a.room(16), a.room(8)]).unstable()),
    ("adjtimex", |a| Call::new(n::SYS_adjtimex, &[a.put(&[0; 208])]).unstable()),
    ("setitimer", |a| Call::new(n::SYS_setitimer, &[0, a.words(&[0, 0, 0, 0]), a.room(32)])),
    ("getitimer", |a| Call::new(n::SYS_getitimer, &[0, a.room(32)])),
    ("timer_create", |a| {
        let mut event = vec![0u8; 64];
        event[12] = 1; // SIGEV_NONE
        Call::new(n::SYS_timer_create, &[1, a.put(&event), a.room(4)]).unstable()
    }),
    ("timerfd_settime", |a| {
        let fd = timer_fd(a);
        Call::new(n::SYS_timerfd_settime, &[fd, 0, a.words(&[0, 0, 7, 0]), a.room(32)]).unstable()
    }),
    ("timerfd_gettime", |a| Call::new(n::SYS_timerfd_gettime, &[timer_fd(a), a.room(32)]).unstable()),
    ("rt_sigaction", |a| {
        let action = a.words(&[1, 0, 0, 0]);
        Call::new(n::SYS_rt_sigaction, &[n::SIGWINCH as u64, action, a.room(32), 8]).probe(|| {
            let default = [0u64; 4];
            must(n::SYS_rt_sigaction, &[n::SIGWINCH as u64, default.as_ptr() as u64, 0, 8]);
            Vec::new()
        })
    }),
    ("rt_sigaction, wrong", |a| Call::new(n::SYS_rt_sigaction, &[9, a.words(&[1, 0, 0, 0]), a.room(32), 8])),
    ("rt_sigprocmask", |a| Call::new(n::SYS_rt_sigprocmask, &[0, a.words(&[0]), a.room(8), 8])),
    ("sigaltstack", |a| Call::new(n::SYS_sigaltstack, &[0, a.room(24)])),
    ("rt_sigpending", |a| {
        pending(a);
        Call::new(n::SYS_rt_sigpending, &[a.room(8), 8]).probe(take_pending)
    }),
    ("rt_sigtimedwait", |a| {
        let mask = pending(a);
        Call::new(n::SYS_rt_sigtimedwait, &[mask, a.room(128), a.words(&[5, 0]), 8])
    }),
    ("rt_sigtimedwait, times out", |a| {
        let mask = a.words(&[1 << (n::SIGUSR2 - 1)]);
        Call::new(n::SYS_rt_sigtimedwait, &[mask, a.room(128), a.words(&[0, 1000]), 8])
    }),
    ("rt_sigsuspend, interrupted", |a| {
        interrupt();
        Call::new(n::SYS_rt_sigsuspend, &[a.words(&[0]), 8])
    }),
    ("rt_sigqueueinfo", |a| {
        let mask = a.words(&[1 << (n::SIGUSR2 - 1)]);
        must(n::SYS_rt_sigprocmask, &[0, mask, 0, 8]);
        let mut info = vec![0u8; 128];
        info[8] = 0xff;
        info[9..12].fill(0xff); // SI_QUEUE
        let (pid, tid) = (u64::from(std::process::id()), must(n::SYS_gettid, &[]));
        Call::new(n::SYS_rt_tgsigqueueinfo, &[pid, tid, n::SIGUSR2 as u64, a.put(&info)]).probe(take_pending)
    }),
    ("read from signalfd", |a| {
        let mask = pending(a);
        let fd = must(n::SYS_signalfd4, &[u64::MAX, mask, 8, 0]);
        Call::new(n::SYS_read, &[fd, a.room(300), 300])
    }),
];
