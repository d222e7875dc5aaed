//! When things break: every fault at every phase of a move, one test each.

use pando_suite::faults_by_phase::{Fault, Phase, test};

/// One test for each name: `phase { test = Fault, ... }`.
macro_rules! faults {
    ($($module:ident = $phase:ident { $($name:ident = $fault:ident),* $(,)? })*) => {
        $(mod $module {
            use super::{Fault, Phase, test};
            $(#[test]
            fn $name() {
                test(Phase::$phase, Fault::$fault);
            })*
        })*
    };
}

faults! {
    inspect = Inspect {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    connect = Connect {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    prepare = Prepare {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    freeze = Freeze {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    send = Send {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    commit = Commit {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    away = Away {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    presync = Presync {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    freeze_abroad = FreezeAbroad {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    residual = Residual {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    resume = Resume {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    hop_connect = HopConnect {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        kill_former_helper = KillFormerHelper,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    hop_prepare = HopPrepare {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        kill_former_helper = KillFormerHelper,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    hop_freeze_abroad = HopFreezeAbroad {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        kill_former_helper = KillFormerHelper,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    hop_send = HopSend {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
    hop_commit = HopCommit {
        kill_target_daemon = KillTargetDaemon,
        kill_home_daemon = KillHomeDaemon,
        kill_guest_helper = KillGuestHelper,
        kill_guest = KillGuest,
        kill_deputy = KillDeputy,
        kill_process = KillProcess,
        cut_and_heal = CutAndHeal,
        cut_for_long = CutForLong,
        stall_target = StallTarget,
        stall_home = StallHome,
        stall_target_for_long = StallTargetForLong,
        stall_home_for_long = StallHomeForLong,
    }
}
