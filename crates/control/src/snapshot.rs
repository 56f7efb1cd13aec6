//! Snapshots of tasks for readers, and the note that a task does not exist.

use std::time::Duration;

use domain::{TaskId, metric};

use crate::{
    Control, ControlError,
    instance::command,
    script::{Call, Script},
    ttl::jittered_ms,
};

/// How long a task is known not to exist.
const ABSENT_TTL: Duration = Duration::from_secs(30);

impl Control {
    /// The snapshots as they were set, `None` where there is none.
    ///
    /// # Errors
    /// When the cache cannot be reached; read PostgreSQL.
    pub async fn get_snapshots(&self, tasks: &[TaskId]) -> Result<Vec<Option<String>>, ControlError> {
        let calls = tasks.iter().map(|task| command("GET").arg(self.keys().snapshot(*task)));
        let found: Vec<Option<String>> = self.0.cache.calls_as(calls.collect()).await?;
        let hits = found.iter().flatten().count();
        count(metric::CACHE_HIT, hits);
        count(metric::CACHE_MISS, found.len() - hits);
        Ok(found)
    }

    /// Sets snapshots, each only if no newer version is there. The JSON must be an object that begins with its `version`. Returns
    /// for each whether it was set. Clears the note that the task does not exist.
    ///
    /// # Errors
    /// When the cache cannot be reached; the old entries expire.
    pub async fn set_snapshots(
        &self,
        snapshots: &[(TaskId, i32, String, Duration)],
    ) -> Result<Vec<bool>, ControlError> {
        let calls = snapshots
            .iter()
            .map(|(task, version, json, ttl)| self.snapshot_call(*task, *version, json, *ttl));
        let set: Vec<bool> = self.0.cache.calls_as(calls.collect()).await?;
        count(metric::CACHE_SET, set.iter().filter(|set| **set).count());
        Ok(set)
    }

    /// Notes for 30 s that no such task exists for anybody.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn mark_absent(&self, task: TaskId) -> Result<(), ControlError> {
        let set = command("SET").arg(self.keys().absent(task)).arg(1);
        self.0.cache.calls_done(vec![set.arg("PX").arg(jittered_ms(ABSENT_TTL))]).await
    }

    /// Whether that is noted.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn is_absent(&self, task: TaskId) -> Result<bool, ControlError> {
        self.0.cache.call(command("EXISTS").arg(self.keys().absent(task))).await
    }

    /// Takes the notes away: the tasks were created.
    ///
    /// # Errors
    /// When the cache cannot be reached; the notes expire.
    pub async fn clear_absent(&self, tasks: &[TaskId]) -> Result<(), ControlError> {
        let calls = tasks.iter().map(|task| command("DEL").arg(self.keys().absent(*task)));
        self.0.cache.calls_done(calls.collect()).await
    }

    /// Sets one snapshot; the expiry gets its jitter here.
    pub(crate) fn snapshot_call(&self, task: TaskId, version: i32, json: &str, ttl: Duration) -> Call {
        Script::SnapshotSet
            .on(&[self.keys().snapshot(task), self.keys().absent(task)])
            .arg(version)
            .arg(json)
            .arg(jittered_ms(ttl))
    }
}

pub(crate) fn count(name: &'static str, by: usize) {
    metrics::counter!(name, "cache" => "snapshot").increment(u64::try_from(by).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Corner;

    const TTL: Duration = Duration::from_secs(10);

    fn snapshot(version: i32) -> String {
        // The prompt tries to pass for a version.
        format!(r#"{{"version":{version},"prompt":"{{\"version\":99,","inputs":{{"version":98}}}}"#)
    }

    #[tokio::test]
    async fn a_later_version_wins_in_whatever_order_they_come() {
        let corner = Corner::new();
        let task = TaskId::generate();
        let set = async |version| {
            corner.control.set_snapshots(&[(task, version, snapshot(version), TTL)]).await.unwrap()[0]
        };
        assert!(set(3).await);
        assert!(!set(2).await);
        assert!(set(3).await, "the same version prolongs the entry");
        assert!(set(4).await);
        let other = TaskId::generate();
        assert_eq!(corner.control.get_snapshots(&[task, other]).await, Ok(vec![Some(snapshot(4)), None]));
        assert!((1..=11_000).contains(&corner.raw::<i64>(&["PTTL", &corner.keys().snapshot(task)]).await));
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_replaced() {
        let corner = Corner::new();
        let task = TaskId::generate();
        corner.raw::<()>(&["SET", &corner.keys().snapshot(task), "{not json"]).await;
        assert_eq!(corner.control.set_snapshots(&[(task, 1, snapshot(1), TTL)]).await, Ok(vec![true]));
    }

    #[tokio::test]
    async fn a_task_that_appears_is_no_longer_absent() {
        let corner = Corner::new();
        let (one, other) = (TaskId::generate(), TaskId::generate());
        for task in [one, other] {
            corner.control.mark_absent(task).await.unwrap();
            assert_eq!(corner.control.is_absent(task).await, Ok(true));
        }
        corner.control.set_snapshots(&[(one, 1, snapshot(1), TTL)]).await.unwrap();
        corner.control.clear_absent(&[other]).await.unwrap();
        assert_eq!(corner.control.is_absent(one).await, Ok(false));
        assert_eq!(corner.control.is_absent(other).await, Ok(false));
    }
}
