//! A move that takes long: somebody at a terminal is told what it waits for.

use pando_node::client::{Client, ClientError};
use pando_node::views::{MoveAnswer, MoveRequest, Process};
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Nobody wonders before.
const PATIENCE: Duration = Duration::from_secs(2);

/// Has the daemon move a process. Standard error of a program that is run is the program's own, so nothing is said there unless a person
/// looks at it.
pub fn move_it(client: &Client, request: &MoveRequest) -> Result<MoveAnswer, ClientError> {
    if !std::io::stderr().is_terminal() {
        return client.post("/v1/move", request);
    }
    let (done, answer) = mpsc::channel();
    let (asking, asked) = (client.clone(), request.clone());
    std::thread::spawn(move || {
        let _ = done.send(asking.post("/v1/move", &asked));
    });
    let mut said = String::new();
    loop {
        match answer.recv_timeout(PATIENCE) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Timeout) => tell(client, request, &mut said),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ClientError::Broken("the thread that asked for the move ended".into()));
            }
        }
    }
}

/// One line for each thing that it waits for.
fn tell(client: &Client, request: &MoveRequest, said: &mut String) {
    let all: Vec<Process> = client.get("/v1/processes").unwrap_or_default();
    let known = all.into_iter().find(|p| p.pid == request.pid && p.role == "home");
    let (place, phase) = known.map_or((String::new(), String::new()), |p| (p.place, p.phase));
    let waits = waits_for(&request.dest, &place, &phase);
    if waits != *said {
        eprintln!("pando: process {} {waits}", request.pid);
        *said = waits;
    }
}

fn waits_for(dest: &str, place: &str, phase: &str) -> String {
    let so_far = if place.is_empty() { "goes on meanwhile".into() } else { format!("goes on at {place} meanwhile") };
    match phase {
        // The daemon hears of a process that leaves home when its target has made a place.
        "" | "home" | "inspect" | "connect" | "prepare" => format!("waits for {dest} to take it, and {so_far}"),
        "away" => format!("is asked to come from {place}"),
        _ => format!("is on its way to {dest} ({phase})"),
    }
}

#[cfg(test)]
mod tests {
    use super::waits_for;

    #[test]
    fn what_it_waits_for_is_said_in_words() {
        assert_eq!(waits_for("n2", "n1", "home"), "waits for n2 to take it, and goes on at n1 meanwhile");
        assert_eq!(waits_for("n2", "", ""), "waits for n2 to take it, and goes on meanwhile");
        assert_eq!(waits_for("home", "n2", "away"), "is asked to come from n2");
        assert_eq!(waits_for("n2", "n1", "freeze"), "is on its way to n2 (freeze)");
    }
}
