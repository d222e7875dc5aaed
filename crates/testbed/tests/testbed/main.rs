//! Whole testbeds: real daemons in real namespaces. Most of it needs root and `ip`, and says SKIPPED otherwise.

mod bed;
mod demo;
mod faults;
mod remains;
