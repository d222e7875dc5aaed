//! `pando queue` with Slurm's columns, and which jobs an option means.

use super::format::{Format, plain};
use super::{Ended, ask, now};
use crate::args::{CancelOptions, QueueOptions, all_jobs, all_steps};
use crate::show::print_json;
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Cluster, Done, Line, Shown, Whom};
use pando_node::sys;
use pando_node::views::{Liveness, Node};
use pando_queue::{Id, State, times};
use std::collections::BTreeSet;
use std::time::Duration;

/// What squeue shows if nothing is said.
const USUAL: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %R";
/// The columns, and their names.
const COLUMNS: [(char, &str); 45] = [
    ('i', "JOBID"),
    ('A', "JOBID"),
    ('F', "ARRAY_JOB_ID"),
    ('K', "ARRAY_TASK_ID"),
    ('P', "PARTITION"),
    ('j', "NAME"),
    ('u', "USER"),
    ('t', "ST"),
    ('T', "STATE"),
    ('M', "TIME"),
    ('l', "TIME_LIMIT"),
    ('L', "TIME_LEFT"),
    ('D', "NODES"),
    ('C', "CPUS"),
    ('R', "NODELIST(REASON)"),
    ('N', "NODELIST"),
    ('r', "REASON"),
    ('S', "START_TIME"),
    ('e', "END_TIME"),
    ('V', "SUBMIT_TIME"),
    ('a', "ACCOUNT"),
    ('q', "QOS"),
    ('Q', "PRIORITY"),
    ('p', "PRIORITY"),
    ('m', "MIN_MEMORY"),
    ('Z', "WORK_DIR"),
    ('k', "COMMENT"),
    ('B', "EXEC_HOST"),
    ('y', "NICE"),
    ('n', "REQ_NODES"),
    ('b', "TRES_PER_NODE"),
    ('c', "MIN_CPUS"),
    ('d', "ELIGIBLE_TIME"),
    ('E', "DEPENDENCY"),
    ('f', "FEATURES"),
    ('G', "RESTARTS"),
    ('h', "OVER_SUBSCRIBE"),
    ('o', "COMMAND"),
    ('s', "TASKS"),
    ('U', "UID"),
    ('v', "RESERVATION"),
    ('w', "WCKEY"),
    ('W', "LICENSES"),
    ('x', "EXC_NODES"),
    ('Y', "SCHEDNODES"),
];

/// A moment as Slurm writes it.
pub fn moment(ms: Option<u64>) -> String {
    let Some(ms) = ms else { return "N/A".into() };
    let [year, month, day, hour, minute, second] = sys::local_time(ms / 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// States by their long or short names; `all` is no restriction. The error is for people.
pub fn states(words: &[String]) -> Result<Option<Vec<State>>, String> {
    const ALL: [State; 13] = [
        State::Pending,
        State::Running,
        State::Suspended,
        State::Completing,
        State::Completed,
        State::Failed,
        State::Cancelled,
        State::Timeout,
        State::NodeFail,
        State::Preempted,
        State::OutOfMemory,
        State::Deadline,
        State::Requeued,
    ];
    if words.iter().any(|w| w.eq_ignore_ascii_case("all")) {
        return Ok(None);
    }
    let one = |word: &String| {
        let is = |s: &State| s.names().0.eq_ignore_ascii_case(word) || s.names().1.eq_ignore_ascii_case(word);
        let names = || ALL.map(|s| s.names().0).join(", ");
        ALL.into_iter().find(is).ok_or_else(|| format!("`{word}` is no state: there are {}", names()))
    };
    words.iter().map(one).collect::<Result<Vec<_>, _>>().map(Some)
}

fn cell(l: &Line, expected: Option<u64>, letter: char) -> String {
    let task = l.id.split_once('_').map_or("N/A", |(_, task)| task);
    let ends = l.limit_ms.zip(l.started).map(|(limit, started)| started + limit);
    let left = l.limit_ms.map(|limit| limit.saturating_sub(l.ran_ms));
    match letter {
        'i' => l.id.clone(),
        'A' => l.number.to_string(),
        'F' => l.job.to_string(),
        'K' => task.to_owned(),
        'P' => l.partition.clone(),
        'j' => l.name.clone(),
        'u' => l.user.clone(),
        't' => l.state.names().1.into(),
        'T' => l.state.names().0.into(),
        'M' => times::show(Some(l.ran_ms)),
        'l' => times::show(l.limit_ms),
        'L' => times::show(left),
        'D' => l.node_count.to_string(),
        'C' => l.cpus.to_string(),
        'R' => place(l),
        'N' => l.nodes.join(","),
        'r' => if l.reason.is_empty() { "None" } else { &l.reason }.to_owned(),
        'S' => moment(l.started.or(expected)),
        'e' => moment(ends),
        'V' => moment(Some(l.submitted)),
        'a' => l.account.clone(),
        'q' => l.quality.clone().unwrap_or_else(|| "normal".into()),
        'Q' | 'p' => format!("{:.0}", l.priority),
        'm' => match l.memory.max(l.memory_per_cpu) {
            0 => "0".into(),
            memory => format!("{memory}M"),
        },
        'Z' => String::from_utf8_lossy(&l.directory.0).into_owned(),
        'k' => l.comment.clone(),
        'B' => l.nodes.first().cloned().unwrap_or_else(|| "n/a".into()),
        'y' => l.nice.to_string(),
        'n' => l.wanted.0.join(","),
        'x' => l.wanted.1.join(","),
        'b' => if l.gres.is_empty() { "N/A" } else { &l.gres }.to_owned(),
        'c' => l.cpus_per_rank.to_string(),
        'd' => moment(Some(l.eligible).filter(|at| *at > 0)),
        'E' => null(&l.dependency),
        'f' => null(&l.features.join(",")),
        'G' => l.restarts.to_string(),
        'h' => if l.exclusive { "NO" } else { "OK" }.to_owned(),
        'o' | 'W' | 'Y' => "(null)".into(),
        's' => l.ranks.to_string(),
        'U' => pando_kernel::rank::user(&l.user).map_or_else(|| l.user.clone(), |user| user.uid.to_string()),
        'v' => null(&l.reservation),
        'w' => null(&l.wckey),
        _ => String::new(),
    }
}

/// As Slurm writes that there is nothing.
fn null(text: &str) -> String {
    if text.is_empty() { "(null)".into() } else { text.to_owned() }
}

/// In the order of these columns' letters: `-p,i`; numbers as numbers.
fn sort(lines: &mut [Line], letters: &str) -> Result<(), String> {
    for word in letters.split(',').filter(|w| !w.is_empty()).rev() {
        let (down, letter) = word.strip_prefix('-').map_or((false, word), |letter| (true, letter));
        let letter = letter.trim_start_matches('+').chars().next().unwrap_or(' ');
        let known = || COLUMNS.map(|(letter, _)| letter).iter().collect::<String>();
        if !COLUMNS.iter().any(|(l, _)| *l == letter) {
            return Err(format!("--sort: `{word}` is no column here; there are {}", known()));
        }
        lines.sort_by(|a, b| {
            let (a, b) = (cell(a, None, letter), cell(b, None, letter));
            let order = match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => a.total_cmp(&b),
                _ => a.cmp(&b),
            };
            if down { order.reverse() } else { order }
        });
    }
    Ok(())
}

/// Steps that run, as `squeue -s` has them. `wanted`: those of these jobs, or these (`17.0`); all, if it is empty.
fn steps(lines: &[Line], wanted: &str, header: bool) {
    const HEAD: [&str; 6] = ["STEPID", "NAME", "PARTITION", "USER", "TIME", "NODELIST"];
    let row = |cells: [&str; 6]| {
        let [id, name, partition, user, time, nodes] = cells;
        println!("{}", plain(&format!("{id:>15} {name:>8.8} {partition:>9.9} {user:>8.8} {time:>9} {nodes}")));
    };
    if header {
        row(HEAD);
    }
    for line in lines {
        for step in line.steps.all.iter().filter(|step| step.end.is_none()) {
            let id = format!("{}.{}", line.id, step.number);
            let is = |w: &str| w == id || w == line.id || w == line.job.to_string();
            if wanted.is_empty() || wanted.split(',').any(is) {
                let time = times::show(Some(now().0.saturating_sub(step.began)));
                let nodes = step.nodes.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>().join(",");
                row([&id, &step.name, &line.partition, &line.user, &time, &nodes]);
            }
        }
    }
}

/// The lines that an option means.
fn meant(client: &Client, options: &QueueOptions) -> Result<Vec<Line>, String> {
    let states = states(&options.states)?;
    let jobs: Vec<Id> = match options.jobs.is_empty() {
        true => Vec::new(),
        false => ask(client, &Ask::Named(options.jobs.clone()))?,
    };
    let mut users = options.user.clone();
    users.extend(options.me.then(super::me));
    let mut lines: Vec<Line> = ask(client, &Ask::List)?;
    mark_down(client, &mut lines);
    if options.each {
        lines = lines.into_iter().flat_map(each).collect();
    }
    let has = |all: &[String], one: &String| all.is_empty() || all.contains(one);
    // Whoever names states means those that have ended, too.
    let shown = |l: &Line| match (&states, options.states.is_empty()) {
        (Some(states), false) => states.contains(&l.state),
        (None, _) => true,
        _ => options.all || !l.state.is_final(),
    };
    lines.retain(|l| {
        has(&users, &l.user)
            && has(&options.name, &l.name)
            && has(&options.partition, &l.partition)
            && has(&options.account, &l.account)
            && (options.qos.is_empty() || options.qos.contains(&cell(l, None, 'q')))
            && options.reservation.as_ref().is_none_or(|r| *r == l.reservation)
            && options.wckey.as_ref().is_none_or(|w| *w == l.wckey)
            && (options.nodelist.is_empty() || options.nodelist.iter().any(|n| l.nodes.contains(n)))
            && (jobs.is_empty() || jobs.iter().any(|id| is_of(l, *id)))
            && shown(l)
            && (!options.start || l.state == State::Pending)
    });
    Ok(lines)
}

/// Says of those that run which of their nodes is down.
fn mark_down(client: &Client, lines: &mut [Line]) {
    let Ok(known) = client.get::<Vec<Node>>("/v1/nodes") else { return };
    let down: BTreeSet<&str> = known.iter().filter(|n| n.state == Liveness::Down).map(|n| n.name.as_str()).collect();
    for line in lines.iter_mut().filter(|l| !l.state.is_final() && l.reason.is_empty()) {
        if let Some(node) = line.nodes.iter().find(|n| down.contains(n.as_str())) {
            line.reason = format!("node {node} is down");
        }
    }
}

/// Where it runs, and what is in its way.
pub fn place(l: &Line) -> String {
    let reason = if l.reason.is_empty() { String::new() } else { format!("({})", l.reason) };
    [l.nodes.join(","), reason].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A line of this job; of a task that waits with others, too.
pub fn is_of(l: &Line, id: Id) -> bool {
    l.job == id.job && id.task.is_none_or(|task| tasks(l).is_none_or(|all| all.iter().any(|t| t.task == Some(task))))
}

/// The tasks of a line, if it is of an array: `17_[1-3,7]`.
fn tasks(l: &Line) -> Option<Vec<Id>> {
    let (_, set) = l.id.split_once('_')?;
    let set = set.trim_start_matches('[').trim_end_matches(']');
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    let all = set.split(',').filter_map(range).flatten();
    Some(all.map(|task| Id { job: l.job, task: Some(task) }).collect())
}

/// A line for each of its tasks.
fn each(line: Line) -> Vec<Line> {
    match tasks(&line) {
        Some(tasks) => tasks.into_iter().map(|id| Line { id: id.to_string(), ..line.clone() }).collect(),
        None => vec![line],
    }
}

/// `pando queue`, once or again and again.
pub fn queue(client: &Client, options: &QueueOptions) -> Ended {
    if options.keeper {
        let all: Cluster = ask(client, &Ask::Cluster)?;
        match options.json {
            true => print_json(&serde_json::json!({ "keeper": all.keeper }))?,
            false => println!("{}", all.keeper),
        }
        return Ok(0);
    }
    let Some(seconds) = options.iterate else { return show(client, options) };
    loop {
        println!("{}", moment(Some(now().0)));
        show(client, options)?;
        println!();
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn show(client: &Client, options: &QueueOptions) -> Ended {
    let mut lines = meant(client, options)?;
    let outside = if options.slurm { super::said_outside("SQUEUE_SORT") } else { None };
    if let Some(letters) = options.sort.as_ref().or(outside.as_ref()) {
        sort(&mut lines, letters)?;
    }
    if options.json {
        return print_json(&lines).map(|()| 0);
    }
    if let Some(wanted) = &options.steps {
        steps(&lines, wanted, !options.noheader);
        return Ok(0);
    }
    let from_environment = |name: &str| if options.slurm { super::said_outside(name) } else { None };
    let is_said = options.format.is_some() || options.columns.is_some() || options.start || options.long;
    let format = options.format.clone().or_else(|| from_environment("SQUEUE_FORMAT").filter(|_| !is_said));
    let named = options.columns.as_deref().map(super::columns::by_letters).transpose()?;
    // What the option -O says otherwise.
    let columns = from_environment("SQUEUE_FORMAT2").filter(|_| !is_said && format.is_none());
    let named = named.or(columns.as_deref().map(super::columns::by_letters).transpose()?);
    let format = match (named.as_ref().or(format.as_ref()), options.start, options.long, options.slurm) {
        (Some(format), ..) => format,
        (None, true, ..) => START,
        (None, _, true, _) => LONG,
        (None, _, _, true) => USUAL,
        _ => {
            super::shown::queue(&lines, options.noheader);
            return Ok(0);
        }
    };
    let known: String = COLUMNS.iter().map(|c| c.0).collect();
    let read = Format::read(format, &known)?;
    if !options.noheader {
        let name = |letter| COLUMNS.iter().find(|c| c.0 == letter).map_or("", |c| c.1).to_owned();
        println!("{}", read.line(name));
    }
    for line in &lines {
        let wants = read.has('S') && line.state == State::Pending;
        let shown: Option<Shown> = wants.then(|| ask(client, &Ask::Show(Id::of(line.job)))).transpose()?;
        let expected = shown.and_then(|s| s.expected).map(|at| at.max(now().0));
        println!("{}", read.line(|letter| cell(line, expected, letter)));
    }
    Ok(0)
}

/// `pando cancel`.
pub fn cancel(client: &Client, options: &CancelOptions) -> Ended {
    let signal = options.signal.as_deref().map(super::signal).transpose()?;
    let picks = options.state.is_some() || options.name.is_some() || options.partition.is_some() || options.me;
    let more = options.account.is_some() || options.qos.is_some() || options.reservation.is_some();
    let picks = picks || more || !options.nodelist.is_empty() || options.wckey.is_some();
    let jobs = all_jobs(&options.jobs);
    let steps = all_steps(&options.jobs);
    if !steps.is_empty() {
        let done = super::order(client, &Ask::CancelSteps { steps, signal })?;
        if jobs.is_empty() && !picks && options.user.is_none() {
            return Ok(done);
        }
    }
    // What stops, goes on or ends a job does so to all of it.
    let to_all = signal.is_some_and(|s| [libc::SIGKILL, libc::SIGSTOP, libc::SIGCONT, libc::SIGTSTP].contains(&s));
    let whom = match options.batch {
        true => Whom::Script,
        false if options.slurm && !options.full && !to_all => Whom::Steps,
        false => Whom::All,
    };
    let mut what = Ask::Cancel { ids: jobs.clone(), user: options.user.clone(), signal, whom };
    if picks {
        let mine = options.user.is_none() && jobs.is_empty();
        let chosen = QueueOptions {
            user: options.user.iter().cloned().chain((mine || options.me).then(super::me)).collect(),
            jobs,
            states: options.state.iter().cloned().collect(),
            name: options.name.iter().cloned().collect(),
            partition: options.partition.iter().cloned().collect(),
            account: options.account.iter().cloned().collect(),
            qos: options.qos.iter().cloned().collect(),
            reservation: options.reservation.clone(),
            nodelist: options.nodelist.clone(),
            wckey: options.wckey.clone(),
            ..QueueOptions::default()
        };
        let lines: Vec<Line> = meant(client, &chosen)?.into_iter().filter(|l| !l.state.is_final()).collect();
        let ids = lines.iter().flat_map(|l| tasks(l).unwrap_or_else(|| vec![Id::of(l.job)]));
        what = Ask::Cancel { ids: ids.collect(), user: None, signal, whom };
    }
    let done: Done = ask(client, &what)?;
    if !options.quiet {
        done.refused.iter().for_each(|why| eprintln!("pando: {}", plain(why)));
    }
    Ok(i32::from(!done.refused.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_by_name() {
        let read = |text: &str| states(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(read("PD,running"), Ok(Some(vec![State::Pending, State::Running])));
        assert_eq!(read("all"), Ok(None));
        assert!(read("XX").unwrap_err().contains("`XX` is no state"));
    }
}
