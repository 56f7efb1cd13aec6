//! Locks for efficiency only: two holders at once must do no harm.

use std::{fmt::Display, time::Duration};

use tokio::task::JoinHandle;

use crate::{Control, ControlError, instance::command, script::Script, ttl::millis};

/// A lock that is held, and prolonged in the background, until this is dropped or [`LockGuard::release`]d.
#[derive(Debug)]
pub struct LockGuard {
    held: Option<Held>,
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
        self.watchdog.abort();
        if let Err(error) = self.control.unlock(&self.key, &self.token).await {
            tracing::debug!(error = error.label(), "a lock is left to expire");
        }
    }
}

impl LockGuard {
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
        let ttl_ms = millis(ttl).max(1);
        let take = command("SET").arg(&key).arg(&token).arg("NX").arg("PX").arg(ttl_ms);
        let taken: Option<String> = self.0.control.call(take).await?;
        if taken.is_none() {
            return Ok(None);
        }
        let watchdog = tokio::spawn(watch(self.clone(), key.clone(), token.clone(), ttl));
        Ok(Some(LockGuard { held: Some(Held { control: self.clone(), key, token, watchdog }) }))
    }

    pub(crate) async fn unlock(&self, key: &str, token: &str) -> Result<(), ControlError> {
        let call = Script::LockExtend.on(&[key]).arg(token).arg(0);
        self.0.control.call::<u64>(call).await.map(drop)
    }
}

/// Prolongs the lock three times within its life, until it is somebody else's.
async fn watch(control: Control, key: String, token: String, ttl: Duration) {
    loop {
        tokio::time::sleep(ttl / 3).await;
        let call = Script::LockExtend.on(&[&key]).arg(&token).arg(millis(ttl).max(1));
        // An error may pass before the lock expires; being told that it is not ours cannot.
        if let Ok(0) = control.0.control.call::<u64>(call).await {
            return;
        }
    }
}

/// Something that nobody else writes.
pub(crate) fn random_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Corner;

    #[tokio::test]
    async fn one_holder_whose_watchdog_keeps_it_until_it_is_dropped() {
        let corner = Corner::new();
        let ttl = Duration::from_millis(300);
        let guard = corner.control.try_lock("poster", 1, ttl).await.unwrap().unwrap();
        assert!(corner.other().try_lock("poster", 1, ttl).await.unwrap().is_none());
        assert!(corner.other().try_lock("poster", 2, ttl).await.unwrap().is_some());
        tokio::time::sleep(ttl * 2).await;
        assert!(corner.other().try_lock("poster", 1, ttl).await.unwrap().is_none(), "it was not prolonged");
        drop(guard);
        testkit::wait_until("the lock", Duration::from_secs(5), async || {
            corner.other().try_lock("poster", 1, ttl).await.unwrap().is_some()
        })
        .await;
    }

    #[tokio::test]
    async fn who_lost_a_lock_does_not_release_the_next_holders() {
        let corner = Corner::new();
        let ttl = Duration::from_secs(30);
        let lost = corner.control.try_lock("poster", 1, ttl).await.unwrap().unwrap();
        let key = corner.keys().lock("poster", 1);
        corner.raw::<()>(&["SET", &key, "somebody else's", "PX", "30000"]).await;
        lost.release().await;
        assert_eq!(corner.raw::<String>(&["GET", &key]).await, "somebody else's");
    }
}
