//! Sends projections to Redis behind the commits, so that a slow Redis slows down no commit.
//!
//! What waits is in [`Waiting`]. Snapshots that Redis did not take are set again for as long as the version before them
//! may stand there; changes are told once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use control::{Control, Projection};
use domain::TaskId;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    projection,
    waiting::{BATCH_MAX, WAITING_MAX, Waiting, is_passing},
};
use crate::record::TaskRecord;

/// The pause before snapshots are set again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// For how long: by then the version before has expired, but for a task that had ended.
const AGAIN_FOR: Duration = Duration::from_secs(12);

/// Hands projections to the task that sends them, which ends with this value.
pub(crate) struct Projector(Arc<Shared>);

/// A look at what a projector has not sent yet. It keeps nothing alive.
#[derive(Clone)]
pub(crate) struct Unsent(Weak<Shared>);

impl Unsent {
    /// The latest version of a task that Redis may not have yet.
    pub(crate) fn of(&self, task: TaskId) -> Option<Arc<TaskRecord>> {
        self.0.upgrade()?.waiting().of(task).cloned()
    }

    /// A reader found this version, which somebody else has written.
    pub(crate) fn overtaken(&self, task: TaskId, version: i32) {
        if let Some(shared) = self.0.upgrade() {
            shared.waiting().overtaken(task, version);
        }
    }
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting<Arc<TaskRecord>>>,
    /// The queue grew, or was closed.
    news: Notify,
}

impl Projector {
    pub(crate) fn start(control: Control) -> Self {
        let shared = Arc::new(Shared::default());
        tokio::spawn(run(Arc::clone(&shared), control));
        Self(shared)
    }

    pub(crate) fn unsent(&self) -> Unsent {
        Unsent(Arc::downgrade(&self.0))
    }

    pub(crate) fn send(&self, records: Vec<Arc<TaskRecord>>) {
        if records.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut waiting = self.0.waiting();
        for record in records {
            let snapshot = &record.snapshot;
            waiting.put(snapshot.task_id, snapshot.version, is_passing(snapshot), record, now);
        }
        drop(waiting);
        self.0.news.notify_one();
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        self.0.waiting().close();
        self.0.news.notify_one();
    }
}

impl Shared {
    fn arrived(&self, over: &[Projection]) {
        let mut waiting = self.waiting();
        over.iter().for_each(|Projection { change, .. }| waiting.arrived(change.task, change.version));
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<Arc<TaskRecord>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(shared: Arc<Shared>, control: Control) {
    let mut again = Again::default();
    loop {
        let (batch, due, closed) = {
            let mut waiting = shared.waiting();
            (waiting.take(Instant::now()), waiting.due(), waiting.is_closed())
        };
        // Made into text only now: a version that was overtaken while it waited never is.
        let batch: Vec<_> = batch.iter().filter_map(|record| projection(&record.snapshot)).collect();
        if !batch.is_empty() {
            let over = match control.project(&batch).await {
                Ok(()) => batch,
                Err(error) => {
                    tracing::debug!(%error, tasks = batch.len(), "snapshots were not set and will be again");
                    again.put(batch, Instant::now())
                }
            };
            shared.arrived(&over);
        } else if closed {
            return;
        } else if let Some(at) = due.into_iter().chain(again.due).min() {
            let timeout = timeout_at(at, shared.news.notified()).await.is_err();
            if timeout && again.due.is_some_and(|due| due <= at) {
                let over = again.send(&control).await;
                shared.arrived(&over);
            }
        } else {
            shared.news.notified().await;
        }
    }
}

/// Snapshots that Redis did not take.
#[derive(Default)]
struct Again {
    snapshots: VecDeque<(Instant, Projection)>,
    due: Option<Instant>,
}

impl Again {
    /// Keeps them; those for which there is no room come back.
    fn put(&mut self, mut batch: Vec<Projection>, now: Instant) -> Vec<Projection> {
        let room = WAITING_MAX.saturating_sub(self.snapshots.len());
        let given_up = batch.split_off(room.min(batch.len()));
        self.snapshots.extend(batch.into_iter().map(|projection| (now + AGAIN_FOR, projection)));
        self.due.get_or_insert(now + AGAIN_AFTER);
        given_up
    }

    /// What is still worth setting, at most a batch of it, and what is not. An older version than the one there is refused
    /// by Redis.
    fn take(&mut self, now: Instant) -> (Vec<(Instant, Projection)>, Vec<Projection>) {
        // They were kept for the same time each, so the first are the oldest.
        let old = self.snapshots.partition_point(|(until, _)| *until <= now);
        let given_up = self.snapshots.drain(..old).map(|(_, projection)| projection).collect();
        (self.snapshots.drain(..self.snapshots.len().min(BATCH_MAX)).collect(), given_up)
    }

    /// Sets a batch once more; returns what is over with: set now, or given up.
    async fn send(&mut self, control: &Control) -> Vec<Projection> {
        let (batch, mut over) = self.take(Instant::now());
        let snapshots: Vec<_> = batch
            .iter()
            .map(|(_, Projection { json, ttl, change })| (change.task, change.version, json.clone(), *ttl))
            .collect();
        match control.set_snapshots(&snapshots).await {
            Ok(_) => over.extend(batch.into_iter().map(|(_, projection)| projection)),
            Err(error) => {
                tracing::debug!(%error, tasks = snapshots.len(), "snapshots were not set again yet");
                batch.into_iter().rev().for_each(|again| self.snapshots.push_front(again));
            }
        }
        self.due = (!self.snapshots.is_empty()).then(|| Instant::now() + AGAIN_AFTER);
        over
    }
}

#[cfg(test)]
mod tests {
    use control::Change;
    use domain::TenantId;

    use super::*;

    fn projection(task: TaskId, version: i32) -> Projection {
        Projection {
            json: format!(r#"{{"version":{version}}}"#),
            ttl: Duration::from_secs(10),
            change: Change {
                tenant: TenantId::generate(),
                task,
                version,
                kind: "RUNNING".to_owned(),
                progress: None,
            },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_redis_did_not_take_is_kept_as_long_as_it_is_worth_it_and_bounded() {
        let mut again = Again::default();
        let now = Instant::now();
        let waiting = (0..WAITING_MAX + 5).map(|_| projection(TaskId::generate(), 2)).collect();
        assert_eq!(again.put(waiting, now).len(), 5, "there is no room for them");
        assert_eq!(again.due, Some(now + AGAIN_AFTER));
        let (batch, given_up) = again.take(now + AGAIN_AFTER);
        assert_eq!((batch.len(), given_up.len()), (BATCH_MAX, 0));
        assert_eq!(again.snapshots.len(), WAITING_MAX - BATCH_MAX);
        let (batch, given_up) = again.take(now + AGAIN_FOR);
        assert_eq!((batch.len(), given_up.len()), (0, WAITING_MAX - BATCH_MAX));
        assert!(again.snapshots.is_empty());
    }
}
