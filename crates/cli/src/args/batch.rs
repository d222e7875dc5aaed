//! The words of batch jobs.

use crate::batch::options::Said;
use clap::{Args as ClapArgs, Subcommand};
use pando_queue::Id;
use std::ffi::OsString;

fn id(text: &str) -> Result<Id, String> {
    Id::read(text)
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
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show jobs that have ended: how, where, and what they have used.
    #[command(after_help = "Example: pando history -u ann --since 1d")]
    History(HistoryOptions),
    /// Show what jobs have used: CPU time, memory, what they read and wrote, energy where nodes say it.
    #[command(after_help = "Example: pando usage --user ann --since 7d")]
    Usage(UsageOptions),
}

/// `pando submit`.
#[derive(ClapArgs)]
pub struct SubmitOptions {
    #[command(flatten)]
    pub said: Said,
    /// A command for the shell, in place of a script.
    #[arg(long, value_name = "COMMAND", conflicts_with = "script")]
    pub wrap: Option<OsString>,
    /// Print JSON: the number.
    #[arg(long)]
    pub json: bool,
    /// As sbatch: its output's usual name.
    #[arg(long, hide = true)]
    pub slurm: bool,
    /// The script and its arguments; standard input, if nothing is said.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SCRIPT")]
    pub script: Vec<OsString>,
}

/// `pando queue`.
#[derive(ClapArgs)]
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
    /// Those that have just ended, too.
    #[arg(short, long)]
    pub all: bool,
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
    /// Send this signal to their processes, and do no more: USR1, 10.
    #[arg(short, long)]
    pub signal: Option<String>,
    /// The jobs; 17_4 for a task of an array.
    #[arg(value_name = "JOB", value_parser = id, required_unless_present = "user")]
    pub jobs: Vec<Id>,
}

/// Jobs.
#[derive(ClapArgs)]
pub struct Ids {
    /// The jobs; 17_4 for a task of an array.
    #[arg(value_name = "JOB", value_parser = id, required = true)]
    pub jobs: Vec<Id>,
}

/// `pando usage`.
#[derive(ClapArgs)]
pub struct UsageOptions {
    /// Of this user only.
    #[arg(short, long)]
    pub user: Option<String>,
    /// Of jobs that ended then or later: 2h, 3d, a date or time.
    #[arg(short = 'S', long, value_name = "TIME")]
    pub since: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pando history`.
#[derive(ClapArgs)]
pub struct HistoryOptions {
    /// Jobs of this user only.
    #[arg(short, long)]
    pub user: Option<String>,
    /// This job only.
    #[arg(short, long, value_parser = id)]
    pub job: Option<Id>,
    /// That ended then or later: 2h, 3d, a date or time.
    #[arg(short = 'S', long, value_name = "TIME")]
    pub since: Option<String>,
    /// So many at most, the newest.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    pub most: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
