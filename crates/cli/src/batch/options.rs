//! The options of `pando submit` as clap shows and reads them: the table is crates/queue's, which reads scripts by it too.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use pando_queue::options::{OPTIONS, Takes};

/// What was said, one word for each option: `--nodes=2`.
#[derive(Clone, Debug, Default)]
pub struct Said(pub Vec<String>);

/// What an option is for, and what its value is called.
fn about(name: &str) -> (&'static str, &'static str) {
    match name {
        "account" => ("NAME", "Whose share it is taken from; the user's own, if nothing is said"),
        "array" => {
            ("LIST", "One job of many tasks: 0-9, 1-100%4 (four at a time), 1,3,7; SLURM_ARRAY_TASK_ID says which")
        }
        "begin" => ("WHEN", "Not before: now+2hours, 16:00, tomorrow, 2030-01-20T12:34:00"),
        "chdir" => ("DIR", "The directory where it begins; this one, if nothing is said"),
        "comment" => ("TEXT", "A note"),
        "constraint" => ("LIST", "What each node must be said to have"),
        "cpus-per-task" => ("CPUS", "CPUs of each rank"),
        "deadline" => ("WHEN", "It must have ended then"),
        "dependency" => ("LIST", "What it waits for: afterok:12:13, afterany:7, singleton; , for all, ? for any"),
        "error" => ("FILE", "Where its standard error goes; with the output, if nothing is said"),
        "exclude" => ("NODES", "On none of these"),
        "exclusive" => ("", "Nobody else has CPUs of its nodes"),
        "export" => ("VARIABLES", "Variables that it gets: ALL (as if nothing is said), NONE, NAME, NAME=VALUE"),
        "gres" => ("LIST", "Generic resources of each node: gpu:2"),
        "hold" => ("", "It waits until it is released"),
        "input" => ("FILE", "What it reads; nothing, if nothing is said"),
        "job-name" => ("NAME", "What it is called"),
        "licenses" => ("LIST", "Things that the cluster has so many of"),
        "mem" => ("SIZE", "Memory of each node: 500M, 4G; who takes more is ended"),
        "mem-per-cpu" => ("SIZE", "Memory for each CPU"),
        "nice" => ("NUMBER", "Others go first"),
        "no-requeue" => ("", "It is not run again when a node is lost"),
        "nodelist" => ("NODES", "On these nodes, at least: n1,n3 or n[1-4,7]"),
        "nodes" => ("N[-M]", "So many nodes"),
        "ntasks" => ("RANKS", "So many ranks: what mpiexec and srun start in it"),
        "ntasks-per-node" => ("RANKS", "So many ranks on each node"),
        "open-mode" => ("MODE", "Its files are begun anew (truncate) or go on (append)"),
        "output" => {
            ("FILE", "Where its output goes, with %j (job), %A (array), %a (task), %x (name) in it; pando-%j.out")
        }
        "parsable" => ("", "Print the number and nothing else"),
        "partition" => ("NAME", "The partition"),
        "qos" => ("NAME", "The quality of service"),
        "quiet" => ("", "Print nothing"),
        "requeue" => ("", "It is run again when a node is lost (as if nothing is said)"),
        "reservation" => ("NAME", "Nodes that are reserved for it"),
        "propagate" => (
            "LIMITS",
            "Limits that it has of this process (ulimit): ALL (as if nothing is said), NONE, FSIZE,NOFILE,NPROC,CORE",
        ),
        "scratch" => {
            ("SIZE", "Room in a directory of its own on each node, which is $PANDO_SCRATCH and $TMPDIR: 500M, 4G")
        }
        "signal" => (
            "[B:]SIGNAL[@SECONDS]",
            "Its steps (B: itself) get this signal so long before its time is over; 60 seconds, if nothing is said",
        ),
        "test-only" => {
            ("", "Say what would be submitted (with --json all of it), and whether nodes have so much; submit nothing")
        }
        "time" => ("TIME", "It is ended after this: minutes, H:M:S, D-H:M:S"),
        "wait" => ("", "Wait for its end, and end as it did"),
        _ => ("VALUE", ""),
    }
}

impl Args for Said {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, (name, letter, takes)| {
            let (value, help) = about(name);
            let mut arg = Arg::new(*name).long(*name).help(help).hide(help.is_empty()).overrides_with(*name);
            arg = letter.map_or(arg.clone(), |letter| arg.short(letter));
            arg = match takes {
                Takes::Nothing => arg.action(ArgAction::SetTrue),
                Takes::Value => arg.action(ArgAction::Set).value_name(value).allow_hyphen_values(true),
                Takes::Maybe => {
                    let arg = arg.action(ArgAction::Set).value_name(if value.is_empty() { "VALUE" } else { value });
                    arg.num_args(0..=1).require_equals(true).default_missing_value("")
                }
            };
            command.arg(arg)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Said::augment_args(command)
    }
}

impl FromArgMatches for Said {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut said = Vec::new();
        for (name, _, takes) in &OPTIONS {
            match takes {
                Takes::Nothing if matches.get_flag(name) => said.push(format!("--{name}")),
                Takes::Nothing => {}
                _ => match matches.get_one::<String>(name) {
                    Some(value) if value.is_empty() => said.push(format!("--{name}")),
                    Some(value) => said.push(format!("--{name}={value}")),
                    None => {}
                },
            }
        }
        Ok(Said(said))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Said::from_arg_matches(matches)?;
        Ok(())
    }
}
