//! In which row a job has room, and why in none.

use crate::cells::Grid;
use crate::fit::{Fit, Room};
use crate::matrix::Matrix;
use crate::table::MOST_JOBS;
use crate::wish::{Gang, Shape};

impl Matrix {
    /// Its row and CPUs, or whether it has none for ever, and why.
    ///
    /// Rows in which somebody runs come first: there nobody shares more than before. It avoids CPUs of higher levels, where it would stand still,
    /// and, if nobody shares more for it, those of lower ones, who would.
    pub(crate) fn choose(&self, gang: &Gang) -> Result<(usize, Fit), (bool, String)> {
        self.can(gang).map_err(|why| (true, why))?;
        if self.jobs.len() >= MOST_JOBS {
            return Err((false, format!("{MOST_JOBS} gangs are here already: it waits until one of them ends")));
        }
        let rows = usize::from(self.rules.rows);
        let (used, others): (Vec<usize>, Vec<usize>) =
            (0..rows.min(self.rows.len())).partition(|row| self.runs_in(*row));
        // Rows of those that stand still, and then one more.
        let fresh: Vec<usize> = others.into_iter().chain((self.rows.len() < rows).then_some(self.rows.len())).collect();
        let higher = self.level_cells(|level| level > gang.level);
        let lower = self.level_cells(|level| level < gang.level);
        let mut both = higher.clone();
        both.join(&lower);
        let none = Grid::new(both.0.len());
        let mut tries: Vec<(&[usize], &Grid)> = vec![(&used, &both), (&fresh, &both)];
        if !both.is_empty() {
            tries = vec![(&used, &both), (&used, &higher), (&fresh, &both), (&fresh, &higher)];
            // It stands still, or stops others.
            tries.extend([(used.as_slice(), &none), (&fresh, &none)]);
        }
        let (load, busy) = (self.load(), self.business());
        let found = tries.iter().find_map(|(rows, avoid)| self.best_of(rows, gang, avoid, (&load, &busy)));
        found.ok_or_else(|| (false, self.why_not_now(&gang.shape)))
    }

    /// Of these rows the one with the best place: the idlest nodes, the fewest, the least that is left over there, the fullest row.
    fn best_of(
        &self,
        rows: &[usize],
        gang: &Gang,
        avoid: &Grid,
        (load, busy): (&[u32], &[u32]),
    ) -> Option<(usize, Fit)> {
        let fits = rows.iter().filter_map(|&row| {
            let mut taken = avoid.clone();
            if let Some(grid) = self.rows.get(row).and_then(|levels| levels.get(&gang.level)) {
                taken.join(grid);
            }
            let free = &self.layout.all.without(&taken);
            let room = Room { layout: &self.layout, free, load, busy, packing: self.rules.packing };
            let fit = room.fit(&gang.shape)?;
            Some(((fit.busy, fit.places.len(), fit.leftover, free.count(), row), fit))
        });
        fits.min_by_key(|(key, _)| *key).map(|((.., row), fit)| (row, fit))
    }

    /// Would it fit if nobody else were here?
    fn can(&self, gang: &Gang) -> Result<(), String> {
        match &gang.shape {
            Shape::Fixed(wants) if wants.is_empty() => return Err("it asks for no CPU".into()),
            Shape::Fixed(wants) => {
                for (name, cpus) in wants {
                    let Some(node) = self.layout.node(name) else {
                        return Err(format!("{name}, which it asks for, is not here"));
                    };
                    let has = self.layout.nodes[node].cpus;
                    if *cpus == 0 {
                        return Err(format!("it asks for no CPU of {name}"));
                    }
                    if *cpus > has {
                        return Err(format!("it asks for {cpus} CPUs of {name}, which has {has}"));
                    }
                }
            }
            Shape::Free { ranks: 0, .. } | Shape::Free { cpus: 0, .. } => return Err("it asks for no CPU".into()),
            shape @ Shape::Free { among, .. } => {
                if let Some(name) = among.iter().find(|_| !among.iter().any(|n| self.layout.node(n).is_some())) {
                    return Err(format!("none of the nodes that it may have is here ({name} for one)"));
                }
                let (load, busy) = (vec![0; self.layout.all.0.len() * 64], vec![0; self.layout.nodes.len()]);
                let (free, load, busy) = (&self.layout.all, &load[..], &busy[..]);
                let room = Room { layout: &self.layout, free, load, busy, packing: self.rules.packing };
                if room.fit(shape).is_none() {
                    return Err(format!("there is no room for {} in {}", words(shape), self.size(among)));
                }
            }
        }
        Ok(())
    }

    fn why_not_now(&self, shape: &Shape) -> String {
        let rows = self.rules.rows;
        let rows =
            if rows == 1 { "other jobs are".into() } else { format!("in each of the {rows} rows other jobs are") };
        match shape {
            Shape::Fixed(wants) => {
                let some: Vec<String> =
                    wants.iter().take(3).map(|(node, n)| format!("{} of {node}", cpus(*n))).collect();
                let more =
                    if wants.len() > 3 { format!(" and CPUs of {} more", wants.len() - 3) } else { String::new() };
                format!("it asks for {}{more}, where {rows}: it waits until one of them ends", some.join(", "))
            }
            Shape::Free { .. } => {
                format!("there is no room now for {}: {rows} in the way, and one of them has to end", words(shape))
            }
        }
    }

    /// What there is.
    fn size(&self, among: &[String]) -> String {
        let nodes = self.layout.nodes.iter().filter(|node| among.is_empty() || among.contains(&node.name));
        let (mut count, mut sum, mut largest) = (0, 0, 0);
        for node in nodes {
            (count, sum, largest) = (count + 1, sum + u64::from(node.cpus), largest.max(node.cpus));
        }
        match count {
            0 => "a cluster without nodes".into(),
            1 => format!("1 node of {}", cpus(largest)),
            _ => format!("{count} nodes with {sum} CPUs, {largest} at most at one"),
        }
    }
}

fn cpus(count: u16) -> String {
    if count == 1 { "1 CPU".into() } else { format!("{count} CPUs") }
}

/// "8 ranks of 2 CPUs, at most 4 at a node".
fn words(shape: &Shape) -> String {
    let Shape::Free { ranks, cpus: each, nodes, among, per_node } = shape else { return String::new() };
    let mut words = format!("{ranks} {} of {}", if *ranks == 1 { "rank" } else { "ranks" }, cpus(*each));
    if let Some(most) = per_node {
        words += &format!(", at most {most} at a node,");
    }
    if let Some(most) = nodes {
        words += &format!(" on at most {most} {}", if *most == 1 { "node" } else { "nodes" });
    }
    if !among.is_empty() {
        words += &format!(" of the {} that it may have", among.len());
    }
    words
}
