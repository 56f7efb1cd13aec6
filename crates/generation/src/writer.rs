//! The group-commit writer: submits that arrive while a transaction runs share the next one.
//!
//! A writer takes what waits (at most [`batch_max`](crate::GenerationConfig)), commits it, answers, and begins again
//! at once; there is no gathering pause, so a lone submit is a batch of one. A caller that is gone changes nothing.
//! Batches that are sure to be accepted take one round trip and may overlap ([`crate::foresight`]); all others are decided
//! under locks, one after the other. What happens when a transaction fails is in [`recover`].

mod recover;

use std::{
    collections::{HashMap, hash_map::Entry as MapEntry},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use control::StoredAnswer;
use domain::TaskId;
use futures::FutureExt as _;
use pg::Dedicated;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Shared, SubmitError, Submitted, answer,
    batch::{self, Element, Failed, Verdict, Written},
    foresight::Foresight,
};

/// Foreseen batches of one writer that are written at once, each on a connection that the writer keeps.
const UNDER_WAY_MAX: usize = 2;
/// A writer keeps one of so many connections of the pool, but one at least: the others are not its own.
const OF_CONNECTIONS: usize = 8;
/// Batches at most that wait for somebody's lock beside the writers.
const SIDE_LANES: usize = 4;
/// Commits at most whose answers are being put into Redis.
const REMEMBERING_MAX: usize = 32;

/// The writers of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writers {
    queues: Arc<[mpsc::Sender<Waiting>]>,
    shards: RandomState,
    answer_limit: Duration,
    closing: CancellationToken,
    running: TaskTracker,
}

/// A submit on its way through a writer, with those who wait for it.
pub(crate) struct Waiting {
    element: Arc<Element>,
    arrived: Instant,
    caller: oneshot::Sender<Result<Submitted, SubmitError>>,
    /// Callers with the same key and request, who get the same answer as a replay.
    twins: Vec<oneshot::Sender<Result<Submitted, SubmitError>>>,
}

impl Writers {
    pub(crate) fn start(shared: &Arc<Shared>) -> Self {
        let (closing, running) = (CancellationToken::new(), TaskTracker::new());
        let lanes = Arc::new(Semaphore::new(SIDE_LANES));
        let remembering = Arc::new(Semaphore::new(REMEMBERING_MAX));
        let connections = usize::try_from(shared.pool.options().get_max_connections()).unwrap_or(usize::MAX);
        let under_way = (connections / shared.config.writers / OF_CONNECTIONS).clamp(1, UNDER_WAY_MAX);
        let queues = (0..shared.config.writers)
            .map(|_| {
                let (sender, queue) = mpsc::channel(shared.config.queue_max);
                let writer = Writer {
                    shared: Arc::clone(shared),
                    session: Dedicated::keeping(under_way, shared.pool.clone()),
                    places: Arc::new(Semaphore::new(under_way)),
                    foresight: Foresight::default(),
                    sender: sender.downgrade(),
                    lanes: Arc::clone(&lanes),
                    remembering: Arc::clone(&remembering),
                    running: running.clone(),
                };
                running.spawn(Arc::new(writer).run(queue, closing.clone()));
                sender
            })
            .collect();
        let answer_limit = shared.config.answer_limit();
        Self { queues, shards: RandomState::new(), answer_limit, closing, running }
    }

    /// Hands an element over and waits for what becomes of it.
    pub(crate) async fn submit(&self, element: Element) -> Result<Submitted, SubmitError> {
        let shard = self.shards.hash_one(element.account) % self.queues.len() as u64;
        let queue = &self.queues[usize::try_from(shard).unwrap_or_default()];
        let (caller, outcome) = oneshot::channel();
        let waiting =
            Waiting { element: Arc::new(element), arrived: Instant::now(), caller, twins: Vec::new() };
        queue.try_send(waiting).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => SubmitError::Overloaded { retry_after: SubmitError::SOON },
            mpsc::error::TrySendError::Closed(_) => SubmitError::UNAVAILABLE,
        })?;
        match tokio::time::timeout(self.answer_limit, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Err(SubmitError::UNAVAILABLE),
        }
    }

    /// Takes nothing more and returns when everything taken was answered.
    pub(crate) async fn drain(&self) {
        self.closing.cancel();
        self.running.close();
        self.running.wait().await;
    }
}

struct Writer {
    shared: Arc<Shared>,
    session: Dedicated,
    foresight: Foresight,
    /// For the foreseen batches under way.
    places: Arc<Semaphore>,
    /// Its own queue's other end, to see whether somebody waits.
    sender: mpsc::WeakSender<Waiting>,
    lanes: Arc<Semaphore>,
    remembering: Arc<Semaphore>,
    running: TaskTracker,
}

impl Writer {
    async fn run(self: Arc<Self>, mut queue: mpsc::Receiver<Waiting>, closing: CancellationToken) {
        let batch_max = self.shared.config.batch_max;
        let mut arrivals = Vec::with_capacity(batch_max);
        loop {
            // While all places are taken, submits gather. The semaphore is never closed.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            // What was put off to this batch is in `arrivals` already; then nothing has to be waited for.
            if arrivals.is_empty() {
                tokio::select! {
                    biased;
                    taken = queue.recv_many(&mut arrivals, batch_max) => if taken == 0 { return },
                    () = closing.cancelled(), if !queue.is_closed() => queue.close(),
                }
            }
            self.gather(&mut arrivals, &mut queue).await;
            let (batch, put_off) = join(std::mem::replace(&mut arrivals, Vec::with_capacity(batch_max)));
            arrivals.extend(put_off);
            if !batch.is_empty() {
                self.write(batch, place).await;
            }
        }
    }

    /// Takes what has arrived, and lets those first who are just about to hand something over: right after a commit
    /// its callers ask again all at once, and the first of them would otherwise get a transaction of its own while all
    /// others wait. No pause: as soon as a turn brings nothing more, the batch begins.
    async fn gather(&self, arrivals: &mut Vec<Waiting>, queue: &mut mpsc::Receiver<Waiting>) {
        let batch_max = self.shared.config.batch_max;
        let mut before = 0;
        while before < arrivals.len() && arrivals.len() < batch_max {
            before = arrivals.len();
            tokio::task::yield_now().await;
            while arrivals.len() < batch_max
                && let Ok(waiting) = queue.try_recv()
            {
                arrivals.push(waiting);
            }
        }
    }

    /// Writes a batch and tells its callers. A batch that is foreseen goes on beside the next one, with the place that it has.
    async fn write(self: &Arc<Self>, batch: Vec<Waiting>, place: OwnedSemaphorePermit) {
        let lock_limit = self.shared.config.batch_lock();
        let elements: Vec<Arc<Element>> = batch.iter().map(|waiting| Arc::clone(&waiting.element)).collect();
        let Some(foreseen) = self.foresight.of(&elements, lock_limit) else {
            return self.write_locked(batch, elements).await;
        };
        let writer = Arc::clone(self);
        self.running.spawn(async move {
            match foreseen.write(&writer.session, &writer.foresight).await {
                Ok(Some(verdicts)) => writer.answer(batch, verdicts),
                Ok(None) => writer.write_locked(batch, elements).await,
                Err(failed) => writer.recover(batch, failed).await,
            }
            drop(place);
        });
    }

    async fn write_locked(self: &Arc<Self>, batch: Vec<Waiting>, elements: Vec<Arc<Element>>) {
        match self.locked(elements, self.shared.config.batch_lock()).await {
            Ok(written) => {
                self.foresight.remember(&written);
                self.answer(batch, written.verdicts);
            }
            Err(failed) => self.recover(batch, failed).await,
        }
    }

    /// One transaction over the batch.
    async fn attempt(&self, batch: &[Waiting], lock_limit: Duration) -> Result<Vec<Verdict>, Failed> {
        let elements = batch.iter().map(|waiting| Arc::clone(&waiting.element)).collect();
        self.locked(elements, lock_limit).await.map(|written| written.verdicts)
    }

    async fn locked(&self, elements: Vec<Arc<Element>>, lock_limit: Duration) -> Result<Written, Failed> {
        let sender = self.sender.clone();
        // A batch that does without locks begins no transaction.
        let locks_again = !self.foresight.is_awake();
        let follows = move || {
            locks_again && sender.upgrade().is_some_and(|queue| queue.capacity() < queue.max_capacity())
        };
        self.session
            .transact(lock_limit, follows, move |conn, now| {
                async move { batch::write(conn, &elements, now).await }.boxed()
            })
            .await
    }

    /// Tells everybody, and then those who profit from knowing.
    fn answer(&self, batch: Vec<Waiting>, verdicts: Vec<Verdict>) {
        let mut accepted = Vec::with_capacity(batch.len());
        let mut waited = Duration::ZERO;
        let mut answers = Vec::new();
        for (waiting, verdict) in batch.into_iter().zip(verdicts) {
            let element = Arc::clone(&waiting.element);
            if let Verdict::Accepted { queued, .. } = &verdict {
                accepted.push(queued.clone());
                waited += waiting.arrived.elapsed();
            }
            let outcome = outcome(element.task, verdict);
            if let (Ok(submitted), Some(key)) = (&outcome, &element.key) {
                let answer = StoredAnswer {
                    status: submitted.status,
                    body: submitted.body.clone(),
                    fingerprint: hex::encode(key.fingerprint),
                };
                answers.push((element.tenant, key.replay_key(element.user), answer));
            }
            waiting.tell(outcome);
        }
        if !accepted.is_empty() {
            let waited = waited / u32::try_from(accepted.len()).unwrap_or(u32::MAX);
            (self.shared.accepted)(&accepted, waited);
        }
        self.remember(answers);
    }

    /// Puts answers into Redis, beside the next batch. Skipped when Redis is slow: PostgreSQL has them all.
    fn remember(&self, answers: Vec<(domain::TenantId, control::ReplayKey, StoredAnswer)>) {
        if answers.is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.remembering).try_acquire_owned() else { return };
        let control = self.shared.control.clone();
        self.running.spawn(async move {
            if let Err(error) = control.remember_answers(&answers).await {
                tracing::debug!(%error, "answers were not remembered");
            }
            drop(permit);
        });
    }
}

/// What a verdict says to the caller of the element that would have made `task`.
fn outcome(task: TaskId, verdict: Verdict) -> Result<Submitted, SubmitError> {
    match verdict {
        Verdict::Accepted { body, quotas: limits, .. } => {
            Ok(Submitted { task, status: answer::ACCEPTED, body, replayed: false, limits })
        }
        Verdict::Replayed { subject, status, body } => {
            let task = subject.parse().map_err(|_| {
                tracing::error!(subject, "an idempotency key of this route names no task");
                SubmitError::Internal
            })?;
            Ok(Submitted { task, status, body, replayed: true, limits: Vec::new() })
        }
        Verdict::Refused(error) => Err(error),
    }
}

impl Waiting {
    fn tell(self, outcome: Result<Submitted, SubmitError>) {
        for twin in self.twins {
            // Twins get the first one's answer as the replay that it is. A caller that is gone needs none.
            let replay = |first| Submitted { replayed: true, limits: Vec::new(), ..first };
            let _ = twin.send(outcome.clone().map(replay));
        }
        let _ = self.caller.send(outcome);
    }
}

/// Joins those with the same key and request, and puts off those with the same key and another request: they are
/// decided when the first one is.
fn join(arrivals: Vec<Waiting>) -> (Vec<Waiting>, Vec<Waiting>) {
    let mut first = HashMap::with_capacity(arrivals.len());
    let (mut batch, mut put_off) = (Vec::with_capacity(arrivals.len()), Vec::new());
    for waiting in arrivals {
        let Some(key) = &waiting.element.key else {
            batch.push(waiting);
            continue;
        };
        match first.entry((waiting.element.user, key.hash)) {
            MapEntry::Vacant(free) => {
                free.insert((batch.len(), key.fingerprint));
                batch.push(waiting);
            }
            MapEntry::Occupied(taken) => {
                let (place, fingerprint) = *taken.get();
                if fingerprint == key.fingerprint {
                    let Waiting { caller, twins, .. } = waiting;
                    let leader: &mut Waiting = &mut batch[place];
                    leader.twins.push(caller);
                    leader.twins.extend(twins);
                } else {
                    put_off.push(waiting);
                }
            }
        }
    }
    (batch, put_off)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;
    use crate::tests_support::{World, submission};

    #[tokio::test]
    async fn a_caller_that_is_gone_changes_nothing() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(1_000).await);
        let begun = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let (generation, begun) = (process.generation.clone(), Arc::clone(&begun));
                let submission = submission(&ada, process.request("a cat", 1), None);
                tokio::spawn(async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    generation.submit(submission).await
                })
            })
            .collect();
        while begun.load(Ordering::SeqCst) < 50 {
            tokio::task::yield_now().await;
        }
        for caller in callers {
            caller.abort();
        }
        process.generation.drain().await;
        let idle: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
        )
        .fetch_one(&world.db.pool)
        .await
        .unwrap();
        assert_eq!(idle, 0);
        let tasks = world.count("generation_tasks").await;
        assert!(tasks > 0, "what was handed over is decided");
        assert_eq!(world.balance(&ada).await.held.get(), 2 * tasks);
        world.assert_sound().await;

        let next = world.process().await;
        let again = join_all((0..200).map(|_| next.submit(&ada, next.request("a cat", 1), None))).await;
        assert!(again.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn draining_answers_what_was_taken_and_takes_nothing_more() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(1_000).await);
        let submits = join_all((0..20).map(|_| process.submit(&ada, process.request("a cat", 1), None)));
        let drained = async {
            tokio::task::yield_now().await;
            process.generation.drain().await;
        };
        let (outcomes, ()) = tokio::join!(submits, drained);
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let late = process.submit(&ada, process.request("a cat", 1), None).await;
        assert_eq!(late, Err(SubmitError::UNAVAILABLE));
    }

    #[tokio::test]
    async fn the_same_key_with_another_request_waits_for_the_next_batch() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(1_000).await);
        // All are there before the writer first runs.
        let outcomes = join_all([
            process.submit(&ada, process.request("a cat", 1), Some("K")),
            process.submit(&ada, process.request("a dog", 1), Some("K")),
            process.submit(&ada, process.request("a cat", 1), Some("K")),
        ])
        .await;
        let [Ok(first), Err(SubmitError::IdempotencyMismatch), Ok(twin)] = outcomes.as_slice() else {
            panic!("{outcomes:?}")
        };
        assert_eq!((first.task, first.replayed, twin.replayed), (twin.task, false, true));
        assert_eq!(first.body, twin.body);
    }
}
