//! A node hears whatever another machine may send it. Under `cargo test` each target runs briefly; with cargo-bolero for as long as one likes.

use crate::message::Said;
use crate::{Cast, Fabric, Key, Message, NodeId, Op, OpId, Roster, Set, Settings, View};
use bolero::check;

#[test]
fn whatever_is_heard() {
    check!().with_type::<(bool, Vec<(u8, Message)>, Op)>().for_each(|(manages, heard, op)| {
        let members: Set = (0..4).map(NodeId).collect();
        let view = View { epoch: 1, manager: NodeId(u64::from(!*manages)), members };
        let settings = Settings { most: 1 << 20, early: 8, ..Settings::default() };
        let mut node = Fabric::new(NodeId(0), view, Roster::new(), settings);
        node.submit(op.clone(), vec![1; 9].into());
        for (i, (from, message)) in heard.iter().enumerate() {
            // Near enough to be looked at.
            let message = match message {
                Message::In(epoch, said) => Message::In(1 + epoch % 3, said.clone()),
                other => other.clone(),
            };
            node.hear(i as u64, NodeId(u64::from(from % 5)), message);
            node.tick(i as u64);
        }
        assert!(node.memory().region("").len() <= 1 << 20);
    });
}

/// And whatever members that know the key may cast, and say of it.
#[test]
fn whatever_is_cast() {
    type Heard = (u8, Message, u32, Vec<u8>);
    check!().with_type::<(bool, u16, u16, Vec<Heard>)>().for_each(|(casts, length, piece, heard)| {
        let members: Set = (0..4).map(NodeId).collect();
        let view = View { epoch: 1, manager: NodeId(3), members: members.clone() };
        let settings = Settings { most: 1 << 20, cast_least: 1, at_once: 0, hears: true, ..Settings::default() };
        let me = NodeId(u64::from(!*casts));
        let mut node = Fabric::new(me, view, Roster::new(), settings);
        let cast = Cast { tag: 1, key: Key([0; 32]), piece: (*piece).max(1).into(), deaf: Set::default() };
        let (id, length) = (OpId { origin: NodeId(0), number: 1 }, u64::from(*length).max(1));
        let op = Op::Transfer { set: members, region: "r".into(), offset: 0, length, signal: None };
        match casts {
            true => _ = node.submit_cast(0, op, vec![1; length as usize].into(), cast),
            false => _ = node.hear(0, NodeId(0), Message::In(1, Said::Begin(id, op, Some(cast)))),
        }
        for (i, (from, message, number, bytes)) in heard.iter().enumerate() {
            let said = |said: &Said| match said {
                Said::Sent(_, count) => Said::Sent(id, *count),
                Said::Heard(_, heard) => Said::Heard(id, heard.clone()),
                Said::Lack(_, ranges) => Said::Lack(id, ranges.clone()),
                Said::Patch(_, first, bytes) => Said::Patch(id, first % 9, bytes.clone()),
                other => other.clone(),
            };
            let message = match message {
                Message::In(_, of) => Message::In(1, said(of)),
                other => other.clone(),
            };
            node.hear(i as u64, NodeId(u64::from(from % 5)), message);
            node.caught(i as u64, 1, number % 99, bytes);
            node.went(i as u64, 1, *number);
            node.beat(30 * i as u64);
        }
        assert!(node.memory().region("").len() <= 1 << 20);
    });
}
