//! Gathering: moves that are asked for at the same time share one commit.
//!
//! Each writer takes what waits in its queue, up to [`BATCH`], and starts the next batch after a short
//! rest; it waits for company longer only while it was told to. Moves that may end their task have a writer of their own: they settle money, so they wait for
//! accounts that submits lock, and nothing that only follows a job shall wait with them. Of one task's moves the later
//! ones wait behind the earlier ones of the same writer; between writers the fences decide, as between processes.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::{
    complaints::Complaints,
    task::{Event, TaskState as State},
};
use pg::PgError;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    Shared,
    advance::{Move, MoveError, MoveOutcome},
    apply,
    known::{self, Judged},
    project,
    record::TaskRecord,
};

/// Moves per transaction at most.
const BATCH: usize = 128;
/// Moves that may wait per writer. Askers beyond wait for room: back-pressure, not memory.
const QUEUE: usize = 4_096;

/// How long a writer rests after each batch, as many times as the batch took, and at most: the next batch is all the larger.
#[derive(Clone, Copy)]
struct Rest {
    times: u32,
    max: Duration,
}

/// A commit costs almost the same for one move as for ten, and nobody waits long for these. A full batch needs no rest.
const AFTER_STEPS: Rest = Rest { times: 1, max: Duration::from_millis(4) };
/// Settling takes the locks of accounts, and so does accepting: between two batches of settlements there is room for submits
/// to a busy account. Much longer rests made both wait without saving anything.
const AFTER_ENDS: Rest = Rest { times: 1, max: Duration::from_millis(15) };

/// A move that waits to be written.
struct Asked {
    wish: Move,
    /// The task as the asker knows it.
    known: Option<Arc<TaskRecord>>,
    answer: oneshot::Sender<Result<MoveOutcome, MoveError>>,
}

enum Message {
    Move(Box<Asked>),
    Flush(oneshot::Sender<()>),
}

/// The queues of the writers.
pub(crate) struct Writers {
    /// Of moves that go on with a task; each task has one of them.
    steps: Vec<mpsc::Sender<Message>>,
    /// Of moves that may end a task.
    ends: mpsc::Sender<Message>,
    /// How long a batch waits for company, in microseconds.
    gather_us: AtomicU64,
}

/// The receiving end of one writer.
pub(crate) struct Queue {
    receiver: mpsc::Receiver<Message>,
    rest: Rest,
}

impl Writers {
    /// `count` writers of steps, and one of ends.
    pub(crate) fn new(count: usize) -> (Self, Vec<Queue>) {
        let queue = |rest| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            (sender, Queue { receiver, rest })
        };
        let (steps, mut queues): (Vec<_>, Vec<_>) = (0..count.max(1)).map(|_| queue(AFTER_STEPS)).unzip();
        let (ends, last) = queue(AFTER_ENDS);
        queues.push(last);
        (Self { steps, ends, gather_us: AtomicU64::new(0) }, queues)
    }

    /// Lets batches wait this long for company.
    pub(crate) fn gather(&self, pause: Duration) {
        self.gather_us.store(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) async fn send(
        &self,
        wish: Move,
        known: Option<Arc<TaskRecord>>,
    ) -> Result<MoveOutcome, MoveError> {
        let sender = if may_end(&wish.event) { &self.ends } else { self.of_task(&wish) };
        let (answer, outcome) = oneshot::channel();
        sender
            .send(Message::Move(Box::new(Asked { wish, known, answer })))
            .await
            .map_err(|_| MoveError::Stopped)?;
        outcome.await.map_err(|_| MoveError::Stopped)?
    }

    fn of_task(&self, wish: &Move) -> &mpsc::Sender<Message> {
        let mut hasher = DefaultHasher::new();
        wish.task.hash(&mut hasher);
        let count = self.steps.len() as u64;
        &self.steps[usize::try_from(hasher.finish() % count).unwrap_or(0)]
    }

    /// Waits until everything sent so far is written.
    pub(crate) async fn drain(&self) {
        for sender in self.steps.iter().chain([&self.ends]) {
            let (done, finished) = oneshot::channel();
            if sender.send(Message::Flush(done)).await.is_ok() {
                // A writer that ended has nothing left to write.
                let _ = finished.await;
            }
        }
    }
}

/// Whether the event usually ends a task. It only chooses a queue: what happens is decided under the row's lock.
const fn may_end(event: &Event) -> bool {
    match event {
        Event::Observed { .. }
        | Event::SubmitUnknown
        | Event::NeverSent
        | Event::ProvedAbsent
        | Event::Claimed { .. }
        | Event::TakenOver { .. } => false,
        Event::SubmitRefused { .. }
        | Event::ProviderFailed { .. }
        | Event::ProviderCanceled
        | Event::ProviderLost
        | Event::CancelRequested
        | Event::CancelExpired
        | Event::DeadlinePassed
        | Event::OutputPublished { .. }
        | Event::OutputFailed => true,
    }
}

/// Runs one writer until its last sender is gone.
pub(crate) fn spawn(shared: Weak<Shared>, queue: Queue) {
    tokio::spawn(async move {
        let Queue { mut receiver, rest } = queue;
        let mut rested_at = Instant::now();
        let mut inbox = Vec::with_capacity(BATCH);
        let mut pending: VecDeque<Asked> = VecDeque::new();
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        loop {
            if pending.is_empty() {
                for done in flushes.drain(..) {
                    let _ = done.send(());
                }
                if receiver.recv_many(&mut inbox, BATCH).await == 0 {
                    return;
                }
            }
            if let Some(shared) = shared.upgrade() {
                let gather = Duration::from_micros(shared.writers.gather_us.load(Ordering::Relaxed));
                let begin_at = rested_at.max(Instant::now() + gather);
                if begin_at > Instant::now() && inbox.len() + pending.len() < BATCH {
                    tokio::time::sleep_until(begin_at).await;
                    while inbox.len() + pending.len() < BATCH
                        && let Ok(message) = receiver.try_recv()
                    {
                        inbox.push(message);
                    }
                }
            }
            for message in inbox.drain(..) {
                match message {
                    Message::Move(asked) => pending.push_back(*asked),
                    Message::Flush(done) => flushes.push(done),
                }
            }
            // Senders hold the handle, so as long as there is a message there is one.
            let Some(shared) = shared.upgrade() else { return };
            let begun_at = Instant::now();
            write_batch(&shared, take_distinct(&mut pending)).await;
            let ended_at = Instant::now();
            rested_at = ended_at + ((ended_at - begun_at) * rest.times).min(rest.max);
        }
    });
}

/// Takes the first move of each task; a second move of the same task waits behind it for the next batch.
fn take_distinct(pending: &mut VecDeque<Asked>) -> Vec<Asked> {
    let mut named = HashSet::new();
    let (now, later): (Vec<Asked>, Vec<Asked>) =
        pending.drain(..).partition(|asked| named.insert(asked.wish.task));
    pending.extend(later);
    now
}

async fn write_batch(shared: &Arc<Shared>, batch: Vec<Asked>) {
    let (mut steps, mut ends, mut long) = (Vec::new(), Vec::new(), Vec::new());
    for asked in batch {
        let judged =
            asked.known.as_deref().and_then(|known| known::judge(&asked.wish, known, &shared.config));
        match judged {
            Some(judged) if judged.ends() => ends.push((judged, asked)),
            Some(judged) => steps.push((judged, asked)),
            None => long.push(asked),
        }
    }
    for known in [steps, ends] {
        let (judged, asked): (Vec<Judged>, Vec<Asked>) = known.into_iter().unzip();
        if !judged.is_empty() {
            let written = known::write(&shared.pool, &judged).await;
            long.extend(settle_known(shared, asked, written).await);
        }
    }
    if !long.is_empty() {
        write_long(shared, long).await;
    }
}

/// Answers the moves that went the short way. Returns those that have to go the long one.
async fn settle_known(
    shared: &Arc<Shared>,
    asked: Vec<Asked>,
    written: Result<Vec<Option<MoveOutcome>>, PgError>,
) -> Vec<Asked> {
    let outcomes = match written {
        Ok(outcomes) => outcomes,
        Err(PgError::Unavailable(cause)) => {
            unavailable(asked, &cause);
            return Vec::new();
        }
        Err(error) => {
            static TROUBLE: Complaints = Complaints::new();
            if let Some(silent) = TROUBLE.complain(std::time::Instant::now()) {
                tracing::warn!(error = %error, moves = asked.len(), silent, "moves go the long way");
            }
            return asked;
        }
    };
    let moved: Vec<MoveOutcome> = outcomes.iter().flatten().cloned().collect();
    project::after_commit(shared, &moved).await;
    let mut long = Vec::new();
    for (outcome, asked) in outcomes.into_iter().zip(asked) {
        match outcome {
            // An asker that went away has still moved the task.
            Some(outcome) => drop(asked.answer.send(Ok(outcome))),
            None => long.push(asked),
        }
    }
    long
}

fn unavailable(asked: Vec<Asked>, cause: &sqlx::Error) {
    static AWAY: Complaints = Complaints::new();
    if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
        tracing::warn!(error = %cause, moves = asked.len(), silent, "moves wait: PostgreSQL is away");
    }
    for asked in asked {
        let _ = asked.answer.send(Err(PgError::Unavailable(sqlx::Error::PoolTimedOut).into()));
    }
}

/// Writes moves under the locks of their rows.
async fn write_long(shared: &Arc<Shared>, batch: Vec<Asked>) {
    let moves: Arc<[Move]> = batch.iter().map(|asked| asked.wish.clone()).collect();
    match write_together(shared, Arc::clone(&moves)).await {
        Ok(outcomes) => {
            project::after_commit(shared, &outcomes).await;
            for (outcome, Asked { wish, answer, .. }) in outcomes.into_iter().zip(batch) {
                let _ = answer.send(Ok(settled_before(&wish, outcome)));
            }
        }
        Err(PgError::Unavailable(cause)) => unavailable(batch, &cause),
        // A bad element refuses only itself, a lock that is not to be had splits the batch, and a lost answer to
        // COMMIT is cleared up by asking again: each move is fenced, so a second run of one that happened is told so.
        Err(error) => {
            static TROUBLE: Complaints = Complaints::new();
            if let Some(silent) = TROUBLE.complain(std::time::Instant::now()) {
                tracing::warn!(error = %error, moves = moves.len(), silent, "a batch of moves is written one by one");
            }
            for Asked { wish, answer, .. } in batch {
                let outcome = write_together(shared, Arc::from([wish.clone()])).await;
                let outcome = outcome.map(|mut one| one.pop().unwrap_or(MoveOutcome::Missing));
                if let Ok(outcome) = &outcome {
                    project::after_commit(shared, std::slice::from_ref(outcome)).await;
                }
                let outcome = outcome.map(|outcome| settled_before(&wish, outcome));
                let _ = answer.send(outcome.map_err(MoveError::from));
            }
        }
    }
}

async fn write_together(shared: &Shared, moves: Arc<[Move]>) -> Result<Vec<MoveOutcome>, PgError> {
    let config = shared.config.clone();
    pg::transact(&shared.pool, move |conn| Box::pin(async move { apply::apply(conn, &moves, &config).await }))
        .await
}

/// A publication that finds its own asset as the task's output has happened: its first answer was lost.
fn settled_before(wish: &Move, outcome: MoveOutcome) -> MoveOutcome {
    match (&wish.event, outcome) {
        (Event::OutputPublished { asset }, MoveOutcome::Refused(_, record) | MoveOutcome::Stale(record))
            if record.state == (State::Succeeded { output: *asset }) =>
        {
            MoveOutcome::Moved(record)
        }
        (_, outcome) => outcome,
    }
}
