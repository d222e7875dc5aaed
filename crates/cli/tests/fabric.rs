//! The three primitives on real daemons: who is in the view, what comes where, and what is left when a node is killed, stands still or comes
//! back.

mod lab;

use lab::{Daemon, Lab, ok, signal, until};
use pando_node::views::FabricStatus;
use std::process::{Command, Output, Stdio};

const FABRIC: &str = "[fabric]\nlost_after_ms = 1500\n";

fn status(node: &Daemon) -> FabricStatus {
    node.client().get("/v1/fabric").unwrap()
}

/// Waits until these have one view with all of them in it; its number.
fn together(nodes: &[&Daemon]) -> u64 {
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    until(&format!("one view of {names:?}"), || {
        let all: Vec<FabricStatus> = nodes.iter().map(|n| status(n)).collect();
        let mut members = all[0].members.clone();
        members.sort();
        let same = all.iter().all(|s| s.epoch == all[0].epoch && s.founding == all[0].founding && s.waits.is_none());
        (same && members == names).then_some(all[0].epoch)
    })
}

fn all(lab: &Lab) -> Vec<&Daemon> {
    lab.nodes.iter().collect()
}

fn code(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

fn fabric(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["fabric"]);
    command.args(words);
    command
}

fn load(node: &Daemon, variable: &str) -> i64 {
    ok(&mut fabric(node, &["load", variable])).trim().parse().unwrap()
}

/// Bytes that say whether one is missing or in another's place.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ seed).collect()
}

fn region(node: &Daemon, name: &str) -> Vec<u8> {
    fabric(node, &["get", name]).output().unwrap().stdout
}

#[test]
fn what_is_sent_comes_to_all_and_is_signalled_there() {
    let lab = Lab::new(4, FABRIC);
    together(&all(&lab));
    let file = lab.dir.join("bytes");
    std::fs::write(&file, bytes(9_000_001, 7)).unwrap();
    ok(fabric(&lab.nodes[2], &["xfer", "program", "--signal", "ready"]).arg(&file));
    for node in &lab.nodes {
        assert!(region(node, "program") == bytes(9_000_001, 7), "at {}", node.name);
        assert_eq!(code(&mut fabric(node, &["test", "ready"])).0, 0);
        assert_eq!(code(&mut fabric(node, &["test", "ready"])).0, 1, "it was taken");
    }
    // Somebody waits for it, and only some are meant.
    let mut waits = fabric(&lab.nodes[1], &["test", "later", "--wait", "30"]).spawn().unwrap();
    std::fs::write(&file, "!").unwrap();
    ok(fabric(&lab.nodes[0], &["xfer", "program", "--on", "n2,n4", "--offset", "2", "--signal", "later"]).arg(&file));
    assert!(waits.wait().unwrap().success());
    let first: Vec<Vec<u8>> = lab.nodes.iter().map(|n| region(n, "program")[..4].to_vec()).collect();
    let (old, mut new) = (bytes(4, 7), bytes(4, 7));
    new[2] = b'!';
    assert_eq!(first, [old.clone(), new.clone(), old, new]);
    assert_eq!(code(&mut fabric(&lab.nodes[2], &["test", "later"])).0, 1);
}

#[test]
fn a_variable_is_compared_and_written_everywhere_or_nowhere() {
    let lab = Lab::new(4, FABRIC);
    together(&all(&lab));
    lab.nodes[..3].iter().for_each(|n| _ = ok(&mut fabric(n, &["store", "phase", "3"])));
    let compare = |words: &[&str]| code(fabric(&lab.nodes[3], &["compare"]).args(words)).0;
    assert_eq!(compare(&["phase", ">=", "3", "--write", "go=1"]), 1, "n4 has 0");
    assert_eq!(compare(&["phase", "==", "3", "--write", "go=1", "--on", "n1,n2,n3"]), 0);
    assert_eq!(lab.nodes.iter().map(|n| load(n, "go")).collect::<Vec<_>>(), [1, 1, 1, 0]);
    let (status, text) = code(&mut fabric(&lab.nodes[0], &["compare", "", "==", "0"]));
    assert!(status == 2 && text.contains("names have from 1 to 64 bytes"), "{text}");
    let (status, text) = code(&mut fabric(&lab.nodes[0], &["found"]));
    assert!(status == 2 && text.contains("in a fabric that goes on"), "{text}");
    // All at once: each wants to be the first.
    let tries: Vec<_> = (0..12)
        .map(|i| {
            let write = format!("lock={}", i + 1);
            let words = ["compare", "lock", "==", "0", "--write", &write];
            fabric(&lab.nodes[i % 4], &words).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let ended: Vec<i32> = tries.into_iter().map(|mut t| t.wait().unwrap().code().unwrap()).collect();
    let won: Vec<usize> = (0..12).filter(|i| ended[*i] == 0).collect();
    assert!(won.len() == 1 && ended.iter().all(|c| *c < 2), "{ended:?}");
    assert_eq!(lab.nodes.iter().map(|n| load(n, "lock")).collect::<Vec<_>>(), [won[0] as i64 + 1; 4]);
    let (status, text) = code(&mut fabric(&lab.nodes[0], &["compare", "x", "==", "0", "--on", "n1,n9"]));
    assert!(status == 2 && text.contains("n9 is no member of the fabric"), "{text}");
}

#[test]
fn the_manager_is_killed_and_comes_back_as_another_one() {
    let mut lab = Lab::new(4, FABRIC);
    let epoch = together(&all(&lab));
    assert_eq!(status(&lab.nodes[1]).manager, "n1");
    ok(fabric(&lab.nodes[1], &["compare", "x", "==", "0", "--write", "x=5"]).arg("--on=n1,n2,n3,n4"));
    lab.nodes[0].kill();
    // It is asked for while nobody knows yet that it is gone.
    let (status_, text) = code(&mut fabric(&lab.nodes[1], &["compare", "x", "==", "5", "--write", "x=6"]));
    assert!(status_ == 2 && text.contains("n1"), "{status_}: {text}");
    let later = together(&lab.nodes[1..].iter().collect::<Vec<_>>());
    assert!(later > epoch);
    assert_eq!(lab.nodes[1..].iter().map(|n| load(n, "x")).collect::<Vec<_>>(), [5; 3]);
    assert_eq!(code(&mut fabric(&lab.nodes[3], &["compare", "x", "==", "5", "--write", "x=7"])).0, 0);
    lab.nodes[0].start();
    let last = together(&all(&lab));
    assert!(last > later);
    assert_eq!(lab.nodes.iter().map(|n| load(n, "x")).collect::<Vec<_>>(), [0, 7, 7, 7]);
    assert_eq!(code(&mut fabric(&lab.nodes[0], &["compare", "y", "==", "0", "--write", "y=1"])).0, 0);
    assert_eq!(lab.nodes.iter().map(|n| load(n, "y")).collect::<Vec<_>>(), [1; 4]);
}

#[test]
fn a_node_that_stands_still_holds_nobody_up_for_long() {
    let lab = Lab::new(4, FABRIC);
    together(&all(&lab));
    ok(fabric(&lab.nodes[0], &["xfer", "r"]).arg("/dev/null"));
    let file = lab.dir.join("bytes");
    std::fs::write(&file, bytes(30_000_000, 1)).unwrap();
    signal(lab.nodes[2].pid(), "STOP");
    let (status_, text) = code(fabric(&lab.nodes[1], &["xfer", "r", "--signal", "e"]).arg(&file));
    assert!(status_ == 2 && text.contains("nothing was done anywhere") && text.contains("n3"), "{status_}: {text}");
    let others = [&lab.nodes[0], &lab.nodes[1], &lab.nodes[3]];
    together(&others);
    for node in others {
        assert_eq!((region(node, "r").len(), code(&mut fabric(node, &["test", "e"])).0), (0, 1), "{}", node.name);
    }
    ok(fabric(&lab.nodes[1], &["xfer", "r", "--signal", "e"]).arg(&file));
    assert!(others.iter().all(|n| region(n, "r") == bytes(30_000_000, 1)));
    signal(lab.nodes[2].pid(), "CONT");
    together(&all(&lab));
    assert!(region(&lab.nodes[2], "r").is_empty(), "it has begun anew");
    lab.nodes[2].logs("was left out of the fabric");
}

#[test]
fn of_two_the_one_that_orders_goes_on_and_the_other_one_waits() {
    let mut lab = Lab::new(2, FABRIC);
    together(&all(&lab));
    lab.nodes[1].kill();
    together(&[&lab.nodes[0]]);
    lab.nodes[1].start();
    together(&all(&lab));
    let founding = status(&lab.nodes[1]).founding;
    ok(&mut fabric(&lab.nodes[1], &["store", "x", "1"]));
    lab.nodes[0].kill();
    let waits = until("that it waits", || status(&lab.nodes[1]).waits);
    assert!(waits.contains("too few of the view's 2 members are heard"), "{waits}");
    // Both are there again: more than half of all that are known, so they found another one.
    lab.nodes[0].start();
    together(&all(&lab));
    assert_ne!(status(&lab.nodes[1]).founding, founding);
    assert_eq!(load(&lab.nodes[1], "x"), 0);
    // And where the other one is gone for good somebody says so.
    lab.nodes[0].kill();
    until("that it waits", || status(&lab.nodes[1]).waits);
    ok(&mut fabric(&lab.nodes[1], &["found"]));
    together(&[&lab.nodes[1]]);
    assert!(lab.nodes[1].audit().contains("fabric found"));
}

#[test]
fn all_feel_the_strobe_whoever_orders() {
    let mut lab = Lab::new(3, FABRIC);
    together(&all(&lab));
    ok(&mut fabric(&lab.nodes[2], &["strobe", "--every", "20"]));
    let beats = |node: &Daemon| {
        let s = status(node).strobe;
        (s.period_us == 20_000).then_some(s.beats)
    };
    let beat = |node: &Daemon| {
        let first = until("a beat", || beats(node));
        until(&format!("ten beats at {}", node.name), || beats(node).filter(|n| *n >= first + 10))
    };
    lab.nodes.iter().for_each(|n| _ = beat(n));
    // Micro-heartbeats in between, at every node, until somebody wants none.
    ok(&mut fabric(&lab.nodes[1], &["strobe", "--every", "20", "--micro", "3"]));
    for node in &lab.nodes {
        let micro = || Some(status(node).strobe).filter(|s| s.micro == 3 && s.beats >= 5);
        let s = until("five beats and what is in between", micro);
        // Those that the machine had no time for are not made up for.
        assert!(s.micro_beats >= s.beats && s.lost == 0, "{s:?}");
    }
    ok(&mut fabric(&lab.nodes[2], &["strobe", "--every", "20"]));
    // What one posts has happened everywhere when it is told so.
    ok(&mut fabric(&lab.nodes[1], &["strobe", "--event", "go"]));
    assert!(lab.nodes.iter().all(|n| code(&mut fabric(n, &["test", "go"])).0 == 0));
    lab.nodes[0].kill();
    together(&[&lab.nodes[1], &lab.nodes[2]]);
    lab.nodes[1..].iter().for_each(|n| _ = beat(n));
    lab.nodes[0].start();
    together(&all(&lab));
    lab.nodes.iter().for_each(|n| _ = beat(n));
    assert_ne!(status(&lab.nodes[0]).manager, "n1");
    assert!(lab.nodes.iter().all(|n| status(n).strobe.lost == 0));
    ok(&mut fabric(&lab.nodes[0], &["strobe", "--every", "0"]));
    let (status_, text) = code(&mut fabric(&lab.nodes[2], &["strobe", "--event", "stop"]));
    assert!(status_ == 2 && text.contains("sends no beats"), "{text}");
    let (status_, text) = code(&mut fabric(&lab.nodes[2], &["compare", "pando/strobe_us", ">=", "0"]));
    assert!(status_ == 2 && text.contains("the system's own"), "{text}");
}

#[test]
fn what_has_no_room_somewhere_comes_nowhere() {
    let mut lab = Lab::new(2, FABRIC);
    let small = lab.prepare("n3", &format!("{FABRIC}regions_mb = 1\n"));
    ok(&mut small.join(&lab.token(), "n3"));
    lab.nodes.push(small);
    lab.nodes[2].start();
    together(&all(&lab));
    let file = lab.dir.join("bytes");
    std::fs::write(&file, bytes(700_000, 3)).unwrap();
    ok(fabric(&lab.nodes[0], &["xfer", "a"]).arg(&file));
    let (status_, text) = code(fabric(&lab.nodes[0], &["xfer", "b", "--signal", "e"]).arg(&file));
    assert!(status_ == 2 && text.contains("a node has no room for it"), "{text}");
    for node in &lab.nodes {
        assert_eq!((region(node, "b").len(), code(&mut fabric(node, &["test", "e"])).0), (0, 1));
    }
    ok(fabric(&lab.nodes[1], &["xfer", "b", "--on", "n1,n2"]).arg(&file));
    // Nothing is brought to it: it is empty, and there is room.
    ok(fabric(&lab.nodes[1], &["xfer", "a"]).arg("/dev/null"));
    ok(fabric(&lab.nodes[0], &["xfer", "b"]).arg(&file));
    assert!(region(&lab.nodes[2], "b") == bytes(700_000, 3) && region(&lab.nodes[2], "a").is_empty());
}

#[test]
fn a_member_that_stops_among_many_small_transfers_is_got_over() {
    let lab = Lab::new(3, FABRIC);
    together(&all(&lab));
    let storm = |node: usize, to: &'static str| {
        let client = lab.nodes[node].client();
        move || {
            let mut done = 0;
            for i in 0.. {
                let path = format!("/v1/fabric/transfer?region=r{node}-{}&on={to}", i % 20);
                match client.send::<()>(&path, &[7; 4096]) {
                    Ok(()) => done += 1,
                    Err(_) => return done,
                }
                if done == 3000 {
                    return done;
                }
            }
            done
        }
    };
    let calm: Vec<usize> = std::thread::scope(|scope| {
        // One asks for what others get, so that only it knows when it has ended.
        let last: Vec<_> = (0..8).map(|_| scope.spawn(storm(2, "n1,n2"))).collect();
        let others: Vec<_> = (0..8).map(|i| scope.spawn(storm(i % 2, "n1,n2"))).collect();
        std::thread::sleep(std::time::Duration::from_millis(500));
        signal(lab.nodes[2].pid(), "STOP");
        together(&[&lab.nodes[0], &lab.nodes[1]]);
        let done = others.into_iter().map(|t| t.join().unwrap()).collect();
        signal(lab.nodes[2].pid(), "CONT");
        last.into_iter().for_each(|t| _ = t.join().unwrap());
        done
    });
    assert_eq!(calm, [3000; 8], "those that stay go on");
    together(&all(&lab));
    assert!(!lab.nodes.iter().any(|n| n.log().contains("can't be sent")));
}

/// Who orders has found out that so many of so many hear it.
fn heard(node: &Daemon, wanted: (usize, usize)) {
    until("that it is known who hears", || status(node).multicast.heard.filter(|found| *found == wanted));
}

/// What of the bytes came to a node by datagrams, in their place, and down the tree.
fn ways(node: &Daemon) -> [u64; 3] {
    let m = status(node).multicast;
    [m.caught, m.mended, m.tree]
}

#[test]
fn what_is_large_is_cast_once_and_all_catch_it() {
    let lab = Lab::new(4, FABRIC);
    together(&all(&lab));
    heard(&lab.nodes[0], (3, 3));
    let file = lab.dir.join("bytes");
    std::fs::write(&file, bytes(20_000_001, 7)).unwrap();
    let before: Vec<_> = lab.nodes.iter().map(ways).collect();
    let cast = status(&lab.nodes[2]).multicast.cast;
    ok(fabric(&lab.nodes[2], &["xfer", "program", "--signal", "ready"]).arg(&file));
    for (node, before) in lab.nodes.iter().zip(before) {
        assert!(region(node, "program") == bytes(20_000_001, 7), "at {}", node.name);
        assert_eq!(code(&mut fabric(node, &["test", "ready"])).0, 0);
        let more: Vec<u64> = ways(node).iter().zip(before).map(|(now, before)| now - before).collect();
        if node.name != "n3" {
            assert_eq!((more[0] + more[1], more[2]), (20_000_001, 0), "{}", node.name);
            assert!(more[0] > 5_000_000, "{}: {more:?}", node.name);
        }
    }
    assert_eq!(status(&lab.nodes[2]).multicast.cast - cast, 20_000_001, "each byte once");
    // What is small goes as it always did, and so does what only one is to get.
    std::fs::write(&file, bytes(60_000, 8)).unwrap();
    ok(fabric(&lab.nodes[2], &["xfer", "small"]).arg(&file));
    std::fs::write(&file, bytes(1_000_000, 9)).unwrap();
    ok(fabric(&lab.nodes[2], &["xfer", "single", "--on", "n3,n4"]).arg(&file));
    assert!(region(&lab.nodes[3], "small") == bytes(60_000, 8) && region(&lab.nodes[3], "single").len() == 1_000_000);
    assert_eq!(status(&lab.nodes[2]).multicast.cast - cast, 20_000_001);
    let text = ok(&mut fabric(&lab.nodes[0], &[]));
    assert!(text.contains("casts    239.192.71.17:7118") && text.contains("heard by 3 of 3"), "{text}");
}

#[test]
fn what_is_lost_is_mended_and_who_is_deaf_gets_all_of_it() {
    let mut lab = Lab::new(3, FABRIC);
    let further = |name: &str, settings: &str, lab: &mut Lab| {
        let node = lab.prepare(name, settings);
        ok(&mut node.join(&lab.token(), name));
        lab.nodes.push(node);
        lab.nodes.last_mut().unwrap().start();
    };
    // One that loses some of them, one that loses all, and one that does not listen.
    further("n4", &format!("{FABRIC}[test]\nlose_permille = 100\n"), &mut lab);
    further("n5", &format!("{FABRIC}[test]\nlose_permille = 1000\n"), &mut lab);
    further("n6", &format!("{FABRIC}multicast = \"off\"\n"), &mut lab);
    together(&all(&lab));
    heard(&lab.nodes[0], (5, 3));
    let file = lab.dir.join("bytes");
    let before: Vec<_> = lab.nodes.iter().map(ways).collect();
    std::fs::write(&file, bytes(20_000_001, 3)).unwrap();
    ok(fabric(&lab.nodes[1], &["xfer", "r", "--signal", "e"]).arg(&file));
    for (node, before) in lab.nodes.iter().zip(before).filter(|(n, _)| n.name != "n2") {
        assert!(region(node, "r") == bytes(20_000_001, 3), "at {}", node.name);
        assert_eq!(code(&mut fabric(node, &["test", "e"])).0, 0);
        let more: Vec<u64> = ways(node).iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!((more[0] + more[1], more[2]), (20_000_001, 0), "{}", node.name);
        match node.name.as_str() {
            "n4" => assert!(more[0] > 0 && more[1] > 0, "{more:?}"),
            "n5" | "n6" => assert_eq!(more[0], 0),
            _ => assert!(more[0] > 0, "{}: {more:?}", node.name),
        }
    }
    let deaf = status(&lab.nodes[1]).multicast.deaf;
    assert!(deaf.contains(&"n5".into()) && deaf.contains(&"n6".into()), "{deaf:?}");
    assert!(status(&lab.nodes[5]).multicast.off.is_some());
}

#[test]
fn a_member_that_is_killed_while_it_is_cast_leaves_nothing_done() {
    let mut lab = Lab::new(4, FABRIC);
    together(&all(&lab));
    heard(&lab.nodes[0], (3, 3));
    let file = lab.dir.join("bytes");
    std::fs::write(&file, bytes(200_000_000, 1)).unwrap();
    let cast = status(&lab.nodes[1]).multicast.cast;
    let sent =
        fabric(&lab.nodes[1], &["xfer", "r", "--signal", "e"]).arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    until("that it is being cast", || (status(&lab.nodes[1]).multicast.cast > cast).then_some(()));
    lab.nodes[2].kill();
    let Output { status: ended, stderr, .. } = sent.wait_with_output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(ended.code() == Some(2) && text.contains("nothing was done anywhere") && text.contains("n3"), "{text}");
    let others = [&lab.nodes[0], &lab.nodes[1], &lab.nodes[3]];
    together(&others);
    for node in others {
        assert_eq!((region(node, "r").len(), code(&mut fabric(node, &["test", "e"])).0), (0, 1), "{}", node.name);
    }
    std::fs::write(&file, bytes(5_000_000, 2)).unwrap();
    ok(fabric(&lab.nodes[1], &["xfer", "r", "--signal", "e"]).arg(&file));
    assert!(others.iter().all(|n| region(n, "r") == bytes(5_000_000, 2)));
}

/// Somebody on the same network who hears the group, and says what it likes.
#[test]
fn datagrams_that_are_changed_made_up_or_sent_again_do_no_harm() {
    let group = std::net::Ipv4Addr::new(239, 192, 71, 18);
    let lab = Lab::new(4, &format!("{FABRIC}multicast = \"{group}:7119\"\n"));
    together(&all(&lab));
    heard(&lab.nodes[0], (3, 3));
    let here = std::net::Ipv4Addr::LOCALHOST;
    let at: std::net::SocketAddr = (group, 7119).into();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&at.into()).unwrap();
    socket.join_multicast_v4(&group, &here).unwrap();
    socket.set_multicast_if_v4(&here).unwrap();
    socket.set_multicast_loop_v4(true).unwrap();
    let socket: std::net::UdpSocket = socket.into();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 65_536];
            // It hears itself, too.
            for i in 0.. {
                let Ok((n, _)) = socket.recv_from(&mut buffer) else {
                    if over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    continue;
                };
                if i % 8 == 0 {
                    let _ = socket.send_to(&buffer[..n], at);
                    buffer[n - 1 - i % n.min(999)] ^= 0x40;
                    let _ = socket.send_to(&buffer[..n], at);
                    let _ = socket.send_to(b"garbage", at);
                }
            }
        });
        let file = lab.dir.join("bytes");
        until("that all of it was tried", || {
            std::fs::write(&file, bytes(10_000_000, 5)).unwrap();
            ok(fabric(&lab.nodes[1], &["xfer", "r"]).arg(&file));
            assert!(lab.nodes.iter().all(|n| region(n, "r") == bytes(10_000_000, 5)));
            ok(fabric(&lab.nodes[1], &["xfer", "r"]).arg("/dev/null"));
            let m = status(&lab.nodes[3]).multicast;
            (m.forged > 0 && m.strange > 0 && m.useless > 0).then_some(())
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
