//! From options to what is asked of the queue.

use crate::nodelist;
use pando_queue::array::Array;
use pando_queue::depend::Dependency;
use pando_queue::gres::SCRATCH;
use pando_queue::{Bytes, Spec, Tell, Warning, gres, sizes, times};

/// What is for the command itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// The number and nothing else.
    pub parsable: bool,
    /// Nothing.
    pub quiet: bool,
    /// Wait for its end.
    pub wait: bool,
    /// Do not submit.
    pub test_only: bool,
    /// `--gpus`: of all nodes together.
    pub gpus: Option<String>,
    /// `--scratch`: megabytes.
    pub scratch: Option<u64>,
    /// `--propagate`: which of this process's limits the job is to have; all, if nothing is said.
    pub limits: Option<String>,
    /// `--export`.
    pub export: Option<String>,
    /// `--chdir`.
    pub chdir: Option<String>,
}

/// Slurm's words about things that are not here.
const HARMLESS: [&str; 42] = [
    "acctg-freq",
    "batch",
    "bell",
    "contiguous",
    "core-spec",
    "cores-per-socket",
    "cpu-bind",
    "cpu-freq",
    "cpus-per-gpu",
    "delay-boot",
    "distribution",
    "export-file",
    "extra-node-info",
    "get-user-env",
    "gpu-bind",
    "gpu-freq",
    "gpus-per-socket",
    "gres-flags",
    "hint",
    "ignore-pbs",
    "kill-on-invalid-dep",
    "mcs-label",
    "mem-bind",
    "network",
    "no-bell",
    "no-kill",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-socket",
    "oversubscribe",
    "power",
    "prefer",
    "priority",
    "profile",
    "sockets-per-node",
    "spread-job",
    "switches",
    "thread-spec",
    "threads-per-core",
    "time-min",
    "use-min-nodes",
    "wait-all-nodes",
];
/// Those that would be broken silently, and why they can't be heeded.
const REFUSED: [(&str, &str); 12] = [
    ("bb", "there is no burst buffer"),
    ("bbf", "there is no burst buffer"),
    ("cluster-constraint", "there is one cluster here"),
    ("container", "jobs run without containers; the script may start one"),
    ("gid", "a job runs as whoever submits it"),
    ("gpus-per-task", "--gpus-per-node says how many each node has"),
    ("immediate", "whoever does not want to wait says --deadline"),
    ("mem-per-gpu", "--mem says how much each node has"),
    ("mincpus", "--ntasks-per-node and --cpus-per-task say how many CPUs a node has"),
    ("reboot", "nodes are not booted for a job"),
    ("uid", "a job runs as whoever submits it"),
    ("clusters", "there is one cluster here"),
];
/// Limits of resources, by their numbers.
const LIMITS: [&str; 16] = [
    "CPU",
    "FSIZE",
    "DATA",
    "STACK",
    "CORE",
    "RSS",
    "NPROC",
    "NOFILE",
    "MEMLOCK",
    "AS",
    "LOCKS",
    "SIGPENDING",
    "MSGQUEUE",
    "NICE",
    "RTPRIO",
    "RTTIME",
];
/// Seconds before the end of a job's time, if nothing is said.
const WARNED_S: u64 = 60;

/// `[B:|R:]SIGNAL[@SECONDS]`
fn warning(text: &str) -> Result<Warning, String> {
    let (kinds, rest) = text.rsplit_once(':').unwrap_or(("", text));
    if !kinds.chars().all(|c| "BR".contains(c)) {
        return Err(format!("`{kinds}:` is not known: write B: for the script itself"));
    }
    let (name, seconds) = rest.split_once('@').map_or((rest, None), |(name, seconds)| (name, Some(seconds)));
    let seconds = seconds.map_or(Ok(WARNED_S), |s| s.parse().map_err(|_| format!("`{s}` is no number of seconds")))?;
    let before_ms = if seconds <= 65_535 { seconds * 1000 } else { return Err("65535 seconds are the most".into()) };
    Ok(Warning { signal: super::signal(name)?, before_ms, script: kinds.contains('B') })
}

/// What one option says. `now`: milliseconds since 1970, and how many seconds local time is ahead. The error is for people.
pub fn take(spec: &mut Spec, manner: &mut Manner, word: &str, now: (u64, i64)) -> Result<(), String> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let name = name.strip_prefix("--").unwrap_or(name);
    let text = value.unwrap_or("");
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("--{name}: `{text}` is no number"));
    let said = |why: String| format!("--{name}: {why}");
    let request = &mut spec.request;
    match name {
        "account" => spec.account = text.into(),
        "array" => spec.array = Some(Array::read(text).map_err(said)?),
        "begin" => spec.begin_at = Some(times::moment(text, now.0, now.1).map_err(said)?),
        "chdir" => manner.chdir = Some(text.into()),
        "comment" => spec.comment = text.into(),
        "constraint" => request.features = text.split([',', '&']).map(str::to_owned).collect(),
        "cpus-per-task" => request.cpus_per_rank = number(text)?,
        "deadline" => spec.deadline = Some(times::moment(text, now.0, now.1).map_err(said)?),
        "dependency" => spec.dependency = Dependency::read(text).map_err(said)?,
        "error" => spec.files.error = Some(Bytes::from(text)),
        "exclude" => request.excluded = nodelist::expand(text).map_err(said)?,
        "exclusive" => request.exclusive = true,
        "export" => manner.export = Some(text.into()),
        "gres" => request.gres = gres::read(text).map_err(said)?,
        "gpus-per-node" => request.gres = gres::read(&format!("gpu:{text}")).map_err(said)?,
        "gpus" => manner.gpus = Some(text.into()),
        "nodefile" => {
            let list = std::fs::read_to_string(text).map_err(|e| said(format!("{text}: {e}")))?;
            request.wanted = nodelist::expand(&list.split_whitespace().collect::<Vec<_>>().join(",")).map_err(said)?;
        }
        "wckey" => spec.wckey = text.into(),
        "hold" => spec.hold = true,
        "scratch" | "tmp" => manner.scratch = Some(sizes::megabytes(text).map_err(said)?),
        "propagate" => manner.limits = Some(text.into()),
        "input" => spec.files.input = Some(Bytes::from(text)),
        "job-name" => spec.name = text.into(),
        "licenses" => request.licences = gres::read(text).map_err(said)?,
        "mail-type" => mail_type(&mut spec.tell, text).map_err(said)?,
        "mail-user" => spec.tell.mail = Some(text.into()),
        "webhook" => spec.tell.webhook = Some(text.into()),
        "mem" => request.memory = sizes::megabytes(text).map_err(said)?,
        "mem-per-cpu" => request.memory_per_cpu = sizes::megabytes(text).map_err(said)?,
        "nice" => {
            spec.nice = value.map_or(Ok(100), |v| v.parse().map_err(|_| format!("--nice: `{v}` is no number")))?
        }
        "no-requeue" => spec.requeue = false,
        "requeue" => spec.requeue = true,
        "nodelist" => request.wanted = nodelist::expand(text).map_err(said)?,
        "nodes" => {
            let (least, most) = text.split_once('-').map_or((text, None), |(least, most)| (least, Some(most)));
            request.nodes_min = number(least)?;
            request.nodes_max = Some(most.map_or(Ok(request.nodes_min), number)?);
        }
        "ntasks" => request.ranks = Some(number(text)?),
        "ntasks-per-node" => request.ranks_per_node = Some(number(text)?),
        "open-mode" => spec.files.append = appends(text)?,
        "output" => spec.files.output = Some(Bytes::from(text)),
        "partition" => request.partition = Some(text.into()),
        "qos" => spec.quality = Some(text.into()),
        "reservation" => request.reservation = Some(text.into()),
        "time" => spec.limit_ms = times::limit(text).map_err(said)?,
        "parsable" => manner.parsable = true,
        "quiet" => manner.quiet = true,
        "test-only" => manner.test_only = true,
        "wait" => manner.wait = true,
        "signal" => spec.signal = Some(warning(text).map_err(said)?),
        // They change nothing here.
        "overcommit" | "verbose" => {}
        _ => return left(name),
    }
    Ok(())
}

/// Slurm's words that have no meaning here.
fn left(name: &str) -> Result<(), String> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(format!("--{name} can't be heeded: {why}"));
    }
    if !HARMLESS.contains(&name) {
        return Err(format!("--{name} is no option of `pando submit`"));
    }
    eprintln!("pando: --{name} means nothing here, and is left alone");
    Ok(())
}

/// `--open-mode`.
fn appends(text: &str) -> Result<bool, String> {
    match text {
        "append" => Ok(true),
        "truncate" => Ok(false),
        _ => Err("--open-mode: write append or truncate".into()),
    }
}

/// GPUs of all nodes together are so many of each, if it is known how many nodes there are.
pub fn gpus(request: &mut pando_queue::Request, text: Option<&str>) -> Result<(), String> {
    let Some(text) = text else { return Ok(()) };
    let (kind, number) = text.rsplit_once(':').map_or(("gpu".to_owned(), text), |(k, n)| (format!("gpu:{k}"), n));
    let all: u32 = number.parse().map_err(|_| format!("--gpus: `{number}` is no number"))?;
    let nodes = request.least_nodes();
    if request.nodes_max.is_some_and(|most| most != nodes) || !all.is_multiple_of(nodes) {
        return Err(format!("--gpus: {all} can't be shared out evenly to {nodes} nodes: say --gpus-per-node"));
    }
    // A job whose ranks may be anywhere has its GPUs at one node.
    request.nodes_max = Some(nodes);
    request.gres.extend(gres::read(&format!("{kind}:{}", all / nodes)).map_err(|why| format!("--gpus: {why}"))?);
    Ok(())
}

/// Scratch space is a generic resource, which nodes have so many megabytes of.
pub fn scratch(request: &mut pando_queue::Request, megabytes: Option<u64>) -> Result<(), String> {
    let Some(mb) = megabytes.filter(|mb| *mb > 0) else { return Ok(()) };
    let count = u32::try_from(mb).map_err(|_| "--scratch: no node has so much".to_owned())?;
    request.gres.retain(|gres| gres.kind != SCRATCH);
    request.gres.push(gres::Gres { kind: SCRATCH.into(), count });
    request.gres.sort();
    Ok(())
}

/// This process's limits of resources that a job is to have, as `--propagate` says. Those that are none are left out: the node's own hold then.
pub fn limits(wanted: Option<&str>) -> Result<Vec<(u32, u64, u64)>, String> {
    let mut all = pando_kernel::rank::limits();
    all.retain(|(_, soft, hard)| (*soft, *hard) != (u64::MAX, u64::MAX));
    let wanted = wanted.unwrap_or("ALL").to_ascii_uppercase();
    let mut kept: Vec<u32> = Vec::new();
    for word in wanted.split(',') {
        match word.strip_prefix("RLIMIT_").unwrap_or(word) {
            "ALL" | "" => return Ok(all),
            "NONE" => {}
            name => {
                let known = LIMITS.iter().position(|n| *n == name);
                kept.push(
                    known.ok_or_else(|| format!("--propagate: `{word}` is no limit: {}", LIMITS.join(", ")))? as u32
                );
            }
        }
    }
    all.retain(|(resource, _, _)| kept.contains(resource));
    Ok(all)
}

/// `BEGIN,END,FAIL`: Slurm's words.
fn mail_type(tell: &mut Tell, text: &str) -> Result<(), String> {
    for word in text.split(',') {
        match word.to_ascii_uppercase().as_str() {
            "NONE" => (tell.begin, tell.end, tell.fail, tell.requeue) = Default::default(),
            "BEGIN" => tell.begin = true,
            "END" => tell.end = true,
            "FAIL" => tell.fail = true,
            "REQUEUE" => tell.requeue = true,
            "ARRAY_TASKS" => tell.each_task = true,
            "ALL" => (tell.begin, tell.end, tell.fail, tell.requeue) = (true, true, true, true),
            // Each of them ends the job, and of that its user is told.
            "INVALID_DEPEND" | "TIME_LIMIT" => tell.fail = true,
            _ => return Err(format!("`{word}` is none of NONE, BEGIN, END, FAIL, REQUEUE, ALL and ARRAY_TASKS")),
        }
    }
    Ok(())
}

/// Who is told, where only half of it was said: the user himself, by mail; a URL, of the end.
pub fn whole(tell: &mut Tell, me: impl FnOnce() -> String) {
    let of_nothing = |tell: &Tell| !(tell.begin || tell.end || tell.fail || tell.requeue);
    if tell.webhook.is_some() && of_nothing(tell) {
        tell.end = true;
    }
    if tell.mail.is_none() && tell.webhook.is_none() && !of_nothing(tell) {
        tell.mail = Some(me());
    }
    if of_nothing(tell) {
        // As with Slurm an address alone wants nothing.
        *tell = Tell::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_queue::options::{OPTIONS, Takes};

    #[test]
    fn every_option_of_the_table_is_known() {
        for (name, _, takes) in OPTIONS {
            let (mut spec, mut manner) = (Spec::default(), Manner::default());
            let word = if takes == Takes::Nothing { format!("--{name}") } else { format!("--{name}=1") };
            if let Err(why) = take(&mut spec, &mut manner, &word, (0, 0)) {
                assert!(!why.contains("is no option"), "{why}");
            }
        }
    }

    #[test]
    fn who_is_told() {
        let told = |words: &[&str]| {
            let (mut spec, mut manner) = (Spec::default(), Manner::default());
            words.iter().for_each(|word| take(&mut spec, &mut manner, word, (0, 0)).unwrap());
            whole(&mut spec.tell, || "me".into());
            let Tell { mail, webhook, begin, end, fail, .. } = spec.tell;
            (mail.or(webhook).unwrap_or_default(), (begin, end, fail))
        };
        assert_eq!(told(&["--mail-type=begin,FAIL"]), ("me".into(), (true, false, true)));
        assert_eq!(told(&["--mail-type=END", "--mail-user=a@b"]), ("a@b".into(), (false, true, false)));
        assert_eq!(told(&["--mail-user=a@b"]), (String::new(), (false, false, false)));
        assert_eq!(told(&["--webhook=http://h/"]), ("http://h/".into(), (false, true, false)));
        let (mut spec, mut manner) = (Spec::default(), Manner::default());
        assert!(take(&mut spec, &mut manner, "--mail-type=SOMETIMES", (0, 0)).unwrap_err().contains("SOMETIMES"));
    }

    #[test]
    fn scratch_is_a_resource_whatever_comes_first() {
        let (mut spec, mut manner) = (Spec::default(), Manner::default());
        for word in ["--scratch=2G", "--gres=gpu:1", "--tmp=1G"] {
            take(&mut spec, &mut manner, word, (0, 0)).unwrap();
        }
        scratch(&mut spec.request, manner.scratch).unwrap();
        let shown: Vec<String> = spec.request.gres.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["gpu:1", "scratch:1024"]);
        assert!(take(&mut spec, &mut manner, "--scratch=lots", (0, 0)).unwrap_err().contains("lots"));
        assert!(scratch(&mut spec.request, Some(1 << 40)).is_err());
    }

    #[test]
    fn limits_go_along_as_they_are_asked_for() {
        let of = |text: &str| limits(Some(text)).unwrap().iter().map(|l| l.0).collect::<Vec<_>>();
        assert_eq!(limits(None), limits(Some("ALL")));
        assert!(of("NONE").is_empty());
        // Every process has one of open files.
        assert_eq!(of("NOFILE"), [7]);
        assert_eq!(of("rlimit_nofile,NONE"), [7]);
        assert!(limits(Some("FILES")).unwrap_err().contains("`FILES`"));
    }

    #[test]
    fn what_they_say() {
        let (mut spec, mut manner) = (Spec::default(), Manner::default());
        for word in ["--nodes=2-4", "--ntasks=8", "--mem=2G", "--time=1:30:00", "--array=1-9%2", "--nice", "--wait"] {
            take(&mut spec, &mut manner, word, (0, 0)).unwrap();
        }
        let request = &spec.request;
        assert_eq!((request.nodes_min, request.nodes_max, request.ranks, request.memory), (2, Some(4), Some(8), 2048));
        assert_eq!((spec.limit_ms, spec.nice, manner.wait), (Some(5_400_000), 100, true));
        let warned = |text| warning(text).map(|w| (w.signal, w.before_ms, w.script));
        assert_eq!((warned("B:USR1@30"), warned("10")), (Ok((10, 30_000, true)), Ok((10, 60_000, false))));
        assert!(warned("X:USR1").is_err() && warned("USR1@x").is_err() && warned("BOGUS").is_err());
        assert_eq!(take(&mut spec, &mut manner, "--nodes=x", (0, 0)), Err("--nodes: `x` is no number".into()));
    }
}
