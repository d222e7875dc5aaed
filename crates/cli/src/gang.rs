//! `pando gang`: who takes turns with whom.

use crate::cluster::Done;
use crate::show::print_table;
use pando_node::client::Client;
use pando_node::views::{GangJob, GangQuantum, GangStatus};
use std::time::Duration;

/// Sets how long turns are, if that is said; else shows the matrix.
pub fn gang(client: &Client, quantum_ms: Option<f64>, json: bool) -> Done {
    if let Some(ms) = quantum_ms {
        if ms != 0.0 && !(0.1..=3_600_000.0).contains(&ms) {
            return Err(format!("--quantum {ms}: milliseconds, from 0.1 to an hour; 0 is as configured"));
        }
        let set = GangQuantum { quantum_us: (ms * 1000.0) as u64 };
        client.post::<_, ()>("/v1/gangs", &set).map_err(|e| e.to_string())?;
        match ms == 0.0 {
            true => println!("turns are as long as configured"),
            false => println!("turns take {ms} ms"),
        }
        return Ok(());
    }
    let status: GangStatus = client.get("/v1/gangs").map_err(|e| e.to_string())?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status).map_err(|e| e.to_string())?);
        return Ok(());
    }
    let turns = match status.rows {
        0 | 1 => "nobody takes turns".to_owned(),
        rows => format!("{rows} rows take turns of {} ms", status.quantum_us as f64 / 1000.0),
    };
    let counted = |n: usize| if n == 1 { "1 gang".to_owned() } else { format!("{n} gangs") };
    let waiting = match status.waiting.len() {
        0 => String::new(),
        1 => "; 1 waits".to_owned(),
        many => format!("; {many} wait"),
    };
    println!("{}{waiting}; {turns}; ordered by {}", counted(status.gangs.len()), status.manager);
    let rows: Vec<Vec<String>> = status.gangs.iter().chain(&status.waiting).map(row).collect();
    if !rows.is_empty() {
        print_table(
            &["JOB", "NAME", "USER", "FROM", "STATE", "LEVEL", "ROWS", "TURN", "SLOTS", "CPUS"],
            &rows,
            usize::MAX,
        );
    }
    Ok(())
}

fn row(gang: &GangJob) -> Vec<String> {
    let numbers = |all: &[u16]| all.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let at: Vec<String> = gang.nodes.iter().map(|(node, cpus)| format!("{node}:{}", numbers(cpus))).collect();
    // With nobody to share there are no turns.
    let slots = match gang.slots {
        (_, 0) => "-".to_owned(),
        (got, of) => format!("{got} of {of}"),
    };
    let turn = match gang.turn_us {
        0 => "-".to_owned(),
        us => format!("{} ms", us as f64 / 1000.0),
    };
    let state = match gang.standing.as_str() {
        "waits" => format!("waits {}", short(Duration::from_millis(gang.waited_ms))),
        other => other.to_owned(),
    };
    vec![
        gang.job.to_string(),
        or_none(gang.name.clone()),
        gang.user.clone(),
        gang.head.clone(),
        state,
        gang.level.to_string(),
        or_none(numbers(&gang.rows)),
        turn,
        slots,
        or_none(at.join(" ")),
    ]
}

/// `12s`, `3m`.
fn short(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds => format!("{}m", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_where_a_gang_runs_and_when() {
        let nodes = vec![("n1".to_owned(), vec![0, 1]), ("n2".to_owned(), vec![3])];
        let (job, name, user, head) = (7, "solve".to_owned(), "ann".to_owned(), "n1".to_owned());
        let (rows, slots, standing) = (vec![1, 0], (30, 40), "runs".to_owned());
        let gang = GangJob { job, name, user, head, rows, slots, standing, nodes, turn_us: 2500, ..GangJob::default() };
        assert_eq!(row(&gang).join("|"), "7|solve|ann|n1|runs|0|1,0|2.5 ms|30 of 40|n1:0,1 n2:3");
        let waits = GangJob { standing: "waits".into(), waited_ms: 75_000, job: 8, level: 2, ..GangJob::default() };
        assert_eq!(row(&waits).join("|"), "8|-|||waits 75s|2|-|-|-|-");
    }
}
