//! The file that lets a further process join the demo: `serve`, `audit`, `admin`, or the tests' own tools.

use std::{collections::BTreeMap, path::Path};

use crate::config::{Config, is_ours};

/// What another process must decide for itself: two cannot listen at one address.
const OWN: &[&str] = &["AIVIDEO_HTTP_ADDR", "AIVIDEO_ADMIN_ADDR", "AIVIDEO_CONFIG", "RUST_LOG"];

/// `KEY=value` lines without quoting: everything of ours that the demo was started with, and on top what it found out.
pub(super) fn lines(
    config: &Config,
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> String {
    let mut variables: BTreeMap<String, String> = environment
        .into_iter()
        .filter(|(name, value)| is_ours(name) && !OWN.contains(&name.as_str()) && !value.contains('\n'))
        .collect();
    // Each instance is the demo's one server, whatever the caller's environment says of others.
    for name in ["REDIS_CACHE_URL", "REDIS_CONTROL_URL", "REDIS_REALTIME_URL"] {
        variables.remove(name);
    }
    let mut set = |name: &str, value: &str| variables.insert(name.to_owned(), value.to_owned());
    set("DATABASE_URL", config.database.url.reveal());
    set("REDIS_URL", config.redis.url.reveal());
    set("QUEUE_URL", &config.queue.url);
    set("AIVIDEO_STORAGE_URL", &config.storage.url);
    set("AIVIDEO_SECRET_KEY", config.secrets.key.reveal());
    if let Some(url) = config.mock_provider_url() {
        set("AIVIDEO_MOCK_PROVIDER_URL", url);
    }
    if let Some(url) = &config.callbacks.url {
        set("AIVIDEO_CALLBACKS__URL", url.as_str());
    }
    if let Some(secret) = config.mock_callback_secret() {
        set("AIVIDEO_PROVIDERS__MOCK__CALLBACK_SECRET", secret.reveal());
    }
    if let Some(file) = file.and_then(|file| file.canonicalize().ok()) {
        set("AIVIDEO_CONFIG", &file.display().to_string());
    }
    variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Secret, StoreUrl};

    #[test]
    fn a_further_process_gets_what_it_needs_and_decides_its_address_itself() {
        let mut config = Config::default();
        config.database.url = StoreUrl::new("postgres://a:b@127.0.0.1:1/aivideo");
        config.secrets.key = Secret::new("k");
        let environment = [
            ("PATH", "/bin"),
            ("DATABASE_URL", "postgres://elsewhere"),
            ("REDIS_CACHE_URL", "redis://elsewhere"),
            ("AIVIDEO_HTTP_ADDR", "127.0.0.1:1"),
            ("AIVIDEO_SCHEDULER__RECONCILING_SECONDS", "7"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = lines(&config, None, environment);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&"DATABASE_URL=postgres://a:b@127.0.0.1:1/aivideo"), "{text}");
        assert!(lines.contains(&"AIVIDEO_SECRET_KEY=k"), "{text}");
        assert!(lines.contains(&"AIVIDEO_SCHEDULER__RECONCILING_SECONDS=7"), "{text}");
        for absent in ["PATH", "AIVIDEO_HTTP_ADDR", "REDIS_CACHE_URL"] {
            assert!(!text.contains(absent), "{text}");
        }
    }
}
