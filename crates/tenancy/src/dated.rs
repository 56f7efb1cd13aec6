//! What was read, and when it was asked for.
//!
//! An answer is as old as its question. A read that began before a key was revoked may come home long after, and be written
//! down when everybody else has forgotten the key; counted from then, the key would live on for as long as any memory does.
//! So what is remembered here is forgotten by the age of the question.

use std::time::{Duration, Instant};

use moka::{Expiry, future::Cache};

/// A value that was asked for at some instant.
#[derive(Debug, Clone)]
pub(crate) struct Dated<T> {
    pub(crate) value: T,
    pub(crate) asked_at: Instant,
}

impl<T> Dated<T> {
    /// Asks now.
    pub(crate) async fn ask<E>(read: impl Future<Output = Result<T, E>>) -> Result<Self, E> {
        let asked_at = Instant::now();
        Ok(Self { value: read.await?, asked_at })
    }
}

/// A memory that holds at most so many values, none of them longer than `age` after it was asked for.
pub(crate) fn memory<K, T>(entries_max: u64, age: Duration) -> Cache<K, Dated<T>>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    Cache::builder().max_capacity(entries_max).expire_after(AgeMax(age)).build()
}

struct AgeMax(Duration);

impl AgeMax {
    fn left<T>(&self, of: &Dated<T>, now: Instant) -> Option<Duration> {
        Some(self.0.saturating_sub(now.saturating_duration_since(of.asked_at)))
    }
}

impl<K, T> Expiry<K, Dated<T>> for AgeMax {
    fn expire_after_create(&self, _: &K, value: &Dated<T>, now: Instant) -> Option<Duration> {
        self.left(value, now)
    }

    fn expire_after_update(
        &self,
        _: &K,
        value: &Dated<T>,
        now: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.left(value, now)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const AGE: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn a_late_answer_is_not_remembered_for_longer_than_a_quick_one() {
        let memory = memory::<(), &str>(10, AGE);
        let begun = Instant::now();
        let (answer, late) = oneshot::channel();
        let asking = {
            let memory = memory.clone();
            tokio::spawn(async move { memory.try_get_with((), Dated::ask(late)).await.unwrap().value })
        };
        // Its question is as old as may be when the answer comes.
        tokio::time::sleep(AGE).await;
        answer.send("as it was").unwrap();
        assert_eq!(asking.await.unwrap(), "as it was", "whoever asked is answered");
        assert!(begun.elapsed() >= AGE);
        assert!(memory.get(&()).await.is_none(), "and nobody else");
        // Neither does one that overwrites a newer one.
        memory.insert((), Dated { value: "as it is", asked_at: Instant::now() }).await;
        assert_eq!(memory.get(&()).await.unwrap().value, "as it is");
        memory.insert((), Dated { value: "as it was", asked_at: begun }).await;
        assert!(memory.get(&()).await.is_none());
    }
}
