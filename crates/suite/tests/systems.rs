//! Whole systems, servers under load and sessions with terminals: all their processes roam, and all is as without moves.

use pando_suite::session::loudly;
use pando_suite::tree::{self, options};
use pando_suite::{program, testbed};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// One system at a time: each keeps the machine busy.
static TURN: Mutex<()> = Mutex::new(());
/// Where root's programs are, too.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/bin", "/usr/local/bin"];

/// What the script says that it needs and that is not installed.
fn missing(script: &Path) -> Vec<String> {
    let text = fs::read_to_string(script).unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    let needs = text.lines().find_map(|l| l.strip_prefix("# needs: ")).expect("a line `# needs: ...`");
    let there = |name: &str| PLACES.iter().any(|place| Path::new(place).join(name).exists());
    needs.split(' ').filter(|name| !there(name)).map(String::from).collect()
}

fn roams(name: &str) {
    let _one = TURN.lock().unwrap_or_else(|failed| failed.into_inner());
    if let Some(why) = testbed::missing().or_else(program::missing_compiler) {
        return loudly(&format!("SKIPPED {name}: {why}"));
    }
    let script = program::sources().with_file_name("scripts").join("systems").join(format!("{name}.sh"));
    let missing = missing(&script);
    if !missing.is_empty() {
        return loudly(&format!("SKIPPED {name}: not installed: {}", missing.join(", ")));
    }
    let args = ["--compare", "--ms", "30", "--at-least", "10", "--", &script.display().to_string()].map(String::from);
    let options = options::parse(args.into_iter()).expect("options");
    match tree::work(&options) {
        Ok(well) => assert!(well, "{name}: see above; seed {}", options.seed),
        Err(why) => panic!("{name}: {why}"),
    }
}

#[test]
fn redis() {
    roams("redis");
}

#[test]
fn sqlite() {
    roams("sqlite");
}

#[test]
fn nginx() {
    roams("nginx");
}

#[test]
fn tmux() {
    roams("tmux");
}

#[test]
fn ssh() {
    roams("ssh");
}

#[test]
fn mariadb() {
    roams("mariadb");
}
