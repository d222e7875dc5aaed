//! Names of files that ranks write to: `res-%j-%4t.out`.

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
        }
    }

    /// It has this number of its own.
    pub fn begin(&mut self, job: u64) {
        if self.job.is_empty() {
            self.job = job.to_string();
        }
    }

    /// The name that a writer's file has.
    pub fn fill(&self, pattern: &str, writer: Writer) -> PathBuf {
        if pattern == NONE {
            return "/dev/null".into();
        }
        let (mut name, mut rest) = (String::new(), pattern);
        while let Some((text, after)) = rest.split_once('%') {
            name += text;
            let digits = after.bytes().take_while(u8::is_ascii_digit).count().min(2);
            let width = after[..digits].parse().unwrap_or(0);
            let number = |n: &dyn std::fmt::Display| format!("{:0>width$}", n.to_string());
            let mut kinds = after[digits..].chars();
            let kind = kinds.next();
            rest = kinds.as_str();
            name += &match kind {
                Some('j' | 'J') => number(&self.job),
                Some('A') => number(&self.array.as_ref().map_or(&self.job, |(job, _)| job)),
                Some('a') => number(&self.array.as_ref().map_or("0", |(_, task)| task)),
                Some('x') => self.name.replace('/', "_"),
                Some('u') => self.user.replace('/', "_"),
                Some('r' | 't') => number(&writer.rank),
                Some('n') => number(&writer.at),
                Some('N') => writer.node.to_owned(),
                Some('%') | None => "%".into(),
                Some(other) => format!("%{}{other}", &after[..digits]),
            };
        }
        (name + rest).into()
    }
}

/// What can't be filled. The error is for people.
pub fn check(pattern: &str) -> Result<(), String> {
    match pattern.replace("%%", "").contains("%s") {
        true => Err(format!(
            "{pattern}: the step's number is not known where its files are made: use the job's (%j), and a word for each step"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_as_slurm_does() {
        let array = Some(("17".to_owned(), "4".to_owned()));
        let names = Names { job: "21".into(), array, name: "a/b".into(), user: "ann".into() };
        let writer = Writer { rank: 7, at: 1, node: "n2" };
        let filled = |pattern: &str| names.fill(pattern, writer).display().to_string();
        assert_eq!(filled("res-%j-%4t.%N"), "res-21-0007.n2");
        assert_eq!(filled("%A_%a-%x-%u-%n"), "17_4-a_b-ann-1");
        assert_eq!(filled("100%%-%q-%"), "100%-%q-%");
        assert_eq!(filled("ä%r%ö"), "ä7%ö");
        assert_eq!(filled("none"), "/dev/null");
        assert!(check("x-%s").is_err() && check("%%s").is_ok());
        let mut own = Names::default();
        own.begin(3);
        assert_eq!(own.fill("%j_%A_%a", writer).display().to_string(), "3_3_0");
    }
}
