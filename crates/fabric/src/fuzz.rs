//! A node hears whatever another machine may send it. Under `cargo test` each target runs briefly; with cargo-bolero for as long as one likes.

use crate::{Fabric, Message, NodeId, Op, Roster, Set, Settings, View};
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
