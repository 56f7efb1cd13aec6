//! What is logged, and in which form.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::fault::Faults;

/// Section `log`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// Levels by module (`RUST_LOG`). Prompts are never logged at info or above.
    pub(crate) filter: String,
    /// The form of the lines.
    pub(crate) format: LogFormat,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For a person at a terminal.
    Pretty,
    /// Pretty at a terminal, else JSON.
    Auto,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Auto }
    }
}

impl LogConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        faults.check("log.filter", EnvFilter::try_new(&self.filter).map(drop));
    }
}
