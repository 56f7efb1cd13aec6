//! Claiming a batch that holds its slots, and starting it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use control::{Lease, Park, ReadyTask, Renewal, Sent, SlotRef};
use domain::{
    AttemptRef, ProviderAccountId,
    complaints::Complaints,
    task::Attempt,
    wait::{Wait, WaitDetail, WaitReason},
};
use task_state::{Claim, ClaimOutcome, JobsToday, TaskRecord};
use tokio::time::Instant;

use super::{PutBack, Refusal, WHILE_FULL, ways::Way};
use crate::{
    drive::{Stage, drive},
    loops::PassError,
    owned::{Owned, SubmitWindow},
    worker::Worker,
};

/// Slots that Redis granted so lately are as good as a lease until that is written: it was there a moment ago. Longer
/// than this is an outage, in which nothing may be submitted.
const AS_GOOD_AS_LEASED: Duration = Duration::from_millis(100);

/// Until the next look at an account that was given all its jobs of a day.
const SPENT_FOR_MAX: Duration = Duration::from_secs(30);

/// What has no business in the ready queue any more.
#[derive(Default)]
struct Over {
    /// Claimed, so they used their turn.
    started: Vec<ReadyTask>,
    /// Somebody else's, or ended.
    gone: Vec<ReadyTask>,
}

/// A claimed task that is to be submitted.
struct Started {
    lease: Lease,
    record: Arc<TaskRecord>,
    window: SubmitWindow,
}

/// Claims the tasks in one commit, starts a driver for each and writes their leases. Returns those that PostgreSQL
/// found no room for. `slots_at` is the instant before their slots were asked for.
///
/// # Errors
/// When PostgreSQL did not answer. If the commit was made all the same, the reaper finds the claimed tasks like those
/// of a dead worker; their slots are not given back here, because they may be in use.
pub(super) async fn start(
    worker: &Arc<Worker>,
    tasks: Vec<(ReadyTask, Arc<Way>)>,
    slots_at: Instant,
) -> Result<Vec<PutBack>, PassError> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    // Nothing is sent later than one lease after this, and a submit takes no longer than its limit. The adapter is
    // cut off a second after that.
    let lease = worker.config.lease;
    let submit_limit =
        |way: &Way| lease + way.provider.capabilities().limits.submit + crate::submit::CUT_OFF_AFTER;
    let claims = tasks
        .iter()
        .map(|(task, way)| Claim {
            task: task.task,
            attempt_no: task.next_attempt_no,
            account: way.account.id.clone(),
            provider_model: way.provider_model.clone(),
            worker: worker.id.clone(),
            account_limit: way.account.slots,
            model_limit: way.account.slots_of(&way.provider_model),
            day_limit: way.account.daily,
            submit_limit: submit_limit(way),
        })
        .collect();
    let asked_at = Instant::now();
    let outcomes = worker.task_state.claim(claims).await?;
    let answered_at = Instant::now();

    let (mut started, mut put_back) = (Vec::new(), Vec::new());
    let mut over = Over::default();
    let (mut unused, mut doubtful, mut gone, mut again) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut days = Days::default();
    for ((task, way), outcome) in tasks.into_iter().zip(outcomes) {
        let slot = slot_of(&way, &task);
        match outcome {
            ClaimOutcome::Claimed(record, attempt) => {
                let window =
                    SubmitWindow { send_before: asked_at + lease, ends_at: answered_at + submit_limit(&way) };
                started.push(Started { lease: lease_of(worker, &slot, attempt), record, window });
                over.started.push(task);
            }
            ClaimOutcome::NoRoom => {
                unused.push(slot);
                put_back.push(PutBack { task, why: no_room(worker, &way, &mut days).await });
            }
            ClaimOutcome::Gone(record) => {
                // The slot may be another's who made the attempt, or one that was taken anew when that was over already.
                if record.snapshot.attempt_no == task.next_attempt_no {
                    doubtful.push(slot);
                } else {
                    gone.push(slot);
                }
                // Perhaps still queued, under another number or until a pause is over: then it is added anew.
                again.push(record);
                over.gone.push(task);
            }
            ClaimOutcome::Missing => {
                unused.push(slot);
                over.gone.push(task);
            }
        }
    }
    gone.extend(of_ended_attempts(worker, doubtful).await);
    // What is gone may have been sent once, and its token is not to be had twice.
    for (slots, sent) in [(unused, Sent::No), (gone, Sent::Yes)] {
        if !slots.is_empty()
            && let Err(error) = worker.control.release_slots(&slots, sent).await
        {
            tracing::info!(%error, "slots were not released; the reconciler will");
        }
    }
    worker.compare_with_promises(started.iter().map(|one| &one.record));
    launch(worker, started, slots_at, &over).await;
    worker.enqueue(&again).await;
    Ok(put_back)
}

/// What accounts were given today, as one batch has looked it up.
type Days = HashMap<ProviderAccountId, Option<JobsToday>>;

/// Why PostgreSQL had no room at an account that has slots: the day's jobs are given, or Redis forgot somebody's slots.
async fn no_room(worker: &Worker, way: &Way, days: &mut Days) -> Refusal {
    let account = &way.account.id;
    let plain =
        |reason, detail, rest| Refusal { park: Park::Head, wait: Some(Wait { reason, detail }), rest };
    let full = plain(WaitReason::ProviderConcurrency, WaitDetail::default(), Some(WHILE_FULL));
    let Some(limit) = way.account.daily else { return full };
    if !days.contains_key(account) {
        let today = worker.task_state.jobs_today(account).await;
        let today =
            today.inspect_err(|error| tracing::info!(%account, %error, "an account's day is not known"));
        days.insert(account.clone(), today.ok());
    }
    match days.get(account).copied().flatten() {
        Some(JobsToday { jobs, until, read_at }) if jobs >= u64::from(limit) => {
            // Jobs that were refused do not count, so there may be room again before the day is over.
            let left = (until - read_at).to_std().unwrap_or_default().min(SPENT_FOR_MAX);
            let detail =
                WaitDetail { used: u32::try_from(jobs).ok(), limit: Some(limit), until: Some(until) };
            // No rest: the next pass goes by another account, if there is one.
            let why = plain(WaitReason::ProviderRate, detail, None);
            if let Some(wait) = why.wait.clone() {
                worker.health.is_spent(account, left, wait);
            }
            why
        }
        _ => full,
    }
}

/// Those among the slots whose attempts hold none by right any more. An attempt is made once, so nobody will need them.
async fn of_ended_attempts(worker: &Worker, slots: Vec<SlotRef>) -> Vec<SlotRef> {
    if slots.is_empty() {
        return slots;
    }
    let attempts: Vec<AttemptRef> = slots.iter().map(|slot| slot.attempt).collect();
    match worker.task_state.live_among(&attempts).await {
        Ok(live) => slots.into_iter().filter(|slot| !live.contains(&slot.attempt)).collect(),
        Err(error) => {
            tracing::info!(%error, "whose slots these are is not known; the reconciler will see");
            Vec::new()
        }
    }
}

/// Starts the drivers of claimed tasks and writes their leases; after a stall in the other order, and then those
/// without a lease will not be sent.
async fn launch(worker: &Arc<Worker>, started: Vec<Started>, slots_at: Instant, over: &Over) {
    let asked_at = Instant::now();
    let at_once = asked_at.duration_since(slots_at) < AS_GOOD_AS_LEASED;
    let leases: Vec<_> = started.iter().map(|one| one.lease.clone()).collect();
    let mut owned = Vec::with_capacity(started.len());
    for Started { lease, record, window } in started {
        let place = worker.places.clone().try_acquire_owned().ok();
        let one = Arc::new(Owned::new(lease, record.as_ref().into(), window, place));
        one.learn(&record);
        worker.holdings.add(one.clone());
        if at_once {
            one.renewed(slots_at);
            worker.drivers.spawn(drive(worker.clone(), one.clone(), Stage::Submit(record)));
            owned.push((one, None));
        } else {
            owned.push((one, Some(record)));
        }
    }
    let (put, done, removed) = tokio::join!(
        worker.control.put_leases(&leases, worker.config.lease),
        worker.control.done_ready(&over.started),
        worker.control.remove_ready(&over.gone)
    );
    if let Err(error) = done.and(removed) {
        tracing::debug!(%error, "claimed tasks were not taken out of the ready queue; PostgreSQL refuses them");
    }
    let renewals = put.unwrap_or_else(|error| {
        static AWAY: Complaints = Complaints::new();
        if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
            tracing::warn!(%error, tasks = leases.len(), silent, "leases were not written; heartbeats will");
        }
        Vec::new()
    });
    for (place, (one, waiting)) in owned.into_iter().enumerate() {
        if renewals.get(place) == Some(&Renewal::Renewed) {
            one.renewed(asked_at);
        }
        if let Some(record) = waiting {
            worker.drivers.spawn(drive(worker.clone(), one, Stage::Submit(record)));
        }
    }
}

fn slot_of(way: &Way, task: &ReadyTask) -> SlotRef {
    SlotRef {
        attempt: AttemptRef { task: task.task, attempt_no: task.next_attempt_no },
        account: way.account.id.clone(),
        model: way.provider_model.clone(),
        tenant: task.tenant,
        user: task.user,
    }
}

fn lease_of(worker: &Worker, slot: &SlotRef, attempt: Attempt) -> Lease {
    Lease {
        task: slot.attempt.task,
        attempt_no: attempt.no,
        fencing_token: attempt.fencing_token,
        worker: worker.id.clone(),
        tenant: slot.tenant,
        user: slot.user,
        account: slot.account.clone(),
        model: slot.model.clone(),
    }
}
