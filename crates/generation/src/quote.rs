//! Quoting: the real decision about a request, with nothing written and nothing charged.

use std::sync::Arc;

use domain::{
    Credits,
    limits::{LimitScope, Reset},
    wait::Eta,
};
use futures::FutureExt as _;
use ledger::Subject;
use pg::PgError;
use tenancy::Session;

use crate::{
    Generation, SubmitError,
    batch::{self, Element},
    limits,
    local_limits::Mode,
    request::GenerationRequest,
    submit::check_scope,
};

/// What a request would cost and what would become of it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// The price.
    pub credits: Credits,
    /// What would become of it.
    pub decision: Decision,
    /// Why it would be refused.
    pub problem: Option<SubmitError>,
    /// The limit that makes it wait, or refuses it.
    pub binding_limit: Option<BindingLimit>,
    /// When it would be ready; none while nobody knows.
    pub eta: Option<Eta>,
}

/// What would become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It would start at once.
    StartsNow,
    /// It would be accepted and wait.
    Queues,
    /// It would not be accepted.
    Refused,
}

impl Decision {
    /// The text of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StartsNow => "starts_now",
            Self::Queues => "queues",
            Self::Refused => "refused",
        }
    }
}

/// The limit that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingLimit {
    /// Whose.
    pub scope: LimitScope,
    /// Its name.
    pub policy: &'static str,
    /// The most.
    pub limit: u32,
    /// What is left.
    pub remaining: u32,
    /// When all of it is back; none when that is not a matter of time.
    pub reset: Option<Reset>,
}

/// Why the transaction of a quote is given up: it always is.
enum Stop {
    Decided(Box<Outlook>),
    Failed(PgError),
}

impl From<PgError> for Stop {
    fn from(error: PgError) -> Self {
        Self::Failed(error)
    }
}

/// What the locked figures say.
struct Outlook {
    refusal: Option<SubmitError>,
    user_open: u32,
    tenant_open: u32,
}

impl Generation {
    /// Says what a submit of this request would be answered.
    ///
    /// # Errors
    /// [`SubmitError::Unavailable`] when nobody can say. Refusals are part of the quote.
    pub async fn quote(&self, session: &Session, request: GenerationRequest) -> Result<Quote, SubmitError> {
        let credits = request.price;
        let refused = |problem: SubmitError| {
            let binding_limit = binding(&problem);
            let decision = Decision::Refused;
            Quote { credits, decision, problem: Some(problem), binding_limit, eta: None }
        };
        if let Err(problem) = check_scope(session) {
            return Ok(refused(problem));
        }
        let element = Element::new(session, request, None, None);
        if let Err(problem) = self.look_at_limits(session, &element).await {
            return Ok(refused(problem));
        }
        let (model, on_limit) = (Arc::clone(&element.request.model), element.request.on_limit);
        let outlook = self.outlook(element).await?;
        if let Some(problem) = outlook.refusal {
            return Ok(refused(problem.told_to(on_limit)));
        }
        let wait = waits_for(session, &outlook);
        let blocked = wait.is_some() || !self.model_is_open(&model).await;
        let decision = if blocked { Decision::Queues } else { Decision::StartsNow };
        Ok(Quote { credits, decision, problem: None, binding_limit: wait, eta: None })
    }

    /// Asks the limits what a submit would be told, without taking anything.
    async fn look_at_limits(&self, session: &Session, element: &Element) -> Result<(), SubmitError> {
        let charge = limits::charge(session, element, None);
        if charge.checks.is_empty() {
            return Ok(());
        }
        let admission = match self.shared.control.look(&charge).await {
            Ok(admission) => admission,
            Err(_) => self.ask_locally(&charge, Mode::Look)?,
        };
        limits::judge(&charge, &admission).map(drop)
    }

    /// Runs the decision in a transaction that is given up.
    async fn outlook(&self, element: Element) -> Result<Outlook, SubmitError> {
        let decided = pg::transact(&self.shared.pool, move |conn| {
            async move {
                let (refusal, admission) = batch::decide(conn, &element).await?;
                let [mut user_open, mut tenant_open] =
                    [Subject::User(element.user), Subject::Tenant(element.tenant)]
                        .map(|subject| admission.open.open(subject));
                if refusal.is_none() {
                    // The counts include the task itself.
                    user_open = user_open.saturating_sub(1);
                    tenant_open = tenant_open.saturating_sub(1);
                }
                Err::<(), _>(Stop::Decided(Box::new(Outlook { refusal, user_open, tenant_open })))
            }
            .boxed()
        })
        .await;
        match decided {
            Err(Stop::Decided(outlook)) => Ok(*outlook),
            Err(Stop::Failed(error)) => {
                tracing::warn!(%error, "a quote failed");
                Err(SubmitError::UNAVAILABLE)
            }
            Ok(()) => Err(SubmitError::Internal),
        }
    }

    /// Whether a task of this model would be sent at once: nobody paused it, nobody waits for it, and schedulers have not
    /// said within the last seconds that everybody would have to.
    async fn model_is_open(&self, model: &domain::model::Model) -> bool {
        let intents = self.shared.catalogue.intents().await;
        if intents.map_or(true, |intents| intents.stop(model)) {
            return false;
        }
        let (depths, wait) = tokio::join!(
            self.shared.control.queue_depths(std::slice::from_ref(&model.name)),
            self.shared.control.model_wait(&model.name),
        );
        depths.is_ok_and(|depths| depths.iter().all(|depth| *depth == 0)) && !matches!(wait, Ok(Some(_)))
    }
}

/// The running limit that a further task would wait for.
fn waits_for(session: &Session, outlook: &Outlook) -> Option<BindingLimit> {
    let tier = &session.tier;
    let running = |scope, policy, open: u32, limit: u32| {
        (open >= limit).then_some(BindingLimit { scope, policy, limit, remaining: 0, reset: None })
    };
    running(LimitScope::User, "running-user", outlook.user_open, tier.user.running)
        .or_else(|| running(LimitScope::Tenant, "running-tenant", outlook.tenant_open, tier.tenant.running))
}

/// The limit behind a refusal, where there is one.
fn binding(problem: &SubmitError) -> Option<BindingLimit> {
    match problem {
        SubmitError::RateLimited { by, .. } | SubmitError::CostAboveCapacity { by } => Some(BindingLimit {
            scope: by.scope,
            policy: by.policy,
            limit: by.limit,
            remaining: by.remaining,
            reset: Some(Reset::In(by.reset)),
        }),
        SubmitError::QuotaExceeded { by, resets_at, .. } => Some(BindingLimit {
            scope: by.scope,
            policy: by.policy,
            limit: by.limit,
            remaining: by.remaining,
            reset: Some(Reset::At(*resets_at)),
        }),
        SubmitError::QueueFull { scope, limit, .. } => {
            let policy = if *scope == LimitScope::User { "open-user" } else { "open-tenant" };
            Some(BindingLimit { scope: *scope, policy, limit: *limit, remaining: 0, reset: None })
        }
        SubmitError::Concurrency { scope, limit, .. } => {
            let policy = if *scope == LimitScope::User { "running-user" } else { "running-tenant" };
            Some(BindingLimit { scope: *scope, policy, limit: *limit, remaining: 0, reset: None })
        }
        SubmitError::Forbidden
        | SubmitError::UnknownProject
        | SubmitError::InsufficientCredits { .. }
        | SubmitError::IdempotencyMismatch
        | SubmitError::IdempotencyInProgress { .. }
        | SubmitError::Uncounted { .. }
        | SubmitError::Overloaded { .. }
        | SubmitError::Unavailable { .. }
        | SubmitError::Internal => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc as StdArc, time::Duration};

    use domain::Scopes;

    use super::*;
    use crate::tests_support::World;

    #[tokio::test]
    async fn a_quote_decides_as_a_submit_would_and_writes_nothing() {
        let world = World::new().await;
        let (process, ada, poor) = (world.process().await, world.user(100).await, world.user(9).await);
        let quote = process.generation.quote(&ada, process.request("a cat", 5)).await.unwrap();
        assert_eq!((quote.credits.get(), quote.problem), (10, None));
        let quote = process.generation.quote(&poor, process.request("a cat", 5)).await.unwrap();
        assert_eq!(quote.decision, Decision::Refused);
        assert!(matches!(quote.problem, Some(SubmitError::InsufficientCredits { .. })));
        for table in ["generation_tasks", "open_counts", "idempotency_keys", "outbox_events"] {
            assert_eq!(world.count(table).await, 0, "{table}");
        }
        assert_eq!(world.balance(&ada).await.held.get(), 0);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn it_names_the_limit_that_binds() {
        let world = World::new().await;
        let tenant = world.another_tenant("free").await;
        let ada = world.user_of(tenant, 100, Scopes::default_of_keys()).await;
        let mut unhurried = Session::clone(&ada);
        let mut tier = (*ada.tier).clone();
        (tier.user.submit, tier.tenant.submit) = (None, None);
        unhurried.tier = StdArc::new(tier);
        let (process, ada) = (world.process().await, StdArc::new(unhurried));
        process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
        assert_eq!(quote.decision, Decision::Queues);
        assert_eq!(quote.binding_limit.map(|limit| (limit.policy, limit.limit)), Some(("running-user", 1)));
        for _ in 0..5 {
            process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        }
        let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
        assert_eq!(quote.decision, Decision::Refused);
        assert_eq!(quote.binding_limit.map(|limit| (limit.policy, limit.limit)), Some(("open-user", 6)));
    }

    #[tokio::test]
    async fn a_paused_model_queues() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(100).await);
        let intent = catalogue::NewIntent {
            subject: "model:mock-fast".parse().unwrap(),
            kind: catalogue::IntentKind::Pause,
            reason: "billing".to_owned(),
            set_by: uuid::Uuid::nil(),
        };
        catalogue::set_intent(&mut world.db.pool.acquire().await.unwrap(), &intent).await.unwrap();
        let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
        assert_eq!((quote.decision, quote.problem), (Decision::Queues, None));
    }

    #[tokio::test]
    async fn a_model_that_schedulers_find_no_room_for_queues() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(100).await);
        let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
        assert_eq!(quote.decision, Decision::StartsNow);
        let model = process.request("a cat", 1).model.name.clone();
        let full = control::ModelWait { model, lasts: Duration::from_secs(9), json: "{}".to_owned() };
        process.generation.shared.control.set_waits(&[], Some(full)).await.unwrap();
        let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
        assert_eq!((quote.decision, quote.problem), (Decision::Queues, None));
    }

    #[tokio::test]
    async fn it_foresees_a_rate_and_uses_none_of_it() {
        let world = World::new().await;
        let tenant = world.another_tenant("free").await;
        let ada = world.user_of(tenant, 100, Scopes::default_of_keys()).await;
        let process = world.process().await;
        for _ in 0..20 {
            let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
            assert_eq!(quote.problem, None);
        }
        for _ in 0..5 {
            process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        }
        let quote = process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
        assert_eq!(quote.decision, Decision::Refused);
        let Some(SubmitError::RateLimited { by, retry_after, .. }) = quote.problem else {
            panic!("{quote:?}")
        };
        assert_eq!(by.policy, "submit-user");
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(12), "{retry_after:?}");
    }
}
