//! `pando usage`: what jobs have used.

use super::ask;
use super::shown::span;
use crate::args::{By, UsageOptions};
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::Ask;
use pando_node::queue::usage::{Row, Sum};
use std::collections::BTreeMap;

const NOON_MS: u64 = 12 * 3_600_000;

/// One row for each user and account, or for each account, of all days and names.
fn added_up(all: Vec<Row>, by: By) -> Vec<Row> {
    let mut sums: BTreeMap<(String, String), Sum> = BTreeMap::new();
    for row in all {
        let user = if by == By::User { row.user } else { String::new() };
        sums.entry((row.account, user)).or_default().add_all(&row.sum);
    }
    let row = |((account, user), sum)| Row { account, user, sum, ..Row::default() };
    sums.into_iter().map(row).collect()
}

/// Asks and shows.
pub fn show(client: &Client, options: &UsageOptions) -> Result<(), String> {
    let since = options.since.as_deref().map_or(Ok(0), crate::events::since)?;
    let mut all: Vec<Row> = ask(client, &Ask::Usage { user: options.user.clone(), since })?;
    all.retain(|row| options.account.as_ref().is_none_or(|account| *account == row.account));
    if let Some(by) = options.by {
        all = added_up(all, by);
    }
    if options.json {
        return print_json(&all);
    }
    let row = |row: &Row| {
        let sum = &row.sum;
        vec![
            // Days are those of universal time: noon is in the same one nearly everywhere.
            match row.day {
                0 => "all".into(),
                day => crate::events::local(day + NOON_MS).split(' ').next().unwrap_or("").to_owned(),
            },
            row.user.clone(),
            row.account.clone(),
            row.name.clone(),
            sum.tasks.to_string(),
            sum.failed.to_string(),
            sum.steps.to_string(),
            format!("{:.1}s", sum.cpu_ms as f64 / 1000.0),
            span(sum.wall_ms),
            span(sum.cpus_ms),
            format!("{}M", sum.memory_mb),
            format!("{}M", sum.scratch_mb),
            format!("{}M", sum.read >> 20),
            format!("{}M", sum.written >> 20),
            // The machine's counters are there and readable, or not.
            sum.energy_mj.map_or("n/a".into(), |mj| format!("{:.1}J", mj as f64 / 1000.0)),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let names = [
        "DAY", "USER", "ACCOUNT", "NAME", "ENDED", "FAILED", "STEPS", "CPU", "TIME", "CPUTIME", "MEMORY", "SCRATCH",
        "READ", "WRITTEN", "ENERGY",
    ];
    print_table(&names, &rows, usize::MAX);
    Ok(())
}
