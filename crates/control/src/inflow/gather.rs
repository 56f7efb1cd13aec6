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

use tokio::sync::{Semaphore, oneshot};

use crate::{Control, ControlError, instance::Answer, script::Call};

/// How long callers are gathered at most.
const GATHER_MAX: Duration = Duration::from_micros(500);
/// Callers in one pipeline at most.
const BATCH_MAX: usize = 128;

type Answers = Vec<Answer>;

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

#[cfg(test)]
mod tests {
    use domain::{TenantId, limits::LimitScope};
    use futures::future::join_all;

    use crate::{
        Admission, Control, ControlError, InflowCharge, InflowCheck, InflowKey, InflowLimit,
        testing::{Corner, slow},
    };

    fn charge(tenant: TenantId) -> InflowCharge {
        let check = InflowCheck {
            scope: LimitScope::Tenant,
            key: InflowKey::Tenant,
            rule: "submit",
            limit: InflowLimit::Bucket(slow(1_000)),
            cost: 1,
            shadow: false,
        };
        InflowCharge { tenant, replay: None, checks: vec![check], ip: None }
    }

    fn is_granted(admission: &Result<Admission, ControlError>) -> bool {
        matches!(admission, Ok(Admission::Granted(_)))
    }

    #[tokio::test]
    async fn those_who_wait_are_bounded() {
        let corner = Corner::new();
        let control =
            Control::new(crate::ControlConfig { gather_waiting_max: 3, ..corner.config() }).unwrap();
        let tenant = TenantId::generate();
        let all = join_all((0..10).map(|_| control.admit(charge(tenant)))).await;
        assert_eq!(all.iter().filter(|admission| is_granted(admission)).count(), 3);
        assert_eq!(all.iter().filter(|admission| **admission == Err(ControlError::Overloaded)).count(), 7);
        assert!(is_granted(&control.admit(charge(tenant)).await), "there is room again");
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_takes_nobody_along() {
        let corner = Corner::new();
        let tenant = TenantId::generate();
        let callers: Vec<_> = (0..200)
            .map(|_| {
                let control = corner.control.clone();
                tokio::spawn(async move { control.admit(charge(tenant)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        for caller in callers.iter().step_by(2) {
            caller.abort();
        }
        for caller in callers.into_iter().skip(1).step_by(2) {
            assert!(is_granted(&caller.await.unwrap()));
        }
    }
}
