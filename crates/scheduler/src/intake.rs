//! Intake: what was just accepted gets into the ready queue.
//!
//! Two ways lead here. The writer of a submit nudges the scheduler of its own process after its commit; that is fast and
//! promises nothing. The message in the queue is the guarantee and reaches every other process. Both only name tasks;
//! what they are is read from PostgreSQL. Redis being away is no error of the handler: the message is acknowledged, and
//! the reconciler fills the ready queue later.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use bus::{Handler, HandlerError, Message, Rejected};
use domain::{TaskId, WorkerId};
use task_state::TaskRecord;
use tokio::sync::mpsc;

use crate::{loops::PassError, worker::Worker};

/// Nudges that may wait; more are dropped, and their messages do it.
const WAITING_MAX: usize = 16_384;
/// Tasks loaded together.
const BATCH_MAX: usize = 256;

/// Tells the scheduler of this process what its neighbours just committed. Cheap to clone; losing a nudge is harmless.
#[derive(Clone)]
pub struct Nudge {
    queued: mpsc::Sender<TaskId>,
    worker: Arc<Worker>,
}

impl std::fmt::Debug for Nudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nudge").field("worker", &self.worker.id).finish_non_exhaustive()
    }
}

impl Nudge {
    pub(crate) fn new(worker: Arc<Worker>) -> (Self, mpsc::Receiver<TaskId>) {
        let (queued, receiver) = mpsc::channel(WAITING_MAX);
        (Self { queued, worker }, receiver)
    }

    /// These tasks have just been queued.
    pub fn queued(&self, tasks: &[TaskId]) {
        for task in tasks {
            if self.queued.try_send(*task).is_err() {
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
pub(crate) async fn run(worker: &Worker, mut queued: mpsc::Receiver<TaskId>) {
    const NAME: &str = "intake";
    worker.loops.register(NAME.into());
    let mut batch = Vec::with_capacity(BATCH_MAX);
    let mut idle = tokio::time::interval(std::time::Duration::from_secs(5));
    loop {
        tokio::select! {
            () = worker.stopping.cancelled() => return,
            // Nothing to do is progress too.
            _ = idle.tick() => worker.loops.ran(NAME, Ok(())),
            count = queued.recv_many(&mut batch, BATCH_MAX) => {
                if count == 0 {
                    return;
                }
                worker.recent.remember(batch.iter().copied());
                let result = queue(worker, &batch).await;
                if let Err(error) = &result {
                    tracing::debug!(%error, "nudged tasks were not queued; their messages or the reconciler will");
                }
                worker.loops.ran(NAME, result.as_ref().map(|_| ()));
                batch.clear();
            }
        }
    }
}

async fn queue(worker: &Worker, tasks: &[TaskId]) -> Result<(), PassError> {
    let records = worker.task_state.records(tasks).await?;
    worker.add_ready(records.iter()).await?;
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
