//! Submitting: the limits, then the writer.

use std::{net::IpAddr, sync::Arc, time::Instant};

use control::{Admission, InflowCharge, RefusedBy, ReplayKey, StoredAnswer};
use domain::{Scope, TaskId, metric};
use metrics::counter;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tenancy::{
    Session,
    idempotency::{self, IdempotencyKey, KeyRef, Reserved},
};

use crate::{
    Generation, StrictWithoutRedis, SubmitError,
    batch::{Daily, Element, Keyed},
    limits::{self, LimitState},
    local_limits::Mode,
    request::{GenerationRequest, OnLimit, ROUTE},
};

/// The name of daily quotas in metrics.
const DAILY: &str = "daily";

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
        let element = Element::new(&session, request, key, traceparent);
        let Passed { limits, strict } = match self.ask_limits(&session, &element, ip).await? {
            Asked::Passed(passed) => passed,
            Asked::Answered(earlier) => return Ok(earlier),
        };
        let on_limit = element.request.on_limit;
        match self.writers.submit(element).await {
            Ok(outcome) if outcome.replayed => Ok(outcome),
            Ok(outcome) => Ok(Submitted { limits: [limits, outcome.limits].concat(), ..outcome }),
            Err(mut refusal) => {
                if let SubmitError::QuotaExceeded { by, limits: quotas, .. } = &mut refusal {
                    let scope = by.scope.as_str();
                    counter!(metric::RATE_LIMIT_REJECTED, "scope" => scope, "rule" => DAILY).increment(1);
                    quotas.splice(0..0, limits);
                }
                if refusal.made_nothing() {
                    Box::pin(self.give_back(strict)).await;
                }
                Err(refusal.told_to(on_limit))
            }
        }
    }

    /// The limits' answer; Redis's, or this process's while Redis is away.
    async fn ask_limits(
        &self,
        session: &Session,
        element: &Element,
        ip: Option<IpAddr>,
    ) -> Result<Asked, SubmitError> {
        let shared = &self.shared;
        let ip = limits::ip_charge(&shared.config, ip);
        let charge = limits::charge(session, element, ip);
        if charge.checks.is_empty() && charge.replay.is_none() && charge.ip.is_none() {
            return Ok(Asked::Passed(Passed { limits: Vec::new(), strict: None }));
        }
        let admission = match shared.control.admit(charge.clone()).await {
            Ok(admission) => admission,
            Err(error) => {
                tracing::debug!(%error, "limits are asked in this process");
                match self.ask_locally(&charge, Mode::Charge) {
                    Ok(admission) => admission,
                    // What was answered before is answered again: nothing new is asked for. (Boxed, as what is rare below and in
                    // the handler: every submit carries a future as large as its largest way.)
                    Err(refusal) => {
                        return Box::pin(self.earlier_answer(element)).await.unwrap_or(Err(refusal));
                    }
                }
            }
        };
        if let (Admission::Replay(answer), Some(key)) = (&admission, &element.key)
            && let Some(answered) = replayed(answer, key)
        {
            return answered.map(Asked::Answered);
        }
        if let Admission::Granted(states) | Admission::Refused { states, .. } = &admission {
            for shadow in limits::refusing_shadows(session, element, &charge, states) {
                shared.tenancy.tell_shadow(shadow);
            }
        }
        let limits = limits::judge(&charge, &admission)?;
        let strict = match admission {
            Admission::Granted(states) => Some(charge.charged(&states, limits::is_window)),
            _ => None,
        };
        Ok(Asked::Passed(Passed { limits, strict }))
    }

    /// The answer of this process's own limits. Where a limit counts strictly they won't do, unless configuration says so.
    pub(crate) fn ask_locally(&self, charge: &InflowCharge, mode: Mode) -> Result<Admission, SubmitError> {
        let shared = &self.shared;
        if limits::is_strict(charge) && shared.config.strict_without_redis == StrictWithoutRedis::Refuse {
            return Err(SubmitError::Uncounted { retry_after: SubmitError::SOON });
        }
        let admission = shared.local_limits.admit(charge, mode, Instant::now());
        if mode == Mode::Charge {
            count(charge, &admission);
        }
        Ok(admission)
    }

    /// What PostgreSQL remembers of the idempotency key.
    async fn earlier_answer(&self, element: &Element) -> Option<Result<Asked, SubmitError>> {
        let keyed = element.key.as_ref()?;
        let key = KeyRef { user: element.user, route: ROUTE, key: keyed.key.as_str() };
        let mut conn = self.shared.pool.acquire().await.ok()?;
        match idempotency::find(&mut conn, key, keyed.fingerprint).await.ok()?? {
            Reserved::Replay { subject, status, body } => {
                let task = subject.parse().ok()?;
                let limits = Vec::new();
                Some(Ok(Asked::Answered(Submitted { task, status, body, replayed: true, limits })))
            }
            Reserved::Mismatch => Some(Err(SubmitError::IdempotencyMismatch)),
            Reserved::Fresh => None,
        }
    }

    /// Gives back the place that a request took in a strict window and made no use of. Buckets keep what they took: they
    /// limit how often is asked, windows how much of something expensive is had.
    async fn give_back(&self, strict: Option<InflowCharge>) {
        let Some(strict) = strict.filter(|charge| !charge.checks.is_empty()) else { return };
        if let Err(error) = self.shared.control.refund(&[strict]).await {
            tracing::debug!(%error, "a place in a window comes back by time only");
        }
    }
}

enum Asked {
    Passed(Passed),
    Answered(Submitted),
}

/// A request that the limits let through.
struct Passed {
    /// What the client is told of them.
    limits: Vec<LimitState>,
    /// What strict windows were charged.
    strict: Option<InflowCharge>,
}

/// Counts what this process decided; control counts what Redis did.
fn count(charge: &InflowCharge, admission: &Admission) {
    match admission {
        Admission::Granted(_) => counter!(metric::RATE_LIMIT_ALLOWED).increment(1),
        Admission::Refused { by: RefusedBy::Check(place), .. } => {
            let scope = charge.checks.get(*place).map_or("unknown", |check| check.scope.as_str());
            counter!(metric::RATE_LIMIT_REJECTED, "scope" => scope, "rule" => "local").increment(1);
        }
        Admission::Refused { .. } | Admission::Replay(_) | Admission::CostAboveCapacity { .. } => {}
    }
}

/// Whether the credential may submit at all.
pub(crate) fn check_scope(session: &Session) -> Result<(), SubmitError> {
    let scopes = session.principal.scopes;
    let may = [Scope::Write, Scope::TenantWrite, Scope::Admin].into_iter().any(|scope| scopes.has(scope));
    if may { Ok(()) } else { Err(SubmitError::Forbidden) }
}

impl SubmitError {
    /// A request that is not to wait was held to the running limits alone, so it is those that are full.
    pub(crate) fn told_to(self, on_limit: OnLimit) -> Self {
        match (on_limit, self) {
            (OnLimit::Reject, Self::QueueFull { scope, open, limit, retry_after }) => {
                Self::Concurrency { scope, open, limit, retry_after }
            }
            (OnLimit::Queue | OnLimit::Reject, refusal) => refusal,
        }
    }
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
    pub(crate) fn new(key: IdempotencyKey, request: &GenerationRequest) -> Self {
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
        let (user_open_max, tenant_open_max) = match request.on_limit {
            OnLimit::Queue => (tier.user.open(), tier.tenant.open()),
            // Whoever is not to wait must find a running place that no open task will take.
            OnLimit::Reject => (tier.user.running, tier.tenant.running),
        };
        let (user_max, tenant_max) = (tier.user.daily, tier.tenant.daily);
        let has_quota = user_max.is_some() || tenant_max.is_some();
        let zone = session.profile.time_zone;
        Self {
            task: TaskId::generate(),
            tenant: principal.tenant,
            user: principal.user,
            account: principal.account,
            tenant_wide: scopes.has(Scope::TenantWrite) || scopes.has(Scope::Admin),
            user_open_max,
            tenant_open_max,
            daily: has_quota.then_some(Daily { zone, user_max, tenant_max }),
            request,
            key,
            traceparent,
        }
    }

    /// The name of its answer in Redis.
    pub(crate) fn replay_key(&self) -> Option<ReplayKey> {
        self.key.as_ref().map(|key| key.replay_key(self.user))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use domain::{Credits, limits::LimitScope, principal::Role};
    use futures::future::join_all;

    use super::*;
    use crate::tests_support::World;

    fn credits(amount: i64) -> Credits {
        Credits::new(amount).unwrap()
    }

    #[tokio::test]
    async fn an_accepted_request_is_a_queued_task_with_its_hold() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(100).await);
        let done = process.submit(&ada, process.request("a cat", 5), None).await.unwrap();
        assert_eq!((done.status, done.replayed), (202, false));
        let body: serde_json::Value = serde_json::from_str(&done.body).unwrap();
        assert_eq!(body["task_id"], done.task.to_string());
        assert_eq!((&body["status"], &body["credits_held"]), (&"QUEUED".into(), &10.into()));
        assert!(body["queue_position"].is_null());

        let record = process.task_state.record(done.task).await.unwrap().unwrap();
        assert_eq!(record.snapshot.inputs.prompt, "a cat");
        assert_eq!((record.snapshot.version, record.snapshot.user_id), (1, ada.principal.user));
        let time =
            |member: &str| body[member].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let millis = |at: chrono::DateTime<chrono::Utc>| at.timestamp_millis();
        assert_eq!(millis(time("deadline_at")), millis(record.snapshot.deadline_at));
        assert_eq!(time("deadline_at") - time("created_at"), chrono::TimeDelta::minutes(30));
        assert_eq!(*process.told.lock().unwrap(), [done.task]);
        assert_eq!(world.count("outbox_events").await, 1);
        let balance = world.balance(&ada).await;
        assert_eq!((balance.available, balance.held), (credits(90), credits(10)));
        world.assert_sound().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn thirty_credits_admit_three_of_fifty_requests_at_once() {
        let world = World::new().await;
        let processes = [world.process().await, world.process().await];
        let ada = world.user(30).await;
        let submits = (0..50).map(|n| {
            let process = &processes[n % 2];
            let key = format!("key-{n}");
            let (ada, request) = (&ada, process.request("a cat", 5));
            async move { process.submit(ada, request, Some(&key)).await }
        });
        let watch = async {
            let mut samples = 0;
            loop {
                let balance = world.balance(&ada).await;
                assert_eq!(balance.available.get() + balance.held.get(), 30, "{balance:?}");
                samples += 1;
                if balance.available.is_zero() && samples > 5 {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let (outcomes, ()) = tokio::join!(join_all(submits), watch);
        let accepted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(accepted, 3);
        for refused in outcomes.into_iter().filter_map(Result::err) {
            assert!(
                matches!(refused, SubmitError::InsufficientCredits { needed, .. } if needed == credits(10)),
                "{refused:?}"
            );
        }
        assert_eq!(world.count("generation_tasks").await, 3);
        assert_eq!(world.count("idempotency_keys").await, 3);
        world.assert_sound().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn twins_at_three_processes_make_one_task() {
        let world = World::new().await;
        let processes = [world.process().await, world.process().await, world.process().await];
        let ada = world.user(1_000).await;
        let spellings = [
            r#"{"model":"mock-fast","prompt":"a cat","duration_seconds":5}"#,
            r#"{"duration_seconds":5,"prompt":"a \u0063at","resolution":"720p","model":"mock-fast"}"#,
        ];
        let twins = (0..30).map(|n| {
            let process = &processes[n % 3];
            process.submit(&ada, process.parse(spellings[n % 2]), Some("K"))
        });
        let outcomes: Vec<_> = join_all(twins).await.into_iter().map(Result::unwrap).collect();
        let tasks: HashSet<_> =
            outcomes.iter().map(|done| (done.task, done.status, done.body.as_str())).collect();
        assert_eq!(tasks.len(), 1, "every twin gets the first one's answer");
        assert_eq!(outcomes.iter().filter(|done| !done.replayed).count(), 1);
        assert_eq!(world.balance(&ada).await.held, credits(10));

        let other = processes[0].submit(&ada, processes[0].request("a dog", 5), Some("K")).await;
        assert_eq!(other, Err(SubmitError::IdempotencyMismatch));
        let stranger = world.another_tenant("wide").await;
        let stranger = world.user_of(stranger, 50, domain::Scopes::default_of_keys()).await;
        let independent =
            processes[1].submit(&stranger, processes[1].request("a cat", 5), Some("K")).await.unwrap();
        assert!(!independent.replayed);
        assert_eq!(world.count("generation_tasks").await, 2);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn a_retry_after_a_restart_finds_the_first_answer() {
        let world = World::new().await;
        let ada = world.user(1_000).await;
        let first = {
            let process = world.process().await;
            process.submit(&ada, process.request("a cat", 5), Some("K")).await.unwrap()
        };
        for _ in 0..3 {
            let process = world.process().await;
            let again = process.submit(&ada, process.request("a cat", 5), Some("\"K\"")).await.unwrap();
            assert_eq!((again.task, &again.body, again.replayed), (first.task, &first.body, true));
        }
        assert_eq!(world.balance(&ada).await.held, credits(10));
        assert_eq!(world.count("credit_ledger").await, 2, "one grant, one hold");
    }

    #[tokio::test]
    async fn a_refused_request_does_not_consume_its_key() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(0).await);
        let refused = process.submit(&ada, process.request("a cat", 5), Some("K")).await.unwrap_err();
        let (available, held) = (Credits::ZERO, Credits::ZERO);
        assert_eq!(refused, SubmitError::InsufficientCredits { available, held, needed: credits(10) });
        assert_eq!(world.count("idempotency_keys").await, 0);
        world.grant(ada.principal.account, 4).await;
        let shorter = process.submit(&ada, process.request("a cat", 2), Some("K")).await.unwrap();
        assert!(!shorter.replayed);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn open_tasks_are_bounded_per_user() {
        let world = World::new().await;
        let tenant = world.another_tenant("free").await;
        let ada = world.user_of(tenant, 1_000, domain::Scopes::default_of_keys()).await;
        // The rate is not what this is about.
        let mut unhurried = Session::clone(&ada);
        let mut tier = (*ada.tier).clone();
        (tier.user.submit, tier.tenant.submit) = (None, None);
        unhurried.tier = Arc::new(tier);
        let (process, ada) = (world.process().await, Arc::new(unhurried));
        for _ in 0..6 {
            process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        }
        let full = process.submit(&ada, process.request("a cat", 1), None).await.unwrap_err();
        let SubmitError::QueueFull { scope, open, limit, retry_after } = full else { panic!("{full:?}") };
        assert_eq!((scope, open, limit), (LimitScope::User, 6, 6));
        assert!(retry_after >= Duration::from_secs(1));
        assert_eq!(world.balance(&ada).await.held, credits(12), "a refused task holds nothing");
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn a_request_that_is_not_to_wait_is_refused_when_as_many_run_as_may() {
        let world = World::new().await;
        let tenant = world.another_tenant("free").await;
        let ada = world.user_of(tenant, 1_000, domain::Scopes::default_of_keys()).await;
        let process = world.process().await;
        let at_once = || {
            process
                .parse(r#"{"model":"mock-fast","prompt":"a cat","duration_seconds":1,"on_limit":"reject"}"#)
        };
        let first = process.submit(&ada, at_once(), Some("K")).await.unwrap();
        let refused = process.submit(&ada, at_once(), None).await.unwrap_err();
        let SubmitError::Concurrency { scope, open, limit, retry_after } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((scope, open, limit), (LimitScope::User, 1, 1));
        assert!(retry_after >= Duration::from_secs(1));
        assert_eq!(world.balance(&ada).await.held, credits(2), "a refused task holds nothing");
        let again = process.submit(&ada, at_once(), Some("K")).await.unwrap();
        assert_eq!((again.task, again.replayed), (first.task, true));
        process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn only_those_who_may_write_there_submit_into_a_project() {
        let world = World::new().await;
        let process = world.process().await;
        let (ada, bob, eve) = (world.user(100).await, world.user(100).await, world.user(100).await);
        let project = process.tenancy.create_project(&ada, "Trailer").await.unwrap().id;
        process.tenancy.put_member(&ada, project, bob.principal.user, Role::Viewer).await.unwrap();
        let foreign = world.another_tenant("wide").await;
        let foreign = world.user_of(foreign, 100, [Scope::Admin].into_iter().collect()).await;
        let server = world.rekeyed(&eve, &[Scope::TenantWrite]).await;
        let into = |project: domain::ProjectId| {
            let mut request = process.request("a cat", 1);
            request.project = Some(project);
            request
        };
        let done = process.submit(&ada, into(project), None).await.unwrap();
        let record = process.task_state.record(done.task).await.unwrap().unwrap();
        assert_eq!(record.snapshot.project_id, Some(project), "although the session does not know it yet");
        process.submit(&server, into(project), None).await.unwrap();
        assert_eq!(process.submit(&bob, into(project), None).await, Err(SubmitError::Forbidden));
        for stranger in [&eve, &foreign] {
            assert_eq!(process.submit(stranger, into(project), None).await, Err(SubmitError::UnknownProject));
        }
        let nowhere = process.submit(&ada, into(domain::ProjectId::generate()), None).await;
        assert_eq!(nowhere, Err(SubmitError::UnknownProject));
    }

    #[tokio::test]
    async fn a_key_that_only_reads_submits_nothing() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(100).await);
        let reader = world.rekeyed(&ada, &[Scope::Read, Scope::TenantRead]).await;
        let refused = process.submit(&reader, process.request("a cat", 1), None).await;
        assert_eq!(refused, Err(SubmitError::Forbidden));
    }

    #[tokio::test]
    async fn rates_are_kept_and_told() {
        let world = World::new().await;
        let tenant = world.another_tenant("free").await;
        let ada = world.user_of(tenant, 1_000, domain::Scopes::default_of_keys()).await;
        let process = world.process().await;
        let first = process.submit(&ada, process.request("a cat", 1), Some("first")).await.unwrap();
        let [user, tenant, ..] = first.limits.as_slice() else { panic!("{:?}", first.limits) };
        assert_eq!((user.scope, user.policy, user.limit), (LimitScope::User, "submit-user", 5));
        assert_eq!((tenant.scope, tenant.limit), (LimitScope::Tenant, 50));
        let mut refused = None;
        for _ in 0..5 {
            refused = process.submit(&ada, process.request("a cat", 1), None).await.err();
        }
        let Some(SubmitError::RateLimited { by, retry_after, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((by.policy, by.remaining), ("submit-user", 0));
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(24), "{retry_after:?}");
        let tasks = world.count("generation_tasks").await;
        let again = process.submit(&ada, process.request("a cat", 1), Some("first")).await;
        assert!(
            matches!(again, Ok(ref done) if done.replayed),
            "a replay is charged to no bucket: {again:?}"
        );
        assert_eq!(world.count("generation_tasks").await, tasks);
    }

    #[tokio::test]
    async fn without_redis_a_process_lets_its_share_through_and_replays_by_postgres() {
        let world = World::new().await;
        let tenant = world.another_tenant("free").await;
        let ada = world.user_of(tenant, 1_000, domain::Scopes::default_of_keys()).await;
        let process = world.process_without_redis().await;
        let first = process.submit(&ada, process.request("a cat", 1), Some("K")).await.unwrap();
        assert_eq!(first.limits[0].limit, 5, "what is told is the limit, not the share");
        let twin = process.submit(&ada, process.request("a cat", 1), Some("K")).await.unwrap();
        assert_eq!((twin.task, twin.replayed), (first.task, true));
        // Half of a burst of five is two and a half.
        let refused = process.submit(&ada, process.request("a cat", 1), None).await.unwrap_err();
        assert!(matches!(refused, SubmitError::RateLimited { .. }), "{refused:?}");
        assert_eq!(world.count("generation_tasks").await, 1);
    }
}
