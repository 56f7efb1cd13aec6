//! Whether this process can do its work, for `/healthz`, `/readyz` and the header `AIVideo-Degraded`.
//!
//! Alive means that the loops come round, not that the process exists; one whose passes fail because a store is away
//! is alive, for starting it again would not bring the store back. Not ready means that a role cannot work at all:
//! PostgreSQL is gone, or the scheduler has made no progress. Everything else is named as degraded.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::health::{HealthSource, LoopReadiness, Readiness, RoleReadiness};
use async_trait::async_trait;
use bus::ConsumerStatus;
use control::Control;
use http::HeaderValue;
use pg::PgPool;
use scheduler::Loops;

use crate::{cli::Role, roles::relay};

/// A scheduler with a loop that achieves nothing for longer than this cannot work.
const PROGRESS_MAX: Duration = Duration::from_secs(30);
/// A process whose loops stand still for longer than this is better started again.
const ALIVE_MAX: Duration = Duration::from_secs(120);
/// PostgreSQL is asked at most this often, however many ask us.
const DATABASE_ASKED: Duration = Duration::from_millis(500);
/// How long its answer may take.
const DATABASE_ANSWER: Duration = Duration::from_secs(2);

/// The progress of the scheduler in this process.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) loops: Loops,
    pub(crate) consumer: ConsumerStatus,
}

/// The health of this process.
pub(crate) struct Health {
    roles: Vec<Role>,
    pool: PgPool,
    control: Control,
    progress: Option<Progress>,
    /// Whether a broker carries the queue, and the relay that feeds it from here.
    has_broker: bool,
    relay: Option<ConsumerStatus>,
    database: Arc<Database>,
}

/// What PostgreSQL last answered.
#[derive(Default)]
struct Database {
    asking: tokio::sync::Mutex<()>,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Health {
    pub(crate) fn new(roles: Vec<Role>, pool: PgPool, control: Control, progress: Option<Progress>) -> Self {
        Self { roles, pool, control, progress, has_broker: false, relay: None, database: Arc::default() }
    }

    /// Watches over a queue too: whether a broker carries it, and the relay in this process.
    pub(crate) fn with_queue(self, has_broker: bool, relay: Option<ConsumerStatus>) -> Self {
        Self { has_broker, relay, ..self }
    }

    /// Whether somebody here should know how old the outbox is.
    pub(crate) fn watches_outbox(&self) -> bool {
        self.progress.is_some() || self.relay.is_some()
    }

    /// Whether the broker was last heard of with an error.
    fn broker_away(&self) -> bool {
        let consumer = self.progress.as_ref().map(|progress| &progress.consumer);
        let failing = |status: &ConsumerStatus| status.last_error().is_some();
        self.has_broker && consumer.into_iter().chain(&self.relay).any(failing)
    }

    /// Whether the relay has carried something lately, or found nothing to carry.
    fn relays(&self, limit: Duration) -> Result<(), String> {
        let stands_still = self.relay.as_ref().is_some_and(|relay| relay.since_progress() > limit);
        if stands_still { Err("no progress in the relay".to_owned()) } else { Ok(()) }
    }

    /// What is away, by the names that the header uses. PostgreSQL as it last answered, provider accounts as they were
    /// last looked up: somebody asks every few seconds.
    fn away(&self) -> Vec<Cow<'static, str>> {
        let database = self.database.last().as_ref().is_some_and(|(_, answer)| answer.is_err());
        let accounts = self.control.shut_accounts().into_iter();
        self.control
            .health()
            .degraded()
            .chain(database.then_some("postgresql"))
            .chain(self.broker_away().then_some("queue"))
            .map(Cow::Borrowed)
            .chain(accounts.map(|account| Cow::Owned(format!("provider:{account}"))))
            .collect()
    }

    /// Whether PostgreSQL answers. Callers at the same moment share one question.
    pub(crate) async fn database(&self) -> Result<(), String> {
        if let Some(known) = self.database.known() {
            return known;
        }
        let _one_at_a_time = self.database.asking.lock().await;
        if let Some(known) = self.database.known() {
            return known;
        }
        let question = sqlx::query("SELECT 1").execute(&self.pool);
        let answer = match tokio::time::timeout(DATABASE_ANSWER, question).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err("PostgreSQL cannot be reached".to_owned()),
            Err(_) => Err("PostgreSQL does not answer".to_owned()),
        };
        *self.database.last() = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Whether everything comes round, be it in vain.
    fn comes_round(&self, limit: Duration) -> Result<(), String> {
        let Some(progress) = &self.progress else { return Ok(()) };
        let stalled = progress.loops.stalled(limit);
        if !stalled.is_empty() {
            return Err(format!("{} stands still", stalled.join(", ")));
        }
        let idle = progress.consumer.idle_for().is_some_and(|idle| idle > limit);
        // The consumer counts only what went well. One that says why it did not is at it.
        if idle && progress.consumer.last_error().is_none() {
            return Err("the queue's consumer stands still".to_owned());
        }
        Ok(())
    }

    /// Whether everything has achieved something lately, be it to find nothing to do.
    fn makes_progress(&self, limit: Duration) -> Result<(), String> {
        let Some(progress) = &self.progress else { return Ok(()) };
        let fruitless = progress.loops.without_progress(limit);
        if !fruitless.is_empty() {
            return Err(format!("no progress in {}", fruitless.join(", ")));
        }
        if progress.consumer.since_progress() > limit {
            return Err("no progress in the queue's consumer".to_owned());
        }
        Ok(())
    }
}

impl Database {
    fn last(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Result<(), String>)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Option<Result<(), String>> {
        let last = self.last();
        last.as_ref().filter(|(at, _)| at.elapsed() < DATABASE_ASKED).map(|(_, answer)| answer.clone())
    }
}

#[async_trait]
impl HealthSource for Health {
    fn degraded(&self) -> Option<HeaderValue> {
        let names = self.away();
        if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
    }

    fn alive(&self) -> Result<(), String> {
        self.comes_round(ALIVE_MAX)?;
        // As the consumer: a relay that says why it carries nothing is at it.
        match &self.relay {
            Some(relay) if relay.last_error().is_none() => self.relays(ALIVE_MAX),
            _ => Ok(()),
        }
    }

    async fn ready(&self, role: Option<&str>) -> Option<Readiness> {
        let asked: Vec<Role> =
            self.roles.iter().copied().filter(|known| role.is_none_or(|role| role == known.name())).collect();
        if asked.is_empty() {
            return None;
        }
        let database = self.database().await;
        let of = |role: Role| {
            let works = match role {
                Role::Scheduler => database.clone().and_then(|()| self.makes_progress(PROGRESS_MAX)),
                Role::Relay => database.clone().and_then(|()| self.relays(PROGRESS_MAX)),
                Role::Api => database.clone(),
            };
            RoleReadiness { role: role.name().to_owned(), ready: works.is_ok(), reason: works.err() }
        };
        let roles: Vec<_> = asked.iter().copied().map(of).collect();
        let mut loops: Vec<LoopReadiness> = match &self.progress {
            Some(progress) if asked.contains(&Role::Scheduler) => {
                let shown = progress.loops.report().into_iter().map(|report| LoopReadiness {
                    name: report.name.into_owned(),
                    idle_seconds: (report.passes > 0).then_some(whole_seconds(report.idle_seconds)),
                    since_progress_seconds: whole_seconds(report.since_success_seconds),
                    last_error: report.last_error,
                });
                shown.collect()
            }
            _ => Vec::new(),
        };
        if let Some(relay) = &self.relay
            && asked.contains(&Role::Relay)
        {
            loops.push(LoopReadiness {
                name: relay::NAME.to_owned(),
                idle_seconds: relay.idle_for().map(|idle| idle.as_secs()),
                since_progress_seconds: relay.since_progress().as_secs(),
                last_error: relay.last_error(),
            });
        }
        Some(Readiness {
            ready: roles.iter().all(|role| role.ready),
            degraded: self.away().into_iter().map(Cow::into_owned).collect(),
            roles,
            loops,
        })
    }
}

fn whole_seconds(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(0, |duration| duration.as_secs())
}

#[cfg(test)]
mod tests {
    use control::{BreakerRule, ControlConfig, Sign};
    use domain::{AttemptRef, TaskId};
    use testkit::{TestDb, TestRedis};

    use super::*;

    fn control(url: &str, prefix: &str) -> Control {
        Control::new(ControlConfig { prefix: prefix.to_owned(), ..ControlConfig::single(url) }).unwrap()
    }

    /// A port that nobody listens on.
    fn nowhere() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn without_postgresql_no_role_is_ready() {
        let redis = TestRedis::new();
        let gone = format!("postgres://x@127.0.0.1:{}/x", nowhere());
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy(&gone).unwrap();
        let roles = vec![Role::Api, Role::Scheduler];
        let health = Health::new(roles, pool, control(&redis.url, &redis.prefix), None);
        let readiness = health.ready(None).await.unwrap();
        assert!(!readiness.ready);
        assert!(readiness.roles.iter().all(|role| role.reason.is_some()), "{readiness:?}");
        assert_eq!(health.degraded().unwrap(), "postgresql");
        assert_eq!(health.alive(), Ok(()), "starting again would not bring PostgreSQL back");
    }

    #[tokio::test]
    async fn without_redis_every_role_is_ready_and_says_what_is_degraded() {
        let db = TestDb::new().await;
        let control = control(&format!("redis://127.0.0.1:{}", nowhere()), "");
        let health = Health::new(vec![Role::Api], db.pool.clone(), control.clone(), None);
        assert_eq!(health.degraded(), None, "nobody has asked Redis yet");
        for _ in 0..10 {
            control.probe().await;
        }
        let readiness = health.ready(Some("api")).await.unwrap();
        assert!(readiness.ready);
        assert_eq!(readiness.degraded, ["cache", "control", "realtime"]);
        assert_eq!(health.degraded().unwrap(), "cache, control, realtime");
        assert_eq!(health.ready(Some("scheduler")).await, None, "this process has no such role");
    }

    #[tokio::test]
    async fn a_provider_account_that_fails_is_named_and_stops_no_role() {
        let (db, redis) = (TestDb::new().await, TestRedis::new());
        let control = control(&redis.url, &redis.prefix);
        let health = Health::new(vec![Role::Api], db.pool.clone(), control.clone(), None);
        let account = "mock".parse().unwrap();
        let rule = BreakerRule { chance: 0, ..BreakerRule::default() };
        let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 1 };
        let note = async |sign| control.note_sign(&account, attempt, sign, &rule, 0.5).await.unwrap();
        note(Sign::Trouble).await;
        assert_eq!(health.degraded().unwrap(), "provider:mock");
        let readiness = health.ready(None).await.unwrap();
        assert_eq!((readiness.ready, readiness.degraded), (true, vec!["provider:mock".to_owned()]));
        note(Sign::Well).await;
        assert_eq!(health.degraded(), None);
    }
}
