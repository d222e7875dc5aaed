//! Nothing is left behind, whoever dies when.

use crate::bed::{Bed, can_run, eventually, has_ip, pando, skipped};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn up_killed_in_the_middle_leaves_nothing() {
    if !can_run("up_killed_in_the_middle_leaves_nothing") {
        return;
    }
    for delay_ms in [1, 5, 15, 40, 80, 150, 400] {
        let bed = Bed::named(&format!("middle{delay_ms}"));
        let mut up = bed.command(&["up", "3", "--cpus", "1"]);
        let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pando runs");
        std::thread::sleep(Duration::from_millis(delay_ms));
        up.kill().expect("our child");
        up.wait().expect("our child");
        // Once there is a holder, it takes the rest away by itself; before that, `down` knows from the plan.
        std::thread::sleep(Duration::from_millis(100));
        bed.ok(&["down"]);
        eventually("the end of what was left", || bed.remains().is_empty());
        bed.ok(&["up", "1"]);
        bed.ok(&["down"]);
        assert_eq!(bed.remains(), Vec::<String>::new());
    }
}

#[test]
fn the_holder_goes_with_an_up_that_was_killed() {
    if !can_run("the_holder_goes_with_an_up_that_was_killed") {
        return;
    }
    let bed = Bed::named("orphan");
    let mut up = bed.command(&["up", "3"]);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pando runs");
    let holder = std::path::PathBuf::from(format!("/run/pando-testbed/{}/holder.json", bed.name));
    eventually("the holder", || holder.exists());
    up.kill().expect("our child");
    up.wait().expect("our child");
    eventually("everything gone without `down`", || bed.remains().is_empty());
}

#[test]
fn ctrl_c_takes_away_what_was_made() {
    if !can_run("ctrl_c_takes_away_what_was_made") {
        return;
    }
    let bed = Bed::named("ctrlc");
    let mut up = bed.command(&["up", "8"]);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pando runs");
    let plan = std::path::PathBuf::from(format!("/run/pando-testbed/{}/testbed.json", bed.name));
    eventually("the plan", || plan.exists());
    // SAFETY: kill with our own child's pid.
    unsafe { libc::kill(up.id() as i32, libc::SIGINT) };
    assert_eq!(up.wait().expect("our child").code(), Some(130));
    assert_eq!(bed.remains(), Vec::<String>::new());
}

#[test]
fn down_works_without_the_holder() {
    if !can_run("down_works_without_the_holder") {
        return;
    }
    let bed = Bed::named("noholder");
    bed.ok(&["up", "2", "--memory", "512M"]);
    let mut sleeper = bed.command(&["exec", "n1", "setsid", "sleep", "60"]).spawn().expect("pando runs");
    let holder = std::fs::read(format!("/run/pando-testbed/{}/holder.json", bed.name)).expect("it is up");
    let holder: serde_json::Value = serde_json::from_slice(&holder).expect("JSON");
    // SAFETY: kill with the pid that the testbed has just told.
    unsafe { libc::kill(holder["pid"].as_i64().expect("a pid") as i32, libc::SIGKILL) };
    eventually("the holder's end", || bed.status()["holder"] == false);
    let start = bed.run(&["start", "n1"]);
    assert!(String::from_utf8_lossy(&start.stderr).contains("is gone"));
    bed.ok(&["down"]);
    sleeper.wait().expect("down ends it");
    assert_eq!(bed.remains(), Vec::<String>::new());
}

#[test]
fn down_works_from_inside() {
    if !can_run("down_works_from_inside") {
        return;
    }
    let bed = Bed::named("inside");
    bed.ok(&["up", "2", "--memory", "512M"]);
    let inside = bed.run(&["exec", "n1", "sh", "-c", "pando testbed down; echo alive"]);
    assert_eq!(String::from_utf8_lossy(&inside.stdout), "alive\n", "{}", String::from_utf8_lossy(&inside.stderr));
    assert_eq!(bed.remains(), Vec::<String>::new());
}

#[test]
fn a_directory_without_a_plan_is_cleared() {
    if !can_run("a_directory_without_a_plan_is_cleared") {
        return;
    }
    let bed = Bed::named("noplan");
    let dir = std::path::PathBuf::from("/run/pando-testbed").join(&bed.name);
    std::fs::create_dir_all(dir.join("n1")).expect("root may");
    bed.ok(&["down"]);
    assert!(!dir.exists());
}

#[test]
fn an_ordinary_user_has_a_testbed_too() {
    let test = "an_ordinary_user_has_a_testbed_too";
    if !has_ip(test) {
        return;
    }
    // SAFETY: takes nothing, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let name = format!("t{}-user", std::process::id());
    // As nobody, with a program that nobody may run.
    let program = std::env::temp_dir().join(format!("pando-{name}"));
    let program = Copy(program);
    std::fs::copy(pando(), &program.0).expect("a copy for everybody");
    let run = |args: &[&str]| {
        let mut command = Command::new(if root { "setpriv" } else { "env" });
        if root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.arg(&program.0).args(["testbed", "--name", &name]).args(args);
        command
            .env_remove("XDG_RUNTIME_DIR")
            .env("HOME", "/nonexistent")
            .current_dir("/")
            .output()
            .expect("setpriv runs")
    };
    let up = run(&["up", "2"]);
    let said = String::from_utf8_lossy(&up.stderr).into_owned();
    if said.contains("this kernel refuses") {
        skipped(test, &said);
    } else {
        assert!(up.status.success(), "{said}");
        assert!(said.contains("user namespace"), "it says so: {said}");
        let exec = run(&["exec", "n2", "id", "-u"]);
        let uid = String::from_utf8_lossy(&exec.stdout).trim().to_string();
        // SAFETY: as above.
        let own = unsafe { libc::geteuid() };
        let expected = if root { 65534 } else { own };
        assert_eq!(uid, expected.to_string(), "the same user as outside");
        for args in [["cut", "n2"], ["heal", "n2"], ["kill", "n2"], ["start", "n2"]] {
            let output = run(&args);
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(run(&["down"]).status.success());
    }
    assert_eq!(crate::bed::remains(&name), Vec::<String>::new());
}

/// A copy of the program that is gone at the end of the test, however that ends.
struct Copy(std::path::PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}
