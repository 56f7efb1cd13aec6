//! Handing a batch to its handler until every message has a verdict. The same for every backend.
//!
//! A failed batch is handed in again as a whole, with growing pauses: what fails is usually something that all its
//! messages need. If it still fails, each message gets one last try of its own, so that the one poisonous message
//! is told from its neighbours.

use std::{any::Any, error::Error, fmt::Write, panic::AssertUnwindSafe};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{BusOptions, Handler, HandlerError, Message, Rejected};

/// What became of the messages of a batch, by index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdicts {
    /// Done: to be acknowledged.
    pub(crate) handled: Vec<usize>,
    /// Never to be handled: to be buried.
    pub(crate) dead: Vec<Rejected>,
    /// No verdict because of the shutdown: to be given back.
    pub(crate) undone: Vec<usize>,
}

/// Called before each further try, so that the backend can prolong its hold on the batch.
pub(crate) type Hold<'a> = &'a (dyn Fn() -> BoxFuture<'a, ()> + Sync);

pub(crate) async fn deliver(
    handler: &dyn Handler,
    batch: &[Message],
    options: &BusOptions,
    hold: Hold<'_>,
    shutdown: &CancellationToken,
) -> Verdicts {
    let mut failure = match attempt(handler, batch, options).await {
        Ok(rejected) => return verdicts(batch.len(), rejected),
        Err(failure) => failure,
    };
    for retry in 1..=options.retries {
        tracing::warn!(messages = batch.len(), retry, error = %failure, "a handler failed and is tried again");
        let pause = tokio::time::sleep(options.backoff.pause(retry, 0.5, None));
        if shutdown.run_until_cancelled(pause).await.is_none() {
            return Verdicts { undone: (0..batch.len()).collect(), ..Verdicts::default() };
        }
        hold().await;
        failure = match attempt(handler, batch, options).await {
            Ok(rejected) => return verdicts(batch.len(), rejected),
            Err(failure) => failure,
        };
    }
    if batch.len() == 1 {
        return verdicts(1, vec![Rejected { index: 0, reason: failure }]);
    }
    one_by_one(handler, batch, options, hold, shutdown).await
}

async fn one_by_one(
    handler: &dyn Handler,
    batch: &[Message],
    options: &BusOptions,
    hold: Hold<'_>,
    shutdown: &CancellationToken,
) -> Verdicts {
    let mut found = Verdicts::default();
    for (index, message) in batch.iter().enumerate() {
        if shutdown.is_cancelled() {
            found.undone.push(index);
            continue;
        }
        hold().await;
        match attempt(handler, std::slice::from_ref(message), options).await {
            Ok(rejected) => match rejected.into_iter().next() {
                None => found.handled.push(index),
                Some(Rejected { reason, .. }) => found.dead.push(Rejected { index, reason }),
            },
            Err(reason) => found.dead.push(Rejected { index, reason }),
        }
    }
    found
}

fn verdicts(len: usize, mut dead: Vec<Rejected>) -> Verdicts {
    dead.retain(|rejected| rejected.index < len);
    dead.sort_by_key(|rejected| rejected.index);
    dead.dedup_by_key(|rejected| rejected.index);
    let is_dead = |index: &usize| dead.binary_search_by_key(index, |rejected| rejected.index).is_ok();
    let handled = (0..len).filter(|index| !is_dead(index)).collect();
    Verdicts { handled, dead, undone: Vec::new() }
}

/// One call of the handler: the rejected messages, or why it failed.
async fn attempt(
    handler: &dyn Handler,
    batch: &[Message],
    options: &BusOptions,
) -> Result<Vec<Rejected>, String> {
    let call = AssertUnwindSafe(async { handler.handle(batch).await }).catch_unwind();
    match timeout(options.handler_limit, call).await {
        Ok(Ok(Ok(()))) => Ok(Vec::new()),
        Ok(Ok(Err(HandlerError::Rejected(rejected)))) => Ok(rejected),
        Ok(Ok(Err(HandlerError::Failed(error)))) => Err(chain(&*error)),
        Ok(Err(panic)) => Err(format!("the handler panicked: {}", panic_message(&*panic))),
        Err(_) => Err(format!("the handler took longer than {:?}", options.handler_limit)),
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use async_trait::async_trait;
    use domain::retry::Backoff;
    use outbox::Topic;

    use super::*;
    use crate::Place;

    /// Does to each message what its payload says, and counts calls.
    #[derive(Default)]
    struct Script {
        calls: AtomicUsize,
    }

    #[async_trait]
    impl Handler for Script {
        async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError> {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            let says = |word: &str| batch.iter().any(|message| message.payload == word.as_bytes());
            assert!(!says("panic"), "as told");
            if says("hang") {
                std::future::pending::<()>().await;
            }
            if says("fail") || (says("fail twice") && call < 2) {
                return Err(HandlerError::failed("as told"));
            }
            let rejected: Vec<_> = batch
                .iter()
                .enumerate()
                .filter(|(_, message)| message.payload == b"reject")
                .map(|(index, _)| Rejected { index, reason: "unreadable".to_owned() })
                .collect();
            if rejected.is_empty() { Ok(()) } else { Err(HandlerError::Rejected(rejected)) }
        }
    }

    fn batch(payloads: &[&str]) -> Vec<Message> {
        let message = |(offset, payload): (usize, &&str)| Message {
            topic: Topic::GenerationRequested,
            place: Place { partition: 0, offset: i64::try_from(offset).unwrap() },
            key: Vec::new(),
            payload: payload.as_bytes().to_vec(),
        };
        payloads.iter().enumerate().map(message).collect()
    }

    fn options() -> BusOptions {
        let backoff = Backoff { first: Duration::from_millis(2), factor: 4, max: Duration::from_secs(1) };
        BusOptions { backoff, handler_limit: Duration::from_millis(100), ..BusOptions::default() }
    }

    async fn run(payloads: &[&str]) -> (Verdicts, usize) {
        let script = Script::default();
        let hold = || std::future::ready(()).boxed();
        let shutdown = CancellationToken::new();
        let verdicts = deliver(&script, &batch(payloads), &options(), &hold, &shutdown).await;
        (verdicts, script.calls.into_inner())
    }

    fn dead(verdicts: &Verdicts) -> Vec<usize> {
        verdicts.dead.iter().map(|rejected| rejected.index).collect()
    }

    #[tokio::test]
    async fn a_good_batch_is_handed_in_once() {
        let (verdicts, calls) = run(&["a", "b"]).await;
        assert_eq!((verdicts.handled, calls), (vec![0, 1], 1));
    }

    #[tokio::test]
    async fn rejected_messages_die_at_once_and_alone() {
        let (verdicts, calls) = run(&["a", "reject", "b", "reject"]).await;
        assert_eq!((&verdicts.handled, dead(&verdicts), calls), (&vec![0, 2], vec![1, 3], 1));
    }

    #[tokio::test]
    async fn what_passes_is_waited_for() {
        let (verdicts, calls) = run(&["a", "fail twice"]).await;
        assert_eq!((verdicts.handled, calls), (vec![0, 1], 3));
    }

    #[tokio::test]
    async fn after_three_retries_exactly_the_poisonous_messages_die() {
        for (poison, reason) in [
            ("fail", "as told"),
            ("panic", "the handler panicked: as told"),
            ("hang", "the handler took longer than 100ms"),
        ] {
            let (verdicts, calls) = run(&["a", poison, "reject", "b"]).await;
            assert_eq!(
                (&verdicts.handled, dead(&verdicts), calls),
                (&vec![0, 3], vec![1, 2], 4 + 4),
                "{poison}"
            );
            assert_eq!(verdicts.dead[0].reason, reason);

            let (verdicts, calls) = run(&[poison]).await;
            assert_eq!((dead(&verdicts), calls), (vec![0], 4), "{poison} alone needs no further try");
        }
    }

    #[tokio::test]
    async fn the_pauses_grow() {
        let started = tokio::time::Instant::now();
        run(&["fail"]).await;
        assert!(started.elapsed() >= Duration::from_millis(2 + 8 + 32), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_shutdown_does_not_wait_for_retries_and_buries_nothing() {
        let (script, shutdown) = (Script::default(), CancellationToken::new());
        shutdown.cancel();
        let hold = || std::future::ready(()).boxed();
        let verdicts = deliver(&script, &batch(&["a", "fail"]), &options(), &hold, &shutdown).await;
        assert_eq!(verdicts, Verdicts { undone: vec![0, 1], ..Verdicts::default() });
        assert_eq!(script.calls.into_inner(), 1);
    }

    #[tokio::test]
    async fn a_handlers_wrong_index_harms_nobody() {
        let wrong = vec![Rejected { index: 9, reason: String::new() }];
        assert_eq!(verdicts(2, wrong), Verdicts { handled: vec![0, 1], ..Verdicts::default() });
    }
}
