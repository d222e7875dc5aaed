//! What the demo found out.

use super::live::Piece;
use super::programs::Program;
use super::run::{complaints, output, same};
use crate::error::Result;
use crate::sys;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// All outputs are the same, no program failed, and something moved.
    pub ok: bool,
    /// Nodes.
    pub nodes: usize,
    /// Whether the testbed was in a user namespace.
    pub user_namespace: bool,
    /// Seconds that the programs took while they were moved about.
    pub moved_run_s: f64,
    /// Moves of all programs.
    pub moves: usize,
    /// Median freeze of all moves, microseconds.
    pub freeze_median_us: Option<u64>,
    /// The programs.
    pub programs: Vec<Row>,
}

/// One program.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub program: String,
    /// Its command line, shortened.
    pub command: String,
    /// How often it moved.
    pub moves: usize,
    /// Median freeze, microseconds.
    pub freeze_median_us: Option<u64>,
    /// Longest freeze, microseconds.
    pub freeze_max_us: Option<u64>,
    /// CPU milliseconds by node. Away from home as of the last report before the end.
    pub cpu_ms: BTreeMap<String, u64>,
    /// CPU milliseconds of the unmoved run.
    pub unmoved_cpu_ms: u64,
    /// Whether its output is the same, byte for byte, as that of the unmoved run.
    pub same: bool,
    /// How it ended, unless well.
    pub failed: Option<String>,
    /// What was last said about it when it did not move.
    pub refused: Option<String>,
}

/// The middle value.
pub fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The row of a program.
pub fn row(program: &Program, piece: &Piece, unmoved_cpu_ms: u64, dir: &Path) -> Result<Row> {
    let (there, here) = (dir.join("moved"), dir.join("unmoved"));
    let mut freezes: Vec<u64> = piece.moves.iter().map(|m| m.freeze_us).collect();
    let mut cpu_ms = piece.away_ms.clone();
    let end = piece.end();
    cpu_ms.insert("n1".into(), end.map_or(0, |e| e.cpu.as_millis() as u64));
    let failed = match end {
        Some(e) if e.status == 0 => None,
        Some(e) => {
            let said = std::fs::read_to_string(complaints(program, &there)).unwrap_or_default();
            Some(format!("{} {}", sys::status_text(e.status), said.trim()).trim().to_string())
        }
        None => Some("did not end".into()),
    };
    Ok(Row {
        program: program.name.to_string(),
        command: program.title(),
        moves: freezes.len(),
        freeze_median_us: median(&mut freezes),
        freeze_max_us: freezes.last().copied(),
        cpu_ms,
        unmoved_cpu_ms,
        same: same(&output(program, &there), &output(program, &here))?
            && same(&complaints(program, &there), &complaints(program, &here))?,
        failed,
        refused: piece.refused.clone(),
    })
}

/// All together.
pub fn report(rows: Vec<Row>, pieces: &[Piece], nodes: usize, user_namespace: bool, moved_run_s: f64) -> Report {
    let mut freezes: Vec<u64> = pieces.iter().flat_map(|p| &p.moves).map(|m| m.freeze_us).collect();
    let all_well = rows.iter().all(|r| r.same && r.failed.is_none());
    Report {
        ok: all_well && !freezes.is_empty(),
        nodes,
        user_namespace,
        moved_run_s,
        moves: freezes.len(),
        freeze_median_us: median(&mut freezes),
        programs: rows,
    }
}

/// As a table for people.
pub fn table(report: &Report) -> String {
    let names: Vec<String> = (1..=report.nodes).map(|i| format!("n{i}")).collect();
    let ms = |us: Option<u64>| us.map_or("-".to_string(), |us| format!("{:.1}", us as f64 / 1000.0));
    let mut out = format!("\n{:<10} {:>5} {:>13} {:>8}", "program", "moves", "freeze median", "max (ms)");
    let shown = names.len().min(8);
    out += "   CPU seconds at";
    for name in &names[..shown] {
        out += &format!(" {:>5}", if name == "n1" { "home" } else { name });
    }
    out += "  same output\n";
    for row in &report.programs {
        let line = (ms(row.freeze_median_us), ms(row.freeze_max_us));
        out += &format!("{:<10} {:>5} {:>13} {:>8}{:17}", row.program, row.moves, line.0, line.1, "");
        for name in &names[..shown] {
            let cpu = row.cpu_ms.get(name).copied().unwrap_or(0);
            out += &if cpu == 0 { format!(" {:>5}", "-") } else { format!(" {:>5.1}", cpu as f64 / 1000.0) };
        }
        out += if row.same { "  yes\n" } else { "  NO\n" };
    }
    out += &verdict(report);
    out
}

fn verdict(report: &Report) -> String {
    let mut out = String::new();
    for row in &report.programs {
        if let Some(failed) = &row.failed {
            out += &format!("{} FAILED: {failed}\n", row.program);
        }
        if let (Some(refused), 0) = (&row.refused, row.moves) {
            out += &format!("{} was never moved: {refused}\n", row.program);
        }
    }
    let count = report.programs.len();
    let different = report.programs.iter().filter(|r| !r.same).count();
    let freeze =
        report.freeze_median_us.map_or(String::new(), |us| format!(", median freeze {:.1} ms", us as f64 / 1e3));
    out += &match (report.ok, report.moves, different) {
        (true, moves, _) => {
            format!("{moves} moves of {count} programs{freeze}; every output is the same, byte for byte.\n")
        }
        (_, 0, 0) => "Nothing was moved: the demo FAILED.\n".to_string(),
        (_, _, 0) => "A program failed: the demo FAILED.\n".to_string(),
        (_, _, n) => format!("{n} of {count} outputs DIFFER: the demo FAILED.\n"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(same: bool) -> Report {
        let row = Row {
            program: "gzip".into(),
            command: "gzip -9".into(),
            moves: 2,
            freeze_median_us: Some(3100),
            freeze_max_us: Some(4000),
            cpu_ms: BTreeMap::from([("n1".into(), 500), ("n2".into(), 2000)]),
            unmoved_cpu_ms: 2400,
            same,
            failed: None,
            refused: None,
        };
        Report {
            ok: same,
            nodes: 2,
            user_namespace: false,
            moved_run_s: 9.0,
            moves: 2,
            freeze_median_us: Some(3100),
            programs: vec![row],
        }
    }

    #[test]
    fn the_table_says_what_matters() {
        let text = table(&sample(true));
        assert!(text.contains("3.1") && text.contains("  yes") && text.contains("home    n2"), "{text}");
        assert!(table(&sample(false)).contains("DIFFER"));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3, 1, 2]), Some(2));
        assert_eq!(median(&mut []), None);
    }
}
