//! What is written down about a process that hangs.

use crate::api;
use crate::processes;
use crate::testbed::NodeInfo;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

/// Lines of a log that are shown.
const LOG_LINES: usize = 40;

/// What `/proc` says of one process.
pub fn of_process(pid: u32) -> String {
    let mut out = format!("process {pid}: ");
    let Some(process) = processes::read(pid) else {
        return out + "gone\n";
    };
    let _ = writeln!(out, "{} (state {}, parent {})", process.args.join(" "), process.state, process.parent);
    for file in ["wchan", "syscall", "stack"] {
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/{file}")) {
            let _ = writeln!(out, "  {file}: {}", text.trim().replace('\n', "\n    "));
        }
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    for line in status.lines() {
        if ["TracerPid", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigCgt", "Seccomp:"].iter().any(|w| line.starts_with(w))
        {
            let _ = writeln!(out, "  {}", line.replace('\t', " "));
        }
    }
    out
}

/// The process, the engine's helpers and their guests, and what the nodes say.
pub fn of_testbed(pid: u32, nodes: &[NodeInfo]) -> String {
    let mut out = of_process(pid);
    let all = processes::all();
    let members = helpers(nodes).into_iter().flat_map(|h| processes::family(&all, h.pid));
    for member in members.collect::<BTreeSet<u32>>() {
        out += &of_process(member);
    }
    for node in nodes {
        let said = match api::processes(&node.socket) {
            Ok(body) => about(&body, pid),
            Err(why) => why,
        };
        let _ = writeln!(out, "{} says: {said}", node.name);
        for log in [node.log.clone(), node.log.with_file_name("state").join("helpers.log")] {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(LOG_LINES);
            if !lines.is_empty() {
                let _ = writeln!(out, "{} {}:", node.name, log.file_name().unwrap_or_default().to_string_lossy());
            }
            for line in &lines[from..] {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    out
}

/// The engine's helper processes of a testbed.
pub fn helpers(nodes: &[NodeInfo]) -> Vec<processes::Process> {
    let dir = nodes.first().and_then(|n| n.log.ancestors().nth(2));
    let dir = dir.map(|d| d.display().to_string()).unwrap_or_default();
    let is_helper = |p: &processes::Process| p.args.iter().any(|a| a == "__deputy" || a == "__guest");
    processes::with("PANDO_TESTBED_DIR", &dir).into_iter().filter(is_helper).collect()
}

/// The entries about one process.
fn about(body: &serde_json::Value, pid: u32) -> String {
    let list = body.as_array().cloned().unwrap_or_default();
    let ours: Vec<String> = list.iter().filter(|p| p["pid"] == pid).map(|p| p.to_string()).collect();
    if ours.is_empty() { format!("nothing of it ({} processes known)", list.len()) } else { ours.join("\n  ") }
}
