//! Chores of this repository: `cargo run -p xtask -- tidy`.

pub mod tidy;
