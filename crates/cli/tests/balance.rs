//! Nodes move processes by themselves: to where they end sooner, not against their users' wishes, and out of a node that is drained. With the real
//! engine, on two nodes of this machine of which one says that it has hardly any CPU.

mod lab;

use lab::programs::{Programs, at, poor_and_rich, processes};
use lab::{Lab, fails, ok, until};
use pando_node::views::Decisions;

#[test]
fn a_program_goes_where_it_ends_sooner_and_comes_back_when_that_node_is_drained() {
    let lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let p = at(&lab, "n2", 1);
    assert!(p.records[0].reason.starts_with("balance: it ends "), "{:?}", p.records);
    let said: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
    assert!(said.moves.iter().any(|d| d.pid == p.pid && d.text.starts_with("went to n2: it ends ")), "{said:?}");
    ok(&mut lab.nodes[0].cli(&["drain", "n2"]));
    let p = at(&lab, "n1", 2);
    assert!(p.records[1].reason.starts_with("drain: "), "{:?}", p.records);
    lab.nodes[1].logs("node n2 is being drained (asked for n1)");
    // Nothing goes there now.
    until("that n2 is known to be drained", || (lab.nodes[0].node("n2").standing == "drained").then_some(()));
    let explained = until("a reason", || {
        let text = ok(&mut lab.nodes[0].cli(&["explain", &p.pid.to_string()]));
        text.contains("balance: it stays: no other node").then_some(text)
    });
    assert!(explained.contains("decided"), "{explained}");
    ok(&mut lab.nodes[0].cli(&["drain", "--undo", "n2"]));
    at(&lab, "n2", 3);
    programs.end_well();
}

#[test]
fn what_users_want_is_heeded() {
    let lab = poor_and_rich(&[""]);
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run"]);
    let mine = at(&lab, "n2", 1);
    let wishes =
        [&["run", "--home-only"][..], &["run", "--no-move"], &["run", "--nodes", "n1"], &["run", "--max-moves", "0"]];
    wishes.iter().for_each(|words| programs.start(&lab, words));
    // A program that was put somewhere by hand stays there.
    programs.start(&lab, &["run", "--node", "n2"]);
    let home = until("that all are looked at", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        let reasons =
            ["its user said --home-only", "its user said --no-move", "no other node", "its user said --max-moves"];
        let said = |why: &&&str| all.stays.iter().any(|d| d.text.contains(**why));
        let all = processes(&lab);
        let sent = all.iter().filter(|p| p.place == "n2" && p.moves == 1).count() == 2;
        (sent && reasons.iter().filter(said).count() == reasons.len()).then_some(all)
    });
    assert_eq!(home.iter().filter(|p| p.place == "n1" && p.moves == 0).count(), 4, "{home:?}");
    // Its user calls the first one home: it stays there, too.
    ok(&mut lab.nodes[0].cli(&["move", &mine.pid.to_string(), "home"]));
    until("looks at those that stay, twice", || {
        let all: Decisions = lab.nodes[0].client().get("/v1/decisions").unwrap();
        (!all.stays.iter().any(|d| d.pid == mine.pid) && all.stays.len() == 4).then_some(())
    });
    assert_eq!(lab.nodes[0].process(mine.pid).unwrap().place, "n1");
    programs.end_well();
}

#[test]
fn a_drained_node_is_emptied_even_where_nothing_moves_by_itself() {
    let lab = Lab::new(2, "");
    let mut programs = Programs::new(&lab);
    programs.start(&lab, &["run", "--node", "n2"]);
    at(&lab, "n2", 1);
    ok(&mut lab.nodes[0].cli(&["drain", "n2"]));
    let p = at(&lab, "n1", 2);
    assert!(p.records[1].reason.starts_with("drain: "), "{:?}", p.records);
    assert!(lab.nodes[1].audit().contains("drain"), "{}", lab.nodes[1].audit());
    // Nor does anybody get there by hand.
    let refused = fails(&mut lab.nodes[0].cli(&["move", &p.pid.to_string(), "n2"]));
    assert!(refused.contains("it is being drained"), "{refused}");
    programs.end_well();
}
