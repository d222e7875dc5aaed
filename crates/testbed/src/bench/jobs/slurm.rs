//! The same of Slurm, by its own commands.

use super::{CLIENTS, Rate};
use crate::bench::launch::command::{Done, installed, timed_within};
use crate::bench::launch::slurm::Slurm;
use crate::error::{Error, Result};
use crate::place::Plan;
use crate::sys;
use std::time::{Duration, Instant};

/// An array of it takes so long at most.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at its queue.
const LOOK: Duration = Duration::from_millis(100);

/// Why its queue is not measured.
pub fn missing() -> Option<String> {
    let gone = ["sbatch", "squeue"].into_iter().find(|program| installed(program).is_none())?;
    Some(format!("{gone} is not installed (on Debian: apt-get install slurm-client)"))
}

fn run(slurm: &Slurm, plan: &Plan, words: &[&str]) -> Result<Done> {
    let mut command = slurm.at_first(plan, words[0])?;
    command.args(&words[1..]).current_dir("/");
    timed_within(PATIENCE, command, words[0])
}

/// An array of `true`, until none of it is left.
pub fn array(slurm: &Slurm, plan: &Plan, tasks: u32) -> Result<Rate> {
    let begun = Instant::now();
    let list = format!("--array=0-{}", tasks - 1);
    run(slurm, plan, &["sbatch", "-Q", &list, "--output=/dev/null", "--wrap=true"])?;
    loop {
        let left = run(slurm, plan, &["squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING"])?.out;
        if left.trim().is_empty() {
            return Ok(Rate::of(tasks as usize, begun.elapsed()));
        }
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        if begun.elapsed() > PATIENCE {
            let detail = format!(": {} lines in squeue", left.lines().count());
            return Err(Error::Late { what: "Slurm's array".into(), seconds: PATIENCE.as_secs(), detail });
        }
        std::thread::sleep(LOOK);
    }
}

/// Calls of `sbatch`, by as many clients as with us.
pub fn submissions(slurm: &Slurm, plan: &Plan, jobs: usize) -> Result<Rate> {
    let each = jobs.div_ceil(CLIENTS);
    let words = ["sbatch", "-Q", "--hold", "--output=/dev/null", "--wrap=true"];
    let one = || (0..each).try_for_each(|_| run(slurm, plan, &words).map(drop));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|_| Err(Error::Other("a client of Slurm has died".into()))))
    })?;
    Ok(Rate::of(each * CLIENTS, begun.elapsed()))
}
