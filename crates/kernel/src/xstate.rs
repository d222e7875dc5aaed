//! Extended register state (x87, SSE, AVX, AVX-512, AMX) in a form that does not depend on the machine.
//!
//! The kernel's buffer (Intel SDM 1-13.4, standard format) has each part at an offset that CPUID leaf 0xD tells and that differs between
//! CPUs; its length differs, too, and PTRACE_SETREGSET takes no other. Between machines it travels *packed*: the 512 legacy bytes, the bit
//! vector of the parts that are not in their initial state, then number, size and bytes of each of these.

use std::arch::x86_64::__cpuid_count;

/// The legacy area, the header behind it, and where the first part begins.
pub const LEGACY: usize = 512;
const BODY: usize = 576;
/// What the machine, not the program, says in the legacy area: the mask of MXCSR, and the kernel's own words.
const MXCSR_MASK: std::ops::Range<usize> = 28..32;
const KERNELS: std::ops::Range<usize> = 464..512;
/// The part with the rights of protection keys, and its value in a program that has none.
const PKRU: u32 = 9;
const NO_KEYS: [u8; 4] = 0x5555_5554_u32.to_le_bytes();

/// The part with AMX's tiles: the only one so far that a program must ask for before it uses it (arch_prctl(2) with these; Linux
/// Documentation/arch/x86/xstate.rst). Before that the kernel takes no state with it, either.
pub const TILES: u32 = 18;
/// Tells what the process may use, as a bit vector.
pub const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
/// Asks for a part.
pub const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;

/// Where a part lies in the kernel's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its bit in XCR0; 2 is AVX.
    pub number: u32,
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// The parts of this machine that a program may use.
pub fn layout() -> Vec<Part> {
    if !std::arch::is_x86_feature_detected!("xsave") {
        return Vec::new();
    }
    let enabled = enabled();
    let part = |number: u32| {
        let leaf = __cpuid_count(0xd, number);
        (leaf.eax > 0 && leaf.ecx & 1 == 0).then_some(Part { number, offset: leaf.ebx, size: leaf.eax })
    };
    (2..63).filter(|n| enabled & 1 << n != 0).filter_map(part).collect()
}

fn enabled() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: xgetbv of register 0 reads a register; it exists where the xsave feature is detected, which means enabled by the kernel.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The state of a CPU that has nothing but the legacy area.
pub fn from_legacy(mut raw: Vec<u8>) -> Vec<u8> {
    raw.resize(BODY, 0);
    raw[LEGACY] = 3;
    raw
}

/// Packs what the kernel gave. None if it is not what a kernel gives.
pub fn pack(raw: &[u8], layout: &[Part]) -> Option<Vec<u8>> {
    let mut out = raw.get(..LEGACY)?.to_vec();
    out[MXCSR_MASK].fill(0);
    out[KERNELS].fill(0);
    let used = u64::from_le_bytes(raw.get(LEGACY..LEGACY + 8)?.try_into().ok()?);
    out.extend(used.to_le_bytes());
    for number in (2..64).filter(|n| used & 1 << n != 0) {
        let part = layout.iter().find(|p| p.number == number)?;
        let bytes = raw.get(part.offset as usize..(part.offset + part.size) as usize)?;
        out.extend(number.to_le_bytes());
        out.extend(part.size.to_le_bytes());
        out.extend(bytes);
    }
    Some(out)
}

/// Are there tiles in it?
pub fn has_tiles(packed: &[u8]) -> bool {
    let used = packed.get(LEGACY..LEGACY + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    used >> TILES & 1 != 0
}

/// The same without tiles: what a program starts, be it a thread, has none (fpu_clone in the kernel's arch/x86/kernel/fpu/core.c).
pub fn without_tiles(packed: &[u8]) -> Vec<u8> {
    let Some((legacy, rest)) = packed.split_at_checked(LEGACY).filter(|_| has_tiles(packed)) else {
        return packed.into();
    };
    let (used, mut parts) = rest.split_at(8);
    let used = used.try_into().map_or(0, u64::from_le_bytes) & !(1 << TILES);
    let mut out = [legacy, &used.to_le_bytes()].concat();
    while let Some(head) = take(&mut parts, 8) {
        let word = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let Some(bytes) = take(&mut parts, word(4) as usize) else { break };
        if word(0) != TILES {
            out.extend_from_slice(head);
            out.extend_from_slice(bytes);
        }
    }
    out
}

/// Lays `packed` out over `raw`, a state of this machine that the kernel gave. The error is a sentence. `packed` may be hostile: what gets into
/// `raw` are values of registers, which the kernel checks.
pub fn unpack(packed: &[u8], layout: &[Part], raw: &mut [u8]) -> Result<(), String> {
    let broken = || "the extended state is cut short".to_owned();
    let legacy = packed.get(..LEGACY).ok_or_else(broken)?;
    let mut rest = &packed[LEGACY..];
    let mut used = u64::from_le_bytes(take(&mut rest, 8).ok_or_else(broken)?.try_into().map_err(|_| broken())?);
    if raw.len() < BODY {
        return Err("this kernel has no extended state".into());
    }
    raw[..MXCSR_MASK.start].copy_from_slice(&legacy[..MXCSR_MASK.start]);
    raw[MXCSR_MASK.end..KERNELS.start].copy_from_slice(&legacy[MXCSR_MASK.end..KERNELS.start]);
    raw[LEGACY..].fill(0);
    for number in (2..64).filter(|n| used & 1 << n != 0).collect::<Vec<u32>>() {
        let head = take(&mut rest, 8).ok_or_else(broken)?;
        let (named, size) = head.split_at(4);
        if named != number.to_le_bytes() {
            return Err(format!("the extended state has no part {number}, or another one in its place"));
        }
        let size = u32::from_le_bytes(size.try_into().map_err(|_| broken())?);
        let bytes = take(&mut rest, size as usize).ok_or_else(broken)?;
        match layout.iter().find(|p| p.number == number && p.size == size) {
            Some(part) => raw
                .get_mut(part.offset as usize..(part.offset + part.size) as usize)
                .ok_or_else(broken)?
                .copy_from_slice(bytes),
            None if is_unused(number, bytes) => used &= !(1 << number),
            None => {
                return Err(format!("registers are in use that this CPU lacks (part {number} of the extended state)"));
            }
        }
    }
    raw[LEGACY..LEGACY + 8].copy_from_slice(&used.to_le_bytes());
    if rest.is_empty() { Ok(()) } else { Err("the extended state has more parts than it says".into()) }
}

/// All zeroes is the initial state of every part (SDM 1-13.6), whether the CPU noticed or not.
fn is_unused(number: u32, bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0) || (number == PKRU && bytes.starts_with(&NO_KEYS))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, back) = rest.split_at_checked(count)?;
    *rest = back;
    Some(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: [Part; 2] = [Part { number: 2, offset: 576, size: 16 }, Part { number: 5, offset: 1088, size: 8 }];
    const THERE: [Part; 2] = [Part { number: 2, offset: 576, size: 16 }, Part { number: 5, offset: 832, size: 8 }];

    #[test]
    fn tiles_are_taken_out() {
        let tiles = Part { number: TILES, offset: 700, size: 64 };
        let with = pack(&state(&[HERE[0], tiles, HERE[1]], 1096), &[HERE[0], HERE[1], tiles]).unwrap();
        let without = pack(&state(&HERE, 1096), &HERE).unwrap();
        assert!(has_tiles(&with) && !has_tiles(&without));
        assert_eq!((without_tiles(&with), without_tiles(&without)), (without.clone(), without.clone()));
        for cut in 0..with.len() {
            // Whatever it is: it is as broken as it was.
            let _ = without_tiles(&with[..cut]);
        }
    }

    fn state(parts: &[Part], length: usize) -> Vec<u8> {
        let mut raw: Vec<u8> = (0..length).map(|i| i as u8 | 1).collect();
        let used = parts.iter().fold(3u64, |set, p| set | 1 << p.number);
        raw[LEGACY..BODY].fill(0);
        raw[LEGACY..LEGACY + 8].copy_from_slice(&used.to_le_bytes());
        raw
    }

    #[test]
    fn parts_find_their_place_on_another_machine_and_back() {
        let raw = state(&HERE, 1096);
        let packed = pack(&raw, &HERE).unwrap();
        let mut there = state(&[], 840);
        let kernels = there[KERNELS].to_vec();
        unpack(&packed, &THERE, &mut there).unwrap();
        assert_eq!(there[832..840], raw[1088..1096]);
        assert_eq!(there[..28], raw[..28]);
        assert_eq!(there[KERNELS], kernels[..], "the kernel's own words stay");
        let mut back = state(&[], 1096);
        unpack(&pack(&there, &THERE).unwrap(), &HERE, &mut back).unwrap();
        assert_eq!(pack(&back, &HERE).unwrap(), packed);
    }

    #[test]
    fn what_a_machine_lacks_is_refused_unless_it_is_unused() {
        let mut there = state(&[], 592);
        let packed = pack(&state(&HERE, 1096), &HERE).unwrap();
        assert!(unpack(&packed, &THERE[..1], &mut there).unwrap_err().contains("part 5"));
        let packed = pack(&state(&HERE[..1], 1096), &HERE).unwrap();
        unpack(&packed, &THERE[..1], &mut there).unwrap();
        let mut zeroes = state(&HERE, 1096);
        zeroes[1088..].fill(0);
        unpack(&pack(&zeroes, &HERE).unwrap(), &THERE[..1], &mut there).unwrap();
        assert_eq!(there[LEGACY], 7, "part 5 is in its initial state");
    }

    #[test]
    fn nobody_misses_protection_keys_that_are_not_used() {
        let keys = [Part { number: PKRU, offset: 576, size: 8 }];
        let mut raw = state(&keys, 584);
        let mut there = state(&[], 592);
        assert!(unpack(&pack(&raw, &keys).unwrap(), &[], &mut there).unwrap_err().contains("part 9"));
        raw[576..580].copy_from_slice(&NO_KEYS);
        unpack(&pack(&raw, &keys).unwrap(), &[], &mut there).unwrap();
        assert_eq!(there[LEGACY], 3);
    }

    #[test]
    fn bytes_that_nobody_packed_are_an_error_and_no_panic() {
        let packed = pack(&state(&HERE, 1096), &HERE).unwrap();
        let mut there = state(&[], 1096);
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut], &HERE, &mut there).is_err(), "{cut}");
        }
        bolero::check!().with_type::<(Vec<u8>, bool)>().for_each(|(bytes, behind)| {
            let mut any = if *behind { packed[..LEGACY].to_vec() } else { Vec::new() };
            any.extend(bytes);
            let mut there = state(&[], 1096);
            let _ = unpack(&any, &HERE, &mut there);
            let _ = pack(bytes, &HERE);
        });
    }

    #[test]
    fn this_machine_is_understood() {
        let parts = layout();
        assert!(parts.iter().all(|p| p.offset as usize >= BODY), "{parts:?}");
        let avx = std::arch::is_x86_feature_detected!("avx");
        assert_eq!(parts.iter().any(|p| (p.number, p.offset, p.size) == (2, 576, 256)), avx);
    }
}
