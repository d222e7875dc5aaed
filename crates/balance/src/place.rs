//! First placement: where a process that is about to begin begins.

use crate::cost::rate_of;
use crate::spread::has_room_to_grow;
use crate::{Other, Process, Settings, Standing, Vector};

/// A place, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The node; this one, too.
    pub node: String,
    /// For people.
    pub why: String,
}

/// The node where the process gets most done; this one, if none is clearly better. What is decided is noted in `others`.
pub fn place((name, here): (&str, &Vector), process: &Process, others: &mut [Other], settings: &Settings) -> Placed {
    let more = i64::from(process.demand_milli.max(1));
    let mine = match here.standing {
        Standing::Drained => 0.0,
        _ => rate_of(process, &here.with_demand(more), name, settings),
    };
    let fits = |o: &Other| {
        o.load.standing == Standing::Open
            && o.age_ms <= settings.oldest_ms
            && o.name != name
            && process.may_be_at(&o.name)
            && has_room_to_grow(process, o, settings)
    };
    let speed = |o: &Other| rate_of(process, &o.load.with_demand(more), &o.name, settings);
    let best = (0..others.len()).filter(|&i| fits(&others[i])).max_by(|&a, &b| {
        let (a, b) = (&others[a], &others[b]);
        speed(a).total_cmp(&speed(b)).then_with(|| a.load.free.cmp(&b.load.free))
    });
    let enough = 1.0 + f64::from(settings.gain_percent) / 100.0;
    match best {
        Some(to) if speed(&others[to]) > mine * enough => {
            let there = speed(&others[to]);
            others[to].load = others[to].load.with_demand(more).with_memory(process.will_need(settings) as i64);
            let why = format!("it gets {there:.2} of a CPU there, here {mine:.2}");
            Placed { node: others[to].name.clone(), why }
        }
        Some(to) => {
            let why = format!("it gets {mine:.2} of a CPU here, {:.2} at {}", speed(&others[to]), others[to].name);
            Placed { node: name.to_owned(), why }
        }
        None => Placed { node: name.to_owned(), why: "no other node that is known may take it".into() },
    }
}
