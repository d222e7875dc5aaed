//! What is wrong in the configuration is said when the node starts: what can't work ends it, what may come yet is in the log.

mod lab;

use lab::personal::Home;
use lab::{Lab, fails, ok, pando};

#[test]
fn a_node_does_not_start_with_what_can_not_work() {
    let lab = Lab::new(1, "");
    let (state, file) = (&lab.nodes[0].state, lab.dir.join("other.toml"));
    std::fs::write(&file, "[files]\nshared = [\"data\"]\n").unwrap();
    let said = fails(pando().args(["node", "--state"]).arg(state).arg("--config").arg(&file));
    let parts = [&*file.display().to_string(), "[files] shared has \"data\"", "begin with /", "\"NAME=/mnt/data\""];
    assert!(parts.iter().all(|p| said.contains(p)), "{said}");
    let said = fails(pando().args(["node", "--advertise", "here", "--state"]).arg(state));
    assert!(said.contains("advertise = \"here\" is no address: write ADDRESS:PORT"), "{said}");
}

#[test]
fn shared_directories_that_are_not_there_are_in_the_log() {
    let dir = std::env::temp_dir().canonicalize().unwrap().join(format!("pando-configuration-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("there")).unwrap();
    std::fs::write(dir.join("file"), "").unwrap();
    std::os::unix::fs::symlink("there", dir.join("link")).unwrap();
    let entries: Vec<_> = ["there", "file", "link", "missing"].map(|n| dir.join(n).display().to_string()).into();
    let lab = Lab::new(1, &format!("[files]\nshared = {entries:?}\n"));
    for (entry, what) in [(1, "it is no directory"), (2, "it leads to"), (3, "it can't be looked at (No such file")] {
        lab.nodes[0].logs(&format!("[files] shared has {:?}: {what}", entries[entry]));
    }
    assert!(!lab.nodes[0].log().contains(&format!("{:?}:", entries[0])), "{}", lab.nodes[0].log());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn personal_nodes_with_a_state_each_have_a_socket_each() {
    let home = Home::new();
    let nodes = ["a", "b"].map(|name| home.node("personal_nodes_with_a_state_each_have_a_socket_each", name));
    for node in nodes.iter().flatten() {
        let shown = ok(&mut node.cli(&["nodes"]));
        assert!(shown.lines().nth(1).unwrap().starts_with(&format!("{} ", node.name)), "{shown}");
        assert!(node.state.join("pando.sock").exists());
        // Where it is said otherwise, it is there.
        let elsewhere = ok(node.cli(&["node", "--print-config"]).env("PANDO_SOCKET", "/x/y"));
        assert!(elsewhere.contains(", socket /x/y\n"), "{elsewhere}");
        let usual = ok(node.cli(&["node", "--print-config"]).env_remove("PANDO_STATE"));
        assert!(usual.contains(&format!(", socket {}/pando/pando.sock\n", home.dir.display())), "{usual}");
    }
}
