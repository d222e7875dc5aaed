//! Questions to the daemon and their answers as tables: `nodes`, `ps`, `move`, `explain`.

use crate::batch::plain;
use crate::cluster::Done;
use crate::tree;
use crate::waiting;
use pando_node::client::{Client, ClientError};
use pando_node::sys;
use pando_node::views::{Children, Wish};
use pando_node::views::{
    Decision, Decisions, DrainRequest, Explanation, Info, Job, Liveness, MoveRequest, Node, Process,
};
use pando_wire::NodeName;
use serde::Serialize;
use std::time::UNIX_EPOCH;

fn said(e: ClientError) -> String {
    e.to_string()
}

pub fn print_json(value: &impl Serialize) -> Done {
    println!("{}", serde_json::to_string_pretty(value).map_err(|e| e.to_string())?);
    Ok(())
}

/// Where a line has room for less than this of the last column, the others give way.
const LEAST_OF_LAST: usize = 20;
/// Then words are cut to this, as ps(1) cuts them.
const LONGEST_WORD: usize = 10;

fn cut(word: &mut String) {
    if word.chars().count() > LONGEST_WORD {
        *word = word.chars().take(LONGEST_WORD - 1).chain(['+']).collect();
    }
}

/// As [`print_table`], with lines no longer than the terminal is wide.
fn print_cut(header: &[&str], rows: &mut [Vec<String>]) {
    let Some(room) = sys::terminal_width() else { return print_table(header, rows, usize::MAX) };
    let before_last = |row: &Vec<String>| row[..row.len() - 1].iter().map(|c| c.chars().count() + 2).sum::<usize>();
    if rows.iter().map(before_last).max().unwrap_or(0) + LEAST_OF_LAST > room {
        rows.iter_mut().flat_map(|r| r.split_last_mut()).for_each(|(_, others)| others.iter_mut().for_each(cut));
    }
    print_table(header, rows, room);
}

/// Columns as wide as their widest cell; the last one is not padded. Numbers to the right.
pub fn print_table(header: &[&str], rows: &[Vec<String>], room: usize) {
    let clean = |row: &Vec<String>| row.iter().map(|cell| plain(cell)).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
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
        println!("{}", out.trim_end().chars().take(room).collect::<String>());
    };
    line(&header.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
    rows.iter().for_each(|r| line(r));
}

/// Three digits, roughly.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        megabytes @ ..1024 => format!("{megabytes}M"),
        _ => format!("{:.1}G", bytes as f64 / f64::from(1 << 30)),
    }
}

/// `pando nodes`.
pub fn nodes(client: &Client, json: bool) -> Done {
    let nodes: Vec<Node> = client.get("/v1/nodes").map_err(said)?;
    if json {
        return print_json(&nodes);
    }
    let mut rows: Vec<Vec<String>> = nodes.iter().map(node_row).collect();
    let mut header = vec!["NODE", "STATE", "HEARD", "CPUS", "LOAD", "GANGS", "FREE", "MEMORY", "GUESTS", "ADDRESS"];
    let is_drained = |n: &Node| n.state == Liveness::Up && n.standing == "drained";
    if nodes.iter().any(is_drained) {
        let reasons = crate::batch::drains(client.clone());
        header.push("REASON");
        for (node, row) in nodes.iter().zip(&mut rows) {
            row.push(reasons.get(&node.name).filter(|_| is_drained(node)).map_or(String::new(), |d| d.reason.clone()));
        }
    }
    print_table(&header, &rows, usize::MAX);
    // Of others nobody knows here; ask there.
    let info: Info = client.get("/v1/info").map_err(said)?;
    info.lacks.iter().for_each(|lack| eprintln!("pando: at {}: {lack}", info.name));
    Ok(())
}

/// Parallel jobs.
pub fn jobs(client: &Client, json: bool) -> Done {
    let jobs: Vec<Job> = client.get("/v1/jobs").map_err(said)?;
    if json {
        return print_json(&jobs);
    }
    let row = |j: &Job| {
        let since = UNIX_EPOCH.elapsed().map_or(0, |d| d.as_millis() as u64).saturating_sub(j.since_ms);
        let time = format!("{:.1}s", since as f64 / 1000.0);
        let nodes = match j.nodes.len() {
            0..=4 => j.nodes.join(","),
            more => format!("{},... ({more})", j.nodes[..3].join(",")),
        };
        vec![
            j.job.to_string(),
            j.name.clone(),
            j.head.clone(),
            j.user.clone(),
            j.ranks.to_string(),
            time,
            nodes,
            j.command.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    print_table(&["JOB", "NAME", "FROM", "USER", "RANKS", "TIME", "NODES", "COMMAND"], &rows, usize::MAX);
    Ok(())
}

fn node_row(n: &Node) -> Vec<String> {
    let heard = match (n.here, n.heard_ms) {
        (true, _) => "here".into(),
        (_, Some(ms)) => format!("{:.1}s", ms as f64 / 1000.0),
        (_, None) => "-".into(),
    };
    let (cpus, load, guests) = (n.cpus.to_string(), format!("{:.1}", n.runnable), n.guests.to_string());
    // CPUs that they hold.
    let gangs = if n.held == 0.0 { "-".to_owned() } else { n.held.to_string() };
    let (free, memory) = (size(n.free), size(n.memory));
    let state = match (n.state, n.standing.as_str()) {
        // What its owner or administrator said of it matters only where it lives.
        (Liveness::Up, standing @ ("drained" | "full")) => standing.into(),
        (Liveness::Up, "owner") => "its owner's".into(),
        (state, _) => state.as_str().to_owned(),
    };
    // What one that is gone had, or one that has not said anything yet has, is nothing to go by.
    let figures = match n.state == Liveness::Down || n.memory == 0 {
        true => std::array::from_fn(|_| "-".to_owned()),
        false => [cpus, load, gangs, free, memory, guests],
    };
    [vec![n.name.clone(), state, heard], figures.to_vec(), vec![n.addr.clone()]].concat()
}

/// `pando ps`.
pub fn ps(client: &Client, all: bool, tree: bool, json: bool) -> Done {
    let processes: Vec<Process> =
        client.get(if tree { "/v1/processes?children=true" } else { "/v1/processes" }).map_err(said)?;
    if json {
        return print_json(&processes);
    }
    let shown: Vec<&Process> = processes.iter().filter(|p| all || tree || p.is_at_work()).collect();
    let branches = if tree { tree::grow(&shown, all) } else { shown.into_iter().map(|p| (String::new(), p)).collect() };
    let row = |(branch, p): &(String, &Process)| {
        let mut row = process_row(p);
        row.last_mut().into_iter().for_each(|command| command.insert_str(0, branch));
        row
    };
    let mut rows: Vec<Vec<String>> = branches.iter().map(row).collect();
    print_cut(&["PID", "USER", "HOME", "WHERE", "MOVES", "PHASE", "CPU AWAY", "COMMAND"], &mut rows);
    Ok(())
}

fn process_row(p: &Process) -> Vec<String> {
    let cpu = format!("{:.1}s", p.cpu_abroad_ms as f64 / 1000.0);
    let (user, home, place) = (p.user.clone(), p.home.clone(), p.place.clone());
    // Only its home counts them.
    let moves = if p.role == "guest" { "-".into() } else { p.moves.to_string() };
    // At rest it is where it is; what is on its way has that to say first.
    let at_rest = p.stopped && ["away", "home"].contains(&p.phase.as_str());
    let phase = if at_rest { "stopped".into() } else { p.phase.clone() };
    vec![p.pid.to_string(), user, home, place, moves, phase, cpu, p.command.clone()]
}

/// `pando move`.
pub fn mv(client: &Client, pid: u32, dest: String, family: bool) -> Done {
    let request = MoveRequest { pid, dest, reason: None, family };
    let answer = waiting::move_it(client, &request).map_err(said)?;
    match answer.record {
        None => println!("process {pid} is at {} already", answer.place),
        Some(r) => {
            let (freeze, total) = (r.freeze_us as f64 / 1000.0, r.total_us as f64 / 1000.0);
            println!("process {pid}: {} -> {} (frozen {freeze:.1} ms, {total:.1} ms in all)", r.from, r.to);
        }
    }
    Ok(())
}

fn counted(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// What it means for a process to be at a node that is not up.
fn troubled(node: &Node) -> String {
    let heard = node.heard_ms.map_or("not heard of".into(), |ms| format!("last heard {:.1} s ago", ms as f64 / 1000.0));
    format!(
        "node {} is {} ({heard}): the process waits; if its line stays silent for lost_after_ms ([limits]) it is ended",
        node.name,
        node.state.as_str()
    )
}

/// `pando explain`.
pub fn explain(client: &Client, pid: u32, json: bool) -> Done {
    let e: Explanation = client.get(&format!("/v1/explain/{pid}")).map_err(said)?;
    if json {
        return print_json(&e);
    }
    let p = &e.process;
    println!("process {pid}: {}", p.command);
    let moves = counted(p.moves, "move");
    let stopped = if p.stopped { ", stopped" } else { "" };
    println!("  user {}, home {}, now at {} ({}{stopped}), {moves}", p.user, p.home, p.place, p.phase);
    if let Some(node) = e.nodes.iter().find(|n| n.name == p.place && n.state != Liveness::Up) {
        println!("  {}", troubled(node));
    }
    match &e.inspection {
        Err(why) => println!("  can it move? not known: {why}"),
        Ok(i) if i.obstacles.is_empty() => {
            println!("  can it move? yes ({} MB resident, {})", i.resident >> 20, counted(i.threads, "thread"));
        }
        Ok(i) => {
            println!("  can it move? no:");
            for o in &i.obstacles {
                println!("    {}; {}", o.why, o.advice);
            }
        }
    }
    let wishes = wishes(&e.wish);
    if !wishes.is_empty() {
        println!("  its user said: {}", wishes.join(" "));
    }
    let stays = e.inspection.as_ref().is_ok_and(|i| !i.obstacles.is_empty());
    match &e.best {
        _ if stays => {}
        Ok((node, why)) => println!("  best other node: {node} ({why})"),
        Err(why) => println!("  best other node: none: {why}"),
    }
    if let Some(follows) = &e.follows {
        println!("  it {follows}");
    }
    if let Some(balance) = &e.balance {
        println!("  balance: {balance}");
    }
    for r in &p.records {
        let freeze = r.freeze_us as f64 / 1000.0;
        println!("  moved {} -> {} ({}), frozen {freeze:.1} ms, {} KB", r.from, r.to, r.reason, r.frozen_bytes >> 10);
    }
    Ok(())
}

/// The options of `pando run` that say the same.
fn wishes(wish: &Wish) -> Vec<String> {
    let children = |c: &Children| match c {
        Children::After(0) => "--children now".to_owned(),
        Children::After(ms) => format!("--children {ms}"),
        Children::Never => "--children never".to_owned(),
    };
    let said = [
        wish.home_only.then(|| "--home-only".to_owned()),
        wish.no_move.then(|| "--no-move".to_owned()),
        wish.nodes.as_ref().map(|all| format!("--nodes {}", all.join(","))),
        wish.max_moves.map(|n| format!("--max-moves {n}")),
        wish.memory.map(|bytes| format!("--memory {}", size(bytes))),
        wish.apart.as_ref().map(|word| format!("--apart {word}")),
        wish.together.as_ref().map(|word| format!("--together {word}")),
        wish.children.as_ref().map(children),
    ];
    said.into_iter().flatten().collect()
}

/// `pando explain --node`.
pub fn decisions(client: &Client, node: Option<&str>, json: bool) -> Done {
    let name = node.map(NodeName::parse).transpose().map_err(|e| e.to_string())?;
    let of = name.map_or_else(String::new, |name| format!("?node={name}"));
    let all: Decisions = client.get(&format!("/v1/decisions{of}")).map_err(said)?;
    if json {
        return print_json(&all);
    }
    let lines = |list: &[Decision]| {
        for d in list {
            println!("  {:>5.1} s ago  process {} of {} {}", d.age_ms as f64 / 1000.0, d.pid, d.home, d.text);
        }
    };
    all.gangs.iter().for_each(|held| println!("node {} has {held}: guests go where CPUs are free", all.node));
    println!("node {} moved by itself, or tried to:", all.node);
    lines(&all.moves);
    println!("and leaves where they are:");
    lines(&all.stays);
    Ok(())
}

/// `pando drain`.
pub fn drain(client: &Client, node: Option<String>, undo: bool, reason: String) -> Done {
    let wanted = DrainRequest { node, on: !undo, reason };
    // A daemon does not read one that is much too long.
    wanted.check()?;
    let done: DrainRequest = client.post("/v1/drain", &wanted).map_err(said)?;
    let node = done.node.unwrap_or_default();
    match done.on {
        true => println!(
            "node {node} is being drained: `pando nodes` shows how many guests are left, `pando explain --node {node}` what stays and why, `pando drain --undo {node}` opens it again"
        ),
        false => println!("node {node} takes guests again"),
    }
    Ok(())
}
