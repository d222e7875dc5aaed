//! The words of the command line.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Make a set of Linux machines behave like one computer.
///
/// PANDO_SOCKET names the local daemon's socket and PANDO_STATE its state directory, where they are not the usual ones.
#[derive(Parser)]
#[command(name = "pando", version, disable_help_subcommand = true)]
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
    /// Run a program here or at another node; it looks as if it ran here.
    #[command(after_help = "Example: pando run --best make -j8")]
    Run(RunOptions),
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
    #[command(after_help = "Example: pando ps -a")]
    Ps {
        /// Those that are at home again, too.
        #[arg(short, long)]
        all: bool,
        /// Print JSON: all of them, with all that is known.
        #[arg(long)]
        json: bool,
    },
    /// Say whether a process can move, would, and why not.
    #[command(after_help = "Example: pando explain 4711")]
    Explain {
        /// The process.
        pid: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what happened: moves, failures, losses, refusals, nodes that come and go.
    #[command(after_help = "Example: pando events --since 1h --follow")]
    Events(EventOptions),
    /// Watch real programs spread over nodes on this machine.
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
    /// Measure how fast moving is.
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
    /// Don't wait: print its pid. Its input is empty; output goes on to a file or terminal, not to a pipe.
    #[arg(short, long)]
    pub detach: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
