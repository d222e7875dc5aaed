//! Every command says what it does, with an example; the manual pages and the completions say the same.

mod lab;

use lab::{fails, ok, pando};

const VERBS: [&str; 13] =
    ["node", "init", "token", "join", "nodes", "run", "move", "ps", "explain", "events", "demo", "testbed", "bench"];

#[test]
fn each_command_has_its_own_help_with_one_example() {
    let all = ok(pando().arg("--help"));
    for verb in VERBS {
        assert!(all.lines().any(|l| l.trim_start().starts_with(&format!("{verb} "))), "{verb} is missing in {all}");
        let help = ok(pando().args([verb, "--help"]));
        let examples: Vec<&str> = help.lines().filter_map(|l| l.strip_prefix("Example: ")).collect();
        assert!(examples.len() == 1 && examples[0].contains(&format!("pando {verb}")), "{verb}: {help}");
        for other in ["testbed", "demo", "bench"].iter().filter(|o| **o != verb) {
            assert!(!help.contains(&format!("pando {other} ")), "the help of {verb} speaks of {other}: {help}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_and_where_to_look() {
    for (words, what) in [
        (&["bench", "fly"][..], "not a benchmark"),
        (&["testbed", "fly"], "not a testbed command"),
        (&["testbed", "up"], "the number of nodes is missing"),
        (&["testbed", "up", "3", "--fly"], "--fly"),
        (&["demo", "--nodes", "1"], "at least two nodes"),
        (&["run", "--fly", "true"], "`--fly` is no option"),
    ] {
        let wrong = fails(pando().args(words));
        let hint = format!("`pando {} --help` shows what there is", words[0]);
        let lines: Vec<&str> = wrong.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains(what) && lines[1] == hint, "{words:?}: {wrong}");
    }
    for verb in VERBS.iter().filter(|v| !["bench", "testbed", "demo", "run"].contains(v)) {
        let wrong = fails(pando().args([verb, "--fly"]));
        assert!(wrong.starts_with("error: unexpected argument '--fly'") && wrong.contains("--help"), "{wrong}");
        assert!(wrong.lines().count() <= 7, "{wrong}");
    }
}

#[test]
fn manual_pages_and_completions_are_made_of_the_same() {
    let dir = std::env::temp_dir().join(format!("pando-man-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    ok(pando().arg("__man").arg(&dir));
    for verb in VERBS {
        let page = std::fs::read_to_string(dir.join(format!("pando-{verb}.1"))).unwrap();
        assert!(page.contains("Example: "), "{verb}: {page}");
    }
    let page = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert!(page("pando-testbed.1").contains("stall NODE") && page("pando-bench.1").contains("256M"));
    assert!(!dir.join("pando-__man.1").exists(), "what is hidden stays hidden");
    std::fs::remove_dir_all(dir).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(pando().args(["__completions", shell]));
        assert!(script.contains("explain") && script.contains("since") && script.contains("testbed"), "{shell}");
    }
}

#[test]
fn the_environment_names_the_testbed() {
    let said = fails(pando().args(["testbed", "status"]).env("PANDO_TESTBED", "not-there"));
    assert!(said.contains("no testbed `not-there` is up"), "{said}");
    let said = fails(pando().args(["testbed", "status", "--name", "other"]).env("PANDO_TESTBED", "not-there"));
    assert!(said.contains("no testbed `other` is up"), "{said}");
}
