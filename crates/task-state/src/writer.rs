//! Gathering: moves that are asked for at the same time share one transaction.
//!
//! Each writer takes what waits in its queue, up to [`BATCH`], and starts the next batch as soon as it is idle; it
//! never waits for company. A task's moves always go to the same writer, in the order in which they were asked for.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
};

use domain::task::TaskState as State;
use pg::PgError;
use tokio::sync::{mpsc, oneshot};

use crate::{
    Shared,
    advance::{Move, MoveError, MoveOutcome},
    apply, project,
};

/// Moves per transaction at most.
const BATCH: usize = 128;
/// Moves that may wait per writer. Askers beyond wait for room: back-pressure, not memory.
const QUEUE: usize = 4_096;

enum Message {
    Move(Box<Move>, oneshot::Sender<Result<MoveOutcome, MoveError>>),
    Flush(oneshot::Sender<()>),
}

/// The queues of the writers.
pub(crate) struct Writers {
    senders: Vec<mpsc::Sender<Message>>,
}

/// The receiving end of one writer.
pub(crate) struct Queue(mpsc::Receiver<Message>);

impl Writers {
    pub(crate) fn new(count: usize) -> (Self, Vec<Queue>) {
        let (senders, queues) =
            (0..count.max(1)).map(|_| mpsc::channel(QUEUE)).map(|(s, r)| (s, Queue(r))).unzip();
        (Self { senders }, queues)
    }

    pub(crate) async fn send(&self, wish: Move) -> Result<MoveOutcome, MoveError> {
        let mut hasher = DefaultHasher::new();
        wish.task.hash(&mut hasher);
        let count = self.senders.len() as u64;
        let index = usize::try_from(hasher.finish() % count).unwrap_or(0);
        let (answer, outcome) = oneshot::channel();
        self.senders[index]
            .send(Message::Move(Box::new(wish), answer))
            .await
            .map_err(|_| MoveError::Stopped)?;
        outcome.await.map_err(|_| MoveError::Stopped)?
    }

    /// Waits until everything sent so far is written.
    pub(crate) async fn drain(&self) {
        for sender in &self.senders {
            let (done, finished) = oneshot::channel();
            if sender.send(Message::Flush(done)).await.is_ok() {
                // A writer that ended has nothing left to write.
                let _ = finished.await;
            }
        }
    }
}

type Asked = (Box<Move>, oneshot::Sender<Result<MoveOutcome, MoveError>>);

/// Runs one writer until its last sender is gone.
pub(crate) fn spawn(shared: Weak<Shared>, queue: Queue) {
    tokio::spawn(async move {
        let Queue(mut receiver) = queue;
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
            for message in inbox.drain(..) {
                match message {
                    Message::Move(wish, answer) => pending.push_back((wish, answer)),
                    Message::Flush(done) => flushes.push(done),
                }
            }
            // Senders hold the handle, so as long as there is a message there is one.
            let Some(shared) = shared.upgrade() else { return };
            write_batch(&shared, take_distinct(&mut pending)).await;
        }
    });
}

/// Takes the first move of each task; a second move of the same task waits behind it for the next batch.
fn take_distinct(pending: &mut VecDeque<Asked>) -> Vec<Asked> {
    let mut named = HashSet::new();
    let (now, later): (Vec<Asked>, Vec<Asked>) =
        pending.drain(..).partition(|(wish, _)| named.insert(wish.task));
    pending.extend(later);
    now
}

async fn write_batch(shared: &Arc<Shared>, batch: Vec<Asked>) {
    let (moves, answers): (Vec<Move>, Vec<_>) =
        batch.into_iter().map(|(wish, answer)| (*wish, answer)).unzip();
    let moves: Arc<[Move]> = moves.into();
    match write_together(shared, Arc::clone(&moves)).await {
        Ok(outcomes) => {
            project::after_commit(shared, &outcomes).await;
            for (outcome, answer) in outcomes.into_iter().zip(answers) {
                // An asker that went away has still moved the task.
                let _ = answer.send(Ok(outcome));
            }
        }
        Err(PgError::Unavailable(cause)) => {
            tracing::warn!(error = %cause, moves = moves.len(), "moves wait: PostgreSQL is away");
            for answer in answers {
                let _ = answer.send(Err(PgError::Unavailable(sqlx::Error::PoolTimedOut).into()));
            }
        }
        // A bad element refuses only itself, a lock that is not to be had splits the batch, and a lost answer to
        // COMMIT is cleared up by asking again: each move is fenced, so a second run of one that happened is told so.
        Err(error) => {
            tracing::warn!(error = %error, moves = moves.len(), "a batch of moves is written one by one");
            for (wish, answer) in moves.iter().zip(answers) {
                let outcome = write_together(shared, Arc::from([wish.clone()])).await;
                let outcome = outcome.map(|mut one| one.pop().unwrap_or(MoveOutcome::Missing));
                let outcome = outcome.map(|outcome| settled_before(wish, outcome));
                if let Ok(outcome) = &outcome {
                    project::after_commit(shared, std::slice::from_ref(outcome)).await;
                }
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
        (
            domain::task::Event::OutputPublished { asset },
            MoveOutcome::Refused(_, record) | MoveOutcome::Stale(record),
        ) if record.state == (State::Succeeded { output: *asset }) => MoveOutcome::Moved(record),
        (_, outcome) => outcome,
    }
}
