//! The words of parallel jobs: Slurm's, where Slurm has one, and of `pando map` GNU parallel's.

use crate::duration;
use crate::nodelist;
use clap::Args as ClapArgs;
use pando_launch::{Mpi, Stdin};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const WHERE: &str = "Parallel jobs: where ranks run";
const GIVEN: &str = "Parallel jobs: what ranks are given";
const STREAMS: &str = "Parallel jobs: what ranks read and write";
const ENDS: &str = "Parallel jobs: how they begin and end";

/// What is said of one program that may move.
const NOT_PARALLEL: [&str; 11] =
    ["node", "best", "cpu", "home_only", "no_move", "nodes", "max_moves", "memory", "apart", "together", "detach"];
/// What tasks have no use for.
const NOT_EACH: [&str; 18] = [
    "relative",
    "multi_prog",
    "ranks",
    "hostfile",
    "slots",
    "job_name",
    "export",
    "env",
    "input",
    "output",
    "error",
    "label",
    "unbuffered",
    "pty",
    "grace",
    "hold",
    "mpi",
    "oversubscribe",
];

/// Some nodes, as one word names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNames(pub Vec<String>);

/// Nodes, and how many ranks each takes.
#[derive(Clone, Debug)]
pub struct Slots(pub Vec<(String, u32)>);

fn slots(text: &str) -> Result<Slots, String> {
    crate::parallel::slots(text).map(Slots)
}

fn nodes(text: &str) -> Result<NodeNames, String> {
    nodelist::expand(text).map(NodeNames)
}

/// Of a parallel job: one program, many ranks, on many nodes. Any of these words makes one.
#[derive(ClapArgs)]
#[group(id = "parallel", conflicts_with_all = NOT_PARALLEL)]
#[command(next_help_heading = "Parallel jobs")]
pub struct ParallelOptions {
    /// Run so many of it, its ranks, side by side: a parallel job, as any of the words below makes one. They stay where they begin, and are MPI programs if they like (MPICH's or Open MPI's).
    #[arg(short = 'n', long = "ranks", visible_alias = "ntasks", value_name = "RANKS")]
    pub ranks: Option<u32>,
    /// On so many nodes, the idlest.
    #[arg(short = 'N', long = "node-count", value_name = "NODES")]
    pub node_count: Option<u32>,
    /// So many ranks on each node.
    #[arg(long = "ntasks-per-node", visible_alias = "ppn", value_name = "RANKS")]
    pub per_node: Option<u32>,
    /// So many CPUs for each rank: its own, while it runs, where a node has enough that no other rank has; as they come, where it has not.
    #[arg(short, long = "cpus-per-task", value_name = "CPUS")]
    pub cpus: Option<u16>,
    /// The job's name, for `pando jobs`; the program's, if nothing is said.
    #[arg(short = 'J', long, value_name = "NAME", value_parser = job_name)]
    pub job_name: Option<String>,
    /// A task for each line of this file (`-`: of standard input), as `pando map`.
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_EACH)]
    pub each: Option<PathBuf>,
    /// On these nodes: n1,n3 or n[1-4,7].
    #[arg(short = 'w', long, value_name = "NODES", value_parser = nodes, help_heading = WHERE)]
    pub nodelist: Option<Vec<NodeNames>>,
    /// On none of these.
    #[arg(short = 'x', long, value_name = "NODES", value_parser = nodes, help_heading = WHERE)]
    pub exclude: Option<Vec<NodeNames>>,
    /// On the nodes of this file, a line each: a name, and how many ranks it takes (`n1:4` or `n1 slots=4`).
    #[arg(long, visible_alias = "machinefile", value_name = "FILE", conflicts_with_all = ["nodelist", "per_node"], help_heading = WHERE)]
    pub hostfile: Option<PathBuf>,
    /// So many ranks on each of these nodes: n1:4,n2:2.
    #[arg(long, value_name = "NODE:RANKS,...", value_parser = slots, conflicts_with_all = ["nodelist", "hostfile"], help_heading = WHERE)]
    pub slots: Option<Slots>,
    /// More ranks than the hostfile has slots.
    #[arg(long, help_heading = WHERE)]
    pub oversubscribe: bool,
    /// More ranks than the batch job has CPUs, of which this is a step.
    #[arg(short = 'O', long, help_heading = WHERE)]
    pub overcommit: bool,
    /// In a batch job: on CPUs that no other step of it has which says this, too; it waits for them.
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = WHERE)]
    pub exclusive: Option<String>,
    /// What its ranks may have of each node's memory, all together: 500M, 4G; 0: as much as there is. Who takes more is ended.
    #[arg(long, value_name = "SIZE", value_parser = pando_queue::sizes::megabytes, help_heading = WHERE)]
    pub mem: Option<u64>,
    /// Ranks have CPUs that other gangs may have, too: the whole job runs at once in its turns, on all nodes (`pando gang` shows them).
    #[arg(long, conflicts_with_all = ["oversubscribe"], help_heading = WHERE)]
    pub gang: bool,
    /// The quality of service, as `pando submit` has it: of gangs, those of a lower level stand still where it has CPUs of theirs.
    #[arg(short, long, value_name = "NAME", help_heading = WHERE)]
    pub qos: Option<String>,
    /// The directory where ranks begin.
    #[arg(short = 'D', long, value_name = "DIR", help_heading = GIVEN)]
    pub chdir: Option<PathBuf>,
    /// Which of the variables here they get: ALL (as if nothing is said), NONE, or a list of NAME and NAME=VALUE, with ALL first for these besides all.
    #[arg(long, value_name = "VARIABLES", help_heading = GIVEN)]
    pub export: Option<OsString>,
    /// One more variable for them, or only its name: that one, as it is here, whatever --export says.
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = GIVEN)]
    pub env: Option<Vec<OsString>>,
    /// Send the program's file and its libraries along: to nodes where they are missing or others, unless they are the system's (auto, as if nothing is
    /// said); to all that have not got them with an earlier job (always, as if nothing follows); to nobody (never).
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "always", help_heading = GIVEN)]
    pub bcast: Option<Bcast>,
    /// This file goes along, too: ranks find it, by its name without directories, in the directory that PANDO_JOB_DIR names, where libraries are looked for as
    /// well. May be said many times.
    #[arg(long, value_name = "FILE", help_heading = GIVEN)]
    pub with: Vec<PathBuf>,
    /// What MPI programs find each other through: pmi1 (MPICH's), pmix (Open MPI's; needs libpmix.so.2 on every node), none; auto, as if nothing is said,
    /// looks at the program's libraries.
    #[arg(long, value_name = "WHAT", value_parser = mpi, help_heading = GIVEN)]
    pub mpi: Option<Mpi>,
    /// Which ranks get standard input: a number (0, if nothing is said), `all` or `none`.
    #[arg(short, long, value_name = "WHO", value_parser = stdin, help_heading = STREAMS)]
    pub input: Option<Stdin>,
    /// Where what ranks write goes: a file for each, with %j (the job's number), %r (the rank), %N and %n (the node, its place), %A %a %x %u (as for a batch job) in its name, or `none`. Both streams, unless --error says more.
    #[arg(short, long, value_name = "FILE", help_heading = STREAMS)]
    pub output: Option<String>,
    /// Where what they write to standard error goes.
    #[arg(short, long, value_name = "FILE", help_heading = STREAMS)]
    pub error: Option<String>,
    /// Each line begins with the number of its rank.
    #[arg(short, long, help_heading = STREAMS)]
    pub label: bool,
    /// Rank 0 has a terminal of its own at its node, which this one becomes: for shells, editors, debuggers.
    #[arg(long, conflicts_with_all = ["input", "output", "error", "label", "hold"], help_heading = STREAMS)]
    pub pty: bool,
    /// What ranks write is shown as it comes, and not in whole lines.
    #[arg(short, long, help_heading = STREAMS)]
    pub unbuffered: bool,
    /// The job (with --each: a task) is ended when it has run for so long: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS; 0: never. SIGTERM first, after --grace SIGKILL;
    /// the status is then 124, as timeout(1) has it.
    #[arg(short, long, value_name = "TIME", value_parser = duration::of_slurm, help_heading = ENDS)]
    pub time: Option<Duration>,
    /// A rank that ends badly ends the job (1, as if nothing is said), or does not (0).
    #[arg(short = 'K', long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = clap::value_parser!(u8).range(0..=1), help_heading = ENDS)]
    pub kill_on_bad_exit: Option<u8>,
    /// Seconds between asking ranks to end (SIGTERM) and ending them; 2, if nothing is said.
    #[arg(long, value_name = "SECONDS", help_heading = ENDS)]
    pub grace: Option<u64>,
    /// Ranks are stopped before they begin; SIGCONT to this command lets them.
    #[arg(long, help_heading = ENDS)]
    pub hold: bool,
    /// A step of this batch job, which runs: on its nodes, with its variables.
    #[arg(long, value_name = "JOB", value_parser = pando_queue::Id::read, help_heading = WHERE)]
    pub jobid: Option<pando_queue::Id>,
    /// Skip so many of the batch job's nodes: a step's first node is the one after them.
    #[arg(short = 'r', long, value_name = "N", conflicts_with_all = ["nodelist", "hostfile", "slots", "exclusive"], help_heading = WHERE)]
    pub relative: Option<u32>,
    /// In the place of a program comes a file: in each line ranks (0,2-4, or * for the others), their program and its arguments, in which %t is
    /// the rank and %o its place among the line's.
    #[arg(long, requires = "ranks", help_heading = GIVEN)]
    pub multi_prog: bool,
    /// What the ranks run, if they begin as something else.
    #[arg(long, value_name = "PROGRAM", hide = true)]
    pub becomes: Option<OsString>,
    /// Which ranks are the first ones of a program, where they are several.
    #[arg(long, value_name = "RANK", value_delimiter = ',', hide = true)]
    pub firsts: Vec<u32>,
    /// A word of another launcher was said that changes nothing.
    #[arg(long, hide = true)]
    pub as_job: bool,
}

/// `pando map`.
#[derive(ClapArgs)]
pub struct MapOptions {
    /// Read the lines from this file and not from standard input.
    #[arg(short, long, value_name = "FILE")]
    pub arg_file: Option<PathBuf>,
    /// Lines end with a zero byte (find -print0).
    #[arg(short = '0', long)]
    pub null: bool,
    /// A task that fails is run again, so often at most. One whose node is lost always is.
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub retries: u32,
    /// After a task has failed no more begin.
    #[arg(long)]
    pub fail_fast: bool,
    /// At least so long between the beginnings of two tasks: seconds, or a number with s, m, h or d.
    #[arg(long, value_name = "TIME", value_parser = duration::of_parallel)]
    pub delay: Option<Duration>,
    /// A task that runs longer is ended, and has failed: SIGTERM, and two seconds later SIGKILL.
    #[arg(long, value_name = "TIME", value_parser = duration::of_parallel)]
    pub timeout: Option<Duration>,
    /// Show what tasks write in the order of the lines.
    #[arg(short, long, help_heading = "What is shown and kept")]
    pub keep_order: bool,
    /// Write a line for each task that has ended to this file: number, node, start, seconds, bytes, exit status, signal and command, as GNU parallel does.
    #[arg(long, value_name = "FILE", help_heading = "What is shown and kept")]
    pub joblog: Option<PathBuf>,
    /// Skip what the job log has already.
    #[arg(long, requires = "joblog", help_heading = "What is shown and kept")]
    pub resume: bool,
    /// Skip only what has ended well there.
    #[arg(long, requires = "joblog", help_heading = "What is shown and kept")]
    pub resume_failed: bool,
    /// Show the progress line also where standard error is no terminal.
    #[arg(long, help_heading = "What is shown and kept")]
    pub progress: bool,
    /// So many tasks at a time on each node; as many as it has CPUs, if nothing is said.
    #[arg(
        short = 'P',
        visible_short_alias = 'j',
        long = "jobs",
        value_name = "TASKS",
        help_heading = "Where tasks run"
    )]
    pub jobs: Option<u32>,
    /// So many CPUs for each task.
    #[arg(
        short,
        long = "cpus-per-task",
        value_name = "CPUS",
        conflicts_with = "jobs",
        help_heading = "Where tasks run"
    )]
    pub cpus: Option<u16>,
    /// On so many nodes, the idlest; on all, if nothing is said.
    #[arg(short = 'N', long = "node-count", value_name = "NODES", help_heading = "Where tasks run")]
    pub node_count: Option<u32>,
    /// On these nodes: n1,n3 or n[1-4,7].
    #[arg(short = 'w', long, value_name = "NODES", value_parser = nodes, help_heading = "Where tasks run")]
    pub nodelist: Option<Vec<NodeNames>>,
    /// On none of these.
    #[arg(short = 'x', long, value_name = "NODES", value_parser = nodes, help_heading = "Where tasks run")]
    pub exclude: Option<Vec<NodeNames>>,
    /// Send the program's file and its libraries along; as of `pando run`.
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "always", help_heading = "Where tasks run")]
    pub bcast: Option<Bcast>,
    /// This file goes along, too; as of `pando run`.
    #[arg(long, value_name = "FILE", help_heading = "Where tasks run")]
    pub with: Vec<PathBuf>,
    /// The directory where tasks begin.
    #[arg(short = 'D', long, value_name = "DIR", help_heading = "Where tasks run")]
    pub chdir: Option<PathBuf>,
    /// The program and its arguments. In them stand {} for the line, {.} for it without its extension, {/} for its last part, {//} for its directory, {/.} for
    /// its last part without extension, {#} for its number. Words after ::: are taken in place of lines.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// When the program's file goes along.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Bcast {
    #[default]
    Auto,
    Always,
    Never,
}

/// All nodes that several words name.
pub fn names(words: Option<&Vec<NodeNames>>) -> Vec<String> {
    words.into_iter().flatten().flat_map(|n| n.0.clone()).collect()
}

impl ParallelOptions {
    /// Has the user said any of it?
    pub fn is_any(&self) -> bool {
        let words = [
            self.ranks.is_some(),
            self.node_count.is_some(),
            self.per_node.is_some(),
            self.cpus.is_some(),
            self.job_name.is_some(),
            self.nodelist.is_some(),
            self.exclude.is_some(),
            self.hostfile.is_some(),
            self.slots.is_some(),
            self.oversubscribe,
            self.overcommit,
            self.exclusive.is_some(),
            self.mem.is_some(),
            self.gang,
            self.chdir.is_some(),
            self.export.is_some(),
            self.env.is_some(),
            self.bcast.is_some(),
            !self.with.is_empty(),
            self.mpi.is_some(),
            self.input.is_some(),
            self.output.is_some(),
            self.error.is_some(),
            self.label,
            self.unbuffered,
            self.pty,
            self.time.is_some(),
            self.kill_on_bad_exit.is_some(),
            self.grace.is_some(),
            self.hold,
            self.jobid.is_some(),
            self.as_job,
        ];
        words.contains(&true)
    }
}

impl super::RunOptions {
    /// `pando run --each FILE` is `pando map`.
    pub fn into_map(self) -> MapOptions {
        let p = self.parallel;
        MapOptions {
            arg_file: p.each.filter(|file| file.as_os_str() != "-"),
            null: false,
            jobs: p.per_node,
            cpus: p.cpus,
            node_count: p.node_count,
            nodelist: p.nodelist,
            exclude: p.exclude,
            retries: 0,
            fail_fast: p.kill_on_bad_exit == Some(1),
            delay: None,
            timeout: p.time.filter(|time| !time.is_zero()),
            keep_order: false,
            joblog: None,
            resume: false,
            resume_failed: false,
            progress: false,
            bcast: p.bcast,
            with: p.with,
            chdir: p.chdir,
            command: self.command,
        }
    }
}

fn job_name(text: &str) -> Result<String, String> {
    let good = (1..=pando_launch::LONGEST_JOB_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
    if good { Ok(text.to_owned()) } else { Err("a job's name has 1 to 128 bytes, and no control characters".into()) }
}

fn mpi(text: &str) -> Result<Mpi, String> {
    match text {
        "auto" => Ok(Mpi::Auto),
        "pmi1" => Ok(Mpi::Pmi1),
        "pmix" => Ok(Mpi::Pmix),
        "none" => Ok(Mpi::None),
        _ => Err("write auto, pmi1, pmix or none".into()),
    }
}

fn stdin(text: &str) -> Result<Stdin, String> {
    match text {
        "all" => Ok(Stdin::All),
        "none" => Ok(Stdin::None),
        rank => rank.parse().map(Stdin::Rank).map_err(|_| "write the number of a rank, all or none".into()),
    }
}
