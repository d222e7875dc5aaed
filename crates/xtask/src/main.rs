//! `cargo run -p xtask -- tidy`: holds the tree to its own rules.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let offences = xtask::tidy::tidy(&root);
    for offence in &offences {
        println!("{offence}");
    }
    println!("tidy: {} offences", offences.len());
    ExitCode::from(u8::from(!offences.is_empty()))
}
