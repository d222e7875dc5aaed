use super::*;
use bolero::check;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

fn open(provider: &str) -> Option<Endpoint> {
    let here = (provider == "tcp").then_some(IpAddr::from([127, 0, 0, 1]));
    let library = Path::new("libfabric.so.1");
    match Endpoint::open(&Wanted { library, provider, here, longest: 70_000, buffers: 8 }) {
        Ok(endpoint) => Some(endpoint),
        Err(why) => {
            println!("SKIPPED: {why}");
            None
        }
    }
}

/// What came to `to`, when all was sent.
fn carry(from: &mut Endpoint, to: &mut Endpoint, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let peer = from.peer(to.address()).unwrap();
    let (never, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut due: Vec<(u64, Vec<u8>)> = (0..).zip(messages.iter().cloned()).collect();
    due.reverse();
    let (mut came, mut sent) = (Vec::new(), 0);
    let begun = Instant::now();
    while came.len() < messages.len() || sent < messages.len() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{sent} sent, {} came", came.len());
        while let Some((token, message)) = due.pop() {
            match from.send(peer, message, token) {
                Ok(()) => {}
                Err(Unsent::Again(message)) => {
                    due.push((token, message));
                    break;
                }
                Err(Unsent::Never(why)) => panic!("{why}"),
            }
        }
        from.go_on(|event| match event {
            Event::Sent(_, result) => {
                result.unwrap();
                sent += 1;
            }
            _ => panic!("nothing comes here"),
        })
        .unwrap();
        to.go_on(|event| match event {
            Event::Came(bytes) => came.push(bytes.to_vec()),
            _ => panic!("nothing is sent from there"),
        })
        .unwrap();
        to.rest(never.as_raw_fd(), 1000).unwrap();
    }
    assert_eq!(from.under_way(), 0);
    came
}

fn all_sizes_come(provider: &str) {
    let (Some(mut a), Some(mut b)) = (open(provider), open(provider)) else { return };
    println!("{}: {} bytes of address, waits: {}", a.provider(), a.address().len(), a.waits());
    let sizes = [0, 1, 63, 64, 65, 4095, 4096, 4097, 16_384, 65_535, 65_568, 69_999, 70_000];
    let of = |n: usize| (0..n).map(|i| ((i * 31) >> 3) as u8 ^ n as u8).collect::<Vec<u8>>();
    let messages: Vec<Vec<u8>> = sizes.iter().cycle().take(130).map(|n| of(*n)).collect();
    let mut came = carry(&mut a, &mut b, &messages);
    let mut sent = messages.clone();
    came.sort();
    sent.sort();
    assert!(came == sent);
    assert_eq!(carry(&mut b, &mut a, &messages).len(), 130);
}

#[test]
fn messages_of_all_sizes_come_over_tcp() {
    all_sizes_come("tcp");
}

#[test]
fn messages_of_all_sizes_come_through_shared_memory() {
    all_sizes_come("shm");
}

#[test]
fn what_can_not_be_had_is_said() {
    let open = |library: &str, provider: &str| {
        let wanted = Wanted { library: Path::new(library), provider, here: None, longest: 1000, buffers: 1 };
        Endpoint::open(&wanted).err().unwrap_or_default()
    };
    let none = open("/nowhere/libfabric.so.1", "tcp");
    assert!(none.contains("/nowhere/libfabric.so.1 can't be loaded"), "{none}");
    let other = open("libc.so.6", "tcp");
    assert!(other.contains("libc.so.6 has no fi_version"), "{other}");
    if self::open("tcp").is_some() {
        let unknown = open("libfabric.so.1", "carrier-pigeon");
        assert!(unknown.contains("provider carrier-pigeon"), "{unknown}");
    }
}

#[test]
fn whatever_is_said_to_be_an_address() {
    let (mut tcp, mut shm) = (open("tcp"), open("shm"));
    check!().with_type::<(u8, Vec<u8>)>().for_each(|(begins, bytes)| {
        let address = match begins % 4 {
            0 => bytes.clone(),
            1 => [b"fi_shm://", &bytes[..], b"\0"].concat(),
            _ => [&[2, 0], &bytes[..]].concat(),
        };
        for endpoint in [&mut tcp, &mut shm].into_iter().flatten() {
            // Most are refused; those that look well may be anybody's.
            let _ = endpoint.peer(&address);
        }
    });
}
