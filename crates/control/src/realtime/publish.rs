//! Publishing.

use std::{collections::BTreeMap, time::Duration};

use domain::{TenantId, metric};

use crate::{Change, Control, ControlError, Projection, script::Script, snapshot::count, ttl::jittered_ms};

/// Entries that a tenant's stream keeps, about.
const STREAM_MAX: u32 = 10_000;
/// How long a stream lives that nobody appends to.
const STREAM_TTL: Duration = Duration::from_secs(3_600);
/// Changes per script at most.
const CHUNK: usize = 200;

impl Control {
    /// Publishes changes to their tenants' channels and appends them to the capped streams.
    ///
    /// # Errors
    /// When realtime cannot be reached; streams poll.
    pub async fn publish(&self, changes: &[Change]) -> Result<(), ControlError> {
        self.publish_all(changes.iter()).await
    }

    async fn publish_all(&self, changes: impl Iterator<Item = &Change>) -> Result<(), ControlError> {
        let mut tenants: BTreeMap<TenantId, Vec<String>> = BTreeMap::new();
        let mut published = 0;
        for change in changes {
            let json =
                serde_json::to_string(change).map_err(|error| ControlError::Protocol(error.to_string()))?;
            tenants.entry(change.tenant).or_default().push(json);
            published += 1;
        }
        let calls = tenants.iter().flat_map(|(tenant, changes)| {
            changes.chunks(CHUNK).map(|chunk| {
                let call = Script::ChangeAppend
                    .on(&[self.keys().stream(*tenant)])
                    .arg(self.keys().channel(*tenant))
                    .arg(STREAM_MAX)
                    .arg(jittered_ms(STREAM_TTL));
                chunk.iter().fold(call, |call, json| call.arg(json))
            })
        });
        for length in self.0.realtime.calls_as::<u32>(calls.collect()).await? {
            metrics::histogram!(metric::STREAM_LENGTH).record(f64::from(length));
        }
        metrics::counter!(metric::PUBSUB_PUBLISH).increment(published);
        Ok(())
    }

    /// After the commit of a batch of transitions: snapshots (only if not older), channel and stream, one pipeline
    /// per instance. A crash before it is healed by the snapshots' expiry and the streams' own reads.
    ///
    /// # Errors
    /// When not all snapshots were set: they may be set again by [`set_snapshots`](Self::set_snapshots). The changes were
    /// told all the same, or could not be, which the streams' own reads make up for: they are not to be told again.
    pub async fn project(&self, projections: &[Projection]) -> Result<(), ControlError> {
        let snapshots = projections.iter().map(|projection| {
            let change = &projection.change;
            self.snapshot_call(change.task, change.version, &projection.json, projection.ttl)
        });
        // The snapshot first, so that whoever hears of the change reads it; a failed cache must not silence the channel.
        let cached = self.0.cache.calls_as::<bool>(snapshots.collect()).await;
        if let Err(error) = self.publish_all(projections.iter().map(|projection| &projection.change)).await {
            tracing::debug!(%error, tasks = projections.len(), "changes were not told");
        }
        count(metric::CACHE_SET, cached?.into_iter().filter(|set| *set).count());
        Ok(())
    }
}
