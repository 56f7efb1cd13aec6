//! Leases: a sign of life of whoever follows a task. Ownership itself is in PostgreSQL.

use std::time::Duration;

use domain::{ModelName, ProviderAccountId, TaskId, TenantId, UserId, WorkerId};
use serde::{Deserialize, Serialize};

use crate::{Control, ControlError};

/// Who follows which attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// Its attempt.
    pub attempt_no: i32,
    /// The token that PostgreSQL issued; a higher one is a later owner.
    pub fencing_token: i64,
    /// The owner.
    pub worker: WorkerId,
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// The provider account.
    pub account: ProviderAccountId,
    /// The provider's model.
    pub model: ModelName,
}

/// What became of a lease that was put or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It is ours and lives on.
    Renewed,
    /// It is gone. Check the token in PostgreSQL, then put it again. (Never the answer to a put.)
    Absent,
    /// Another owner's, with this token: stop.
    OtherToken(i64),
}

impl Control {
    /// Writes leases, unless one with a higher token is there.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn put_leases(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Renewal>, ControlError> {
        let _ = (leases, ttl);
        Err(ControlError::Unavailable)
    }

    /// Prolongs leases: one script per account for all of them. Restores none that is gone.
    ///
    /// # Errors
    /// When control cannot be reached: go on following, since nobody takes over while control is away.
    pub async fn renew_leases(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Renewal>, ControlError> {
        let _ = (leases, ttl);
        Err(ControlError::Unavailable)
    }

    /// Removes leases that are still ours.
    ///
    /// # Errors
    /// When control cannot be reached; they expire.
    pub async fn drop_leases(&self, leases: &[Lease]) -> Result<(), ControlError> {
        let _ = leases;
        Err(ControlError::Unavailable)
    }

    /// The leases as they stand.
    ///
    /// # Errors
    /// When control cannot be reached: then nothing is known, and nobody may be taken over.
    pub async fn look_leases(
        &self,
        of: &[(ProviderAccountId, TaskId)],
    ) -> Result<Vec<Option<Lease>>, ControlError> {
        let _ = of;
        Err(ControlError::Unavailable)
    }
}
