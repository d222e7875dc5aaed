//! What launch times say of larger clusters.

use serde::Serialize;
use std::collections::BTreeSet;

/// The size for which the aim was set.
pub const LARGE: usize = 16_384;
/// A node hands a job on to so many others.
const FAN_OUT: f64 = 8.0;

/// A base, and what each level of the tree of nodes adds to it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fit {
    /// With one node.
    pub base_ms: f64,
    /// For each level.
    pub level_ms: f64,
    /// What that makes for 16,384 nodes.
    pub large_ms: f64,
    /// By so much the line misses what was measured, at most, of the largest that was measured: 0.1 is a tenth.
    pub off: f64,
    /// So many sizes were measured.
    pub sizes: usize,
}

impl Fit {
    /// Does the line say anything of other sizes? Where the nodes share CPUs times grow with their number, and no line over levels fits.
    pub fn holds(&self) -> bool {
        self.sizes > 2 && self.off <= 0.1
    }
}

/// The least squares over all (nodes, milliseconds); none where there are less than two sizes.
pub fn fit(points: &[(usize, f64)]) -> Option<Fit> {
    let levels = |nodes: usize| (nodes.max(1) as f64).log(FAN_OUT);
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(usize, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|p| levels(p.0)), mean(&|p| p.1));
    let over = mean(&|p| (levels(p.0) - x) * (p.1 - y));
    let square = mean(&|p| (levels(p.0) - x).powi(2));
    if !(square > 1e-12 && over.is_finite()) {
        return None;
    }
    let level_ms = over / square;
    let base_ms = y - level_ms * x;
    let at = |nodes: usize| base_ms + level_ms * levels(nodes);
    let most = points.iter().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
    let off = points.iter().map(|p| (at(p.0) - p.1).abs() / most).fold(0.0, f64::max);
    let sizes = points.iter().map(|p| p.0).collect::<BTreeSet<_>>().len();
    Some(Fit { base_ms, level_ms, large_ms: at(LARGE), off, sizes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let fit = fit(&[(1, 10.0), (8, 13.0), (64, 16.0)]).unwrap();
        assert!((fit.base_ms - 10.0).abs() < 1e-9 && (fit.level_ms - 3.0).abs() < 1e-9, "{fit:?}");
        // 14 levels of 2 are 14/3 of 8.
        assert!((fit.large_ms - 24.0).abs() < 1e-9 && fit.holds(), "{fit:?}");
    }

    #[test]
    fn what_lies_beside_the_line_counts_half_to_each_side() {
        let fit = fit(&[(1, 9.0), (1, 11.0), (8, 12.0), (8, 14.0)]).unwrap();
        assert!((fit.base_ms - 10.0).abs() < 1e-9 && (fit.level_ms - 3.0).abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn what_grows_with_the_nodes_is_no_line() {
        assert!(!fit(&[(1, 28.0), (16, 162.0), (64, 416.0)]).unwrap().holds());
        // Two points are on a line whatever they are.
        assert!(!fit(&[(1, 28.0), (16, 162.0)]).unwrap().holds());
    }

    #[test]
    fn one_size_makes_no_line() {
        assert!(fit(&[]).is_none() && fit(&[(16, 5.0)]).is_none() && fit(&[(16, 5.0), (16, 6.0)]).is_none());
    }
}
