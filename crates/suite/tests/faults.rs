//! When things break: each fault meets programs that compute abroad, that are blocked there, and that are just moved.

use pando_suite::faults::{Fault, test};

#[test]
fn kill_target_daemon() {
    test(Fault::KillTargetDaemon);
}

#[test]
fn kill_home_daemon() {
    test(Fault::KillHomeDaemon);
}

#[test]
fn kill_guest_helper() {
    test(Fault::KillGuestHelper);
}

#[test]
fn kill_guest() {
    test(Fault::KillGuest);
}

#[test]
fn kill_deputy_helper() {
    test(Fault::KillDeputyHelper);
}

#[test]
fn kill_process() {
    test(Fault::KillProcess);
}

#[test]
fn kill_target() {
    test(Fault::KillTarget);
}

#[test]
fn cut_and_heal() {
    test(Fault::CutAndHeal);
}

#[test]
fn cut_for_good() {
    test(Fault::CutForGood);
}

#[test]
fn stall_target() {
    test(Fault::StallTarget);
}

#[test]
fn stall_home() {
    test(Fault::StallHome);
}
