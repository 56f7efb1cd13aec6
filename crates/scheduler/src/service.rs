//! For how long jobs hold their places, on its way to where waits are reckoned, and how true what was reckoned proves.
//!
//! Both are for people who wait and decide nothing: what does not get through is dropped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::TimeDelta;
use control::Promise;
use domain::{ModelName, metric};
use task_state::TaskRecord;

use crate::worker::Worker;

/// Jobs of one model that are remembered between two sendings; a few are as good as many.
const SAMPLES_MAX: usize = 64;
/// Promises that are looked up per batch of starts.
const PROMISES_MAX: usize = 16;
/// Who started sooner than this was hardly told anything.
const WAITED_MIN: TimeDelta = TimeDelta::seconds(1);

/// Jobs that ended since the last sending, by model.
#[derive(Debug, Default)]
pub(crate) struct ServiceTimes(Mutex<HashMap<ModelName, Vec<Duration>>>);

impl ServiceTimes {
    /// A job held its place for so long.
    pub(crate) fn note(&self, model: &ModelName, held: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = seen.entry(model.clone()).or_default();
        if samples.len() < SAMPLES_MAX {
            samples.push(held);
        }
    }

    fn take(&self) -> Vec<(ModelName, Vec<Duration>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

impl Worker {
    /// Tells the other processes how long jobs took here lately.
    pub(crate) async fn tell_service_times(&self) {
        let seen = self.service.take();
        if !seen.is_empty()
            && let Err(error) = self.control.learn_service_times(&seen).await
        {
            tracing::debug!(%error, "how long jobs took was not noted");
        }
    }

    /// Compares when these tasks started with what their readers were told, without keeping anybody waiting.
    pub(crate) fn compare_with_promises<'a>(
        self: &Arc<Self>,
        started: impl Iterator<Item = &'a Arc<TaskRecord>>,
    ) {
        let waited = |record: &&Arc<TaskRecord>| {
            let snapshot = &record.snapshot;
            snapshot.attempt_no == 1 && snapshot.updated_at - snapshot.created_at >= WAITED_MIN
        };
        let some: Vec<_> = started.filter(waited).take(PROMISES_MAX).cloned().collect();
        if some.is_empty() {
            return;
        }
        let worker = self.clone();
        self.drivers.spawn(async move {
            let tasks: Vec<_> = some.iter().map(|record| record.id()).collect();
            match worker.control.take_promises(&tasks).await {
                Ok(promises) => some.iter().zip(promises).for_each(|(record, promise)| {
                    if let Some(promise) = promise {
                        record_truth(record, promise);
                    }
                }),
                Err(error) => tracing::debug!(%error, "what readers were told could not be compared"),
            }
        });
    }
}

/// Measures how far from the range that its readers were told the task started.
fn record_truth(record: &TaskRecord, promise: Promise) {
    let (outcome, error_ms) = truth(promise, record.snapshot.updated_at.timestamp_millis());
    let model = record.snapshot.model.to_string();
    // All outcomes from the first on, or no share could be reckoned of those that have not been seen.
    for each in OUTCOMES {
        metrics::counter!(metric::ETA_PROMISES, "model" => model.clone(), "outcome" => each)
            .increment(u64::from(each == outcome));
    }
    #[expect(clippy::cast_precision_loss, reason = "some hours in ms")]
    metrics::histogram!(metric::ETA_ERROR_MS, "model" => model).record(error_ms as f64);
}

/// How a start compares with what was promised.
const OUTCOMES: [&str; 3] = ["sooner", "within", "later"];

/// Whether a start at this instant keeps the promise, and by how much it misses it.
fn truth(promise: Promise, at_ms: i64) -> (&'static str, u64) {
    let [sooner, within, later] = OUTCOMES;
    if at_ms < promise.from_ms {
        (sooner, promise.from_ms.abs_diff(at_ms))
    } else if at_ms > promise.to_ms {
        (later, at_ms.abs_diff(promise.to_ms))
    } else {
        (within, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_the_distance_from_the_range() {
        let promise = Promise { from_ms: 5_000, to_ms: 8_000 };
        let of = |at| truth(promise, at);
        assert_eq!([of(4_000), of(5_000), of(8_000)], [("sooner", 1_000), ("within", 0), ("within", 0)]);
        assert_eq!(of(9_500), ("later", 1_500));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_told_once() {
        let service = ServiceTimes::default();
        for _ in 0..2 * SAMPLES_MAX {
            service.note(&"mock-fast".parse().unwrap(), Duration::from_secs(1));
        }
        assert_eq!(service.take()[0].1.len(), SAMPLES_MAX);
        assert!(service.take().is_empty());
    }
}
