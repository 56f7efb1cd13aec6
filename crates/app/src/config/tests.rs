//! What a configuration may say, and how it is refused.

use super::*;

const KEY: &str = "q8vY0uJc3mZlT5xWn7RkB2sHd9FpGaE1iVoXtLy4wCg=";

/// A complete environment, with changes.
fn environment(changes: &[(&str, &str)]) -> Vec<(String, String)> {
    let complete = [
        ("DATABASE_URL", "postgres://me:hunter2@db/aivideo"),
        ("REDIS_URL", "redis://:hunter2@redis:6379"),
        ("AIVIDEO_STORAGE_URL", "file:///srv/assets"),
        ("AIVIDEO_SECRET_KEY", KEY),
        ("AIVIDEO_MOCK_PROVIDER_URL", "http://127.0.0.1:9090"),
        ("PATH", "/bin"),
    ];
    let mut all: BTreeMap<_, _> = complete.into_iter().collect();
    all.extend(changes.iter().copied());
    all.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

fn load(changes: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(None, environment(changes), Needs::All)
}

/// The field of the only fault.
fn fault(changes: &[(&str, &str)]) -> String {
    let faults = load(changes).expect_err("it was taken").0;
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].field.clone()
}

#[test]
fn a_complete_environment_is_enough_and_the_figures_are_the_published_ones() {
    let config = load(&[]).unwrap();
    assert_eq!(config.http.addr.port(), 8080);
    assert_eq!(config.queue.url, "postgres");
    assert_eq!(config.tiers["free"].user.running, 1);
    let catalogue = config.to_catalogue();
    assert_eq!(catalogue.models.len(), 3);
    assert_eq!(catalogue.accounts[0].slots, 200);
}

#[test]
fn a_field_has_a_variable_of_its_own_or_one_by_its_path() {
    let config = load(&[
        ("AIVIDEO_HTTP_ADDR", "0.0.0.0:0"),
        ("AIVIDEO_TIERS__FREE__USER__RUNNING", "3"),
        ("AIVIDEO_PROVIDERS__MOCK__LOOKUP", "false"),
        ("AIVIDEO_PROVIDERS__MOCK__SUBMITS", "unlimited"),
        ("AIVIDEO_OUTBOUND__PORTS", "[443, 8443]"),
        ("REDIS_CACHE_URL", ""),
    ])
    .unwrap();
    assert_eq!(config.http.addr.to_string(), "0.0.0.0:0");
    assert_eq!(config.tiers["free"].user.running, 3);
    assert_eq!(config.tiers["free"].user.queued, 5, "the rest of a table stays");
    let mock = config.providers.values().next().unwrap();
    assert!(!mock.lookup);
    assert_eq!(mock.submits, None);
    assert_eq!(config.outbound.ports, [443, 8443]);
    assert!(config.redis.cache_url.is_none(), "an empty variable is none");
}

#[test]
fn what_may_be_secret_can_lie_in_a_file_and_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let other = "Zk3uQ8vY0uJc3mZlT5xWn7RkB2sHd9FpGaE1iVoXtLy=";
    let key = file("key", &format!("{other}\n"));
    let database = file("database", "postgres://me:filed@db/aivideo");
    let config = load(&[
        ("AIVIDEO_SECRET_KEY", ""),
        ("AIVIDEO_SECRET_KEY_FILE", &key),
        ("DATABASE_URL", ""),
        ("DATABASE_URL_FILE", &database),
    ])
    .unwrap();
    assert_eq!(config.secrets.key.reveal(), other, "without the line break");
    assert_eq!(config.database.url.reveal(), "postgres://me:filed@db/aivideo");

    assert_eq!(fault(&[("AIVIDEO_SECRET_KEY_FILE", &key)]), "AIVIDEO_SECRET_KEY_FILE", "both are set");
    let nowhere = folder.path().join("nowhere").to_str().unwrap().to_owned();
    let absent = [("AIVIDEO_SECRET_KEY", ""), ("AIVIDEO_SECRET_KEY_FILE", nowhere.as_str())];
    assert_eq!(fault(&absent), "AIVIDEO_SECRET_KEY_FILE");
    let empty = file("empty", "\n");
    assert_eq!(fault(&[("AIVIDEO_SECRET_KEY", ""), ("AIVIDEO_SECRET_KEY_FILE", &empty)]), "secrets.key");
    assert_eq!(fault(&[("AIVIDEO_HTTP_ADDR_FILE", &key)]), "AIVIDEO_HTTP_ADDR_FILE", "that is no secret");
}

#[test]
fn a_text_that_looks_like_a_number_stays_a_text_where_one_is_wanted() {
    let digits = "91827364509182736450918273645091827364";
    let config = load(&[("AIVIDEO_SECRET_KEY", digits), ("AIVIDEO_REDIS__PREFIX", "007")]).unwrap();
    assert_eq!(config.secrets.key.reveal(), digits);
    assert_eq!(config.redis.prefix, "007");
}

#[test]
fn unknown_keys_are_refused_by_name() {
    assert_eq!(fault(&[("AIVIDEO_STORAGE_ULR", "x")]), "AIVIDEO_STORAGE_ULR");
    assert_eq!(fault(&[("AIVIDEO_HTTP__PORT", "1")]), "http.port");
    assert_eq!(fault(&[("AIVIDEO_NOWHERE__KEY", "1")]), "nowhere");
    // Also inside values whose own types are not strict.
    assert_eq!(fault(&[("AIVIDEO_TIERS__FREE__USER__RUNING", "1")]), "tiers.free.user.runing");
    let refused = load(&[("AIVIDEO_DATABASE__MAX_CONNECTIONS", "many")]).unwrap_err().to_string();
    assert!(refused.contains("database.max_connections"), "{refused}");
    assert!(refused.contains("AIVIDEO_DATABASE__MAX_CONNECTIONS"), "{refused}");
}

#[test]
fn what_is_missing_or_contradicts_itself_is_refused_by_field() {
    for (changes, field) in [
        (&[("DATABASE_URL", "")][..], "database.url"),
        (&[("DATABASE_URL", "mysql://db/x")], "database.url"),
        (&[("REDIS_URL", "")], "redis.url"),
        (&[("REDIS_URL", "redis+cluster://a:1,b:2/3")], "redis"),
        (&[("REDIS_CONTROL_URL", "http://x")], "redis"),
        (&[("QUEUE_URL", "kafka://b")], "queue.url"),
        (&[("QUEUE_URL", "rabbit")], "queue.url"),
        (&[("AIVIDEO_QUEUE__GROUP_PROTOCOL", "modern")], "queue.group_protocol"),
        (&[("AIVIDEO_STORAGE_URL", "")], "storage.url"),
        (&[("AIVIDEO_STORAGE_URL", "file://relative/x")], "storage.url"),
        (&[("AIVIDEO_STORAGE_URL", "s3://bucket")], "storage.url"),
        (&[("AIVIDEO_SECRET_KEY", "")], "secrets.key"),
        (&[("AIVIDEO_SECRETS__PREVIOUS_KEY", KEY)], "secrets.previous_key"),
        (&[("AIVIDEO_ADMIN_ADDR", "127.0.0.1:8080")], "http.admin_addr"),
        (&[("AIVIDEO_DATABASE__LOCK_MS_MAX", "60000")], "database.lock_ms_max"),
        (&[("AIVIDEO_PROVIDERS__MOCK__SUBMIT_MS_MAX", "10001")], "providers.mock.submit_ms_max"),
        (&[("AIVIDEO_MOCK_PROVIDER_URL", "ftp://x")], "providers.mock.url"),
        (&[("AIVIDEO_TENANCY__DEFAULT_TIER", "gold")], "tenancy"),
        (&[("RUST_LOG", "info,[")], "log.filter"),
        (&[("AIVIDEO_SCHEDULER__RECONCILING_SECONDS", "0")], "scheduler.reconciling_seconds"),
        (&[("AIVIDEO_API__TRUSTED_HOPS", "1")], "api"),
        (&[("AIVIDEO_PUBLIC_URL", "ftp://x")], "api.public_url"),
        (&[("AIVIDEO_GENERATION__WRITERS", "0")], "generation"),
        (&[("AIVIDEO_DEMO__POSTGRES__PORT", "1")], "demo.postgres.port"),
    ] {
        assert_eq!(fault(changes), field, "{changes:?}");
    }
}

#[test]
fn a_lease_that_its_heartbeats_or_steps_would_outlast_is_refused() {
    let faults = load(&[("AIVIDEO_SCHEDULER__LEASE_SECONDS", "4")]).unwrap_err().0;
    let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert!(fields.contains(&"scheduler.lease_seconds"), "{fields:?}");
    assert!(fields.contains(&"providers.mock.submit_ms_max"), "{fields:?}");
    // Two heartbeats of three seconds leave less than four of the ten.
    assert_eq!(fault(&[("AIVIDEO_REDIS__RESPONSE_MS_MAX", "4000")]), "redis.response_ms_max");
}

#[test]
fn a_command_is_not_kept_from_running_by_what_it_does_not_use() {
    let variables = [("DATABASE_URL".to_owned(), "postgres://db/aivideo".to_owned())];
    Config::load(None, variables, Needs::Database).unwrap();
    assert!(Config::load(None, [], Needs::Database).is_err());
}

#[test]
fn nothing_that_is_shown_holds_a_secret() {
    let config = load(&[("AIVIDEO_PROVIDERS__MOCK__CREDENTIAL", "hunter2")]).unwrap();
    let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
    assert!(!shown.contains("hunter2") && !shown.contains(KEY), "{shown}");
    // Faults quote values only where those cannot be secret.
    let refused = load(&[("DATABASE_URL", "hunter2"), ("REDIS_URL", "hunter2")]).unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused}");
}

#[test]
fn a_further_account_needs_little_and_serves_what_routes_to_it() {
    let routes = r#"[{ account = "mock-b", provider_model = "mock-fast", weight = 3 }]"#;
    let second = ("AIVIDEO_PROVIDERS__MOCK-B__URL", "http://127.0.0.1:9091");
    let further = ("AIVIDEO_MODELS__MOCK-FAST__FURTHER_ROUTES", routes);
    let catalogue = load(&[second, further]).unwrap().to_catalogue();
    let accounts: Vec<_> = catalogue.accounts.iter().map(|account| account.id.as_str()).collect();
    assert_eq!(accounts, ["mock", "mock-b"]);
    let fast = catalogue.models.iter().find(|model| model.name.as_str() == "mock-fast").unwrap();
    let weights: Vec<_> = fast.routes.iter().map(|route| (route.account.as_str(), route.weight)).collect();
    assert_eq!(weights, [("mock", 1), ("mock-b", 3)]);
    // Without an address it is left out, and the first one serves alone.
    let catalogue = load(&[further]).unwrap().to_catalogue();
    assert!(catalogue.models.iter().all(|model| model.routes.len() == 1));
    // Without the first one the further one serves alone.
    let catalogue = load(&[second, further, ("AIVIDEO_MOCK_PROVIDER_URL", "")]).unwrap().to_catalogue();
    assert_eq!((catalogue.models.len(), catalogue.models[0].routes[0].account.as_str()), (1, "mock-b"));
}

#[test]
fn a_deployment_without_the_mock_provider_does_not_offer_its_models() {
    let config = load(&[("AIVIDEO_MOCK_PROVIDER_URL", "")]).unwrap();
    assert!(config.to_catalogue().models.is_empty());
}

/// A file of the folder `config/`.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

/// Every key with its path and its text, without those that are not set.
fn flatten(path: &str, value: &serde_json::Value, into: &mut BTreeMap<String, String>) {
    match value {
        serde_json::Value::Null => {}
        serde_json::Value::Object(map) => {
            map.iter().for_each(|(key, below)| flatten(&format!("{path}.{key}"), below, into));
        }
        other => {
            into.insert(path.trim_start_matches('.').to_owned(), other.to_string());
        }
    }
}

#[test]
fn the_annotated_file_says_every_default() {
    let text = std::fs::read_to_string(shipped("aivideo.toml")).unwrap();
    let said: Dict = Toml::from_str(&text).unwrap();
    let (mut said_flat, mut defaults) = (BTreeMap::new(), BTreeMap::new());
    flatten("", &serde_json::to_value(said).unwrap(), &mut said_flat);
    flatten("", &serde_json::to_value(Config::default()).unwrap(), &mut defaults);
    let keys: std::collections::BTreeSet<_> = said_flat.keys().chain(defaults.keys()).collect();
    let differs = |key: &&&String| said_flat.get(**key) != defaults.get(**key);
    let wrong: Vec<_> = keys
        .iter()
        .filter(differs)
        .map(|key| {
            format!("{key}: the file says {:?}, the code {:?}", said_flat.get(*key), defaults.get(*key))
        })
        .collect();
    assert!(wrong.is_empty(), "config/aivideo.toml: {wrong:#?}");
}

#[test]
fn the_annotated_file_shows_every_key_that_has_no_default() {
    let text = std::fs::read_to_string(shipped("aivideo.toml")).unwrap();
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let dict: Dict = Toml::from_str(&uncommented).unwrap();
    let shown = serde_json::to_value(&dict).unwrap();
    fn missing(path: &str, defaults: &serde_json::Value, shown: &serde_json::Value, found: &mut Vec<String>) {
        let serde_json::Value::Object(defaults) = defaults else { return };
        for (key, value) in defaults {
            match shown.get(key) {
                Some(shown) => missing(&format!("{path}.{key}"), value, shown, found),
                None => found.push(format!("{path}.{key}")),
            }
        }
    }
    let mut found = Vec::new();
    missing("", &serde_json::to_value(Config::default()).unwrap(), &shown, &mut found);
    assert!(found.is_empty(), "keys that the file does not show: {found:?}");
    // And nothing that is shown is unknown.
    let mut faults = Faults::default();
    find_unknown("the file", &dict, &Config::default(), &mut faults);
    assert!(faults.0.is_empty(), "{:?}", faults.0);
}

#[test]
fn the_settings_for_measurements_limit_nothing() {
    let config = Config::load(Some(&shipped("bench.toml")), environment(&[]), Needs::All).unwrap();
    let enterprise = &config.tiers["enterprise"];
    assert_eq!((enterprise.user.submit, enterprise.tenant.submit, enterprise.reads), (None, None, None));
    assert_eq!((enterprise.user.daily, enterprise.tenant.daily), (None, None));
    assert_eq!((config.api.ip, config.api.ip_window, config.api.failed_auth), (None, None, None));
    let account = &config.to_catalogue().accounts[0];
    assert_eq!((account.slots, account.submits), (1_024, None));
    assert_eq!(config.demo.credits, domain::Credits::new(1_000_000_000_000).unwrap());
    assert_eq!(config.demo.postgres["max_connections"], "200", "the rest of a table stays");
    assert_eq!(config.demo.postgres["shared_buffers"], "1GB");
}
