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
