//! After a commit: the new snapshots go to Redis and the streams are told.
//!
//! None of this is needed for correctness. A projection that is lost (a crash in between, Redis away, a full queue)
//! is healed by the snapshot's short life, and streams read PostgreSQL again at least every ten seconds.

use std::{sync::Arc, time::Duration};

use control::{Change, Projection};
use domain::{TaskStatus, task::TaskSnapshot};

use crate::{Shared, advance::MoveOutcome, record::TaskRecord};

/// How long a snapshot in this state may stand in Redis.
pub(crate) const fn time_to_live(status: TaskStatus) -> Duration {
    Duration::from_secs(match status {
        TaskStatus::Queued => 30,
        TaskStatus::Scheduling
        | TaskStatus::Reconciling
        | TaskStatus::ProviderSubmitted
        | TaskStatus::Running
        | TaskStatus::PostProcessing => 10,
        TaskStatus::Succeeded => 3_600,
        TaskStatus::Failed | TaskStatus::Canceled => 1_800,
    })
}

/// Makes the moved tasks known: in this process at once, elsewhere as soon as Redis has them.
pub(crate) async fn after_commit(shared: &Arc<Shared>, outcomes: &[MoveOutcome]) {
    let moved = outcomes.iter().filter_map(|outcome| match outcome {
        MoveOutcome::Moved(record) => Some(record),
        _ => None,
    });
    records(shared, moved).await;
}

/// The same for records that were written in another way.
pub(crate) async fn records<'a>(shared: &Arc<Shared>, moved: impl Iterator<Item = &'a Arc<TaskRecord>>) {
    let mut projections = Vec::new();
    for record in moved {
        shared.cache.put(&record.snapshot).await;
        if let Some(projection) = projection(&record.snapshot) {
            projections.push(projection);
        }
    }
    shared.projector.send(projections);
}

fn projection(snapshot: &TaskSnapshot) -> Option<Projection> {
    let json = serde_json::to_string(snapshot).ok()?;
    Some(Projection {
        json,
        ttl: time_to_live(snapshot.status),
        change: Change {
            tenant: snapshot.tenant_id,
            task: snapshot.task_id,
            version: snapshot.version,
            kind: snapshot.status.as_str().to_owned(),
            progress: None,
        },
    })
}

/// Fills Redis with what a reader had to fetch from PostgreSQL.
pub(crate) async fn fill(shared: &Arc<Shared>, snapshot: &TaskSnapshot) {
    let Ok(json) = serde_json::to_string(snapshot) else { return };
    let entry = (snapshot.task_id, snapshot.version, json, time_to_live(snapshot.status));
    if let Err(error) = shared.control.set_snapshots(&[entry]).await {
        tracing::debug!(%error, "snapshot not cached");
    }
}

/// The queue between commits and Redis, so that a slow Redis slows down no commit.
pub(crate) struct Projector(tokio::sync::mpsc::Sender<Vec<Projection>>);

impl Projector {
    /// Batches that may wait; more are dropped.
    const QUEUE: usize = 256;

    pub(crate) fn start(control: control::Control) -> Self {
        let (sender, mut queue) = tokio::sync::mpsc::channel::<Vec<Projection>>(Self::QUEUE);
        tokio::spawn(async move {
            while let Some(mut batch) = queue.recv().await {
                // What piled up meanwhile goes in the same trip.
                while batch.len() < 512 {
                    match queue.try_recv() {
                        Ok(more) => batch.extend(more),
                        Err(_) => break,
                    }
                }
                if let Err(error) = control.project(&batch).await {
                    tracing::debug!(%error, tasks = batch.len(), "projection skipped");
                }
            }
        });
        Self(sender)
    }

    fn send(&self, projections: Vec<Projection>) {
        if !projections.is_empty() && self.0.try_send(projections).is_err() {
            tracing::debug!("projection dropped: the queue is full");
        }
    }
}
