//! The queue between commits and Redis, so that a slow Redis slows down no commit.
//!
//! It holds one projection of a task at most, the latest: when Redis is behind, versions in between are left out, which
//! nobody misses, since readers want the latest and streams read what they told last from PostgreSQL. Snapshots that Redis
//! did not take are set again for as long as the version before them may stand there; changes are told once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use control::{Control, Projection};
use domain::TaskId;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Tasks whose projections may wait; those of more are dropped.
const WAITING_MAX: usize = 4_096;
/// Projections sent together.
const BATCH_MAX: usize = 128;
/// The pause before snapshots are set again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// For how long: by then the version before has expired, but for a task that had ended.
const AGAIN_FOR: Duration = Duration::from_secs(12);

/// Hands projections to the task that sends them, which ends with this value.
pub(crate) struct Projector(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    latest: HashMap<TaskId, Projection>,
    order: VecDeque<TaskId>,
    closed: bool,
}

impl Projector {
    pub(crate) fn start(control: Control) -> Self {
        let shared = Arc::new(Shared::default());
        tokio::spawn(run(Arc::clone(&shared), control));
        Self(shared)
    }

    pub(crate) fn send(&self, projections: Vec<Projection>) {
        if projections.is_empty() {
            return;
        }
        let mut waiting = self.0.waiting();
        for projection in projections {
            waiting.put(projection);
        }
        drop(waiting);
        self.0.news.notify_one();
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        self.0.waiting().closed = true;
        self.0.news.notify_one();
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn put(&mut self, projection: Projection) {
        let task = projection.change.task;
        if let Some(present) = self.latest.get_mut(&task) {
            if present.change.version <= projection.change.version {
                *present = projection;
            }
        } else if self.latest.len() < WAITING_MAX {
            self.order.push_back(task);
            self.latest.insert(task, projection);
        } else {
            tracing::debug!(%task, "a projection was dropped: too many wait for Redis");
        }
    }

    fn take(&mut self) -> Vec<Projection> {
        let count = self.order.len().min(BATCH_MAX);
        self.order.drain(..count).filter_map(|task| self.latest.remove(&task)).collect()
    }
}

async fn run(shared: Arc<Shared>, control: Control) {
    let mut again = Again::default();
    loop {
        let (batch, closed) = {
            let mut waiting = shared.waiting();
            (waiting.take(), waiting.closed)
        };
        if !batch.is_empty() {
            if let Err(error) = control.project(&batch).await {
                tracing::debug!(%error, tasks = batch.len(), "snapshots were not set and will be again");
                again.put(batch, Instant::now());
            }
        } else if closed {
            return;
        } else if let Some(at) = again.due {
            if timeout_at(at, shared.news.notified()).await.is_err() {
                again.send(&control).await;
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
    fn put(&mut self, batch: Vec<Projection>, now: Instant) {
        let room = WAITING_MAX.saturating_sub(self.snapshots.len());
        self.snapshots.extend(batch.into_iter().take(room).map(|projection| (now + AGAIN_FOR, projection)));
        self.due.get_or_insert(now + AGAIN_AFTER);
    }

    /// What is still worth setting, at most a batch of it. An older version than the one there is refused by Redis.
    fn take(&mut self, now: Instant) -> Vec<(Instant, Projection)> {
        self.snapshots.retain(|(until, _)| *until > now);
        self.snapshots.drain(..self.snapshots.len().min(BATCH_MAX)).collect()
    }

    async fn send(&mut self, control: &Control) {
        let batch = self.take(Instant::now());
        let snapshots: Vec<_> = batch
            .iter()
            .map(|(_, Projection { json, ttl, change })| (change.task, change.version, json.clone(), *ttl))
            .collect();
        if let Err(error) = control.set_snapshots(&snapshots).await {
            tracing::debug!(%error, tasks = snapshots.len(), "snapshots were not set again yet");
            self.snapshots.extend(batch);
        }
        self.due = (!self.snapshots.is_empty()).then(|| Instant::now() + AGAIN_AFTER);
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

    fn versions(batch: &[Projection]) -> Vec<(TaskId, i32)> {
        batch.iter().map(|projection| (projection.change.task, projection.change.version)).collect()
    }

    #[test]
    fn of_each_task_the_latest_waits_in_the_order_of_the_first() {
        let (one, other) = (TaskId::generate(), TaskId::generate());
        let mut waiting = Waiting::default();
        for (task, version) in [(one, 2), (other, 7), (one, 4), (one, 3)] {
            waiting.put(projection(task, version));
        }
        assert_eq!(versions(&waiting.take()), [(one, 4), (other, 7)]);
        assert!(waiting.take().is_empty());
        waiting.put(projection(one, 5));
        waiting.put(projection(one, 4));
        assert_eq!(versions(&waiting.take()), [(one, 5)]);
    }

    #[test]
    fn more_than_fit_are_left_out_and_batches_are_bounded() {
        let mut waiting = Waiting::default();
        for _ in 0..WAITING_MAX + 10 {
            waiting.put(projection(TaskId::generate(), 1));
        }
        assert_eq!(waiting.take().len(), BATCH_MAX);
        assert_eq!(waiting.latest.len(), WAITING_MAX - BATCH_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn what_redis_did_not_take_is_kept_as_long_as_it_is_worth_it_and_bounded() {
        let mut again = Again::default();
        let now = Instant::now();
        again.put((0..WAITING_MAX + 5).map(|_| projection(TaskId::generate(), 2)).collect(), now);
        assert_eq!(again.due, Some(now + AGAIN_AFTER));
        assert_eq!(again.take(now + AGAIN_AFTER).len(), BATCH_MAX);
        assert_eq!(again.snapshots.len(), WAITING_MAX - BATCH_MAX);
        assert!(again.take(now + AGAIN_FOR).is_empty());
        assert!(again.snapshots.is_empty());
    }
}
