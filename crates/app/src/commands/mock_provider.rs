//! `aivideo mock-provider`: the scripted fake provider as a process of its own.

use std::path::Path;

use anyhow::Context;
use mock_provider::CallbackSecret;
use tokio::net::TcpListener;

use crate::{cli::MockProviderArgs, commands::environment, config::Config, signals, telemetry};

pub(super) async fn mock_provider(file: Option<&Path>, args: MockProviderArgs) -> anyhow::Result<()> {
    // Of the platform's configuration it needs the form of its logs, the secret that it shares with the platform, and
    // where that is to be called.
    let config = Config::read(file, environment())?;
    telemetry::start_logs(&config.log)?;
    let shutdown = signals::cancelled_by_signals()?;
    let listener = TcpListener::bind(args.http_addr)
        .await
        .with_context(|| format!("cannot listen on {}", args.http_addr))?;
    println!("mock provider: http://{}", listener.local_addr()?);
    let secret = config.mock_callback_secret().map(|secret| {
        CallbackSecret::parse(secret.reveal()).context("providers.mock.callback_secret is no such secret")
    });
    let platform =
        config.callbacks_url().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    let config = mock_provider::Config {
        state_file: args.state_file,
        callback_secret: secret.transpose()?,
        callback_hosts: platform.map(|(host, port)| format!("{host}:{port}")).into_iter().collect(),
        ..mock_provider::Config::default()
    };
    mock_provider::serve(listener, config, shutdown.cancelled())
        .await
        .context("the mock provider could not run to its end and keep its jobs")?;
    Ok(())
}
