//! Burying messages, for both backends: each with its line, its count and its row.

use domain::metric;
use futures::FutureExt;
use outbox::NewDeadLetter;
use pg::{PgConnection, PgError, PgPool};

use crate::Message;

/// The letter for a message.
pub(crate) fn letter(message: &Message, reason: String) -> NewDeadLetter {
    let Message { topic, place, key, payload } = message;
    NewDeadLetter {
        topic: *topic,
        partition: place.partition,
        offset: place.offset,
        key: (!key.is_empty()).then(|| key.clone()),
        payload: payload.clone(),
        reason,
    }
}

/// Tells of letters that are about to be written.
pub(crate) fn tell(letters: &[NewDeadLetter]) {
    for letter in letters {
        tracing::error!(
            topic = %letter.topic, partition = letter.partition, offset = letter.offset,
            reason = letter.reason, "a message goes to the dead letters"
        );
        metrics::counter!(metric::DEAD_LETTER, "topic" => letter.topic.as_str()).increment(1);
    }
}

/// Writes letters in a transaction of their own.
pub(crate) async fn write(pool: &PgPool, letters: Vec<NewDeadLetter>) -> Result<(), PgError> {
    pg::transact(pool, move |conn: &mut PgConnection| {
        async move { outbox::bury(conn, &letters).await.map(drop) }.boxed()
    })
    .await
}
