//! The way of one owned attempt, from its claim or take-over until nobody has to watch it any longer.
//!
//! Every owned attempt has one light task that runs [`drive`]. It sleeps until something is due (a poll, a look-up,
//! a repeated download), so the due times of this worker are its timers, and after a take-over they are made anew
//! from what PostgreSQL says. Each stage is one file and returns the stage after it; what stage that is follows from
//! the record that PostgreSQL gave back, never from what this worker believes.

use std::{panic::AssertUnwindSafe, sync::Arc};

use domain::task::{JobHandle, Seen, TaskState};
use futures::FutureExt;
use provider_adapter::{Observation, OutputRef};
use task_state::TaskRecord;
use tokio::time::Instant;

use crate::{follow, outlive, output, owned::Owned, reconcile_submit, submit, worker::Worker};

/// What is to be done next for an attempt.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Claimed a moment ago: call the provider.
    Submit(Arc<TaskRecord>),
    /// It is not known whether the provider has the job. A submit may be on its way until `submit_ends_at`.
    Doubt {
        /// When the submit has certainly ended.
        submit_ends_at: Instant,
    },
    /// The provider has the job.
    Follow {
        /// How it knows it.
        job: JobHandle,
        /// How far it was last seen, as PostgreSQL has it.
        seen: Seen,
        /// What an answer already showed beyond that.
        first: Option<Observation>,
        /// From when on looks are counted: when the provider was last heard of.
        since: Instant,
    },
    /// The provider is through; bring the file home.
    Output {
        /// The job.
        job: JobHandle,
        /// Where the file lies, if that was just said.
        output: Option<OutputRef>,
        /// The first fetch of it, where it is under way already.
        begun: Option<output::Begun>,
    },
    /// The task ended, the attempt perhaps not.
    Outlive,
    /// Nobody has to own the attempt any more.
    Over,
    /// Somebody else owns it.
    Lost,
    /// This process ends; another will take it over.
    HandBack,
}

/// The stage that follows from what stands in PostgreSQL.
pub(crate) fn stage_of(record: &TaskRecord, owned: &Owned) -> Stage {
    let ours = owned.attempt();
    match record.state.attempt() {
        Some(attempt) if attempt.no == ours.no && attempt.fencing_token != ours.fencing_token => Stage::Lost,
        Some(attempt) if attempt == ours => match &record.state {
            TaskState::ProviderSubmitted { job, .. } => {
                Stage::Follow { job: job.clone(), seen: Seen::Accepted, first: None, since: Instant::now() }
            }
            TaskState::Running { job, .. } => {
                Stage::Follow { job: job.clone(), seen: Seen::Running, first: None, since: Instant::now() }
            }
            TaskState::PostProcessing { job, .. } => {
                Stage::Output { job: job.clone(), output: None, begun: None }
            }
            // A claimed attempt whose submit nobody has seen the end of is in doubt like one that timed out.
            TaskState::Scheduling { .. } | TaskState::Reconciling { .. } => {
                Stage::Doubt { submit_ends_at: owned.submit_ends_at }
            }
            TaskState::Queued
            | TaskState::Succeeded { .. }
            | TaskState::Failed { .. }
            | TaskState::Canceled => Stage::Outlive,
        },
        // The task ended or went on without this attempt, which may still be open.
        Some(_) | None => Stage::Outlive,
    }
}

/// Drives one attempt to its end, or until it is lost or handed back.
pub(crate) async fn drive(worker: Arc<Worker>, owned: Arc<Owned>, start: Stage) {
    // A panic must not leave an attempt that is kept alive by the heartbeat and driven by nobody: its lease goes, and
    // whoever takes it over begins with what PostgreSQL says.
    let stages = AssertUnwindSafe(run_stages(&worker, &owned, start)).catch_unwind();
    let last = stages.await.unwrap_or_else(|_| {
        tracing::error!(attempt = %owned.name(), "the driver of an attempt panicked and hands it back");
        Stage::HandBack
    });
    worker.let_go(&owned, &last);
    drop(owned);
    worker.ring_all();
}

async fn run_stages(worker: &Arc<Worker>, owned: &Arc<Owned>, start: Stage) -> Stage {
    let mut stage = start;
    loop {
        stage = match stage {
            Stage::Submit(record) => submit::submit(worker, owned, record).await,
            Stage::Doubt { submit_ends_at } => {
                reconcile_submit::reconcile(worker, owned, submit_ends_at).await
            }
            Stage::Follow { job, seen, first, since } => {
                follow::follow(worker, owned, job, seen, first, since).await
            }
            Stage::Output { job, output, begun } => {
                output::fetch_output(worker, owned, &job, output, begun).await
            }
            Stage::Outlive => outlive::outlive(worker, owned).await,
            Stage::Over | Stage::Lost | Stage::HandBack => return stage,
        };
    }
}
