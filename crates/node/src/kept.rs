//! What users and administrators have said outlives the daemon: wishes of running programs, where they were sent by hand, and that the
//! node is being emptied.

use crate::daemon::Node;
use crate::follow::{Aim, watch};
use crate::owner::Facts;
use crate::processes::{Known, Totals};
use crate::views::Drain;
use pando_balance::Wish;
use pando_migrate::control::MoveRecord;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// All of it, as it is in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    /// Since the machine started: pids and start times mean something only till it starts again.
    boot: String,
    drained: bool,
    drain: Option<Drain>,
    programs: Vec<Program>,
    sent: Vec<Sent>,
}

/// A process whose home is here: what its user said of it, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Program {
    pid: u32,
    start_time: u64,
    run: bool,
    wish: Wish,
    moves: u32,
    records: Vec<MoveRecord>,
    earlier: Totals,
}

/// A process that was sent somewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sent {
    pid: u32,
    start_time: u64,
    aim: Aim,
}

/// The file, and what is in it.
pub struct Keeper {
    file: PathBuf,
    last: Kept,
}

/// What the file says. One that can't be read is put aside: what an administrator has said must not get lost unseen.
fn read(file: &Path) -> Kept {
    let read = match std::fs::read(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Kept::default(),
        read => read.map_err(|e| e.to_string()),
    };
    read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string())).unwrap_or_else(|why| {
        let aside = file.with_extension("damaged");
        let moved = std::fs::rename(file, &aside).map_or_else(|e| e.to_string(), |()| aside.display().to_string());
        let lost = "wishes, moves by hand and `pando drain` must be said again";
        tracing::error!("{} can't be read or is damaged ({why}): {lost}; it is kept as {moved}", file.display());
        Kept::default()
    })
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn snapshot(node: &Node) -> Kept {
    let programs = {
        let table = node.table();
        let of = |k: &Known| Program {
            pid: k.view.pid,
            start_time: k.start_time,
            run: k.view.run,
            wish: k.wish.clone(),
            moves: k.view.moves,
            records: k.view.records.clone(),
            earlier: k.earlier(),
        };
        table.all().filter(|k| k.view.role == "home").map(of).collect()
    };
    let sent = node.follow().sent().into_iter().map(|(pid, start_time, aim)| Sent { pid, start_time, aim }).collect();
    let drain = node.balancing.drained();
    Kept { boot: boot(), drained: drain.is_some(), drain, programs, sent }
}

impl Keeper {
    /// Takes up what the daemon before this one knew.
    pub fn restore(node: &Node) -> Keeper {
        let file = node.place.state.join("kept.json");
        let last = read(&file);
        if last.drained {
            // Earlier versions kept no reason.
            node.balancing.drain(node, Some(last.drain.clone().unwrap_or_default()), "before this daemon started");
        }
        if last.boot == boot() {
            for p in &last.programs {
                let Ok(facts) = Facts::read(p.pid) else { continue };
                if facts.start_time == p.start_time && !facts.zombie {
                    let mut table = node.table();
                    table.register(p.pid, facts.uids[0], facts.command, p.start_time, p.run);
                    let key = table.local(p.pid);
                    table.wishes(&key, p.wish.clone());
                    table.recall(&key, p.moves, p.records.clone(), p.earlier.clone());
                }
            }
            for s in &last.sent {
                watch::placed(node, s.pid, s.start_time, s.aim.clone(), true);
            }
        }
        Keeper { file, last }
    }

    /// Writes what has changed.
    pub fn save(&mut self, node: &Node) {
        let now = snapshot(node);
        if now == self.last {
            return;
        }
        node.writer.write(&self.file, serde_json::to_vec(&now).unwrap_or_default());
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_costs_nothing_else_and_what_is_damaged_is_put_aside() {
        let dir = std::env::temp_dir().join(format!("pando-kept-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("kept.json");
        assert_eq!(read(&file), Kept::default());
        std::fs::write(&file, r#"{"boot":"x","drained":true}"#).unwrap();
        assert!(read(&file).drained, "from a version that kept less");
        std::fs::write(&file, "{\"boot\":\"x\",\"dra").unwrap();
        assert_eq!(read(&file), Kept::default());
        assert_eq!(std::fs::read_to_string(dir.join("kept.damaged")).unwrap(), "{\"boot\":\"x\",\"dra");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
