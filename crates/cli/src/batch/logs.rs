//! `pando logs` and `pando attach`: what a job has written, in pieces from wherever its node is.

use super::format::plain;
use super::{COMES_BACK, Ended, ask, is_passing, said};
use crate::args::LogOptions;
use pando_node::client::{Client, ClientError};
use pando_node::queue::ask::{Ask, From, Over, Piece};
use pando_node::queue::logs::AWAY;
use pando_queue::Id;
use std::io::Write;
use std::time::{Duration, Instant};

/// One wait for more; then it is asked again.
const PATIENCE_MS: u64 = 10_000;
/// One that has not begun is asked for so often.
const PAUSE: Duration = Duration::from_millis(300);

/// `pando logs`: with --follow its status is the job's.
pub fn logs(client: &Client, options: &LogOptions) -> Ended {
    let from = options.lines.map_or(From::Byte(0), From::Lines);
    Reader { client, id: options.job, error: options.err, follow: options.follow, run: None, told: false, away: false }
        .read(from)
}

/// `pando attach`: from now on.
pub fn attach(client: &Client, id: Id) -> Ended {
    Reader { client, id, error: false, follow: true, run: None, told: false, away: false }.read(From::Lines(0))
}

struct Reader<'a> {
    client: &'a Client,
    id: Id,
    error: bool,
    follow: bool,
    /// What has been read is of this one.
    run: Option<u32>,
    /// The user knows that it waits.
    told: bool,
    /// And that there is no answer for now.
    away: bool,
}

impl Reader<'_> {
    fn read(mut self, mut from: From) -> Ended {
        let mut out = std::io::stdout().lock();
        loop {
            let patience_ms = if self.follow { PATIENCE_MS } else { 0 };
            let ask = Ask::Read { id: self.id, error: self.error, from, patience_ms };
            let piece = self.piece(&ask)?;
            let Some(run) = piece.run else {
                match piece.end {
                    Some((state, status)) if self.follow => {
                        eprintln!("pando: job {} never began: {}", self.id, state.names().0.to_lowercase());
                        return Ok(status);
                    }
                    _ if self.follow => self.wait(&piece),
                    _ => return Err(format!("job {} has written nothing: it has not begun{}", self.id, why(&piece))),
                }
                continue;
            };
            if self.run.replace(run).is_some_and(|before| before != run) {
                eprintln!("pando: job {} runs again from its beginning", self.id);
                from = From::Byte(0);
                continue;
            }
            if out.write_all(&piece.bytes.0).and_then(|()| out.flush()).is_err() {
                // Whoever reads it has enough.
                return Ok(1);
            }
            from = From::Byte(piece.at + piece.bytes.0.len() as u64);
            match (piece.bytes.0.is_empty(), piece.end) {
                (true, Some((_, status))) if self.follow => return Ok(status),
                (true, _) if !self.follow => return Ok(0),
                _ => {}
            }
        }
    }

    /// Asks on where somebody has no answer for now: whoever follows, for as long as the queue says that the job is not over.
    fn piece(&mut self, ask: &Ask) -> Result<Piece, String> {
        let begun = Instant::now();
        loop {
            let e = match self.client.post("/v1/queue", ask) {
                Err(e) if is_passing(&e) || self.follow && is_away(&e) => e,
                answer => return answer.map_err(said),
            };
            if begun.elapsed() >= COMES_BACK && !(self.follow && self.goes_on()) {
                return Err(said(e));
            }
            if self.follow && !std::mem::replace(&mut self.away, true) {
                eprintln!("pando: {}; job {} is asked for until it is over", plain(&said(e)), self.id);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn goes_on(&self) -> bool {
        let over = ask::<Over>(self.client, &Ask::Wait { id: self.id, patience_ms: 0 });
        over.is_ok_and(|over| over.end.is_none())
    }

    fn wait(&mut self, piece: &Piece) {
        if !std::mem::replace(&mut self.told, true) {
            eprintln!("pando: job {} has not begun{}", self.id, why(piece));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Has the job's node no answer?
fn is_away(e: &ClientError) -> bool {
    matches!(e, ClientError::Refused(why) if why.starts_with(AWAY))
}

fn why(piece: &Piece) -> String {
    match piece.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({}); `pando explain` says what it waits for", plain(reason)),
    }
}
