//! What is printed: a table for people, or JSON.

use serde_json::{Map, Value};
use std::fmt::Display;

/// Rows of words and numbers under names.
pub struct Table {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these columns.
    pub fn new(names: &[&str]) -> Self {
        Table { names: names.iter().map(|n| (*n).to_owned()).collect(), rows: Vec::new() }
    }

    /// One row, a cell for each column.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }

    /// So many rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// For people.
    pub fn text(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).chain(self.names.get(i));
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.names.len()).map(width).collect();
        let line = |cells: &[String]| {
            let cell = |(c, w): (&String, &usize)| format!("{c:>w$}");
            cells.iter().zip(&widths).map(cell).collect::<Vec<_>>().join("  ") + "\n"
        };
        line(&self.names) + &self.rows.iter().map(|r| line(r)).collect::<String>()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let value = |c: &String| c.parse::<serde_json::Number>().map_or_else(|_| Value::from(c.clone()), Value::Number);
        let object = |row: &Vec<String>| -> Value {
            let pairs = self.names.iter().zip(row).map(|(n, c)| (n.replace(' ', "_"), value(c)));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }

    /// Prints it.
    pub fn print(&self, json: bool) {
        match json {
            true => println!("{:#}", self.json()),
            false => print!("{}", self.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let mut table = Table::new(&["nodes", "slower %"]);
        table.row(&[&4, &"12.5"]);
        table.row(&[&1024, &"-"]);
        assert_eq!(table.text(), "nodes  slower %\n    4      12.5\n 1024         -\n");
        assert_eq!(table.json()[0]["slower_%"], 12.5);
        assert_eq!(table.json()[1]["slower_%"], "-");
    }
}
