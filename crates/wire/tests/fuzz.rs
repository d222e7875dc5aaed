//! Decoders of what strangers and members send to a daemon, with bytes of every kind: a value within its limits or an error.

use bolero::check;
use pando_wire::frame::{self, HEADER, MAX_BODY};
use pando_wire::identity::NewKey;
use pando_wire::join::{JoinAnswer, JoinRequest};
use pando_wire::message::{Hello, Load, MAX_LOADS, MAX_PACKET, MAX_TEXT, Member, Message, Question, Told};
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::rustls::{ClientConfig, ClientConnection, RootCertStore};
use pando_wire::sniff::{MAX_CLIENT_HELLO, Sniffed, sniff};
use pando_wire::token::{Token, proof_holds};
use pando_wire::version::Versions;
use pando_wire::{NodeName, SNI_NODE};

fn within_limits(message: &Message) {
    if message.check().is_err() {
        return;
    }
    match message {
        Message::Swim(packet) => assert!(packet.len() <= MAX_PACKET),
        Message::Loads(all) => assert!(all.len() <= MAX_LOADS && all.iter().all(|t| t.who.len() <= MAX_TEXT)),
        Message::Ask { question: Question::Advise { to, reason, .. }, .. } => {
            assert!(to.len() <= MAX_TEXT && reason.len() <= MAX_TEXT)
        }
        Message::Answer { answer: Err(reason), .. } | Message::Bye { reason } => assert!(reason.len() <= MAX_TEXT),
        Message::Ask { .. } | Message::Answer { .. } => {}
    }
}

fn decode(bytes: &[u8]) {
    let _ = frame::decode_body::<Message>(bytes).map(|m| within_limits(&m));
    let _ = frame::decode_body::<Hello>(bytes).map(|h| h.check());
    let _ = frame::decode_body::<JoinRequest>(bytes).map(|r| r.me.check());
    let _ = frame::decode_body::<JoinAnswer>(bytes).map(|a| a.is_sane());
}

#[test]
fn frames_of_any_bytes() {
    check!().for_each(|bytes: &[u8]| {
        if let Some(header) = bytes.first_chunk::<HEADER>()
            && let Ok((_, length)) = frame::decode_header(*header)
        {
            assert!(length <= MAX_BODY);
        }
        let version = bytes.get(5).copied().unwrap_or(0).into();
        if let Ok(Some((message, used))) = frame::decode::<Message>(version, bytes) {
            assert!(used <= bytes.len());
            within_limits(&message);
        }
        decode(bytes);
    });
}

/// Bytes of a good value with some changed, cut or added.
fn changed(mut bytes: Vec<u8>, changes: &[(u16, u8)], cut: u16, more: &[u8]) -> Vec<u8> {
    for (at, to) in changes {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *to;
    }
    if cut.is_multiple_of(3) {
        bytes.truncate(usize::from(cut));
    }
    bytes.extend(more);
    bytes
}

type Changes = (Vec<(u16, u8)>, u16, Vec<u8>);

#[test]
fn frames_that_were_good() {
    let member = |name: &str| Member { name: name.into(), addr: "10.0.0.1:7117".into(), stamp: 7 };
    let hello = Hello { versions: Versions::OURS, me: member("n1"), boot: 1, release: "0.1".into() };
    let request = JoinRequest {
        versions: Versions::OURS,
        token: [1; 8],
        me: member("n2"),
        public: vec![2; 32],
        proof: vec![3; 32],
    };
    let members = vec![member("n1"), member("n2")];
    let answer = JoinAnswer::Admitted { cluster: "pando".into(), ca: vec![4; 300], cert: vec![5; 300], members };
    let told = |who: &str| Told { who: who.into(), life: 1, number: 2, age_ms: 3, load: Load::default() };
    let question = Question::Advise { pid: 5, to: "n3".into(), reason: "balance".into(), must: false, bytes: 1 << 20 };
    let good = [
        frame::encode(1, &Message::Swim(vec![6; 60])).unwrap(),
        frame::encode(1, &Message::Loads(vec![told("n1"), told("n2")])).unwrap(),
        frame::encode(1, &Message::Ask { number: 1, question }).unwrap(),
        frame::encode(1, &Message::Answer { number: 1, answer: Err("it is full".into()) }).unwrap(),
        frame::encode(1, &hello).unwrap(),
        frame::encode(1, &request).unwrap(),
        frame::encode(1, &answer).unwrap(),
    ];
    check!().with_type::<(u8, Changes)>().for_each(|(which, (changes, cut, more))| {
        let bytes = changed(good[usize::from(*which) % good.len()].clone(), changes, *cut, more);
        let _ = frame::decode::<Message>(1, &bytes).map(|m| m.map(|m| within_limits(&m.0)));
        decode(bytes.get(HEADER..).unwrap_or_default());
    });
}

#[test]
fn first_bytes_of_a_connection() {
    check!().for_each(|bytes: &[u8]| assert!(!matches!(sniff(bytes), Sniffed::For(name) if name.len() > 255)));
    let provider = pando_wire::rustls::crypto::aws_lc_rs::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(config.into(), ServerName::try_from(SNI_NODE).unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    assert_eq!(sniff(&hello), Sniffed::For(SNI_NODE.into()));
    check!().with_type::<Changes>().for_each(|(changes, cut, more)| {
        let bytes = changed(hello.clone(), changes, *cut, more);
        let whole = sniff(&bytes);
        // What was said of a beginning is not taken back.
        if let Sniffed::For(name) = sniff(&bytes[..bytes.len() / 2]) {
            assert_eq!(whole, Sniffed::For(name));
        }
        let mut long = bytes;
        long.resize(MAX_CLIENT_HELLO + 1, 0);
        assert_ne!(sniff(&long), Sniffed::NeedMore);
    });
}

#[test]
fn words_names_and_keys() {
    let word = Token::generate("[::1]:7117".into(), [3; 32], 1).to_word().into_bytes();
    check!().with_type::<Changes>().for_each(|(changes, cut, more)| {
        let bytes = changed(word.clone(), changes, *cut, more);
        if let Ok(token) = Token::from_word(&String::from_utf8_lossy(&bytes)) {
            assert_eq!(Token::from_word(&token.to_word()), Ok(token));
        }
        if let Ok(name) = NodeName::parse(&String::from_utf8_lossy(more)) {
            assert!((1..=63).contains(&name.as_str().len()));
        }
        let _ = NodeName::from_hostname(&String::from_utf8_lossy(more));
        let _ = pando_wire::peer_name(&[more.clone().into()]);
        assert!(!proof_holds(&word, &bytes, "n2", more, more));
    });
}

#[test]
fn public_keys_of_any_kind_get_no_more_than_a_certificate() {
    let dir = std::env::temp_dir().join(format!("pando-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let name = |text| NodeName::parse(text).unwrap();
    let authority = pando_wire::Identity::create_cluster(&dir, &name("pando"), &name("n1")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(authority.issue(&name("n2"), &NewKey::generate().unwrap().public()).is_ok());
    let authority = std::panic::AssertUnwindSafe(authority);
    check!().with_type::<(Vec<u8>, [u8; 32])>().for_each(|(odd, key)| {
        let authority = &authority;
        assert_eq!(authority.issue(&name("n2"), odd).is_ok(), odd.len() == 32);
        let cert = authority.issue(&name("n2"), key).unwrap();
        assert_eq!(pando_wire::peer_name(&[cert.into()]).as_deref(), Some("n2"));
    });
}
