//! libfabric beside TCP on real daemons, with its provider tcp: what is large goes that way and comes whole, and all goes over TCP where the
//! library is missing, or a node is killed, stands still, or has another provider.

mod lab;

use lab::{Daemon, Lab, ok, signal, until};
use pando_node::views::{FabricStatus, Libfabric};
use std::process::{Command, Output, Stdio};

const FABRIC: &str = "[fabric]\nlost_after_ms = 1500\nmulticast = \"off\"\n";

/// Is the library here? It is said if not.
fn is_here() -> bool {
    let wanted = pando_kernel::libfabric::Wanted {
        library: "libfabric.so.1".as_ref(),
        provider: "tcp",
        here: Some([127, 0, 0, 1].into()),
        longest: 1000,
        buffers: 1,
    };
    let opened = pando_kernel::libfabric::Endpoint::open(&wanted);
    opened.map_err(|why| println!("SKIPPED: {why}")).is_ok()
}

fn with(provider: &str) -> String {
    format!("{FABRIC}libfabric = \"{provider}\"\n")
}

fn rails(node: &Daemon) -> Libfabric {
    node.client().get::<FabricStatus>("/v1/fabric").unwrap().libfabric
}

/// Waits until these have one view with all of them in it.
fn together(nodes: &[&Daemon]) {
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    until(&format!("one view of {names:?}"), || {
        let all: Vec<FabricStatus> = nodes.iter().map(|n| n.client().get("/v1/fabric").unwrap()).collect();
        let mut members = all[0].members.clone();
        members.sort();
        let same = all.iter().all(|s| s.epoch == all[0].epoch && s.founding == all[0].founding && s.waits.is_none());
        (same && members == names).then_some(())
    });
}

fn all(lab: &Lab) -> Vec<&Daemon> {
    lab.nodes.iter().collect()
}

fn fabric(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["fabric"]);
    command.args(words);
    command
}

/// Bytes that say whether one is missing or in another's place.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ seed).collect()
}

fn region(node: &Daemon, name: &str) -> Vec<u8> {
    fabric(node, &["get", name]).output().unwrap().stdout
}

/// Sends so many bytes from a node to all, and looks whether they came.
fn carry(lab: &Lab, from: usize, length: usize, seed: u8) {
    let file = lab.dir.join(format!("bytes-{from}"));
    std::fs::write(&file, bytes(length, seed)).unwrap();
    ok(fabric(&lab.nodes[from], &["xfer", "r"]).arg("/dev/null"));
    ok(fabric(&lab.nodes[from], &["xfer", "r"]).arg(&file));
    for node in &lab.nodes {
        assert!(region(node, "r") == bytes(length, seed), "{length} bytes at {}", node.name);
    }
}

/// Has the links from a node made, and waits until what is large goes to these by libfabric.
fn goes(lab: &Lab, from: usize, to: &[&str]) {
    until(&format!("that it goes from {from} to {to:?}"), || {
        carry(lab, from, 40_000, 1);
        (rails(&lab.nodes[from]).to == to).then_some(())
    });
}

/// They end as daemons do that are told to: libraries that libfabric is linked with would end them at once.
fn leave(mut lab: Lab) {
    for node in &mut lab.nodes {
        assert!(node.stop(), "{}", node.name);
        assert!(node.log().contains(" stops; "), "{}: {}", node.name, node.log());
    }
}

#[test]
fn what_is_large_goes_by_the_tcp_provider() {
    if !is_here() {
        return;
    }
    let lab = Lab::new(3, &with("tcp"));
    together(&all(&lab));
    goes(&lab, 1, &["n1", "n3"]);
    for (i, length) in [1, 1000, 16_384, 65_535, 65_536, 65_537, 200_000, 1_000_001, 9_000_001].into_iter().enumerate()
    {
        carry(&lab, 1, length, i as u8);
    }
    let before: Vec<Libfabric> = lab.nodes.iter().map(rails).collect();
    carry(&lab, 1, 20_000_001, 7);
    let after: Vec<Libfabric> = lab.nodes.iter().map(rails).collect();
    // To each child all of it, but for the last chunk, which is too small.
    assert!(after[1].sent - before[1].sent >= 2 * 19_900_000, "{before:?} {after:?}");
    for i in [0, 2] {
        assert!(after[i].came - before[i].came >= 19_900_000, "{before:?} {after:?}");
    }
    assert!(after.iter().all(|l| l.forged == 0 && l.not_to.is_empty()), "{after:?}");
    let text = ok(&mut fabric(&lab.nodes[1], &[]));
    assert!(text.contains("rails    libfabric tcp") && text.contains("to n1 n3"), "{text}");
    // All at once, from everybody to everybody.
    std::thread::scope(|scope| {
        for (i, node) in lab.nodes.iter().enumerate() {
            let file = lab.dir.join(format!("own-{i}"));
            scope.spawn(move || {
                for round in 0..5 {
                    std::fs::write(&file, bytes(3_000_000 + round, i as u8)).unwrap();
                    ok(fabric(node, &["xfer", &format!("own{i}")]).arg("/dev/null"));
                    ok(fabric(node, &["xfer", &format!("own{i}")]).arg(&file));
                }
            });
        }
    });
    for (i, node) in (0..3).flat_map(|i| lab.nodes.iter().map(move |n| (i, n))) {
        assert!(region(node, &format!("own{i}")) == bytes(3_000_004, i as u8), "own{i} at {}", node.name);
    }
    leave(lab);
}

#[test]
fn where_the_library_is_missing_all_goes_over_tcp() {
    if !is_here() {
        return;
    }
    let lab = Lab::with(4, |i| match i {
        2 => format!("{}libfabric_file = \"/nowhere/libfabric.so.1\"\n", with("tcp")),
        3 => with("net;ofi_rxm"),
        _ => with("tcp"),
    });
    together(&all(&lab));
    goes(&lab, 0, &["n4"]);
    carry(&lab, 0, 5_000_000, 3);
    carry(&lab, 1, 5_000_000, 4);
    carry(&lab, 2, 5_000_000, 5);
    lab.nodes[1].logs("no libfabric here, all goes over TCP: /nowhere/libfabric.so.1 can't be loaded");
    lab.nodes[0].logs("nothing goes to n2 by libfabric, but over TCP: it has none");
    lab.nodes[0].logs("nothing goes to n3 by libfabric, but over TCP: it has provider net");
    let text = ok(&mut fabric(&lab.nodes[1], &[]));
    assert!(text.contains("rails    none: /nowhere/libfabric.so.1 can't be loaded"), "{text}");
    assert_eq!(rails(&lab.nodes[1]).sent + rails(&lab.nodes[1]).came, 0);
    leave(lab);
}

fn interrupted(kill: bool) {
    if !is_here() {
        return;
    }
    let mut lab = Lab::new(4, &with("tcp"));
    together(&all(&lab));
    goes(&lab, 1, &["n1", "n3", "n4"]);
    let file = lab.dir.join("large");
    std::fs::write(&file, bytes(200_000_000, 1)).unwrap();
    let before = rails(&lab.nodes[1]).sent;
    ok(fabric(&lab.nodes[1], &["xfer", "r"]).arg("/dev/null"));
    let sent =
        fabric(&lab.nodes[1], &["xfer", "r", "--signal", "e"]).arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    until("that it is under way", || (rails(&lab.nodes[1]).sent > before + 1_000_000).then_some(()));
    match kill {
        true => lab.nodes[2].kill(),
        false => signal(lab.nodes[2].pid(), "STOP"),
    }
    let Output { status, stderr, .. } = sent.wait_with_output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(status.code() == Some(2) && text.contains("nothing was done anywhere") && text.contains("n3"), "{text}");
    together(&[&lab.nodes[0], &lab.nodes[1], &lab.nodes[3]]);
    for node in [&lab.nodes[0], &lab.nodes[1], &lab.nodes[3]] {
        assert_eq!(region(node, "r").len(), 0, "{}", node.name);
    }
    std::fs::write(&file, bytes(5_000_000, 2)).unwrap();
    ok(fabric(&lab.nodes[1], &["xfer", "r"]).arg(&file));
    for node in [&lab.nodes[0], &lab.nodes[1], &lab.nodes[3]] {
        assert!(region(node, "r") == bytes(5_000_000, 2), "{}", node.name);
    }
    // And with it again, as another life, of which nobody keeps what was seen of the one before.
    match kill {
        true => lab.nodes[2].start(),
        false => signal(lab.nodes[2].pid(), "CONT"),
    }
    together(&all(&lab));
    carry(&lab, 1, 5_000_000, 3);
    carry(&lab, 2, 5_000_000, 4);
    goes(&lab, 1, &["n1", "n3", "n4"]);
    leave(lab);
}

#[test]
fn a_member_that_is_killed_leaves_nothing_done_by_the_tcp_provider() {
    interrupted(true);
}

#[test]
fn a_member_that_stands_still_is_left_out_by_the_tcp_provider() {
    interrupted(false);
}
