//! The command line.

use crate::balance::{COLUMNS, Summary, simulate};
use crate::check;
use crate::experiment::{Scale, Trial};
use crate::table::Table;
use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;

/// Pando's membership, load windows and balancing for thousands of nodes in one process, from a seed.
///
/// These are the daemon's own cores; simulated are the network, the machines, the processes and the clocks. One seed gives one history.
#[derive(Parser)]
#[command(name = "sim", version)]
struct Sim {
    #[command(subcommand)]
    what: What,
    /// JSON instead of a table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Random schedules of faults over random work, with the invariants checked at every step.
    ///
    /// Prints each seed that fails, why, and the command that replays it.
    Check(Check),
    /// The papers' experiments: without migration, with it, and the best possible.
    Balance(Balance),
    /// How old what nodes know of each other is, by the size of the cluster, and what theory says; messages and bytes.
    Age(Age),
    /// Many processes begin on one node: how soon they are spread.
    Burst(Burst),
    /// A parallel job begins and ends on many nodes; then again and again with a node that dies at some moment.
    Launch(Launch),
    /// Months of batch jobs through the daemon's own queue: FCFS, EASY and conservative backfill on the same work.
    Jobs(crate::jobs::Jobs),
    /// The node that keeps the queue of batch jobs dies again and again, at every moment; another one goes on with its records.
    Failover(crate::failover::Failover),
    /// Two copies of a program share CPUs, as gangs and without; or jobs by chance through the gang matrix (--work).
    Gang(crate::gang::Gangs),
}

#[derive(Args)]
struct Launch {
    /// Cluster sizes.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256,1024,4096,16384")]
    nodes: Vec<u32>,
    /// Most children of a node.
    #[arg(long, default_value_t = 8)]
    arity: u8,
    /// So many jobs of each size in which a node dies.
    #[arg(long, default_value_t = 20)]
    deaths: u64,
    /// Microseconds until a launcher is ready.
    #[arg(long, default_value_t = crate::launch::Costs::default().launcher_us)]
    launcher_us: u64,
    /// Microseconds to start a rank and to take in its end.
    #[arg(long, default_value_t = crate::launch::Costs::default().rank_us)]
    rank_us: u64,
    /// Microseconds to make a connection, at each end.
    #[arg(long, default_value_t = crate::launch::Costs::default().connect_us)]
    connect_us: u64,
    /// Megabytes a second of each node's line.
    #[arg(long, default_value_t = crate::launch::Costs::default().bandwidth >> 20)]
    bandwidth_mb: u64,
    /// Megabytes of a program that goes along.
    #[arg(long, default_value_t = 0)]
    program_mb: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Age {
    /// Cluster sizes. Membership runs up to 1,024 nodes; in larger clusters each node knows 64 others by chance, since the lists of all
    /// would be as large as the cluster squared.
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096,16384")]
    nodes: Vec<usize>,
    /// Watched for so long, after 40 s.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Burst {
    /// Cluster sizes.
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096,16384")]
    nodes: Vec<usize>,
    /// So many processes.
    #[arg(long, default_value_t = 1024)]
    processes: usize,
    /// So large, megabytes.
    #[arg(long, default_value_t = 4)]
    mb: u64,
    /// Watched for so long.
    #[arg(long, default_value_t = 60)]
    intervals: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// As with balance.
    #[arg(long, value_name = "KEY=NUMBER")]
    set: Vec<String>,
}

#[derive(Args)]
struct Balance {
    /// 1 identical processes and other users; 2 random execution times; 3 memory; 4 unequal speeds, joins, leaves and a drain.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4")]
    experiment: Vec<u32>,
    /// Cluster sizes.
    #[arg(long, value_delimiter = ',', default_value = "4,16,64")]
    nodes: Vec<usize>,
    /// Each so often, with other random numbers; the table has means.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Everything takes so many times as long (but for the balancer): 0.1 has processes of half a minute.
    #[arg(long)]
    time: Option<f64>,
    /// Nodes tell their loads each so many milliseconds.
    #[arg(long)]
    tell_ms: Option<u64>,
    /// A setting of the balancer other than its default, as KEY=NUMBER; may be repeated.
    #[arg(long, value_name = "KEY=NUMBER")]
    set: Vec<String>,
}

#[derive(Args)]
struct Check {
    /// So many schedules.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Only this one (what a failure prints).
    #[arg(long)]
    seed: Option<u64>,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// So many nodes; otherwise 4 to 24 by chance.
    #[arg(long)]
    nodes: Option<usize>,
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let sim = Sim::parse();
    match sim.what {
        What::Check(how) => check(&how, sim.json),
        What::Balance(how) => with(&how.set, |settings| balance(&how, settings, sim.json)),
        What::Age(how) => age(&how, sim.json),
        What::Burst(how) => with(&how.set, |settings| burst(&how, settings, sim.json)),
        What::Launch(how) => launch(&how, sim.json),
        What::Jobs(how) => crate::jobs::main(&how, sim.json),
        What::Failover(how) => crate::failover::main(&how, sim.json),
        What::Gang(how) => crate::gang::main(&how, sim.json),
    }
}

fn check(how: &Check, json: bool) -> ExitCode {
    let seeds = match how.seed {
        Some(seed) => seed..seed + 1,
        None => how.from..how.from + how.seeds,
    };
    let mut table = Table::new(&[
        "seed",
        "nodes",
        "faults",
        "processes",
        "lost",
        "moves",
        "refused",
        "failed",
        "events",
        "members ms",
        "bound ms",
        "oldest ms",
    ]);
    let mut failed = 0;
    for seed in seeds {
        let went = check::check(seed, how.nodes);
        table.row(&[
            &seed,
            &went.nodes,
            &went.faults,
            &went.processes,
            &went.lost,
            &went.moves,
            &went.refused,
            &went.failed,
            &went.steps,
            &went.members_ms,
            &went.bound_ms,
            &went.oldest_ms,
        ]);
        if let Some(wrong) = went.wrong {
            failed += 1;
            let nodes = how.nodes.map_or(String::new(), |n| format!(" --nodes {n}"));
            eprintln!("seed {seed} FAILED {wrong}\n  again: cargo run --release -p sim -- check --seed {seed}{nodes}");
            eprintln!("  what was done: {}", went.schedule.join("; "));
        }
    }
    table.print(json);
    if !json {
        println!("{} schedules, {failed} failed", table.len());
    }
    ExitCode::from(u8::from(failed > 0))
}

fn with(changes: &[String], what: impl FnOnce(&pando_balance::Settings) -> ExitCode) -> ExitCode {
    settings(changes).map_or_else(
        |e| {
            eprintln!("sim: {e}");
            ExitCode::from(2)
        },
        |settings| what(&settings),
    )
}

/// The defaults with changes.
fn settings(changes: &[String]) -> Result<pando_balance::Settings, String> {
    let mut all = serde_json::to_value(pando_balance::Settings::default()).map_err(|e| e.to_string())?;
    for change in changes {
        let (key, number) = change.split_once('=').ok_or(format!("--set {change}: not KEY=NUMBER"))?;
        let number: u64 = number.parse().map_err(|_| format!("--set {change}: {number} is not a number"))?;
        all[key] = number.into();
    }
    serde_json::from_value(all).map_err(|e| format!("--set: {e}"))
}

fn balance(how: &Balance, settings: &pando_balance::Settings, json: bool) -> ExitCode {
    let mut table = Table::new(&[&["experiment", "nodes"][..], &COLUMNS].concat());
    let mut failed = false;
    for &experiment in &how.experiment {
        for &nodes in &how.nodes {
            let mut sum = Summary::default();
            for seed in how.from..how.from + how.seeds {
                let trial = Trial::new(experiment, nodes, seed);
                let trial = how.time.map_or_else(|| trial.clone(), |time| trial.scaled(Scale { time, ..Scale::SAME }));
                let played = simulate(&trial, seed, settings, how.tell_ms);
                sum.add(&trial, &played);
                if let Some(wrong) = played.moved.wrong.or(played.unmoved.wrong) {
                    failed = true;
                    eprintln!("experiment {experiment}, {nodes} nodes, seed {seed} FAILED {wrong}");
                }
            }
            let cells = sum.cells();
            let row: Vec<&dyn std::fmt::Display> = cells.iter().map(|c| c as &dyn std::fmt::Display).collect();
            table.row(&[&[&experiment as &dyn std::fmt::Display, &nodes][..], &row].concat());
        }
    }
    table.print(json);
    ExitCode::from(u8::from(failed))
}

fn age(how: &Age, json: bool) -> ExitCode {
    let mut table = Table::new(&[
        "nodes",
        "known",
        "mean",
        "half",
        "nine of ten",
        "oldest",
        "age of the first ... nodes: measured (theory)",
        "messages/s",
        "bytes/s",
        "membership messages/s",
        "bytes/s too",
    ]);
    for &nodes in &how.nodes {
        let full = nodes <= crate::world::Settings::FULL;
        let ages = crate::age::age(nodes, how.seed, how.seconds, full);
        let mark = |(k, measured, model): &(usize, f64, f64)| format!("{k}: {measured:.2} ({model:.2})");
        let marks = ages.marks.iter().map(mark).collect::<Vec<_>>().join(", ");
        let one = |x: f64| format!("{x:.1}");
        let two = |x: f64| format!("{x:.2}");
        let swim = if full { (one(ages.swim.0), one(ages.swim.1)) } else { ("-".into(), "-".into()) };
        table.row(&[
            &nodes,
            &one(ages.known),
            &two(ages.mean),
            &two(ages.half),
            &two(ages.most),
            &two(ages.oldest),
            &marks,
            &two(ages.messages),
            &one(ages.bytes),
            &swim.0,
            &swim.1,
        ]);
    }
    table.print(json);
    ExitCode::SUCCESS
}

fn launch(how: &Launch, json: bool) -> ExitCode {
    let columns = [
        "nodes",
        "all begin ms",
        "prompt ms",
        "to the head",
        "to the busiest",
        "deaths",
        "told within ms",
        "all gone within ms",
    ];
    let mut table = Table::new(&columns);
    let defaults = crate::launch::Costs::default();
    let (launcher_us, rank_us, connect_us) = (how.launcher_us, how.rank_us, how.connect_us);
    let bandwidth = how.bandwidth_mb << 20;
    let costs = crate::launch::Costs { launcher_us, rank_us, connect_us, bandwidth, ..defaults };
    let mut failed = false;
    for &nodes in &how.nodes {
        let mut fail = |seed: u64, wrong: &str| {
            failed = true;
            eprintln!("{nodes} nodes, seed {seed} FAILED {wrong}");
        };
        let job = crate::launch::Job { nodes, arity: how.arity, program: how.program_mb << 20 };
        let went = crate::launch::launch(job, costs, None, how.seed);
        went.wrong.iter().for_each(|wrong| fail(how.seed, wrong));
        let (mut told, mut gone) = (0.0f64, 0.0f64);
        let deaths = if nodes > 1 { how.deaths } else { 0 };
        for seed in how.seed..how.seed + deaths {
            // Any node, any moment of it.
            let place = 1 + (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as u32 % (nodes - 1);
            let at = seed * 7919 % (went.over as u64 + 1);
            let died = crate::launch::launch(job, costs, Some((place, at)), seed);
            died.wrong.iter().for_each(|wrong| fail(seed, wrong));
            let (t, g) = died.after.unwrap_or_default();
            (told, gone) = (told.max(t), gone.max(g));
        }
        let ms = |ms: f64| format!("{ms:.1}");
        let (head, busiest) = went.messages;
        table.row(&[&nodes, &ms(went.begun), &ms(went.over), &head, &busiest, &deaths, &ms(told), &ms(gone)]);
    }
    table.print(json);
    ExitCode::from(u8::from(failed))
}

fn burst(how: &Burst, settings: &pando_balance::Settings, json: bool) -> ExitCode {
    let mut table = Table::new(&[
        "nodes",
        "half after",
        "a tenth after",
        "even after",
        "nodes used",
        "moves each",
        "most moves",
        "refused",
        "loads/s",
        "bytes/s",
        "busiest node's messages/s",
    ]);
    let mut failed = false;
    for &nodes in &how.nodes {
        let balance = settings.clone();
        let all = crate::world::Settings { balance, ..crate::world::Settings::for_nodes(how.seed, nodes) };
        let went = crate::burst::burst(nodes, how.processes, how.mb << 20, how.intervals, all);
        let after = |t: Option<u64>| t.map_or("-".to_owned(), |t| t.to_string());
        table.row(&[
            &nodes,
            &after(went.half),
            &after(went.tenth),
            &after(went.even),
            &went.used,
            &format!("{:.2}", went.moves),
            &went.most,
            &went.refused,
            &format!("{:.2}", went.loads.0),
            &format!("{:.0}", went.loads.1),
            &format!("{:.0}", went.busiest),
        ]);
        if let Some(wrong) = went.wrong {
            failed = true;
            eprintln!("{nodes} nodes, seed {} FAILED {wrong}", how.seed);
        }
    }
    table.print(json);
    ExitCode::from(u8::from(failed))
}
