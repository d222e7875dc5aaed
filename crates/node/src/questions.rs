//! Questions between daemons, and their answers.

use crate::audit::Entry;
use crate::balancing::Told;
use crate::daemon::Node;
use crate::owner::clean;
use crate::queue::office;
use crate::views::{Decision, Decisions, Drain};
use crate::{balancing, fabric, peers};
use pando_wire::message::{MAX_ANSWER, MAX_TEXT, Message, Question};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// An answer comes within this, or is taken for a no.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same where a move is made before the answer, or a beat of the strobe is waited for.
const PATIENCE_WITH_WORK: Duration = Duration::from_secs(30);
/// Questions of others that are worked on at a time.
const MAX_AT_ONCE: usize = 64;
/// Bytes of a refusal.
const MAX_REASON: usize = 500;
const _: () = assert!(MAX_REASON <= MAX_TEXT);

type Answer = Result<String, String>;

/// Those that wait for an answer, by number: of whom.
pub struct Questions {
    open: Mutex<BTreeMap<u64, (String, oneshot::Sender<Answer>)>>,
    busy: Arc<Semaphore>,
}

impl Default for Questions {
    fn default() -> Self {
        Questions { open: Mutex::default(), busy: Arc::new(Semaphore::new(MAX_AT_ONCE)) }
    }
}

impl Questions {
    /// An answer has come; only the one who was asked can give it.
    pub fn answered(&self, peer: &str, number: u64, answer: Answer) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(&number).is_some_and(|(asked, _)| asked == peer)
            && let Some((_, waits)) = open.remove(&number)
        {
            let _ = waits.send(answer);
        }
    }
}

/// Asks the node with this name; no answer is a no.
pub async fn ask(node: &Arc<Node>, whom: &str, question: Question) -> Answer {
    let Some(member) = node.cluster.member(whom) else {
        return Err(format!("there is no node {whom}"));
    };
    if node.cluster.is_down(whom) {
        return Err(format!("node {whom} is down: `pando nodes` shows since when"));
    }
    let patience = match question {
        Question::Advise { .. } | Question::Post(_) => PATIENCE_WITH_WORK,
        _ => PATIENCE,
    };
    let (number, (sender, answer)) = (node.number(), oneshot::channel());
    let open = || node.questions.open.lock().unwrap_or_else(PoisonError::into_inner);
    open().insert(number, (whom.to_owned(), sender));
    peers::send(node, &member, Message::Ask { number, question });
    let answer = tokio::time::timeout(patience, answer).await;
    open().remove(&number);
    match answer {
        // It goes into logs and onto terminals.
        Ok(Ok(answer)) => answer.map_err(|why| clean(&why)),
        _ => Err(format!("node {whom} did not answer within {patience:?}")),
    }
}

/// A question of `peer`.
pub fn take(node: &Arc<Node>, peer: &str, number: u64, question: Question) {
    let Ok(busy) = node.questions.busy.clone().try_acquire_owned() else { return };
    let (node, peer) = (node.clone(), peer.to_owned());
    tokio::spawn(async move {
        let answer = match question {
            Question::Admit { home, pid, needs, demand_milli, has_milli } => {
                let asked = balancing::admit(&node, (home, pid), needs, demand_milli, has_milli);
                asked.map(|()| String::new())
            }
            Question::ComesNot { home, pid } => {
                node.balancing.comes_not(&(home, pid));
                Ok(String::new())
            }
            Question::Drain { on, reason, by } => {
                let why = if on { "empty it" } else { "use it again" }.to_owned();
                let (who, on_what) = (format!("node {peer}"), format!("node {}", node.name()));
                node.audit.note(&Entry { who, what: "drain", on: on_what, allowed: true, why });
                let (by, reason) = (clean(&by), clean(&reason));
                let by = if by.is_empty() { peer.clone() } else { by };
                let drain = Drain { reason, by, at: crate::events::now_ms() };
                node.balancing.drain(&node, on.then_some(drain), &peer);
                Ok(String::new())
            }
            Question::Decisions => decided(&node),
            Question::Keeps(pid) => balancing::bonds_of(&node, &peer, pid),
            Question::Fabric => fabric::about(&node),
            Question::Post(event) => fabric::post_here(&node, event).await.map(|()| String::new()),
            Question::TakeIn(life) => fabric::take_in(&node, &peer, life),
            Question::Queue => office::says(&node),
            Question::Advise { pid, to, reason, must, bytes } => {
                let advice = balancing::Advice { pid, to: &to, reason: &reason, must, bytes };
                balancing::advised(&node, &peer, &advice).await.map(|()| String::new())
            }
        };
        drop(busy);
        let answer = answer.map_err(|why| cut(&why).to_owned());
        if let Some(member) = node.cluster.member(&peer) {
            peers::send(&node, &member, Message::Answer { number, answer });
        }
    });
}

/// As much of a refusal as another node reads.
fn cut(why: &str) -> &str {
    &why[..why.floor_char_boundary(MAX_REASON)]
}

/// What another node says it decided, fit for a terminal.
pub fn told(text: &str) -> serde_json::Result<Decisions> {
    let mut all: Decisions = serde_json::from_str(text)?;
    all.node = clean(&all.node);
    for d in all.moves.iter_mut().chain(&mut all.stays) {
        (d.home, d.text) = (clean(&d.home), clean(&d.text));
    }
    Ok(all)
}

/// As much of what was decided here as an answer holds, the newest.
fn decided(node: &Node) -> Answer {
    let mut all = decisions(node, |_| true);
    loop {
        let text = serde_json::to_string(&all).map_err(|e| e.to_string())?;
        if text.len() <= MAX_ANSWER {
            return Ok(text);
        }
        // Nobody reads thousands of lines: half of what is more goes.
        all.moves = all.moves.split_off(all.moves.len().div_ceil(2));
        all.stays.truncate(all.stays.len() / 2);
    }
}

/// What this node decided of late about processes that `may_see` allows, by user.
pub fn decisions(node: &Node, may_see: impl Fn(Option<u32>) -> bool) -> Decisions {
    let uid = |key: &(String, u32)| node.table().get(key).map(|k| k.view.uid);
    let view = |(key, text, ago): Told| {
        let (age_ms, seen) = (ago.as_millis() as u64, may_see(uid(&key)));
        let (home, pid) = key;
        seen.then_some(Decision { home, pid, text, age_ms })
    };
    let moves = node.balancing.latest().into_iter().filter_map(view).collect();
    let stays = node.balancing.stays().into_iter().filter_map(view).collect();
    Decisions { node: node.name(), gangs: node.gangs.told(), moves, stays }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_any_script_is_short_enough_for_the_one_who_asked() {
        let why = "it maps a device: /dev/".to_owned() + &"漢".repeat(2000);
        let answer = Err(cut(&why).to_owned());
        assert_eq!(Message::Answer { number: 1, answer }.check(), Ok(()));
        assert_eq!(cut("no"), "no");
    }

    #[test]
    fn what_another_node_decided_does_no_harm_to_a_terminal() {
        let odd = "\u{1b}]0;x\u{7}\r".to_owned();
        let d = Decision { home: odd.clone(), pid: 1, text: odd.clone(), age_ms: 0 };
        let all = Decisions { node: odd, moves: vec![d.clone()], stays: vec![d], gangs: None };
        let all = told(&serde_json::to_string(&all).unwrap()).unwrap();
        let texts = [&all.node, &all.moves[0].home, &all.moves[0].text, &all.stays[0].home, &all.stays[0].text];
        assert!(texts.iter().all(|t| !t.contains(char::is_control)), "{all:?}");
    }
}
