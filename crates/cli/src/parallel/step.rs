//! What a step may have of the batch job that it is part of.

use crate::args::{ParallelOptions, names};

/// The job's nodes, and its CPUs of each; none: we are in no job.
fn has() -> Option<Vec<(String, u32)>> {
    let (nodes, cpus) = (std::env::var("PANDO_BATCH_NODES").ok()?, std::env::var("PANDO_BATCH_CPUS").ok()?);
    let cpus = cpus.split(',').filter_map(|n| n.parse().ok());
    let all: Vec<(String, u32)> = nodes.split(',').map(str::to_owned).zip(cpus).collect();
    Some(all).filter(|all| !all.is_empty())
}

/// As Slurm has it a step has no more ranks than its job has CPUs for, unless its user says that he wants that.
pub fn fits(options: &ParallelOptions) -> Result<(), String> {
    let Some(has) = has().filter(|_| !options.overcommit && !options.oversubscribe) else { return Ok(()) };
    let job = std::env::var("PANDO_BATCH_JOB").unwrap_or_default();
    allowed(options, &has).map_err(|(wanted, cpus)| {
        format!(
            "Unable to create step for job {job}: More processors requested than permitted: {wanted} CPUs for its ranks, and the job has {cpus} \
             there; --overcommit starts them all the same"
        )
    })
}

/// An error: CPUs that are wanted, and that there are.
fn allowed(options: &ParallelOptions, has: &[(String, u32)]) -> Result<(), (u64, u64)> {
    let named = names(options.nodelist.as_ref());
    let is_meant = |name: &String| named.is_empty() || named.contains(name);
    let cpus: u64 = has.iter().filter(|(name, _)| is_meant(name)).map(|(_, cpus)| u64::from(*cpus)).sum();
    let nodes = options.node_count.unwrap_or(1);
    let ranks = options.ranks.unwrap_or_else(|| options.per_node.map_or(nodes, |each| each.saturating_mul(nodes)));
    let wanted = u64::from(ranks) * u64::from(options.cpus.unwrap_or(1).max(1));
    if wanted > cpus { Err((wanted, cpus)) } else { Ok(()) }
}

/// What there is of CPUs for steps that share theirs with no other.
pub fn exclusive() -> Result<Vec<(String, u32)>, String> {
    has().ok_or_else(|| {
        "--exclusive is for steps of a batch job; other jobs share nodes, and -c gives ranks CPUs of their own"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;

    #[test]
    fn no_more_ranks_than_cpus() {
        let has = [("n1".to_owned(), 4), ("n2".to_owned(), 2)];
        let try_it = |text: &str| {
            let words = format!("pando run {text} true");
            let args = Args::try_parse_from(words.split_whitespace()).unwrap();
            let crate::args::Verb::Run(run) = args.verb else { panic!() };
            allowed(&run.parallel, &has)
        };
        assert_eq!((try_it("-n 6"), try_it("-n 7")), (Ok(()), Err((7, 6))));
        assert_eq!((try_it("-n 3 -c 2"), try_it("-n 3 -c 3")), (Ok(()), Err((9, 6))));
        assert_eq!((try_it("-n 4 -w n1"), try_it("-n 3 -w n2")), (Ok(()), Err((3, 2))));
        assert_eq!((try_it("-N 2"), try_it("-N 2 --ppn 4")), (Ok(()), Err((8, 6))));
    }
}
