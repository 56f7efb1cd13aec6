//! What no single crate can test: the shape of the workspace, and the real binary as a process.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod arrows;
mod bench;
mod callbacks;
mod chaos;
mod commands;
mod crashes;
mod demo;
mod faults;
mod harness;
mod observability;
mod processes;
mod skew;
mod stalls;
mod streams;
