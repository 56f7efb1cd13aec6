//! One run of one figure: what was counted, and what only some figures have.

use std::time::Duration;

use serde::Serialize;

use super::{row, thousands};
use crate::commands::bench::{
    args::Measure,
    failure::Failures,
    latency::{Latency, Percentiles},
};

/// One run of one figure.
#[derive(Debug, Clone, Serialize)]
pub(in crate::commands::bench) struct Record {
    pub(in crate::commands::bench) figure: &'static str,
    /// Under which circumstances: `scheduler on`, `64 in flight`.
    pub(in crate::commands::bench) variant: String,
    /// From 1.
    pub(in crate::commands::bench) run: usize,
    /// What was counted: answers, ended tasks, or starts that the provider saw.
    pub(in crate::commands::bench) count: u64,
    pub(in crate::commands::bench) seconds: f64,
    /// None for a latency alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands::bench) per_second: Option<f64>,
    pub(in crate::commands::bench) latency_ms: Option<Percentiles>,
    pub(in crate::commands::bench) errors: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub(in crate::commands::bench) failures: Failures,
    #[serde(flatten)]
    pub(in crate::commands::bench) more: More,
    #[serde(skip)]
    pub(super) latency: Latency,
}

fn is_none(failures: &Failures) -> bool {
    failures.total() == 0
}

/// What only some figures have.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(default)]
pub(in crate::commands::bench) struct More {
    /// Videos fetched from the provider in each second of a submit run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands::bench) finished_per_second_meanwhile: Option<f64>,
    /// From submit to 202, where the figure's own latency is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands::bench) accept_ms: Option<Percentiles>,
    /// Of the private process with all roles, right after the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands::bench) rss_anon_bytes: Option<u64>,
    /// Starts that the provider saw before the client had its 202; they count as zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands::bench) before_answer: Option<u64>,
    /// Attempts that the provider was asked for more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands::bench) double_submits: Option<u64>,
}

impl Record {
    /// A rate with its latency.
    pub(in crate::commands::bench) fn rate(
        measure: Measure,
        variant: impl Into<String>,
        run: usize,
        latency: Latency,
        elapsed: Duration,
        failures: Failures,
    ) -> Self {
        let per_second = Some(per_second(latency.count(), elapsed));
        Self { per_second, ..Self::latency(measure, variant, run, latency, elapsed, failures) }
    }

    /// A latency alone.
    pub(in crate::commands::bench) fn latency(
        measure: Measure,
        variant: impl Into<String>,
        run: usize,
        latency: Latency,
        elapsed: Duration,
        failures: Failures,
    ) -> Self {
        Self {
            figure: measure.name(),
            variant: variant.into(),
            run,
            count: latency.count(),
            seconds: elapsed.as_secs_f64(),
            per_second: None,
            latency_ms: latency.percentiles(),
            errors: failures.total(),
            failures,
            more: More::default(),
            latency,
        }
    }

    /// One line of the table, and lines below it for what has no column.
    pub(super) fn lines(&self) -> String {
        let name = format!("{}, {}", self.figure, self.variant);
        let mut text = row(&name, self.per_second, self.latency_ms, self.errors);
        let mut notes = Vec::new();
        if let Some(finished) = self.more.finished_per_second_meanwhile {
            notes.push(format!("finished meanwhile {}/s", thousands(finished)));
        }
        if let Some(accept) = self.more.accept_ms {
            notes.push(format!("202 after p50 {:.1} ms, p99 {:.1} ms", accept.p50, accept.p99));
        }
        if let Some(bytes) = self.more.rss_anon_bytes {
            notes.push(format!("RssAnon {} MiB", bytes >> 20));
        }
        if let Some(before) = self.more.before_answer.filter(|before| *before > 0) {
            notes.push(format!("{before} seen before the 202 was read"));
        }
        if let Some(double) = self.more.double_submits.filter(|double| *double > 0) {
            notes.push(format!("{double} DOUBLE SUBMITS"));
        }
        if self.errors > 0 {
            notes.push(format!("errors: {}", self.failures));
        }
        notes.iter().for_each(|note| text.push_str(&format!("\n    {note}")));
        text
    }
}

/// So many in that time.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
pub(in crate::commands::bench) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(1e-9)
}
