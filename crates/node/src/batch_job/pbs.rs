//! What PBS's scripts find in their environment, those with lines of #PBS.

use crate::queue::errand::Order;
use pando_kernel::rank;
use pando_queue::Work;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that names the nodes, a line for each rank; it is gone with this.
pub struct Hosts {
    path: PathBuf,
    user: Option<(u32, u32)>,
}

impl Hosts {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // With the user's rights, as it was made: others may write in that directory, too.
        let _ = rank::as_user(self.user, || std::fs::remove_file(&self.path));
    }
}

/// Makes it, for a script of PBS.
pub fn hosts(order: &Order, user: Option<(u32, u32)>) -> Option<Hosts> {
    let Work::Script { text, .. } = &order.work else { return None };
    let is_pbs = |line: &[u8]| line.starts_with(b"#PBS ") || line.starts_with(b"#PBS\t");
    if !text.0.split(|b| *b == b'\n').any(is_pbs) {
        return None;
    }
    let each = order.shares.iter().map(|share| format!("{}\n", share.node).repeat(share.ranks as usize));
    let lines: String = each.collect();
    let name = format!("pando-nodes.{}.{}.{}", order.key.id, order.key.run, std::process::id());
    let path = std::env::temp_dir().join(name);
    let made = rank::as_user(user, || {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
    });
    match made {
        Ok(()) => Some(Hosts { path, user }),
        Err(e) => {
            eprintln!("pando: job {}: {}: {e}: it has no PBS_NODEFILE", order.key.id, path.display());
            None
        }
    }
}

/// The others.
pub fn variables(order: &Order, node: &str) -> Vec<(&'static str, String)> {
    let id = order.key.id;
    let ranks: u32 = order.shares.iter().map(|s| s.ranks).sum();
    let mut all = vec![
        ("PBS_JOBID", id.to_string()),
        ("PBS_JOBNAME", order.name.clone()),
        ("PBS_O_WORKDIR", String::from_utf8_lossy(&order.directory.0).into_owned()),
        ("PBS_NP", ranks.to_string()),
        ("PBS_NUM_NODES", order.shares.len().to_string()),
        ("PBS_NUM_PPN", order.shares.first().map_or(1, |s| s.ranks).to_string()),
        ("PBS_NODENUM", "0".into()),
        ("PBS_ENVIRONMENT", "PBS_BATCH".into()),
        ("PBS_O_HOST", node.to_owned()),
    ];
    if let Some(task) = id.task {
        all.extend([("PBS_ARRAY_INDEX", task.to_string()), ("PBS_ARRAYID", task.to_string())]);
    }
    all
}
