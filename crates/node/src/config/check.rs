//! What a value must be for the node to do what was meant: the sentence names the key, the value, and what to write instead. What
//! only looks wrong now, and may be right later, is said in the log.

use super::{Config, Fabric, Files};
use pando_migrate::message::MAX_THREADS;
use pando_wire::message::MAX_LOADS;
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// Times are handed to poll(2), which counts no more milliseconds.
const LONGEST_MS: u64 = i32::MAX as u64;

/// The first value that can't work.
pub(super) fn check(config: &Config) -> Result<(), String> {
    for (key, ms) in times(config) {
        if ms == 0 || ms > LONGEST_MS {
            return Err(format!("{key} = {ms} is no time to wait: write milliseconds, from 1 to {LONGEST_MS}"));
        }
    }
    for (key, value, most, otherwise) in numbers(config) {
        if value == 0 || value > most {
            return Err(format!("{key} = {value}: write a number from 1 to {most}{otherwise}"));
        }
    }
    for (key, seconds) in
        [("[membership] forget_s", config.membership.forget_s), ("[tokens] valid_s", config.tokens.valid_s)]
    {
        if seconds == 0 {
            return Err(format!("{key} = 0 is no time: write seconds"));
        }
    }
    for (key, value) in [
        ("[load] cpus", config.load.cpus),
        ("[load] speed", config.load.speed),
        ("[guests] max_load", config.guests.max_load),
    ] {
        if let Some(value) = value.filter(|v| !v.is_finite() || *v <= 0.0) {
            return Err(format!("{key} = {value}: write a number above 0, or leave it out"));
        }
    }
    let m = &config.membership;
    if m.answer_ms > m.probe_ms / 2 {
        return Err(format!(
            "[membership] needs answer_ms <= probe_ms / 2, and has {} and {}",
            m.answer_ms, m.probe_ms
        ));
    }
    if m.window < m.tell_most {
        return Err(format!("[membership] needs tell_most <= window, and has {} and {}", m.tell_most, m.window));
    }
    multicast(&config.fabric)?;
    libfabric(&config.fabric)?;
    address("listen", &config.listen, true)?;
    config.metrics.listen.as_deref().map_or(Ok(()), |listen| address("[metrics] listen", listen, true))?;
    config.advertise.as_deref().map_or(Ok(()), |advertise| address("advertise", advertise, false))?;
    let load = [("[load] cgroup", &config.load.cgroup), ("[load] memory_cgroup", &config.load.memory_cgroup)];
    let queue = &config.queue;
    let hooks =
        [("[queue] prolog", &queue.prolog), ("[queue] epilog", &queue.epilog), ("[queue] mailer", &queue.mailer)];
    let paths = [("engine_program", &config.engine_program)].into_iter().chain(load).chain(hooks);
    for (key, path) in paths.filter_map(|(key, path)| Some((key, path.as_ref()?))) {
        if !path.is_absolute() {
            return Err(format!("{key} = {path:?}: write the whole path, from /"));
        }
    }
    for pattern in &config.owner.devices {
        let wrong = |why: &str| format!("[owner] devices has {pattern:?}: {why}");
        glob::Pattern::new(pattern).map_err(|e| wrong(e.msg))?;
        if !pattern.starts_with('/') {
            return Err(wrong("write the whole path, from / (\"/dev/pts/*\")"));
        }
    }
    for name in &config.guests.from {
        pando_wire::NodeName::parse(name).map_err(|e| format!("[guests] from has {name:?}: {e}"))?;
    }
    for name in &config.jobs.from {
        pando_wire::NodeName::parse(name).map_err(|e| format!("[jobs] from has {name:?}: {e}"))?;
    }
    config.node.check()?;
    queue.check()?;
    shared(&config.files)
}

/// Where large transfers are cast.
fn multicast(f: &Fabric) -> Result<(), String> {
    if f.multicast != "off" && f.group().is_none() {
        let text = "write GROUP:PORT with an IPv4 group, for example \"239.192.71.17:7118\", or \"off\"";
        return Err(format!("[fabric] multicast = {:?} is no group: {text}", f.multicast));
    }
    if f.datagram != 0 && !(576..=60_000).contains(&f.datagram) {
        let text = "write bytes, from 576 to 60000, or 0 for as many as fit into a packet";
        return Err(format!("[fabric] datagram = {}: {text}", f.datagram));
    }
    Ok(())
}

/// What carries large messages.
fn libfabric(f: &Fabric) -> Result<(), String> {
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || "_;-".contains(c);
    if f.libfabric.is_empty() || f.libfabric.len() > 64 || !f.libfabric.chars().all(of_a_name) {
        let text = "write one that `fi_info` shows, for example \"tcp\", or \"off\"";
        return Err(format!("[fabric] libfabric = {:?} is no provider: {text}", f.libfabric));
    }
    if f.libfabric.split(';').any(|part| part.eq_ignore_ascii_case("shm")) {
        let text = "with it a node that is killed can keep others in a call for ever: write \"tcp\", or your interconnect's provider";
        return Err(format!("[fabric] libfabric = {:?}: {text}", f.libfabric));
    }
    if f.libfabric_file.is_empty() || f.libfabric_file.contains('/') && !f.libfabric_file.starts_with('/') {
        let text = "write the library's name (\"libfabric.so.1\"), or the whole path, from /";
        return Err(format!("[fabric] libfabric_file = {:?}: {text}", f.libfabric_file));
    }
    Ok(())
}

fn times(config: &Config) -> impl Iterator<Item = (&'static str, u64)> {
    let (m, l, c) = (&config.membership, &config.limits, &config.connections);
    [
        ("[fabric] lost_after_ms", config.fabric.lost_after_ms),
        ("[jobs] lost_after_ms", config.jobs.lost_after_ms),
        ("[membership] probe_ms", m.probe_ms),
        ("[membership] answer_ms", m.answer_ms),
        ("[membership] suspect_ms", m.suspect_ms),
        ("[membership] tell_ms", m.tell_ms),
        ("[membership] oldest_ms", m.oldest_ms),
        ("[limits] lost_after_ms", l.lost_after_ms),
        ("[limits] connect_ms", l.connect_ms),
        ("[limits] prepare_ms", l.prepare_ms),
        ("[limits] freeze_ms", l.freeze_ms),
        ("[guests] prove_within_ms", config.guests.prove_within_ms),
        ("[connections] hello_within_ms", c.hello_within_ms),
        ("[connections] handshake_within_ms", c.handshake_within_ms),
        ("[connections] idle_ms", c.idle_ms),
        ("[connections] silence_ms", c.silence_ms),
        ("[connections] redial_ms", c.redial_ms),
        ("[moves] wait_ms", config.moves.wait_ms),
    ]
    .into_iter()
    .chain([("[load] every_ms", config.load.every_ms), ("[balance] oldest_ms", config.balance.oldest_ms)])
}

/// Keys that are at least 1, the most they may be, and what to do who wants none.
fn numbers(config: &Config) -> [(&'static str, u64, u64, &'static str); 12] {
    let (m, c, b) = (&config.membership, &config.connections, &config.balance);
    let many = u64::from(u32::MAX);
    [
        ("[membership] tell_whom", m.tell_whom as u64, many, ""),
        ("[membership] tell_most", m.tell_most as u64, MAX_LOADS as u64, ""),
        ("[jobs] arity", config.jobs.arity.into(), 64, ""),
        ("[limits] guest_threads", config.limits.guest_threads.into(), MAX_THREADS as u64, ""),
        ("[guests] max_unproved", config.guests.max_unproved.into(), many, " (to take no guests: [guests] max = 0)"),
        ("[connections] max_waiting", c.max_waiting.into(), many, ""),
        ("[connections] max_waiting_per_address", c.max_waiting_per_address.into(), many, ""),
        ("[connections] max_local_per_user", c.max_local_per_user.into(), many, ""),
        ("[connections] max_links", c.max_links.into(), many, ""),
        ("[balance] at_once", b.at_once as u64, many, " (to move nothing by itself: [balance] every_ms = 0)"),
        ("[balance] bandwidth", b.bandwidth, u64::MAX, ""),
        ("[balance] free_milli", b.free_milli.max(1).into(), 1000, ""),
    ]
}

/// `HOST:PORT`. Port 0, any that is free, is for listening only.
fn address(key: &str, text: &str, any_port: bool) -> Result<(), String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
    match port.filter(|port| *port != 0 || any_port) {
        Some(_) => Ok(()),
        None => Err(format!("{key} = {text:?} is no address: write ADDRESS:PORT, for example \"192.0.2.1:7117\"")),
    }
}

fn shared(files: &Files) -> Result<(), String> {
    let (mut names, mut directories) = (BTreeSet::new(), BTreeSet::new());
    for (entry, (name, directory)) in files.shared.iter().zip(files.shared_directories()) {
        let wrong = |what: &str| Err(format!("[files] shared has {entry:?}: {what}"));
        if !directory.starts_with('/') {
            return wrong("the directory must begin with / (\"/mnt/data\", or \"NAME=/mnt/data\")");
        }
        let plain = |c: Component| matches!(c, Component::RootDir | Component::Normal(_));
        let whole: std::path::PathBuf = Path::new(&directory).components().collect();
        if !Path::new(&directory).components().all(plain) || whole.as_os_str() != directory.as_str() {
            return wrong("files are known by their plain path: write the directory without `.`, `..` and `//`");
        }
        if name.is_empty() {
            return wrong("there is no name before the =");
        }
        if !names.insert(name.clone()) {
            return wrong(&format!(
                "the name {name:?} is there twice: leave one out, or give it another (\"NAME={directory}\")"
            ));
        }
        if !directories.insert(directory.clone()) {
            return wrong(&format!("the directory {directory:?} is there twice: leave one out"));
        }
    }
    Ok(())
}

/// What is not there yet, or not as it should be. The node works without it.
pub fn doubts(config: &Config) -> Vec<String> {
    let shared = config.files.shared_directories().into_iter().filter_map(|(_, directory)| {
        let path = Path::new(&directory);
        let doubt = match std::fs::canonicalize(path) {
            Err(e) => format!("it can't be looked at ({e}): until it is mounted, files in it are read at their home"),
            Ok(_) if !path.is_dir() => "it is no directory: nothing is read there; name a directory".into(),
            Ok(real) if real != path => {
                format!("it leads to {0}, by which name its files are known: write {0:?} instead", real.display())
            }
            Ok(_) => return None,
        };
        Some(format!("[files] shared has {directory:?}: {doubt}"))
    });
    let cgroup = config.load.cgroup.iter().filter(|dir| !dir.join("cgroup.procs").exists()).map(|dir| {
        format!("[load] cgroup = {dir:?} is no control group that can be read: this node will seem idle, with all of the machine")
    });
    shared.chain(cgroup).collect()
}
