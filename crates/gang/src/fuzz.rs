//! A node takes tables from another machine, and the matrix takes wishes of users. Under `cargo test` each target runs briefly; with cargo-bolero
//! for as long as one likes.

use crate::{Input, Matrix, Rules, Table};
use bolero::check;

#[test]
fn whatever_table_comes() {
    check!().with_type::<(Table, Vec<u64>)>().for_each(|(table, slots)| {
        let good = table.check().is_ok();
        for &slot in slots {
            let row = table.row(slot);
            assert!(!good || row < table.rows.max(1));
            for (&job, rows) in &table.jobs {
                assert!(!table.runs(job, slot) || rows.contains(&row));
            }
        }
        let bytes = postcard::to_stdvec(table).unwrap();
        assert_eq!(postcard::from_bytes::<Table>(&bytes).as_ref(), Ok(table));
    });
}

#[test]
fn whatever_bytes_come() {
    check!().for_each(|bytes: &[u8]| {
        if let Ok(table) = postcard::from_bytes::<Table>(bytes) {
            let _ = table.check();
            table.runs(1, u64::MAX);
        }
    });
}

#[test]
fn whatever_is_wished() {
    check!().with_type::<(Rules, Vec<Input>)>().for_each(|(rules, inputs)| {
        let mut matrix = Matrix::new(*rules);
        for input in inputs {
            // Nodes as large as there are, and names that are met again.
            let input = match input {
                Input::Node { name, cpus } => Input::Node { name: near(name), cpus: cpus % 200 },
                Input::Busy { name, milli } => Input::Busy { name: near(name), milli: *milli },
                Input::NodeGone(name) => Input::NodeGone(near(name)),
                other => other.clone(),
            };
            matrix.handle(input);
            assert_eq!(matrix.table().check(), Ok(()));
            let used = matrix.utilisation();
            assert!((0.0..=1.0).contains(&used), "{used}");
        }
    });
}

fn near(name: &str) -> String {
    name.chars().take(1).collect()
}
