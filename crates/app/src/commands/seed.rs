//! `aivideo seed`: a tenant to try a deployment with, the same as a demo's.

use std::{io::Write, path::Path};

use anyhow::Context;

use crate::{
    cli::SeedArgs,
    commands::load,
    compose::Stores,
    config::Needs,
    demo::{for_people, seed_in},
    listen::reachable,
    telemetry,
};

pub(super) async fn seed(file: Option<&Path>, args: SeedArgs) -> anyhow::Result<()> {
    let config = load(file, Needs::All)?;
    telemetry::start_logs(&config.log)?;
    let stores = Stores::open(&config).await?;
    let seed = seed_in(&args.data_dir, &stores, config.demo.credits).await?;
    let url = args.url.unwrap_or_else(|| format!("http://{}", reachable(config.http.addr)));
    let url = url.trim_end_matches('/');
    let text = if args.json {
        let mut line = serde_json::to_value(&seed)?;
        line["url"] = url.into();
        line.to_string()
    } else {
        for_people(url, &seed)
    };
    writeln!(std::io::stdout(), "{text}").context("cannot print")
}
