//! `aivideo mock-provider`: the scripted fake provider as a process of its own.

use std::path::Path;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::{cli::MockProviderArgs, commands::environment, config::Config, signals, telemetry};

pub(super) async fn mock_provider(file: Option<&Path>, args: MockProviderArgs) -> anyhow::Result<()> {
    // It needs nothing of the platform's configuration but the form of its logs.
    let config = Config::read(file, environment())?;
    telemetry::start_logs(&config.log)?;
    let shutdown = signals::cancelled_by_signals()?;
    let listener = TcpListener::bind(args.http_addr)
        .await
        .with_context(|| format!("cannot listen on {}", args.http_addr))?;
    println!("mock provider: http://{}", listener.local_addr()?);
    let config = mock_provider::Config { state_file: args.state_file, ..mock_provider::Config::default() };
    mock_provider::serve(listener, config, shutdown.cancelled())
        .await
        .context("the mock provider could not run to its end and keep its jobs")?;
    Ok(())
}
