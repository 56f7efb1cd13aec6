//! What a writer does when a transaction fails.
//!
//! - The answer to COMMIT was lost: the tasks' ids were made before, so they are looked up. What is not there is
//!   tried again under the same id; if the lost commit lands after all, the second try meets its unique key.
//! - Somebody's lock: that somebody must not hold everybody up. The batch goes to a side lane, split by whom it
//!   could be waiting for, and the writer goes on.
//! - PostgreSQL is away: everybody is told so.
//! - Anything else is bad data: each element is tried by itself, so that it refuses only its own request.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{TaskId, complaints::Complaints};
use pg::PgError;
use task_state::TaskRecord;

use super::{Waiting, Writer};
use crate::{
    SubmitError, answer,
    batch::{Failed, Step, Verdict},
};

/// Tries of one element whose commit keeps getting lost.
const LOST_MAX: usize = 3;
/// The pause between two look-ups while PostgreSQL is away.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Writer {
    pub(super) async fn recover(self: &Arc<Self>, batch: Vec<Waiting>, failed: Failed) {
        let Failed { at, error } = failed;
        match error {
            PgError::CommitUnknown(_) => {
                tracing::warn!(submits = batch.len(), "the answer to COMMIT was lost; looking the tasks up");
                self.look_up(batch).await;
            }
            PgError::LockTimeout(_) => self.side_step(batch, at).await,
            PgError::Unavailable(_) | PgError::StatementTimeout(_) => {
                static AWAY: Complaints = Complaints::new();
                if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
                    tracing::warn!(%error, submits = batch.len(), silent, "submits were not stored");
                }
                refuse(batch, &SubmitError::UNAVAILABLE);
            }
            PgError::Constraint { .. }
            | PgError::UnexpectedRows { .. }
            | PgError::BadRow { .. }
            | PgError::Statement(_) => {
                static TROUBLE: Complaints = Complaints::new();
                if let Some(silent) = TROUBLE.complain(std::time::Instant::now()) {
                    tracing::warn!(%error, submits = batch.len(), silent, "a batch failed; trying each submit by itself");
                }
                for waiting in batch {
                    self.alone(waiting).await;
                }
            }
        }
    }

    /// Finds out which tasks exist; the others are tried again.
    async fn look_up(&self, batch: Vec<Waiting>) {
        let ids: Vec<TaskId> = batch.iter().map(|waiting| waiting.element.task).collect();
        let Some(found) = self.find(&ids).await else {
            // Nobody can say. With its key the request can be sent again without harm.
            return refuse(batch, &SubmitError::UNAVAILABLE);
        };
        for waiting in batch {
            match found.get(&waiting.element.task) {
                Some(record) => self.landed(waiting, record),
                None => self.alone(waiting).await,
            }
        }
    }

    /// The tasks that exist; none when PostgreSQL stays away for as long as anybody would wait.
    async fn find(&self, ids: &[TaskId]) -> Option<HashMap<TaskId, TaskRecord>> {
        let give_up = Instant::now() + self.shared.config.answer_limit();
        loop {
            match self.shared.task_state.records(ids).await {
                Ok(records) => {
                    return Some(records.into_iter().map(|record| (record.id(), record)).collect());
                }
                Err(error) if Instant::now() >= give_up => {
                    tracing::error!(%error, submits = ids.len(), "it stays unknown which submits were stored");
                    return None;
                }
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// The task exists although its commit was not heard of.
    fn landed(&self, waiting: Waiting, record: &TaskRecord) {
        let body = answer::found(&record.snapshot, waiting.element.request.deadline_seconds);
        let made_at = record.snapshot.created_at;
        let queued = waiting.element.new_task(made_at).queued(made_at);
        // What is left of the day since is not known here.
        self.answer(vec![waiting], vec![Verdict::Accepted { body, queued, quotas: Vec::new() }]);
    }

    /// One element in a transaction of its own.
    async fn alone(&self, waiting: Waiting) {
        let (task, arrived) = (waiting.element.task, waiting.arrived);
        for _ in 0..LOST_MAX {
            // A twin is waited for as long as is promised, counted from the arrival.
            let config = &self.shared.config;
            let patience = config.twin_wait().saturating_sub(arrived.elapsed()).max(config.batch_lock());
            let one = std::slice::from_ref(&waiting);
            let Failed { at, error } = match self.attempt(one, patience).await {
                Ok(verdicts) => return self.answer(vec![waiting], verdicts),
                Err(failed) => failed,
            };
            // Its own earlier commit may have landed: then the second try meets a unique key.
            let perhaps_landed = matches!(error, PgError::CommitUnknown(_) | PgError::Constraint { .. });
            if perhaps_landed {
                let Some(found) = self.find(&[task]).await else { break };
                if let Some(record) = found.get(&task) {
                    return self.landed(waiting, record);
                }
                if matches!(error, PgError::CommitUnknown(_)) {
                    continue;
                }
            }
            let refusal = match &error {
                PgError::LockTimeout(_) if at == Step::Reserve => {
                    SubmitError::IdempotencyInProgress { retry_after: SubmitError::SOON }
                }
                error if error.is_transient() => SubmitError::UNAVAILABLE,
                error => {
                    tracing::error!(%task, error = %Chain(error), "a submit failed");
                    SubmitError::Internal
                }
            };
            return waiting.tell(Err(refusal));
        }
        waiting.tell(Err(SubmitError::UNAVAILABLE));
    }

    /// Goes on beside the writer with a batch that met somebody's lock.
    async fn side_step(self: &Arc<Self>, batch: Vec<Waiting>, at: Step) {
        let groups = split(batch, at);
        for group in groups {
            let lane = Arc::clone(&self.lanes).acquire_owned().await;
            let writer = Arc::clone(self);
            let work = async move {
                writer.patiently(group, at).await;
                drop(lane);
            };
            self.running.spawn(work);
        }
    }

    /// A group that can only be waiting for one thing.
    async fn patiently(&self, group: Vec<Waiting>, at: Step) {
        // Whoever has waited too long by now is told so, and can be sure that nothing was done.
        let limit = self.shared.config.answer_limit();
        let (group, late): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|waiting| waiting.arrived.elapsed() < limit);
        refuse(late, &SubmitError::UNAVAILABLE);
        let mut group = group.into_iter();
        match (group.next(), group.as_slice()) {
            (None, _) => {}
            (Some(one), []) => self.alone(one).await,
            (Some(first), _) => {
                let group: Vec<_> = std::iter::once(first).chain(group).collect();
                match self.attempt(&group, self.shared.config.twin_wait()).await {
                    Ok(verdicts) => self.answer(group, verdicts),
                    Err(Failed { error: PgError::LockTimeout(_), at: again }) if again == at => {
                        tracing::warn!(submits = group.len(), "an account stays locked");
                        refuse(group, &SubmitError::UNAVAILABLE);
                    }
                    Err(Failed { error: PgError::CommitUnknown(_), .. }) => self.look_up(group).await,
                    Err(_) => {
                        for waiting in group {
                            self.alone(waiting).await;
                        }
                    }
                }
            }
        }
    }
}

/// Splits a batch by whom its elements could be waiting for: each key's twin, or each account's holder.
fn split(batch: Vec<Waiting>, at: Step) -> Vec<Vec<Waiting>> {
    let mut alone = Vec::new();
    let mut groups: BTreeMap<_, Vec<Waiting>> = BTreeMap::new();
    for waiting in batch {
        match (at, &waiting.element.key) {
            (Step::Reserve, Some(_)) => alone.push(vec![waiting]),
            // Without a key it cannot have been the one that waited at the keys: all of these go together, first.
            (Step::Reserve, None) => groups.entry(None).or_default().push(waiting),
            (Step::Elsewhere, _) => groups.entry(Some(waiting.element.account)).or_default().push(waiting),
        }
    }
    groups.into_values().chain(alone).collect()
}

fn refuse(batch: Vec<Waiting>, error: &SubmitError) {
    for waiting in batch {
        waiting.tell(Err(error.clone()));
    }
}

/// An error with its causes, for the one place where it is logged.
struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use sqlx::Connection as _;

    use super::*;
    use crate::{
        GenerationConfig,
        tests_support::{Wire, World},
    };

    #[tokio::test]
    async fn bad_data_refuses_only_its_own_request() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(1_000).await);
        let submits = (0..20).map(|n| {
            let mut request = process.request("a cat", 1);
            if n == 7 {
                // Past the parser, as if it had a hole.
                request.inputs.prompt.push('\0');
            }
            process.submit(&ada, request, None)
        });
        let outcomes = join_all(submits).await;
        for (n, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Ok(_) => assert_ne!(n, 7),
                Err(error) => assert_eq!((n, error), (7, &SubmitError::Internal)),
            }
        }
        assert_eq!(world.count("generation_tasks").await, 19);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn a_locked_account_holds_nobody_else_up() {
        let world = World::new().await;
        let config = GenerationConfig { batch_lock_ms: 200, ..GenerationConfig::default() };
        let process = world.process_with(&world.db.url, config).await;
        let (ada, bob) = (world.user(100).await, world.user(100).await);
        let mut holder = world.db.pool.acquire().await.unwrap();
        let mut transaction = holder.begin().await.unwrap();
        ledger::lock_admission(&mut transaction, &[ada.principal.account], &[], &[]).await.unwrap();

        let blocked = process.submit(&ada, process.request("a cat", 1), Some("K"));
        let free = async {
            let done = process.submit(&bob, process.request("a cat", 1), None).await.unwrap();
            // Only now is Ada's account free again: Bob did not wait for it.
            transaction.rollback().await.unwrap();
            done
        };
        let (blocked, free) = tokio::join!(blocked, free);
        assert_ne!(blocked.unwrap().task, free.task);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn an_account_that_stays_locked_is_unavailable_and_untouched() {
        let world = World::new().await;
        let config = GenerationConfig { batch_lock_ms: 50, twin_wait_ms: 100, ..GenerationConfig::default() };
        let process = world.process_with(&world.db.url, config).await;
        let ada = world.user(100).await;
        let mut holder = world.db.pool.acquire().await.unwrap();
        let mut transaction = holder.begin().await.unwrap();
        ledger::lock_admission(&mut transaction, &[ada.principal.account], &[], &[]).await.unwrap();
        let submits = (0..5).map(|_| process.submit(&ada, process.request("a cat", 1), None));
        for outcome in join_all(submits).await {
            assert_eq!(outcome, Err(SubmitError::UNAVAILABLE));
        }
        transaction.rollback().await.unwrap();
        process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        assert_eq!(world.count("generation_tasks").await, 1);
    }

    #[tokio::test]
    async fn a_twin_of_an_unfinished_request_waits_two_seconds_and_then_says_so() {
        let world = World::new().await;
        let (process, ada, bob) = (world.process().await, world.user(100).await, world.user(100).await);
        let mut holder = world.db.pool.acquire().await.unwrap();
        let mut transaction = holder.begin().await.unwrap();
        sqlx::query(
            "INSERT INTO idempotency_keys (user_id, route, key, fingerprint, subject, response_status, response_body)
             VALUES ($1, 'POST /generations', 'K', '', 'task_x', 202, '')",
        )
        .bind(ada.principal.user.as_uuid())
        .execute(&mut *transaction)
        .await
        .unwrap();
        let began = Instant::now();
        let twin = process.submit(&ada, process.request("a cat", 1), Some("K"));
        let others = join_all((0..20).map(|n| {
            let key = format!("other-{n}");
            let (process, bob) = (&process, &bob);
            async move { process.submit(bob, process.request("a cat", 1), Some(&key)).await }
        }));
        let others = async {
            let outcomes = others.await;
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            began.elapsed()
        };
        let (twin, others_took) = tokio::join!(twin, others);
        let waited = began.elapsed();
        assert!(matches!(twin, Err(SubmitError::IdempotencyInProgress { .. })), "{twin:?}");
        assert!(waited >= Duration::from_millis(1_900) && waited < Duration::from_secs(4), "{waited:?}");
        assert!(others_took < waited, "{others_took:?}");
        transaction.rollback().await.unwrap();
        process.submit(&ada, process.request("a cat", 1), Some("K")).await.unwrap();
    }

    #[tokio::test]
    async fn a_lost_answer_to_commit_is_looked_up() {
        let world = World::new().await;
        let wire = Wire::new(&world).await;
        let process = world.process_with(&wire.url, GenerationConfig::default()).await;
        let ada = world.user(1_000).await;
        wire.lose_next_answer();
        let outcomes = join_all((0..10).map(|n| {
            let key = format!("key-{n}");
            let (process, ada) = (&process, &ada);
            async move { process.submit(ada, process.request("a cat", 1), Some(&key)).await }
        }))
        .await;
        assert!(wire.is_done());
        for outcome in &outcomes {
            let done = outcome.as_ref().unwrap();
            assert!(!done.replayed);
            let stored: String =
                sqlx::query_scalar("SELECT response_body FROM idempotency_keys WHERE subject = $1")
                    .bind(done.task.to_string())
                    .fetch_one(&world.db.pool)
                    .await
                    .unwrap();
            assert_eq!(done.body, stored, "a replay will say the same");
        }
        assert_eq!(world.count("generation_tasks").await, 10);
        assert_eq!(world.balance(&ada).await.held.get(), 20);
        assert_eq!(process.told.lock().unwrap().len(), 10);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn a_commit_that_never_arrived_is_tried_again() {
        let world = World::new().await;
        let wire = Wire::new(&world).await;
        let process = world.process_with(&wire.url, GenerationConfig::default()).await;
        let ada = world.user(1_000).await;
        wire.lose_next_commit();
        let outcomes =
            join_all((0..10).map(|_| process.submit(&ada, process.request("a cat", 1), None))).await;
        assert!(wire.is_done());
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(world.count("generation_tasks").await, 10);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn without_postgres_nothing_is_half_written() {
        let world = World::new().await;
        let wire = Wire::new(&world).await;
        let config = GenerationConfig { answer_limit_ms: 3_000, ..GenerationConfig::default() };
        let process = world.process_with(&wire.url, config).await;
        let ada = world.user(1_000).await;
        wire.cut(true);
        let outcomes =
            join_all((0..10).map(|_| process.submit(&ada, process.request("a cat", 1), None))).await;
        for outcome in outcomes {
            assert_eq!(outcome, Err(SubmitError::UNAVAILABLE));
        }
        assert_eq!(world.count("generation_tasks").await, 0);
        wire.cut(false);
        testkit::wait_until("submits to be stored again", Duration::from_secs(10), async || {
            process.submit(&ada, process.request("a cat", 1), None).await.is_ok()
        })
        .await;
        world.assert_sound().await;
    }
}
