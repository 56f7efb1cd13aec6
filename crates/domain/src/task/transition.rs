//! What may happen to a task, and what follows from it.
//!
//! [`transition`] is pure and total: every (state, event) pair either yields the next state with its effects
//! or a named refusal. Nothing else in the product decides about states or about money. The caller (the
//! task-state crate) executes the effects in the transaction that writes the new state, so a hold can be
//! neither forgotten nor settled twice.

use super::{
    state::{Attempt, JobHandle, TaskState},
    status::EventType,
};
use crate::{error_code::ErrorCode, failure::FailureClass, ids::AssetId};

/// What the rule needs to know beyond the state itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Tries that the provider refused or failed so far.
    pub tries: u32,
    /// How many such tries a task may have.
    pub max_tries: u32,
    /// Whether the owner has asked for a cancel that is not yet answered.
    pub cancel_requested: bool,
}

/// How far an observation at the provider says the job is. It may skip steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// Known there, not begun.
    Accepted,
    /// Generating.
    Running,
    /// Done, with an output to fetch.
    Finished,
}

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A worker takes the task in order to submit it.
    Claimed {
        /// The next try.
        attempt: Attempt,
    },
    /// Nothing was sent for the claimed try (lost lease, no room, shutdown). Does not count as a try.
    NeverSent,
    /// The provider certainly did not accept the job.
    SubmitRefused {
        /// Why.
        class: FailureClass,
    },
    /// The submit may or may not have been accepted.
    SubmitUnknown,
    /// A look-up after the adapter's proof time found no job.
    ProvedAbsent,
    /// The submit's answer, a look-up or a poll saw the job.
    Observed {
        /// How the provider knows it.
        job: JobHandle,
        /// How far it is.
        seen: Seen,
    },
    /// The provider says that the job failed.
    ProviderFailed {
        /// Why.
        class: FailureClass,
    },
    /// The provider says that the job was canceled.
    ProviderCanceled,
    /// The provider has forgotten a job that it had accepted.
    ProviderLost,
    /// The owner asks for a cancel.
    CancelRequested,
    /// The provider has not answered a cancel in time.
    CancelExpired,
    /// The deadline is over.
    DeadlinePassed,
    /// The verified file lies under its final key.
    OutputPublished {
        /// The stored video.
        asset: AssetId,
    },
    /// The file could not be fetched whole or is no video.
    OutputFailed,
    /// The owner's lease is gone; another worker follows the task from now on.
    TakenOver {
        /// The new owner's token.
        fencing_token: i64,
    },
}

/// What has to be done in the same transaction as the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Take the whole hold as payment.
    Capture,
    /// Give the whole hold back.
    Release,
    /// Record the claimed try before the provider is called.
    OpenAttempt,
    /// The provider is through with the try: its slot is free.
    ProviderThrough,
    /// Nobody needs to own the try any more.
    CloseAttempt,
    /// The try used up one of the task's chances.
    CountTry,
    /// Put the attempt before the operator's eyes.
    Flag,
    /// Give the new state its own time: the deadline is raised, never lowered.
    RaiseDeadline,
    /// Write one row of history.
    Emit(EventType),
}

/// A lawful move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The state after it.
    pub next: TaskState,
    /// What belongs to it.
    pub effects: Vec<Effect>,
}

/// Why an event does not move a task. Lost races look like this: they are answers, not errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The task is over.
    #[error("the task has ended")]
    Ended,
    /// The file is being saved; a cancel comes too late.
    #[error("it is too late to cancel")]
    TooLate,
    /// The event says what is already so.
    #[error("nothing to change")]
    NoChange,
    /// The event does not belong to this state.
    #[error("the event does not apply in this state")]
    NotApplicable,
}

impl Step {
    fn to(next: TaskState, event: EventType) -> Self {
        Self { next, effects: vec![Effect::Emit(event)] }
    }

    fn with(mut self, effects: &[Effect]) -> Self {
        self.effects.extend_from_slice(effects);
        self
    }

    fn canceled() -> Self {
        Self::to(TaskState::Canceled, EventType::Canceled).with(&[Effect::Release])
    }

    fn failed(code: ErrorCode) -> Self {
        Self::to(TaskState::Failed { code }, EventType::Failed).with(&[Effect::Release])
    }
}

/// The provider is through and nobody has to watch the try any longer.
const OVER: &[Effect] = &[Effect::ProviderThrough, Effect::CloseAttempt];

/// Decides what `event` does to a task in `state`.
///
/// # Errors
/// A [`Refusal`] when the event does not move the task. Nothing may be written then.
pub fn transition(state: TaskState, facts: Facts, event: Event) -> Result<Step, Refusal> {
    use TaskState as S;
    match state {
        S::Succeeded { .. } | S::Failed { .. } | S::Canceled => Err(Refusal::Ended),
        S::Queued => from_queued(event),
        S::Scheduling { attempt } => from_scheduling(attempt, facts, event),
        S::Reconciling { attempt } => from_reconciling(attempt, facts, event),
        S::ProviderSubmitted { attempt, job } => from_at_provider(attempt, job, Seen::Accepted, facts, event),
        S::Running { attempt, job } => from_at_provider(attempt, job, Seen::Running, facts, event),
        S::PostProcessing { attempt, job } => from_post_processing(attempt, job, event),
    }
}

fn from_queued(event: Event) -> Result<Step, Refusal> {
    match event {
        Event::Claimed { attempt } => {
            Ok(Step::to(TaskState::Scheduling { attempt }, EventType::Scheduled).with(&[Effect::OpenAttempt]))
        }
        Event::CancelRequested => Ok(Step::canceled()),
        Event::DeadlinePassed => Ok(Step::failed(ErrorCode::DeadlineExceeded)),
        Event::NeverSent
        | Event::SubmitRefused { .. }
        | Event::SubmitUnknown
        | Event::ProvedAbsent
        | Event::Observed { .. }
        | Event::ProviderFailed { .. }
        | Event::ProviderCanceled
        | Event::ProviderLost
        | Event::CancelExpired
        | Event::OutputPublished { .. }
        | Event::OutputFailed
        | Event::TakenOver { .. } => Err(Refusal::NotApplicable),
    }
}

fn from_scheduling(attempt: Attempt, facts: Facts, event: Event) -> Result<Step, Refusal> {
    match event {
        Event::Observed { job, seen } => Ok(observed(attempt, job, seen, facts)),
        Event::NeverSent if facts.cancel_requested => Ok(Step::canceled().with(OVER)),
        Event::NeverSent => Ok(Step::to(TaskState::Queued, EventType::Requeued).with(OVER)),
        Event::SubmitRefused { class } => Ok(refused_or_failed(class, facts)),
        Event::SubmitUnknown => Ok(doubtful(attempt)),
        // Nobody saw the answer of the lost owner's submit, so it is in doubt like one that timed out.
        Event::TakenOver { fencing_token } => Ok(doubtful(Attempt { fencing_token, ..attempt })),
        Event::CancelRequested => request_cancel(TaskState::Scheduling { attempt }, facts),
        // The attempt stays open: a handle that comes late is stored there and canceled upstream.
        Event::CancelExpired if facts.cancel_requested => Ok(Step::canceled()),
        Event::DeadlinePassed => Ok(end_by_deadline(facts, ErrorCode::DeadlineExceeded)),
        Event::Claimed { .. }
        | Event::ProvedAbsent
        | Event::ProviderFailed { .. }
        | Event::ProviderCanceled
        | Event::ProviderLost
        | Event::CancelExpired
        | Event::OutputPublished { .. }
        | Event::OutputFailed => Err(Refusal::NotApplicable),
    }
}

fn from_reconciling(attempt: Attempt, facts: Facts, event: Event) -> Result<Step, Refusal> {
    match event {
        // The doubt is over and the owner wanted out: the job, still alive, is canceled upstream by its attempt.
        Event::Observed { seen, .. } if facts.cancel_requested => {
            Ok(if seen == Seen::Finished { Step::canceled().with(OVER) } else { Step::canceled() })
        }
        Event::Observed { job, seen } => Ok(observed(attempt, job, seen, facts)),
        Event::ProvedAbsent if facts.cancel_requested => Ok(Step::canceled().with(OVER)),
        Event::ProvedAbsent => Ok(Step::to(TaskState::Queued, EventType::Requeued).with(OVER)),
        Event::ProviderFailed { class } => Ok(refused_or_failed(class, facts)),
        Event::ProviderCanceled => Ok(canceled_by_provider(facts)),
        Event::CancelRequested => request_cancel(TaskState::Reconciling { attempt }, facts),
        Event::DeadlinePassed => Ok(end_by_deadline(facts, ErrorCode::Unconfirmed).with(&[Effect::Flag])),
        Event::TakenOver { fencing_token } => {
            Ok(taken_over(TaskState::Reconciling { attempt: Attempt { fencing_token, ..attempt } }))
        }
        Event::Claimed { .. }
        | Event::NeverSent
        | Event::SubmitRefused { .. }
        | Event::SubmitUnknown
        | Event::ProviderLost
        | Event::CancelExpired
        | Event::OutputPublished { .. }
        | Event::OutputFailed => Err(Refusal::NotApplicable),
    }
}

/// PROVIDER_SUBMITTED and RUNNING differ only in how far the job was last seen.
fn from_at_provider(
    attempt: Attempt,
    job: JobHandle,
    so_far: Seen,
    facts: Facts,
    event: Event,
) -> Result<Step, Refusal> {
    let at_provider = |attempt, job| match so_far {
        Seen::Accepted => TaskState::ProviderSubmitted { attempt, job },
        Seen::Running | Seen::Finished => TaskState::Running { attempt, job },
    };
    match event {
        // A provider that goes back a step (or repeats itself) tells us nothing.
        Event::Observed { seen, .. } if seen <= so_far => Err(Refusal::NoChange),
        Event::Observed { job, seen } => Ok(observed(attempt, job, seen, facts)),
        Event::ProviderFailed { class } => Ok(refused_or_failed(class, facts)),
        Event::ProviderCanceled => Ok(canceled_by_provider(facts)),
        Event::ProviderLost if facts.cancel_requested => Ok(Step::canceled().with(OVER)),
        Event::ProviderLost => Ok(Step::failed(ErrorCode::ProviderLost).with(OVER)),
        Event::CancelRequested => request_cancel(at_provider(attempt, job), facts),
        Event::CancelExpired if facts.cancel_requested => Ok(Step::canceled()),
        Event::DeadlinePassed => Ok(end_by_deadline(facts, ErrorCode::DeadlineExceeded)),
        Event::TakenOver { fencing_token } => {
            Ok(taken_over(at_provider(Attempt { fencing_token, ..attempt }, job)))
        }
        Event::Claimed { .. }
        | Event::NeverSent
        | Event::SubmitRefused { .. }
        | Event::SubmitUnknown
        | Event::ProvedAbsent
        | Event::CancelExpired
        | Event::OutputPublished { .. }
        | Event::OutputFailed => Err(Refusal::NotApplicable),
    }
}

fn from_post_processing(attempt: Attempt, job: JobHandle, event: Event) -> Result<Step, Refusal> {
    let ended = [Effect::CloseAttempt];
    match event {
        Event::OutputPublished { asset } => {
            Ok(Step::to(TaskState::Succeeded { output: asset }, EventType::Succeeded)
                .with(&[Effect::Capture])
                .with(&ended))
        }
        Event::OutputFailed => Ok(Step::failed(ErrorCode::BadOutput).with(&ended)),
        Event::DeadlinePassed => Ok(Step::failed(ErrorCode::DeadlineExceeded).with(&ended)),
        Event::TakenOver { fencing_token } => {
            Ok(taken_over(TaskState::PostProcessing { attempt: Attempt { fencing_token, ..attempt }, job }))
        }
        Event::CancelRequested => Err(Refusal::TooLate),
        // Polls and callbacks that arrive after the end was seen.
        Event::Observed { .. } => Err(Refusal::NoChange),
        Event::Claimed { .. }
        | Event::NeverSent
        | Event::SubmitRefused { .. }
        | Event::SubmitUnknown
        | Event::ProvedAbsent
        | Event::ProviderFailed { .. }
        | Event::ProviderCanceled
        | Event::ProviderLost
        | Event::CancelExpired => Err(Refusal::NotApplicable),
    }
}

/// The job was seen further on than before.
fn observed(attempt: Attempt, job: JobHandle, seen: Seen, facts: Facts) -> Step {
    match seen {
        Seen::Accepted => Step::to(TaskState::ProviderSubmitted { attempt, job }, EventType::Submitted),
        Seen::Running => Step::to(TaskState::Running { attempt, job }, EventType::Running),
        // A cancel recorded before the file is being saved wins over a success seen later.
        Seen::Finished if facts.cancel_requested => Step::canceled().with(OVER),
        Seen::Finished => Step::to(TaskState::PostProcessing { attempt, job }, EventType::PostProcessing)
            .with(&[Effect::ProviderThrough, Effect::RaiseDeadline]),
    }
}

/// The try made no job, or a job that ended failed: another try if the class and the count allow.
fn refused_or_failed(class: FailureClass, facts: Facts) -> Step {
    let step = if facts.cancel_requested {
        Step::canceled()
    } else if class.is_retryable() && facts.tries + 1 < facts.max_tries {
        Step::to(TaskState::Queued, EventType::Requeued)
    } else {
        Step::failed(class.error_code())
    };
    step.with(&[Effect::CountTry]).with(OVER)
}

/// A cancel that nobody here asked for is the provider's failure.
fn canceled_by_provider(facts: Facts) -> Step {
    if facts.cancel_requested {
        Step::canceled().with(OVER)
    } else {
        refused_or_failed(FailureClass::ProviderInternal, facts)
    }
}

fn doubtful(attempt: Attempt) -> Step {
    Step::to(TaskState::Reconciling { attempt }, EventType::Reconciling).with(&[Effect::RaiseDeadline])
}

fn taken_over(next: TaskState) -> Step {
    Step::to(next, EventType::TakenOver)
}

/// Records the intent. The state stays; whoever follows the task carries the wish to the provider.
fn request_cancel(state: TaskState, facts: Facts) -> Result<Step, Refusal> {
    if facts.cancel_requested {
        Err(Refusal::NoChange)
    } else {
        Ok(Step::to(state, EventType::CancelRequested))
    }
}

/// The attempt, if there is one, stays open: it outlives its task until the provider is through with it.
fn end_by_deadline(facts: Facts, code: ErrorCode) -> Step {
    if facts.cancel_requested { Step::canceled() } else { Step::failed(code) }
}

#[cfg(test)]
mod tests;
