//! Making a cluster, joining it, and seeing who is there.

mod lab;

use lab::{Lab, fails, is_root, ok, pando, until};
use pando_node::views::Liveness;
use std::io::{Read, Write};
use std::process::Command;

#[test]
fn three_machines_become_one_cluster_and_see_who_dies_and_returns() {
    let mut lab = Lab::new(3, "");
    let table = ok(&mut lab.nodes[2].cli(&["nodes"]));
    for name in ["n1", "n2", "n3"] {
        assert!(table.lines().any(|l| l.starts_with(name) && l.contains("up")), "{table}");
    }
    let json: serde_json::Value = serde_json::from_str(&ok(&mut lab.nodes[0].cli(&["nodes", "--json"]))).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 3);
    assert!(json[0]["cpus"].as_f64().unwrap() > 0.0 && json[1]["free"].as_u64().unwrap() > 0, "{json}");
    lab.nodes[1].kill();
    for i in [0, 2] {
        until("n2 down", || (lab.nodes[i].node("n2").state == Liveness::Down).then_some(()));
        lab.nodes[i].logs("node n2 is down");
    }
    lab.nodes[1].start();
    lab.settled();
    assert!(lab.nodes[1].stop(), "SIGTERM is a good end");
    assert!(!lab.nodes[1].socket.exists(), "the socket goes with it");
}

#[test]
fn a_stalled_node_is_suspect_then_down_then_up() {
    let lab = Lab::new(2, "");
    let state = || lab.nodes[0].node("n2").state;
    lab::signal(lab.nodes[1].pid(), "STOP");
    until("suspect", || (state() == Liveness::Suspect).then_some(()));
    until("down", || (state() == Liveness::Down).then_some(()));
    lab::signal(lab.nodes[1].pid(), "CONT");
    lab.settled();
}

#[test]
fn a_token_works_once_and_only_as_it_was_made() {
    let lab = Lab::new(1, "");
    let machine = lab.prepare("other", "");
    let token = lab.token();
    let cut = fails(&mut machine.join(&token[..token.len() - 4], "n2"));
    assert!(cut.contains("not a join token"), "{cut}");
    ok(&mut machine.join(&token, "n2"));
    let again = fails(&mut machine.join(&token, "n3"));
    assert!(again.contains("already has an identity"), "{again}");
    let third = lab.prepare("third", "");
    let replayed = fails(&mut third.join(&token, "n3"));
    assert!(replayed.contains("used by n2 already"), "{replayed}");
    lab.nodes[0].logs("n3 at 127.0.0.1");
    assert!(lab.nodes[0].audit().contains("used by n2 already"), "{}", lab.nodes[0].audit());
    let expired = ok(&mut lab.nodes[0].cli(&["token", "--valid-s", "0"]));
    let late = fails(&mut third.join(expired.trim(), "n3"));
    assert!(late.contains("expired"), "{late}");
    let taken = fails(&mut third.join(&lab.token(), "n2"));
    assert!(taken.contains("is a member already"), "{taken}");
    let bad_name = fails(&mut third.join(&lab.token(), "Not_A_Name"));
    assert!(bad_name.contains("lower-case"), "{bad_name}");
    let word = lab.token();
    let elsewhere = Lab::new(1, "");
    let other = elsewhere.nodes[0].addr();
    let mut forged = pando_wire::token::Token::from_word(&word).unwrap();
    forged.addr = other;
    let stranger = fails(&mut third.join(&forged.to_word(), "n3"));
    assert!(stranger.contains("is not the node that made this token"), "{stranger}");
    forged.addr = "127.0.0.1:1".into();
    let nobody = fails(&mut third.join(&forged.to_word(), "n3"));
    assert!(nobody.contains("can't be reached"), "{nobody}");
    ok(&mut third.join(&word, "n3"));
}

#[test]
fn what_is_missing_is_said_with_the_next_step() {
    let lab = Lab::new(1, "");
    let machine = lab.prepare("bare", "");
    let no_identity = fails(pando().args(["node", "--listen", "127.0.0.1:0", "--state"]).arg(&machine.state));
    assert!(no_identity.contains("pando init"), "{no_identity}");
    let no_daemon = fails(&mut machine.cli(&["nodes"]));
    assert!(no_daemon.contains("start one with `pando node`"), "{no_daemon}");
    let mut second = pando();
    second.args(["node", "--listen", "127.0.0.1:0", "--state"]).arg(&lab.nodes[0].state);
    let running = fails(second.arg("--socket").arg(&machine.socket));
    assert!(running.contains("another node runs"), "{running}");
    let printed = ok(pando().args(["node", "--print-config", "--listen", "1.2.3.4:5"]));
    for key in ["listen = \"1.2.3.4:5\"", "lost_after_ms = 10000", "probe_ms = 1000"] {
        assert!(printed.contains(key), "{printed}");
    }
}

#[test]
fn another_user_gets_no_token_and_no_process_of_ours() {
    if !is_root("another_user_gets_no_token_and_no_process_of_ours") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let lab = Lab::new(2, "");
    let sleeper = lab::Sleeper::new();
    let pid = sleeper.pid().to_string();
    // The build directory may be closed to others.
    let program = lab.dir.join("pando");
    std::fs::copy(env!("CARGO_BIN_EXE_pando"), &program).unwrap();
    std::fs::set_permissions(&lab.dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("PANDO_SOCKET", &lab.nodes[0].socket).uid(65534).gid(65534).current_dir("/");
        command
    };
    ok(&mut as_nobody(&["nodes"]));
    for words in [&["move", &pid, "n2"][..], &["explain", &pid]] {
        let refused = fails(&mut as_nobody(words));
        assert!(refused.contains("only root and its owner may"), "{refused}");
    }
    let no_token = fails(&mut as_nobody(&["token"]));
    assert!(no_token.contains("only root"), "{no_token}");
    let audit = lab.nodes[0].audit();
    assert!(audit.contains("\"who\":\"uid 65534") && audit.contains("\"allowed\":false"), "{audit}");
    lab.nodes[0].logs("may not move process");
    ok(&mut lab.nodes[0].cli(&["run", "-d", "sleep", "1000"]));
    let ours = until("it is listed", || {
        let all: Vec<pando_node::views::Process> = lab.nodes[0].client().get("/v1/processes").unwrap();
        all.into_iter().next()
    });
    let shown = ok(&mut as_nobody(&["ps"]));
    lab::signal(ours.pid, "KILL");
    assert!(shown.contains(&ours.pid.to_string()) && !shown.contains("sleep 1000"), "{shown}");
    // A process of nobody's is nobody's to move: what fails is the engine, not the permission.
    let mut own = Command::new("sleep").arg("1000").uid(65534).gid(65534).spawn().unwrap();
    let explained = as_nobody(&["explain", &own.id().to_string()]).output().unwrap();
    own.kill().unwrap();
    own.wait().unwrap();
    assert!(explained.status.success(), "{explained:?}");
}

#[test]
fn figures_for_prometheus_and_for_screens() {
    let lab = Lab::new(2, "");
    let mut stream = std::os::unix::net::UnixStream::connect(&lab.nodes[0].socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for line in ["pando_node_up{node=\"n1\"} 1", "pando_node_up{node=\"n2\"} 1", "# TYPE pando_gossip_messages counter"]
    {
        assert!(text.contains(line), "{text}");
    }
    let sent = text.lines().find_map(|l| l.strip_prefix("pando_gossip_sent_bytes_total ")).unwrap();
    assert!(sent.parse::<u64>().unwrap() > 0, "they have spoken");
    let top: serde_json::Value = serde_json::from_str(&ok(&mut lab.nodes[0].cli(&["top", "--json"]))).unwrap();
    assert_eq!(top["nodes"][1]["name"], "n2");
    assert!(fails(&mut lab.nodes[0].cli(&["mon"])).contains("--json"), "there is no terminal here");
}
