//! The binary aivideo: configuration, roles, commands, telemetry, shutdown.

fn main() {}
