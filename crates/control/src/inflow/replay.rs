//! Remembering answers under their idempotency keys, briefly: PostgreSQL keeps them for a day.

use std::time::Duration;

use domain::TenantId;

use crate::{Control, ControlError, ReplayKey, StoredAnswer, instance::command, ttl::jittered_ms};

/// How long a replay is answered without the database.
const KEEP: Duration = Duration::from_secs(600);

impl Control {
    /// Stores answers for ten minutes. Call it after the commit that they report.
    ///
    /// # Errors
    /// When control cannot be reached; a replay is then answered by PostgreSQL.
    pub async fn remember_answers(
        &self,
        answers: &[(TenantId, ReplayKey, StoredAnswer)],
    ) -> Result<(), ControlError> {
        let mut calls = Vec::with_capacity(answers.len());
        for (tenant, replay, answer) in answers {
            let json =
                serde_json::to_string(answer).map_err(|error| ControlError::Protocol(error.to_string()))?;
            let key = self.keys().replay(*tenant, replay.user, &replay.hash);
            calls.push(command("SET").arg(key).arg(json).arg("PX").arg(jittered_ms(KEEP)));
        }
        self.0.control.calls_done(calls).await
    }
}
