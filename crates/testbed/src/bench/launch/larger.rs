//! Clusters that are larger than this testbed: what the line through the measured times says of them, what the simulator does, and what STORM's authors published.

use super::fit::{Fit, LARGE};
use serde::Serialize;
use sim::launch::{Costs, Job, launch};

/// Sizes of the table.
const SIZES: [u32; 5] = [64, 256, 1024, 4096, LARGE as u32];
/// Children of a node, as delivered.
const ARITY: u8 = 8;
/// Bytes of the program.
const PROGRAM: u64 = 12 << 20;
/// Bytes a second of a slow and of a fast line.
pub const LINES: [u64; 2] = [120 << 20, 1200 << 20];
/// Milliseconds for 12 MB to all nodes, and their start, over QsNet, whose switches multicast: measured with 64, and the bound that was modelled for
/// the largest (Frachtenberg and others, STORM: Lightning-Fast Resource Management, SC 2002).
const STORM: [(u32, &str); 2] = [(64, "110"), (LARGE as u32, "under 150")];

/// Of one size, milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Larger {
    /// Nodes.
    pub nodes: u32,
    /// `true`, by the line through what was measured, if that is one.
    pub line_ms: Option<f64>,
    /// `true`, simulated: each node has a CPU for it.
    pub simulated_ms: f64,
    /// A program of 12 MB that no node has, with each of [`LINES`].
    pub program_ms: [f64; 2],
    /// STORM, as published.
    pub storm: Option<&'static str>,
}

/// All sizes.
pub fn all(fit: Option<&Fit>) -> Vec<Larger> {
    let fit = fit.filter(|fit| fit.holds());
    let of = |nodes| {
        let went = |program, bandwidth| {
            let costs = Costs { bandwidth, ..Costs::default() };
            launch(Job { nodes, arity: ARITY, program }, costs, None, 1).over
        };
        Larger {
            nodes,
            line_ms: fit.map(|fit| fit.of(nodes as usize)),
            simulated_ms: went(0, LINES[0]),
            program_ms: LINES.map(|line| went(PROGRAM, line)),
            storm: STORM.into_iter().find_map(|(size, ms)| (size == nodes).then_some(ms)),
        }
    };
    SIZES.into_iter().map(of).collect()
}
