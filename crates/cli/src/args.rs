//! The words of the command line.

mod batch;
mod parallel;

pub use batch::{
    AllocOptions, BatchVerb, By, CancelOptions, HistoryOptions, LogOptions, QueueOptions, ReserveOptions, SinfoOptions,
    SubmitOptions, UsageOptions, all_jobs, all_steps,
};
use clap::{Args as ClapArgs, Parser, Subcommand};
use pando_node::views::Children;
pub use parallel::{Bcast, MapOptions, ParallelOptions, names};
use std::ffi::OsString;
use std::path::PathBuf;

/// Make a set of Linux machines behave like one computer.
///
/// PANDO_SOCKET names the local daemon's socket and PANDO_STATE its state directory, where they are not the usual ones, for the node and for the
/// commands that speak to it. In personal mode PANDO_STATE is enough: the socket is in that directory.
#[derive(Parser)]
#[command(name = "pando", version)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Subcommand)]
pub enum Verb {
    /// Be a node: the daemon.
    #[command(after_help = "Example: pando node --listen 0.0.0.0:7117")]
    Node(NodeOptions),
    /// Make a new cluster, with this machine as its first node.
    #[command(after_help = "Example: pando init --cluster lab")]
    Init(InitOptions),
    /// Print a token with which one machine may join the cluster.
    #[command(after_help = "Example: pando token --valid-s 600")]
    Token {
        /// Seconds that it works.
        #[arg(long, value_name = "SECONDS")]
        valid_s: Option<u64>,
    },
    /// Join the cluster that a token belongs to.
    #[command(after_help = "Example: pando token | ssh root@other pando join -")]
    Join(JoinOptions),
    /// Show the nodes of the cluster.
    #[command(after_help = "Example: pando nodes")]
    Nodes {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Watch the cluster: nodes, processes with where they are and why, moves as they happen; keys move, pause and end them.
    #[command(after_help = "Example: pando top")]
    Top(WatchOptions),
    /// Watch the load of the nodes as bars.
    #[command(after_help = "Example: pando mon")]
    Mon(WatchOptions),
    /// Run a program here or at another node; it looks as if it ran here.
    #[command(after_help = RUN)]
    Run(Box<RunOptions>),
    /// Run a command for each line of input, many side by side on all nodes: a task takes the line in place of each `{}`, or at its end.
    ///
    /// What a task writes is shown when it has ended, in one piece. Ends with 0 if all tasks did, with 123 if one failed, as xargs(1).
    #[command(after_help = "Example: seq 10000 | pando map -- ./task {}")]
    Map(MapOptions),
    #[command(flatten)]
    Batch(BatchVerb),
    /// Move a running process to a node, `home`, or to the `best` node.
    #[command(after_help = "Example: pando move --family 4711 n2")]
    Move {
        /// With all that it has started: those that are away go now, the others when they have computed for a while.
        #[arg(short, long)]
        family: bool,
        /// The process.
        pid: u32,
        /// A node's name, `home` or `best`.
        dest: String,
    },
    /// Show the processes that are away, guests here, or started with `pando run`.
    #[command(after_help = "Example: pando ps --tree")]
    Ps {
        /// Those that are at home again, too.
        #[arg(short, long)]
        all: bool,
        /// Below each the ones that it has started, those that never left home, too.
        #[arg(short, long)]
        tree: bool,
        /// Print JSON: all of them, with all that is known.
        #[arg(long)]
        json: bool,
    },
    /// Say whether a process can move, would, and why not; what a node decided by itself; or what a batch job waits for.
    #[command(after_help = "Example: pando explain 4711")]
    Explain {
        /// The process; or a batch job (17), where there is no such process of a user's, or a task of one (17_4).
        #[arg(value_name = "PID", value_parser = pando_queue::Id::read, required_unless_present_any = ["node", "job"])]
        what: Option<pando_queue::Id>,
        /// What this batch job waits for, and when it is expected to begin.
        #[arg(short, long, conflicts_with = "what", value_parser = pando_queue::Id::read)]
        job: Option<pando_queue::Id>,
        /// What a node has moved by itself, and why the others stay; this node, if nothing is said.
        #[arg(short, long, conflicts_with_all = ["what", "job"], num_args = 0..=1)]
        node: Option<Option<String>>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Empty a node: its guests leave, and so do the programs that may; no new ones come.
    #[command(after_help = "Example: pando drain n2 --reason 'new disk'")]
    Drain {
        /// The node; this one, if nothing is said.
        node: Option<String>,
        /// Use it again.
        #[arg(short, long)]
        undo: bool,
        /// Why, for others to see (`sinfo -R`).
        #[arg(short, long, value_name = "WORDS", conflicts_with = "undo")]
        reason: Option<String>,
    },
    /// Show the fabric that the nodes are in, or use its three primitives by hand.
    #[command(after_help = "Example: echo hello | pando fabric xfer greeting --signal come")]
    Fabric {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(subcommand)]
        verb: Option<FabricVerb>,
    },
    /// Show the gangs: parallel jobs that have CPUs in common and run by turns (`pando run --gang`).
    #[command(after_help = "Example: pando gang --quantum 5")]
    Gang {
        /// Turns are to be so many milliseconds long from now on (0: as configured).
        #[arg(long, value_name = "MS", allow_negative_numbers = true)]
        quantum: Option<f64>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the parallel jobs that this node has a part in.
    #[command(after_help = "Example: pando jobs")]
    Jobs {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what happened: moves, failures, losses, refusals, nodes that come and go.
    #[command(after_help = "Example: pando events --since 1h --follow")]
    Events(EventOptions),
    /// Watch nodes on this machine spread real programs.
    #[command(disable_help_flag = true, override_usage = "pando demo ...", after_help = pando_testbed::usage::DEMO)]
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Several nodes on this machine.
    #[command(disable_help_flag = true, override_usage = "pando testbed ...", after_help = pando_testbed::usage::TESTBED)]
    Testbed {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Measure how fast moving is, and how well work is spread.
    #[command(disable_help_flag = true, override_usage = "pando bench ...", after_help = pando_testbed::usage::BENCH)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Write the manual pages.
    #[command(name = "__man", hide = true)]
    Man {
        /// Where to.
        dir: PathBuf,
    },
    /// Print completions for a shell.
    #[command(name = "__completions", hide = true)]
    Completions {
        /// Which.
        shell: clap_complete::Shell,
    },
}

/// Bytes, with K, M, G or T for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let shift = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("a size is a number with K, M, G or T: 512M, 1.5G".into()),
    };
    let number: f64 = digits.parse().map_err(|_| "a size is a number with K, M, G or T: 512M, 1.5G")?;
    if number >= 0.0 {
        Ok((number * f64::from(1u32 << 10).powi(shift / 10)) as u64)
    } else {
        Err("a size is not negative".into())
    }
}

const RUN: &str = "\
Example: pando run --best make -j8

Words of srun(1) that change nothing here are taken and left alone (-A, -q, -s, -O, -Q, -v, --comment, --cpu-bind and the like); those that can't be heeded
(-p, --gres, --array and the like) are refused, with the reason. --exclusive is for steps of a batch job. Under the name of mpiexec or mpirun it understands the words of MPICH's
and Open MPI's.";

fn node_name(text: &str) -> Result<String, String> {
    pando_wire::NodeName::parse(text).map(|name| name.to_string()).map_err(|e| e.to_string())
}

/// The name of a group.
fn word(text: &str) -> Result<String, String> {
    let good = (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if good { Ok(text.to_owned()) } else { Err("a word has 1 to 64 letters, digits, and - _ .".into()) }
}

fn children(text: &str) -> Result<Children, String> {
    match text {
        "now" => Ok(Children::After(0)),
        "never" => Ok(Children::Never),
        ms => ms.parse().map(Children::After).map_err(|_| "write now, never, or milliseconds".into()),
    }
}

/// `pando node`.
#[derive(ClapArgs)]
pub struct NodeOptions {
    /// The node's name; must be its identity's.
    #[arg(long)]
    pub name: Option<String>,
    /// State directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Where other nodes connect.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// What to tell other nodes instead, where addresses are translated.
    #[arg(long, value_name = "ADDR:PORT")]
    pub advertise: Option<String>,
    /// Socket of the local API.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the configuration that would be in effect, limits included, and stop.
    #[arg(long)]
    pub print_config: bool,
}

/// `pando init`.
#[derive(ClapArgs)]
pub struct InitOptions {
    /// The node's name; the host's if nothing is said.
    #[arg(long)]
    pub name: Option<String>,
    /// The cluster's name.
    #[arg(long, default_value = "pando")]
    pub cluster: String,
    /// State directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `pando join`.
#[derive(ClapArgs)]
pub struct JoinOptions {
    /// What `pando token` printed; `-` reads it from standard input, so that it does not show in `ps`.
    pub token: String,
    /// The node's name; the host's if nothing is said.
    #[arg(long)]
    pub name: Option<String>,
    /// State directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Where the node will listen.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `pando top` and `pando mon`.
#[derive(ClapArgs)]
pub struct WatchOptions {
    /// Seconds between two looks.
    #[arg(short = 'd', long = "delay", value_name = "SECONDS", default_value_t = 1.0)]
    pub every: f64,
    /// No colours (NO_COLOR does the same, and TERM of a terminal that has none).
    #[arg(long)]
    pub mono: bool,
    /// Print what there is to show once, as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pando events`.
#[derive(ClapArgs)]
pub struct EventOptions {
    /// Go on showing what happens.
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last N (0: none, for use with --follow).
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
    /// Only what happened after this: a duration before now (90s, 10m, 1h30m, 2d), a time (18:05, 2026-11-21, 2026-11-21T18:05:00Z), today,
    /// yesterday, or @SECONDS since 1970.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Print JSON, one object a line: time, kind, text and, where they apply, pid, home, from, to, reason, uid, user.
    #[arg(long)]
    pub json: bool,
}

/// `pando run`.
#[derive(ClapArgs)]
pub struct RunOptions {
    /// Where: a node's name or `best`. If nothing is said it starts here and may be moved.
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// The same as `--node best`; what it starts goes to the best nodes, too.
    #[arg(short, long, conflicts_with = "node")]
    pub best: bool,
    /// Ask it to use no more of the CPU than this level (x86-64, x86-64-v2, -v3, -v4), so that it can move to machines that have no more. Should
    /// it use more, it comes home.
    #[arg(long, value_name = "LEVEL")]
    pub cpu: Option<String>,
    /// It stays here, and so does what it starts.
    #[arg(long, conflicts_with_all = ["node", "best", "nodes"])]
    pub home_only: bool,
    /// Pando does not move it by itself.
    #[arg(long)]
    pub no_move: bool,
    /// Pando moves it to these nodes only (and home).
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', value_parser = node_name)]
    pub nodes: Option<Vec<String>>,
    /// Pando moves it by itself at most so often; out of a node that is drained it leaves all the same.
    #[arg(long, value_name = "N")]
    pub max_moves: Option<u32>,
    /// The memory that it will need, as far as you know (512M, 2G): Pando puts it nowhere by itself where there is less.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Pando puts no two programs with the same WORD (of this node) at one node, as far as there are enough; the rest stays here.
    #[arg(long, value_name = "WORD", value_parser = word)]
    pub apart: Option<String>,
    /// Pando keeps all programs with the same WORD (of this node) at one node: where the last one went, the others follow.
    #[arg(long, value_name = "WORD", conflicts_with = "apart", value_parser = word)]
    pub together: Option<String>,
    /// When what it starts goes where it was sent (--node, --best): `now`, `never`, or after so many milliseconds of CPU time. If nothing is said, after
    /// those in the node's configuration.
    #[arg(long, value_name = "WHEN", value_parser = children)]
    pub children: Option<Children>,
    /// Don't wait: print its pid (to stderr, if the output goes to a file; nowhere, if both do). Its input is empty; output goes on to a file or terminal, not to a pipe.
    #[arg(short, long)]
    pub detach: bool,
    #[command(flatten)]
    pub parallel: ParallelOptions,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What is done with the fabric.
#[derive(Subcommand)]
pub enum FabricVerb {
    /// Xfer-And-Signal: bring bytes to a region at each of some nodes, at all or none of them, and signal an event there.
    #[command(after_help = "Example: pando fabric xfer program ./a.out --on n2,n3 --signal ready")]
    Xfer {
        /// The region.
        region: String,
        /// The bytes; standard input, if nothing is said.
        file: Option<PathBuf>,
        /// Where to; to all members, if nothing is said.
        #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
        on: Option<Vec<String>>,
        /// Where in the region, bytes.
        #[arg(long, default_value_t = 0)]
        offset: u64,
        /// The event.
        #[arg(long, value_name = "EVENT")]
        signal: Option<String>,
    },
    /// Print what is in a region here.
    Get {
        /// The region.
        region: String,
    },
    /// Test-Event: was it signalled here? Status 0 for yes (and the signal is taken), 1 for no.
    #[command(after_help = "Example: pando fabric test ready --wait")]
    Test {
        /// The event.
        event: String,
        /// Wait for it; at most so long.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1)]
        wait: Option<Option<f64>>,
    },
    /// Compare-And-Write: status 0 if it holds at each of some nodes (and a variable is written at each), 1 if not.
    #[command(after_help = "Example: pando fabric compare done '>=' 1 --write phase=2")]
    Compare {
        /// What is compared.
        variable: String,
        /// `>=`, `<`, `==` or `!=`.
        #[arg(value_parser = [">=", "<", "==", "!="])]
        comparison: String,
        /// With what.
        #[arg(allow_negative_numbers = true)]
        value: i64,
        /// What is written.
        #[arg(long, value_name = "VARIABLE=VALUE", value_parser = assignment)]
        write: Option<(String, i64)>,
        /// Where; at all members, if nothing is said.
        #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
        on: Option<Vec<String>>,
    },
    /// Show the manager's heartbeat as it comes here; or set its period, or have an event happen everywhere with one of the next beats.
    #[command(after_help = "Example: pando fabric strobe --every 10 --micro 4; pando fabric strobe --event go")]
    Strobe {
        /// Milliseconds between two beats, for all members; 0 for none.
        #[arg(long, value_name = "MS")]
        every: Option<f64>,
        /// So many micro-heartbeats between two beats.
        #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u32).range(0..=1000))]
        micro: Option<u32>,
        /// The event.
        #[arg(long)]
        event: Option<String>,
    },
    /// Print a variable of this node.
    Load {
        /// The variable.
        variable: String,
    },
    /// Set a variable of this node.
    Store {
        /// The variable.
        variable: String,
        /// To what.
        #[arg(allow_negative_numbers = true)]
        value: i64,
    },
    /// Found a fabric with this node alone, when those that would found it are gone for good.
    Found,
}

fn assignment(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("write VARIABLE=VALUE")?;
    Ok((name.to_owned(), value.parse().map_err(|_| format!("{value} is no whole number"))?))
}
