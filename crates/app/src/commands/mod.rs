//! One file per command.

pub(crate) mod admin;
mod audit;
pub(crate) mod bench;
mod check_config;
mod health;
pub(crate) mod migrate;
mod mock_provider;
mod openapi;
mod seed;

use std::{path::Path, process::ExitCode};

use crate::{
    cli::{Cli, Command},
    config::{Config, ConfigError, Needs},
};

/// Runs what was asked for.
///
/// # Errors
/// Whatever kept it from being done; the caller prints the chain.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // An orchestrator passes on what is not set as an empty text.
    let file = cli.config.as_deref().filter(|file| !file.as_os_str().is_empty());
    match cli.command {
        Command::Serve(args) => crate::serve::serve(file, args).await?,
        Command::Migrate => migrate::migrate(file).await?,
        Command::Demo(args) => crate::demo::demo(file, args).await?,
        Command::Seed(args) => seed::seed(file, args).await?,
        Command::MockProvider(args) => mock_provider::mock_provider(file, args).await?,
        Command::Openapi => openapi::openapi(),
        Command::CheckConfig => check_config::check_config(file)?,
        Command::Audit => return Ok(audit::audit(file).await),
        Command::Health(args) => return health::health(file, args).await,
        Command::Bench(args) => return bench::bench(file, args).await,
        Command::Admin(command) => admin::admin(file, command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration from the file and the process's environment.
pub(crate) fn load(file: Option<&Path>, needs: Needs) -> Result<Config, ConfigError> {
    Config::load(file, environment(), needs)
}

/// The environment as text. What is not Unicode is no setting of ours.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
