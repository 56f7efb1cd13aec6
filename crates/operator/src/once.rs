//! Doing a change once, however often its request arrives.

use domain::UserId;
use futures::future::BoxFuture;
use pg::{PgConnection, PgError, PgPool};
use tenancy::idempotency::{self, KeyRef, Reserved};

use crate::OperatorError;

/// An Idempotency-Key with what a repetition is answered with.
pub struct Once<T> {
    /// Whose key.
    pub user: UserId,
    /// The route, such as `POST /admin/tenants`.
    pub route: &'static str,
    /// The key.
    pub key: String,
    /// SHA-256 over the parsed request with its route.
    pub fingerprint: [u8; 32],
    /// The status of the first answer.
    pub status: u16,
    /// The body that is kept for repetitions. It is stored as it is, so it must not hold a secret.
    pub render: fn(&T) -> String,
}

/// What became of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done<T> {
    /// The change was made.
    Fresh(T),
    /// It was made by an earlier request with the same key: that one's answer.
    Replayed {
        /// The status of the first answer.
        status: u16,
        /// Its body.
        body: String,
    },
}

/// Why a transaction ends without a change.
pub(crate) enum Stop {
    Replay { status: u16, body: String },
    Refused(OperatorError),
}

impl From<PgError> for Stop {
    fn from(error: PgError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<OperatorError> for Stop {
    fn from(error: OperatorError) -> Self {
        Self::Refused(error)
    }
}

/// Runs a verb's transaction.
pub(crate) async fn transact<T, F>(pool: &PgPool, work: F) -> Result<Done<T>, OperatorError>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Stop>> + Send + 'static,
    T: Send + 'static,
{
    match pg::transact(pool, work).await {
        Ok(made) => Ok(Done::Fresh(made)),
        Err(Stop::Replay { status, body }) => Ok(Done::Replayed { status, body }),
        Err(Stop::Refused(error)) => Err(error),
    }
}

/// Reserves the key, if there is one, or stops with the first answer. The change itself follows in the same
/// transaction, so a refused change gives the key back.
pub(crate) async fn reserve<T>(
    conn: &mut PgConnection,
    once: Option<&Once<T>>,
    subject: &str,
    made: &T,
) -> Result<(), Stop> {
    let Some(Once { user, route, key, fingerprint, status, render }) = once else { return Ok(()) };
    let body = render(made);
    let new = idempotency::NewKey {
        key: KeyRef { user: *user, route, key },
        fingerprint: *fingerprint,
        subject,
        status: *status,
        body: &body,
    };
    let outcome = match idempotency::reserve(conn, &[new]).await {
        Ok(mut outcomes) => outcomes.pop(),
        Err(PgError::LockTimeout(_)) => return Err(OperatorError::InProgress.into()),
        Err(error) => return Err(error.into()),
    };
    match outcome {
        Some(Reserved::Fresh) | None => Ok(()),
        Some(Reserved::Replay { status, body, .. }) => Err(Stop::Replay { status, body }),
        Some(Reserved::Mismatch) => Err(OperatorError::Mismatch.into()),
    }
}
