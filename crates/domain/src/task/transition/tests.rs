//! Every pair of state and event, as one table that a reader can hold against the specification, and the
//! properties that no sequence of events may break.

use proptest::prelude::*;

use super::*;
use crate::task::status::TaskStatus;

const ATTEMPT: Attempt = Attempt { no: 1, fencing_token: 10 };

fn job() -> JobHandle {
    JobHandle::new("job-1")
}

fn asset() -> AssetId {
    AssetId::from_uuid(uuid::Uuid::from_u128(7))
}

fn states() -> Vec<TaskState> {
    use TaskState as S;
    vec![
        S::Queued,
        S::Scheduling { attempt: ATTEMPT },
        S::Reconciling { attempt: ATTEMPT },
        S::ProviderSubmitted { attempt: ATTEMPT, job: job() },
        S::Running { attempt: ATTEMPT, job: job() },
        S::PostProcessing { attempt: ATTEMPT, job: job() },
        S::Succeeded { output: asset() },
        S::Failed { code: ErrorCode::BadOutput },
        S::Canceled,
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    let seen = |seen| Event::Observed { job: job(), seen };
    vec![
        ("claimed", Event::Claimed { attempt: ATTEMPT }),
        ("never_sent", Event::NeverSent),
        ("refused_retryable", Event::SubmitRefused { class: FailureClass::Overloaded }),
        ("refused_final", Event::SubmitRefused { class: FailureClass::InvalidInput }),
        ("unknown", Event::SubmitUnknown),
        ("absent", Event::ProvedAbsent),
        ("seen_accepted", seen(Seen::Accepted)),
        ("seen_running", seen(Seen::Running)),
        ("seen_finished", seen(Seen::Finished)),
        ("failed_retryable", Event::ProviderFailed { class: FailureClass::ProviderInternal }),
        ("failed_final", Event::ProviderFailed { class: FailureClass::ModeratedOutput }),
        ("provider_canceled", Event::ProviderCanceled),
        ("provider_lost", Event::ProviderLost),
        ("cancel", Event::CancelRequested),
        ("cancel_expired", Event::CancelExpired),
        ("deadline", Event::DeadlinePassed),
        ("published", Event::OutputPublished { asset: asset() }),
        ("output_failed", Event::OutputFailed),
        ("taken_over", Event::TakenOver { fencing_token: 11 }),
    ]
}

/// One letter per outcome: the next state, or the refusal in lowercase.
fn letter(result: &Result<Step, Refusal>) -> &'static str {
    match result {
        Ok(step) => match step.next.status() {
            TaskStatus::Queued => "Q",
            TaskStatus::Scheduling => "S",
            TaskStatus::Reconciling => "U",
            TaskStatus::ProviderSubmitted => "P",
            TaskStatus::Running => "R",
            TaskStatus::PostProcessing => "O",
            TaskStatus::Succeeded => "V",
            TaskStatus::Failed => "F",
            TaskStatus::Canceled => "C",
        },
        Err(Refusal::Ended) => "e",
        Err(Refusal::TooLate) => "l",
        Err(Refusal::NoChange) => "n",
        Err(Refusal::NotApplicable) => ".",
    }
}

fn table(facts: Facts) -> String {
    let mut lines = vec![format!("{:18}Q S U P R O V F C", "event")];
    for (name, event) in events() {
        let row: Vec<_> =
            states().into_iter().map(|s| letter(&transition(s, facts, event.clone()))).collect();
        lines.push(format!("{name:18}{}", row.join(" ")));
    }
    lines.join("\n")
}

const FRESH: Facts = Facts { tries: 0, max_tries: 3, cancel_requested: false };

// Columns: Queued, Scheduling, reconciling (U: unknown), Provider submitted, Running, pOst-processing, succeeded
// (V), Failed, Canceled.
#[test]
fn every_pair_of_state_and_event() {
    assert_eq!(
        table(FRESH),
        "\
event             Q S U P R O V F C
claimed           S . . . . . e e e
never_sent        . Q . . . . e e e
refused_retryable . Q . . . . e e e
refused_final     . F . . . . e e e
unknown           . U . . . . e e e
absent            . . Q . . . e e e
seen_accepted     . P P n n n e e e
seen_running      . R R R n n e e e
seen_finished     . O O O O n e e e
failed_retryable  . . Q Q Q . e e e
failed_final      . . F F F . e e e
provider_canceled . . Q Q Q . e e e
provider_lost     . . . F F . e e e
cancel            C S U P R l e e e
cancel_expired    . . . . . . e e e
deadline          F F F F F F e e e
published         . . . . . V e e e
output_failed     . . . . . F e e e
taken_over        . U U P R O e e e"
    );
}

#[test]
fn every_pair_once_a_cancel_is_requested() {
    assert_eq!(
        table(Facts { cancel_requested: true, ..FRESH }),
        "\
event             Q S U P R O V F C
claimed           S . . . . . e e e
never_sent        . C . . . . e e e
refused_retryable . C . . . . e e e
refused_final     . C . . . . e e e
unknown           . U . . . . e e e
absent            . . C . . . e e e
seen_accepted     . P C n n n e e e
seen_running      . R C R n n e e e
seen_finished     . C C C C n e e e
failed_retryable  . . C C C . e e e
failed_final      . . C C C . e e e
provider_canceled . . C C C . e e e
provider_lost     . . . C C . e e e
cancel            C n n n n l e e e
cancel_expired    . C . C C . e e e
deadline          F C C C C F e e e
published         . . . . . V e e e
output_failed     . . . . . F e e e
taken_over        . U U P R O e e e"
    );
}

#[test]
fn the_last_try_fails_instead_of_going_back_to_the_queue() {
    let last = Facts { tries: 2, ..FRESH };
    let step = transition(
        TaskState::Scheduling { attempt: ATTEMPT },
        last,
        Event::SubmitRefused { class: FailureClass::Overloaded },
    )
    .unwrap();
    assert_eq!(step.next, TaskState::Failed { code: ErrorCode::Overloaded });
    // Neither a look-up that found nothing nor a try that was never sent uses up a chance.
    for (state, event) in [
        (TaskState::Reconciling { attempt: ATTEMPT }, Event::ProvedAbsent),
        (TaskState::Scheduling { attempt: ATTEMPT }, Event::NeverSent),
    ] {
        let step = transition(state, last, event).unwrap();
        assert_eq!(step.next, TaskState::Queued);
        assert!(!step.effects.contains(&Effect::CountTry));
    }
}

#[test]
fn an_unresolved_doubt_is_flagged_when_the_deadline_ends_it() {
    let step = transition(TaskState::Reconciling { attempt: ATTEMPT }, FRESH, Event::DeadlinePassed).unwrap();
    assert_eq!(step.next, TaskState::Failed { code: ErrorCode::Unconfirmed });
    assert!(step.effects.contains(&Effect::Flag));
    assert!(!step.effects.contains(&Effect::CloseAttempt), "the possible job keeps its slot and its watcher");
}

#[test]
fn a_take_over_keeps_the_attempt_and_the_job_and_changes_the_token() {
    let state = TaskState::Running { attempt: ATTEMPT, job: job() };
    let step = transition(state, FRESH, Event::TakenOver { fencing_token: 99 }).unwrap();
    assert_eq!(step.next, TaskState::Running { attempt: Attempt { no: 1, fencing_token: 99 }, job: job() });
}

fn any_event() -> impl Strategy<Value = Event> {
    prop::sample::select(events().into_iter().map(|(_, event)| event).collect::<Vec<_>>())
}

proptest! {
    /// Whatever happens in whatever order: the money is settled exactly once, at the end, and never before it;
    /// history has one row per move; an ended task stays ended; tries never exceed the limit.
    #[test]
    fn no_sequence_of_events_breaks_the_rules(sequence in prop::collection::vec(any_event(), 0..60)) {
        let mut state = TaskState::Queued;
        let mut facts = FRESH;
        let mut settled = 0;
        for event in sequence {
            let before = state.clone();
            match transition(state.clone(), facts, event.clone()) {
                Err(refusal) => {
                    prop_assert_eq!(refusal == Refusal::Ended, before.status().is_terminal());
                }
                Ok(step) => {
                    prop_assert!(!before.status().is_terminal());
                    let count = |wanted: fn(&Effect) -> bool| step.effects.iter().filter(|e| wanted(e)).count();
                    prop_assert_eq!(count(|e| matches!(e, Effect::Emit(_))), 1);
                    let settles = count(|e| matches!(e, Effect::Capture | Effect::Release));
                    prop_assert_eq!(settles == 1, step.next.status().is_terminal());
                    prop_assert!(settles <= 1);
                    prop_assert_eq!(
                        step.effects.contains(&Effect::Capture),
                        step.next.status() == TaskStatus::Succeeded
                    );
                    settled += settles;
                    if event == Event::CancelRequested && !step.next.status().is_terminal() {
                        facts.cancel_requested = true;
                    }
                    if step.effects.contains(&Effect::CountTry) {
                        facts.tries += 1;
                    }
                    // Going back to the queue closes the try: there is never a second live one.
                    if step.next == TaskState::Queued {
                        prop_assert!(step.effects.contains(&Effect::CloseAttempt));
                        prop_assert!(step.effects.contains(&Effect::ProviderThrough));
                    }
                    state = step.next;
                }
            }
            prop_assert!(facts.tries <= facts.max_tries);
        }
        prop_assert_eq!(settled, usize::from(state.status().is_terminal()));
    }
}
