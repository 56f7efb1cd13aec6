//! Which environment variable sets which field.
//!
//! A few have names that scripts rely on ([`NAMED`]). Every other field is `AIVIDEO_<SECTION>__<KEY>`, deeper
//! levels joined by further `__`. A variable that begins with `AIVIDEO_` and names nothing is an error: a typo in
//! a limit must not run with the default. What may be secret can also be given as a file ([`FILES`]).

use std::collections::BTreeMap;

use figment::{
    Figment, Metadata, Profile, Provider,
    util::nest,
    value::{Dict, Map, Value},
};

use super::{fault::Faults, unlimited};

/// The variables with names of their own, and their fields.
pub(crate) const NAMED: &[(&str, &str)] = &[
    ("DATABASE_URL", "database.url"),
    ("REDIS_URL", "redis.url"),
    ("REDIS_CACHE_URL", "redis.cache_url"),
    ("REDIS_CONTROL_URL", "redis.control_url"),
    ("REDIS_REALTIME_URL", "redis.realtime_url"),
    ("QUEUE_URL", "queue.url"),
    ("AIVIDEO_HTTP_ADDR", "http.addr"),
    ("AIVIDEO_ADMIN_ADDR", "http.admin_addr"),
    ("AIVIDEO_PUBLIC_URL", "api.public_url"),
    ("AIVIDEO_MOCK_PROVIDER_URL", "providers.mock.url"),
    ("AIVIDEO_STORAGE_URL", "storage.url"),
    ("AIVIDEO_SECRET_KEY", "secrets.key"),
    ("RUST_LOG", "log.filter"),
];

/// Those whose values may be secret: with `_FILE` behind the name, the variable names a file that holds the value, as
/// orchestrators hand secrets out.
const FILES: &[&str] = &[
    "DATABASE_URL",
    "REDIS_URL",
    "REDIS_CACHE_URL",
    "REDIS_CONTROL_URL",
    "REDIS_REALTIME_URL",
    "AIVIDEO_SECRET_KEY",
];

/// Names the configuration file itself, so it is no field of it.
pub(crate) const CONFIG_FILE: &str = "AIVIDEO_CONFIG";

const PREFIX: &str = "AIVIDEO_";
/// Last words of fields whose values are texts even when they look like numbers.
const TEXTS: &[&str] = &["key", "previous_key", "credential", "prefix", "title"];

/// The variable with a name of its own that sets this field.
pub(super) fn variable_of(field: &str) -> Option<&'static str> {
    NAMED.iter().find(|(_, named)| *named == field).map(|(variable, _)| *variable)
}

/// Whether a variable sets something in the configuration: demo hands these on to its env file. Variables that name
/// a file are left out, since what they set is a demo's own.
pub(crate) fn is_ours(variable: &str) -> bool {
    let is_named = NAMED.iter().any(|(named, _)| *named == variable);
    (variable.starts_with(PREFIX) || is_named) && filed(variable).is_none()
}

/// The variable whose value lies in the file that this one names.
fn filed(variable: &str) -> Option<&'static str> {
    let named = variable.strip_suffix("_FILE")?;
    FILES.iter().copied().find(|known| *known == named)
}

/// Puts what the files hold in the place of the variables that name them.
fn from_files(
    variables: impl IntoIterator<Item = (String, String)>,
    faults: &mut Faults,
) -> BTreeMap<String, String> {
    // An orchestrator passes on what is not set as an empty text.
    let set = variables.into_iter().filter(|(_, text)| !text.is_empty());
    let (files, mut values): (BTreeMap<_, _>, BTreeMap<_, _>) =
        set.partition(|(variable, _)| filed(variable).is_some());
    for (variable, path) in files {
        let Some(named) = filed(&variable) else { continue };
        if values.contains_key(named) {
            faults.add(variable, format_args!("is set beside {named}: one of them is enough"));
            continue;
        }
        match std::fs::read_to_string(&path) {
            // Whoever writes such a file with an editor ends it with a line break.
            Ok(text) => drop(values.insert(named.to_owned(), text.trim_end().to_owned())),
            Err(error) => faults.add(variable, format_args!("{path} cannot be read: {error}")),
        }
    }
    values
}

/// The environment as a layer of the configuration.
pub(super) struct Environment(Vec<One>);

impl Environment {
    /// Reads the variables; those of ours that name nothing are faults.
    pub(super) fn read(variables: impl IntoIterator<Item = (String, String)>, faults: &mut Faults) -> Self {
        let mut ones = Vec::new();
        for (variable, text) in from_files(variables, faults) {
            // What a file was meant to hold may still be empty.
            if text.is_empty() || variable == CONFIG_FILE {
                continue;
            }
            let source = format!("environment variable {variable}");
            if let Some((_, field)) = NAMED.iter().find(|(named, _)| *named == variable) {
                ones.push(One { source, dict: single(field, Value::from(text)) });
            } else if let Some(rest) = variable.strip_prefix(PREFIX) {
                if rest.contains("__") {
                    let field = rest.to_lowercase().replace("__", ".");
                    let is_text = field.rsplit('.').next().is_some_and(|last| TEXTS.contains(&last));
                    // Numbers, booleans and lists in brackets become what they look like.
                    let value = if is_text {
                        Value::from(text)
                    } else {
                        text.parse().unwrap_or_else(|never| match never {})
                    };
                    ones.push(One { source, dict: unlimited(single(&field, value)) });
                } else {
                    faults.add(variable, "no such variable; fields are AIVIDEO_<SECTION>__<KEY>");
                }
            }
        }
        Self(ones)
    }

    /// Everything that was set, for the search for unknown fields.
    pub(super) fn dicts(&self) -> impl Iterator<Item = (&str, &Dict)> {
        self.0.iter().map(|one| (one.source.as_str(), &one.dict))
    }

    /// Lays the variables over what is below.
    pub(super) fn over(self, below: Figment) -> Figment {
        self.0.into_iter().fold(below, Figment::merge)
    }
}

fn single(field: &str, value: Value) -> Dict {
    nest(field, value).into_dict().unwrap_or_default()
}

/// One variable, so that messages can name it.
struct One {
    source: String,
    dict: Dict,
}

impl Provider for One {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}
