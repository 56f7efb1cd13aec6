//! Locks for efficiency only: two holders at once must do no harm.

use std::{fmt::Display, time::Duration};

use crate::{Control, ControlError};

/// A lock that is held, and prolonged in the background, until this is dropped or [`LockGuard::release`]d.
#[derive(Debug)]
pub struct LockGuard {
    key: String,
}

impl LockGuard {
    /// Releases the lock and waits for it.
    pub async fn release(self) {
        let _ = self.key;
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
        let _ = (self.keys().lock(purpose, id), ttl);
        Err(ControlError::Unavailable)
    }
}
