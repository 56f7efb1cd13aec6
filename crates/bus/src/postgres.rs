//! The backend without a broker: the outbox table is the queue.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{FutureExt, future::BoxFuture};
use outbox::{Claimed, NewDeadLetter, Topic};
use pg::{PgError, PgPool};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    Bus, BusError, BusOptions, ConsumerStatus, Handler, Message, Place, Rejected,
    deliver::{Verdicts, deliver},
    hints::Hints,
    letters,
};

/// The longest wait for a statement; beyond the server's own limits it must be frozen or unreachable.
const STATEMENT_LIMIT: Duration = Duration::from_secs(15);

/// The first pause after a fault. It doubles while the fault lasts.
const RECOVERY_MIN: Duration = Duration::from_secs(1);

/// The longest pause after a fault.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// After a look at the whole queue that left nothing, looks are at what became due since, for so long. A message of a
/// transaction that took longer than that is found by the next whole look.
const RECENT_FOR: Duration = Duration::from_secs(2);

/// How far back those look.
const RECENT: Duration = Duration::from_secs(4);

pub(crate) struct PostgresBus {
    pool: PgPool,
    options: BusOptions,
    hints: Hints,
}

impl PostgresBus {
    pub(crate) fn new(pool: PgPool, options: BusOptions) -> Self {
        Self { hints: Hints::new(&pool), pool, options }
    }
}

#[async_trait]
impl Bus for PostgresBus {
    async fn run(
        &self,
        topic: Topic,
        handler: Arc<dyn Handler>,
        status: ConsumerStatus,
        shutdown: CancellationToken,
    ) -> Result<(), BusError> {
        let _consuming = self.hints.consume(topic);
        let mut recovery = RECOVERY_MIN;
        let mut drained_at: Option<Instant> = None;
        let complaints = domain::complaints::Complaints::new();
        while !shutdown.is_cancelled() {
            let started = Instant::now();
            // Armed before the look: a message committed right after it still rings.
            let bell = self.hints.bell(topic);
            let mut bell = std::pin::pin!(bell);
            bell.as_mut().enable();
            let look = match drained_at {
                Some(instant) if instant.elapsed() < RECENT_FOR => Look::Recent,
                _ => Look::Whole,
            };
            match self.round(topic, look, &*handler, &shutdown).await {
                Ok(round) => {
                    status.came_round();
                    recovery = RECOVERY_MIN;
                    if let (Look::Whole, Round::Drained) = (look, &round) {
                        drained_at = Some(started);
                    }
                    if let Round::Drained = round {
                        let rest = async {
                            let _ = timeout(self.options.poll, bell).await;
                            sleep_until(started + self.options.gather).await;
                        };
                        let _ = shutdown.run_until_cancelled(rest).await;
                    }
                }
                Err(error) => {
                    if let Some(silent) = complaints.complain(std::time::Instant::now()) {
                        tracing::warn!(%topic, silent, error = %crate::deliver::chain(&error), "the queue cannot be read");
                    }
                    status.failed(&error);
                    let _ = shutdown.run_until_cancelled(sleep(recovery)).await;
                    recovery = RECOVERY_MAX.min(recovery * 2);
                }
            }
        }
        Ok(())
    }

    async fn relay(&self, _: ConsumerStatus, _: CancellationToken) -> Result<(), BusError> {
        Ok(())
    }

    fn nudge(&self, topic: Topic) {
        self.hints.nudge(topic);
    }
}

/// How far back a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Whole,
    Recent,
}

/// What one look at the queue found.
enum Round {
    /// As many as were asked for: there may be more.
    Full,
    /// All that were due.
    Drained,
}

impl PostgresBus {
    async fn round(
        &self,
        topic: Topic,
        look: Look,
        handler: &dyn Handler,
        shutdown: &CancellationToken,
    ) -> Result<Round, PgError> {
        let Self { pool, options, .. } = self;
        let (max, visible_for) = (options.batch_max, options.visible_for);
        let claimed = match look {
            Look::Whole => within(outbox::claim(pool, topic, max, visible_for)).await?,
            Look::Recent => within(outbox::claim_recent(pool, topic, max, visible_for, RECENT)).await?,
        };
        if claimed.is_empty() {
            return Ok(Round::Drained);
        }
        let ids: Vec<i64> = claimed.iter().map(|message| message.id).collect();
        let full = ids.len() >= usize::try_from(options.batch_max).unwrap_or(usize::MAX);
        let batch: Vec<Message> = claimed.into_iter().map(|claimed| message(topic, claimed)).collect();

        let hold = || self.hold(&ids);
        let Verdicts { handled, dead, undone } = deliver(handler, &batch, options, &hold, shutdown).await;

        let ids_of = |indices: &[usize]| indices.iter().map(|index| ids[*index]).collect::<Vec<_>>();
        if !handled.is_empty() {
            within(outbox::ack(pool, &ids_of(&handled))).await?;
        }
        if !dead.is_empty() {
            self.bury(&batch, dead).await?;
        }
        if !undone.is_empty() {
            within(outbox::release(pool, &ids_of(&undone), Duration::ZERO)).await?;
        }
        Ok(if full { Round::Full } else { Round::Drained })
    }

    /// Prolongs the claim. When that fails the messages may come to another consumer too, which is no harm.
    fn hold<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, ()> {
        async move {
            if let Err(error) = within(outbox::extend(&self.pool, ids, self.options.visible_for)).await {
                tracing::debug!(%error, "a claim was not prolonged");
            }
        }
        .boxed()
    }

    /// Buries messages and takes them off the queue, in one transaction.
    async fn bury(&self, batch: &[Message], dead: Vec<Rejected>) -> Result<(), PgError> {
        let letters: Vec<NewDeadLetter> = dead
            .into_iter()
            .map(|Rejected { index, reason }| letters::letter(&batch[index], reason))
            .collect();
        letters::tell(&letters);
        let buried = pg::transact(&self.pool, move |conn| {
            async move {
                let ids: Vec<i64> = letters.iter().map(|letter| letter.offset).collect();
                outbox::bury(conn, &letters).await?;
                outbox::remove(conn, &ids).await
            }
            .boxed()
        });
        within(buried).await
    }
}

fn message(topic: Topic, claimed: Claimed) -> Message {
    Message {
        topic,
        place: Place { partition: outbox::PARTITION_OF_OUTBOX, offset: claimed.id },
        key: claimed.key.as_bytes().to_vec(),
        payload: claimed.payload.into_bytes(),
    }
}

async fn within<T>(statement: impl Future<Output = Result<T, PgError>>) -> Result<T, PgError> {
    timeout(STATEMENT_LIMIT, statement)
        .await
        .unwrap_or_else(|_| Err(PgError::Unavailable(sqlx::Error::PoolTimedOut)))
}
