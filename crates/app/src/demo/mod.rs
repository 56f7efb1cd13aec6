//! `aivideo demo`: the whole platform on one machine, with private servers and nothing to set up.
//!
//! PostgreSQL, Redis and the mock provider run as processes of their own, the roles in this one. Everything lies in
//! one folder, so a second start finds the same data, ids, keys and secrets, and a start after a crash finds the
//! servers that were left behind. Read [`services`] for the servers, [`place`] for the folder.

mod announce;
mod env_file;
mod mock;
mod place;
mod postgres;
mod process;
mod programs;
mod redis;
mod seed;
mod server_user;
mod services;

use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use catalogue::ProviderKind;
use serde::{Deserialize, Serialize};

pub(crate) use self::{announce::for_people, seed::seed_in};
use self::{
    place::Place,
    seed::Seed,
    services::{ServerPasswords, Services},
};
use crate::{
    cli::{DemoArgs, Role},
    commands::{environment, migrate},
    compose::Stores,
    config::{Config, ConfigError, LogConfig, Secret, StoreUrl},
    serve::{Listeners, Platform},
    signals, telemetry,
};

pub(crate) use self::{process::tail, programs::redis_server};

/// Ends the servers of a folder whose demo is gone, and returns where PostgreSQL's files lie if not in the folder.
///
/// # Errors
/// When the demo is not gone, or the folder cannot be read.
pub(crate) async fn end_servers(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let place = Place::take(folder)?;
    services::stop(&place).await;
    postgres::files_elsewhere(&place)
}

/// What the secret that the mock provider signs with is derived for.
const MOCK_CALLBACKS: &str = "demo-mock-provider-callbacks";

/// What must stay secret and stay the same.
#[derive(Serialize, Deserialize)]
struct Secrets {
    key: String,
    servers: ServerPasswords,
}

/// Runs the command until a signal.
pub(crate) async fn demo(file: Option<&Path>, args: DemoArgs) -> anyhow::Result<()> {
    let mut config = Config::read(file, environment())?;
    if std::env::var_os("RUST_LOG").is_none() && config.log.filter == LogConfig::default().filter {
        // A person looks at this; what went well is no news.
        "warn".clone_into(&mut config.log.filter);
    }
    telemetry::start_logs(&config.log)?;
    let metrics = telemetry::start_metrics()?;
    let shutdown = signals::cancelled_by_signals()?;

    let place = Place::take(&args.data_dir)?;
    let secrets = secrets(&place)?;
    prepare(&mut config, &args, &place, &secrets)?;
    let listeners = Listeners::bind(&config).await?;
    if config.callbacks_url().is_none() && args.roles.roles.contains(&Role::Api) {
        // Its own provider reaches it here; links stay paths, for whatever address people use.
        config.callbacks.url = Some(listeners.url()?.parse()?);
    }

    let started = tokio::select! {
        started = start(&place, &mut config, &secrets) => Some(started),
        () = shutdown.cancelled() => None,
    };
    let ran = match started {
        Some(Ok((services, stores, seed))) => {
            let run = async {
                let text = env_file::lines(&config, file, environment());
                let env_file = place.write_private("env", &text)?;
                let url = listeners.url()?;
                let demo_key = listeners.is_loopback().then(|| seed.api_key.clone());
                let platform =
                    Platform::build(&config, &stores, &args.roles.roles, metrics, demo_key).await?;
                announce::ready(args.json, &url, &seed, &services, &env_file)?;
                platform.run(listeners, shutdown).await;
                Ok(())
            };
            run.await
        }
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    services::stop(&place).await;
    ran
}

/// The secrets of the first start.
fn secrets(place: &Place) -> anyhow::Result<Secrets> {
    if let Some(secrets) = place.kept("secrets.json")? {
        return Ok(secrets);
    }
    let secrets =
        Secrets { key: hex::encode(rand::random::<[u8; 32]>()), servers: ServerPasswords::random() };
    place.keep("secrets.json", &secrets)?;
    Ok(secrets)
}

/// Fills in what only the demo knows, and refuses contradictions before anything is started. The addresses of the
/// servers are not known yet; for the check they are any.
fn prepare(config: &mut Config, args: &DemoArgs, place: &Place, secrets: &Secrets) -> anyhow::Result<()> {
    if let Some(addr) = args.http_addr {
        config.http.addr = addr;
    }
    if let Some(queue) = &args.queue {
        config.queue.url.clone_from(queue);
    }
    let assets = place.private_folder("assets")?;
    config.storage.url = url::Url::from_directory_path(&assets)
        .map_err(|()| anyhow::anyhow!("{} is no absolute folder", assets.display()))?
        .into();
    config.secrets.key = Secret::new(&secrets.key);
    config.secrets.previous_key = None;
    let signing = format!("whsec_{}", STANDARD.encode(config.secrets.derive(MOCK_CALLBACKS)));
    let mocks = config.providers.values_mut().filter(|provider| provider.kind == ProviderKind::Mock);
    // One that runs already knows no secret of ours, and is asked for no callbacks unless it was given one.
    for provider in mocks.filter(|provider| provider.url.is_none() && provider.callback_secret.is_none()) {
        provider.callback_secret = Some(Secret::new(&*signing));
    }
    set_servers(config, "postgres://127.0.0.1/aivideo", "redis://127.0.0.1", None);
    let faults = config.faults();
    if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults).into()) }
}

fn set_servers(config: &mut Config, database: &str, redis: &str, mock: Option<&str>) {
    config.database.url = StoreUrl::new(database);
    config.redis.url = StoreUrl::new(redis);
    config.redis.cache_url = None;
    config.redis.control_url = None;
    config.redis.realtime_url = None;
    if let Some(mock) = mock {
        let mocks = config.providers.values_mut().filter(|provider| provider.kind == ProviderKind::Mock);
        for provider in mocks.filter(|provider| provider.url.is_none()) {
            provider.url = Some(mock.to_owned());
        }
    }
}

/// Starts the servers, brings the database up to date and seeds it.
async fn start(
    place: &Place,
    config: &mut Config,
    secrets: &Secrets,
) -> anyhow::Result<(Services, Stores, Seed)> {
    let running = config.mock_provider_url().map(str::to_owned);
    let signing = config.mock_callback_secret().cloned();
    let services =
        services::start(place, &secrets.servers, &config.demo.postgres, running, signing.as_ref()).await?;
    let mock = services.mock_provider_url.as_str();
    set_servers(config, &services.database_url, &services.redis_url, Some(mock));
    migrate::run(&services.database_url).await?;
    let stores = Stores::open(config).await.context("cannot put the platform together")?;
    let seed = seed::ensure(place, &stores, config.demo.credits).await?;
    Ok((services, stores, seed))
}
