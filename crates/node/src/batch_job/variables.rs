//! What a batch job finds in its environment: what its user had, our own names, and those of Slurm, which many scripts ask for.

use crate::queue::errand::Order;
use pando_queue::Spec;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// All of them, later ones in the place of earlier ones.
pub fn all(order: &Order, node: &str) -> Vec<(OsString, OsString)> {
    let given = order.environment.iter();
    let mut all: Vec<(OsString, OsString)> =
        given.map(|(n, v)| (OsStr::from_bytes(&n.0).to_owned(), OsStr::from_bytes(&v.0).to_owned())).collect();
    all.extend(ours(order, node).into_iter().map(|(n, v)| (n.into(), v.into())));
    all
}

/// What was asked for, in Slurm's names: an order does not have it besides.
pub fn asked(spec: &Spec) -> Vec<(&'static str, String)> {
    let request = &spec.request;
    let mut all = Vec::new();
    all.extend(request.ranks_per_node.map(|n| ("SLURM_NTASKS_PER_NODE", n.to_string())));
    all.extend((request.memory_per_cpu > 0).then(|| ("SLURM_MEM_PER_CPU", request.memory_per_cpu.to_string())));
    all.extend(spec.quality.clone().map(|name| ("PANDO_QOS", name)));
    all
}

/// Which cluster it is, and the partition: what was asked for, or the one of those that name none.
pub fn of_cluster(spec: &Spec, cluster: String, usual: &str) -> [(&'static str, String); 2] {
    let partition = spec.request.partition.clone().unwrap_or_else(|| usual.to_owned());
    [("SLURM_CLUSTER_NAME", cluster), ("SLURM_JOB_PARTITION", partition)]
}

/// `2(x3),1`, as Slurm writes it.
fn shortened(all: &[u32]) -> String {
    let mut parts: Vec<(u32, usize)> = Vec::new();
    for number in all {
        match parts.last_mut() {
            Some((last, times)) if last == number => *times += 1,
            _ => parts.push((*number, 1)),
        }
    }
    let one = |(number, times): &(u32, usize)| match times {
        1 => number.to_string(),
        _ => format!("{number}(x{times})"),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Our own names and Slurm's, for a script that runs at `node`.
pub fn ours(order: &Order, node: &str) -> Vec<(&'static str, String)> {
    let id = order.key.id;
    let names: Vec<&str> = order.shares.iter().map(|s| s.node.as_str()).collect();
    let (list, nodes) = (names.join(","), names.len().to_string());
    let ranks: u32 = order.shares.iter().map(|s| s.ranks).sum();
    let each = |of: fn(&pando_queue::Share) -> u32| order.shares.iter().map(of).collect::<Vec<_>>();
    let cpus: Vec<String> = each(|s| s.cpus).iter().map(u32::to_string).collect();
    let (ranks, job) = (ranks.to_string(), order.number.to_string());
    let directory = String::from_utf8_lossy(&order.directory.0).into_owned();
    let mut all = vec![
        ("PANDO_BATCH_JOB", id.to_string()),
        ("PANDO_BATCH_NUMBER", job.clone()),
        ("PANDO_BATCH_NAME", order.name.clone()),
        ("PANDO_BATCH_NODES", list.clone()),
        ("PANDO_BATCH_RANKS", ranks.clone()),
        ("PANDO_NODE", node.to_owned()),
        ("SLURM_JOB_ID", job.clone()),
        ("SLURM_JOBID", job),
        ("SLURM_JOB_NAME", order.name.clone()),
        ("SLURM_JOB_USER", order.user.clone()),
        ("SLURM_JOB_ACCOUNT", order.account.clone()),
        ("SLURM_JOB_NODELIST", list.clone()),
        ("SLURM_NODELIST", list),
        ("SLURM_JOB_NUM_NODES", nodes.clone()),
        ("SLURM_NNODES", nodes),
        ("SLURM_NTASKS", ranks.clone()),
        ("SLURM_NPROCS", ranks),
        ("SLURM_TASKS_PER_NODE", shortened(&each(|s| s.ranks))),
        ("PANDO_BATCH_CPUS", cpus.join(",")),
        ("SLURM_JOB_CPUS_PER_NODE", shortened(&each(|s| s.cpus))),
        ("ENVIRONMENT", "BATCH".into()),
        ("SLURM_GTIDS", "0".into()),
        ("SLURM_CPUS_ON_NODE", order.shares.first().map_or(0, |s| s.cpus).to_string()),
        ("SLURM_CPUS_PER_TASK", order.cpus_per_rank.to_string()),
        ("SLURM_SUBMIT_DIR", directory),
        ("SLURMD_NODENAME", node.to_owned()),
        ("SLURM_NODEID", "0".into()),
        ("SLURM_PROCID", "0".into()),
        ("SLURM_LOCALID", "0".into()),
        ("SLURM_RESTART_COUNT", order.key.run.to_string()),
    ];
    if let Some((first, last, count)) = order.array {
        all.extend([
            ("SLURM_ARRAY_JOB_ID", id.job.to_string()),
            ("SLURM_ARRAY_TASK_ID", id.task.unwrap_or(0).to_string()),
            ("SLURM_ARRAY_TASK_MIN", first.to_string()),
            ("SLURM_ARRAY_TASK_MAX", last.to_string()),
            ("SLURM_ARRAY_TASK_COUNT", count.to_string()),
        ]);
    }
    if let Some(memory) = order.shares.first().map(|s| s.memory).filter(|m| *m > 0) {
        all.push(("SLURM_MEM_PER_NODE", memory.to_string()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::errand::Key;
    use pando_queue::{Bytes, Id, Request};

    #[test]
    fn what_was_asked_for_is_there_in_slurms_names() {
        let key = || Key { keeper: "n1".into(), id: Id::of(1), run: 0 };
        let found = |spec: &Spec, name: &str| {
            let all = all(&Order::of(spec, key(), 1, Vec::new()), "n1");
            let last = all.iter().rfind(|(n, _)| n == name);
            last.map(|(_, value)| value.to_string_lossy().into_owned())
        };
        let request = Request { ranks_per_node: Some(3), memory_per_cpu: 512, ..Request::default() };
        // Of the job that submitted it.
        let environment = vec![(Bytes::from("SLURM_NTASKS_PER_NODE"), Bytes::from("9"))];
        let spec = Spec { request, environment, ..Spec::default() };
        assert_eq!(found(&spec, "SLURM_NTASKS_PER_NODE").as_deref(), Some("3"));
        assert_eq!(found(&spec, "SLURM_MEM_PER_CPU").as_deref(), Some("512"));
        assert_eq!(found(&Spec::default(), "SLURM_MEM_PER_CPU"), None);
        assert_eq!(shortened(&[2, 2, 2, 1, 2]), "2(x3),1,2");
        assert_eq!(of_cluster(&spec, "c".into(), "batch")[1].1, "batch");
    }
}
