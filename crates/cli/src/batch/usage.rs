//! `pando usage`: what jobs have used.

use super::ask;
use super::shown::span;
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::Ask;
use pando_node::queue::usage::Row;

const NOON_MS: u64 = 12 * 3_600_000;

/// Asks and shows.
pub fn show(client: &Client, what: &Ask, json: bool) -> Result<(), String> {
    let all: Vec<Row> = ask(client, what)?;
    if json {
        return print_json(&all);
    }
    let has_energy = all.iter().any(|row| row.sum.energy_mj.is_some());
    let row = |row: &Row| {
        let sum = &row.sum;
        let mut cells = vec![
            // Days are those of universal time: noon is in the same one nearly everywhere.
            crate::events::local(row.day + NOON_MS).split(' ').next().unwrap_or("").to_owned(),
            row.user.clone(),
            row.name.clone(),
            sum.tasks.to_string(),
            sum.failed.to_string(),
            format!("{:.1}s", sum.cpu_ms as f64 / 1000.0),
            span(sum.wall_ms),
            span(sum.cpus_ms),
            format!("{}M", sum.memory_mb),
            format!("{}M", sum.read >> 20),
            format!("{}M", sum.written >> 20),
        ];
        if has_energy {
            cells.push(sum.energy_mj.map_or("-".into(), |mj| format!("{:.1}J", mj as f64 / 1000.0)));
        }
        cells
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let mut names =
        vec!["DAY", "USER", "NAME", "ENDED", "FAILED", "CPU", "TIME", "CPUTIME", "MEMORY", "READ", "WRITTEN"];
    names.extend(has_energy.then_some("ENERGY"));
    print_table(&names, &rows, usize::MAX);
    Ok(())
}
