//! The binary `aivideo`: configuration, roles, commands, telemetry, shutdown.
//!
//! `main` parses, assembles and runs; nothing is decided here that another crate could decide. Read [`cli`] for the
//! commands, [`config`] for what can be set, [`compose`] for how the crates are put together, [`demo`] for the
//! private servers of `aivideo demo`.

mod callbacks;
mod cli;
mod commands;
mod compose;
mod config;
mod demo;
mod health;
mod listen;
mod roles;
mod serve;
mod signals;
mod telemetry;
mod work_loop;

use std::process::ExitCode;

use clap::Parser;

/// Requests allocate many small things on one thread and free them on another, which the system's allocator does badly.
/// This one also keeps freed pages for some seconds, so that a steady load does not have the kernel clear them anew.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("aivideo: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(error) => {
            // The whole chain, once, for the person who started this.
            eprintln!("aivideo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
