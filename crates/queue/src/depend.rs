//! Dependencies between jobs, as `--dependency` writes them.

use crate::array::Tasks;
use crate::job::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Most jobs that one job waits for.
pub const MOST_TERMS: usize = 1000;

/// When another job lets this one begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// It has begun, or was cancelled.
    After,
    /// It ended well.
    AfterOk,
    /// It ended badly.
    AfterNotOk,
    /// It ended.
    AfterAny,
    /// The task of the same number ended well.
    AfterCorr,
    /// No earlier job of this name and user is left.
    Singleton,
}

/// One thing that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// When.
    pub kind: Kind,
    /// Which job; 0 with [`Kind::Singleton`].
    pub job: u64,
    /// Only this task of it.
    pub task: Option<u32>,
    /// So many minutes later ([`Kind::After`] only).
    pub minutes: u32,
}

/// All of these, or any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// One is enough (written with `?` and not `,`).
    pub any: bool,
    /// What is waited for.
    pub terms: Vec<Term>,
}

/// How it stands with a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is in its way.
    Met,
    /// Not yet.
    Waits,
    /// It can never be met.
    Never,
}

impl Dependency {
    /// Reads `afterok:12:13_4,afterany:7`, `after:9+10?singleton`.
    pub fn read(text: &str) -> Result<Dependency, String> {
        let wrong = |why: &str| {
            format!("`{text}` is not a dependency ({why}): say afterok:JOB[:JOB], joined by , for all or ? for any")
        };
        let text = text.trim();
        if text.contains(',') && text.contains('?') {
            return Err(wrong("either , or ?"));
        }
        let mut found = Dependency { any: text.contains('?'), terms: Vec::new() };
        for part in text.split([',', '?']) {
            let mut words = part.split(':');
            let kind = match words.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "after" => Kind::After,
                "afterok" => Kind::AfterOk,
                "afternotok" => Kind::AfterNotOk,
                "afterany" => Kind::AfterAny,
                "aftercorr" => Kind::AfterCorr,
                "singleton" => Kind::Singleton,
                other => return Err(wrong(&format!("`{other}` is unknown"))),
            };
            let jobs: Vec<&str> = words.collect();
            if jobs.is_empty() != (kind == Kind::Singleton) {
                return Err(wrong("a job's number follows each but singleton"));
            }
            if kind == Kind::Singleton {
                found.terms.push(Term { kind, job: 0, task: None, minutes: 0 });
            }
            for job in jobs {
                found.terms.push(term(kind, job).ok_or_else(|| wrong(&format!("`{job}` is not a job")))?);
            }
            if found.terms.len() > MOST_TERMS {
                return Err(wrong(&format!("{MOST_TERMS} jobs at most")));
            }
        }
        Ok(found)
    }

    /// What is left to wait for where some of the terms are about jobs that the queue has forgotten. `past`: how the tasks of such a job ended; none for
    /// a job that the queue knows. `tasks`: those of the job that waits, if it is an array. An error: it can't be met, and why.
    pub fn without_past(
        &self,
        tasks: Option<&Tasks>,
        mut past: impl FnMut(u64) -> Option<BTreeMap<Option<u32>, State>>,
    ) -> Result<Dependency, String> {
        let mut left = Dependency { any: self.any, terms: Vec::new() };
        let mut never = None;
        for term in &self.terms {
            let ended = if term.kind == Kind::Singleton { None } else { past(term.job) };
            match ended.map(|ended| term.past(tasks, &ended)) {
                None => left.terms.push(*term),
                // One is enough.
                Some(Ok(())) if self.any => return Ok(Dependency::default()),
                Some(Ok(())) => {}
                Some(Err(why)) if self.any => never = Some(why),
                Some(Err(why)) => return Err(why),
            }
        }
        match never {
            Some(why) if left.terms.is_empty() => Err(why),
            _ => Ok(left),
        }
    }

    /// What the standings of all terms make.
    pub fn standing(&self, mut of: impl FnMut(&Term) -> Standing) -> Standing {
        let (decides, idle) = match self.any {
            true => (Standing::Met, Standing::Never),
            false => (Standing::Never, Standing::Met),
        };
        let mut all = if self.terms.is_empty() { Standing::Met } else { idle };
        for term in &self.terms {
            match of(term) {
                one if one == decides => return decides,
                Standing::Waits => all = Standing::Waits,
                _ => {}
            }
        }
        all
    }
}

impl Term {
    /// Is it met by a job that is over, whose tasks ended so? The error is for people.
    fn past(&self, tasks: Option<&Tasks>, ended: &BTreeMap<Option<u32>, State>) -> Result<(), String> {
        let meant: Vec<(&Option<u32>, &State)> =
            ended.iter().filter(|(task, _)| self.task.is_none() || **task == self.task).collect();
        let Some((_, first)) = meant.first() else {
            return Err(format!("{self}: job {} has no such task", self.job));
        };
        let bad = meant.iter().find(|(_, state)| **state != State::Completed);
        let how = |state: &State| state.names().0.to_lowercase();
        match (self.kind, bad) {
            (Kind::After | Kind::AfterAny | Kind::Singleton, _)
            | (Kind::AfterOk, None)
            | (Kind::AfterNotOk, Some(_)) => Ok(()),
            (Kind::AfterOk, Some((task, state))) => {
                let task = task.map_or(String::new(), |task| format!("_{task}"));
                Err(format!("{self} can't be met any more: job {}{task} has ended as {}", self.job, how(state)))
            }
            (Kind::AfterNotOk, None) => {
                Err(format!("{self} can't be met any more: job {} has ended as {}", self.job, how(first)))
            }
            (Kind::AfterCorr, _) => {
                let well = |task: &u32| ended.get(&Some(*task)) == Some(&State::Completed);
                match tasks.into_iter().flat_map(Tasks::iter).find(|task| !well(task)) {
                    Some(task) => Err(format!(
                        "{self} can't be met any more for task {task}: that one of job {} has not ended well, and the job is over",
                        self.job
                    )),
                    None => Ok(()),
                }
            }
        }
    }
}

fn term(kind: Kind, text: &str) -> Option<Term> {
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    let (text, minutes) = match text.split_once('+') {
        Some((text, minutes)) if kind == Kind::After && digits(minutes) => (text, minutes.parse().ok()?),
        Some(_) => return None,
        None => (text, 0),
    };
    let (job, task) = match text.split_once('_') {
        // `12_*` is all of it.
        Some((job, "*")) => (job, None),
        Some((job, task)) if digits(task) => (job, Some(task.parse().ok()?)),
        Some(_) => return None,
        None => (text, None),
    };
    let job = digits(job).then(|| job.parse().ok()).flatten().filter(|job| *job > 0)?;
    Some(Term { kind, job, task, minutes })
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::After => "after",
            Kind::AfterOk => "afterok",
            Kind::AfterNotOk => "afternotok",
            Kind::AfterAny => "afterany",
            Kind::AfterCorr => "aftercorr",
            Kind::Singleton => return f.write_str("singleton"),
        };
        write!(f, "{kind}:{}", self.job)?;
        self.task.map_or(Ok(()), |task| write!(f, "_{task}"))?;
        if self.minutes > 0 { write!(f, "+{}", self.minutes) } else { Ok(()) }
    }
}

impl Display for Dependency {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let between = if self.any { "?" } else { "," };
        let words: Vec<String> = self.terms.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(between))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use bolero::check;

    #[test]
    fn as_slurm_writes_them() {
        let both = ["afterok:12:13_4,afterany:7", "after:9+10?singleton", "aftercorr:3"];
        let shown = ["afterok:12,afterok:13_4,afterany:7", "after:9+10?singleton", "aftercorr:3"];
        for (text, shown) in both.iter().zip(shown) {
            let read = Dependency::read(text).unwrap();
            assert_eq!(read.to_string(), shown);
            assert_eq!(Dependency::read(shown).unwrap(), read);
        }
        for wrong in
            ["", "afterok", "singleton:3", "afterok:0", "afterok:x", "afterok:1+3", "a:1", "after:1,after:2?after:3"]
        {
            assert!(Dependency::read(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        check!().with_type::<String>().for_each(|text| _ = Dependency::read(text));
    }

    #[test]
    fn jobs_that_are_forgotten_count_as_they_ended() {
        let well = BTreeMap::from([(None, State::Completed)]);
        let array = BTreeMap::from([(Some(0), State::Completed), (Some(1), State::Failed)]);
        let past = |job: u64| match job {
            1 => Some(well.clone()),
            2 => Some(array.clone()),
            _ => None,
        };
        let left = |text: &str| {
            let tasks = Array::read("0-1").unwrap().tasks;
            Dependency::read(text).unwrap().without_past(Some(&tasks), past).map(|left| left.to_string())
        };
        for (text, rest) in [
            ("afterok:1", ""),
            ("afterok:1:9,singleton", "afterok:9,singleton"),
            ("afterany:2,after:2,afternotok:2,afterok:2_0", ""),
            ("afterok:2?afterok:9", "afterok:9"),
            ("afterok:1?afterok:9", ""),
        ] {
            assert_eq!(left(text), Ok(rest.to_owned()), "{text}");
        }
        for (text, why) in [
            ("afterok:2", "job 2_1 has ended as failed"),
            ("afternotok:1", "job 1 has ended as completed"),
            ("afterok:2?afternotok:1", "afternotok:1 can't be met"),
            ("aftercorr:2", "for task 1"),
            ("afterok:2_7", "no such task"),
        ] {
            assert!(left(text).unwrap_err().contains(why), "{text}: {:?}", left(text));
        }
    }

    #[test]
    fn all_and_any() {
        use Standing::{Met, Never, Waits};
        let standing = |any: bool, given: &[Standing]| {
            let terms = (0..given.len()).map(|i| Term { kind: Kind::After, job: i as u64, task: None, minutes: 0 });
            Dependency { any, terms: terms.collect() }.standing(|t| given[t.job as usize])
        };
        assert_eq!(standing(false, &[]), Met);
        assert_eq!([&[Met, Met][..], &[Met, Waits], &[Waits, Never]].map(|g| standing(false, g)), [Met, Waits, Never]);
        assert_eq!(
            [&[Never, Met][..], &[Never, Waits], &[Never, Never]].map(|g| standing(true, g)),
            [Met, Waits, Never]
        );
    }
}
