//! Reading one task: process cache, then Redis, then PostgreSQL.
//!
//! The process cache holds ended tasks for five seconds and joins concurrent readers of a live one for at most 50
//! ms. What this process has committed and not told Redis yet comes before Redis, so nobody reads backwards here. A
//! reader that names a version it has seen never gets an older one: whatever a cache holds below that version counts
//! as absent.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use domain::{TaskId, metric, task::TaskSnapshot};
use metrics::counter;
use moka::{Expiry, future::Cache};
use pg::PgError;
use uuid::Uuid;

use crate::{
    TaskState,
    project::{self, Unsent},
    record::{TaskRecord, task_rows},
};

type Entry = Option<Arc<TaskSnapshot>>;

/// Ended tasks live for seconds here, live ones just long enough to join those who read at the same moment.
struct Lifetime;

impl Expiry<TaskId, Entry> for Lifetime {
    fn expire_after_create(&self, _: &TaskId, entry: &Entry, _: std::time::Instant) -> Option<Duration> {
        Some(match entry {
            Some(snapshot) if snapshot.status.is_terminal() => Duration::from_secs(5),
            _ => Duration::from_millis(50),
        })
    }

    fn expire_after_update(
        &self,
        id: &TaskId,
        entry: &Entry,
        at: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(id, entry, at)
    }
}

/// Cheap to clone; all clones are the same cache.
#[derive(Clone)]
pub(crate) struct ProcessCache {
    tasks: Cache<TaskId, Entry>,
    /// What this process has committed and Redis may not have yet.
    unsent: Arc<RwLock<Vec<Unsent>>>,
}

impl ProcessCache {
    pub(crate) fn new() -> Self {
        let tasks = Cache::builder().max_capacity(50_000).expire_after(Lifetime).build();
        Self { tasks, unsent: Arc::default() }
    }

    /// From now on readers also look there.
    pub(crate) fn look_at(&self, unsent: Unsent) {
        self.unsent.write().unwrap_or_else(PoisonError::into_inner).push(unsent);
    }

    /// The latest version among what this process has committed and Redis may not have yet.
    fn unsent(&self, task: TaskId) -> Option<Arc<TaskRecord>> {
        let unsent = self.unsent.read().unwrap_or_else(PoisonError::into_inner);
        unsent.iter().filter_map(|unsent| unsent.of(task)).max_by_key(|record| record.snapshot.version)
    }

    /// What was found elsewhere, or what this process committed while it was looked for. Whatever is older than what was found
    /// is not shown any more.
    fn latest(&self, found: TaskSnapshot) -> Arc<TaskSnapshot> {
        let task = found.task_id;
        let snapshot = match self.unsent(task) {
            Some(own) if own.snapshot.version > found.version => own.snapshot.clone(),
            Some(_) => {
                let unsent = self.unsent.read().unwrap_or_else(PoisonError::into_inner);
                unsent.iter().for_each(|unsent| unsent.overtaken(task, found.version));
                found
            }
            None => found,
        };
        Arc::new(snapshot)
    }

    /// Puts what a commit of this process has just made, so that its caller reads its own write. Never replaces a
    /// newer version.
    ///
    /// A version of a live task that nobody asked for only replaces one that somebody reads just now: few are read
    /// before the next comes.
    pub(crate) async fn put(&self, snapshot: &TaskSnapshot) {
        let asked_for = snapshot.status.is_terminal() || snapshot.cancel_requested;
        if !asked_for && !self.tasks.contains_key(&snapshot.task_id) {
            return;
        }
        self.tasks
            .entry(snapshot.task_id)
            .and_upsert_with(|present| {
                let newer = present
                    .and_then(moka::Entry::into_value)
                    .filter(|present| present.version > snapshot.version);
                std::future::ready(Some(newer.unwrap_or_else(|| Arc::new(snapshot.clone()))))
            })
            .await;
    }
}

impl TaskState {
    /// The snapshot of a task, of version `at_least` or later where one is named.
    ///
    /// # Errors
    /// When no cache has it and PostgreSQL cannot be asked.
    pub async fn snapshot(
        &self,
        task: TaskId,
        at_least: Option<i32>,
    ) -> Result<Option<Arc<TaskSnapshot>>, PgError> {
        let new_enough = |entry: &Entry| match (entry, at_least) {
            (Some(snapshot), Some(version)) => snapshot.version >= version,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        let cache = &self.shared.cache.tasks;
        if let Some(entry) = cache.get(&task).await {
            if new_enough(&entry) {
                counter!(metric::CACHE_HIT, "cache" => "process").increment(1);
                return Ok(entry);
            }
            cache.invalidate(&task).await;
        }
        // Boxed where it begins, as is the way to PostgreSQL: most reads find an answer before and carry no room for it.
        let loaded = cache.try_get_with(task, async { Box::pin(self.load(task, at_least)).await }).await;
        let entry = loaded
            .map_err(|error: Arc<PgError>| PgError::Unavailable(sqlx::Error::Configuration(error.into())))?;
        if new_enough(&entry) {
            return Ok(entry);
        }
        // We joined a reader who was content with an older version: ask PostgreSQL ourselves.
        Box::pin(self.read_through(task)).await
    }

    /// What is on its way to Redis, then Redis, then PostgreSQL.
    async fn load(&self, task: TaskId, at_least: Option<i32>) -> Result<Entry, PgError> {
        let cache = &self.shared.cache;
        if let Some(own) = cache.unsent(task)
            && at_least.is_none_or(|version| own.snapshot.version >= version)
        {
            counter!(metric::CACHE_HIT, "cache" => "process").increment(1);
            return Ok(Some(Arc::new(own.snapshot.clone())));
        }
        // A Redis that is away is a cache that misses.
        if let Ok(mut found) = self.shared.control.get_snapshots(&[task]).await
            && let Some(json) = found.pop().flatten()
            && let Ok(snapshot) = serde_json::from_str::<TaskSnapshot>(&json)
            && at_least.is_none_or(|version| snapshot.version >= version)
        {
            counter!(metric::CACHE_HIT, "cache" => "redis").increment(1);
            return Ok(Some(cache.latest(snapshot)));
        }
        counter!(metric::CACHE_MISS, "cache" => "redis").increment(1);
        if at_least.is_none() && matches!(self.shared.control.is_absent(task).await, Ok(true)) {
            return Ok(None);
        }
        Box::pin(self.read_through(task)).await
    }

    async fn read_through(&self, task: TaskId) -> Result<Entry, PgError> {
        let Some(record) = self.record(task).await? else {
            let _ = self.shared.control.mark_absent(task).await;
            return Ok(None);
        };
        let snapshot = self.shared.cache.latest(record.snapshot);
        project::fill(&self.shared, &snapshot).await;
        Ok(Some(snapshot))
    }

    /// The task as PostgreSQL has it now.
    ///
    /// # Errors
    /// When PostgreSQL cannot be asked.
    pub async fn record(&self, task: TaskId) -> Result<Option<TaskRecord>, PgError> {
        let row = task_rows!("WHERE t.id = $1", task.as_uuid()).fetch_optional(&self.shared.pool).await?;
        row.map(TaskRecord::try_from).transpose()
    }

    /// The tasks as PostgreSQL has them now, in the order of their ids; unknown ids are left out.
    ///
    /// # Errors
    /// When PostgreSQL cannot be asked.
    pub async fn records(&self, tasks: &[TaskId]) -> Result<Vec<TaskRecord>, PgError> {
        let ids: Vec<Uuid> = tasks.iter().map(|t| t.as_uuid()).collect();
        let rows =
            task_rows!("WHERE t.id = ANY($1) ORDER BY t.id", &ids).fetch_all(&self.shared.pool).await?;
        rows.into_iter().map(TaskRecord::try_from).collect()
    }
}
