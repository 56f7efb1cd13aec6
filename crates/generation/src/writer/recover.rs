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

use domain::TaskId;
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
                tracing::warn!(%error, submits = batch.len(), "submits were not stored");
                refuse(batch, &SubmitError::UNAVAILABLE);
            }
            PgError::Constraint { .. }
            | PgError::UnexpectedRows { .. }
            | PgError::BadRow { .. }
            | PgError::Statement(_) => {
                tracing::warn!(%error, submits = batch.len(), "a batch failed; trying each submit by itself");
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
        self.answer(vec![waiting], vec![Verdict::Accepted { body }]);
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
