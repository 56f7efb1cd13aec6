//! The binary aivideo: configuration, roles, commands, telemetry, shutdown.
mod demo;
fn main() {}
