//! Whatever the number, the arguments and the memory: the tables keep within their limits.

use pando_calls::{
    Class, MAX_LEN, MAX_RANGES, MAX_TOTAL, Memory, Plan, Range, TOP, class, clip, name, outputs, plan, temporary_mask,
};

/// Numbers that are the same for the same seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number of the kind that breaks things.
    fn odd(&mut self) -> u64 {
        let n = self.next();
        match self.below(14) {
            0 => 0,
            1 => n % 16,
            2 => n % 2048,
            3 => 1 << (n % 64),
            4 => (1u64 << (n % 64)).wrapping_sub(1 + n % 3),
            5 => u64::MAX - n % 64,
            6 => TOP - n % 8192,
            7 => 0x7fff_ffff - n % 3,
            8 => 0xffff_ffff - n % 3,
            9 => i64::MIN as u64 + n % 3,
            10 => 0x7fff_ffff_f000 - n % 8192,
            11 => n,
            _ => 0x7f12_0000_0000 + n % 0x10000,
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every word is an odd number; some pages are missing.
struct Hostile {
    seed: u64,
    /// Of 8 pages so many are missing.
    missing: u64,
    pullable: bool,
    /// Returns fewer bytes than it could.
    short: bool,
}

impl Memory for Hostile {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        for (i, byte) in buf.iter_mut().enumerate() {
            let Some(at) = addr.checked_add(i as u64) else {
                return i;
            };
            if mix((at >> 12) ^ self.seed) % 8 < self.missing || (self.short && i == 3) {
                return i;
            }
            let word = Numbers(self.seed ^ (at & !7)).odd();
            *byte = (word >> ((at & 7) * 8)) as u8;
        }
        // More than there is, for good measure.
        if self.short { buf.len() + 5 } else { buf.len() }
    }

    fn can_pull(&mut self, _page: u64) -> bool {
        self.pullable
    }
}

fn check(what: &str, ranges: &[Range]) {
    assert!(ranges.len() <= MAX_RANGES, "{what}: {}", ranges.len());
    let mut total = 0u64;
    for r in ranges {
        assert!(r.addr > 0 && r.len > 0 && r.len <= MAX_LEN, "{what}: {r:x?}");
        assert!(r.addr.checked_add(r.len).is_some_and(|end| end <= TOP), "{what}: {r:x?}");
        total += r.len;
    }
    assert!(total <= MAX_TOTAL, "{what}: {total:x}");
}

fn one(nr: u64, numbers: &mut Numbers) {
    let mut args = [(); 6].map(|()| numbers.odd());
    if numbers.below(2) == 0 {
        // Low numbers are commands and levels.
        args[1] = numbers.below(64);
        args[2] = numbers.below(300);
    }
    let mut memory = Hostile {
        seed: numbers.next(),
        missing: numbers.below(4),
        pullable: numbers.below(2) == 0,
        short: numbers.below(4) == 0,
    };
    let what = format!("{} ({nr:#x}) {args:x?}", name(nr));
    let planned = plan(nr, &args, &mut memory);
    match &planned {
        Plan::Forward { inputs, outputs_max } => {
            check(&what, inputs);
            check(&what, outputs_max);
        }
        Plan::NeedPages(pages) => {
            assert!(memory.pullable && !pages.is_empty() && pages.len() <= 4096, "{what}");
            assert!(pages.windows(2).all(|p| p[0] < p[1]), "{what}");
            assert!(pages.iter().all(|p| p % 4096 == 0 && *p < TOP), "{what}");
        }
        Plan::Home(reason) => assert!(reason.starts_with("it "), "{what}: {reason}"),
    }
    if let Class::Home(reason) = class(nr, &args) {
        assert_eq!(planned, Plan::Home(reason), "{what}");
    }
    temporary_mask(nr, &args, &mut memory);
    for ret in [0, 5, -1, -4, -22, -512, -516, i64::MAX, i64::MIN, numbers.odd() as i64] {
        let written = outputs(nr, &args, ret, &mut memory);
        check(&what, &written);
        if let Plan::Forward { outputs_max, .. } = &planned {
            for kept in clip(&written, outputs_max) {
                assert!(written.iter().any(|w| w.addr <= kept.addr && kept.end() <= w.end()), "{what}: {kept:x?}");
            }
        }
    }
}

#[test]
fn nothing_breaks_the_tables() {
    let mut numbers = Numbers(20_260_801);
    for nr in 0..480 {
        for _ in 0..600 {
            one(nr, &mut numbers);
        }
    }
    for _ in 0..500 {
        let nr = numbers.odd();
        one(nr, &mut numbers);
    }
}

#[test]
fn nothing_breaks_ioctl() {
    let mut numbers = Numbers(7);
    let mut memory = Hostile { seed: 1, missing: 1, pullable: false, short: false };
    for _ in 0..20_000 {
        let request = numbers.next() >> (numbers.below(3) * 16 + 16);
        let args = [3, request, numbers.odd(), 0, 0, 0];
        match plan(libc::SYS_ioctl as u64, &args, &mut memory) {
            Plan::Forward { inputs, outputs_max } => {
                check("ioctl", &inputs);
                check("ioctl", &outputs_max);
            }
            Plan::NeedPages(_) => panic!("{args:x?}"),
            Plan::Home(_) => {}
        }
        check("ioctl", &outputs(libc::SYS_ioctl as u64, &args, 0, &mut memory));
    }
}

/// As many messages as are allowed, each with as many buffers as are allowed, all of the largest size.
struct Full;

impl Memory for Full {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        for (i, byte) in buf.iter_mut().enumerate() {
            // Each word, in a header or in a vector, is 1024 or an address; what they mean is up to the offset.
            let at = addr + i as u64;
            let word: u64 = if (at / 8) % 2 == 1 { 1024 } else { 0x10_0000 };
            *byte = (word >> ((at & 7) * 8)) as u8;
        }
        buf.len()
    }
}

#[test]
fn too_many_buffers_come_home() {
    for nr in [libc::SYS_sendmmsg, libc::SYS_recvmmsg] {
        let planned = plan(nr as u64, &[3, 0x10_0000, 1024, 0, 0, 0], &mut Full);
        assert!(matches!(planned, Plan::Home(_)), "{}", name(nr as u64));
    }
}
