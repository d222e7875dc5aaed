//! What a program needs of a CPU: the features that it may use, and how its registers lie in memory. Pure, but for the reading.
//!
//! A program looks at the CPU where it starts and remembers what it found (ifuncs, JIT compilers), so it may go only where all of that is. Signal frames on its
//! stack hold registers in the layout of the machine that made them, which another kernel would misread. A program that was started with
//! `pando run --cpu LEVEL` was asked to keep to a level (psABI x86-64-v1 to v4); should it use more nevertheless, the
//! instruction faults abroad and the process comes home, where it works.

use pando_kernel::{procfs, xstate};
use serde::{Deserialize, Serialize};

/// The variable in a program's environment, which its children inherit.
pub const VARIABLE: &str = "PANDO_CPU";

/// Levels and what each adds, in the names of `/proc/cpuinfo`.
const LEVELS: [(&str, &[&str]); 4] = [
    ("x86-64", &["sse", "sse2"]),
    ("x86-64-v2", &["cx16", "popcnt", "ssse3", "sse4_1", "sse4_2"]),
    ("x86-64-v3", &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
];

/// Features that a program can see and use; those that only describe the machine are left out.
const USED: &[&str] =
    &["sse", "ssse", "avx", "amx", "aes", "vaes", "pclmul", "vpclmul", "bmi", "adx", "sha", "fma", "f16c"];
const MORE: &[&str] =
    &["popcnt", "movbe", "rdrand", "rdseed", "lzcnt", "abm", "gfni", "fsgsbase", "cx16", "xsave", "rdpid"];

/// What a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Needs {
    /// Features, in the names of `/proc/cpuinfo`.
    pub flags: Vec<String>,
    /// The level it keeps to, if one was named.
    pub level: Option<String>,
    /// Number, offset and size of each part of the extended registers.
    pub layout: Vec<(u32, u32, u32)>,
}

/// Whether there is such a level; the error names those that there are.
pub fn check_level(word: &str) -> Result<(), String> {
    let names: Vec<&str> = LEVELS.iter().map(|l| l.0).collect();
    match names.contains(&word) {
        true => Ok(()),
        false => Err(format!("there is no level {word}: there are {}", names.join(", "))),
    }
}

/// The features of a level and those below it.
fn level_flags(level: &str) -> Option<Vec<&'static str>> {
    let last = LEVELS.iter().position(|l| l.0 == level)?;
    Some(LEVELS[..=last].iter().flat_map(|l| l.1.iter().copied()).collect())
}

/// The features of this machine's CPU that `level` does not promise.
pub fn beyond(level: &str) -> Vec<String> {
    let promised = level_flags(level).unwrap_or_default();
    let here = relevant(procfs::cpu_flags());
    here.into_iter().filter(|f| !promised.contains(&f.as_str())).collect()
}

/// What process `pid` of this machine needs.
pub fn needs(pid: i32) -> Needs {
    let level = procfs::variable(pid, VARIABLE).filter(|l| level_flags(l).is_some());
    let mut flags = relevant(procfs::cpu_flags());
    if let Some(promised) = level.as_deref().and_then(level_flags) {
        flags.retain(|f| promised.contains(&f.as_str()));
    }
    Needs { flags, level, layout: layout() }
}

fn relevant(mut flags: Vec<String>) -> Vec<String> {
    flags.retain(|f| USED.iter().any(|p| f.starts_with(p)) || MORE.contains(&f.as_str()));
    flags
}

fn layout() -> Vec<(u32, u32, u32)> {
    xstate::layout().iter().map(|p| (p.number, p.offset, p.size)).collect()
}

impl Needs {
    /// Why this machine is not one for the program, if so.
    pub fn lacking(&self) -> Option<String> {
        self.lacking_on(&procfs::cpu_flags(), &layout())
    }

    fn lacking_on(&self, here: &[String], layout: &[(u32, u32, u32)]) -> Option<String> {
        let advice = "start it with `pando run --cpu x86-64-v2` to have it run on either";
        let missing: Vec<&str> =
            self.flags.iter().map(String::as_str).filter(|f| !here.iter().any(|h| h == f)).collect();
        if !missing.is_empty() {
            let missing = missing.join(" ");
            return Some(format!("this node's CPU lacks {missing}, which the program may already use; {advice}"));
        }
        // Without AVX all that a frame holds is in the legacy area, which is the same everywhere.
        let legacy = self.level.is_some() && !self.flags.iter().any(|f| f.starts_with("avx"));
        (!legacy && self.layout != layout).then(|| {
            format!(
                "this node's CPU has other extended registers than home's, and signal frames would be misread; {advice}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn needs(flags: &str, level: Option<&str>) -> Needs {
        Needs { flags: words(flags), level: level.map(str::to_owned), layout: vec![(2, 576, 256)] }
    }

    #[test]
    fn a_target_must_have_what_home_has_and_lay_it_out_alike() {
        let any = needs("avx2 sse2", None);
        assert_eq!(any.lacking_on(&words("avx2 sse2 fma"), &[(2, 576, 256)]), None);
        assert!(any.lacking_on(&words("sse2"), &[(2, 576, 256)]).unwrap().contains("lacks avx2,"));
        let other = any.lacking_on(&words("avx2 sse2"), &[(2, 576, 256), (5, 832, 64)]).unwrap();
        assert!(other.contains("extended registers") && other.contains("--cpu"), "{other}");
    }

    #[test]
    fn a_level_without_avx_goes_anywhere_and_one_with_it_where_frames_are_alike() {
        assert_eq!(needs("sse2 popcnt", Some("x86-64-v2")).lacking_on(&words("popcnt sse2"), &[]), None);
        let v3 = needs("avx sse2", Some("x86-64-v3"));
        assert!(v3.lacking_on(&words("avx sse2"), &[]).unwrap().contains("extended registers"));
        assert_eq!(v3.lacking_on(&words("avx sse2"), &[(2, 576, 256)]), None);
    }

    #[test]
    fn levels_grow() {
        assert!(check_level("x86-64-v5").unwrap_err().contains("x86-64-v4"));
        let sizes: Vec<usize> = LEVELS.iter().map(|l| level_flags(l.0).unwrap().len()).collect();
        assert!(sizes.windows(2).all(|w| w[0] < w[1]), "{sizes:?}");
        assert!(level_flags("x86-64-v3").unwrap().contains(&"sse2"));
    }
}
