//! A consumer: the handler's side of a membership.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use outbox::{NewDeadLetter, Topic};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    KafkaBus, KafkaFault, RECOVERY_MAX, RECOVERY_MIN,
    member::Member,
    progress::{self, Offsets},
    seat::Link,
    topics,
};
use crate::{
    ConsumerStatus, Handler, Message, Rejected,
    deliver::{Verdicts, chain, deliver},
    letters,
};

/// The longest wait for the dead letters' transaction.
const BURY_LIMIT: Duration = Duration::from_secs(15);
/// How long a member may take to leave its group. The group does without its goodbye too.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// Consumes until the shutdown, or until the membership is broken.
pub(super) async fn consume(
    bus: &KafkaBus,
    topic: Topic,
    handler: &dyn Handler,
    status: &ConsumerStatus,
    shutdown: &CancellationToken,
) -> Result<(), KafkaFault> {
    let Some(made) = shutdown.run_until_cancelled(topics::ensure(bus, status)).await else { return Ok(()) };
    made?;
    let (hand_out, mut batches) = mpsc::channel(1);
    let (report, done) = std::sync::mpsc::channel();
    let (ended, end) = oneshot::channel();
    let link = Link { hand_out, done, shutdown: shutdown.clone() };
    let member = Member::join(bus, topic, status.clone(), link)?;
    std::thread::Builder::new()
        .name(format!("kafka {topic}"))
        .spawn(move || {
            let _ = ended.send(member.live());
        })
        .map_err(|_| KafkaFault::Thread)?;
    while let Some(batch) = batches.recv().await {
        let offsets = work(bus, handler, &batch, status, shutdown).await;
        if report.send(offsets).is_err() {
            break;
        }
    }
    match timeout(LEAVE_LIMIT, end).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(KafkaFault::Thread),
        Err(_) => Ok(()),
    }
}

/// Has a batch handled and what failed buried. Returns what is done with.
async fn work(
    bus: &KafkaBus,
    handler: &dyn Handler,
    batch: &[Message],
    status: &ConsumerStatus,
    shutdown: &CancellationToken,
) -> Offsets {
    // The membership is kept alive by its own thread.
    fn hold<'a>() -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }
    let Verdicts { dead, mut undone, .. } = deliver(handler, batch, &bus.options, &hold, shutdown).await;
    let indexes: Vec<usize> = dead.iter().map(|rejected| rejected.index).collect();
    let letters: Vec<NewDeadLetter> =
        dead.into_iter().map(|Rejected { index, reason }| letters::letter(&batch[index], reason)).collect();
    if !letters.is_empty() && bury(bus, &letters, status, shutdown).await.is_err() {
        undone.extend(indexes);
    }
    progress::done(batch, &undone)
}

/// The shutdown came first.
struct Interrupted;

/// Buries letters, however long it takes: a message that is neither handled nor buried must not be passed over.
async fn bury(
    bus: &KafkaBus,
    letters: &[NewDeadLetter],
    status: &ConsumerStatus,
    shutdown: &CancellationToken,
) -> Result<(), Interrupted> {
    letters::tell(letters);
    let mut recovery = RECOVERY_MIN;
    loop {
        let error = match timeout(BURY_LIMIT, letters::write(&bus.pool, letters.to_vec())).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => pg::PgError::Unavailable(sqlx::Error::PoolTimedOut),
        };
        status.failed(&error);
        tracing::warn!(error = %chain(&error), "dead letters cannot be written yet");
        shutdown.run_until_cancelled(sleep(recovery)).await.ok_or(Interrupted)?;
        recovery = RECOVERY_MAX.min(recovery * 2);
    }
}
