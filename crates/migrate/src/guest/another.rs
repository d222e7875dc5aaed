//! A process that began another program (exec) while a place for it was being made here.

use super::build::{check_layout, map_call};
use super::{Guest, Result};
use crate::message::{Area, Layout, Special};
use pando_kernel::inject::call;
use pando_kernel::procfs;
use pando_kernel::ptrace::Registers;

impl Guest {
    /// Takes away what was mapped for the old program, and maps the kernel's own code where the new one knows it.
    pub(super) fn another_program(&mut self, regs: &Registers, old: &Layout, special: Vec<Special>) -> Result<()> {
        let new = Layout { areas: Vec::new(), special, ..old.clone() };
        check_layout(&new)?;
        let areas = std::mem::take(&mut self.prepared);
        let gone = areas.iter().map(|a| (a.start, a.end)).chain(old.special.iter().map(|s| (s.start, s.end)));
        let mut calls: Vec<_> = gone.map(|(start, end)| call(libc::SYS_munmap, &[start, end - start])).collect();
        calls.extend(new.special.iter().map(|s| map_call(&special_area(s))));
        self.inject_all(regs, &calls)?;
        for a in &areas {
            self.areas.remove(a.start, a.end);
        }
        (self.vdso, self.stubs) = ((0, 0), Vec::new());
        self.put_vdso(&new)
    }
}

/// One of the kernel's own mappings, as it is made here.
pub(super) fn special_area(s: &Special) -> Area {
    let prot = if s.name == "[vdso]" { procfs::READ | procfs::EXEC } else { procfs::READ };
    Area { start: s.start, end: s.end, prot, stack: false, own: false }
}
