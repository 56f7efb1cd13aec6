//! When readers were told that a task would start, so that whoever starts it can say how true that was.

use std::time::Duration;

use domain::TaskId;

use crate::{
    Control, ControlError,
    instance::command,
    ttl::{jittered_ms, millis},
};

/// How long a promise is kept after its end.
const KEEP_AFTER: Duration = Duration::from_secs(600);
/// The longest that one is kept.
const KEEP_MAX: Duration = Duration::from_secs(24 * 3_600);

/// From when until when a task was said to start (milliseconds since 1970).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Not before.
    pub from_ms: i64,
    /// Not after.
    pub to_ms: i64,
}

impl Control {
    /// Keeps what readers of these tasks were told at `now_ms`. The first word counts; later ones are not kept.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn keep_promises(&self, of: &[(TaskId, Promise)], now_ms: i64) -> Result<(), ControlError> {
        let calls = of.iter().map(|(task, promise)| {
            let left = Duration::from_millis(u64::try_from(promise.to_ms - now_ms).unwrap_or(0));
            let keep = left.saturating_add(KEEP_AFTER).min(KEEP_MAX);
            let text = format!("{} {}", promise.from_ms, promise.to_ms);
            let set = command("SET").arg(self.keys().promise(*task)).arg(text).arg("NX");
            set.arg("PX").arg(jittered_ms(keep).max(millis(KEEP_AFTER)))
        });
        self.0.cache.calls_done(calls.collect()).await
    }

    /// What readers of these tasks were told first, and forgets it.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn take_promises(&self, tasks: &[TaskId]) -> Result<Vec<Option<Promise>>, ControlError> {
        let calls = tasks.iter().map(|task| command("GETDEL").arg(self.keys().promise(*task)));
        let texts: Vec<Option<String>> = self.0.cache.calls_as(calls.collect()).await?;
        Ok(texts.into_iter().map(|text| read(text.as_deref()?)).collect())
    }
}

/// `from to`; anything else is as good as nothing.
fn read(text: &str) -> Option<Promise> {
    let (from, to) = text.split_once(' ')?;
    Some(Promise { from_ms: from.parse().ok()?, to_ms: to.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Corner;

    #[tokio::test]
    async fn the_first_word_counts_and_is_taken_once() {
        let corner = Corner::new();
        let (task, other) = (TaskId::generate(), TaskId::generate());
        let first = Promise { from_ms: 1_000, to_ms: 2_000 };
        let later = Promise { from_ms: 5_000, to_ms: 6_000 };
        corner.control.keep_promises(&[(task, first)], 0).await.unwrap();
        corner.control.keep_promises(&[(task, later)], 4_000).await.unwrap();
        assert_eq!(corner.control.take_promises(&[task, other]).await, Ok(vec![Some(first), None]));
        assert_eq!(corner.control.take_promises(&[task]).await, Ok(vec![None]));
    }
}
