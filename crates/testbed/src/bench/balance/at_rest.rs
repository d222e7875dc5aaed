//! What daemons cost when nothing is to do: CPU time and memory, and the bytes of membership and loads, beside the simulator's.

use crate::error::{Error, Result};
use crate::place::{Plan, Shape};
use crate::{api, down, entry, sys, up};
use serde::Serialize;
use sim::table::Table;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After they have found each other: a daemon gives back what only its start needed half a minute after that.
const SETTLING: Duration = Duration::from_secs(40);
/// Watched for so long.
const WATCHED: Duration = Duration::from_secs(15);

/// Of one node, in a cluster of one size.
#[derive(Clone, Debug, Serialize)]
pub struct AtRest {
    /// Size of the cluster.
    pub nodes: usize,
    /// CPU time of the daemon, percent of one CPU: the mean, and the busiest node.
    pub cpu_percent: [f64; 2],
    /// Resident bytes: the mean, and the largest.
    pub resident: [f64; 2],
    /// Bytes of membership and loads that it sends in a second: the mean, and most.
    pub sent: [f64; 2],
    /// The simulator's figure for that, mean.
    pub simulated: f64,
}

/// Brings up such a cluster and watches it.
pub fn measure(nodes: usize) -> Result<AtRest> {
    let name = format!("bench-{}", std::process::id());
    let outcome = up::up(&name, Shape { nodes, ..Shape::default() }, true, None).and_then(|plan| watch(&plan));
    sys::clear_interrupt();
    let gone = down::down(&name);
    let found = outcome?;
    gone?;
    Ok(found)
}

/// Figures of a node, and when they were asked for.
type Seen = (Instant, BTreeMap<String, f64>);

fn watch(plan: &Plan) -> Result<AtRest> {
    pass(SETTLING)?;
    let before = look(plan)?;
    pass(WATCHED)?;
    let after = look(plan)?;
    let rate = |name: &str| -> Vec<f64> {
        let of = |(a, b): (&Seen, &Seen)| {
            let value = |seen: &Seen| seen.1.get(name).copied().unwrap_or(f64::NAN);
            (value(b) - value(a)) / b.0.duration_since(a.0).as_secs_f64()
        };
        before.iter().zip(&after).map(of).collect()
    };
    let cpu = rate("pando_daemon_cpu_seconds").into_iter().map(|s| s * 100.0).collect::<Vec<_>>();
    let resident: Vec<f64> =
        after.iter().map(|s| s.1.get("pando_daemon_resident_bytes").copied().unwrap_or(f64::NAN)).collect();
    let nodes = plan.shape.nodes;
    Ok(AtRest {
        nodes,
        cpu_percent: mean_and_most(&cpu),
        resident: mean_and_most(&resident),
        sent: mean_and_most(&rate("pando_gossip_sent_bytes_total")),
        simulated: sim::age::sent(nodes, 1, WATCHED.as_secs(), tell_ms(plan)?),
    })
}

fn pass(time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn look(plan: &Plan) -> Result<Vec<Seen>> {
    let figures = |node: String| Ok((Instant::now(), api::figures(&plan.socket(&node))?));
    plan.nodes().into_iter().map(figures).collect()
}

/// How often nodes tell their loads, as they are configured.
fn tell_ms(plan: &Plan) -> Result<u64> {
    let config = plan.config("n1");
    let text = entry::pando(plan, "n1", &["node", "--print-config", "--config", &config.to_string_lossy()])?;
    let value = text.lines().find_map(|l| l.strip_prefix("tell_ms = ")?.parse().ok());
    value.ok_or_else(|| Error::Other("the configuration has no tell_ms".into()))
}

fn mean_and_most(all: &[f64]) -> [f64; 2] {
    [all.iter().sum::<f64>() / all.len().max(1) as f64, all.iter().copied().fold(f64::NAN, f64::max)]
}

/// For people.
pub fn table(all: &[AtRest]) -> Table {
    let mut table = Table::new(&[
        "daemons at rest",
        "CPU %",
        "at most",
        "MB resident",
        "at most",
        "gossip bytes/s",
        "at most",
        "simulated",
    ]);
    for a in all {
        let mb = a.resident.map(|bytes| format!("{:.1}", bytes / f64::from(1 << 20)));
        let cpu = a.cpu_percent.map(|percent| format!("{percent:.2}"));
        let sent = a.sent.map(|bytes| format!("{bytes:.0}"));
        let simulated = format!("{:.0}", a.simulated);
        table.row(&[&a.nodes, &cpu[0], &cpu[1], &mb[0], &mb[1], &sent[0], &sent[1], &simulated]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_and_the_most() {
        assert_eq!(mean_and_most(&[1.0, 3.0, 2.0]), [2.0, 3.0]);
    }
}
