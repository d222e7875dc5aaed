//! `sinfo`: partitions and nodes as the queue has them.

use super::format::Format;
use super::{Ended, ask};
use crate::args::SinfoOptions;
use crate::show::print_json;
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Cluster, NodeUse, PartitionUse};
use pando_node::views::{Liveness, Node};
use pando_queue::gres::{Gres, SCRATCH, SCRATCH_HELD};
use pando_queue::times;

const USUAL: &str = "%9P %.5a %.10l %.6D %.6t %N";
const LONG: &str = "%9P %.5a %.10l %.6D %.11T %.6c %.8m %N";
const NODES: &str = "%N %.6D %.9P %6t";
const NODES_LONG: &str = "%N %.6D %.9P %11T %4c %.8m %.4J";
const SUMMARY: &str = "%9P %.5a %.10l %.15F %N";
const REASONS: &str = "%20E %9u %19H %N";
const COLUMNS: [(char, &str); 21] = [
    ('P', "PARTITION"),
    ('R', "PARTITION"),
    ('a', "AVAIL"),
    ('l', "TIMELIMIT"),
    ('D', "NODES"),
    ('t', "STATE"),
    ('T', "STATE"),
    ('N', "NODELIST"),
    ('n', "HOSTNAMES"),
    ('c', "CPUS"),
    ('m', "MEMORY"),
    ('C', "CPUS(A/I/O/T)"),
    ('G', "GRES"),
    ('f', "AVAIL_FEATURES"),
    ('e', "FREE_MEM"),
    ('E', "REASON"),
    ('F', "NODES(A/I/O/T)"),
    ('H', "TIMESTAMP"),
    ('u', "USER"),
    ('J', "JOBS"),
    ('s', "JOB_SIZE"),
];

/// The nodes of the queue, and those that are down.
pub fn cluster(client: &Client) -> Result<Cluster, String> {
    let mut all: Cluster = ask(client, &Ask::Cluster)?;
    let known: Vec<Node> = client.get("/v1/nodes").map_err(super::said)?;
    for node in known.into_iter().filter(|n| n.state == Liveness::Down) {
        // What the queue knows of it, or has known: nobody else remembers what one had that is down.
        let of_queue = all.nodes.iter().map(|n| &n.node).chain(&all.absent).find(|n| n.name == node.name && n.cpus > 0);
        let unknown = || pando_queue::Node { name: node.name.clone(), memory: node.memory >> 20, ..Default::default() };
        let had = of_queue.cloned().unwrap_or_else(unknown);
        all.nodes.retain(|n| n.node.name != node.name);
        all.partitions.iter_mut().for_each(|p| {
            let of = p.rules.nodes.is_empty() || p.rules.nodes.contains(&node.name);
            p.nodes.extend((of && !p.nodes.contains(&node.name)).then(|| node.name.clone()));
        });
        all.nodes.push(NodeUse { node: had, used: (0, 0), jobs: 0, state: "down".into(), drain: None });
    }
    // One that is open again may not have said so yet.
    let shut = all.nodes.iter_mut().filter(|n| ["down", "drained", "draining"].contains(&n.state.as_str()));
    shut.for_each(|n| n.drain = all.drains.remove(&n.node.name));
    all.nodes.sort_by(|a, b| a.node.name.cmp(&b.node.name));
    Ok(all)
}

/// As Slurm shortens them.
fn short(state: &str) -> &str {
    match state {
        "mixed" => "mix",
        "allocated" => "alloc",
        "drained" => "drain",
        "draining" => "drng",
        other => other,
    }
}

/// Why it takes no jobs, in the words of whoever drained it.
fn why(node: Option<&NodeUse>) -> String {
    match (node.and_then(|n| n.drain.as_ref()), node.map_or("", |n| n.state.as_str())) {
        (Some(drain), _) if !drain.reason.is_empty() => drain.reason.clone(),
        (_, "down") => "Not responding".into(),
        (Some(_), _) => "no reason was given".into(),
        // Its own user works there.
        (None, "drained" | "draining") => "its owner works there".into(),
        _ => "none".into(),
    }
}

fn cell(partition: &PartitionUse, nodes: &[&NodeUse], letter: char) -> String {
    let names: Vec<&str> = nodes.iter().map(|n| n.node.name.as_str()).collect();
    let state = nodes.first().map_or("n/a", |n| n.state.as_str());
    let drain = nodes.first().and_then(|n| n.drain.as_ref());
    let takes = |n: &&&NodeUse| ["idle", "mixed", "allocated"].contains(&n.state.as_str());
    let sum = |of: &dyn Fn(&NodeUse) -> u64| nodes.iter().map(|n| of(n)).sum::<u64>();
    let each = |of: &dyn Fn(&NodeUse) -> u64| {
        let (least, most) = (nodes.iter().map(|n| of(n)).min(), nodes.iter().map(|n| of(n)).max());
        format!("{}{}", least.unwrap_or(0), if least == most { "" } else { "+" })
    };
    match letter {
        'P' => format!("{}{}", partition.name, if partition.usual { "*" } else { "" }),
        'R' => partition.name.clone(),
        'a' => if partition.rules.closed { "down" } else { "up" }.into(),
        'l' => partition.rules.most_ms.map_or_else(|| "infinite".into(), |ms| times::show(Some(ms))),
        'D' => nodes.len().to_string(),
        't' => short(state).into(),
        'T' => state.into(),
        'N' | 'n' => names.join(","),
        'c' => each(&|n| n.node.cpus.into()),
        'm' => each(&|n| n.node.memory),
        'e' => each(&|n| n.node.memory.saturating_sub(n.used.1)),
        'J' => sum(&|n| n.jobs.into()).to_string(),
        'C' => {
            let (used, all) = (sum(&|n| n.used.0), sum(&|n| n.node.cpus.into()));
            let open: u64 = nodes.iter().filter(takes).map(|n| u64::from(n.node.cpus).saturating_sub(n.used.0)).sum();
            format!("{used}/{open}/{}/{all}", all.saturating_sub(used + open))
        }
        'F' => {
            let of = |states: &[&str]| nodes.iter().filter(|n| states.contains(&n.state.as_str())).count();
            let (busy, idle) = (of(&["mixed", "allocated", "draining"]), of(&["idle"]));
            format!("{busy}/{idle}/{}/{}", nodes.len() - busy - idle, nodes.len())
        }
        'G' => {
            let all = nodes.iter().flat_map(|n| &n.node.gres).map(|g| format!("{}:{}", g.kind, g.count));
            let all: std::collections::BTreeSet<String> = all.collect();
            if all.is_empty() { "(null)".into() } else { all.into_iter().collect::<Vec<_>>().join(",") }
        }
        'f' => {
            let all: std::collections::BTreeSet<&str> =
                nodes.iter().flat_map(|n| &n.node.features).map(String::as_str).collect();
            if all.is_empty() { "(null)".into() } else { all.into_iter().collect::<Vec<_>>().join(",") }
        }
        'E' => why(nodes.first().copied()),
        'H' => drain.map_or("Unknown".into(), |d| super::list::moment(Some(d.at).filter(|at| *at > 0))),
        'u' => drain.filter(|d| !d.by.is_empty()).map_or("Unknown".into(), |d| d.by.clone()),
        's' => "1-infinite".into(),
        _ => String::new(),
    }
}

/// `sinfo`, once or again and again.
pub fn sinfo(client: &Client, options: &SinfoOptions) -> Ended {
    let Some(seconds) = options.iterate else { return once(client, options) };
    loop {
        println!("{}", super::list::moment(Some(super::now().0)));
        once(client, options)?;
        println!();
        std::thread::sleep(std::time::Duration::from_secs(seconds));
    }
}

fn once(client: &Client, options: &SinfoOptions) -> Ended {
    let mut all = cluster(client)?;
    let is_shut = |n: &NodeUse| ["down", "drained", "draining"].contains(&n.state.as_str());
    all.nodes.retain(|n| (!options.reasons || is_shut(n)) && (!options.dead || n.state == "down"));
    let has = |list: &[String], one: &String| list.is_empty() || list.contains(one);
    all.partitions.retain(|p| has(&options.partition, &p.name));
    all.nodes.retain(|n| {
        has(&options.nodes, &n.node.name) && {
            let is = |state: &String| [n.state.as_str(), short(&n.state)].contains(&state.to_lowercase().as_str());
            options.states.is_empty() || options.states.iter().any(is)
        }
    });
    if options.json {
        return print_json(&all).map(|()| 0);
    }
    let outside = super::said_outside("SINFO_FORMAT")
        .filter(|_| !options.reasons && !options.summarize && !options.long && !options.each);
    let format = options.format.as_deref().or(outside.as_deref()).unwrap_or(match (options.each, options.long) {
        _ if options.reasons => REASONS,
        _ if options.summarize => SUMMARY,
        (false, false) => USUAL,
        (false, true) => LONG,
        (true, false) => NODES,
        (true, true) => NODES_LONG,
    });
    let known: String = COLUMNS.iter().map(|c| c.0).collect();
    let read = Format::read(format, &known)?;
    if !options.noheader {
        println!("{}", read.line(|letter| COLUMNS.iter().find(|c| c.0 == letter).map_or("", |c| c.1).to_owned()));
    }
    for partition in &all.partitions {
        let mine: Vec<&NodeUse> = all.nodes.iter().filter(|n| partition.nodes.contains(&n.node.name)).collect();
        // Nodes that differ in nothing that is shown are one line.
        let mut groups: Vec<Vec<&NodeUse>> = Vec::new();
        for node in mine {
            match groups.iter_mut().find(|g| {
                !options.each && (options.summarize || (&g[0].state, &g[0].drain) == (&node.state, &node.drain))
            }) {
                Some(group) => group.push(node),
                None => groups.push(vec![node]),
            }
        }
        if groups.is_empty()
            && !options.reasons
            && !options.dead
            && options.nodes.is_empty()
            && options.states.is_empty()
        {
            groups.push(Vec::new());
        }
        for group in groups {
            println!("{}", read.line(|letter| cell(partition, &group, letter)));
        }
    }
    Ok(0)
}

/// Why no nodes of this cluster could ever run it, as far as can be seen from here.
pub fn impossible(client: &Client, request: &pando_queue::Request) -> Option<String> {
    let all: Vec<Node> = client.get("/v1/nodes").ok()?;
    let known: Vec<&Node> = all.iter().filter(|n| n.memory > 0 && !request.excluded.contains(&n.name)).collect();
    if let Some(name) = request.wanted.iter().find(|name| !all.iter().any(|n| n.name == **name)) {
        return Some(format!("there is no node {name} (--nodelist)"));
    }
    let cpus = |n: &Node| (n.cpus.floor() as u32).max(1);
    let each = request.cpus_per_rank.max(1);
    let (most_cpus, most_memory) =
        (known.iter().map(|n| cpus(n)).max().unwrap_or(0), known.iter().map(|n| n.memory >> 20).max().unwrap_or(0));
    if each > most_cpus {
        return Some(format!("no node has {each} CPUs (--cpus-per-task): the largest has {most_cpus}"));
    }
    if request.memory > most_memory {
        return Some(format!("no node has {} MB of memory (--mem): the largest has {most_memory}", request.memory));
    }
    if let Some(why) = lacks(client, request) {
        return Some(why);
    }
    let takes = |n: &&&Node| cpus(n) >= each && n.memory >> 20 >= request.memory;
    let fit: Vec<u32> = known.iter().filter(takes).map(|n| cpus(n) / each).collect();
    let nodes = request.least_nodes();
    if (fit.len() as u64) < u64::from(nodes) {
        return Some(format!("it wants {nodes} nodes (--nodes), and there are {}", fit.len()));
    }
    let (wanted, room) = (u64::from(request.least_ranks()), fit.iter().map(|n| u64::from(*n)).sum::<u64>());
    (wanted > room).then(|| {
        format!("it wants {} CPUs (--ntasks), and there are {}", wanted * u64::from(each), room * u64::from(each))
    })
}

/// Generic resources, features and licences that it wants, and that no node, or the cluster, has so many of.
fn lacks(client: &Client, request: &pando_queue::Request) -> Option<String> {
    if request.gres.is_empty() && request.features.is_empty() && request.licences.is_empty() {
        return None;
    }
    let all: Cluster = ask(client, &Ask::Cluster).ok()?;
    missing(&all.nodes.iter().map(|n| &n.node).collect::<Vec<_>>(), &all.rules.licences, request)
}

/// Nodes where nobody but a job's helper sees to it that it takes no more scratch space than it has asked for.
pub fn counted(client: &Client, request: &pando_queue::Request) -> Vec<String> {
    let wants =
        request.gres.iter().any(|gres| gres.kind == SCRATCH) && !request.features.iter().any(|f| f == SCRATCH_HELD);
    let all: Option<Cluster> = wants.then(|| ask(client, &Ask::Cluster).ok()).flatten();
    let has = |node: &pando_queue::Node| node.gres.iter().any(|gres| gres.kind == SCRATCH);
    let held = |node: &pando_queue::Node| node.features.iter().any(|feature| feature == SCRATCH_HELD);
    let may = |name: &String| request.wanted.is_empty() || request.wanted.contains(name);
    let nodes = all.into_iter().flat_map(|all| all.nodes).map(|n| n.node);
    nodes.filter(|node| has(node) && !held(node) && may(&node.name)).map(|node| node.name).collect()
}

fn missing(nodes: &[&pando_queue::Node], licences: &[Gres], request: &pando_queue::Request) -> Option<String> {
    let count = |all: &[Gres], kind: &str| all.iter().filter(|g| g.kind == kind).map(|g| g.count).sum::<u32>();
    let features = request.features.iter().find(|f| !nodes.iter().any(|n| n.features.contains(f)));
    if let Some(feature) = features {
        return Some(format!("no node is said to have {feature} (--constraint)"));
    }
    let most = |kind: &str| nodes.iter().map(|n| count(&n.gres, kind)).max().unwrap_or(0);
    if let Some(gres) = request.gres.iter().find(|g| most(&g.kind) < g.count) {
        let most = match most(&gres.kind) {
            0 => "none has any".to_owned(),
            most => format!("the one with most has {most}"),
        };
        return Some(match gres.kind == SCRATCH {
            true => format!("no node has {gres} (--scratch, in megabytes): {most}"),
            false => format!("no node has {gres} (--gres): {most}"),
        });
    }
    let few = request.licences.iter().find(|l| count(licences, &l.kind) < l.count)?;
    Some(format!(
        "the cluster has {} of licence {} (--licenses), and it wants {}",
        count(licences, &few.kind),
        few.kind,
        few.count
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_queue::{Request, gres};

    #[test]
    fn what_no_node_has_is_said() {
        let node = |gres: &str, features: &[&str]| pando_queue::Node {
            gres: gres::read(gres).unwrap(),
            features: features.iter().map(|f| (*f).to_owned()).collect(),
            ..pando_queue::Node::default()
        };
        let nodes = [node("gpu:2", &["ssd"]), node("fpga:1", &["big"])];
        let nodes: Vec<&pando_queue::Node> = nodes.iter().collect();
        let licences = gres::read("solver:3").unwrap();
        let why = |gres: Option<&str>, features: &[&str], wanted: Option<&str>| {
            let read = |text: Option<&str>| text.map_or_else(Vec::new, |text| gres::read(text).unwrap());
            let features = features.iter().map(|f| (*f).to_owned()).collect();
            let request = Request { gres: read(gres), features, licences: read(wanted), ..Request::default() };
            missing(&nodes, &licences, &request).unwrap_or_default()
        };
        assert_eq!(why(Some("gpu:2"), &["ssd"], Some("solver:3")), "");
        assert_eq!(why(Some("gpu:3"), &[], None), "no node has gpu:3 (--gres): the one with most has 2");
        assert_eq!(why(Some("tape"), &[], None), "no node has tape:1 (--gres): none has any");
        assert_eq!(why(None, &["foo"], None), "no node is said to have foo (--constraint)");
        assert_eq!(
            why(None, &[], Some("solver:4")),
            "the cluster has 3 of licence solver (--licenses), and it wants 4"
        );
    }
}
