//! How attempts end, and what is written about them on the way.

use std::{sync::Arc, time::Duration};

use control::{DispatchPause, Sent};
use domain::{
    ProviderAccountId,
    complaints::Complaints,
    metric,
    task::{Event, JobHandle},
};
use provider_adapter::SubmitOutcome;
use task_state::{AttemptOutcome, MoveDetail, TaskRecord};

use crate::{
    drive::Stage, loops::PassError, moves::Moved, owned::Owned, provider_health::Advice, worker::Worker,
};

impl Worker {
    /// Ends the attempt by a move after which no job of it lives, and frees its slots.
    pub(crate) async fn end_attempt(
        &self,
        owned: &Arc<Owned>,
        event: Event,
        detail: MoveDetail,
        sent: Sent,
    ) -> Stage {
        let outcome = outcome_of(&event);
        match self.advance(owned, event, detail).await {
            Moved::Yes(record) | Moved::NoChange(record) => {
                self.through(owned, sent);
                if record.snapshot.status.is_terminal() {
                    self.finished(&record);
                } else {
                    // Back in the queue, and not before its pause is over.
                    self.enqueue(&[record]).await;
                }
                Stage::Over
            }
            // The task ended meanwhile without this attempt, of which it is known that no job lives.
            Moved::Otherwise(Stage::Outlive) => self.close(owned, outcome).await,
            Moved::Otherwise(stage) => stage,
        }
    }

    /// Closes an attempt that outlived its task.
    pub(crate) async fn close(&self, owned: &Arc<Owned>, outcome: AttemptOutcome) -> Stage {
        tracing::info!(attempt = %owned.name(), ?outcome, "an attempt that outlived its task is closed");
        loop {
            let closed = self.task_state.close_attempt(owned.key(), outcome).await;
            match closed {
                // When it is closed already or fenced, there is nothing to do here either.
                Ok(_) => {
                    self.through(owned, Sent::Yes);
                    return Stage::Over;
                }
                Err(error) => {
                    static AWAY: Complaints = Complaints::new();
                    if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
                        tracing::warn!(attempt = %owned.name(), silent, %error, "an attempt could not be closed");
                    }
                }
            }
            tokio::select! {
                () = owned.lost.cancelled() => return Stage::Lost,
                () = self.stopped.cancelled() => return Stage::HandBack,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Stores a handle with its attempt, whatever became of the task.
    pub(crate) async fn keep_handle(&self, owned: &Owned, job: &JobHandle) {
        let mut pause = Duration::from_millis(100);
        loop {
            match self.store_handle(owned, job).await {
                Ok(true) => return,
                Ok(false) => return self.cancel_stray(owned, job).await,
                Err(error) => {
                    static AWAY: Complaints = Complaints::new();
                    if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
                        tracing::warn!(attempt = %owned.name(), silent, %error, "a job's handle could not be stored and will be again");
                    }
                }
            }
            tokio::select! {
                () = self.stopped.cancelled() => {
                    tracing::error!(attempt = %owned.name(), job = job.as_str(), "a job's handle was not stored");
                    return;
                }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
            }
        }
    }

    /// Whether somebody watches the job from now on.
    async fn store_handle(&self, owned: &Owned, job: &JobHandle) -> Result<bool, PassError> {
        let news = self.task_state.note_late_handle(owned.name(), job).await?;
        Ok(!news || self.task_state.open_attempt(owned.name()).await?.is_some())
    }

    /// A job of an attempt that is closed: nobody will watch it, so it is canceled here and now.
    async fn cancel_stray(&self, owned: &Owned, job: &JobHandle) {
        let Some(provider) = self.provider(owned) else { return };
        let answer = provider.cancel(job).await;
        tracing::error!(
            attempt = %owned.name(), job = job.as_str(), ?answer,
            "a job turned up whose attempt was closed; it was canceled"
        );
    }

    /// Records that the provider has answered a cancel. Losing this only means another cancel after a take-over.
    pub(crate) async fn note_cancel_sent(&self, owned: &Owned) {
        if let Err(error) = self.task_state.note_cancel_sent(owned.key()).await {
            tracing::debug!(attempt = %owned.name(), %error, "a cancel was not recorded");
        }
    }

    /// What goes with a move that may put the task back into the queue.
    pub(crate) fn retry_detail(
        &self,
        owned: &Owned,
        retry_after: Option<Duration>,
        message: String,
    ) -> MoveDetail {
        let pause = self.config.backoff.pause(owned.tries + 1, self.spread(), retry_after);
        MoveDetail { pause: Some(pause), provider_message: Some(message), ..MoveDetail::default() }
    }

    /// Takes in how a submit went: a provider in trouble is left alone for a while, by every scheduler.
    pub(crate) async fn note_submit(&self, account: &ProviderAccountId, outcome: &SubmitOutcome) {
        let advice = self.health.note(account, outcome, &self.config.backoff, self.spread());
        let noted = match advice {
            Advice::Nothing => return,
            Advice::Answers => self.control.note_answering(account).await,
            Advice::AnswersLater(pause) => {
                tracing::warn!(%account, ?pause, "a provider account wants to be left alone");
                let pause = DispatchPause { account: account.clone(), model: None, pause };
                self.control.set_not_before(&[pause]).await.and(self.control.note_answering(account).await)
            }
            Advice::Fails(pause) => {
                tracing::warn!(%account, ?pause, "submits to a provider account fail; it is probed after a pause");
                self.control.note_failing(account, pause).await
            }
        };
        if let Err(error) = noted {
            tracing::warn!(%account, %error, "how a provider account does was not stored");
        }
    }

    /// Measures the time from acceptance to the provider's acceptance.
    pub(crate) fn started(&self, record: &TaskRecord) {
        record_latency(metric::START_LATENCY_MS, record);
    }

    /// Measures the time from acceptance to the end.
    pub(crate) fn finished(&self, record: &TaskRecord) {
        self.effort.note_finished();
        record_latency(metric::FINISH_LATENCY_MS, record);
    }
}

/// How an attempt ended by an event after which no job of it lives.
const fn outcome_of(event: &Event) -> AttemptOutcome {
    match event {
        Event::NeverSent => AttemptOutcome::NeverSent,
        Event::SubmitRefused { .. } => AttemptOutcome::Refused,
        Event::ProvedAbsent => AttemptOutcome::Absent,
        Event::ProviderFailed { .. } => AttemptOutcome::Failed,
        Event::ProviderCanceled => AttemptOutcome::Canceled,
        Event::ProviderLost => AttemptOutcome::Lost,
        _ => AttemptOutcome::Finished,
    }
}

fn record_latency(name: &'static str, record: &TaskRecord) {
    let snapshot = &record.snapshot;
    let taken = snapshot.updated_at - snapshot.created_at;
    let taken_ms = taken.to_std().unwrap_or_default().as_secs_f64() * 1_000.0;
    metrics::histogram!(name, "model" => snapshot.model.to_string()).record(taken_ms);
}
