//! How far the queue is behind: the figure that says whether anybody is listening.

use std::time::Duration;

use pg::{PgConnection, PgError, Violation};

use crate::Topic;

/// The age of the oldest message that has not been acknowledged, or `None` when there is no message.
///
/// # Errors
/// [`PgError`].
pub async fn oldest_age(conn: &mut PgConnection) -> Result<Option<Duration>, PgError> {
    let seconds = sqlx::query_scalar!(
        r#"SELECT greatest(extract(epoch FROM aiv_now() - created_at), 0)::float8 AS "age!"
           FROM outbox_events ORDER BY id LIMIT 1"#
    )
    .fetch_optional(conn)
    .await?;
    Ok(seconds.map(Duration::from_secs_f64))
}

/// How many messages of a topic have not been acknowledged. Counts rows: for tests and operators, not for a loop.
///
/// # Errors
/// [`PgError`].
pub async fn depth(conn: &mut PgConnection, topic: Topic) -> Result<u64, PgError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM outbox_events WHERE topic = $1"#,
        topic.as_str()
    )
    .fetch_one(conn)
    .await?;
    Ok(u64::try_from(count).unwrap_or_default())
}

/// Reports a message that is older than `bound`.
///
/// # Errors
/// [`PgError`].
pub async fn audit(conn: &mut PgConnection, bound: Duration) -> Result<Vec<Violation>, PgError> {
    let age = oldest_age(conn).await?;
    Ok(age
        .filter(|age| *age > bound)
        .map(|age| Violation {
            rule: "outbox_age",
            subject: "outbox_events".to_owned(),
            detail: format!("oldest message is {} s old, bound {} s", age.as_secs(), bound.as_secs()),
        })
        .into_iter()
        .collect())
}
