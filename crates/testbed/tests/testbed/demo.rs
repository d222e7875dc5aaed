//! The demo says what it found by its exit status, and cleans up.

use crate::bed::{can_run, eventually, pando, remains};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(pando());
    command.arg("demo").args(args).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("pando runs")
}

fn leaves_nothing(pid: u32) {
    let name = format!("demo-{pid}");
    assert_eq!(remains(&name), Vec::<String>::new());
    assert!(!std::env::temp_dir().join(format!("pando-{name}")).exists(), "its data");
}

#[test]
fn outputs_are_compared_and_the_status_says_so() {
    if !can_run("outputs_are_compared_and_the_status_says_so") {
        return;
    }
    let demo = start(&["--nodes", "2", "--seconds", "3", "--json"]);
    let pid = demo.id();
    let output = demo.wait_with_output().expect("it ends");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    let programs = report["programs"].as_array().expect("a list of programs");
    assert!(programs.len() >= 4, "any Debian has gzip, sha256sum, sort and awk or perl");
    assert!(programs.iter().all(|p| p["same"] == true && p["failed"].is_null()), "{report:#}");
    assert_eq!(report["ok"], output.status.success(), "{report:#}");
    leaves_nothing(pid);
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing() {
    if !can_run("ctrl_c_in_the_middle_leaves_nothing") {
        return;
    }
    for (signal, ms) in [(libc::SIGINT, 300), (libc::SIGTERM, 3000)] {
        let mut demo = start(&["--nodes", "2", "--seconds", "6"]);
        std::thread::sleep(Duration::from_millis(ms));
        // SAFETY: kill with our own child's pid.
        unsafe { libc::kill(demo.id() as i32, signal) };
        assert_eq!(demo.wait().expect("it ends").code(), Some(130));
        leaves_nothing(demo.id());
    }
}

#[test]
fn a_killed_demo_is_cleared_by_its_holder() {
    if !can_run("a_killed_demo_is_cleared_by_its_holder") {
        return;
    }
    let mut demo = start(&["--nodes", "2", "--seconds", "6"]);
    let pid = demo.id();
    let holder = format!("/run/pando-testbed/demo-{pid}/holder.json");
    eventually("the holder", || std::path::Path::new(&holder).exists());
    std::thread::sleep(Duration::from_millis(1500));
    demo.kill().and_then(|()| demo.wait()).expect("our child");
    let data = std::env::temp_dir().join(format!("pando-demo-{pid}"));
    eventually("everything gone", || remains(&format!("demo-{pid}")).is_empty() && !data.exists());
}
