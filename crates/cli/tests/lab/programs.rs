//! Programs that compute, and nodes that move them by themselves: one of them says that it has hardly any CPU.

use super::{Lab, ok, until};
use pando_node::views::Process;
use std::path::PathBuf;
use std::process::{Child, Stdio};

const BALANCE: &str = "[balance]\nevery_ms = 200\nresidency_ms = 500\nno_return_ms = 1000\n";

fn settings(cpus: f64) -> String {
    format!("{BALANCE}[load]\ncpus = {cpus:?}\nspeed = 1.0\n")
}

/// n1, n2, ...: all have plenty of CPU, and more lines of configuration each; the first of these may be keys of `[load]`.
pub fn rich(nodes: &[&str]) -> Lab {
    beside(Lab::new(1, &format!("{}{}", settings(512.0), nodes[0])), &nodes[1..])
}

/// n1 has next to no CPU; n2, n3, ... are like those of [`rich`].
pub fn poor_and_rich(others: &[&str]) -> Lab {
    beside(Lab::new(1, &settings(0.05)), others)
}

fn beside(mut lab: Lab, others: &[&str]) -> Lab {
    for (i, more) in others.iter().enumerate() {
        let name = format!("n{}", i + 2);
        let mut node = lab.prepare(&name, &format!("{}{more}", settings(512.0)));
        let token = lab.token();
        ok(&mut node.join(&token, &name));
        node.start();
        lab.nodes.push(node);
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
        let script = "while [ ! -e $stop ]; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done";
        let mut command = lab.nodes[0].cli(words);
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
