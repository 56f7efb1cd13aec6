//! Logs to standard error, metrics for Prometheus.

use std::{io::IsTerminal, time::Duration};

use anyhow::Context;
use domain::metric;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogConfig, LogFormat};

/// Upper bounds of the histograms whose names end in `_ms`: from a cache hit to a slow generation.
const MILLIS_BUCKETS: &[f64] = &[
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0,
    30_000.0, 60_000.0, 300_000.0,
];
/// Upper bounds for counts of entries.
const LENGTH_BUCKETS: &[f64] = &[1.0, 10.0, 100.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 20_000.0];
/// What the driver says for each connection that PostgreSQL ends. Whoever used it says it too, and not as often. The
/// configured filter may say otherwise.
const QUIET: &str = "sqlx::postgres::notice=error,sqlx_core::pool=error,sqlx::pool=error";
/// Histograms keep samples until they are folded into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// Begins to log. Standard output belongs to what a command prints.
///
/// # Errors
/// When the filter cannot be read.
pub(crate) fn start_logs(config: &LogConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", config.filter)).context("log.filter")?;
    let pretty = match config.format {
        LogFormat::Pretty => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let begun = if pretty {
        registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init()
    } else {
        registry.with(lines.json().flatten_event(true)).try_init()
    };
    begun.context("logs were begun twice")
}

/// Begins to count, and keeps the counts tidy until the runtime ends.
///
/// # Errors
/// When somebody else counts already.
pub(crate) fn start_metrics() -> anyhow::Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_ms".to_owned()), MILLIS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(metric::STREAM_LENGTH.to_owned()), LENGTH_BUCKETS)?
        .install_recorder()?;
    begin_rare_counters();
    let kept = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            kept.run_upkeep();
        }
    });
    Ok(handle)
}

/// Counters that may stay at nothing for weeks begin at 0, so that an alarm sees their first increase.
fn begin_rare_counters() {
    for name in [metric::SLOT_HEARTBEAT_FAILED, metric::SLOT_LEASE_EXPIRED, metric::TASK_SNAPSHOT_REFETCH] {
        metrics::counter!(name).absolute(0);
    }
    for kind in ["missing", "ghost"] {
        metrics::counter!(metric::SLOT_RECONCILE_DIFF, "kind" => kind).absolute(0);
    }
    for topic in outbox::Topic::ALL {
        metrics::counter!(metric::DEAD_LETTER, "topic" => topic.as_str()).absolute(0);
    }
}
