//! The vDSO of this kernel.

use crate::procfs::{self, Mapping};
use std::io;

/// Is this one of the kernel's special mappings that move with the vDSO?
pub fn is_special(m: &Mapping) -> bool {
    m.name.starts_with("[vvar") || m.name == "[vdso]"
}

/// The special mappings of `pid`, in address order.
pub fn mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    Ok(procfs::maps(pid)?.into_iter().filter(is_special).collect())
}

/// Offset of a `syscall` instruction in the code.
pub fn syscall_offset(code: &[u8]) -> Option<u64> {
    code.windows(2).position(|w| w == [0x0f, 0x05]).map(|p| p as u64)
}

/// A little-endian number of `N` bytes at `at`; 0 outside.
fn number<const N: usize>(code: &[u8], at: usize) -> usize {
    let mut bytes = [0u8; 8];
    if let Some(source) = code.get(at..at.saturating_add(N)) {
        bytes[..N].copy_from_slice(source);
    }
    u64::from_le_bytes(bytes) as usize
}

/// The functions of a vDSO image: name and offset (its ELF dynamic symbols).
fn functions(code: &[u8]) -> Vec<(String, usize)> {
    const DYNSYM: usize = 11;
    let (sections, size, count) = (number::<8>(code, 40), number::<2>(code, 58), number::<2>(code, 60));
    let field = |base: usize, at: usize| base.saturating_add(at);
    let header = |i: usize| field(sections, i * size);
    let Some(symbols) = (0..count.min(64)).map(header).find(|&h| number::<4>(code, field(h, 4)) == DYNSYM) else {
        return Vec::new();
    };
    let start = number::<8>(code, field(symbols, 24));
    let bytes = number::<8>(code, field(symbols, 32));
    let strings = number::<4>(code, field(symbols, 40));
    let names = number::<8>(code, field(header(strings.min(64)), 24));
    let entry = |i: usize| {
        let at = field(start, i * 24);
        let name = code.get(field(names, number::<4>(code, at))..)?;
        let name = name.split(|&b| b == 0).next()?;
        Some((String::from_utf8_lossy(name).into_owned(), number::<8>(code, field(at, 8))))
    };
    (0..(bytes / 24).min(256)).filter_map(entry).collect()
}

/// Replaces the functions that read the kernel's clock data by the system calls that they stand for. The image then works on
/// any machine, in any time namespace, with its data pages all zero (ENGINE.md, 17). Returns the offsets of these stubs.
pub fn without_data(code: &mut [u8]) -> Vec<u64> {
    let mut stubs = Vec::new();
    let calls = [
        ("__vdso_clock_gettime", libc::SYS_clock_gettime),
        ("__vdso_gettimeofday", libc::SYS_gettimeofday),
        ("__vdso_time", libc::SYS_time),
        ("__vdso_clock_getres", libc::SYS_clock_getres),
    ];
    for (name, at) in functions(code) {
        let Some((_, nr)) = calls.iter().find(|c| c.0 == name) else { continue };
        let mut stub = vec![0xb8]; // mov eax, nr; syscall; ret
        stub.extend_from_slice(&(*nr as u32).to_le_bytes());
        stub.extend_from_slice(&[0x0f, 0x05, 0xc3]);
        if let Some(place) = code.get_mut(at..at.saturating_add(stub.len())) {
            place.copy_from_slice(&stub);
            stubs.push(at as u64);
        }
    }
    stubs
}

/// Bytes of a stub before its system call has been made.
pub const STUB_CALL: u64 = 5;
/// Offset in a stub behind its system call; only the return is left.
pub const STUB_RETURN: u64 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_functions_are_found_and_replaced() {
        let own = mappings(std::process::id() as i32).expect("own map");
        let vdso = own.iter().find(|m| m.name == "[vdso]").expect("a vDSO");
        let memory = crate::memory::ProcessMemory::open(std::process::id() as i32).expect("own memory");
        let mut code = vec![0; (vdso.end - vdso.start) as usize];
        assert!(memory.read_all(vdso.start, &mut code));
        let found = functions(&code);
        let at = found.iter().find(|f| f.0 == "__vdso_clock_gettime").expect("clock_gettime").1;
        without_data(&mut code);
        assert_eq!(code[at..at + 8], [0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    }

    #[test]
    fn a_hostile_image_is_no_danger() {
        for fill in [0u8, 0xff, 0x7f] {
            let mut code = vec![fill; 8192];
            without_data(&mut code);
            without_data(&mut code[..70]);
        }
    }
}
