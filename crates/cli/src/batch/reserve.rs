//! Reservations: nodes that are for some users' jobs only, or for nobody's (maintenance), for a time.

use super::format::{plain, say};
use super::{Ended, ask, now, order};
use crate::args::ReserveOptions;
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::Ask;
use pando_node::views::Node;
use pando_queue::{Reservation, times};
use std::collections::BTreeSet;

/// As long as there are clocks.
const FOR_EVER: &str = "its end is not said: --duration 2:00:00 (as --time has it) or --end WHEN";

fn all(client: &Client) -> Result<Vec<Reservation>, String> {
    ask(client, &Ask::Reservations)
}

/// `pando reserve`.
pub fn reserve(client: &Client, options: &ReserveOptions) -> Ended {
    let Some(name) = &options.name else {
        let says = [&options.nodes, &options.start, &options.end, &options.duration].iter().any(|o| o.is_some());
        if says || !options.users.is_empty() {
            return Err("it needs a name: `pando reserve course --duration 2:00:00`".into());
        }
        return list(client, options.json);
    };
    if options.remove {
        return order(client, &Ask::Unreserve(name.clone()));
    }
    let nodes = options.nodes.as_deref().map_or(Ok(Vec::new()), crate::nodelist::expand)?;
    let (at, zone) = now();
    let when = |text: &Option<String>| text.as_ref().map(|text| times::moment(text, at, zone)).transpose();
    let begin = when(&options.start).map_err(|why| format!("--start: {why}"))?.unwrap_or(at);
    let end = when(&options.end).map_err(|why| format!("--end: {why}"))?;
    let lasts =
        options.duration.as_deref().map(times::limit).transpose().map_err(|why| format!("--duration: {why}"))?;
    // UNLIMITED is long enough.
    let lasts = lasts.map(|ms| begin.saturating_add(ms.unwrap_or(times::LONGEST)));
    let end = end.or(lasts).ok_or(FOR_EVER)?;
    make(client, Reservation { name: name.clone(), nodes, begin, end, users: options.users.clone() })
}

/// Stores it, if there are such nodes.
fn make(client: &Client, reservation: Reservation) -> Ended {
    let members: Vec<Node> = client.get("/v1/nodes").map_err(super::said)?;
    let known: BTreeSet<&String> = members.iter().map(|node| &node.name).collect();
    if let Some(node) = reservation.nodes.iter().find(|node| !known.contains(node)) {
        return Err(format!("there is no node {node}: `pando nodes` shows them"));
    }
    order(client, &Ask::Reserve(reservation))
}

fn state(of: &Reservation, at: u64) -> &'static str {
    match at {
        at if at >= of.end => "OVER",
        at if at >= of.begin => "ACTIVE",
        _ => "INACTIVE",
    }
}

fn list(client: &Client, json: bool) -> Ended {
    let all = all(client)?;
    if json {
        return print_json(&all).map(|()| 0);
    }
    let time = |ms| crate::events::local(ms);
    let row = |of: &Reservation| {
        let nodes = if of.nodes.is_empty() { "all".to_owned() } else { of.nodes.join(",") };
        let users = if of.users.is_empty() { "nobody (maintenance)".to_owned() } else { of.users.join(",") };
        vec![of.name.clone(), state(of, now().0).to_owned(), time(of.begin), time(of.end), nodes, users]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    print_table(&["NAME", "STATE", "BEGIN", "END", "NODES", "USERS"], &rows, usize::MAX);
    Ok(0)
}

/// `scontrol show reservation [NAME]`.
pub fn show(client: &Client, name: Option<&str>, json: bool) -> Ended {
    let all: Vec<Reservation> = all(client)?.into_iter().filter(|of| name.is_none_or(|name| of.name == name)).collect();
    match name {
        Some(name) if all.is_empty() => return Err(format!("there is no reservation {name}")),
        None if all.is_empty() && !json => say("No reservations in the system"),
        _ if json => return print_json(&all).map(|()| 0),
        _ => {}
    }
    for of in &all {
        let nodes = if of.nodes.is_empty() { "ALL".to_owned() } else { of.nodes.join(",") };
        let (users, flags) = match of.users.is_empty() {
            true => ("(null)".to_owned(), "MAINT"),
            false => (of.users.join(","), "SPEC_NODES"),
        };
        let (begin, end) = (super::list::moment(Some(of.begin)), super::list::moment(Some(of.end)));
        let lasts = times::show(Some(of.end.saturating_sub(of.begin)));
        say(&format!("ReservationName={} StartTime={begin} EndTime={end} Duration={lasts}", of.name));
        say(&format!(
            "   Nodes={} Users={} State={} Flags={flags}\n",
            plain(&nodes),
            plain(&users),
            state(of, now().0)
        ));
    }
    Ok(0)
}

/// `scontrol create|update reservation NAME=VALUE...` and `delete ReservationName=NAME`.
pub fn change(client: &Client, verb: &str, words: &[&str]) -> Ended {
    let is_kind = |w: &&&str| !["reservation", "res"].contains(&w.to_ascii_lowercase().as_str());
    let pairs = words.iter().filter(is_kind).map(|word| {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: write NAME=VALUE"))?;
        Ok((name.to_ascii_lowercase(), value))
    });
    let pairs = pairs.collect::<Result<Vec<(String, &str)>, String>>()?;
    let of = |names: &[&str]| pairs.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| *value);
    if let Some((name, _)) = pairs.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
        return Err(format!(
            "{name} of a reservation is not known here: there are StartTime, EndTime, Duration, Nodes, Users, Flags"
        ));
    }
    let name = of(&["reservationname", "reservation"]);
    if verb == "delete" {
        return order(client, &Ask::Unreserve(name.ok_or("say ReservationName=NAME")?.to_owned()));
    }
    let before = all(client)?;
    let was = name.and_then(|name| before.iter().find(|of| of.name == name));
    let name = match (verb, name, was) {
        ("create", Some(name), Some(_)) => {
            return Err(format!("there is a reservation {name} already: `scontrol update` changes it"));
        }
        ("update", name, None) => return Err(format!("there is no reservation {}", name.unwrap_or_default())),
        (_, Some(name), _) => name.to_owned(),
        // As Slurm names them.
        (_, None, _) => fresh(&before),
    };
    let mut made = was.cloned().unwrap_or_default();
    let (at, zone) = now();
    let when = |text: &str| times::moment(text, at, zone);
    let lasted = made.end.saturating_sub(made.begin);
    made.name = name;
    made.begin = of(&["starttime"]).map(when).transpose()?.unwrap_or(if was.is_some() { made.begin } else { at });
    let lasts = of(&["duration"]).map(times::limit).transpose()?.map(|ms| ms.unwrap_or(times::LONGEST));
    let lasts = lasts.or_else(|| was.map(|_| lasted));
    let end = of(&["endtime"]).map(when).transpose()?.or(lasts.map(|ms| made.begin.saturating_add(ms)));
    made.end = end.ok_or("say EndTime or Duration")?;
    if let Some(nodes) = of(&["nodes"]) {
        made.nodes = if nodes.eq_ignore_ascii_case("all") { Vec::new() } else { crate::nodelist::expand(nodes)? };
    } else if was.is_none() {
        return Err("say which Nodes (ALL for all)".into());
    }
    if let Some(users) = of(&["users"]) {
        made.users = users.split(',').filter(|user| !user.is_empty()).map(str::to_owned).collect();
    }
    let maintenance = of(&["flags"]).is_some_and(|flags| flags.to_ascii_lowercase().split(',').any(|f| f == "maint"));
    if made.users.is_empty() && !maintenance && was.is_none() {
        return Err("say whose jobs it is for (Users), or Flags=MAINT".into());
    }
    let called = made.name.clone();
    let done = make(client, made)?;
    if verb == "create" && done == 0 {
        say(&format!("Reservation created: {}", plain(&called)));
    }
    Ok(done)
}

/// What is known of a reservation. Of flags maintenance is: others change nothing here.
const KNOWN: [&str; 8] =
    ["reservationname", "reservation", "starttime", "endtime", "duration", "nodes", "users", "flags"];

fn fresh(all: &[Reservation]) -> String {
    let name = |number: usize| format!("resv_{number}");
    (1..=all.len() + 1).map(name).find(|name| !all.iter().any(|of| of.name == *name)).unwrap_or_default()
}
