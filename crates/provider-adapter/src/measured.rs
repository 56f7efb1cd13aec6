//! Counts and times every call to a provider, whichever adapter makes it.

use std::{future::Future, sync::Arc, time::Instant};

use async_trait::async_trait;
use domain::{
    ids::{AttemptRef, ProviderAccountId},
    metric,
    task::state::JobHandle,
};
use fetch::SendGuard;

use crate::{
    capabilities::Capabilities,
    provider::{
        CancelOutcome, LookUp, Observation, OutputError, OutputRef, OutputStream, Provider, SubmitJob,
        SubmitOutcome, Unclear,
    },
};

/// An adapter with a watch beside it. It hands every verb on, also those that the trait has a default for.
pub(crate) struct Measured {
    inner: Arc<dyn Provider>,
    /// The account as a label.
    account: String,
}

impl Measured {
    pub(crate) fn new(inner: Arc<dyn Provider>) -> Self {
        Self { account: inner.account().to_string(), inner }
    }

    /// A call that is dropped before its end is not counted: nobody knows what it came to.
    async fn call<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = T>,
        outcome: fn(&T) -> &'static str,
    ) -> T {
        let from = Instant::now();
        let answer = call.await;
        let taken_ms = from.elapsed().as_secs_f64() * 1_000.0;
        let account = || self.account.clone();
        metrics::histogram!(metric::PROVIDER_CALL_DURATION_MS, "account" => account(), "call" => name)
            .record(taken_ms);
        let labels =
            [("account", account()), ("call", name.to_owned()), ("outcome", outcome(&answer).to_owned())];
        metrics::counter!(metric::PROVIDER_CALLS, &labels).increment(1);
        answer
    }
}

#[async_trait]
impl Provider for Measured {
    fn account(&self) -> &ProviderAccountId {
        self.inner.account()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn submit(&self, job: &SubmitJob, guard: SendGuard) -> SubmitOutcome {
        self.call("submit", self.inner.submit(job, guard), |outcome| match outcome {
            SubmitOutcome::Accepted { .. } => "accepted",
            SubmitOutcome::RejectedRetryable { .. } => "rejected_retryable",
            SubmitOutcome::RejectedFinal { .. } => "rejected_final",
            SubmitOutcome::Unknown { .. } => "unknown",
            SubmitOutcome::NotSent { .. } => "not_sent",
        })
        .await
    }

    async fn observe(&self, job: &JobHandle) -> Result<Observation, Unclear> {
        self.call("observe", self.inner.observe(job), |seen| match seen {
            Ok(Observation::Lost) => "lost",
            Ok(_) => "seen",
            Err(_) => "unclear",
        })
        .await
    }

    async fn look_up(&self, reference: AttemptRef) -> LookUp {
        self.call("look_up", self.inner.look_up(reference), |found| match found {
            LookUp::Found { .. } => "found",
            LookUp::Absent => "absent",
            LookUp::Unsupported => "unsupported",
            LookUp::Unclear(_) => "unclear",
        })
        .await
    }

    async fn cancel(&self, job: &JobHandle) -> CancelOutcome {
        self.call("cancel", self.inner.cancel(job), |outcome| match outcome {
            CancelOutcome::Canceled => "canceled",
            CancelOutcome::Requested => "requested",
            CancelOutcome::TooLate(_) => "too_late",
            CancelOutcome::Unsupported => "unsupported",
            CancelOutcome::NotFound => "not_found",
            CancelOutcome::Unclear(_) => "unclear",
        })
        .await
    }

    async fn open_output(
        &self,
        job: &JobHandle,
        output: Option<&OutputRef>,
    ) -> Result<OutputStream, OutputError> {
        self.call("open_output", self.inner.open_output(job, output), |opened| match opened {
            Ok(_) => "opened",
            Err(OutputError::Gone(_)) => "gone",
            Err(OutputError::Temporary { .. }) => "temporary",
            Err(OutputError::Refused(_)) => "refused",
        })
        .await
    }
}
