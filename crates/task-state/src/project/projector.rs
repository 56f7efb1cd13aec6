//! The queue between commits and Redis, so that a slow Redis slows down no commit.
//!
//! It holds one projection of a task at most, the latest: when Redis is behind, versions in between are left out, which
//! nobody misses, since readers want the latest and streams read what they told last from PostgreSQL. What Redis did not
//! take is sent again, unless something newer waits by then; a reader would otherwise see the version before it until
//! that expires.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use control::{Control, Projection};
use domain::TaskId;
use tokio::{sync::Notify, time::sleep};

/// Tasks whose projections may wait; those of more are dropped.
const WAITING_MAX: usize = 4_096;
/// Projections sent together.
const BATCH_MAX: usize = 128;
/// The pause after Redis did not take a batch; it doubles while that lasts.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

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
    let mut pause = PAUSE_MIN;
    loop {
        let (batch, closed) = {
            let mut waiting = shared.waiting();
            (waiting.take(), waiting.closed)
        };
        if batch.is_empty() {
            if closed {
                return;
            }
            shared.news.notified().await;
            continue;
        }
        match control.project(&batch).await {
            Ok(()) => pause = PAUSE_MIN,
            Err(error) => {
                tracing::debug!(%error, tasks = batch.len(), "projections wait: Redis did not take them");
                if closed {
                    return;
                }
                {
                    let mut waiting = shared.waiting();
                    batch.into_iter().for_each(|projection| waiting.put(projection));
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
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
        assert_eq!(versions(&waiting.take()), [(one, 5)], "what comes back does not replace what is newer");
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
}
