//! Bringing a finished video home: open it at the provider, check it on the way, publish it under the attempt's key,
//! and let the task succeed.
//!
//! It is paid for, and links expire, so it goes before new submits: when too many files wait, dispatch pauses. A file
//! that breaks off or is no video is fetched again by a fresh link a few times, and then the task fails and nothing
//! is charged. Nothing unverified ever lies under a final key.

use std::{sync::Arc, time::Duration};

use domain::task::{Event, JobHandle};
use media::{IngestError, Published, Staged};
use provider_adapter::{OutputError, OutputRef, Provider};
use task_state::MoveDetail;
use tokio_util::task::AbortOnDropHandle;

use crate::{drive::Stage, moves::Moved, owned::Owned, pace::Pace, worker::Worker};

/// The pace of repeated tries.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// A fetch that was begun before its stage. Dropped, it ends, and nothing of it is left.
pub(crate) type Begun = AbortOnDropHandle<Result<Staged, Failure>>;

/// Begins to fetch an output while the move that says that there is one is being written. Nothing is published by it.
pub(crate) fn begin(
    worker: &Arc<Worker>,
    owned: &Arc<Owned>,
    job: &JobHandle,
    output: Option<OutputRef>,
) -> Begun {
    let (worker, owned, job) = (worker.clone(), owned.clone(), job.clone());
    AbortOnDropHandle::new(tokio::spawn(async move {
        match worker.provider(&owned) {
            Some(provider) => stage_once(&worker, &owned, provider.as_ref(), &job, output.as_ref()).await,
            // The stage itself finds that out again, and waits for the account.
            None => Err(Failure::Ours),
        }
    }))
}

/// Fetches, verifies and publishes the output, and ends the task by it.
pub(crate) async fn fetch_output(
    worker: &Arc<Worker>,
    owned: &Arc<Owned>,
    job: &JobHandle,
    output: Option<OutputRef>,
    begun: Option<Begun>,
) -> Stage {
    let Some(provider) = worker.provider(owned) else { return worker.without_adapter(owned).await };
    let work = bring_home(worker, owned, provider.as_ref(), job, output, begun);
    let (event, detail) = tokio::select! {
        () = owned.lost.cancelled() => return Stage::Lost,
        () = worker.stopping.cancelled() => return Stage::HandBack,
        () = ended(owned) => return Stage::Outlive,
        result = work => match result {
            Ok(published) => {
                let event = Event::OutputPublished { asset: published.asset };
                (event, MoveDetail { published: Some(published), ..MoveDetail::default() })
            }
            Err(message) => {
                tracing::warn!(attempt = %owned.name(), message, "the output could not be brought home");
                (Event::OutputFailed, MoveDetail { provider_message: Some(message), ..MoveDetail::default() })
            }
        },
    };
    match worker.advance(owned, event, detail).await {
        Moved::Yes(record) => {
            worker.finished(&record);
            Stage::Over
        }
        Moved::NoChange(_) => Stage::Over,
        Moved::Otherwise(stage) => stage,
    }
}

/// Comes back when the task has ended by somebody else's hand (its deadline).
async fn ended(owned: &Owned) {
    while !owned.task_ended() {
        owned.wake.notified().await;
    }
}

async fn bring_home(
    worker: &Worker,
    owned: &Owned,
    provider: &dyn Provider,
    job: &JobHandle,
    mut output: Option<OutputRef>,
    mut begun: Option<Begun>,
) -> Result<Published, String> {
    let mut pace = Pace::new(FIRST_PAUSE);
    let mut tries_left = worker.config.output_tries_max;
    loop {
        let staged = match begun.take() {
            // A fetch that panicked is one that failed on our side.
            Some(begun) => begun.await.unwrap_or(Err(Failure::Ours)),
            None => stage_once(worker, owned, provider, job, output.as_ref()).await,
        };
        let failure = match publish(worker, owned, staged).await {
            Ok(published) => return Ok(published),
            Err(failure) => failure,
        };
        tracing::info!(attempt = %owned.name(), ?failure, "fetching the output failed");
        // Whatever failed, the next try asks the provider for a fresh link.
        output = None;
        match failure {
            Failure::Final(message) => return Err(message),
            Failure::Theirs { retry_after, message } => {
                tries_left = tries_left.saturating_sub(1);
                if tries_left == 0 {
                    return Err(message);
                }
                tokio::time::sleep(pace.after_failure(worker.spread(), retry_after)).await;
            }
            // Our own storage is no fault of the video: go on until the deadline decides.
            Failure::Ours => tokio::time::sleep(pace.after_failure(worker.spread(), None)).await,
        }
    }
}

/// Why one try failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another try cannot help.
    Final(String),
    /// The provider's side or the way to it; counted.
    Theirs {
        /// The pause that the provider asked for.
        retry_after: Option<Duration>,
        /// What happened.
        message: String,
    },
    /// Our own storage.
    Ours,
}

/// Fetches a file and verifies it.
async fn stage_once(
    worker: &Worker,
    owned: &Owned,
    provider: &dyn Provider,
    job: &JobHandle,
    output: Option<&OutputRef>,
) -> Result<Staged, Failure> {
    let _turn = worker.outputs.turn().await;
    let opened = provider.open_output(job, output).await.map_err(of_output)?;
    let (content_type, length) = (opened.content_type, opened.length);
    let ingested = worker.media.ingest(owned.name(), opened.stream, content_type.as_deref(), length);
    ingested.await.map_err(of_ingest)
}

async fn publish(
    worker: &Worker,
    owned: &Owned,
    staged: Result<Staged, Failure>,
) -> Result<Published, Failure> {
    let staged = staged?;
    // Each one waits for the disk on a thread of its own.
    let _turn = worker.outputs.turn().await;
    worker.media.publish(staged).await.map_err(|error| {
        tracing::error!(attempt = %owned.name(), %error, "publishing an output failed");
        Failure::Ours
    })
}

fn of_output(error: OutputError) -> Failure {
    match error {
        OutputError::Gone(message) => Failure::Theirs { retry_after: None, message },
        OutputError::Temporary { retry_after, message } => Failure::Theirs { retry_after, message },
        OutputError::Refused(message) => Failure::Final(message),
    }
}

fn of_ingest(error: IngestError<OutputError>) -> Failure {
    match error {
        IngestError::Source(error) => of_output(error),
        IngestError::Storage(error) => {
            tracing::error!(%error, "storing an output failed");
            Failure::Ours
        }
        // A page of HTML today may be the video a moment later: these are repeated like a broken connection.
        other => Failure::Theirs { retry_after: None, message: other.to_string() },
    }
}
