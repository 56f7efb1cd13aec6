//! Intake: what was just accepted gets into the ready queue.
//!
//! Two ways lead here. The writer of a submit nudges the scheduler of its own process after its commit; that is fast and
//! promises nothing. The message in the queue is the guarantee and reaches every other process; it only names a task, and
//! what that is is read from PostgreSQL. Redis being away is no error of the handler: the message is acknowledged, and the
//! reconciler fills the ready queue later.
//!
//! The ready queue holds only the heads of each user and is told when PostgreSQL has more. So of a user who submits faster
//! than tasks start, one task of each batch speaks for all.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bus::{Handler, HandlerError, Message, Rejected};
use control::{Added, ReadyTask};
use domain::{ModelName, TaskId, UserId, WorkerId};
use task_state::{NewlyQueued, TaskRecord};
use tokio::sync::mpsc;

use crate::{loops::PassError, worker::Worker};

/// Nudges that may wait; more are dropped, and their messages do it.
const WAITING_MAX: usize = 16_384;
/// Tasks queued together.
const BATCH_MAX: usize = 256;
/// Users whose heads are remembered as full; forgetting them costs a little work.
const CROWDED_MAX: usize = 1_024;

/// Tells the scheduler of this process what its neighbours just committed. Cheap to clone; losing a nudge is harmless.
#[derive(Clone)]
pub struct Nudge {
    queued: mpsc::Sender<NewlyQueued>,
    worker: Arc<Worker>,
}

impl std::fmt::Debug for Nudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nudge").field("worker", &self.worker.id).finish_non_exhaustive()
    }
}

impl Nudge {
    pub(crate) fn new(worker: Arc<Worker>) -> (Self, mpsc::Receiver<NewlyQueued>) {
        let (queued, receiver) = mpsc::channel(WAITING_MAX);
        (Self { queued, worker }, receiver)
    }

    /// These tasks have just been queued, after their submits waited so long for it on average.
    pub fn queued(&self, tasks: &[NewlyQueued], waited: Duration) {
        self.worker.effort.note_accepted(tasks.len(), waited);
        for task in tasks {
            if self.queued.try_send(task.clone()).is_err() {
                break;
            }
        }
    }

    /// A cancel was just recorded for this task. If its attempt is owned here, the provider hears of it at once.
    pub fn cancel_requested(&self, task: TaskId) {
        self.worker.holdings.of_task(task).iter().for_each(|owned| owned.request_cancel());
    }

    /// A provider's callback was just stored for this worker, if that is its owner. Says whether it is.
    #[must_use]
    pub fn called_back(&self, owner: &WorkerId) -> bool {
        let ours = *owner == self.worker.id;
        if ours {
            self.worker.called.notify_one();
        }
        ours
    }
}

/// Queues what is nudged until the senders are gone or the worker stops.
pub(crate) async fn run(worker: &Worker, mut queued: mpsc::Receiver<NewlyQueued>) {
    const NAME: &str = "intake";
    worker.loops.register(NAME.into());
    let mut crowded = Crowded::default();
    let mut batch = Vec::with_capacity(BATCH_MAX);
    let mut idle = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            () = worker.stopping.cancelled() => return,
            // Nothing to do is progress too.
            _ = idle.tick() => worker.loops.ran(NAME, Ok(())),
            count = queued.recv_many(&mut batch, BATCH_MAX) => {
                if count == 0 {
                    return;
                }
                let result = queue(worker, &mut crowded, &batch).await;
                // Only then may their messages be passed over.
                if result.is_ok() {
                    worker.recent.remember(batch.iter().map(|task| task.task));
                }
                if let Err(error) = &result {
                    tracing::debug!(%error, "nudged tasks were not queued; their messages or the reconciler will");
                }
                worker.loops.ran(NAME, result.as_ref().map(|_| ()));
                batch.clear();
            }
        }
    }
}

/// Users of a model who had as many heads as fit when one of their tasks was last added.
#[derive(Debug, Default)]
struct Crowded(HashSet<(ModelName, UserId)>);

impl Crowded {
    fn note(&mut self, tasks: &[ReadyTask], added: &[Added]) {
        for (task, added) in tasks.iter().zip(added) {
            let user = (task.model.clone(), task.user);
            if *added != Added::Full {
                self.0.remove(&user);
                continue;
            }
            if self.0.len() >= CROWDED_MAX {
                self.0.clear();
            }
            self.0.insert(user);
        }
    }

    /// Those to add first, and those that only need adding if the first of their user found room: it is the best of
    /// them, so where it found none, neither would they, and the queue knows by now that PostgreSQL has more.
    fn split(&self, tasks: Vec<ReadyTask>) -> (Vec<ReadyTask>, Vec<ReadyTask>) {
        let mut speakers: HashMap<(ModelName, UserId), ReadyTask> = HashMap::new();
        let (mut first, mut rest) = (Vec::with_capacity(tasks.len()), Vec::new());
        for task in tasks {
            let user = (task.model.clone(), task.user);
            if !self.0.contains(&user) {
                first.push(task);
                continue;
            }
            match speakers.get_mut(&user) {
                None => drop(speakers.insert(user, task)),
                Some(best) if is_better(&task, best) => rest.push(std::mem::replace(best, task)),
                Some(_) => rest.push(task),
            }
        }
        first.extend(speakers.into_values());
        (first, rest)
    }
}

/// Whether the queue prefers the task to another one of its user.
fn is_better(task: &ReadyTask, other: &ReadyTask) -> bool {
    let turn = |task: &ReadyTask| task.priority.turn(task.created_ms);
    turn(task) < turn(other)
}

async fn queue(worker: &Worker, crowded: &mut Crowded, batch: &[NewlyQueued]) -> Result<(), PassError> {
    let mut tasks = Vec::with_capacity(batch.len());
    for task in batch {
        tasks.push(worker.newly_ready(task).await?);
    }
    let (first, mut rest) = crowded.split(tasks);
    let added = worker.add_tasks(&first).await?;
    crowded.note(&first, &added);
    rest.retain(|task| !crowded.0.contains(&(task.model.clone(), task.user)));
    let added = worker.add_tasks(&rest).await?;
    crowded.note(&rest, &added);
    Ok(())
}

/// The handler of `generation.requested`.
pub(crate) struct Intake(pub(crate) Arc<Worker>);

#[async_trait]
impl Handler for Intake {
    async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError> {
        let worker = &self.0;
        let mut rejected = Vec::new();
        let mut named: HashMap<TaskId, Vec<usize>> = HashMap::with_capacity(batch.len());
        for (index, message) in batch.iter().enumerate() {
            match message.envelope() {
                Ok(envelope) => named.entry(envelope.task_id).or_default().push(index),
                Err(error) => rejected.push(Rejected { index, reason: error.to_string() }),
            }
        }
        let tasks = worker.recent.unknown(named.keys().copied());
        if !tasks.is_empty() {
            let records = worker.task_state.records(&tasks).await.map_err(HandlerError::failed)?;
            let found: HashSet<TaskId> = records.iter().map(TaskRecord::id).collect();
            // The message was committed together with its task, so one without a task is about nothing.
            for task in tasks.iter().filter(|task| !found.contains(task)) {
                let indexes = named.get(task).into_iter().flatten();
                rejected.extend(
                    indexes.map(|index| Rejected { index: *index, reason: format!("there is no {task}") }),
                );
            }
            if let Err(error) = worker.add_ready(records.iter()).await {
                tracing::debug!(%error, "requested tasks were not queued; the reconciler will");
            }
        }
        if rejected.is_empty() { Ok(()) } else { Err(HandlerError::Rejected(rejected)) }
    }
}

#[cfg(test)]
mod tests {
    use domain::{Priority, TenantId};

    use super::*;

    fn task(user: UserId, priority: u8, created_ms: i64) -> ReadyTask {
        ReadyTask {
            task: TaskId::generate(),
            model: "mock-fast".parse().unwrap(),
            tenant: TenantId::generate(),
            user,
            priority: Priority::new(priority).unwrap(),
            tenant_weight: 1,
            created_ms,
            not_before_ms: 0,
            next_attempt_no: 1,
        }
    }

    #[test]
    fn of_a_user_without_room_the_best_task_speaks_for_the_others() {
        let (crowd, other) = (UserId::generate(), UserId::generate());
        let mut crowded = Crowded::default();
        crowded.note(&[task(crowd, 0, 0), task(other, 0, 0)], &[Added::Full, Added::New]);
        let tasks = vec![
            task(crowd, 0, 2),
            task(other, 0, 5),
            task(crowd, 0, 1),
            task(crowd, 1, 3),
            task(other, 0, 6),
        ];
        let (first, rest) = crowded.split(tasks.clone());
        assert_eq!(first, [tasks[1].clone(), tasks[4].clone(), tasks[3].clone()]);
        assert_eq!(rest, [tasks[0].clone(), tasks[2].clone()]);
        crowded.note(&first[2..], &[Added::New]);
        assert_eq!(crowded.split(tasks.clone()), (tasks, vec![]));
    }
}
