use super::*;
use crate::fabric::wire::Ticket;
use bolero::check;
use pando_fabric::Key;
use pando_wire::datagram::{Label, Seal};

fn rail() -> Thread {
    Thread::of("tcp", &[2, 0]).unwrap()
}

fn sealed(seal: &Seal, tag: u64, number: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    seal.seal(Label { tag, number }, body, &mut out).unwrap();
    out
}

/// Somebody who hears all and knows a tag, and not the key.
#[test]
fn whatever_comes_only_what_is_sealed_for_a_lane_is_kept() {
    let thread = rail();
    let rail = &thread.rail;
    check!().with_type::<Vec<(u8, Vec<u8>)>>().for_each(|all| {
        let lane = Lane::new(rail, ("n2".into(), (1, 2)));
        let (ticket, good) = (lane.ticket(), Seal::new(&lane.ticket().key.0));
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let before = count(&rail.counts.came);
        let (mut number, mut bytes) = (1, 0);
        for (what, body) in all {
            let mut message = match what % 6 {
                0 => body.clone(),
                1 => sealed(&Seal::new(&[7; 32]), ticket.tag, number, body),
                2 => sealed(&good, ticket.tag ^ 1, number, body),
                3 => {
                    let mut bad = sealed(&good, ticket.tag, number, body);
                    let at = body.len() % bad.len();
                    bad[at] ^= 1;
                    bad
                }
                _ => sealed(&good, ticket.tag, number, body),
            };
            let mut again = message.clone();
            rail.take(&mut message);
            rail.take(&mut again);
            if what % 6 >= 4 {
                (number, bytes) = (number + 1, bytes + body.len() as u64);
            }
        }
        assert_eq!(count(&rail.counts.came) - before, bytes);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut number = 0;
        for (_, body) in all.iter().filter(|(what, _)| what % 6 >= 4) {
            number += 1;
            assert_eq!(runtime.block_on(lane.take(number, Duration::from_secs(5))).unwrap(), *body);
        }
        // What was taken does not come again.
        if number > 0 {
            assert!(!lane.comes(number, b"again"));
        }
        assert!(runtime.block_on(lane.take(number + 2, Duration::ZERO)).is_err(), "the one before it was not named");
        assert!(runtime.block_on(lane.take(number + 1, Duration::ZERO)).is_err(), "it does not come");
    });
    assert!(rail.lanes().is_empty());
}

/// Who is a member, and says of its end what it likes.
#[test]
fn whatever_is_said_to_be_a_ticket() {
    let thread = rail();
    check!().with_type::<(u8, String, Vec<u8>, u64, [u8; 32])>().for_each(|(what, name, address, tag, key)| {
        let provider = if what % 2 == 0 { "tcp".to_owned() } else { name.clone() };
        let ticket = Ticket { provider, address: address.clone(), tag: *tag, key: Key(*key) };
        let lane = Lane::new(&thread.rail, ("n2".into(), (1, 2)));
        let usable = ticket.is_sound() && ticket.provider == "tcp";
        assert_eq!(lane.join(Some(ticket), &Arc::default()).is_some(), usable);
    });
}
