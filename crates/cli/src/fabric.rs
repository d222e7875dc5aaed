//! `pando fabric`: the three primitives by hand.

use crate::args::FabricVerb;
use crate::cluster::Done;
use pando_node::client::{Client, ClientError};
use pando_node::views::{
    Compare, Compared, FabricStatus, Libfabric, Multicast, Signalled, Strobe, StrobeRequest, Variable,
};
use std::io::{Read, Write};
use std::path::Path;

/// As of grep(1) and test(1): no is not an error.
const YES: i32 = 0;
const NO: i32 = 1;
const TROUBLE: i32 = 2;

/// How it ended.
type Ended = Result<i32, String>;

fn said(e: ClientError) -> String {
    e.to_string()
}

/// Does it; the exit status.
pub fn fabric(client: &Client, json: bool, verb: Option<FabricVerb>) -> i32 {
    let done = match verb {
        None => status(client, json).map(|()| YES),
        Some(FabricVerb::Found) => client.post::<(), ()>("/v1/fabric/found", &()).map(|()| YES).map_err(said),
        Some(FabricVerb::Xfer { region, file, on, offset, signal }) => {
            xfer(client, &region, file.as_deref(), on, offset, signal)
        }
        Some(FabricVerb::Get { region }) => get(client, &region),
        Some(FabricVerb::Test { event, wait }) => test(client, &event, wait),
        Some(FabricVerb::Compare { variable, comparison, value, write, on }) => {
            let question = Compare { on, variable, comparison, value, write };
            let answer = client.post::<_, Compared>("/v1/fabric/compare", &question);
            answer.map(|a| if a.held { YES } else { NO }).map_err(said)
        }
        Some(FabricVerb::Strobe { every, micro, event }) => strobe(client, json, every, micro, event),
        Some(FabricVerb::Load { variable }) => load(client, &variable),
        Some(FabricVerb::Store { variable, value }) => {
            let path = format!("/v1/fabric/variable/{}", quoted(&variable));
            client.post::<_, ()>(&path, &Variable { value }).map(|()| YES).map_err(said)
        }
    };
    done.unwrap_or_else(|text| {
        eprintln!("pando: {text}");
        TROUBLE
    })
}

/// As a part of a URL.
fn quoted(name: &str) -> String {
    let one = |b: u8| match b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
        true => char::from(b).to_string(),
        false => format!("%{b:02X}"),
    };
    name.bytes().map(one).collect()
}

fn status(client: &Client, json: bool) -> Done {
    let status: FabricStatus = client.get("/v1/fabric").map_err(said)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status).map_err(|e| e.to_string())?);
        return Ok(());
    }
    if status.epoch > 0 {
        println!("fabric   {}", status.founding);
        println!("view     {}", status.epoch);
        println!("manager  {}", status.manager);
        println!("members  {}: {}", status.members.len(), status.members.join(" "));
    }
    if status.strobe.period_us > 0 {
        println!("strobe   {}", in_words(&status.strobe));
    }
    if status.epoch > 0 {
        println!("casts    {}", cast_in_words(&status.multicast));
        println!("rails    {}", rails_in_words(&status.libfabric));
    }
    status.waits.iter().for_each(|why| println!("waits    {why}"));
    Ok(())
}

fn in_words(s: &Strobe) -> String {
    let ms = |us: u64| us as f64 / 1000.0;
    let off = s.off_us.map_or_else(String::new, |(half, most)| {
        format!(", off by less than {:.3} ms (half), {:.3} ms (99 %)", ms(half), ms(most))
    });
    let micro = match s.micro {
        0 => String::new(),
        n => format!(" and {n} times in between"),
    };
    let beats = match s.micro {
        0 => format!("{} beats", s.beats),
        _ => format!("{} beats, {} micro-heartbeats", s.beats, s.micro_beats),
    };
    let counts = format!("{beats}, {} late, {} lost, {} skipped", s.late, s.lost, s.skipped);
    format!("every {:.3} ms{micro}; {counts}{off}; longest gap {:.3} ms", ms(s.period_us), ms(s.longest_us))
}

fn rails_in_words(l: &Libfabric) -> String {
    let Some(provider) = &l.provider else {
        return format!("none: {}", l.off.as_deref().unwrap_or("no libfabric here"));
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let to = if l.to.is_empty() { "nobody now".into() } else { l.to.join(" ") };
    let not: String = l.not_to.iter().map(|(name, why)| format!("; not to {name}: {why}")).collect();
    let counts = format!("{:.1} MB sent, {:.1} MB came", mb(l.sent), mb(l.came));
    let bad = format!("{} messages too many, {} strange, {} forged", l.useless, l.strange, l.forged);
    format!("libfabric {provider}, to {to}{not}; {counts}; {bad}")
}

fn cast_in_words(m: &Multicast) -> String {
    let Some(group) = &m.group else {
        return format!("none: {}", m.off.as_deref().unwrap_or("no multicast here"));
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let heard = m.heard.map_or_else(String::new, |(all, some)| format!(", heard by {some} of {all}"));
    let deaf = if m.deaf.is_empty() { String::new() } else { format!("; deaf: {}", m.deaf.join(" ")) };
    let came = format!("{:.1} MB caught, {:.1} mended, {:.1} by tree", mb(m.caught), mb(m.mended), mb(m.tree));
    let bad = format!("{} datagrams too many, {} strange, {} forged", m.useless, m.strange, m.forged);
    format!("{group}, {} bytes each{heard}{deaf}; {:.1} MB cast, {came}; {bad}", m.piece, mb(m.cast))
}

fn strobe(client: &Client, json: bool, every: Option<f64>, micro: Option<u32>, event: Option<String>) -> Ended {
    if every.is_none() && event.is_none() {
        let status: FabricStatus = client.get("/v1/fabric").map_err(said)?;
        match json {
            true => println!("{}", serde_json::to_string_pretty(&status.strobe).map_err(|e| e.to_string())?),
            false => println!("{}", in_words(&status.strobe)),
        }
        return Ok(YES);
    }
    let request = StrobeRequest { period_us: every.map(|ms| (ms.max(0.0) * 1000.0) as u64), micro, event };
    client.post::<_, ()>("/v1/fabric/strobe", &request).map(|()| YES).map_err(said)
}

fn xfer(
    client: &Client,
    region: &str,
    file: Option<&Path>,
    on: Option<Vec<String>>,
    offset: u64,
    signal: Option<String>,
) -> Ended {
    let bytes = match file.filter(|f| *f != Path::new("-")) {
        Some(file) => std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?,
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|e| format!("standard input: {e}"))?;
            bytes
        }
    };
    let mut path = format!("/v1/fabric/transfer?region={}&offset={offset}", quoted(region));
    signal.iter().for_each(|event| path += &format!("&signal={}", quoted(event)));
    on.iter().for_each(|names| path += &format!("&on={}", quoted(&names.join(","))));
    client.send::<()>(&path, &bytes).map(|()| YES).map_err(said)
}

fn get(client: &Client, region: &str) -> Ended {
    let bytes = client.bytes(&format!("/v1/fabric/region/{}", quoted(region))).map_err(said)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes).and_then(|()| out.flush()).map_err(|e| format!("standard output: {e}"))?;
    Ok(YES)
}

fn test(client: &Client, event: &str, wait: Option<Option<f64>>) -> Ended {
    // Without a number: for as long as a request may take.
    let wait_ms = wait.map_or(0, |seconds| seconds.map_or(u64::from(u32::MAX), |s| (s.max(0.0) * 1000.0) as u64));
    let path = format!("/v1/fabric/event/{}?wait_ms={wait_ms}", quoted(event));
    let answer: Signalled = client.post(&path, &()).map_err(said)?;
    Ok(if answer.signalled { YES } else { NO })
}

fn load(client: &Client, variable: &str) -> Ended {
    let answer: Variable = client.get(&format!("/v1/fabric/variable/{}", quoted(variable))).map_err(said)?;
    println!("{}", answer.value);
    Ok(YES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_fits_into_a_url() {
        assert_eq!(quoted("job-7.start_x"), "job-7.start_x");
        assert_eq!(quoted("a/b?c=d&e %é"), "a%2Fb%3Fc%3Dd%26e%20%25%C3%A9");
    }
}
