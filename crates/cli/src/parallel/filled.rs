//! Names of files that ranks write to: `res-%j-%4t.out`.

use pando_queue::Filling;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Nobody's file.
const NONE: &str = "none";

/// What they are made of besides the rank. In a batch job that is the job, as everywhere in its script.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The job's number.
    job: String,
    /// Of an array: its number, and the task's.
    array: Option<(String, String)>,
    name: String,
    user: String,
    /// The step's number: 0, where it is none of a batch job.
    step: u32,
}

/// Who writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writer<'a> {
    /// Of the job.
    pub rank: u32,
    /// Its place among the job's nodes.
    pub at: usize,
    /// The node.
    pub node: &'a str,
}

impl Names {
    /// Of the batch job that this is a step of, if it is one; else this has its own number when it begins.
    pub fn here(name: &str) -> Names {
        let of = |wanted: &str| std::env::var(wanted).ok().filter(|value| !value.is_empty());
        let is_step = of("PANDO_BATCH_JOB").is_some();
        Names {
            job: of("PANDO_BATCH_NUMBER").filter(|_| is_step).unwrap_or_default(),
            array: of("SLURM_ARRAY_JOB_ID").zip(of("SLURM_ARRAY_TASK_ID")).filter(|_| is_step),
            name: of("PANDO_BATCH_NAME").filter(|_| is_step).unwrap_or_else(|| name.to_owned()),
            user: of("USER").or_else(|| of("LOGNAME")).unwrap_or_default(),
            step: 0,
        }
    }

    /// It has this number of its own, and this one as a step.
    pub fn begin(&mut self, job: u64, step: Option<u32>) {
        self.step = step.unwrap_or(0);
        if self.job.is_empty() {
            self.job = job.to_string();
        }
    }

    /// The name that a writer's file has.
    pub fn fill(&self, pattern: &str, writer: Writer) -> PathBuf {
        if pattern == NONE {
            return "/dev/null".into();
        }
        let of_array = |of: fn(&(String, String)) -> &String| self.array.as_ref().map(of);
        let name = pando_queue::filled(pattern.as_bytes(), |letter| {
            Some(match letter {
                b'j' | b'J' => Filling::number(&self.job),
                b'A' => Filling::number(of_array(|(job, _)| job).unwrap_or(&self.job)),
                b'a' => Filling::number(of_array(|(_, task)| task).map_or("0", String::as_str)),
                b'x' => Filling::name(&self.name),
                b'u' => Filling::name(&self.user),
                b'N' => Filling::name(writer.node),
                b's' => Filling::number(self.step),
                b'n' => Filling::number(writer.at),
                b'r' | b't' => Filling::number(writer.rank),
                _ => return None,
            })
        });
        OsString::from_vec(name).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_as_slurm_does() {
        let array = Some(("17".to_owned(), "4".to_owned()));
        let names = Names { job: "21".into(), array, name: "a/b".into(), user: "ann".into(), step: 3 };
        let writer = Writer { rank: 7, at: 1, node: "n2" };
        let filled = |pattern: &str| names.fill(pattern, writer).display().to_string();
        assert_eq!(filled("res-%j-%4t.%N"), "res-21-0007.n2");
        assert_eq!(filled("%A_%a-%x-%u-%n"), "17_4-a_b-ann-1");
        assert_eq!(filled("100%%-%q-%"), "100%-%q-%");
        assert_eq!(filled("ä%r%ö"), "ä7%ö");
        assert_eq!(filled("none"), "/dev/null");
        assert_eq!(filled("%j.%s-%%s-%2s"), "21.3-%s-03");
        let mut own = Names::default();
        own.begin(3, None);
        assert_eq!(own.fill("%j_%A_%a", writer).display().to_string(), "3_3_0");
    }
}
