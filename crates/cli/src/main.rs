//! The pando command: one program for the user's verbs, the daemon and the engine's helpers.
#![warn(missing_docs)]

mod args;
mod attached;
mod batch;
mod cluster;
mod duration;
mod events;
mod fabric;
mod faces;
mod gang;
mod level;
mod manual;
mod mpiexec;
mod nodelist;
mod parallel;
mod run;
mod show;
mod slurm;
mod stopping;
mod top;
mod tree;
mod waiting;

use args::{Args, Verb};
use clap::Parser;
use pando_node::client::Client;
use pando_node::place::Place;
use pando_node::sys;

fn main() {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(text) = faces::help(&words) {
        sys::default_signals(&[libc::SIGPIPE]);
        print!("{text}");
        return;
    }
    let words = match faces::as_called(words).and_then(mpiexec::as_called) {
        Ok(words) => words,
        Err(why) => std::process::exit(not_started(&why)),
    };
    let status = match words.get(1).and_then(|w| w.to_str()) {
        // Before anything else: helpers start often, and must inherit no decision of the command line's.
        Some("__deputy") => pando_migrate::deputy_main(),
        Some("__guest") => pando_migrate::guest_main(),
        Some("__starter") => pando_node::starter_main(),
        Some("__hold") => pando_node::hold_main(&words[2..]),
        Some("testbed") => pando_testbed::cli(words[2..].to_vec()),
        Some("demo") => pando_testbed::demo(words[2..].to_vec()),
        Some("bench") => pando_testbed::bench(words[2..].to_vec()),
        Some(word) if pando_testbed::is_hidden(word) => pando_testbed::hidden(word, words[2..].to_vec()),
        _ => {
            // `pando ps | head` ends quietly, as other programs do: Rust ignores the signal unless told otherwise.
            sys::default_signals(&[libc::SIGPIPE]);
            match attached::detach(words) {
                Ok(words) => act(Args::parse_from(words)),
                Err(why) => not_started(&why),
            }
        }
    };
    std::process::exit(status);
}

fn not_started(why: &str) -> i32 {
    eprintln!("pando: {why}; nothing was started");
    parallel::NOT_STARTED
}

fn act(args: Args) -> i32 {
    let done = match args.verb {
        Verb::Node(options) => cluster::node(options),
        Verb::Init(options) => cluster::init(options),
        Verb::Token { valid_s } => cluster::token(&client(), valid_s),
        Verb::Join(options) => cluster::join(options),
        Verb::Nodes { json } => show::nodes(&client(), json),
        Verb::Top(options) => top::watch(&quiet(), top::Screen::Top, &options),
        Verb::Mon(options) => top::watch(&quiet(), top::Screen::Mon, &options),
        Verb::Run(options) if options.parallel.each.is_some() => {
            return parallel::map::run(&client(), &options.into_map());
        }
        Verb::Run(options) if options.parallel.is_any() => return parallel::run(&client(), &options),
        Verb::Run(options) => return run::run(&client(), *options),
        Verb::Batch(verb) => return batch::act(&client(), verb),
        Verb::Map(options) => return parallel::map::run(&client(), &options),
        Verb::Move { pid, dest, family } => show::mv(&client(), pid, dest, family),
        Verb::Ps { all, tree, json } => show::ps(&client(), all, tree, json),
        Verb::Explain { job: Some(job), json, .. } => batch::explain(&client(), job, json),
        Verb::Explain { what: Some(id), json, .. } => batch::explain_any(&client(), id, json),
        Verb::Explain { what: None, node, json, .. } => show::decisions(&client(), node.flatten().as_deref(), json),
        Verb::Drain { node, undo, reason } => show::drain(&client(), node, undo, reason.unwrap_or_default()),
        Verb::Fabric { json, verb } => return fabric::fabric(&client(), json, verb),
        Verb::Gang { quantum, json } => gang::gang(&client(), quantum, json),
        Verb::Jobs { json } => show::jobs(&client(), json),
        Verb::Events(options) => events::events(&client(), &options),
        Verb::Man { dir } => manual::pages(&dir),
        Verb::Completions { shell } => {
            manual::completions(shell);
            Ok(())
        }
        // Taken by `main`; here so that `--help` shows them.
        Verb::Testbed { .. } | Verb::Demo { .. } | Verb::Bench { .. } => Ok(()),
    };
    match done {
        Ok(()) => 0,
        Err(text) => {
            eprintln!("pando: {text}");
            1
        }
    }
}

fn client() -> Client {
    Client::new(&Place::to_speak_to()).telling(|text| eprintln!("pando: {text}"))
}

/// For what draws on the whole terminal.
fn quiet() -> Client {
    Client::new(&Place::to_speak_to())
}
