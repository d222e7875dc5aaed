//! What is shown, and what is selected.

use super::Screen;
use pando_node::client::{Client, ClientError};
use pando_node::views::{Event, Liveness, Node, Process};
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Events that are kept.
const KEPT: usize = 200;

/// All that is shown, as data.
#[derive(Serialize)]
pub struct Snapshot<'a> {
    nodes: &'a [Node],
    /// Not of `pando mon`.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<&'a [Process]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'a [Event]>,
}

/// See the module.
pub struct State {
    pub screen: Screen,
    /// No colours.
    pub mono: bool,
    pub nodes: Vec<Node>,
    pub processes: Vec<Process>,
    pub events: Vec<Event>,
    /// The selected process: home and pid.
    pub selected: Option<(String, u32)>,
    /// What is being typed: where the selected process is to go.
    pub prompt: Option<String>,
    /// The last word about what was asked for.
    pub message: String,
    pub help: bool,
    seq: u64,
    pub tell: Sender<String>,
    told: Receiver<String>,
}

impl State {
    pub fn new(screen: Screen, mono: bool) -> State {
        let (tell, told) = channel();
        State {
            screen,
            mono,
            nodes: Vec::new(),
            processes: Vec::new(),
            events: Vec::new(),
            selected: None,
            prompt: None,
            message: String::new(),
            help: false,
            seq: 0,
            tell,
            told,
        }
    }

    /// Asks the daemon.
    pub fn look(&mut self, client: &Client) -> Result<(), String> {
        let said = |e: ClientError| e.to_string();
        self.nodes = client.get("/v1/nodes").map_err(said)?;
        if self.screen == Screen::Mon {
            return Ok(());
        }
        let mut processes: Vec<Process> = client.get("/v1/processes").map_err(said)?;
        processes.retain(Process::is_at_work);
        processes.sort_by(|a, b| (&a.home, a.pid).cmp(&(&b.home, b.pid)));
        self.processes = processes;
        let new: Vec<Event> = client.get(&format!("/v1/events?since={}", self.seq)).map_err(said)?;
        self.seq = new.last().map_or(self.seq, |e| e.seq);
        self.events.extend(new);
        let skip = self.events.len().saturating_sub(KEPT);
        self.events.drain(..skip);
        if self.at().is_none() {
            self.selected = self.processes.first().map(|p| (p.home.clone(), p.pid));
        }
        Ok(())
    }

    /// Takes what came of requests.
    pub fn heed(&mut self) {
        while let Ok(text) = self.told.try_recv() {
            self.message = text;
        }
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.message = text.into();
    }

    pub fn snapshot(&self) -> Snapshot<'_> {
        let top = self.screen == Screen::Top;
        let (processes, events) = (top.then_some(&self.processes[..]), top.then_some(&self.events[..]));
        Snapshot { nodes: &self.nodes, processes, events }
    }

    /// Where the selected process is in the list.
    pub fn at(&self) -> Option<usize> {
        let (home, pid) = self.selected.as_ref()?;
        self.processes.iter().position(|p| p.home == *home && p.pid == *pid)
    }

    pub fn chosen(&self) -> Option<&Process> {
        self.processes.get(self.at()?)
    }

    /// Selects the process so many lines further down.
    pub fn step(&mut self, lines: isize) {
        let last = self.processes.len().saturating_sub(1);
        let to = self.at().map_or(0, |at| at.saturating_add_signed(lines)).min(last);
        self.selected = self.processes.get(to).map(|p| (p.home.clone(), p.pid));
    }

    /// The cluster in one line.
    pub fn summary(&self) -> String {
        let of = |state: Liveness| self.nodes.iter().filter(|n| n.state == state).count();
        let up = || self.nodes.iter().filter(|n| n.state == Liveness::Up);
        let (cpus, runnable) = (up().map(|n| n.cpus).sum::<f64>(), up().map(|n| n.runnable).sum::<f64>());
        let (free, memory) = (up().map(|n| n.free).sum::<u64>(), up().map(|n| n.memory).sum::<u64>());
        let mut text = format!("{} nodes: {} up", self.nodes.len(), of(Liveness::Up));
        for (state, word) in [(Liveness::Suspect, "suspect"), (Liveness::Down, "down")] {
            if of(state) > 0 {
                text += &format!(", {} {word}", of(state));
            }
        }
        let giga = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let guests: u32 = up().map(|n| n.guests).sum();
        let held = up().map(|n| n.held).sum::<f64>();
        let gangs = if held > 0.0 { format!(" ({held:.1} held by gangs)") } else { String::new() };
        text + &format!(
            "; {runnable:.1} want to run on {cpus:.1} CPUs{gangs}; {:.1}G of {:.1}G free; {guests} guests",
            giga(free),
            giga(memory)
        )
    }
}
