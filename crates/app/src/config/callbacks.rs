//! Whether providers are told where to report to, and where that is.

use serde::{Deserialize, Serialize};
use url::Url;

use super::fault::Faults;

/// Section `callbacks`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CallbacksConfig {
    /// Whether providers are given an address. Without, their jobs are only looked at.
    pub(crate) enabled: bool,
    /// The address of the API as providers reach it, where that is not `api.public_url`.
    pub(crate) url: Option<Url>,
}

impl Default for CallbacksConfig {
    fn default() -> Self {
        Self { enabled: true, url: None }
    }
}

impl CallbacksConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if let Some(url) = &self.url {
            let usable = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
            faults.require(usable, "callbacks.url", "must be an http:// or https:// address");
        }
    }
}
