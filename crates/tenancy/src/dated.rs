//! What was read, and when it was asked for.
//!
//! An answer is as old as its question. A read that began before a key was revoked may come home long after, and be written
//! down when everybody else has forgotten the key; counted from then, the key would live on for as long as any memory does.
//! So what is remembered here is forgotten by the age of the question, and whoever asks is told nothing that was older than
//! that when they came. Where PostgreSQL takes longer than that to answer, nothing is remembered.

use std::{
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

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

/// Remembers so many values at most, none of them longer than some time after it was asked for.
pub(crate) struct Memory<K, T> {
    known: Cache<K, Dated<T>>,
    /// When keys were forgotten: what was asked for before that is not remembered any more, whenever it comes home.
    forgotten: Cache<K, Instant>,
    age_max: Duration,
}

impl<K, T> Memory<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(values_max: u64, age_max: Duration) -> Self {
        let known = Cache::builder().max_capacity(values_max).expire_after(AgeMax(age_max)).build();
        let forgotten = Cache::builder().max_capacity(values_max).time_to_live(age_max).build();
        Self { known, forgotten, age_max }
    }

    pub(crate) async fn get(&self, key: &K) -> Option<Dated<T>> {
        self.known.get(key).await
    }

    /// What is known, or else what is read now. Callers at the same moment share one read.
    pub(crate) async fn get_or_read<E, R>(&self, key: &K, read: impl Fn() -> R) -> Result<Dated<T>, Arc<E>>
    where
        E: Send + Sync + 'static,
        R: Future<Output = Result<T, E>>,
    {
        let came_at = Instant::now();
        loop {
            // Boxed where it begins: whoever finds an answer there carries no room for the question.
            let asked = async { Box::pin(Dated::ask(read())).await };
            let found = self.known.try_get_with(key.clone(), asked).await?;
            // A read under way may have begun long ago. The next one begins after we came.
            if found.asked_at + self.age_max >= came_at && !self.is_forgotten(key, &found).await {
                return Ok(found);
            }
            self.known.invalidate(key).await;
        }
    }

    /// Remembers this, unless something is known that was asked for later.
    pub(crate) async fn learn(&self, key: K, news: Dated<T>) {
        if self.is_forgotten(&key, &news).await {
            return;
        }
        let later =
            |known: moka::Entry<K, Dated<T>>| Some(known.into_value()).filter(|k| k.asked_at > news.asked_at);
        let decide =
            |known: Option<_>| std::future::ready(known.and_then(later).unwrap_or_else(|| news.clone()));
        self.known.entry(key).and_upsert_with(decide).await;
    }

    /// From now on nothing counts that was asked for before.
    pub(crate) async fn forget(&self, key: &K) {
        self.forgotten.insert(key.clone(), Instant::now()).await;
        self.known.invalidate(key).await;
    }

    async fn is_forgotten(&self, key: &K, value: &Dated<T>) -> bool {
        self.forgotten.get(key).await.is_some_and(|at| value.asked_at < at)
    }

    #[cfg(test)]
    pub(crate) async fn is_empty(&self) -> bool {
        self.known.run_pending_tasks().await;
        self.known.entry_count() == 0
    }
}

impl<K, T> std::fmt::Debug for Memory<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("age_max", &self.age_max).finish_non_exhaustive()
    }
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
    use std::sync::Mutex;

    use tokio::sync::oneshot;

    use super::*;

    const AGE: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn a_late_answer_is_told_to_those_alone_who_waited_for_it() {
        let memory = Arc::new(Memory::<u8, &str>::new(10, AGE));
        let ((old, first), (new, second)) = (oneshot::channel(), oneshot::channel());
        let answers = Arc::new(Mutex::new(vec![second, first]));
        let ask = || {
            let (memory, answers) = (Arc::clone(&memory), Arc::clone(&answers));
            tokio::spawn(async move {
                let read = || async {
                    let answer = answers.lock().unwrap().pop().unwrap();
                    answer.await
                };
                memory.get_or_read(&1, read).await.unwrap().value
            })
        };
        let early = ask();
        testkit::wait_until("the question", AGE, async || answers.lock().unwrap().len() == 1).await;
        // Its question is older than may be when the answer comes, and also when somebody else asks.
        tokio::time::sleep(AGE).await;
        let late = ask();
        tokio::task::yield_now().await;
        old.send("as it was").unwrap();
        assert_eq!(early.await.unwrap(), "as it was");
        new.send("as it is").unwrap();
        assert_eq!(late.await.unwrap(), "as it is");
    }

    #[tokio::test]
    async fn what_was_asked_for_later_is_not_overwritten() {
        let memory = Memory::<u8, &str>::new(10, Duration::from_secs(60));
        let begun = Instant::now();
        memory.learn(1, Dated { value: "as it is", asked_at: begun + Duration::from_millis(1) }).await;
        memory.learn(1, Dated { value: "as it was", asked_at: begun }).await;
        assert_eq!(memory.get(&1).await.unwrap().value, "as it is");
        memory.learn(1, Dated { value: "as it became", asked_at: begun + Duration::from_millis(2) }).await;
        assert_eq!(memory.get(&1).await.unwrap().value, "as it became");
        let before = Instant::now();
        memory.forget(&1).await;
        assert!(memory.get(&1).await.is_none());
        memory.learn(1, Dated { value: "as it was before the change", asked_at: before }).await;
        assert!(memory.get(&1).await.is_none());
    }

    #[tokio::test]
    async fn a_read_that_a_change_overtakes_is_repeated() {
        let memory = Arc::new(Memory::<u8, &str>::new(10, Duration::from_secs(60)));
        let ((old, first), (new, second)) = (oneshot::channel(), oneshot::channel());
        let answers = Arc::new(Mutex::new(vec![second, first]));
        let asking = tokio::spawn({
            let (memory, answers) = (Arc::clone(&memory), Arc::clone(&answers));
            async move {
                let read = || async {
                    let answer = answers.lock().unwrap().pop().unwrap();
                    answer.await
                };
                memory.get_or_read(&1, read).await.unwrap().value
            }
        });
        testkit::wait_until("the question", AGE, async || answers.lock().unwrap().len() == 1).await;
        memory.forget(&1).await;
        old.send("as it was").unwrap();
        new.send("as it is").unwrap();
        assert_eq!(asking.await.unwrap(), "as it is");
        assert_eq!(memory.get(&1).await.unwrap().value, "as it is");
    }
}
