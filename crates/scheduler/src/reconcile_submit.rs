//! A submit whose answer nobody saw: find out whether the provider has the job.
//!
//! It is looked up by our reference and never repeated on a guess. Only one thing proves that there is no job: a
//! proper, empty look-up that began after the submit had certainly ended and the provider's own time for making
//! jobs visible had passed. Where a provider cannot search, the attempt waits for the deadline, which fails the task
//! and puts it before the operator.

use std::{sync::Arc, time::Duration};

use control::Sent;
use domain::task::Event;
use provider_adapter::{LookUp, Observation};
use task_state::{MoveDetail, OpenAttempt};
use tokio::time::Instant;

use crate::{drive::Stage, owned::Owned, pace::Pace, submit::accepted, worker::Worker};

/// Between look-ups at first; each that finds nothing doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How often the store is asked whether a handle has come, where the provider cannot search.
pub(crate) const LATE_ANSWER: Duration = Duration::from_secs(10);
/// Between look-ups at most, while the doubt lasts.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Resolves the doubt about a submit that has certainly ended at `submit_ends_at`.
pub(crate) async fn reconcile(worker: &Arc<Worker>, owned: &Arc<Owned>, submit_ends_at: Instant) -> Stage {
    let Some(provider) = worker.provider(owned) else { return worker.without_adapter(owned).await };
    let capabilities = provider.capabilities();
    let proof_at = capabilities.absence_is_proof_after.map(|after| submit_ends_at + after);
    let mut search = Search::new(capabilities.look_up, proof_at);
    loop {
        tokio::select! {
            () = owned.lost.cancelled() => return Stage::Lost,
            () = worker.stopping.cancelled() => return Stage::HandBack,
            () = search.due() => {}
            () = tokio::time::sleep(LATE_ANSWER) => {}
            () = owned.wake.notified() => {}
        }
        if owned.task_ended() {
            return Stage::Outlive;
        }
        if !search.possible {
            // A lost owner's late answer may still bring the handle.
            match worker.task_state.open_attempt(owned.name()).await {
                Ok(Some(OpenAttempt { job: Some(job), .. })) => {
                    return accepted(worker, owned, job, Observation::Queued).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(attempt = %owned.name(), %error, "an attempt could not be read")
                }
            }
            continue;
        }
        let began_at = Instant::now();
        let found = {
            let _turn = worker.turn(&owned.lease.account).await;
            provider.look_up(owned.name()).await
        };
        match search.take_in(found, began_at, worker.spread()) {
            Found::Job { job, seen, surplus } => {
                tracing::info!(attempt = %owned.name(), "the job of an unanswered submit was found");
                for extra in surplus {
                    tracing::error!(attempt = %owned.name(), job = extra.as_str(), "a second job with our reference is canceled");
                    let _ = provider.cancel(&extra).await;
                }
                return accepted(worker, owned, job, seen).await;
            }
            Found::ProvedAbsent => {
                tracing::info!(attempt = %owned.name(), "an unanswered submit made no job");
                return worker
                    .end_attempt(owned, Event::ProvedAbsent, MoveDetail::default(), Sent::Yes)
                    .await;
            }
            Found::NotYet => {}
        }
    }
}

/// The schedule of a search by reference, and what its answers mean.
#[derive(Debug)]
pub(crate) struct Search {
    /// Whether the provider can search at all.
    pub(crate) possible: bool,
    /// From when on an empty answer is proof; none when it never is.
    proof_at: Option<Instant>,
    due: Instant,
    pause: Duration,
    pace: Pace,
}

/// What a search found out.
#[derive(Debug)]
pub(crate) enum Found {
    /// The job.
    Job {
        /// Its handle.
        job: domain::task::JobHandle,
        /// How far it is.
        seen: Observation,
        /// Others with the same reference.
        surplus: Vec<domain::task::JobHandle>,
    },
    /// There is none, for certain.
    ProvedAbsent,
    /// Search on.
    NotYet,
}

impl Search {
    pub(crate) fn new(possible: bool, proof_at: Option<Instant>) -> Self {
        Self { possible, proof_at, due: Instant::now(), pause: FIRST_PAUSE, pace: Pace::new(FIRST_PAUSE) }
    }

    /// Comes back when the next look-up is due; never, where the provider cannot search.
    pub(crate) async fn due(&self) {
        if self.possible {
            tokio::time::sleep_until(self.due).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// What the answer to a look-up begun at `began_at` means, and when the next is due.
    pub(crate) fn take_in(&mut self, found: LookUp, began_at: Instant, spread: f64) -> Found {
        let now = Instant::now();
        match found {
            LookUp::Found { job, seen, surplus } => return Found::Job { job, seen, surplus },
            LookUp::Absent if self.proof_at.is_some_and(|proof_at| began_at >= proof_at) => {
                return Found::ProvedAbsent;
            }
            LookUp::Absent => {
                self.due = now + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
            LookUp::Unsupported => self.possible = false,
            LookUp::Unclear(unclear) => self.due = now + self.pace.after_failure(spread, unclear.retry_after),
        }
        // Nobody waits longer than it takes to know.
        if let Some(proof_at) = self.proof_at
            && began_at < proof_at
        {
            self.due = self.due.min(proof_at);
        }
        Found::NotYet
    }
}

#[cfg(test)]
mod tests {
    use domain::FailureClass;
    use provider_adapter::Unclear;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_empty_look_up_is_proof_only_if_it_began_after_the_time_of_proof() {
        let proof_at = Instant::now() + Duration::from_secs(7);
        let mut search = Search::new(true, Some(proof_at));
        let before = proof_at - Duration::from_millis(1);
        assert!(matches!(search.take_in(LookUp::Absent, before, 0.5), Found::NotYet));
        let unclear =
            Unclear { class: FailureClass::ProviderInternal, retry_after: None, message: String::new() };
        assert!(matches!(search.take_in(LookUp::Unclear(unclear), proof_at, 0.5), Found::NotYet));
        assert!(matches!(search.take_in(LookUp::Absent, proof_at, 0.5), Found::ProvedAbsent));
    }

    #[tokio::test(start_paused = true)]
    async fn the_look_up_that_can_prove_absence_is_not_put_off() {
        let began = Instant::now();
        let proof_at = began + Duration::from_secs(7);
        let mut search = Search::new(true, Some(proof_at));
        let mut looks = 0;
        loop {
            search.due().await;
            looks += 1;
            let began_at = Instant::now();
            if let Found::ProvedAbsent = search.take_in(LookUp::Absent, began_at, 0.5) {
                break;
            }
        }
        assert_eq!(began.elapsed().as_secs(), 7);
        assert!(looks <= 7, "{looks}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_proof_by_absence_or_without_search_nothing_is_ever_concluded() {
        let mut search = Search::new(true, None);
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(matches!(search.take_in(LookUp::Absent, Instant::now(), 0.5), Found::NotYet));
        assert!(matches!(search.take_in(LookUp::Unsupported, Instant::now(), 0.5), Found::NotYet));
        assert!(!search.possible);
    }
}
