//! Writable memory that others can see: what it is, who they are, and what can be done.

use super::{Obstacle, obstacle};
use pando_kernel::procfs::{self, Mapping};

/// So many mappings and processes are named.
const NAMED: usize = 3;

/// One obstacle for all of a process's shared writable memory.
pub(super) fn of(pid: i32, shared: &[&Mapping]) -> Option<Obstacle> {
    let main = shared.iter().min_by_key(|m| kind(m))?;
    let mut names: Vec<String> = Vec::new();
    for m in shared {
        let name = name(m);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let why = format!("it shares writable memory: {} ({})", listed(&names), with_whom(pid, shared));
    Some(obstacle(why, advice(main)))
}

/// The first few, and how many more.
fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names[..names.len() - more].join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// What kind of memory this is, those first that keep a process for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Anonymous: made before a fork, for parent and children.
    Family,
    /// System V, POSIX or a memfd.
    Segment,
    /// The index of an SQLite database in WAL mode.
    WalIndex,
    /// Any other file.
    File,
}

fn kind(m: &Mapping) -> Kind {
    let path = path(m);
    match path {
        "" | "/dev/zero" => Kind::Family,
        _ if path.starts_with("[anon_shmem") => Kind::Family,
        _ if ["/SYSV", "/dev/shm/", "/memfd:"].iter().any(|p| path.starts_with(p)) => Kind::Segment,
        _ if path.ends_with("-shm") => Kind::WalIndex,
        _ => Kind::File,
    }
}

fn path(m: &Mapping) -> &str {
    m.name.strip_suffix(" (deleted)").unwrap_or(&m.name)
}

fn name(m: &Mapping) -> String {
    match kind(m) {
        Kind::Family => format!("{} KB of MAP_SHARED for parent and children", (m.end - m.start) >> 10),
        Kind::Segment | Kind::WalIndex => path(m).to_owned(),
        Kind::File => format!("the file {}", path(m)),
    }
}

fn advice(m: &Mapping) -> &'static str {
    match kind(m) {
        Kind::Family => {
            "processes that share memory stay together; some have an option for a single one (nginx: `master_process off`)"
        }
        Kind::Segment => "processes that share memory stay together; it can move when it has let go of that",
        Kind::WalIndex => "without WAL (`PRAGMA journal_mode=DELETE`), or with that database closed, it can move",
        Kind::File if path(m).contains("/hsperfdata_") => {
            "start Java with -XX:-UsePerfData (it keeps counters there for jstat)"
        }
        Kind::File => {
            "it can move when it has unmapped that, or if it has an option to write to files without mapping them"
        }
    }
}

/// Who has the same memory mapped.
fn with_whom(pid: i32, shared: &[&Mapping]) -> String {
    let same = |m: &Mapping| shared.iter().any(|s| s.inode == m.inode && s.inode != 0 && s.name == m.name);
    let shares = |other: &i32| procfs::maps(*other).is_ok_and(|maps| maps.iter().any(|m| m.shared && same(m)));
    let others: Vec<i32> =
        procfs::processes().into_iter().filter(|p| *p != pid).filter(shares).take(NAMED + 1).collect();
    let named: Vec<String> = others.iter().take(NAMED).map(|p| format!("{p} {}", procfs::name(*p))).collect();
    match others.len() {
        0 => "no other process has it mapped just now, but may".into(),
        n if n > NAMED => format!("with {} and others", named.join(", ")),
        _ => format!("with {}", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(name: &str, inode: u64) -> Mapping {
        Mapping { start: 0x1000, end: 0x9000, prot: 3, shared: true, offset: 0, inode, name: name.into() }
    }

    #[test]
    fn one_sentence_for_all_of_it() {
        let all: Vec<Mapping> =
            ["/dev/zero (deleted)", "/x/t.db-shm", "/x/t.db-shm", "/x/a", "/x/b"].map(|n| mapping(n, 0)).into();
        let found = of(-1, &all.iter().collect::<Vec<_>>()).expect("an obstacle");
        let list = "32 KB of MAP_SHARED for parent and children, /x/t.db-shm, the file /x/a and 1 more";
        assert_eq!(
            found.why,
            format!("it shares writable memory: {list} (no other process has it mapped just now, but may)")
        );
        assert!(found.advice.contains("master_process off"));
    }

    #[test]
    fn advice_is_about_what_is_shared() {
        let says = |name: &str| advice(&mapping(name, 1));
        assert!(says("/x/places.sqlite-shm").contains("journal_mode=DELETE"));
        assert!(says("/dev/shm/sem.x (deleted)").contains("let go of that"));
        assert!(says("/home/x/data").contains("unmapped"));
    }
}
