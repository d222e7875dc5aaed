//! On which CPUs a process may run (sched_setaffinity(2)).

use crate::check;
use std::io;
use std::mem::size_of;

/// The CPUs that a process may use (0: this thread), in order.
pub fn allowed(pid: u32) -> io::Result<Vec<usize>> {
    // SAFETY: all zeroes are a set, an empty one; the kernel writes no more than the size that it is told.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(pid as i32, size_of::<libc::cpu_set_t>(), &mut set).into())?;
        set
    };
    // SAFETY: reads a bit inside the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// This thread, and what it starts from now on, uses that CPU alone. An error if there is no such CPU, or if it may not be used. Async-signal-safe.
pub fn only(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    these(&[cpu])
}

/// The same for several; those that can't be are left out. Async-signal-safe.
pub fn these(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: all zeroes are a set, an empty one, and each CPU is inside it; the kernel reads the size that it is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        check(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set).into()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sits_on_one_cpu_uses_that_alone() {
        let all = allowed(0).unwrap();
        let last = *all.last().unwrap();
        // Of that thread only.
        let now = std::thread::spawn(move || only(last).and_then(|()| allowed(0))).join().unwrap().unwrap();
        assert_eq!((now, allowed(0).unwrap()), (vec![last], all));
        assert!(only(libc::CPU_SETSIZE as usize).is_err());
    }
}
