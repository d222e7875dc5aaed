//! Programs that compute, and nodes that move them by themselves: one of them says that it has hardly any CPU.

use super::{Lab, ok, until};
use pando_node::views::Process;
use std::path::PathBuf;
use std::process::{Child, Stdio};

const BALANCE: &str = "[balance]\nevery_ms = 200\nresidency_ms = 500\nno_return_ms = 1000\n";

fn settings(cpus: f64) -> String {
    format!("{BALANCE}[load]\ncpus = {cpus:?}\nspeed = 1.0\n")
}

const PLENTY: f64 = 512.0;

/// n1, n2, ...: all have plenty of CPU, and more lines of configuration each; the first of these may be keys of `[load]`.
pub fn rich(nodes: &[&str]) -> Lab {
    let all: Vec<(f64, &str)> = nodes.iter().map(|more| (PLENTY, *more)).collect();
    with_cpus(&all)
}

/// n1 has next to no CPU; n2, n3, ... are like those of [`rich`].
pub fn poor_and_rich(others: &[&str]) -> Lab {
    let mut all = vec![(0.05, "")];
    all.extend(others.iter().map(|more| (PLENTY, *more)));
    with_cpus(&all)
}

/// n1, n2, ...: how much CPU each has, and more lines of configuration.
pub fn with_cpus(nodes: &[(f64, &str)]) -> Lab {
    let lines = |(cpus, more): (f64, &str)| format!("{}{more}", settings(cpus));
    let mut lab = Lab::new(1, &lines(nodes[0]));
    for (i, &node) in nodes.iter().enumerate().skip(1) {
        let name = format!("n{}", i + 1);
        let mut daemon = lab.prepare(&name, &lines(node));
        let token = lab.token();
        ok(&mut daemon.join(&token, &name));
        daemon.start();
        lab.nodes.push(daemon);
    }
    lab.settled();
    lab
}

/// Programs that compute until the file `stop` is there, which is so at the end, however the test ends.
pub struct Programs {
    stop: PathBuf,
    children: Vec<Child>,
}

impl Programs {
    pub fn new(lab: &Lab) -> Self {
        let stop = lab.dir.with_extension("stop");
        Programs { stop, children: Vec::new() }
    }

    /// `words`: of `pando` at n1, up to the program.
    pub fn start(&mut self, lab: &Lab, words: &[&str]) {
        self.start_at(lab, 0, words);
    }

    /// The same at another node.
    pub fn start_at(&mut self, lab: &Lab, node: usize, words: &[&str]) {
        let script = "while [ ! -e $stop ]; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done";
        let mut command = lab.nodes[node].cli(words);
        command.args(["/bin/sh", "-c", script]).env("stop", &self.stop).stdin(Stdio::null());
        self.children.push(command.spawn().unwrap());
    }

    pub fn end_well(mut self) {
        std::fs::write(&self.stop, "").unwrap();
        for mut child in std::mem::take(&mut self.children) {
            assert!(child.wait().unwrap().success());
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.stop, "");
        for child in &mut self.children {
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.stop);
    }
}

pub fn processes(lab: &Lab) -> Vec<Process> {
    lab.nodes[0].client().get("/v1/processes").unwrap()
}

/// The only process with so many moves, when it is there.
pub fn at(lab: &Lab, place: &str, moves: u32) -> Process {
    until(&format!("one at {place}"), || {
        processes(lab).into_iter().find(|p| p.place == place && p.moves == moves && p.phase != "freeze")
    })
}
