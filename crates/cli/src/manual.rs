//! Manual pages and completions, made from the command line's own description.

use crate::args::Args;
use crate::cluster::Done;
use clap::CommandFactory;
use std::path::Path;

/// Writes `pando.1` and one page for each verb into `dir`.
pub fn pages(dir: &Path) -> Done {
    clap_mangen::generate_to(Args::command(), dir).map_err(|e| format!("{}: {e}", dir.display()))
}

/// Prints completions.
pub fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Args::command(), "pando", &mut std::io::stdout());
}
