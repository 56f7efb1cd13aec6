//! Locks for efficiency only: two holders at once must do no harm. `docs/locks.md` says what they do not promise.
//!
//! A lock is a random token under a key that expires. Its watchdog prolongs it three times within its life and knows until
//! when it is ours for certain, counted from before the prolonging was asked for; a holder that is told of the loss can
//! stop early. Only the holder's own token is ever prolonged or deleted.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{sync::watch, task::JoinHandle};

use crate::{Control, ControlError, instance::command, script::Script, ttl::millis};

/// Prolonged after this part of its life.
const RENEW_PART: u32 = 3;
/// Asked again after this part of its life, when the answer was an error.
const ASK_AGAIN_PART: u32 = 12;
/// Between two attempts to take a lock that somebody else holds, before jitter.
const TAKE_AGAIN_MIN: Duration = Duration::from_millis(20);
const TAKE_AGAIN_MAX: Duration = Duration::from_millis(500);

/// A lock that is held, and prolonged in the background, until this is dropped or [`LockGuard::release`]d.
#[derive(Debug)]
pub struct LockGuard {
    state: watch::Receiver<State>,
    held: Option<Held>,
}

/// What the watchdog knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Ours until then, as far as Redis was asked.
    Until(Instant),
    /// It is somebody else's, or gone.
    Lost,
}

impl State {
    fn is_lost(self) -> bool {
        match self {
            // A process that stood still may look before its watchdog does.
            Self::Until(instant) => Instant::now() >= instant,
            Self::Lost => true,
        }
    }
}

#[derive(Debug)]
struct Held {
    control: Control,
    key: String,
    token: String,
    watchdog: JoinHandle<()>,
}

impl Held {
    async fn release(self) {
        // Nobody may prolong what is being given back.
        self.watchdog.abort();
        let _ = self.watchdog.await;
        if let Err(error) = self.control.unlock(&self.key, &self.token).await {
            tracing::debug!(error = error.label(), "a lock is left to expire");
        }
    }
}

impl LockGuard {
    /// Whether the lock is not ours any more, or nobody can say that it is: then stop soon.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state.borrow().is_lost()
    }

    /// Returns when the lock is lost. Never while it is held.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        // The watchdog goes away only with the guard, or after it has told of the loss.
        if state.wait_for(|state| state.is_lost()).await.is_err() && !self.is_lost() {
            std::future::pending::<()>().await;
        }
    }

    /// Releases the lock and waits for it.
    pub async fn release(mut self) {
        if let Some(held) = self.held.take() {
            held.release().await;
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.watchdog.abort();
            // Outside a runtime there is nobody to release it; it expires.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(held.release());
            }
        }
    }
}

impl Control {
    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// When control cannot be reached: skip the work.
    pub async fn try_lock(
        &self,
        purpose: &'static str,
        id: impl Display,
        ttl: Duration,
    ) -> Result<Option<LockGuard>, ControlError> {
        let (key, token) = (self.keys().lock(purpose, id), random_token());
        let take = command("SET").arg(&key).arg(&token).arg("NX").arg("PX").arg(millis(ttl).max(1));
        let asked = Instant::now();
        match self.0.control.call::<Option<String>>(take).await {
            Ok(Some(_)) => Ok(Some(self.guard(key, token, ttl, asked + ttl))),
            Ok(None) => Ok(None),
            Err(error) => {
                // It may have been taken all the same, and nobody else should have to wait for its end.
                if error.is_unknown()
                    && let Err(error) = self.unlock(&key, &token).await
                {
                    tracing::debug!(error = error.label(), "a lock that may be ours is left to expire");
                }
                Err(error)
            }
        }
    }

    /// Takes the lock, asking again with jitter for as long as somebody else holds it. `None` when that was longer
    /// than `patience`.
    ///
    /// # Errors
    /// When control cannot be reached: skip the work.
    pub async fn lock(
        &self,
        purpose: &'static str,
        id: impl Display,
        ttl: Duration,
        patience: Duration,
    ) -> Result<Option<LockGuard>, ControlError> {
        let until = Instant::now() + patience;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(TAKE_AGAIN_MIN)
            .with_max_delay(TAKE_AGAIN_MAX)
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            if let Some(guard) = self.try_lock(purpose, &id, ttl).await? {
                return Ok(Some(guard));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            tokio::time::sleep(pauses.next().unwrap_or(TAKE_AGAIN_MAX).min(left)).await;
        }
    }

    fn guard(&self, key: String, token: String, ttl: Duration, until: Instant) -> LockGuard {
        let (tell, state) = watch::channel(State::Until(until));
        let watchdog = tokio::spawn(watch_over(self.clone(), key.clone(), token.clone(), ttl, tell));
        LockGuard { state, held: Some(Held { control: self.clone(), key, token, watchdog }) }
    }

    pub(crate) async fn unlock(&self, key: &str, token: &str) -> Result<(), ControlError> {
        let call = Script::LockExtend.on(&[key]).arg(token).arg(0);
        self.0.control.call::<u64>(call).await.map(drop)
    }
}

/// Prolongs the lock again and again, until it is lost.
async fn watch_over(
    control: Control,
    key: String,
    token: String,
    ttl: Duration,
    state: watch::Sender<State>,
) {
    let mut pause = ttl / RENEW_PART;
    loop {
        let State::Until(until) = *state.borrow() else { return };
        tokio::time::sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
        let call = Script::LockExtend.on(&[&key]).arg(&token).arg(millis(ttl).max(1));
        let asked = Instant::now();
        // Past its time nothing is prolonged: whoever looked then was told that it is lost.
        let answer = if asked < until { control.0.control.call::<u64>(call).await } else { Ok(0) };
        pause = match answer {
            Ok(0) => {
                state.send_replace(State::Lost);
                return;
            }
            Ok(_) => {
                state.send_replace(State::Until(asked + ttl));
                ttl / RENEW_PART
            }
            // It may pass before the lock expires.
            Err(_) => ttl / ASK_AGAIN_PART,
        };
    }
}

/// Something that nobody else writes.
pub(crate) fn random_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use testkit::wait_until;
    use tokio::time::timeout;

    use super::*;
    use crate::testing::Corner;

    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(30);
    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn one_holder_whose_watchdog_keeps_it_until_it_is_dropped() {
        let corner = Corner::new();
        let guard = corner.control.try_lock("poster", 1, SHORT).await.unwrap().unwrap();
        assert!(corner.other().try_lock("poster", 1, SHORT).await.unwrap().is_none());
        assert!(corner.other().try_lock("poster", 2, SHORT).await.unwrap().is_some());
        assert!(timeout(SHORT * 3, guard.lost()).await.is_err(), "it was not prolonged");
        assert!(corner.other().try_lock("poster", 1, SHORT).await.unwrap().is_none());
        drop(guard);
        wait_until("the lock", SOON, async || {
            corner.other().try_lock("poster", 1, SHORT).await.unwrap().is_some()
        })
        .await;
    }

    #[tokio::test]
    async fn who_lost_a_lock_is_told_and_does_not_release_or_prolong_the_next_holders() {
        let corner = Corner::new();
        let lost = corner.control.try_lock("poster", 1, SHORT).await.unwrap().unwrap();
        let key = corner.keys().lock("poster", 1);
        corner.raw::<()>(&["SET", &key, "somebody else's", "PX", "30000"]).await;
        timeout(SOON, lost.lost()).await.expect("the loss is told");
        assert!(lost.is_lost());
        let left: i64 = corner.raw(&["PTTL", &key]).await;
        assert!(left > 10_000, "the other holder's time was cut to {left} ms");
        lost.release().await;
        assert_eq!(corner.raw::<String>(&["GET", &key]).await, "somebody else's");
    }

    #[tokio::test]
    async fn a_lock_that_was_flushed_is_lost_and_not_taken_back() {
        let corner = Corner::new();
        let guard = corner.control.try_lock("poster", 1, SHORT).await.unwrap().unwrap();
        let key = corner.keys().lock("poster", 1);
        corner.raw::<u64>(&["DEL", &key]).await;
        timeout(SOON, guard.lost()).await.expect("the loss is told");
        assert!(!corner.raw::<bool>(&["EXISTS", &key]).await);
    }

    #[tokio::test]
    async fn whoever_waits_gets_it_when_it_is_free_and_gives_up_when_it_is_not() {
        let corner = Corner::new();
        let guard = corner.control.try_lock("poster", 1, LONG).await.unwrap().unwrap();
        let impatient = corner.other().lock("poster", 1, LONG, Duration::from_millis(100)).await.unwrap();
        assert!(impatient.is_none());
        let other = corner.other();
        let waiting = tokio::spawn(async move { other.lock("poster", 1, LONG, SOON).await });
        guard.release().await;
        assert!(waiting.await.unwrap().unwrap().is_some());
    }

    /// Tasks on several threads, as of several processes, on one lock whose life is far shorter than the whole.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_take_turns_and_never_two_at_once() {
        const TASKS: usize = 48;
        let corner = Corner::new();
        let handles: Vec<_> = (0..4).map(|_| corner.other()).collect();
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        let tasks = (0..TASKS).map(|index| {
            let control = handles[index % handles.len()].clone();
            tokio::spawn(async move {
                let guard = control.lock("turn", 1, LONG, LONG * 2).await.unwrap().expect("its turn");
                assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                // Others get their chance to come in.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1);
                assert!(!guard.is_lost());
                // Half release, half drop.
                if index % 2 == 0 {
                    guard.release().await;
                }
            })
        });
        let ended = join_all(tasks).await;
        assert_eq!(ended.into_iter().filter(Result::is_ok).count(), TASKS);
    }
}
