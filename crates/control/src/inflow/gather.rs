//! Callers that come together share one pipeline.
//!
//! Nobody waits for a timer: whoever comes first starts a flush, which lets the other ready tasks of the runtime run
//! until no more callers join, half a millisecond at most. The flush is a task of its own, so a caller that goes away
//! takes nobody along.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use redis::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::{Control, ControlError, script::Call};

/// How long callers are gathered at most.
const GATHER_MAX: Duration = Duration::from_micros(500);
/// Callers in one pipeline at most.
const BATCH_MAX: usize = 128;

type Answers = Vec<Result<Value, ControlError>>;

struct Waiting {
    calls: Vec<Call>,
    answer: oneshot::Sender<Result<Answers, ControlError>>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    flushing: bool,
}

/// The callers that wait for the next pipeline.
pub(crate) struct Gatherer {
    queue: Mutex<Queue>,
    room: Semaphore,
}

impl Gatherer {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self { queue: Mutex::default(), room: Semaphore::new(waiting_max.min(Semaphore::MAX_PERMITS)) }
    }

    /// Sends the calls with whatever else is there; one answer each.
    pub(crate) async fn ask(&self, control: &Control, calls: Vec<Call>) -> Result<Answers, ControlError> {
        let _place = self.room.try_acquire().map_err(|_| ControlError::Overloaded)?;
        let (answer, answered) = oneshot::channel();
        if self.join(Waiting { calls, answer }) {
            tokio::spawn(flush(control.clone()));
        }
        // The flush holds the sender until it has an answer; losing it means that the runtime shuts down.
        answered.await.unwrap_or(Err(ControlError::Unknown))
    }

    /// Whether the caller must start a flush.
    fn join(&self, waiting: Waiting) -> bool {
        let mut queue = self.lock();
        queue.waiting.push(waiting);
        !mem::replace(&mut queue.flushing, true)
    }

    fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The next batch, or none and the end of the flush.
    fn take(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.lock();
        if queue.waiting.is_empty() {
            queue.flushing = false;
            return None;
        }
        let count = queue.waiting.len().min(BATCH_MAX);
        Some(queue.waiting.drain(..count).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn flush(control: Control) {
    let gatherer = &control.0.gatherer;
    loop {
        let started = Instant::now();
        let mut seen = 0;
        loop {
            let now = gatherer.len();
            if now == seen || now >= BATCH_MAX || started.elapsed() >= GATHER_MAX {
                break;
            }
            seen = now;
            tokio::task::yield_now().await;
        }
        let Some(batch) = gatherer.take() else { return };
        tokio::spawn(send(control.clone(), batch));
    }
}

async fn send(control: Control, batch: Vec<Waiting>) {
    let (mut calls, mut callers) = (Vec::new(), Vec::with_capacity(batch.len()));
    for waiting in batch {
        callers.push((waiting.calls.len(), waiting.answer));
        calls.extend(waiting.calls);
    }
    match control.0.control.calls(calls).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for (count, answer) in callers {
                // A caller that has gone does not mind.
                let _ = answer.send(Ok(answers.by_ref().take(count).collect()));
            }
        }
        Err(error) => {
            for (_, answer) in callers {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}
