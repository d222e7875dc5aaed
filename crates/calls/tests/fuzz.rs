//! The tables with any number, arguments and memory: what another machine sends as a call is planned within the limits.

use bolero::check;
use pando_calls::{MAX_RANGES, MAX_TOTAL, Memory, Plan, Range, TOP, class, clip, outputs, plan, temporary_mask};

/// Memory that repeats these bytes, in which some pages can't be read.
struct Repeated<'a>(&'a [u8], u8);

impl Memory for Repeated<'_> {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        if self.0.is_empty() || (addr >> 12) as u8 & 15 == self.1 {
            return 0;
        }
        let len = buf.len().min(4096 - (addr & 4095) as usize);
        for (i, b) in (0..).zip(&mut buf[..len]) {
            *b = self.0[(addr.wrapping_add(i) % self.0.len() as u64) as usize];
        }
        len
    }
}

fn bounded(ranges: &[Range]) {
    assert!(ranges.len() <= MAX_RANGES && ranges.iter().map(|r| r.len).sum::<u64>() <= MAX_TOTAL);
    assert!(ranges.iter().all(|r| r.len > 0 && r.addr.checked_add(r.len).is_some_and(|end| end <= TOP)));
}

#[test]
fn calls_of_any_kind() {
    // The number, six arguments of which some are small, a result, memory.
    check!().with_type::<(u16, [u64; 6], u8, i32, Vec<u8>, u8)>().for_each(|(nr, args, small, ret, bytes, absent)| {
        let nr = u64::from(*nr % 470);
        let mut args = *args;
        for (i, arg) in args.iter_mut().enumerate() {
            *arg = if small >> i & 1 == 1 { *arg % 64 } else { *arg };
        }
        let mut memory = Repeated(bytes, *absent);
        let _ = class(nr, &args);
        let _ = temporary_mask(nr, &args, &mut memory);
        let written = outputs(nr, &args, i64::from(*ret), &mut memory);
        bounded(&written);
        if let Plan::Forward { inputs, outputs_max } = plan(nr, &args, &mut memory) {
            bounded(&inputs);
            bounded(&outputs_max);
            bounded(&clip(&written, &outputs_max));
        }
    });
}
