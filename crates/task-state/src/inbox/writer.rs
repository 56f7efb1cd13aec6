//! Gathering: callbacks that come at the same time share one transaction, so a flood of them takes one connection.

use std::sync::{Arc, Weak};

use domain::{complaints::Complaints, metric};
use pg::PgError;
use tokio::sync::{mpsc, oneshot};

use super::{IgnoredBecause, NewProviderEvent, ReceiveError, Received, receive};
use crate::Shared;

/// Callbacks per transaction at most.
const BATCH: usize = 128;
/// Callbacks that may wait. Whoever comes beyond is told to come again: providers repeat what was not taken.
const QUEUE: usize = 1_024;

type Asked = (NewProviderEvent, oneshot::Sender<Result<Received, ReceiveError>>);

/// The sending end.
pub(crate) struct Inbox(mpsc::Sender<Asked>);

/// The receiving end.
pub(crate) struct Waiting(mpsc::Receiver<Asked>);

impl Inbox {
    pub(crate) fn new() -> (Self, Waiting) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), Waiting(receiver))
    }

    pub(super) async fn send(&self, event: NewProviderEvent) -> Result<Received, ReceiveError> {
        let (answer, outcome) = oneshot::channel();
        self.0.try_send((event, answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ReceiveError::Full,
            mpsc::error::TrySendError::Closed(_) => ReceiveError::Stopped,
        })?;
        outcome.await.map_err(|_| ReceiveError::Stopped)?
    }
}

/// Runs the writer until its last sender is gone.
pub(crate) fn spawn(shared: Weak<Shared>, waiting: Waiting) {
    tokio::spawn(async move {
        let Waiting(mut receiver) = waiting;
        let mut batch = Vec::with_capacity(BATCH);
        while receiver.recv_many(&mut batch, BATCH).await > 0 {
            // Senders hold the handle, so as long as there is a message there is one.
            let Some(shared) = shared.upgrade() else { return };
            write(&shared, std::mem::take(&mut batch)).await;
        }
    });
}

async fn write(shared: &Shared, batch: Vec<Asked>) {
    let (events, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let events: Arc<[NewProviderEvent]> = events.into();
    match store(shared, Arc::clone(&events)).await {
        Ok(received) => {
            for ((event, received), answer) in events.iter().zip(received).zip(answers) {
                note(event, &received);
                // A sender that hung up will repeat the delivery, which then meets its row.
                let _ = answer.send(Ok(received));
            }
        }
        Err(PgError::Unavailable(cause)) => {
            static AWAY: Complaints = Complaints::new();
            if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
                tracing::warn!(error = %cause, callbacks = events.len(), silent, "callbacks are turned away: PostgreSQL is away");
            }
            for answer in answers {
                let _ = answer.send(Err(PgError::Unavailable(sqlx::Error::PoolTimedOut).into()));
            }
        }
        // A bad element refuses only itself, and what was stored although the answer to COMMIT was lost is a repetition.
        Err(error) => {
            static TROUBLE: Complaints = Complaints::new();
            if let Some(silent) = TROUBLE.complain(std::time::Instant::now()) {
                tracing::warn!(%error, callbacks = events.len(), silent, "a batch of callbacks is stored one by one");
            }
            for (event, answer) in events.iter().zip(answers) {
                let outcome = store(shared, Arc::from([event.clone()])).await;
                let outcome = outcome.map_err(ReceiveError::from).and_then(|mut one| {
                    let received = one.pop().ok_or(ReceiveError::Stopped)?;
                    note(event, &received);
                    Ok(received)
                });
                let _ = answer.send(outcome);
            }
        }
    }
}

async fn store(shared: &Shared, events: Arc<[NewProviderEvent]>) -> Result<Vec<Received>, PgError> {
    pg::transact(&shared.pool, move |conn| Box::pin(async move { receive::receive(conn, &events).await }))
        .await
}

/// One line and one count per callback.
fn note(event: &NewProviderEvent, received: &Received) {
    let (account, attempt) = (&event.account, event.attempt);
    let (delivery, kind) = (&event.news.delivery, &event.news.kind);
    let outcome = match received {
        Received::Pending { owner } => {
            tracing::debug!(%account, %attempt, delivery, kind, %owner, "a provider called");
            "pending"
        }
        Received::Ignored(because @ IgnoredBecause::OtherJob) => {
            // Perhaps a second job that the provider made by a fault of its own: it costs money.
            let job = event.job.as_ref().map(domain::task::JobHandle::as_str);
            tracing::warn!(%account, %attempt, delivery, kind, job, reason = because.as_str(), "a callback is ignored");
            because.as_str()
        }
        Received::Ignored(because) => {
            tracing::info!(%account, %attempt, delivery, kind, reason = because.as_str(), "a callback is ignored");
            because.as_str()
        }
    };
    metrics::counter!(metric::PROVIDER_CALLBACK, "account" => account.to_string(), "outcome" => outcome)
        .increment(1);
}
