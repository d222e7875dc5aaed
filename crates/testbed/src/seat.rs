//! On which CPU of this machine a node sits that has no more than one.
//!
//! A share of CPU time says how much, not where: three processes of a node with half a CPU, on a machine with two, would be spread over both, and one of
//! them get twice as much as the others, since nothing waits for a CPU long enough to be moved. On a node with one CPU all get the same.

use crate::place::Shape;
/// The CPU of node `index`; none for a node that has more than one, or an unknown share. The largest shares are given out first, each to the CPU of which
/// least has been.
pub fn of(shape: &Shape, index: usize, cpus: &[usize]) -> Option<usize> {
    let share = |node: usize| shape.cpus_of(node).filter(|&share| share <= 1.0);
    let mut nodes: Vec<(usize, f64)> = (0..shape.nodes).filter_map(|node| Some((node, share(node)?))).collect();
    nodes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut given: Vec<(usize, f64)> = cpus.iter().map(|&cpu| (cpu, 0.0)).collect();
    for (node, share) in nodes {
        let (cpu, so_far) = given.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1))?;
        if node == index {
            return Some(*cpu);
        }
        *so_far += share;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(cpus: &[f64], nodes: usize, machine: &[usize]) -> Vec<Option<usize>> {
        let shape = Shape { nodes, cpus: cpus.to_vec(), ..Shape::default() };
        (0..nodes).map(|node| of(&shape, node, machine)).collect()
    }

    #[test]
    fn shares_are_spread_over_the_cpus_that_there_are() {
        assert_eq!(seats(&[0.5], 4, &[0, 1]), [Some(0), Some(1), Some(0), Some(1)]);
        // 0.8 and 0.2, 0.4 and 0.4 and 0.2.
        assert_eq!(seats(&[0.2, 0.4, 0.8, 0.4, 0.2], 5, &[3, 7]), [Some(3), Some(7), Some(3), Some(7), Some(7)]);
        assert_eq!(seats(&[2.0, 0.5], 2, &[0, 1]), [None, Some(0)]);
        assert_eq!((seats(&[], 1, &[0]), seats(&[0.5], 1, &[])), (vec![None], vec![None]));
    }
}
