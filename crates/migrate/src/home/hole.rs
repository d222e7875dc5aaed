//! The hole: a page of code, and room for what it works with, in memory of the process. Through it calls are made in its name.

use super::freeze::refuse;
use super::{Deputy, HomeError, Result, at};
use crate::inspect;
use crate::layout::{HOLE_BYTES, TABLE};
use pando_kernel::inject::{self, Call, call};
use pando_kernel::procfs::Mapping;
use pando_kernel::{PAGE, vdso};

const PR_GET_MDWE: u64 = 66;

impl Deputy {
    /// A system call instruction that the process has already.
    pub(super) fn find_call(&mut self, maps: &[Mapping]) -> Result<()> {
        let vdso =
            maps.iter().find(|m| m.name == "[vdso]").ok_or_else(|| HomeError::Refused("it has no vDSO".into()))?;
        let mut code = vec![0; (vdso.end - vdso.start) as usize];
        self.memory.read(vdso.start, &mut code);
        let offset =
            vdso::syscall_offset(&code).ok_or_else(|| HomeError::Refused("its vDSO has no system call".into()))?;
        self.syscall_ip = vdso.start + offset;
        Ok(())
    }

    pub(super) fn dig_hole(&mut self) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let rw = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let rx = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let first = &self.threads[self.pid];
        let step = |c: Call| -> Result<i64> { Ok(inject::step_call(first.tracee, &first.base, self.syscall_ip, &c)?) };
        let got = step(call(libc::SYS_mmap, &[self.hole, HOLE_BYTES, rw, flags as u64, u64::MAX, 0]))?;
        if got != self.hole as i64 {
            let why = std::io::Error::from_raw_os_error(-got as i32);
            return Err(HomeError::Refused(format!("process {} leaves no room for the engine: {why}", self.pid)));
        }
        let denied = step(call(libc::SYS_mprotect, &[self.hole, PAGE, rx]))?;
        if denied != 0 {
            let mdwe = step(call(libc::SYS_prctl, &[PR_GET_MDWE, 0, 0, 0, 0]))?;
            step(call(libc::SYS_munmap, &[self.hole, HOLE_BYTES]))?;
            return refuse(&self.order, &[inspect::without_code(mdwe > 0, -denied as i32)]);
        }
        if self.memory.write(self.hole, &inject::CODE) != inject::CODE.len() {
            return Err(HomeError::Kernel("write the injected code", std::io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Runs calls in a halted thread of the deputy with its signals blocked. Its registers are left changed.
    pub(super) fn inject(&self, tid: i32, calls: &[Call]) -> Result<Vec<i64>> {
        let thread = &self.threads[tid];
        let (code, table) = (self.hole, self.hole + TABLE);
        Ok(inject::table_calls(thread.tracee, &self.memory, &thread.base, code, table, calls)?)
    }

    /// As `inject`, in a thread whose signals are not blocked yet.
    pub(super) fn inject_quietly(&self, tid: i32, calls: &[Call]) -> Result<Vec<i64>> {
        let tracee = self.threads[tid].tracee;
        let mask = at("mask", tracee.signal_mask())?;
        at("mask", tracee.set_signal_mask(inject::QUIET))?;
        let results = self.inject(tid, calls);
        at("mask", tracee.set_signal_mask(mask))?;
        results
    }
}
