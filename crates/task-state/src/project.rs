//! After a commit: the new snapshots go to Redis and the streams are told.
//!
//! None of this is needed for correctness. A projection that is lost (a crash in between, Redis away, a full queue)
//! is healed by the snapshot's short life, and streams read PostgreSQL again at least every ten seconds. What waits for
//! Redis and for how long is in [`waiting`], how it is sent in [`projector`].

mod projector;
mod waiting;

use std::{sync::Arc, time::Duration};

use control::{Change, Projection};
use domain::{TaskStatus, task::TaskSnapshot};

pub(crate) use self::projector::{Projector, Unsent};
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
    let moved: Vec<_> = moved.map(Arc::clone).collect();
    // First, so that whoever reads meanwhile finds them there.
    shared.projector.send(moved.clone());
    for record in moved {
        shared.cache.put(&record.snapshot).await;
    }
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
