//! Whatever another machine sends: it decodes to a value or an error, in bounded time and memory. `cargo test` gives each of these a
//! second; CONTRIBUTING.md says how to give them hours.

use crate::area::{AreaMap, Backing};
use crate::control::{Command, DeputyOrder, GuestOrder, Report};
use crate::layout::by_page;
use crate::message::{Down, MAX_BODY, MAX_HEAD, Up, said};
use bolero::{TypeGenerator, check};
use pando_kernel::{ptrace, signal, vdso};

/// What comes out of changed bytes comes out; what is said about it fits a line of a log.
fn decode(bytes: &[u8]) {
    if let Ok(up) = postcard::from_bytes::<Up>(bytes) {
        assert!(said(&format!("{up:?}")).len() < 2000);
    }
    if let Ok(down) = postcard::from_bytes::<Down>(bytes) {
        assert!(said(&format!("{down:?}")).len() < 2000);
    }
}

#[test]
fn heads_of_any_bytes() {
    check!().for_each(decode);
}

/// A message with some bytes of it changed, and perhaps cut off.
type Changed<T> = (T, Vec<(u16, u8)>, Option<u16>);

fn change(mut bytes: Vec<u8>, changes: &[(u16, u8)], cut: Option<u16>) -> Vec<u8> {
    for (at, to) in changes {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *to;
    }
    bytes.truncate(cut.map_or(usize::MAX, usize::from));
    bytes
}

#[test]
fn every_message_upwards_survives_the_way() {
    check!().with_type::<Changed<Up>>().for_each(|(up, changes, cut)| {
        let bytes = postcard::to_stdvec(up).expect("encodes");
        assert_eq!(postcard::from_bytes::<Up>(&bytes).as_ref(), Ok(up));
        decode(&change(bytes, changes, *cut));
    });
}

#[test]
fn every_message_downwards_survives_the_way() {
    check!().with_type::<Changed<Down>>().for_each(|(down, changes, cut)| {
        let bytes = postcard::to_stdvec(down).expect("encodes");
        assert_eq!(postcard::from_bytes::<Down>(&bytes).as_ref(), Ok(down));
        decode(&change(bytes, changes, *cut));
    });
}

#[test]
fn lengths_in_the_header_of_a_frame() {
    check!().with_type::<[u8; 8]>().for_each(|header| {
        if let Some((head, body)) = crate::channel::lengths(header) {
            assert!(head <= MAX_HEAD && body <= MAX_BODY);
        }
    });
}

#[test]
fn a_count_that_is_only_announced_takes_no_memory() {
    // Pages, Written: a list of 2^32 runs that does not follow.
    for kind in 0..32u8 {
        decode(&[kind, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        decode(&[kind, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}

#[test]
fn register_sets_signals_and_vdso_images() {
    check!().with_type::<(Vec<u64>, [u8; 32], Vec<u8>)>().for_each(|(words, start, image)| {
        if let Some(registers) = ptrace::from_words(words) {
            assert_eq!(&ptrace::to_words(&registers), words);
        }
        let mut info = [0; 128];
        info[..32].copy_from_slice(start);
        let number = signal::number(&info);
        assert!(signal::bit(number) == 0 || (1..=64).contains(&number));
        let _ = (signal::is_fault(&info), signal::default_action(number));
        let mut image = image.clone();
        for stub in vdso::without_data(&mut image) {
            assert!(stub < image.len() as u64);
        }
    });
}

#[test]
fn vdso_images_that_begin_well() {
    // Section headers at byte 64, of 64 bytes each, as a vDSO has them; the rest is anything.
    check!().with_type::<(u8, Vec<u8>)>().for_each(|(count, rest)| {
        let mut image = vec![0; 64];
        (image[40], image[58], image[60]) = (64, 64, *count);
        image.extend(rest);
        for header in (64..image.len()).step_by(64) {
            image.get_mut(header + 4).into_iter().for_each(|kind| *kind = 11);
        }
        vdso::without_data(&mut image);
    });
}

#[test]
fn pages_of_any_range() {
    check!().with_type::<(u64, u16)>().for_each(|&(addr, len)| {
        let parts: Vec<(u64, u64)> = by_page(addr, u64::from(len)).collect();
        assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), u64::from(len).min(u64::MAX - addr));
        assert!(parts.iter().all(|p| p.1 > 0 && p.1 <= 4096 && (p.0 % 4096) + p.1 <= 4096));
    });
}

#[derive(Debug, Clone, TypeGenerator)]
enum Change {
    Insert(u8, u8, bool),
    Remove(u8, u8),
    Remap(u8, u8, u8, u8),
}

#[test]
fn areas_stay_apart_whatever_happens_to_them() {
    const PAGE: u64 = 4096;
    check!().with_type::<Vec<Change>>().for_each(|changes| {
        let mut map = AreaMap::default();
        // The same, page by page.
        let mut pages = [None; 600];
        let range = |a: u8, b: u8| usize::from(a)..usize::from(a) + usize::from(b);
        for change in changes {
            match *change {
                Change::Insert(at, len, home) => {
                    let backing = if home { Backing::Home } else { Backing::Local };
                    map.insert(u64::from(at) * PAGE, (u64::from(at) + u64::from(len)) * PAGE, backing);
                    pages[range(at, len)].fill(Some(backing));
                }
                Change::Remove(at, len) => {
                    map.remove(u64::from(at) * PAGE, (u64::from(at) + u64::from(len)) * PAGE);
                    pages[range(at, len)].fill(None);
                }
                Change::Remap(old, old_len, new, new_len) => {
                    let [old, old_len, new, new_len] = [old, old_len, new, new_len].map(u64::from);
                    map.remap(old * PAGE, old_len * PAGE, new * PAGE, new_len * PAGE);
                    pages.iter_mut().zip(0u64..).for_each(|(p, i)| *p = map.find(i * PAGE).map(|f| f.1));
                }
            }
            let all: Vec<(u64, u64, Backing)> = map.iter().collect();
            assert!(all.iter().all(|a| a.0 < a.1) && all.windows(2).all(|w| w[0].1 <= w[1].0), "{all:x?}");
            for (page, at) in pages.iter().zip(0u64..) {
                assert_eq!(map.find(at * PAGE).map(|f| f.1), *page);
                assert_eq!(map.within(at * PAGE, (at + 1) * PAGE).first().map(|f| f.2), *page);
            }
        }
    });
}

#[test]
fn lines_between_helpers_and_daemon() {
    check!().for_each(|bytes: &[u8]| {
        let _ = serde_json::from_slice::<Command>(bytes);
        let _ = serde_json::from_slice::<Report>(bytes);
        let _ = serde_json::from_slice::<DeputyOrder>(bytes);
        let _ = serde_json::from_slice::<GuestOrder>(bytes);
    });
}

#[test]
fn reports_survive_the_way_and_changes() {
    let detail = "x".to_owned();
    let done = Report::Done { pid: 1, outcome: "home".into(), detail };
    let line = serde_json::to_vec(&done).expect("encodes");
    check!().with_type::<(Vec<(u16, u8)>, Option<u16>)>().for_each(|(changes, cut)| {
        let _ = serde_json::from_slice::<Report>(&change(line.clone(), changes, *cut));
    });
}
