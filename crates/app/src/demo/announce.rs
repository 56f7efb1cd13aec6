//! What the demo says when it is ready.

use std::{io::Write, path::Path};

use serde::Serialize;

use super::{seed::Seed, services::Services};

/// The one line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    api_key: &'a str,
    admin_key: &'a str,
    tenant_id: domain::TenantId,
    user_id: domain::UserId,
    mock_provider_url: &'a str,
    database_url: &'a str,
    redis_url: &'a str,
    env_file: &'a Path,
}

/// Prints it.
///
/// # Errors
/// When nobody reads our output any more.
pub(super) fn ready(
    json: bool,
    url: &str,
    seed: &Seed,
    services: &Services,
    env_file: &Path,
) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string(&Line {
            url,
            api_key: &seed.api_key,
            admin_key: &seed.admin_key,
            tenant_id: seed.tenant_id,
            user_id: seed.user_id,
            mock_provider_url: &services.mock_provider_url,
            database_url: &services.database_url,
            redis_url: &services.redis_url,
            env_file,
        })?
    } else {
        let env_file = env_file.display();
        format!(
            "AIVideo is ready.

{}

  env file   {env_file}  (for a further `aivideo serve`, `audit` or `admin`)

Ctrl-C stops everything and keeps the data.",
            for_people(url, seed)
        )
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Where the platform is and what it is opened with.
pub(crate) fn for_people(url: &str, seed: &Seed) -> String {
    let Seed { api_key, admin_key, .. } = seed;
    format!(
        "  console    {url}/
  API docs   {url}/docs
  API key    {api_key}
  admin key  {admin_key}

Make a video:

  curl -sS -i {url}/generations \\
    -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' \\
    -d '{{\"model\":\"mock-fast\",\"prompt\":\"a cat rides a bicycle on the moon\",\"duration_seconds\":5}}'"
    )
}
