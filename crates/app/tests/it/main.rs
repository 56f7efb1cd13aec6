//! What no single crate can test: the shape of the workspace, and the real binary as a process.

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
mod stalls;
mod streams;
