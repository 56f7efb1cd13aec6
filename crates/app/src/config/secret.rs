//! Values that nobody may see by accident: they are read, handed on, and never shown.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use url::Url;

const HIDDEN: &str = "***";

/// A secret. Neither `Debug` nor its text form in `check-config` shows it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that uses it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shown(&self) -> &'static str {
        if self.0.is_empty() { "" } else { HIDDEN }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// The address of a store, which may hold a password. Shown without it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoreUrl(String);

impl StoreUrl {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The address with everything in it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shown(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        // What cannot be read may hold anything anywhere.
        let Ok(mut url) = Url::parse(&self.0) else { return HIDDEN.to_owned() };
        if url.password().is_some() && url.set_password(Some(HIDDEN)).is_err() {
            return HIDDEN.to_owned();
        }
        if url.query().is_some() {
            url.set_query(Some(HIDDEN));
        }
        url.into()
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_debug_nor_text_shows_a_secret() {
        let shown = |text: &str| {
            let (secret, url) = (Secret::new(text), StoreUrl::new(text));
            format!("{secret:?} {url:?} {}", serde_json::to_string(&(&secret, &url)).unwrap())
        };
        for text in [
            "postgres://me:hunter2@db:5432/aivideo",
            "postgres://db/aivideo?password=hunter2",
            "redis://:hunter2@cache:6379/0",
            "hunter2",
            "redis+sentinel://:hunter2@a,b,c/main",
        ] {
            assert!(!shown(text).contains("hunter2"), "{text}: {}", shown(text));
        }
        assert!(format!("{:?}", StoreUrl::new("postgres://me:x@db:5432/aivideo")).contains("db:5432"));
    }
}
