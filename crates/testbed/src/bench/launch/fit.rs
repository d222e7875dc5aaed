//! What launch times say of larger clusters.

use serde::Serialize;
use std::collections::BTreeSet;

/// The size for which the aim was set.
pub const LARGE: usize = 16_384;
/// A node hands a job on to so many others.
const FAN_OUT: f64 = 8.0;

/// A base, what each level of the tree of nodes adds to it, and what each node does because all of them share this machine's CPUs. In a cluster whose
/// nodes have CPUs of their own only the first two grow, and of the third there is one node's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fit {
    /// With one node, but for what that takes of the CPUs.
    pub base_ms: f64,
    /// For each level.
    pub level_ms: f64,
    /// For each node.
    pub node_ms: f64,
    /// What that makes for 16,384 nodes.
    pub large_ms: f64,
    /// By so much it misses what was measured, at most, of the largest that was measured: 0.1 is a tenth.
    pub off: f64,
    /// So many sizes were measured.
    pub sizes: usize,
}

impl Fit {
    /// Does it say anything of other sizes? Three numbers fit any three times.
    pub fn holds(&self) -> bool {
        self.sizes > 3 && self.off <= 0.1 && self.level_ms >= 0.0
    }

    /// For so many nodes that share no CPUs.
    pub fn of(&self, nodes: usize) -> f64 {
        self.base_ms + self.node_ms + self.level_ms * levels(nodes)
    }
}

fn levels(nodes: usize) -> f64 {
    (nodes.max(1) as f64).log(FAN_OUT)
}

/// The least squares over all (nodes, milliseconds); none where there are less than three sizes.
pub fn fit(points: &[(usize, f64)]) -> Option<Fit> {
    let row = |nodes: usize| [1.0, levels(nodes), nodes as f64];
    // The normal equations, each with its right side.
    let mut equations = [[0.0; 4]; 3];
    for (nodes, ms) in points {
        let row = row(*nodes);
        for (equation, factor) in equations.iter_mut().zip(row) {
            let terms = row.into_iter().chain([*ms]);
            equation.iter_mut().zip(terms).for_each(|(sum, term)| *sum += factor * term);
        }
    }
    let [base_ms, level_ms, node_ms] = solved(equations)?;
    let at = |nodes: usize| row(nodes).iter().zip([base_ms, level_ms, node_ms]).map(|(x, y)| x * y).sum::<f64>();
    let most = points.iter().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
    let off = points.iter().map(|p| (at(p.0) - p.1).abs() / most).fold(0.0, f64::max);
    let sizes = points.iter().map(|p| p.0).collect::<BTreeSet<_>>().len();
    let fit = Fit { base_ms, level_ms, node_ms, large_ms: 0.0, off, sizes };
    Some(Fit { large_ms: fit.of(LARGE), ..fit })
}

/// By elimination, the largest factor first.
fn solved(mut equations: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for at in 0..3 {
        let largest = (at..3).max_by(|a, b| equations[*a][at].abs().total_cmp(&equations[*b][at].abs()))?;
        equations.swap(at, largest);
        let own = equations[at];
        if !(own[at].abs() > 1e-9 && own[at].is_finite()) {
            return None;
        }
        for (_, other) in equations.iter_mut().enumerate().filter(|(i, _)| *i != at) {
            let factor = other[at] / own[at];
            other.iter_mut().zip(own).for_each(|(x, y)| *x -= factor * y);
        }
    }
    Some([0, 1, 2].map(|at| equations[at][3] / equations[at][at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 ms, 3 for each level, and half a millisecond for each node.
    fn made(sizes: &[usize]) -> Vec<(usize, f64)> {
        sizes.iter().map(|n| (*n, 10.0 + 3.0 * levels(*n) + 0.5 * *n as f64)).collect()
    }

    #[test]
    fn what_was_put_in_is_found_again() {
        let fit = fit(&made(&[1, 4, 16, 32, 64])).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(near(fit.base_ms, 10.0) && near(fit.level_ms, 3.0) && near(fit.node_ms, 0.5), "{fit:?}");
        // 14 levels of 2 are 14/3 of 8; each node has a CPU of its own.
        assert!(near(fit.large_ms, 24.5) && fit.holds(), "{fit:?}");
    }

    #[test]
    fn what_is_far_from_it_says_nothing() {
        let far = [(1, 10.0), (4, 90.0), (16, 20.0), (32, 95.0), (64, 100.0)];
        assert!(!fit(&far).unwrap().holds());
        // Three sizes fit whatever they are; and no level takes less than none.
        assert!(!fit(&made(&[1, 16, 64])).unwrap().holds());
        let falls = made(&[1, 4, 16, 64]).into_iter().map(|(n, ms)| (n, ms - 7.0 * levels(n)));
        assert!(!fit(&falls.collect::<Vec<_>>()).unwrap().holds());
    }

    #[test]
    fn fewer_than_three_sizes_make_none() {
        for sizes in [&[][..], &[16], &[1, 16], &[16, 16, 16, 1]] {
            assert!(fit(&made(sizes)).is_none(), "{sizes:?}");
        }
    }
}
