//! Questions to the daemon and their answers as tables: `nodes`, `ps`, `move`, `explain`.

use crate::cluster::Done;
use pando_node::client::{Client, ClientError};
use pando_node::views::{Explanation, MoveAnswer, MoveRequest, Node, Process};
use serde::Serialize;

fn said(e: ClientError) -> String {
    e.to_string()
}

fn print_json(value: &impl Serialize) -> Done {
    println!("{}", serde_json::to_string_pretty(value).map_err(|e| e.to_string())?);
    Ok(())
}

/// Columns as wide as their widest cell; the last one is not padded. Numbers to the right.
fn print_table(header: &[&str], rows: &[Vec<String>]) {
    let width = |i: usize| {
        let cells = rows.iter().map(|r| r[i].chars().count());
        cells.chain([header[i].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let number = |i: usize| rows.iter().all(|r| r[i].starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    let line = |cells: &[String]| {
        let mut out = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[i] - cell.chars().count());
            match (i + 1 == cells.len(), number(i) && !rows.is_empty()) {
                (true, _) => out.push_str(cell),
                (_, true) => out.push_str(&format!("{pad}{cell}  ")),
                (_, false) => out.push_str(&format!("{cell}{pad}  ")),
            }
        }
        println!("{}", out.trim_end());
    };
    line(&header.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
    rows.iter().for_each(|r| line(r));
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1}G", bytes as f64 / f64::from(1 << 30))
}

/// `pando nodes`.
pub fn nodes(client: &Client, json: bool) -> Done {
    let nodes: Vec<Node> = client.get("/v1/nodes").map_err(said)?;
    if json {
        return print_json(&nodes);
    }
    let rows: Vec<Vec<String>> = nodes.iter().map(node_row).collect();
    print_table(&["NODE", "STATE", "HEARD", "CPUS", "LOAD", "FREE", "MEMORY", "GUESTS", "ADDRESS"], &rows);
    Ok(())
}

fn node_row(n: &Node) -> Vec<String> {
    let heard = match (n.here, n.heard_ms) {
        (true, _) => "here".into(),
        (_, Some(ms)) => format!("{:.1}s", ms as f64 / 1000.0),
        (_, None) => "-".into(),
    };
    let (cpus, load, guests) = (n.cpus.to_string(), format!("{:.1}", n.runnable), n.guests.to_string());
    let (free, memory) = (gigabytes(n.free), gigabytes(n.memory));
    vec![n.name.clone(), n.state.as_str().into(), heard, cpus, load, free, memory, guests, n.addr.clone()]
}

/// `pando ps`.
pub fn ps(client: &Client, json: bool) -> Done {
    let processes: Vec<Process> = client.get("/v1/processes").map_err(said)?;
    if json {
        return print_json(&processes);
    }
    let rows: Vec<Vec<String>> = processes.iter().map(process_row).collect();
    print_table(&["PID", "USER", "HOME", "WHERE", "MOVES", "PHASE", "CPU ABROAD", "COMMAND"], &rows);
    Ok(())
}

fn process_row(p: &Process) -> Vec<String> {
    let cpu = format!("{:.1}s", p.cpu_abroad_ms as f64 / 1000.0);
    let (user, home, place) = (p.user.clone(), p.home.clone(), p.place.clone());
    vec![p.pid.to_string(), user, home, place, p.moves.to_string(), p.phase.clone(), cpu, p.command.clone()]
}

/// `pando move`.
pub fn mv(client: &Client, pid: u32, dest: String, family: bool) -> Done {
    let request = MoveRequest { pid, dest, reason: None, family };
    let answer: MoveAnswer = client.post("/v1/move", &request).map_err(said)?;
    match answer.record {
        None => println!("process {pid} is at {} already", answer.place),
        Some(r) => {
            let (freeze, total) = (r.freeze_us as f64 / 1000.0, r.total_us as f64 / 1000.0);
            println!("process {pid}: {} -> {} (frozen {freeze:.1} ms, {total:.1} ms in all)", r.from, r.to);
        }
    }
    Ok(())
}

/// `pando explain`.
pub fn explain(client: &Client, pid: u32, json: bool) -> Done {
    let e: Explanation = client.get(&format!("/v1/explain/{pid}")).map_err(said)?;
    if json {
        return print_json(&e);
    }
    let p = &e.process;
    println!("process {pid}: {}", p.command);
    println!("  user {}, home {}, now at {} ({}), {} moves", p.user, p.home, p.place, p.phase, p.moves);
    match &e.inspection {
        Err(why) => println!("  can it move? not known: {why}"),
        Ok(i) if i.obstacles.is_empty() => {
            println!("  can it move? yes ({} MB resident, {} threads)", i.resident >> 20, i.threads);
        }
        Ok(i) => {
            println!("  can it move? no:");
            for o in &i.obstacles {
                println!("    {}; {}", o.why, o.advice);
            }
        }
    }
    match &e.best {
        Ok((node, why)) => println!("  best node: {node} ({why})"),
        Err(why) => println!("  best node: none: {why}"),
    }
    if let Some(follows) = &e.follows {
        println!("  it {follows}");
    }
    for r in &p.records {
        let freeze = r.freeze_us as f64 / 1000.0;
        println!("  moved {} -> {} ({}), frozen {freeze:.1} ms, {} KB", r.from, r.to, r.reason, r.frozen_bytes >> 10);
    }
    Ok(())
}
