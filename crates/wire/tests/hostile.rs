//! Decoders against bytes that nobody meant: they answer, never panic, never allocate what was only announced.

use pando_wire::frame::{self, FrameError, HEADER, MAX_BODY};
use pando_wire::join::{JoinAnswer, JoinRequest};
use pando_wire::message::{Hello, Load, MAX_LOADS, MAX_PACKET, Message, Question, Told};
use pando_wire::sniff::sniff;
use pando_wire::token::Token;
use pando_wire::{NodeName, version::Versions};
use proptest::prelude::*;

fn told() -> impl Strategy<Value = Told> {
    ("[a-z0-9-]{1,63}", any::<[u64; 4]>(), any::<u32>()).prop_map(|(who, [life, number, age_ms, free], cpus_milli)| {
        Told { who, life, number, age_ms, load: Load { cpus_milli, free, ..Load::default() } }
    })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..100).prop_map(Message::Swim),
        prop::collection::vec(told(), 0..20).prop_map(Message::Loads),
        (any::<u64>(), any::<u32>(), ".{0,50}", ".{0,100}", any::<bool>(), any::<u64>()).prop_map(
            |(number, pid, to, reason, must, bytes)| Message::Ask {
                number,
                question: Question::Advise { pid, to, reason, must, bytes }
            }
        ),
        (any::<u64>(), ".{0,50}", any::<u32>(), any::<u64>(), any::<u32>(), any::<Option<u32>>()).prop_map(
            |(number, home, pid, needs, demand_milli, has_milli)| Message::Ask {
                number,
                question: Question::Admit { home, pid, needs, demand_milli, has_milli }
            }
        ),
        any::<u64>().prop_map(|number| Message::Ask { number, question: Question::Decisions }),
        (any::<u64>(), prop::result::maybe_ok(".{0,100}", ".{0,100}"))
            .prop_map(|(number, answer)| Message::Answer { number, answer }),
        ".{0,100}".prop_map(|reason| Message::Bye { reason }),
    ]
}

proptest! {
    #[test]
    fn what_is_sent_arrives(m in message(), version in any::<u16>(), extra in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = frame::encode(version, &m).unwrap();
        let length = bytes.len();
        for cut in 0..length {
            prop_assert!(frame::decode::<Message>(version, &bytes[..cut]).unwrap().is_none());
        }
        bytes.extend(extra);
        prop_assert_eq!(frame::decode(version, &bytes).unwrap(), Some((m, length)));
    }

    #[test]
    fn a_changed_frame_is_refused_or_decodes(m in message(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = frame::encode(1, &m).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(Some((m, _))) = frame::decode::<Message>(1, &bytes) {
            let _ = m.check();
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let _ = frame::decode::<Message>(1, &bytes);
        let _ = frame::decode_body::<Message>(&bytes).map(|m| m.check());
        let _ = frame::decode_body::<Hello>(&bytes).map(|h| h.check());
        let _ = frame::decode_body::<JoinRequest>(&bytes).map(|r| r.me.check());
        let _ = frame::decode_body::<JoinAnswer>(&bytes).map(|a| a.is_sane());
        let _ = sniff(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let _ = Token::from_word(&text);
        let _ = NodeName::parse(&text);
        let _ = pando_wire::peer_name(&[bytes.into()]);
    }

    #[test]
    fn a_client_hello_with_garbage_inside_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut hello = vec![0x16, 3, 1];
        hello.extend_from_slice(&(bytes.len() as u16 + 4).to_be_bytes());
        hello.extend_from_slice(&[1, 0]);
        hello.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        hello.extend_from_slice(&bytes);
        let _ = sniff(&hello);
    }

    #[test]
    fn a_token_word_is_not_guessed(id in any::<[u8; 8]>(), secret in any::<[u8; 32]>(), at in any::<prop::sample::Index>()) {
        let token = Token { addr: "[::1]:7117".into(), fingerprint: [3; 32], id, secret, expires: 1 };
        let mut word = token.to_word().into_bytes();
        let at = at.index(word.len());
        word[at] = if word[at] == b'0' { b'1' } else { b'0' };
        prop_assert!(Token::from_word(&String::from_utf8(word).unwrap()).is_err());
    }

    #[test]
    fn both_sides_agree_on_the_same_version(a in any::<(u16, u16)>(), b in any::<(u16, u16)>()) {
        let (a, b) = (Versions { min: a.0, max: a.1 }, Versions { min: b.0, max: b.1 });
        if a.min <= a.max && b.min <= b.max {
            prop_assert_eq!(a.agree(b).ok(), b.agree(a).ok());
        }
    }
}

#[test]
fn an_oversized_frame_is_refused_by_its_header() {
    let header = [0xff, 0xff, 0xff, 0xff, 0, 1];
    assert_eq!(frame::decode::<Message>(1, &header), Err(FrameError::TooLong(0xffff_ffff)));
    assert_eq!(frame::decode_header([0, 0, 0, 1, 0, 1]), Err(FrameError::TooShort(1)));
    assert!(
        frame::decode_header(
            ((MAX_BODY + 2) as u32).to_be_bytes().into_iter().chain([0, 1]).collect::<Vec<_>>().try_into().unwrap()
        )
        .is_ok()
    );
    let wrong = [0, 0, 0, 2, 0, 9];
    assert_eq!(frame::decode::<Message>(1, &wrong), Err(FrameError::Version { got: 9, agreed: 1 }));
    assert_eq!(HEADER, 6);
}

#[test]
fn counts_and_texts_have_limits() {
    let one = Told { who: "n".into(), life: 1, number: 1, age_ms: 0, load: Load::default() };
    assert!(Message::Loads(vec![one.clone(); MAX_LOADS]).check().is_ok());
    let over = Message::Loads(vec![one; MAX_LOADS + 1]).check().unwrap_err().to_string();
    assert!(over.contains("257") && over.contains("256"), "{over}");
    assert!(Message::Bye { reason: "x".repeat(2000) }.check().is_err());
    assert!(Message::Answer { number: 1, answer: Err("x".repeat(2000)) }.check().is_err());
    assert!(Message::Swim(vec![0; MAX_PACKET + 1]).check().is_err());
    let advise = |to: String, reason: String| Message::Ask {
        number: 1,
        question: Question::Advise { pid: 1, to, reason, must: true, bytes: 0 },
    };
    assert!(
        advise("n1".into(), "x".repeat(2000)).check().is_err()
            && advise("n".repeat(200), String::new()).check().is_err()
    );
}
