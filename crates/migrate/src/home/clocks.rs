//! The clock functions of the vDSO, which are home's own here and differ abroad: nothing of the program may be in the middle of one.

use super::{Deputy, HomeError, Result, at};
use pando_kernel::procfs::{self, Mapping};
use pando_kernel::ptrace::{Registers, Stop};
use pando_kernel::vdso;

/// Most instructions stepped to leave the vDSO.
const MAX_STEPS: u32 = 4096;
/// How much of the stack is searched for a signal handler's frame.
const SEARCHED: u64 = 64 * 1024;

impl Deputy {
    /// The vDSO's code is in the middle of reading this kernel's clock data: let it finish, instruction by instruction.
    pub(super) fn step_out(&self, tid: i32, registers: Registers, maps: &[Mapping]) -> Result<Registers> {
        let tracee = self.threads[tid].tracee;
        let mut now = registers;
        let Some(vdso) = maps.iter().find(|m| m.name == "[vdso]") else { return Ok(now) };
        for _ in 0..MAX_STEPS {
            let at_call = self.memory.word(now.rip).is_some_and(|w| w as u16 == 0x050f);
            if !(vdso.start..vdso.end).contains(&now.rip) || (now.orig_rax as i64) >= 0 || at_call {
                break;
            }
            at("step", tracee.step(0))?;
            match at("wait", tracee.wait(true))? {
                Some(Stop::Gone(status)) => return Err(HomeError::Ended(status)),
                Some(_) => now = at("registers", tracee.registers())?,
                None => {}
            }
        }
        Ok(now)
    }

    /// A signal handler runs that interrupted the very first instructions of a clock function: abroad other bytes are there
    /// (docs/decisions/0009), and it would return into the middle of them.
    pub(super) fn no_frame_in_an_entry(
        &self,
        registers: &Registers,
        maps: &[Mapping],
        status: &procfs::Status,
    ) -> Result<()> {
        let Some(code) = maps.iter().find(|m| m.name == "[vdso]").filter(|_| status.caught != 0) else { return Ok(()) };
        let Some(stack) = maps.iter().find(|m| m.start <= registers.rsp && registers.rsp < m.end) else {
            return Ok(());
        };
        let mut image = vec![0; (code.end - code.start) as usize];
        self.memory.read(code.start, &mut image);
        let entries = vdso::without_data(&mut image);
        let mut words = vec![0; SEARCHED.min(stack.end - registers.rsp) as usize];
        let got = self.memory.read(registers.rsp, &mut words);
        let inside =
            |word: u64| entries.iter().any(|e| (1..=vdso::STUB_RETURN).contains(&word.wrapping_sub(code.start + e)));
        let words = words[..got].chunks_exact(8).map(|w| w.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)));
        if words.into_iter().any(inside) {
            let why = "a signal handler of it has interrupted a clock function in its first instruction; try again";
            return Err(HomeError::Refused(format!("process {}: {why}", self.pid)));
        }
        Ok(())
    }
}
