//! The standard workload format of Feitelson's archive of parallel workloads: a line for each job, 18 numbers, -1 for what is not known; comments
//! begin with a semicolon.

use crate::lublin::Work;

/// Longest file, bytes, and most jobs.
const MOST_BYTES: u64 = 1 << 30;
const MOST_JOBS: usize = 5_000_000;

/// A log: CPUs of the machine, and its jobs. The error names the line.
pub fn read(text: &str) -> Result<(u32, Vec<Work>), String> {
    let (mut cpus, mut jobs) = (0u32, Vec::new());
    for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        if let Some(comment) = line.strip_prefix(';') {
            let said = comment.trim().strip_prefix("MaxProcs:").and_then(|n| n.trim().parse().ok());
            cpus = said.unwrap_or(cpus);
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        let fields = line.split_ascii_whitespace().map(|f| f.parse::<f64>().ok().filter(|n| n.is_finite()));
        let fields = fields.take(19).collect::<Option<Vec<f64>>>().ok_or_else(|| wrong("not a number"))?;
        if fields.len() != 18 {
            return Err(wrong(&format!("{} fields, and not 18", fields.len())));
        }
        if jobs.len() >= MOST_JOBS {
            return Err(wrong(&format!("more than {MOST_JOBS} jobs")));
        }
        let known = |i: usize| Some(fields[i]).filter(|n| *n > 0.0 && *n < 1e10);
        // What it got, and otherwise what it asked for. Jobs that never ran are left out.
        let (Some(run), Some(size)) = (known(3), known(4).or(known(7))) else { continue };
        let size = (size.min(1e9) as u32).max(1);
        let limit = known(8).unwrap_or(run).max(run) as u64 + 1;
        jobs.push(Work {
            at: fields[1].clamp(0.0, 1e10) as u64,
            run: run as u64,
            limit,
            cpus: size,
            user: fields[11].clamp(0.0, 1e9) as u32,
        });
    }
    jobs.sort_by_key(|j| j.at);
    let largest = jobs.iter().map(|j| j.cpus).max().unwrap_or(0);
    if jobs.is_empty() {
        return Err("no jobs that ran".into());
    }
    Ok((cpus.max(largest), jobs))
}

/// Reads a file.
pub fn file(path: &str) -> Result<(u32, Vec<Work>), String> {
    let size = std::fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.len();
    if size > MOST_BYTES {
        return Err(format!("{path}: {size} bytes, {MOST_BYTES} at most"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    read(&String::from_utf8_lossy(&bytes)).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_the_archive() {
        let text = "; MaxProcs: 128\n\n 1 10 5 100 4 -1 -1 8 200 -1 1 3 1 -1 1 -1 -1 -1\n\
                    2 5 0 50 -1 -1 -1 256 -1 -1 1 2 1 -1 1 -1 -1 -1\n3 6 0 -1 -1 -1 -1 2 9 -1 5 2 1 -1 1 -1 -1 -1\n";
        let (cpus, jobs) = read(text).unwrap();
        let expected = [
            Work { at: 5, run: 50, limit: 51, cpus: 256, user: 2 },
            Work { at: 10, run: 100, limit: 201, cpus: 4, user: 3 },
        ];
        assert_eq!((cpus, &jobs[..]), (256, &expected[..]));
        for (wrong, why) in [
            ("1 2", "line 1: 2 fields"),
            ("; x\na b", "line 2: not a number"),
            ("", "no jobs"),
            ("1 NaN", "not a number"),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }
}
