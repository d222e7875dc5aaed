//! A simulator of Pando clusters: seeded, deterministic, 4 to 16,384 nodes in one process.
//!
//! It drives the daemon's own cores: [`pando_gossip::Gossip`] (membership and load windows) and [`pando_balance`]'s `spread`, `usher`,
//! `admit` and `place`. What is simulated is around them: clocks that run a little wrong, a network that delays, loses, doubles,
//! reorders and is cut, machines that share out their CPUs and thrash when memory is short, processes, and the messages of a move, each
//! of which may be the last before a crash. So what it says of protocols and policy is true of the daemon; what it says of seconds is as
//! good as `machine.rs` and `network.rs`.
//!
//! ```text
//! cargo run --release -p sim -- check --seeds 1000    # random faults over random work, invariants at every step
//! cargo run --release -p sim -- age                   # how old is what nodes know of each other, and theory
//! cargo run --release -p sim -- balance               # the papers' experiments and the best possible
//! cargo run --release -p sim -- burst                 # 1,024 processes begin on one node
//! cargo run --release -p sim -- launch                # a parallel job on up to 16,384 nodes, and nodes that die
//! cargo run --release -p sim -- jobs                  # months of batch jobs: FCFS, EASY and conservative backfill
//! cargo run --release -p sim -- failover              # the node that keeps their queue dies again and again, and another goes on
//! cargo run --release -p sim -- gang                  # total run time of two programs against quantum, as gangs and without
//! cargo run --release -p sim -- gang --work 20000     # jobs by chance through the gang matrix
//! ```
//!
//! One thread, one queue of events, all chance from the seed: a seed is a history, and one that fails is printed with the command that
//! plays it again.
//!
//! | File | What it is |
//! |---|---|
//! | `queue` | the clock, and what is still to happen |
//! | `network` | delays, losses, doubles, cuts, and what is sent |
//! | `machine` | what a machine does with its processes |
//! | `node` | one node: the cores and what a daemon has around them |
//! | `moves` | a move as messages between home, place and target |
//! | `running` | processes begin and end, loads are counted, the balancer looks |
//! | `faults` | what can go wrong, by name; when all must be right again |
//! | `world` | all of it together |
//! | `check`, `age`, `balance`, `burst`, `launch`, `jobs`, `failover`, `gang` | the commands |
//! | `places` | where batch jobs really compute, beside the queue's books |
//! | `lublin`, `swf` | work for the queue of batch jobs: a model, and recorded logs |
//! | `coschedule` | a model of two parallel programs on the same CPUs |
//! | `experiment` | the papers' experiments, which `pando bench balance` plays on real nodes |
//! | `ideal` | the best possible, computed |
//!
//! *Large clusters.* Membership in which everybody knows everybody is a list for each node: quadratic, and `foca` looks through it for
//! each piece of news. `check` and `age` run it (up to 1,024 nodes); above that, and above 256 nodes in `balance` and `burst`, each node
//! is told of 64 others by chance ([`Gossip::know`](pando_gossip::Gossip::know)) and membership is silent. Loads and balancing need no
//! more than that: who has 64 random acquaintances hears of everybody.

pub mod age;
pub mod balance;
mod burst;
mod check;
pub mod cli;
mod coschedule;
pub mod experiment;
mod failover;
mod faults;
mod gang;
mod gang_guests;
pub mod ideal;
mod jobs;
pub mod launch;
mod lublin;
mod machine;
mod moves;
mod network;
mod node;
mod places;
mod queue;
mod running;
mod swf;
pub mod table;
mod told;
mod world;
