//! The queue of batch jobs as a state machine without clock, file or process: what users ask for ([`Spec`]), how scripts say it
//! ([`directives`]), and who runs when and where ([`Queue`]).
//!
//! Something comes in ([`Input`]) with the time, and effects come out, to be done in their order. What is true for good changes by a
//! [`Record`] only; whoever drives the queue stores it before he does what follows, and [`Queue::restore`] makes the same queue of them.
//!
//! | File | What it is |
//! |---|---|
//! | `spec`, `bytes`, `gres`, `array`, `depend` | what is asked for |
//! | `times`, `sizes`, `words` | how people write things |
//! | `directives`, `options`, `pbs` | how scripts say it |
//! | `job`, `step`, `change`, `settings` | jobs; their steps; inputs, records and effects; rules |
//! | `book`, `queue`, `tick` | what is true; what changes it; what time does |
//! | `plan`, `earliest`, `pass` | what is free when; the first moment that will do; who starts |
//! | `yields`, `away` | who gives way to whom, and how; where those are that have moved |
//! | `priority`, `share` | who comes first |
//! | `explain` | why not yet |
#![warn(missing_docs)]

pub mod array;
mod away;
mod book;
mod bytes;
mod change;
pub mod depend;
pub mod directives;
mod earliest;
mod explain;
mod filled;
pub mod gres;
mod job;
pub mod options;
mod pass;
mod pbs;
mod plan;
mod priority;
mod queue;
mod settings;
mod share;
pub mod sizes;
mod spec;
mod step;
#[cfg(test)]
mod tests;
mod tick;
pub mod times;
#[cfg(test)]
mod trial;
mod words;
mod yields;

pub use away::{Away, Holds, Phase, Rooted};
pub use bytes::Bytes;
pub use change::{Change, Effect, Event, Input, Node, Outcome, Record, Reservation, Update};
pub use explain::{Explanation, Why};
pub use filled::{Filling, filled};
pub use job::{Asked, Cause, How, Id, Job, Run, Share, State, Usage};
pub use priority::Priority;
pub use queue::Queue;
pub use settings::{Partition, Policy, Preempt, Quality, Settings, Weights};
pub use spec::{Files, MOST_ENVIRONMENT, MOST_NICE, MOST_SCRIPT, Request, Spec, Tell, Warning, Work};
pub use step::{MOST_STEPS, Step, Steps};
