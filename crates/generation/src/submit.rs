//! Submitting: the limits, then the writer.

use std::{net::IpAddr, sync::Arc, time::Instant};

use control::{Admission, ReplayKey, StoredAnswer};
use domain::{Scope, TaskId, metric};
use metrics::counter;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tenancy::{Session, idempotency::IdempotencyKey};

use crate::{
    Generation, SubmitError,
    batch::{Element, Keyed},
    limits::{self, ENDPOINT, LimitState},
    request::{GenerationRequest, ROUTE},
};

/// One request to make a video.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Who asks.
    pub session: Arc<Session>,
    /// For what.
    pub request: GenerationRequest,
    /// The key under which a repetition is recognised.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The caller's address, for the shared counter; none when it is not to be counted.
    pub ip: Option<IpAddr>,
    /// W3C trace context, carried to the provider call.
    pub traceparent: Option<String>,
}

/// The answer to an accepted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The task.
    pub task: TaskId,
    /// The HTTP status.
    pub status: u16,
    /// The JSON body. A replay has the very same.
    pub body: String,
    /// Whether this is the answer to an earlier request under the same key.
    pub replayed: bool,
    /// The limits after this request; empty for a replay, which is charged to none.
    pub limits: Vec<LimitState>,
}

impl Generation {
    /// Admits one request: asks the limits, and has it written. When the caller is dropped meanwhile, the request is
    /// decided all the same.
    ///
    /// # Errors
    /// [`SubmitError`]; after any of them but `Unavailable` nothing of the request exists.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, SubmitError> {
        let Submission { session, request, idempotency_key, ip, traceparent } = submission;
        check_scope(&session)?;
        let key = idempotency_key.map(|key| Keyed::new(key, &request));
        let limits = match self.ask_limits(&session, &request, key.as_ref(), ip).await? {
            Asked::Passed(limits) => limits,
            Asked::Answered(earlier) => return Ok(earlier),
        };
        let element = Element::new(&session, request, key, traceparent);
        let outcome = self.writers.submit(element).await?;
        Ok(Submitted { limits: if outcome.replayed { Vec::new() } else { limits }, ..outcome })
    }

    /// The limits' answer; Redis's, or this process's while Redis is away.
    async fn ask_limits(
        &self,
        session: &Session,
        request: &GenerationRequest,
        key: Option<&Keyed>,
        ip: Option<IpAddr>,
    ) -> Result<Asked, SubmitError> {
        let shared = &self.shared;
        let replay = key.map(|key| key.replay_key(session.principal.user));
        let ip = limits::ip_charge(&shared.config, ip);
        let charge = limits::charge(session, request, shared.tenancy.tiers().rules(), replay, ip, 1);
        if charge.checks.is_empty() && charge.replay.is_none() && charge.ip.is_none() {
            return Ok(Asked::Passed(Vec::new()));
        }
        let admission = match shared.control.admit(charge.clone()).await {
            Ok(admission) => admission,
            Err(error) => {
                tracing::debug!(%error, "limits are asked in this process");
                shared.local_limits.admit(&charge, Instant::now())
            }
        };
        if let (Admission::Replay(answer), Some(key)) = (&admission, key)
            && let Some(answered) = replayed(answer, key)
        {
            return answered.map(Asked::Answered);
        }
        let judged = limits::judge(&charge, admission);
        let tier = session.tier.name.clone();
        match &judged {
            Ok(_) => {
                counter!(metric::RATE_LIMIT_ALLOWED, "tier" => tier, "endpoint" => ENDPOINT).increment(1);
            }
            Err(SubmitError::RateLimited { by, retry_after, .. }) => {
                counter!(metric::RATE_LIMIT_REJECTED, "tier" => tier, "endpoint" => ENDPOINT, "rule" => by.policy)
                    .increment(1);
                metrics::histogram!(metric::RATE_LIMIT_RETRY_AFTER_MS, "endpoint" => ENDPOINT)
                    .record(retry_after.as_secs_f64() * 1_000.0);
            }
            Err(_) => {}
        }
        judged.map(Asked::Passed)
    }
}

enum Asked {
    Passed(Vec<LimitState>),
    Answered(Submitted),
}

/// Whether the credential may submit at all.
pub(crate) fn check_scope(session: &Session) -> Result<(), SubmitError> {
    let scopes = session.principal.scopes;
    let may = [Scope::Write, Scope::TenantWrite, Scope::Admin].into_iter().any(|scope| scopes.has(scope));
    if may { Ok(()) } else { Err(SubmitError::Forbidden) }
}

/// What the remembered answer says to this request. None when it is not readable: PostgreSQL will answer.
fn replayed(answer: &StoredAnswer, key: &Keyed) -> Option<Result<Submitted, SubmitError>> {
    #[derive(Deserialize)]
    struct Body {
        task_id: TaskId,
    }
    if answer.fingerprint != hex::encode(key.fingerprint) {
        return Some(Err(SubmitError::IdempotencyMismatch));
    }
    let Body { task_id } = serde_json::from_str(&answer.body).ok()?;
    let (status, body) = (answer.status, answer.body.clone());
    Some(Ok(Submitted { task: task_id, status, body, replayed: true, limits: Vec::new() }))
}

impl Keyed {
    fn new(key: IdempotencyKey, request: &GenerationRequest) -> Self {
        let digest =
            Sha256::new().chain_update(ROUTE).chain_update([0]).chain_update(key.as_str()).finalize();
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        Self { key, hash, fingerprint: request.fingerprint() }
    }

    /// Its name in Redis.
    pub(crate) fn replay_key(&self, user: domain::UserId) -> ReplayKey {
        ReplayKey { user, hash: hex::encode(self.hash) }
    }
}

impl Element {
    pub(crate) fn new(
        session: &Session,
        request: GenerationRequest,
        key: Option<Keyed>,
        traceparent: Option<String>,
    ) -> Self {
        let (principal, tier) = (&session.principal, &session.tier);
        let scopes = principal.scopes;
        Self {
            task: TaskId::generate(),
            tenant: principal.tenant,
            user: principal.user,
            account: principal.account,
            tenant_wide: scopes.has(Scope::TenantWrite) || scopes.has(Scope::Admin),
            user_open_max: tier.user.open(),
            tenant_open_max: tier.tenant.open(),
            request,
            key,
            traceparent,
        }
    }
}
