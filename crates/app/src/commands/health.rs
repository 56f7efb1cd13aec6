//! `aivideo health`: asks a process whether it is ready, where there is no other client to ask with.

use std::{io::Write, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use fetch::{Fetch, FetchConfig, Limits, Request, SendGuard};
use url::Url;

use crate::{cli::HealthArgs, commands::environment, config::Config, listen::reachable};

const LIMITS: Limits = Limits {
    total: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    bytes_max: 1 << 20,
    redirects_max: 0,
};

pub(super) async fn health(file: Option<&Path>, args: HealthArgs) -> anyhow::Result<ExitCode> {
    let url = match args.url {
        Some(url) => url,
        // What is asked may run on a configuration that is incomplete here, so only the address is looked at.
        None => format!("http://{}/readyz", reachable(Config::read(file, environment())?.http.addr)),
    };
    let answer = ask(&url).await.with_context(|| format!("{url} does not answer"))?;
    writeln!(std::io::stdout(), "{}", String::from_utf8_lossy(&answer.body).trim_end())
        .context("cannot print")?;
    if answer.status.is_success() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("aivideo: {url} answers {}", answer.status);
    Ok(ExitCode::FAILURE)
}

async fn ask(url: &str) -> anyhow::Result<fetch::Response> {
    let parsed = Url::parse(url).context("this is no address")?;
    let (Some(host), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
        bail!("this address names no host and port");
    };
    // The caller's own choice, on the caller's own machine.
    let config = FetchConfig { private_hosts: vec![format!("{host}:{port}")], ..FetchConfig::default() };
    let request = Request {
        method: http::Method::GET,
        url,
        headers: http::HeaderMap::new(),
        body: Default::default(),
        guard: SendGuard::open(),
    };
    Ok(Fetch::new(config)?.request(request, LIMITS).await?)
}
