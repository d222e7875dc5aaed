//! Runs the suite by hand: `cargo run -p pando-suite -- [NAME...] [--mode MODE]`.

use pando_suite::command::Task;
use pando_suite::mover::{Mover, Still};
use pando_suite::suite::{Job, Mode, ONCE_MS, Report, Suite, Verdict};
use pando_suite::testbed::{self, Testbed};
use pando_suite::{pando, pool, program, random, real, tree};
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "\
pando-suite [NAME...] [options]     runs the programs whose names contain NAME (all; `=NAME` is exact)
  --mode unmoved|once|pingpong|all  how (all; `once,pingpong` works too)
  --program NAME                    as NAME
  --real                            the real programs (python3, gzip, ...) instead of the suite's own
  --seed N                          random numbers from this (PANDO_SUITE_SEED)
  --repeat N                        each N times, with other random numbers
  -j N                              N at a time (2)
  --ms N                            how long a program of the suite works (700 when moved, else 400)
  --fail-fast                       stop at the first failure
  --by-command                      move by `pando move` instead of the node's API
  --within 'COMMAND...'             run by this command: in a container, say (split at spaces)
  --keep                            leave the testbed there at the end
  --testbed NAME                    use one that is there already
  --config FILE                     more of the nodes' configuration, where a testbed is made
  --places NODE,NODE,home           where programs are sent (all nodes)
  --list                            only print the names
pando-suite tree --help             any command with all its processes
The last line says what failed and the seed; what failed runs printed is kept, with its reference beside it.";

struct Options {
    names: Vec<String>,
    modes: Vec<Mode>,
    real: bool,
    seed: u64,
    repeat: u64,
    threads: usize,
    ms: Option<u64>,
    fail_fast: bool,
    by_command: bool,
    keep: bool,
    testbed: Option<String>,
    config: Option<std::path::PathBuf>,
    places: Vec<String>,
    within: Vec<String>,
    list: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        names: Vec::new(),
        modes: Mode::ALL.to_vec(),
        real: false,
        seed: random::seed(),
        repeat: 1,
        threads: 2,
        ms: None,
        fail_fast: false,
        by_command: false,
        keep: false,
        testbed: None,
        config: None,
        places: Vec::new(),
        within: Vec::new(),
        list: false,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{arg}: `{text}` is not a number"));
        match arg.as_str() {
            "--mode" => options.modes = modes(&value()?)?,
            "--program" => options.names.push(value()?),
            "--real" => options.real = true,
            "--seed" => options.seed = number(value()?)?,
            "--repeat" => options.repeat = number(value()?)?,
            "-j" => options.threads = number(value()?)? as usize,
            "--ms" => options.ms = Some(number(value()?)?),
            "--fail-fast" => options.fail_fast = true,
            "--by-command" => options.by_command = true,
            "--within" => options.within = value()?.split_whitespace().map(str::to_string).collect(),
            "--keep" => options.keep = true,
            "--testbed" => options.testbed = Some(value()?),
            "--config" => options.config = Some(value()?.into()),
            "--places" => options.places = value()?.split(',').map(String::from).collect(),
            "--list" => options.list = true,
            _ if arg.starts_with('-') => return Err(format!("{arg}?\n{USAGE}")),
            _ => options.names.push(arg),
        }
    }
    Ok(options)
}

fn modes(text: &str) -> Result<Vec<Mode>, String> {
    if text == "all" {
        return Ok(Mode::ALL.to_vec());
    }
    let one = |word: &str| Mode::ALL.into_iter().find(|m| m.as_str() == word);
    text.split(',').map(|w| one(w).ok_or(format!("`{w}` is no mode: unmoved, once, pingpong or all"))).collect()
}

fn chosen(names: &[String], name: &str) -> bool {
    names.is_empty()
        || names.iter().any(|n| n.strip_prefix('=').map_or(name.contains(n.as_str()), |exact| name == exact))
}

fn tasks(options: &Options, suite: &Suite) -> Result<Vec<Arc<Task>>, String> {
    if options.real {
        let found = real::tasks(&suite.scratch().join("inputs")).map_err(|e| e.to_string())?;
        for missing in &found.missing {
            println!("SKIPPED   {missing}");
        }
        return Ok(found.tasks.into_iter().filter(|t| chosen(&options.names, &t.name)).map(Arc::new).collect());
    }
    let programs = program::all().map_err(|e| e.to_string())?;
    let programs: Vec<_> = programs.into_iter().filter(|p| chosen(&options.names, &p.name)).collect();
    let mut tasks = Vec::new();
    pool::each(
        2,
        programs,
        |p| Task::of(&p),
        |task| {
            let within = |task| Arc::new(Task { within: options.within.clone(), ..task });
            tasks.push(task.map(within).map_err(|e| e.to_string()));
            true
        },
    );
    let mut tasks = tasks.into_iter().collect::<Result<Vec<_>, _>>()?;
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tasks)
}

fn jobs(options: &Options, tasks: &[Arc<Task>]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for number in 0..options.repeat {
        for task in tasks {
            for mode in &options.modes {
                let ms = options.ms.or((*mode != Mode::Unmoved).then_some(ONCE_MS));
                jobs.push(Job { task: Arc::clone(task), mode: *mode, number, ms });
            }
        }
    }
    jobs
}

fn summary(reports: &[Report], seed: u64) {
    let count = |f: &dyn Fn(&Report) -> bool| reports.iter().filter(|r| f(r)).count();
    let stayed = count(&|r| r.verdict == Verdict::Stayed);
    let moves: usize = reports.iter().map(|r| r.tally.moves()).sum();
    let failed: Vec<String> =
        reports.iter().filter(|r| r.failed()).map(|r| format!("{} {}", r.name, r.mode.as_str())).collect();
    println!(
        "{} runs: {} same, {stayed} not moved, {} failed; {moves} moves; seed {seed}",
        reports.len(),
        count(&|r| r.verdict == Verdict::Same),
        failed.len()
    );
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        println!("again: --seed {seed} --mode MODE =NAME (--repeat N for other random points)");
    }
}

/// Where programs are moved.
fn place(options: &Options) -> Result<Testbed, String> {
    if let Some(why) = testbed::missing() {
        return Err(why);
    }
    let own = format!("suite-{}", std::process::id());
    let mut testbed = match &options.testbed {
        Some(name) => Testbed::existing(&pando::find()?, name)?,
        None => Testbed::configured(&pando::find()?, &own, 3, options.keep, options.config.as_deref())?,
    };
    testbed.by_command = options.by_command;
    testbed.places.clone_from(&options.places);
    println!("testbed {}, seed {}", testbed.name, options.seed);
    Ok(testbed)
}

fn work(options: &Options) -> Result<bool, String> {
    let suite = Suite::new(options.seed).map_err(|e| e.to_string())?;
    let tasks = tasks(options, &suite)?;
    if options.list {
        tasks.iter().for_each(|t| println!("{}", t.name));
        return Ok(true);
    }
    let moving = options.modes.iter().any(|m| *m != Mode::Unmoved);
    let testbed = if moving { Some(place(options)?) } else { None };
    let mover: &dyn Mover = testbed.as_ref().map_or(&Still, |t| t);
    let mut reports = Vec::new();
    pool::each(
        options.threads,
        jobs(options, &tasks),
        |job| suite.run_until_moved(&job, mover),
        |report| {
            println!("{}", report.text());
            let go_on = !(options.fail_fast && report.failed());
            reports.push(report);
            go_on
        },
    );
    summary(&reports, options.seed);
    let failed = reports.iter().any(Report::failed);
    suite.tidy_up(failed);
    Ok(!failed)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let of_tree = args.first().is_some_and(|a| a == "tree");
    if args.iter().take_while(|a| *a != "--").any(|a| a == "--help" || a == "-h") {
        println!("{}", if of_tree { tree::options::USAGE } else { USAGE });
        return ExitCode::SUCCESS;
    }
    let args = args.into_iter();
    let done = match of_tree {
        true => tree::options::parse(args.skip(1)).and_then(|options| tree::work(&options)),
        false => parse(args).and_then(|options| work(&options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("pando-suite: {why}");
            ExitCode::FAILURE
        }
    }
}
