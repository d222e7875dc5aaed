//! `pando gang`: who takes turns with whom.

use crate::cluster::Done;
use pando_node::client::Client;
use pando_node::views::{GangJob, GangQuantum, GangStatus};

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
    println!("{} gangs; {turns}; ordered by {}", status.gangs.len(), status.manager);
    if !status.gangs.is_empty() {
        println!("{:<18}{:<12}{:<8}CPUS", "GANG", "HEAD", "ROWS");
    }
    status.gangs.iter().for_each(|gang| println!("{}", line(gang)));
    Ok(())
}

fn line(gang: &GangJob) -> String {
    let numbers = |all: &[u16]| all.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let rows = if gang.rows.is_empty() { "-".to_owned() } else { numbers(&gang.rows) };
    let at: Vec<String> = gang.nodes.iter().map(|(node, cpus)| format!("{node}:{}", numbers(cpus))).collect();
    format!("{:<18}{:<12}{:<8}{}", format!("{:016x}", gang.number), gang.head, rows, at.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_where_a_gang_runs_and_when() {
        let nodes = vec![("n1".to_owned(), vec![0, 1]), ("n2".to_owned(), vec![3])];
        let gang = GangJob { number: 0xab, head: "n1".into(), rows: vec![1, 0], nodes };
        assert_eq!(line(&gang), "00000000000000ab  n1          1,0     n1:0,1 n2:3");
        assert!(line(&GangJob { rows: Vec::new(), ..gang }).contains("n1          -"));
    }
}
