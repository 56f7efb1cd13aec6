//! Filling the ready queue from PostgreSQL, which alone knows what is queued.
//!
//! Tasks get there by a nudge, by their message, by going back after a try, by a refill when a user's heads run low,
//! and last by the reconciler here, which makes the others' failures harmless: it begins with what could not be added
//! because Redis was away, then walks through all queued tasks, a page per pass, and adds what is in neither set of the queue. A queue whose marker is missing (a flush, a restart) is
//! filled page by page at once, while pops go on.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use control::{Added, QueuedUser, ReadyTask};
use domain::{ModelName, TaskId, TaskStatus, metric};
use task_state::{NewlyQueued, TaskRecord, Turn};

use crate::{
    loops::{Next, PassError},
    worker::Worker,
};

/// Tasks read and added together.
const PAGE: i64 = 1_000;
/// Owed tasks read and added together.
const SETTLED_TOGETHER: usize = 1_000;
/// Tasks read when a user's heads run low. Those that are there or out for dispatch are among them.
const REFILL: i64 = 250;

impl Worker {
    /// Adds the queued ones among these tasks. Failing is harmless: the reconciler adds them later.
    pub(crate) async fn enqueue(&self, records: &[Arc<TaskRecord>]) {
        if let Err(error) = self.add_ready(records.iter().map(AsRef::as_ref)).await {
            tracing::debug!(%error, "tasks were not added to the ready queue; the reconciler will");
        }
    }

    /// Adds the queued ones among these tasks and wakes their models' dispatch. Says what became of them.
    pub(crate) async fn add_ready(
        &self,
        records: impl Iterator<Item = &TaskRecord>,
    ) -> Result<Counts, PassError> {
        let mut tasks = Vec::new();
        for record in records.filter(|record| record.snapshot.status == TaskStatus::Queued) {
            let tier = self.tenancy.tier_of(record.snapshot.user_id).await?;
            tasks.push(ready_task(record, tier.map_or(1, |tier| tier.weight)));
        }
        let added = self.add_tasks(&tasks).await?;
        let count = |what| added.iter().filter(|added| **added == what).count();
        Ok(Counts { new: count(Added::New), full: count(Added::Full) })
    }

    /// Adds tasks and wakes the dispatch of the models for which some are new. Says what became of each.
    pub(crate) async fn add_tasks(&self, tasks: &[ReadyTask]) -> Result<Vec<Added>, PassError> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let added = match self.control.add_ready(tasks).await {
            Ok(added) => added,
            Err(error) => {
                self.owed.note(tasks.iter().map(|task| task.task));
                return Err(error.into());
            }
        };
        let new = tasks.iter().zip(&added).filter(|(_, added)| **added == Added::New);
        let mut models: Vec<&ModelName> = new.map(|(task, _)| &task.model).collect();
        models.dedup();
        for model in models {
            self.ring(model);
        }
        Ok(added)
    }

    /// A task that was just made, as the queue wants it. What became of it since is found out when it is claimed.
    pub(crate) async fn newly_ready(&self, task: &NewlyQueued) -> Result<ReadyTask, PassError> {
        let tier = self.tenancy.tier_of(task.user).await?;
        Ok(ReadyTask {
            task: task.task,
            model: task.model.clone(),
            tenant: task.tenant,
            user: task.user,
            priority: task.priority,
            tenant_weight: tier.map_or(1, |tier| tier.weight),
            created_ms: task.created_at.timestamp_millis(),
            not_before_ms: 0,
            next_attempt_no: 1,
        })
    }

    /// Takes a task that ended while it was queued out of the ready queue. Failing is harmless: PostgreSQL refuses it
    /// when its turn comes.
    pub(crate) async fn dequeue(&self, record: &TaskRecord) {
        if let Err(error) = self.control.remove_ready(&[ready_task(record, 1)]).await {
            tracing::debug!(%error, "an ended task was not taken out of the ready queue");
        }
    }

    /// Fetches more of the users whose heads run low, past those that are out for dispatch.
    pub(crate) async fn refill(
        &self,
        model: &ModelName,
        users: &[QueuedUser],
        out: &HashSet<TaskId>,
    ) -> Result<(), PassError> {
        for QueuedUser { tenant, user } in users {
            let mut after = None;
            loop {
                let page = self.task_state.queued_of_user(*tenant, *user, model, after, REFILL).await?;
                let counts = self.add_ready(page.iter().filter(|record| !out.contains(&record.id()))).await?;
                after = has_next(&page, REFILL).map(Turn::of);
                // Whoever found no room goes later than all that did, and a full queue remembers that there is more. One
                // with room left must not forget those after this page, most of which may be out for dispatch.
                if counts.full > 0 || after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What became of added tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Waiting now.
    new: usize,
    /// Left in PostgreSQL, because their user has enough heads.
    full: usize,
}

/// After which task the next page begins; none after the last.
fn has_next(page: &[TaskRecord], size: i64) -> Option<&TaskRecord> {
    let full = i64::try_from(page.len()).is_ok_and(|count| count == size);
    page.last().filter(|_| full)
}

fn ready_task(record: &TaskRecord, tenant_weight: u32) -> ReadyTask {
    let snapshot = &record.snapshot;
    ReadyTask {
        task: snapshot.task_id,
        model: snapshot.model.clone(),
        tenant: snapshot.tenant_id,
        user: snapshot.user_id,
        priority: snapshot.priority,
        tenant_weight,
        created_ms: snapshot.created_at.timestamp_millis(),
        not_before_ms: snapshot.not_before.map_or(0, |instant| instant.timestamp_millis()),
        next_attempt_no: snapshot.attempt_no + 1,
    }
}

/// How far the walk through each model's queued tasks has come.
#[derive(Debug, Default)]
pub(crate) struct Walk(Mutex<HashMap<ModelName, TaskId>>);

impl Walk {
    fn position(&self, model: &ModelName) -> Option<TaskId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(model).copied()
    }

    fn go_on(&self, model: &ModelName, position: Option<TaskId>) {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match position {
            Some(position) => positions.insert(model.clone(), position),
            None => positions.remove(model),
        };
    }
}

/// One pass: every incomplete queue is filled, every other is compared a page further.
///
/// # Errors
/// When a store did not answer.
pub(crate) async fn pass(worker: &Worker, walk: &Walk) -> Result<Next, PassError> {
    settle(worker).await?;
    // While the queue delivers nothing, nobody else brings what other processes have accepted.
    let brought = worker.consumer.last_error().is_none();
    let older_than = if brought { worker.config.ready_after } else { Duration::ZERO };
    for model in worker.catalogue.models() {
        if worker.control.ready_marker(&model.name).await? {
            let page = page(worker, &model.name, older_than, walk.position(&model.name)).await?;
            walk.go_on(&model.name, page);
        } else {
            fill(worker, &model.name).await?;
        }
    }
    worker.tell_service_times().await;
    let names: Vec<_> = worker.catalogue.models().iter().map(|model| model.name.clone()).collect();
    for (name, depth) in names.iter().zip(worker.control.queue_depths(&names).await?) {
        #[expect(clippy::cast_precision_loss, reason = "a gauge of at most some million tasks")]
        metrics::gauge!(metric::QUEUE_DEPTH, "model" => name.to_string()).set(depth as f64);
    }
    Ok(Next::Timer)
}

/// Adds the tasks that could not be added when they came, so that none of them waits until it is old enough to be missed.
async fn settle(worker: &Worker) -> Result<(), PassError> {
    let owed = worker.owed.take();
    for (place, tasks) in owed.chunks(SETTLED_TOGETHER).enumerate() {
        let settled = async {
            let records = worker.task_state.records(tasks).await?;
            worker.add_ready(records.iter()).await
        };
        if let Err(error) = settled.await {
            worker.owed.note(owed[place * SETTLED_TOGETHER..].iter().copied());
            return Err(error);
        }
    }
    if !owed.is_empty() {
        tracing::info!(tasks = owed.len(), "tasks were queued that could not be when they came");
    }
    Ok(())
}

async fn fill(worker: &Worker, model: &ModelName) -> Result<(), PassError> {
    tracing::info!(%model, "the ready queue is not known to be complete and is filled from PostgreSQL");
    let mut after = None;
    loop {
        after = page(worker, model, Duration::ZERO, after).await?;
        if after.is_none() {
            break;
        }
    }
    worker.control.mark_ready(model).await?;
    worker.ring(model);
    Ok(())
}

/// Adds one page of queued tasks. Returns where the next begins; none after the last.
async fn page(
    worker: &Worker,
    model: &ModelName,
    older_than: Duration,
    after: Option<TaskId>,
) -> Result<Option<TaskId>, PassError> {
    let records = worker.task_state.queued(Some(model), older_than, after, PAGE).await?;
    let counts = worker.add_ready(records.iter()).await?;
    if counts.new > 0 && !older_than.is_zero() {
        tracing::info!(%model, new = counts.new, "queued tasks were missing in the ready queue");
    }
    Ok(has_next(&records, PAGE).map(TaskRecord::id))
}
