//! The operator log: who changed what by hand.

use pg::{PgConnection, PgError};
use serde_json::Value;

use crate::Actor;

/// One change.
pub(crate) struct Entry<'a> {
    /// What was done, such as `tenant.create`.
    pub(crate) verb: &'static str,
    /// To what, as its text id.
    pub(crate) subject: &'a str,
    /// What it was before.
    pub(crate) before: Option<Value>,
    /// What it is now. Never a secret.
    pub(crate) after: Option<Value>,
}

/// Writes the row, in the transaction of the change.
pub(crate) async fn write(conn: &mut PgConnection, actor: &Actor, entry: Entry<'_>) -> Result<(), PgError> {
    sqlx::query!(
        "INSERT INTO operator_log (key_id, verb, subject, before, after) VALUES ($1, $2, $3, $4, $5)",
        actor.key().map(domain::KeyId::as_str),
        entry.verb,
        entry.subject,
        entry.before,
        entry.after,
    )
    .execute(conn)
    .await?;
    Ok(())
}
