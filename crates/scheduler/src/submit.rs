//! One submit: the only place that asks a provider for a job.
//!
//! The claim is committed and leased before this begins, so the attempt is on record whatever happens here. The
//! provider is called once; its answer becomes exactly one move. An answer that comes after the task has ended, or
//! after another worker took it over, is still worth money: the handle is stored with the attempt, where whoever
//! owns it now finds it and cancels or adopts the job.

use std::{sync::Arc, time::Duration};

use control::Sent;
use domain::{
    FailureClass,
    task::{Event, JobHandle, Seen},
};
use provider_adapter::{CallbackForm, NotSent, Observation, SendGuard, SubmitJob, SubmitOutcome};
use task_state::{MoveDetail, TaskRecord};
use tokio::time::Instant;

use crate::{drive::Stage, moves::Moved, owned::Owned, worker::Worker};

/// An adapter that has not answered so long after its own limit is cut off, and its submit is in doubt.
pub(crate) const CUT_OFF_AFTER: Duration = Duration::from_secs(1);

/// Calls the provider for a freshly claimed task and writes down what it said.
pub(crate) async fn submit(worker: &Arc<Worker>, owned: &Arc<Owned>, record: Arc<TaskRecord>) -> Stage {
    let Some(provider) = worker.provider(owned) else {
        tracing::error!(account = %owned.lease.account, "no adapter serves this provider account");
        return never_sent(worker, owned, NotSent::Blocked, "no adapter serves this account").await;
    };
    let mut job = job_of(owned, &record);
    if provider.capabilities().callbacks == CallbackForm::PerRequest {
        job.callback_url = (worker.callback_url)(&owned.lease.account, owned.name());
    }
    let guard = {
        let (owned, lease, stopped) = (owned.clone(), worker.config.lease, worker.stopped.clone());
        SendGuard::new(move || !stopped.is_cancelled() && owned.may_send(Instant::now(), lease))
    };
    let began_at = Instant::now();
    let limit = provider.capabilities().limits.submit;
    // The adapter keeps its own limit; this one only makes sure that a fault in an adapter cannot hang a slot.
    let outcome = tokio::time::timeout(limit + CUT_OFF_AFTER, provider.submit(&job, guard))
        .await
        .unwrap_or_else(|_| SubmitOutcome::Unknown { message: "the adapter overran its limit".to_owned() });
    worker.note_submit(owned, &outcome).await;
    match outcome {
        SubmitOutcome::Accepted { job, seen } => accepted(worker, owned, job, seen).await,
        SubmitOutcome::RejectedRetryable { class, retry_after, message } => {
            refused(worker, owned, class, retry_after, message).await
        }
        SubmitOutcome::RejectedFinal { class, message } => refused(worker, owned, class, None, message).await,
        SubmitOutcome::Unknown { message } => {
            tracing::info!(attempt = %owned.name(), message, "it is not known whether the provider has the job");
            let detail = MoveDetail { provider_message: Some(message), ..MoveDetail::default() };
            match worker.advance(owned, Event::SubmitUnknown, detail).await {
                Moved::Yes(_) | Moved::NoChange(_) => Stage::Doubt { submit_ends_at: began_at + limit },
                Moved::Otherwise(stage) => stage,
            }
        }
        SubmitOutcome::NotSent { why, message } => never_sent(worker, owned, why, &message).await,
    }
}

fn job_of(owned: &Owned, record: &TaskRecord) -> SubmitJob {
    let inputs = &record.snapshot.inputs;
    SubmitJob {
        reference: owned.name(),
        model: owned.lease.model.clone(),
        prompt: inputs.prompt.clone(),
        negative_prompt: inputs.negative_prompt.clone(),
        duration_seconds: inputs.duration_seconds,
        resolution: inputs.resolution.clone(),
        aspect_ratio: inputs.aspect_ratio.clone(),
        seed: inputs.seed,
        callback_url: None,
        traceparent: record.traceparent.clone(),
    }
}

/// Takes a job that the provider has into the task, or keeps its handle when the task went on without it.
pub(crate) async fn accepted(
    worker: &Arc<Worker>,
    owned: &Arc<Owned>,
    job: JobHandle,
    seen: Observation,
) -> Stage {
    let since = Instant::now();
    let far = seen_in(&seen).filter(|far| *far < Seen::Finished).unwrap_or(Seen::Accepted);
    let event = Event::Observed { job: job.clone(), seen: far };
    match worker.advance(owned, event, MoveDetail::default()).await {
        Moved::Yes(record) if !record.snapshot.status.is_terminal() => {
            worker.started(&record);
            let first = (seen.is_through() || seen == Observation::Lost).then_some(seen);
            Stage::Follow { job, seen: far, first, since }
        }
        Moved::NoChange(_) => Stage::Follow { job, seen: far, first: None, since },
        // A reconciling task whose owner wanted out has just ended, but its job lives.
        Moved::Yes(_) => {
            worker.keep_handle(owned, &job).await;
            Stage::Outlive
        }
        Moved::Otherwise(stage) => {
            tracing::info!(attempt = %owned.name(), "the provider accepted a job whose task has moved on");
            worker.keep_handle(owned, &job).await;
            stage
        }
    }
}

async fn refused(
    worker: &Arc<Worker>,
    owned: &Arc<Owned>,
    class: FailureClass,
    retry_after: Option<Duration>,
    message: String,
) -> Stage {
    tracing::info!(attempt = %owned.name(), %class, message, "the provider refused the job");
    let detail = worker.retry_detail(owned, retry_after, message);
    worker.end_attempt(owned, Event::SubmitRefused { class }, detail, Sent::Yes).await
}

async fn never_sent(worker: &Arc<Worker>, owned: &Arc<Owned>, why: NotSent, message: &str) -> Stage {
    tracing::info!(attempt = %owned.name(), ?why, message, "the submit was not sent");
    // Not a try, so the pause does not grow with the tries: the account's own pause does that job.
    let pause = (why != NotSent::HeldBack).then(|| worker.config.backoff.pause(1, worker.spread(), None));
    let detail = MoveDetail { pause, provider_message: Some(message.to_owned()), ..MoveDetail::default() };
    worker.end_attempt(owned, Event::NeverSent, detail, Sent::No).await
}

/// How far an observation says that the job is; none when it says that there is or will be no output.
pub(crate) const fn seen_in(observation: &Observation) -> Option<Seen> {
    match observation {
        Observation::Queued | Observation::HeldByLimit => Some(Seen::Accepted),
        Observation::Running { .. } | Observation::Unrecognised { .. } => Some(Seen::Running),
        Observation::Succeeded { .. } => Some(Seen::Finished),
        Observation::Failed { .. } | Observation::Canceled | Observation::Expired | Observation::Lost => None,
    }
}
