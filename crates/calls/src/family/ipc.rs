//! System V semaphores, messages and shared memory; POSIX message queues.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{In, InMany, Out, OutRet, Text};
use crate::item::Len::{A, N, U};
use crate::names::called;
use crate::walk::{Spec, Walk, u32_at, u64_at};

const IPC_RMID: u32 = 0;
const IPC_SET: u32 = 1;
const IPC_STAT: u32 = 2;
const IPC_INFO: u32 = 3;

const SEMID: u32 = 104;
const SHMID: u32 = 112;
const MSQID: u32 = 120;

pub(super) fn spec(nr: c_long, args: &[u64; 6]) -> Option<Spec> {
    Some(match nr {
        n::SYS_shmget | n::SYS_semget | n::SYS_msgget => NOTHING,
        n::SYS_semop => Spec::Items(&[InMany(1, U(2), 6)]),
        n::SYS_semtimedop => Spec::Items(&[InMany(1, U(2), 6), In(3, N(16))]),
        // The kernel ignores this bit: the structures are the same.
        n::SYS_semctl => semctl(args[2] as u32 & !0x100),
        n::SYS_shmctl => shmctl(args[1] as u32 & !0x100),
        n::SYS_msgctl => msgctl(args[1] as u32 & !0x100),
        n::SYS_msgsnd => Spec::Walk(|w| w.input(w.arg(1), w.arg(2).saturating_add(8))),
        n::SYS_msgrcv => Spec::Walk(msgrcv),
        n::SYS_mq_open => Spec::Items(&[Text(0, 4096), In(3, N(64))]),
        n::SYS_mq_unlink => Spec::Items(&[Text(0, 4096)]),
        n::SYS_mq_timedsend => Spec::Items(&[In(1, A(2)), In(4, N(16))]),
        n::SYS_mq_timedreceive => Spec::Items(&[OutRet(1, A(2)), Out(3, N(4)), In(4, N(16))]),
        n::SYS_mq_notify => Spec::Walk(mq_notify),
        n::SYS_mq_getsetattr => Spec::Items(&[In(1, N(64)), Out(2, N(64))]),
        _ => return None,
    })
}

fn semctl(cmd: u32) -> Spec {
    match cmd {
        // Remove; get pid, value, waiters; set value.
        IPC_RMID | 11 | 12 | 14 | 15 | 16 => NOTHING,
        IPC_SET => Spec::Items(&[In(3, N(SEMID))]),
        IPC_STAT | 18 | 20 => Spec::Items(&[Out(3, N(SEMID))]),
        IPC_INFO | 19 => Spec::Items(&[Out(3, N(40))]),
        // SETALL: as many values as there are semaphores, at most 32000.
        17 => Spec::Items(&[In(3, N(64000))]),
        // GETALL writes as many; how many is not known here.
        _ => Spec::Home(called(n::SYS_semctl as u64)),
    }
}

fn shmctl(cmd: u32) -> Spec {
    match cmd {
        IPC_RMID | 11 | 12 => NOTHING,
        IPC_SET => Spec::Items(&[In(2, N(SHMID))]),
        IPC_STAT | 13 | 15 => Spec::Items(&[Out(2, N(SHMID))]),
        IPC_INFO => Spec::Items(&[Out(2, N(72))]),
        14 => Spec::Items(&[Out(2, N(48))]),
        _ => Spec::Home(called(n::SYS_shmctl as u64)),
    }
}

fn msgctl(cmd: u32) -> Spec {
    match cmd {
        IPC_RMID => NOTHING,
        IPC_SET => Spec::Items(&[In(2, N(MSQID))]),
        IPC_STAT | 11 | 13 => Spec::Items(&[Out(2, N(MSQID))]),
        IPC_INFO | 12 => Spec::Items(&[Out(2, N(32))]),
        _ => Spec::Home(called(n::SYS_msgctl as u64)),
    }
}

/// The type of the message comes before its text.
fn msgrcv(w: &mut Walk<'_>) {
    if w.succeeds() {
        w.output(w.arg(1), w.count(w.arg(2)).saturating_add(8));
    }
}

/// With `SIGEV_THREAD` the value points to a cookie of 32 bytes.
fn mq_notify(w: &mut Walk<'_>) {
    if !w.planning() {
        return;
    }
    let Some(event) = w.fetch(w.arg(1), 64) else {
        return;
    };
    if u32_at(&event, 12) == libc::SIGEV_THREAD as u32 {
        w.input(u64_at(&event, 0), 32);
    }
}
