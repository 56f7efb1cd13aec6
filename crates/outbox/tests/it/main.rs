//! The outbox against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod dead_letters;
mod queue;
mod shards;

use std::time::Duration;

use domain::TaskId;
use outbox::{Envelope, NewEvent, Topic};
use pg::{PgError, PgPool};

const TOPIC: Topic = Topic::GenerationRequested;
const LONG: Duration = Duration::from_secs(60);

fn event() -> NewEvent {
    NewEvent::about(TOPIC, &Envelope::new(TaskId::generate(), 1, None))
}

async fn append(pool: &PgPool, events: Vec<NewEvent>) {
    pg::transact(pool, move |conn| Box::pin(async move { outbox::append(conn, &events).await }))
        .await
        .unwrap();
}

async fn depth(pool: &PgPool) -> u64 {
    outbox::depth(&mut pool.acquire().await.unwrap(), TOPIC).await.unwrap()
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the caller changed its mind")]
    OnPurpose,
    #[error(transparent)]
    Pg(#[from] PgError),
}
