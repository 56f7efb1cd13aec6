//! An attempt that outlived its task: cancelled, or failed by its deadline, while the provider may still work on it.
//!
//! It keeps its slot, because the provider counts it, and an owner, because somebody has to cancel it upstream and to
//! see that it ends. Without a handle the job is searched for by reference first. What ends this is the provider
//! being through, proof that there is no job, or a limit of its own that closes the attempt and shows it to the
//! operator.

use std::{sync::Arc, time::Duration};

use domain::{complaints::Complaints, task::JobHandle};
use provider_adapter::{CancelOutcome, Observation, Provider};
use task_state::AttemptOutcome;
use tokio::time::Instant;

use crate::{
    drive::Stage,
    owned::Owned,
    pace::Pace,
    reconcile_submit::{Found, LATE_ANSWER, Search},
    worker::Worker,
};

/// Between the two looks that make a job lost.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// Nobody waits for these jobs, so they are looked at no more often than this.
const POLL_MIN: Duration = Duration::from_secs(1);

/// Sees an attempt to its end whose task does not need it any more.
pub(crate) async fn outlive(worker: &Arc<Worker>, owned: &Arc<Owned>) -> Stage {
    let attempt = loop {
        match worker.task_state.open_attempt(owned.name()).await {
            Ok(Some(attempt)) => break attempt,
            Ok(None) => {
                worker.through(owned, control::Sent::Yes);
                return Stage::Over;
            }
            Err(error) => {
                static AWAY: Complaints = Complaints::new();
                if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
                    tracing::warn!(attempt = %owned.name(), silent, %error, "an attempt could not be read");
                }
            }
        }
        tokio::select! {
            () = owned.lost.cancelled() => return Stage::Lost,
            () = worker.stopping.cancelled() => return Stage::HandBack,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    if attempt.key.fencing_token != owned.lease.fencing_token {
        return Stage::Lost;
    }
    let Some(provider) = worker.provider(owned) else { return worker.without_adapter(owned).await };
    let ended_at = attempt.task_ended_at.unwrap_or(attempt.read_at);
    let spent = (attempt.read_at - ended_at).to_std().unwrap_or_default();
    let give_up_at = Instant::now() + worker.config.outlive_max.saturating_sub(spent);
    let cancel_sent = attempt.cancel_sent_at.is_some();
    let end = see_to_its_end(worker, owned, provider.as_ref(), attempt.job, cancel_sent);
    let outcome = tokio::select! {
        () = owned.lost.cancelled() => return Stage::Lost,
        () = worker.stopping.cancelled() => return Stage::HandBack,
        outcome = end => outcome,
        () = tokio::time::sleep_until(give_up_at) => AttemptOutcome::GaveUp,
    };
    worker.close(owned, outcome).await
}

/// Comes back with the way in which the provider got through with the attempt.
async fn see_to_its_end(
    worker: &Worker,
    owned: &Owned,
    provider: &dyn Provider,
    job: Option<JobHandle>,
    cancel_sent: bool,
) -> AttemptOutcome {
    let job = match job {
        Some(job) => job,
        None => match search(worker, owned, provider).await {
            Some(job) => job,
            None => return AttemptOutcome::Absent,
        },
    };
    let every = provider.capabilities().poll_interval.max(POLL_MIN);
    let (mut pace, mut cancel_sent) = (Pace::new(every), cancel_sent);
    let mut missing_since: Option<Instant> = None;
    loop {
        let turn = worker.turn(&owned.lease.account).await;
        let observation = if cancel_sent {
            provider.observe(&job).await
        } else {
            match provider.cancel(&job).await {
                CancelOutcome::Unclear(unclear) => Err(unclear),
                answer => {
                    tracing::info!(attempt = %owned.name(), ?answer, "canceled at the provider after the end of its task");
                    cancel_sent = true;
                    worker.note_cancel_sent(owned).await;
                    match answer {
                        CancelOutcome::Canceled => Ok(Observation::Canceled),
                        CancelOutcome::TooLate(observation) => Ok(observation),
                        _ => provider.observe(&job).await,
                    }
                }
            }
        };
        drop(turn);
        let pause = match observation {
            Ok(Observation::Succeeded { .. }) => return AttemptOutcome::Finished,
            Ok(Observation::Failed { .. } | Observation::Expired) => return AttemptOutcome::Failed,
            Ok(Observation::Canceled) => return AttemptOutcome::Canceled,
            Ok(Observation::Lost) => match missing_since {
                Some(since) if since.elapsed() >= LOST_AFTER => return AttemptOutcome::Lost,
                Some(_) => LOST_AFTER,
                None => {
                    missing_since = Some(Instant::now());
                    LOST_AFTER
                }
            },
            Ok(_) => {
                missing_since = None;
                pace.after_success(worker.spread())
            }
            Err(unclear) => pace.after_failure(worker.spread(), unclear.retry_after),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = owned.wake.notified() => {}
        }
    }
}

/// Looks for the job by reference; none when there certainly is none. Where the provider cannot search, this never
/// comes back, and the limit decides.
async fn search(worker: &Worker, owned: &Owned, provider: &dyn Provider) -> Option<JobHandle> {
    let capabilities = provider.capabilities();
    let proof_at = capabilities.absence_is_proof_after.map(|after| owned.submit_ends_at + after);
    let mut search = Search::new(capabilities.look_up, proof_at);
    loop {
        tokio::select! {
            () = search.due() => {}
            // Where the provider cannot search, a lost owner's late answer may still bring the handle.
            () = tokio::time::sleep(LATE_ANSWER) => {}
        }
        if let Ok(Some(attempt)) = worker.task_state.open_attempt(owned.name()).await
            && attempt.job.is_some()
        {
            return attempt.job;
        }
        if !search.possible {
            continue;
        }
        let began_at = Instant::now();
        let found = {
            let _turn = worker.turn(&owned.lease.account).await;
            provider.look_up(owned.name()).await
        };
        match search.take_in(found, began_at, worker.spread()) {
            Found::Job { job, surplus, .. } => {
                for extra in surplus {
                    let _ = provider.cancel(&extra).await;
                }
                worker.keep_handle(owned, &job).await;
                return Some(job);
            }
            Found::ProvedAbsent => return None,
            Found::NotYet => {}
        }
    }
}
