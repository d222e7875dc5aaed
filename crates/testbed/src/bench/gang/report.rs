//! The table.

use super::{Figures, Program};
use sim::table::Table;
use std::fmt::Write;

fn of(program: &Program) -> String {
    let mut table =
        Table::new(&["turns, ms", "one after the other, s", "both, s", "over, %", "stopped and continued by hand, %"]);
    for s in &program.shared {
        let limit = s.limit_percent.map_or(String::new(), |over| format!("{over:+.1}"));
        let (serial, both) = (format!("{:.2}", s.serial_s), format!("{:.2}", s.both_s));
        table.row(&[&s.quantum_ms, &serial, &both, &format!("{:+.1}", s.over_percent), &limit]);
    }
    let over = |both: f64| format!("{:+.1}", (both / (2.0 * program.alone_s) - 1.0) * 100.0);
    if let Some(both) = program.without_s {
        table.row(&[&"no turns", &format!("{:.2}", 2.0 * program.alone_s), &format!("{both:.2}"), &over(both), &""]);
    }
    format!("{}: alone {:.2} s\n{}", program.name, program.alone_s, table.text())
}

/// For people.
pub fn text(figures: &Figures) -> String {
    let mut text = format!("{} CPUs, load {:.1} when it began\n\n", figures.cpus, figures.load);
    for program in &figures.programs {
        let _ = writeln!(text, "{}", of(program));
    }
    if let Some([half, most]) = figures.skew_us {
        let _ =
            writeln!(text, "ranks of a gang go on within {half:.0} us of each other (half), {most:.0} us (95 of 100)");
    }
    figures.skipped.iter().for_each(|(what, why)| _ = writeln!(text, "not measured: {what}: {why}"));
    figures.failed.iter().for_each(|(what, why)| _ = writeln!(text, "FAILED: {what}: {why}"));
    text
}

#[cfg(test)]
mod tests {
    use super::super::Shared;
    use super::*;

    #[test]
    fn what_was_measured_and_what_was_not_is_said() {
        let limit_percent = Some(0.7);
        let shared = vec![Shared { quantum_ms: 2.0, serial_s: 4.0, both_s: 4.04, over_percent: 1.0, limit_percent }];
        let one = Program { name: "computes".into(), alone_s: 2.0, shared, without_s: Some(5.0) };
        let skipped = [("programs that talk".to_owned(), "no compiler".to_owned())].into();
        let said = text(&Figures { programs: vec![one], skipped, skew_us: Some([40.0, 90.0]), ..Figures::default() });
        for part in
            ["computes: alone 2.00 s", "+1.0", "+0.7", "no turns", "+25.0", "40 us", "not measured: programs that talk"]
        {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}
