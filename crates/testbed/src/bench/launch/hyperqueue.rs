//! HyperQueue, for many short tasks: by its Python package, which brings the whole of it (server, worker and client, without the program `hq`).

use super::command::{installed, timed_within};
use crate::entry;
use crate::error::{Error, Result};
use crate::place::Plan;
use crate::scratch::Scratch;
use std::process::Command;
use std::time::Duration;

/// As it is called in tables.
pub const NAME: &str = "HyperQueue";
/// What is run with it.
const SCRIPT: &str = include_str!("many_true.py");
/// It is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why it is not used, if it is not.
pub fn missing() -> Option<String> {
    if installed("python3").is_none() {
        return Some("there is no python3, and it is had by its Python package".into());
    }
    let found = Command::new("python3").args(["-c", "import hyperqueue"]).output();
    match found {
        Ok(output) if output.status.success() => None,
        _ => Some("python3 has no package of that name (PyPI's `hyperqueue`)".into()),
    }
}

/// So many tasks, so many at a time, by a server and a worker that run already; what all of them take.
pub fn run(plan: &Plan, scratch: &Scratch, (tasks, at_once): (usize, usize)) -> Result<Duration> {
    let mut command = entry::command(plan, "n1", &"python3".into())?;
    command.args(["-c", SCRIPT, &tasks.to_string(), &at_once.to_string()]).arg(scratch.0.join("hyperqueue"));
    // What it shows of its progress, and where it would write what tasks say.
    command.env("TQDM_DISABLE", "1").current_dir(&scratch.0);
    rated(&timed_within(PATIENCE, command, NAME)?.out, tasks)
}

/// What all tasks take, from what was said of most of them.
fn rated(said: &str, tasks: usize) -> Result<Duration> {
    let words = said.lines().filter_map(|line| line.strip_prefix("done ")).next_back();
    let numbers = words.and_then(|words| words.split_once(' ')).and_then(|(done, seconds)| {
        let (done, seconds) = (done.parse::<f64>().ok()?, seconds.trim().parse::<f64>().ok()?);
        (done >= 1.0 && seconds > 0.0).then(|| seconds * tasks as f64 / done)
    });
    let all = numbers.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    all.ok_or_else(|| Error::Other(format!("{NAME} has not said how many tasks were done")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_of_them_says_what_all_take() {
        assert_eq!(rated("| a table |\ndone 50 2.5\n", 100).unwrap(), Duration::from_secs(5));
        for said in ["", "done\n", "done 5\n", "done 0 1\n", "done 5 0\n", "done x 1\n", "done 1 inf\n", "done 1 NaN\n"]
        {
            assert!(rated(said, 100).is_err(), "{said}");
        }
    }
}
