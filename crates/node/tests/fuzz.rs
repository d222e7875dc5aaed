//! What callers of the local API and helpers send, with bytes of every kind: a value or an error.

use bolero::check;
use pando_migrate::control::{MoveRecord, Report};
use pando_node::views::{Event, Explanation, MoveRequest, Process, RegisterRequest};

fn decode(bytes: &[u8]) {
    let _ = serde_json::from_slice::<MoveRequest>(bytes);
    let _ = serde_json::from_slice::<RegisterRequest>(bytes);
    let _ = serde_json::from_slice::<Report>(bytes);
    // What the command line reads.
    let _ = serde_json::from_slice::<Vec<Process>>(bytes);
    let _ = serde_json::from_slice::<Explanation>(bytes);
    let _ = serde_json::from_slice::<Vec<Event>>(bytes);
}

#[test]
fn bodies_of_any_bytes() {
    check!().for_each(decode);
    // Nesting has a limit.
    decode("[".repeat(60_000).as_bytes());
    decode("{\"a\":".repeat(10_000).as_bytes());
}

#[test]
fn bodies_that_were_good() {
    let record = MoveRecord {
        from: "n1".into(),
        to: "n2".into(),
        reason: "user".into(),
        freeze_us: 1,
        total_us: 2,
        frozen_bytes: 3,
    };
    let process = Process { pid: 7, records: vec![record.clone()], ..Process::default() };
    let good = [
        serde_json::to_vec(&MoveRequest { pid: 1, dest: "best".into(), reason: None, family: true }).unwrap(),
        serde_json::to_vec(&Report::MoveDone { request: 1, pid: 2, result: Ok(record) }).unwrap(),
        serde_json::to_vec(&Report::Log { level: "info".into(), text: "x".into() }).unwrap(),
        serde_json::to_vec(&vec![process]).unwrap(),
    ];
    check!().with_type::<(u8, Vec<(u16, u8)>)>().for_each(|(which, changes)| {
        let mut bytes = good[usize::from(*which) % good.len()].clone();
        for (at, to) in changes {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *to;
        }
        decode(&bytes);
    });
}
