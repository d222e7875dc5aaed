//! Threads of the Rust standard library: scoped, channels, locks, conditions, barriers, parking, thread locals, panics.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

thread_local!(static MINE: Cell<u64> = const { Cell::new(7) });

fn scramble(seed: u64, rounds: u64) -> u64 {
    (0..rounds).fold(seed, |x, n| x.wrapping_mul(6364136223846793005).wrapping_add(n).rotate_left(9))
}

fn scoped() -> u64 {
    let mut data = vec![0u64; 200_000];
    for round in 0..120 {
        thread::scope(|scope| {
            for (number, part) in data.chunks_mut(50_000).enumerate() {
                scope.spawn(move || {
                    for (i, value) in part.iter_mut().enumerate() {
                        *value = value.wrapping_add(scramble((number * 50_000 + i) as u64 + round, 3));
                    }
                });
            }
        });
    }
    data.iter().fold(0, |sum, value| sum.rotate_left(1) ^ value)
}

fn channels() -> (u64, usize) {
    let (to, from) = mpsc::sync_channel::<(usize, u64)>(16);
    let senders: Vec<_> = (0..4)
        .map(|number| {
            let to = to.clone();
            thread::spawn(move || (0..5000).try_for_each(|n| to.send((number, n))))
        })
        .collect();
    drop(to);
    let mut next = [0; 4];
    let mut sum = 0;
    for (number, n) in from {
        assert_eq!(next[number], n);
        next[number] += 1;
        sum += n * (number as u64 + 1);
    }
    (sum, senders.into_iter().map(|s| s.join()).filter(|r| matches!(r, Ok(Ok(())))).count())
}

fn locks() -> (u64, usize, u64) {
    let map = Arc::new(RwLock::new(HashMap::new()));
    let turn = Arc::new((Mutex::new(0u64), Condvar::new()));
    let sum = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..5u64)
        .map(|me| {
            let (map, turn, sum) = (Arc::clone(&map), Arc::clone(&turn), Arc::clone(&sum));
            thread::spawn(move || {
                for round in 0..1000 {
                    let mut now = turn.0.lock().unwrap();
                    while *now % 5 != me {
                        now = turn.1.wait(now).unwrap();
                    }
                    *now += 1;
                    turn.1.notify_all();
                    drop(now);
                    *map.write().unwrap().entry(round % 37).or_insert(0) += me;
                    sum.fetch_add(map.read().unwrap().len().min(1) as u64, Ordering::Relaxed);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let map = map.read().unwrap();
    (map.values().sum::<u64>(), map.len(), sum.load(Ordering::Relaxed))
}

fn barriers() -> u64 {
    let barrier = Barrier::new(4);
    let values = [const { AtomicU64::new(0) }; 4];
    thread::scope(|scope| {
        for me in 0..4 {
            let (barrier, values) = (&barrier, &values);
            scope.spawn(move || {
                MINE.set(me as u64);
                for phase in 1..=2000u64 {
                    values[me].store(scramble(phase, 50), Ordering::Relaxed);
                    barrier.wait();
                    assert!(values.iter().all(|v| v.load(Ordering::Relaxed) == scramble(phase, 50)));
                    barrier.wait();
                }
                assert_eq!(MINE.get(), me as u64);
            });
        }
    });
    MINE.get() + values[0].load(Ordering::Relaxed) % 1000
}

fn parked() -> u32 {
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let sleeper = thread::spawn(move || {
        let mut wakes = 0;
        while wakes < 200 {
            thread::park_timeout(Duration::from_millis(3));
            if seen.swap(0, Ordering::AcqRel) > 0 {
                wakes += 1;
            }
        }
        wakes
    });
    while !sleeper.is_finished() {
        count.fetch_add(1, Ordering::AcqRel);
        sleeper.thread().unpark();
        thread::sleep(Duration::from_millis(1));
    }
    sleeper.join().unwrap()
}

fn main() {
    println!("scoped {:x}", scoped());
    println!("channels {:?}", channels());
    println!("locks {:?}", locks());
    println!("barriers {}", barriers());
    println!("parked {}", parked());
    let panicked = thread::Builder::new().name("falls".into()).spawn(|| std::panic::resume_unwind(Box::new(42u32)));
    println!("panic {:?}", panicked.unwrap().join().unwrap_err().downcast_ref::<u32>());
    let sums: Vec<_> = (0..300).map(|i| thread::spawn(move || scramble(i, 2000))).map(|t| t.join().unwrap()).collect();
    println!("storm {:x}", sums.iter().fold(0, |a, b| a ^ b));
    let (down, up) = std::process::Command::new("sh").args(["-c", "cat input/text | wc -l; exit 3"]).output().map_or(
        (None, Vec::new()),
        |o| (o.status.code(), o.stdout),
    );
    println!("command {down:?} {}", String::from_utf8_lossy(&up).trim());
}
