//! The words of batch jobs.

use crate::batch::options::Said;
use clap::{Args as ClapArgs, Subcommand};
use pando_queue::Id;
use std::ffi::OsString;

fn id(text: &str) -> Result<Id, String> {
    Id::read(text)
}

/// Some jobs or tasks, as one word names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several(Vec<Id>, Option<u32>);

fn several(text: &str) -> Result<Several, String> {
    Id::read_all(text).map(|ids| Several(ids, None))
}

/// The same, or a step of one: `17.0`, `17_4.0`.
fn several_or_step(text: &str) -> Result<Several, String> {
    match text.split_once('.') {
        Some((job, step)) => {
            let number = step.parse().map_err(|_| format!("`{text}` is no step: say 17.0"))?;
            Ok(Several(vec![Id::read(job)?], Some(number)))
        }
        None => several(text),
    }
}

/// All that several words name.
pub fn all_jobs(words: &[Several]) -> Vec<Id> {
    words.iter().filter(|w| w.1.is_none()).flat_map(|w| w.0.iter().copied()).collect()
}

/// The steps among them.
pub fn all_steps(words: &[Several]) -> Vec<(Id, u32)> {
    words.iter().filter_map(|w| Some((*w.0.first()?, w.1?))).collect()
}

/// Batch jobs, which wait in the cluster's queue until there is room for them.
#[derive(Subcommand)]
pub enum BatchVerb {
    /// Put a script into the queue: it runs when there is room for it, on the first of its nodes, and its output goes to a file there.
    ///
    /// The script says what it needs in lines of #PANDO, #SBATCH or #PBS, as the command line would; the command line counts more.
    #[command(
        after_help = "Example: pando submit -n 4 -t 10 job.sh; pando submit --wrap 'make all'",
        disable_version_flag = true
    )]
    Submit(Box<SubmitOptions>),
    /// Show the jobs in the queue: what waits, and what runs where.
    #[command(after_help = "Example: pando queue -u ann")]
    Queue(QueueOptions),
    /// End jobs, or keep them from beginning; or send them a signal.
    #[command(after_help = "Example: pando cancel 17 18_3; pando cancel -u ann; pando cancel --signal USR1 17")]
    Cancel(CancelOptions),
    /// Keep jobs that wait from beginning.
    #[command(after_help = "Example: pando hold 17")]
    Hold(Ids),
    /// Let jobs begin that were held.
    #[command(after_help = "Example: pando release 17")]
    Release(Ids),
    /// Run jobs again from the beginning, whether they run or have ended.
    #[command(after_help = "Example: pando requeue 17")]
    Requeue {
        /// They wait until they are released.
        #[arg(long)]
        hold: bool,
        #[command(flatten)]
        ids: Ids,
    },
    /// Wait until jobs are over, and end as the worst of them.
    #[command(after_help = "Example: pando wait 17")]
    Wait(Ids),
    /// Say all of a job: how it stands, what it waits for, when it is expected to begin.
    #[command(after_help = "Example: pando info 17")]
    Info {
        /// The job, or a task of an array (17_4).
        #[arg(value_parser = id)]
        job: Id,
        /// What each rank of its steps that are over has used, and how it ended.
        #[arg(long)]
        ranks: bool,
        /// Print JSON; with --ranks those.
        #[arg(long)]
        json: bool,
    },
    /// Show what a job has written, wherever its node is; or go on showing it until the job has ended, and end as it did.
    #[command(after_help = "Example: pando logs -f 17")]
    Logs(LogOptions),
    /// Show what a job writes from now on until it ends, and end as it did; or open a shell beside it, at its first node.
    #[command(after_help = "Example: pando attach 17; pando attach --shell 17")]
    Attach {
        /// A shell with the job's variables, at its first node.
        #[arg(long)]
        shell: bool,
        /// The job, or a task of an array (17_4).
        #[arg(value_parser = id)]
        job: Id,
    },
    /// Wait for nodes as a batch job does, then run a command here whose `pando run -n`, `srun` and `mpiexec` use them; give them back when it ends.
    #[command(after_help = "Example: pando alloc -n 4 -t 30 make check", disable_version_flag = true)]
    Alloc(Box<AllocOptions>),
    /// As scontrol.
    #[command(name = "__scontrol", hide = true, disable_help_flag = true)]
    Scontrol {
        /// Its words.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// As sinfo: partitions, and nodes by how much of them jobs have.
    #[command(name = "__sinfo", hide = true)]
    Sinfo(SinfoOptions),
    /// Says that somebody is there who has an allocation.
    #[command(name = "__tie", hide = true)]
    Tie {
        /// The allocation.
        job: u64,
    },
    /// Show jobs that have ended: how, where, and what they have used.
    #[command(after_help = "Example: pando history -u ann --since 1d")]
    History(HistoryOptions),
    /// Show what jobs have used: CPU time, memory, what they read and wrote, energy where nodes say it.
    #[command(after_help = "Example: pando usage --user ann --since 7d")]
    Usage(UsageOptions),
    /// Keep nodes for some users' jobs, or for nobody's (maintenance), for a time; without a name: show what is reserved.
    ///
    /// Jobs name it by --reservation; others run there only if they end before it begins. Operators make and remove reservations.
    #[command(
        after_help = "Example: pando reserve course --nodes n1,n2 --start 09:00 --duration 2:00:00 --users ann,bob\n         pando reserve update --start tomorrow --duration 1-0"
    )]
    Reserve(ReserveOptions),
}

/// `pando reserve`.
#[derive(ClapArgs)]
pub struct ReserveOptions {
    /// What it is called; one of this name is changed.
    #[arg(value_name = "NAME", conflicts_with = "json")]
    pub name: Option<String>,
    /// Take it away.
    #[arg(long, requires = "name")]
    pub remove: bool,
    /// These nodes: n1,n3 or n[1-4,7]; all, if nothing is said.
    #[arg(short = 'w', long, value_name = "NODES")]
    pub nodes: Option<String>,
    /// From then: now+2hours, 16:00, tomorrow, 2030-01-20T12:34:00; now, if nothing is said.
    #[arg(short, long, value_name = "WHEN")]
    pub start: Option<String>,
    /// Until then.
    #[arg(short, long, value_name = "WHEN", conflicts_with = "duration")]
    pub end: Option<String>,
    /// For so long: minutes, H:M:S, D-H:M:S, UNLIMITED.
    #[arg(short, long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Whose jobs may run there; nobody's, if nothing is said: maintenance.
    #[arg(short, long, value_name = "USER,...", value_delimiter = ',')]
    pub users: Vec<String>,
    /// Print what is reserved as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pando submit`.
#[derive(ClapArgs)]
pub struct SubmitOptions {
    #[command(flatten)]
    pub said: Said,
    /// A command for the shell, in place of a script.
    #[arg(long, value_name = "COMMAND", conflicts_with = "script")]
    pub wrap: Option<OsString>,
    /// Print JSON: the number; with --test-only what would be submitted.
    #[arg(long)]
    pub json: bool,
    /// As sbatch: its output's usual name.
    #[arg(long, hide = true)]
    pub slurm: bool,
    /// The script and its arguments; standard input, if nothing is said.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SCRIPT")]
    pub script: Vec<OsString>,
}

/// `pando logs`.
#[derive(ClapArgs)]
pub struct LogOptions {
    /// Go on until the job has ended, and end with its status.
    #[arg(short, long)]
    pub follow: bool,
    /// What it wrote to standard error, if that has a file of its own.
    #[arg(long)]
    pub err: bool,
    /// Begin with the last N lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<u64>,
    /// The job, or a task of an array (17_4).
    #[arg(value_name = "JOB", value_parser = id)]
    pub job: Id,
}

/// `pando alloc`.
#[derive(ClapArgs)]
pub struct AllocOptions {
    #[command(flatten)]
    pub said: Said,
    /// As salloc: what it says is said in its name.
    #[arg(long, hide = true)]
    pub slurm: bool,
    /// The command and its arguments; your shell, if nothing is said.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `pando queue`.
#[derive(ClapArgs, Default)]
pub struct QueueOptions {
    /// Jobs of these users only.
    #[arg(short, long, value_name = "USER,...", value_delimiter = ',')]
    pub user: Vec<String>,
    /// My own only.
    #[arg(long)]
    pub me: bool,
    /// These jobs only.
    #[arg(short, long, value_name = "JOB,...", value_delimiter = ',', value_parser = id)]
    pub jobs: Vec<Id>,
    /// Those in these states only: PENDING or PD, RUNNING or R, ...; `all` for those that have just ended, too.
    #[arg(short = 't', long, value_name = "STATE,...", value_delimiter = ',')]
    pub states: Vec<String>,
    /// Those that are called so only.
    #[arg(short, long, value_name = "NAME,...", value_delimiter = ',')]
    pub name: Vec<String>,
    /// Those of these partitions only.
    #[arg(short, long, value_name = "NAME,...", value_delimiter = ',')]
    pub partition: Vec<String>,
    /// Those whose share this is only.
    #[arg(short = 'A', long, value_name = "NAME,...", value_delimiter = ',')]
    pub account: Vec<String>,
    /// Those of this quality of service only.
    #[arg(short, long, value_name = "NAME,...", value_delimiter = ',')]
    pub qos: Vec<String>,
    /// Those of this reservation only.
    #[arg(short = 'R', long, value_name = "NAME")]
    pub reservation: Option<String>,
    /// Those that were given this key only.
    #[arg(long, hide = true)]
    pub wckey: Option<String>,
    /// By these columns' letters, as squeue has them: `-p,i` (a - before one turns it round).
    #[arg(short = 'S', long, value_name = "LETTERS", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Again and again, after so many seconds.
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterate: Option<u64>,
    /// Their steps.
    #[arg(short, long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub steps: Option<String>,
    /// Columns by name, as squeue has them: jobid:10,name,state.
    #[arg(short = 'O', long = "Format", value_name = "COLUMNS", conflicts_with = "format")]
    pub columns: Option<String>,
    /// Those that have one of these nodes only.
    #[arg(short = 'w', long, value_name = "NODE,...", value_delimiter = ',')]
    pub nodelist: Vec<String>,
    /// Those that have just ended, too.
    #[arg(short, long)]
    pub all: bool,
    /// When those that wait are expected to start.
    #[arg(long)]
    pub start: bool,
    /// Only the name of the node that keeps the queue now.
    #[arg(long)]
    pub keeper: bool,
    /// A line for each task of an array.
    #[arg(short = 'r', long = "array")]
    pub each: bool,
    /// Which columns, as squeue has them: '%.18i %.9P %j %T %M %R'.
    #[arg(short = 'o', long, value_name = "FORMAT", allow_hyphen_values = true)]
    pub format: Option<String>,
    /// More columns.
    #[arg(short, long)]
    pub long: bool,
    /// No first line with names.
    #[arg(long)]
    pub noheader: bool,
    /// As squeue: its columns.
    #[arg(long, hide = true)]
    pub slurm: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sinfo`.
#[derive(ClapArgs)]
pub struct SinfoOptions {
    /// A line for each node.
    #[arg(short = 'N', long = "Node")]
    pub each: bool,
    /// More columns.
    #[arg(short, long)]
    pub long: bool,
    /// Which columns: '%P %.5a %.6D %t %N'.
    #[arg(short = 'o', long, value_name = "FORMAT", allow_hyphen_values = true)]
    pub format: Option<String>,
    /// Why nodes take no jobs.
    #[arg(short = 'R', long = "list-reasons")]
    pub reasons: bool,
    /// A line for each partition.
    #[arg(short, long)]
    pub summarize: bool,
    /// Again and again, after so many seconds.
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterate: Option<u64>,
    /// Nodes that are down only.
    #[arg(short, long)]
    pub dead: bool,
    /// These partitions only.
    #[arg(short, long, value_name = "NAME,...", value_delimiter = ',')]
    pub partition: Vec<String>,
    /// These nodes only.
    #[arg(short, long, value_name = "NODE,...", value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// Nodes in these states only: idle, mixed, allocated, draining, drained, down.
    #[arg(short = 't', long, value_name = "STATE,...", value_delimiter = ',')]
    pub states: Vec<String>,
    /// No first line with names.
    #[arg(long)]
    pub noheader: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pando cancel`.
#[derive(ClapArgs)]
pub struct CancelOptions {
    /// All jobs of this user.
    #[arg(short, long)]
    pub user: Option<String>,
    /// All of mine.
    #[arg(long)]
    pub me: bool,
    /// Those in this state only (of mine, if no user and no job is named): PENDING, RUNNING, ...
    #[arg(short = 't', long)]
    pub state: Option<String>,
    /// Those that are called so only (likewise).
    #[arg(short, long)]
    pub name: Option<String>,
    /// Those of this partition only (likewise).
    #[arg(short, long)]
    pub partition: Option<String>,
    /// Say nothing of those that can't be ended.
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// Send this signal to their processes, and do no more: USR1, 10. By the name of scancel to their steps only, unless it is KILL, STOP, TSTP or CONT.
    #[arg(short, long)]
    pub signal: Option<String>,
    /// That signal to their scripts only.
    #[arg(short, long, requires = "signal")]
    pub batch: bool,
    /// That signal to their scripts and all their other processes, also where it would go to steps only (see --signal).
    #[arg(short, long, requires = "signal")]
    pub full: bool,
    /// Those whose share this is only (likewise).
    #[arg(short = 'A', long)]
    pub account: Option<String>,
    /// Those of this quality of service only (likewise).
    #[arg(short, long)]
    pub qos: Option<String>,
    /// Those of this reservation only (likewise).
    #[arg(short = 'R', long)]
    pub reservation: Option<String>,
    /// Those that have one of these nodes only (likewise).
    #[arg(short = 'w', long, value_name = "NODE,...", value_delimiter = ',')]
    pub nodelist: Vec<String>,
    /// Those that were given this key only (likewise).
    #[arg(long)]
    pub wckey: Option<String>,
    /// As scancel's; it changes nothing.
    #[arg(short, long, hide = true)]
    pub verbose: bool,
    /// As scancel: signals go to steps, unless more is said.
    #[arg(long, hide = true)]
    pub slurm: bool,
    /// The jobs; 17_4 for a task of an array, 17_[4-6,9] for some; 17.0 for a step.
    #[arg(value_name = "JOB", value_parser = several_or_step, required_unless_present_any = ["user", "me", "state", "name", "partition", "account", "qos", "reservation", "nodelist", "wckey"])]
    pub jobs: Vec<Several>,
}

/// Jobs.
#[derive(ClapArgs)]
pub struct Ids {
    /// The jobs; 17_4 for a task of an array, 17_[4-6,9] for some.
    #[arg(value_name = "JOB", value_parser = several, required = true)]
    pub jobs: Vec<Several>,
}

/// What `pando usage` adds up.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// All jobs of a user in an account.
    User,
    /// All jobs of an account.
    Account,
}

/// `pando usage`.
#[derive(ClapArgs)]
pub struct UsageOptions {
    /// Of this user only.
    #[arg(short, long)]
    pub user: Option<String>,
    /// Of this account only.
    #[arg(short = 'A', long)]
    pub account: Option<String>,
    /// Of jobs that ended then or later: 2h, 3d, a date or time.
    #[arg(short = 'S', long, value_name = "TIME")]
    pub since: Option<String>,
    /// One line for all of each of these: user, account.
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<By>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pando history`.
#[derive(ClapArgs)]
pub struct HistoryOptions {
    /// Jobs of these users only.
    #[arg(short, long, value_name = "USER,...", value_delimiter = ',')]
    pub user: Vec<String>,
    /// These jobs only.
    #[arg(short, long, value_name = "JOB,...", value_delimiter = ',', value_parser = id)]
    pub job: Vec<Id>,
    /// That ended then or later: 2h, 3d, a date or time.
    #[arg(short = 'S', long, value_name = "TIME")]
    pub since: Option<String>,
    /// That ended then or earlier.
    #[arg(short = 'E', long, value_name = "TIME")]
    pub until: Option<String>,
    /// That ended so: COMPLETED, FAILED, CANCELLED, ...
    #[arg(short, long, value_name = "STATE,...", value_delimiter = ',')]
    pub state: Vec<String>,
    /// That were called so.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub name: Vec<String>,
    /// Which columns, as sacct has them: jobid,jobname%20,state,exitcode.
    #[arg(short = 'o', long, value_name = "COLUMNS")]
    pub format: Option<String>,
    /// With | between the columns; --parsable with one at the end, too.
    #[arg(short = 'P', long)]
    pub parsable2: bool,
    /// See there.
    #[arg(short, long)]
    pub parsable: bool,
    /// No first line with names.
    #[arg(long)]
    pub noheader: bool,
    /// Whose share they were taken from.
    #[arg(short = 'A', long, value_name = "NAME,...", value_delimiter = ',')]
    pub account: Vec<String>,
    /// That were in these partitions.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub partition: Vec<String>,
    /// That had one of these nodes.
    #[arg(short = 'w', long, value_name = "NODE,...", value_delimiter = ',')]
    pub nodelist: Vec<String>,
    /// In place of |.
    #[arg(long, hide = true)]
    pub delimiter: Option<String>,
    /// As sacct: its columns, jobs that wait or run, and steps.
    #[arg(long, hide = true)]
    pub slurm: bool,
    /// As sacct: everybody's; no steps; fewer and more columns; the names of all.
    #[arg(long, hide = true)]
    pub allusers: bool,
    /// See there.
    #[arg(long, hide = true)]
    pub allocations: bool,
    /// See there.
    #[arg(long, hide = true)]
    pub brief: bool,
    /// See there.
    #[arg(long, hide = true)]
    pub long: bool,
    /// See there.
    #[arg(long, hide = true)]
    pub helpformat: bool,
    /// So many at most, the newest.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    pub most: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
