//! Following an accepted job: look at it when a look is due, and carry a cancel to the provider.
//!
//! The first look is due at the model's usual duration, or after the adapter's poll interval where looks show
//! progress; a job too short to be called running is first looked at when it should be over ([`usual`](crate::usual)), and
//! if that was early the looks that were spared until then follow faster. Where the provider's callbacks have proved to
//! come, they bring the looks, and looks of one's own become the fallback. Looks that tell nothing slow down only this
//! job. A job that the provider does not know is believed lost only when two looks, two seconds apart, say so: the first
//! may have met a lagging replica.
//!
//! RUNNING is written when a job was found running for a moment, so a job that is over by then takes one step to its
//! output instead of two. That output begins to be fetched while the step is written.

use std::{sync::Arc, time::Duration};

use control::Sent;
use domain::{
    FailureClass, ModelName, ProviderAccountId, metric,
    task::{Event, JobHandle, Seen},
};
use provider_adapter::{CancelOutcome, Observation, ProgressForm, Provider, Unclear};
use task_state::MoveDetail;
use tokio::time::Instant;

use crate::{
    drive::Stage,
    moves::Moved,
    output,
    owned::{Call, Owned},
    pace::Pace,
    submit::seen_in,
    usual::End,
    worker::Worker,
};

/// Between the two looks that make a job lost.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// After a cancel that the provider took, the next look comes soon: people wait for it.
const AFTER_CANCEL: Duration = Duration::from_millis(300);

/// Follows a job until the provider is through with it.
pub(crate) async fn follow(
    worker: &Arc<Worker>,
    owned: &Arc<Owned>,
    job: JobHandle,
    seen: Seen,
    first: Option<Observation>,
    since: Instant,
) -> Stage {
    let Some(provider) = worker.provider(owned) else { return worker.without_adapter(owned).await };
    let mut follower = Follower {
        pace: Pace::new(provider.capabilities().poll_interval),
        worker,
        owned,
        provider: provider.as_ref(),
        job,
        seen,
        progress: None,
        missing_since: None,
        call: Call::None,
        put_off: false,
        cancel_done: false,
        tell_running_at: since + worker.config.running_after,
        owes_running: false,
        accepted_at: since,
        looked_at: None,
        looks: 0,
    };
    if let Some(observation) = first
        && let Some(stage) = follower.take_in(observation).await
    {
        return stage;
    }
    let mut due = since + follower.first_pause();
    loop {
        tokio::select! {
            () = owned.lost.cancelled() => return Stage::Lost,
            () = worker.stopping.cancelled() => return Stage::HandBack,
            () = tokio::time::sleep_until(due) => {}
            () = owned.wake.notified() => {}
        }
        if owned.task_ended() {
            return Stage::Outlive;
        }
        let late = Instant::now().saturating_duration_since(due);
        metrics::histogram!(metric::POLL_LAG_MS).record(late.as_secs_f64() * 1_000.0);
        let step = follower.step();
        let pause = tokio::select! {
            () = owned.lost.cancelled() => return Stage::Lost,
            () = worker.stopping.cancelled() => return Stage::HandBack,
            step = step => match step {
                Step::Again(pause) => pause,
                Step::Next(stage) => return stage,
            },
        };
        due = Instant::now() + worker.effort.stretch(pause);
        if follower.owes_running {
            due = due.min(follower.tell_running_at);
        }
    }
}

/// What follows from one look.
enum Step {
    /// Look again after this pause.
    Again(Duration),
    /// The following is over.
    Next(Stage),
}

struct Follower<'a> {
    worker: &'a Arc<Worker>,
    owned: &'a Arc<Owned>,
    provider: &'a dyn Provider,
    job: JobHandle,
    /// How far PostgreSQL has it.
    seen: Seen,
    /// The progress last published.
    progress: Option<u8>,
    /// What the provider had called before the last look.
    call: Call,
    /// The look to come was put off, because the provider calls when there is news.
    put_off: bool,
    /// When the provider first said that it does not know the job, unless it knew it again since.
    missing_since: Option<Instant>,
    /// The provider has answered the cancel; nothing more has to be sent.
    cancel_done: bool,
    /// Before this a running job is not worth a write.
    tell_running_at: Instant,
    /// The job runs, and that is not written yet.
    owes_running: bool,
    /// When the provider accepted it, or was last heard of before it was taken over.
    accepted_at: Instant,
    /// When the provider was last asked, if it was.
    looked_at: Option<Instant>,
    /// How often it was.
    looks: u32,
    pace: Pace,
}

impl Follower<'_> {
    fn first_pause(&mut self) -> Duration {
        if self.owned.cancel_requested() || self.owned.is_called() {
            return Duration::ZERO;
        }
        let usual = self.worker.usual_duration(self.owned);
        let capabilities = self.provider.capabilities();
        let next = self.next_pause();
        match capabilities.progress {
            ProgressForm::None => usual.max(if self.put_off { next } else { Duration::ZERO }),
            _ if self.put_off => next,
            _ if let Some(usual) = self.short_duration() => usual,
            ProgressForm::Percent | ProgressForm::QueuePosition => usual.min(capabilities.poll_interval),
        }
    }

    /// How long jobs like this one take, if that is too short for one to be called running.
    fn short_duration(&self) -> Option<Duration> {
        let usual = self.worker.usual.of(&self.route())?;
        (usual < self.worker.config.running_after).then_some(usual)
    }

    fn route(&self) -> (ProviderAccountId, ModelName) {
        let lease = &self.owned.lease;
        (lease.account.clone(), lease.model.clone())
    }

    /// Learns from an end how long jobs like this one take.
    fn note_end(&self, observation: &Observation, asked_at: Instant) {
        if let Observation::Succeeded { .. } = observation {
            let since_last = self.looked_at.map(|last| asked_at - last);
            let after = asked_at - self.accepted_at;
            self.worker.usual.learn(&self.route(), End { after, since_last });
            self.worker.service.note(&self.owned.model, after);
        }
    }

    /// The pause after a look that told something. One that was called for by the end of the job, and came before the
    /// provider's own answers say so, is repeated soon.
    fn next_pause(&mut self) -> Duration {
        self.put_off = self.call != Call::Ended && self.worker.callbacks.is_earned(&self.owned.lease.account);
        let spread = self.worker.spread();
        if self.put_off {
            self.pace.fallback(spread)
        } else if self.short_duration().is_some() {
            self.pace.after_early(spread, self.accepted_at.elapsed(), self.looks)
        } else {
            self.pace.after_success(spread)
        }
    }

    /// Learns whether the account's callbacks can be relied upon.
    fn note_call(&self, observation: &Observation) {
        let (account, trust) = (&self.owned.lease.account, &self.worker.callbacks);
        match self.call {
            _ if !observation.is_through() => {}
            Call::News | Call::Ended => trust.brought_an_end(account),
            Call::None if self.put_off => trust.missed_an_end(account),
            Call::None => {}
        }
    }

    /// One call to the provider: the cancel if one is wanted and not answered, else a look.
    async fn step(&mut self) -> Step {
        if self.owned.cancel_requested() && !self.cancel_done {
            return self.cancel().await;
        }
        self.call = self.owned.take_call();
        let asked_at = Instant::now();
        let seen = {
            let _turn = self.worker.turn(&self.owned.lease.account).await;
            self.provider.observe(&self.job).await
        };
        match seen {
            Ok(observation) => {
                self.note_call(&observation);
                self.note_end(&observation, asked_at);
                self.looked_at = Some(asked_at);
                self.looks += 1;
                self.digest(observation).await
            }
            Err(unclear) => Step::Again(self.trouble(&unclear)),
        }
    }

    async fn digest(&mut self, observation: Observation) -> Step {
        if observation == Observation::Lost {
            match self.missing_since {
                Some(since) if since.elapsed() >= LOST_AFTER => {}
                Some(_) => return Step::Again(LOST_AFTER),
                None => {
                    self.missing_since = Some(Instant::now());
                    return Step::Again(LOST_AFTER);
                }
            }
        } else {
            self.missing_since = None;
        }
        match self.take_in(observation).await {
            Some(stage) => Step::Next(stage),
            None => Step::Again(self.next_pause()),
        }
    }

    fn trouble(&mut self, unclear: &Unclear) -> Duration {
        tracing::info!(attempt = %self.owned.name(), error = %unclear, "a call about a job told nothing");
        self.pace.after_failure(self.worker.spread(), unclear.retry_after)
    }

    /// Makes the move that an observation asks for. None when the job is to be followed further.
    async fn take_in(&mut self, observation: Observation) -> Option<Stage> {
        let output = match observation {
            Observation::Failed { class, message } => return Some(self.failed(class, message).await),
            Observation::Expired => {
                let message = "the provider gave the job up because it waited too long".to_owned();
                return Some(self.failed(FailureClass::Overloaded, message).await);
            }
            Observation::Canceled => {
                let end = self.worker.end_attempt(
                    self.owned,
                    Event::ProviderCanceled,
                    self.worker.retry_detail(self.owned, None, "canceled at the provider".to_owned()),
                    Sent::Yes,
                );
                return Some(end.await);
            }
            Observation::Lost => {
                let end = self.worker.end_attempt(
                    self.owned,
                    Event::ProviderLost,
                    MoveDetail::default(),
                    Sent::Yes,
                );
                return Some(end.await);
            }
            Observation::Unrecognised { ref raw } => {
                tracing::warn!(attempt = %self.owned.name(), raw, "the provider reports a state that nobody knows");
                None
            }
            Observation::Succeeded { ref output } => Some(output.clone()),
            Observation::Running { progress: Some(progress) } => {
                if self.progress != Some(progress) {
                    self.progress = Some(progress);
                    self.worker.progress.show(self.owned, progress);
                }
                None
            }
            Observation::Queued | Observation::HeldByLimit | Observation::Running { progress: None } => None,
        };
        let far = seen_in(&observation).filter(|far| *far > self.seen)?;
        self.owes_running = far == Seen::Running && Instant::now() < self.tell_running_at;
        if self.owes_running {
            return None;
        }
        let begun = (far == Seen::Finished)
            .then(|| output::begin(self.worker, self.owned, &self.job, output.clone()));
        let event = Event::Observed { job: self.job.clone(), seen: far };
        match self.worker.advance(self.owned, event, MoveDetail::default()).await {
            Moved::Yes(record) if far == Seen::Finished => {
                self.worker.through(self.owned, Sent::Yes);
                // A cancel recorded before this wins over the success, and the task has just ended.
                if record.snapshot.status.is_terminal() {
                    return Some(Stage::Over);
                }
                Some(Stage::Output { job: self.job.clone(), output, begun })
            }
            Moved::Yes(_) | Moved::NoChange(_) => {
                self.seen = far;
                None
            }
            Moved::Otherwise(stage) => Some(stage),
        }
    }

    async fn failed(&self, class: FailureClass, message: String) -> Stage {
        tracing::info!(attempt = %self.owned.name(), %class, message, "the job failed at the provider");
        let detail = self.worker.retry_detail(self.owned, None, message);
        self.worker.end_attempt(self.owned, Event::ProviderFailed { class }, detail, Sent::Yes).await
    }

    /// Carries the user's wish to the provider. The sweeper ends the task if no answer settles it in time.
    async fn cancel(&mut self) -> Step {
        let outcome = {
            let _turn = self.worker.turn(&self.owned.lease.account).await;
            self.provider.cancel(&self.job).await
        };
        tracing::info!(attempt = %self.owned.name(), ?outcome, "canceled at the provider");
        match outcome {
            CancelOutcome::Unclear(unclear) => return Step::Again(self.trouble(&unclear)),
            CancelOutcome::Canceled
            | CancelOutcome::Requested
            | CancelOutcome::TooLate(_)
            | CancelOutcome::Unsupported
            | CancelOutcome::NotFound => {}
        }
        self.cancel_done = true;
        self.worker.note_cancel_sent(self.owned).await;
        match outcome {
            CancelOutcome::Canceled => self.digest(Observation::Canceled).await,
            CancelOutcome::TooLate(observation) => self.digest(observation).await,
            CancelOutcome::NotFound => self.digest(Observation::Lost).await,
            CancelOutcome::Requested | CancelOutcome::Unsupported | CancelOutcome::Unclear(_) => {
                Step::Again(AFTER_CANCEL)
            }
        }
    }
}
