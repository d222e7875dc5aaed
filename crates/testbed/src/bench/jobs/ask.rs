//! Who asks a queue: as `pando submit` and `pando wait` do, without a process for each.

use super::Rate;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::scratch::Scratch;
use crate::{api, sys};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Nothing that is asked for here takes longer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks whether all have ended.
const LOOK: Duration = Duration::from_millis(20);

/// See above.
pub struct Asker {
    socket: PathBuf,
    /// Where jobs run.
    dir: PathBuf,
}

fn number(answer: &Value) -> Result<u64> {
    answer.as_u64().ok_or_else(|| Error::Other(format!("the queue's answer is no number of a job: {answer}")))
}

impl Asker {
    /// One at the first node.
    pub fn new(plan: &Plan, scratch: &Scratch) -> Result<Asker> {
        let dir = scratch.0.join("jobs");
        std::fs::create_dir(&dir).at("create", &dir)?;
        Ok(Asker { socket: plan.socket("n1"), dir })
    }

    fn ask(&self, question: &Value) -> Result<Value> {
        api::queue(&self.socket, question, PATIENCE)
    }

    fn spec(&self, words: &[&str], output: &str) -> Value {
        json!({
            "name": "bench", "work": { "Words": words }, "directory": self.dir.to_string_lossy(),
            "environment": [["PATH", "/usr/local/bin:/usr/bin:/bin"]],
            "files": { "output": output }, "limit_ms": 600_000
        })
    }

    /// An array of `true`; its number.
    pub fn array(&self, tasks: u32) -> Result<u64> {
        let mut spec = self.spec(&["true"], "/dev/null");
        spec["array"] = json!({ "tasks": [[0, tasks - 1]], "at_once": null });
        number(&self.ask(&json!({ "Submit": spec }))?)
    }

    /// Until a job is over; an error if it did not end well.
    pub fn wait(&self, id: u64) -> Result<()> {
        let begun = Instant::now();
        loop {
            let answer = self.ask(&json!({ "Wait": { "id": { "job": id, "task": null }, "patience_ms": 1000 } }))?;
            match &answer["end"] {
                Value::Null => going_on(begun, "the end of a job")?,
                end if end[0] == "Completed" => return Ok(()),
                end => return Err(Error::Other(format!("job {id} ended badly: {end}"))),
            }
        }
    }

    /// So many jobs of `true` by so many clients; held ones stay in the queue. Gives the last one's number, too.
    pub fn submit(&self, clients: usize, jobs: usize, held: bool) -> Result<(Rate, u64)> {
        let mut spec = self.spec(&["true"], "/dev/null");
        spec["hold"] = held.into();
        let question = json!({ "Submit": spec });
        let one = |of: usize| (0..of).try_fold(0, |last, _| Ok(number(&self.ask(&question)?)?.max(last)));
        let begun = Instant::now();
        let last = std::thread::scope(|scope| {
            let shares = (0..clients).map(|client| jobs / clients + usize::from(client < jobs % clients));
            let threads: Vec<_> = shares.map(|share| scope.spawn(move || one(share))).collect();
            threads.into_iter().try_fold(0, |last, thread| {
                let died = |_| Err(Error::Other("a client of the queue has died".into()));
                Ok::<u64, Error>(thread.join().unwrap_or_else(died)?.max(last))
            })
        })?;
        Ok((Rate::of(jobs, begun.elapsed()), last))
    }

    /// Until nothing waits or runs that is not held. The last job is waited for first: to list thousands of others again and again is work, too.
    pub fn wait_for_all(&self, last: u64) -> Result<()> {
        self.wait(last)?;
        let begun = Instant::now();
        loop {
            let lines = self.ask(&json!("List"))?;
            let is_there = |line: &Value| line["state"] == "Pending" || line["state"] == "Running";
            if !lines.as_array().is_some_and(|lines| lines.iter().any(is_there)) {
                return Ok(());
            }
            going_on(begun, "the end of all jobs")?;
            std::thread::sleep(LOOK);
        }
    }

    /// Has a job say what time it is, since 1970.
    pub fn clock(&self) -> Result<Duration> {
        let spec = self.spec(&["date", "+%s%N"], "clock");
        let id = number(&self.ask(&json!({ "Submit": spec }))?)?;
        self.wait(id)?;
        let file = self.dir.join("clock");
        let said = std::fs::read_to_string(&file).at("read", &file)?;
        let ns = said.trim().parse().map_err(|_| Error::Other(format!("`date` says `{}`", said.trim())))?;
        Ok(Duration::from_nanos(ns))
    }
}

/// An error when it takes too long, or the user has had enough.
fn going_on(begun: Instant, what: &str) -> Result<()> {
    match sys::interrupted() {
        Some(_) => Err(Error::Interrupted),
        None if begun.elapsed() > PATIENCE => {
            Err(Error::Late { what: what.into(), seconds: PATIENCE.as_secs(), detail: String::new() })
        }
        None => Ok(()),
    }
}
