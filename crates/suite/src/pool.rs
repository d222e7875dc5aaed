//! Some jobs at a time, results as they come.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// Runs `work` on every job with `threads` threads; calls `done` on the calling thread as each result comes. Stops
/// to take jobs when `done` says so.
pub fn each<J: Send, R: Send>(
    threads: usize,
    jobs: Vec<J>,
    work: impl Fn(J) -> R + Sync,
    mut done: impl FnMut(R) -> bool,
) {
    let queue = Mutex::new(jobs.into_iter());
    let stop = AtomicBool::new(false);
    let (sender, results) = mpsc::channel();
    let (queue, stop, work) = (&queue, &stop, &work);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let job = queue.lock().expect("no holder panics").next();
                    let Some(job) = job else { return };
                    if sender.send(work(job)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for result in results {
            if !done(result) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_one_result() {
        let mut sum = 0;
        each(
            3,
            (1..=100).collect(),
            |n| n * 2,
            |n: i32| {
                sum += n;
                true
            },
        );
        assert_eq!(sum, 10100);
    }

    #[test]
    fn it_stops_when_told() {
        let mut count = 0;
        each(
            1,
            (1..=100).collect::<Vec<i32>>(),
            |n| std::thread::sleep(std::time::Duration::from_millis(n as u64 % 2)),
            |()| {
                count += 1;
                count < 5
            },
        );
        assert!(count < 100);
    }
}
