//! What the dynamic loader is told by a 64-bit little-endian ELF file: its libraries, and where they are looked for. What is no such file names none.

/// Most headers of a program, entries of its dynamic section, libraries, and bytes of a library's name.
const MOST_HEADERS: u64 = 256;
const MOST_ENTRIES: u64 = 4096;
const MOST_LIBRARIES: usize = 512;
const LONGEST_NAME: usize = 256;
/// And of a list of directories.
const LONGEST_LIST: usize = 16 << 10;

const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

/// A part of the file, and where it is in memory.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    length: u64,
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The kind of machine that it is for.
    pub machine: u16,
    /// The program's loader.
    pub interpreter: Option<String>,
    /// Names of libraries.
    pub libraries: Vec<String>,
    /// Where they, and those that they want, are looked for, before all else; unless there is a `runpath`.
    pub rpath: Option<String>,
    /// Where they are looked for, after what the user says.
    pub runpath: Option<String>,
}

/// The names of its libraries. `read` fills a buffer from an offset of the file, or says that it can't.
pub fn needed(read: impl Fn(u64, &mut [u8]) -> bool) -> Vec<String> {
    wants(read).unwrap_or_default().libraries
}

/// None where it is no such file.
pub fn wants(read: impl Fn(u64, &mut [u8]) -> bool) -> Option<Wants> {
    let read = &read;
    let segments = segments(read)?;
    let mut machine = [0; 2];
    read(18, &mut machine);
    let mut found = Wants { machine: u16::from_le_bytes(machine), ..Wants::default() };
    let of = |kind: u64| segments.iter().find(|s| s.kind == kind);
    found.interpreter = of(INTERPRETER).and_then(|s| text(read, s.offset, LONGEST_NAME));
    // A static program has no such part.
    let Some(dynamic) = of(DYNAMIC) else { return Some(found) };
    let (mut names, mut strings, mut lists) = (Vec::new(), None, [None; 2]);
    for i in 0..(dynamic.length / 16).min(MOST_ENTRIES) {
        let mut entry = [0; 16];
        if !read(dynamic.offset.checked_add(i * 16)?, &mut entry) {
            break;
        }
        match (number(&entry, 0, 8), number(&entry, 8, 8)) {
            (0, _) => break,
            (NEEDED, name) if names.len() < MOST_LIBRARIES => names.push(name),
            (STRINGS, address) => strings = Some(address),
            (RPATH, list) => lists[0] = Some(list),
            (RUNPATH, list) => lists[1] = Some(list),
            _ => {}
        }
    }
    let Some(strings) = strings else { return Some(found) };
    let holds = |s: &&Segment| s.kind == LOAD && strings >= s.address && strings - s.address < s.length;
    let load = segments.iter().find(holds)?;
    let start = load.offset.checked_add(strings - load.address)?;
    let at = |name: u64, most: usize| text(read, start.checked_add(name)?, most);
    found.libraries = names.into_iter().filter_map(|name| at(name, LONGEST_NAME)).collect();
    [found.rpath, found.runpath] = lists.map(|list| list.and_then(|list| at(list, LONGEST_LIST)));
    Some(found)
}

fn segments(read: &impl Fn(u64, &mut [u8]) -> bool) -> Option<Vec<Segment>> {
    let mut head = [0; 64];
    if !read(0, &mut head) || !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (start, size, count) = (number(&head, 32, 8), number(&head, 54, 2), number(&head, 56, 2));
    let one = |i: u64| {
        let mut bytes = [0; 56];
        read(start.checked_add(i * size)?, &mut bytes).then(|| Segment {
            kind: number(&bytes, 0, 4),
            offset: number(&bytes, 8, 8),
            address: number(&bytes, 16, 8),
            length: number(&bytes, 32, 8),
        })
    };
    (0..count.min(MOST_HEADERS)).map(one).collect()
}

/// The text there, if it ends soon.
fn text(read: &impl Fn(u64, &mut [u8]) -> bool, at: u64, most: usize) -> Option<String> {
    let mut name = Vec::new();
    while name.len() < most {
        let mut byte = [0];
        if !read(at.checked_add(name.len() as u64)?, &mut byte) {
            return None;
        }
        if byte == [0] {
            return String::from_utf8(name).ok();
        }
        name.push(byte[0]);
    }
    None
}

/// How the loader's list of libraries begins (`/etc/ld.so.cache`, as glibc has written it since 2.2), bytes of its header and of an entry.
const LIST: &[u8] = b"glibc-ld.so.cache1.1";
const LIST_HEADER: usize = 48;
const LIST_ENTRY: usize = 24;

/// Where that list says that a library is; more than one place, if it is there for several kinds of machine.
pub fn listed<'a>(list: &'a [u8], library: &str) -> Vec<&'a [u8]> {
    // An older list may be before it.
    let Some(start) = list.windows(LIST.len()).position(|w| w == LIST) else { return Vec::new() };
    let list = &list[start..];
    if list.len() < LIST_HEADER {
        return Vec::new();
    }
    let text = |at: u64| {
        let rest = usize::try_from(at).ok().and_then(|at| list.get(at..))?;
        Some(&rest[..rest.iter().position(|b| *b == 0)?])
    };
    let entries = list[LIST_HEADER..].chunks_exact(LIST_ENTRY).take(number(list, 20, 4) as usize);
    let named = entries.filter(|entry| text(number(entry, 4, 4)) == Some(library.as_bytes()));
    named.filter_map(|entry| text(number(entry, 8, 4))).collect()
}

/// Is this a library of a program that speaks PMIx? Open MPI's have had number 40 since it is version 3; MPICH's and its kin's libmpi has number 12.
pub fn wants_pmix(library: &str) -> bool {
    if library.starts_with("libpmix.so") {
        return true;
    }
    let of_open_mpi = ["libmpi", "liboshmem", "libopen-rte", "libopen-pal"].iter().any(|l| library.starts_with(l));
    let number = library.split_once(".so.").and_then(|(_, n)| n.split('.').next()).and_then(|n| n.parse::<u32>().ok());
    of_open_mpi && number.is_some_and(|n| n >= 40)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn of(bytes: &[u8]) -> Vec<String> {
        needed(|at, to| {
            let found = usize::try_from(at).ok().and_then(|at| bytes.get(at..at.checked_add(to.len())?));
            found.map(|found| to.copy_from_slice(found)).is_some()
        })
    }

    /// A program with these libraries: headers, then the dynamic section, then the strings, at address 0x1000.
    fn program(libraries: &[&str]) -> Vec<u8> {
        let (mut strings, mut dynamic) = (vec![0u8], Vec::new());
        for library in libraries {
            dynamic.extend([NEEDED, strings.len() as u64]);
            strings.extend(library.bytes().chain([0]));
        }
        let (at, length) = (64 + 2 * 56, (dynamic.len() as u64 / 2 + 2) * 16);
        dynamic.extend([STRINGS, 0x1000 + at + length, 0, 0]);
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 2;
        let total = at + length + strings.len() as u64;
        for (kind, offset, size) in [(LOAD, 0, total), (DYNAMIC, at, length)] {
            for word in [kind, offset, 0x1000 + offset, 0, size, size, 0] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes.extend(dynamic.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn what_a_program_names_is_found() {
        assert_eq!(of(&program(&["libmpi.so.40", "libc.so.6"])), ["libmpi.so.40", "libc.so.6"]);
        assert_eq!(of(&program(&[])), [""; 0]);
        assert_eq!(of(b"#!/bin/sh\n"), [""; 0]);
        let own = std::fs::read("/proc/self/exe").unwrap();
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            assert!(of(&own).iter().any(|name| name == "libc.so.6"), "{:?}", of(&own));
        }
    }

    #[test]
    fn what_a_loader_is_told_is_found() {
        // This test itself.
        let own = std::fs::read("/proc/self/exe").unwrap();
        let found = wants(|at, to| {
            let found = usize::try_from(at).ok().and_then(|at| own.get(at..at.checked_add(to.len())?));
            found.map(|found| to.copy_from_slice(found)).is_some()
        });
        if cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")) {
            let found = found.unwrap();
            assert_eq!((found.machine, found.interpreter.as_deref()), (62, Some("/lib64/ld-linux-x86-64.so.2")));
        }
    }

    /// A list of libraries as ldconfig(8) writes it.
    fn list(all: &[(&str, &str)]) -> Vec<u8> {
        let (mut strings, mut entries) = (Vec::new(), Vec::new());
        let start = LIST_HEADER + all.len() * LIST_ENTRY;
        for (name, path) in all {
            let mut put = |text: &str| {
                let at = (start + strings.len()) as u32;
                strings.extend(text.bytes().chain([0]));
                at
            };
            let words = [0x303, put(name), put(path), 0, 0, 0];
            entries.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        }
        let mut bytes = LIST.to_vec();
        bytes.extend((all.len() as u32).to_le_bytes());
        bytes.resize(LIST_HEADER, 0);
        [bytes, entries, strings].concat()
    }

    #[test]
    fn the_loaders_list_says_where_a_library_is() {
        let bytes = list(&[("libb.so.1", "/lib/libb.so.1"), ("liba.so", "/x/liba.so"), ("liba.so", "/lib32/liba.so")]);
        for bytes in [bytes.clone(), [b"ld.so-1.7.0\0 and more".to_vec(), bytes].concat()] {
            assert_eq!(listed(&bytes, "liba.so"), [b"/x/liba.so".as_slice(), b"/lib32/liba.so"]);
            assert_eq!(listed(&bytes, "lib"), [b""; 0]);
        }
        if let Ok(own) = std::fs::read("/etc/ld.so.cache") {
            assert!(cfg!(not(target_env = "gnu")) || !listed(&own, "libc.so.6").is_empty());
        }
        check!().with_type::<(Vec<u8>, Vec<(u8, u8)>)>().for_each(|(bytes, changes)| {
            listed(&[LIST, bytes].concat(), "liba.so");
            let mut bytes = list(&[("liba.so", "/lib/liba.so"); 4]);
            changes.iter().for_each(|(at, byte)| bytes[usize::from(*at) % 200] = *byte);
            listed(&bytes, "liba.so");
        });
    }

    #[test]
    fn open_mpi_is_told_from_mpich() {
        let open = ["libmpi.so.40", "libmpi_mpifh.so.40.30.4", "libopen-rte.so.40", "liboshmem.so.41", "libpmix.so.2"];
        assert!(open.iter().all(|name| wants_pmix(name)));
        let others =
            ["libmpich.so.12", "libmpi.so.12", "libmpi.so", "libmpifort.so.12", "libc.so.6", "libopen-pal.so.x"];
        assert!(!others.iter().any(|name| wants_pmix(name)));
    }

    #[test]
    fn no_file_makes_it_panic_or_go_on_for_ever() {
        check!().with_type::<Vec<u8>>().for_each(|bytes| _ = of(bytes));
        // Good ones with changed bytes come further.
        check!().with_type::<Vec<(u8, u8)>>().for_each(|changes| {
            let mut bytes = program(&["libmpi.so.40", "libc.so.6"]);
            changes.iter().for_each(|(at, byte)| bytes[usize::from(*at)] = *byte);
            of(&bytes);
        });
    }
}
