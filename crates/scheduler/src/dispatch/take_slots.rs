//! Taking the places and rates of a batch, and rebuilding tags that Redis has lost.

use std::{collections::HashSet, sync::Arc, time::Duration};

use catalogue::AccountSpec;
use chrono::TimeDelta;
use control::{
    ControlError, DispatchRates, Park, ReadyTask, Rebuild, Sent, SlotClaim, SlotLimits, SlotOutcome, SlotRef,
    SlotTag, Trips,
};
use domain::{
    AttemptRef,
    limits::Tier,
    model::Model,
    wait::{Wait, WaitDetail, WaitReason},
};
use task_state::LiveSlot;
use tokio::time::Instant;

use super::{PutBack, WHILE_FULL};
use crate::{loops::PassError, worker::Worker};

/// How often a claim is repeated that met a lost tag or an answer that did not come.
const ROUNDS_MAX: u32 = 5;
/// While another scheduler rebuilds a tag.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);
/// A parked user or tenant comes back by a release, or after this.
const PARKED_MAX: Duration = Duration::from_secs(2);
/// A task whose owner is not known waits this long for an operator.
const UNKNOWN_OWNER: TimeDelta = TimeDelta::seconds(30);

/// A task with the claim on its slots; none when its owner does not exist.
pub(super) struct Wish {
    task: ReadyTask,
    claim: Option<SlotClaim>,
}

/// How a batch fared.
pub(super) struct Taken {
    /// Those that hold all their places now.
    pub(super) acquired: Vec<ReadyTask>,
    /// The instant before Redis was first asked.
    pub(super) asked_at: Instant,
    /// The others.
    pub(super) put_back: Vec<PutBack>,
}

/// Says what each task needs.
pub(super) async fn claims(
    worker: &Worker,
    model: &Model,
    account: &AccountSpec,
    tasks: Vec<ReadyTask>,
) -> Result<Vec<Wish>, PassError> {
    let mut wishes = Vec::with_capacity(tasks.len());
    for task in tasks {
        let tier = worker.tenancy.tier_of(task.user).await?;
        let claim = tier.map(|tier| claim_of(model, account, &task, &tier));
        wishes.push(Wish { task, claim });
    }
    Ok(wishes)
}

fn claim_of(model: &Model, account: &AccountSpec, task: &ReadyTask, tier: &Arc<Tier>) -> SlotClaim {
    let provider_model = &model.route.provider_model;
    SlotClaim {
        attempt: AttemptRef { task: task.task, attempt_no: task.next_attempt_no },
        account: account.id.clone(),
        model: provider_model.clone(),
        tenant: task.tenant,
        user: task.user,
        limits: SlotLimits {
            account: account.slots,
            model: account.slots_of(provider_model),
            tenant: tier.tenant.running,
            user: tier.user.running,
        },
        rates: DispatchRates { account: account.submits, model: account.submits_of(provider_model) },
    }
}

/// Takes the slots of a batch.
///
/// # Errors
/// When Redis is away or PostgreSQL cannot say what lives: nothing may be submitted then.
pub(super) async fn take(worker: &Worker, wishes: Vec<Wish>, trips: Trips) -> Result<Taken, PassError> {
    let mut taken = Taken { acquired: Vec::new(), asked_at: Instant::now(), put_back: Vec::new() };
    let mut open = Vec::with_capacity(wishes.len());
    for wish in wishes {
        match wish.claim {
            Some(claim) => open.push((wish.task, claim)),
            None => {
                tracing::error!(task = %wish.task.task, user = %wish.task.user, "a queued task's owner is not known");
                let until_ms = (worker.clock.now() + UNKNOWN_OWNER).timestamp_millis();
                taken.put_back.push(PutBack {
                    task: wish.task,
                    park: Park::Task { until_ms },
                    wait: None,
                    rest: None,
                });
            }
        }
    }
    for round in 0..ROUNDS_MAX {
        if open.is_empty() {
            break;
        }
        if round > 0 {
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        }
        open = take_once(worker, open, trips, &mut taken).await?;
    }
    // Somebody else rebuilds for longer than we wait.
    taken.put_back.extend(open.into_iter().map(|(task, _)| PutBack {
        task,
        park: Park::Head,
        wait: None,
        rest: Some(BETWEEN_ROUNDS),
    }));
    Ok(taken)
}

type Open = Vec<(ReadyTask, SlotClaim)>;

/// One round. Returns those that have to be asked for again.
async fn take_once(worker: &Worker, open: Open, trips: Trips, taken: &mut Taken) -> Result<Open, PassError> {
    let claims: Vec<_> = open.iter().map(|(_, claim)| claim.clone()).collect();
    let outcomes = worker.control.acquire_slots(&claims, trips).await;
    let (mut again, mut unknown, mut not_ready) = (Vec::new(), Vec::new(), HashSet::new());
    let mut away = None;
    for ((task, claim), outcome) in open.into_iter().zip(outcomes) {
        match outcome {
            Ok(SlotOutcome::Acquired) => taken.acquired.push(task),
            Ok(SlotOutcome::NotReady { tag }) => {
                not_ready.insert(tag);
                again.push((task, claim));
            }
            Ok(SlotOutcome::Full { reason, used, limit }) => {
                worker.suspects.note(task.tenant, task.user);
                taken.put_back.push(full(task, reason, used, limit));
            }
            Ok(SlotOutcome::Rate { retry_after_ms }) => {
                taken.put_back.push(later(worker, task, WaitReason::ProviderRate, retry_after_ms));
            }
            Ok(SlotOutcome::NotBefore { retry_after_ms }) => {
                taken.put_back.push(later(worker, task, WaitReason::ProviderBackoff, retry_after_ms));
            }
            Err(ControlError::Unknown) => {
                unknown.push(claim.slot());
                again.push((task, claim));
            }
            Err(error) => away = Some(error),
        }
    }
    if let Some(error) = away {
        // What was taken before Redis went away is vouched for a while and then found by the reconciler; what was
        // popped comes back by itself.
        return Err(error.into());
    }
    if !unknown.is_empty() {
        worker.control.release_slots(&unknown, Sent::No).await?;
    }
    for tag in not_ready {
        rebuild(worker, &tag).await?;
    }
    Ok(again)
}

fn full(task: ReadyTask, reason: WaitReason, used: u32, limit: u32) -> PutBack {
    let (park, rest) = match reason {
        WaitReason::UserConcurrency => (Park::User { for_at_most: PARKED_MAX }, None),
        WaitReason::TenantConcurrency => (Park::Tenant { for_at_most: PARKED_MAX }, None),
        // The account or the model there: nobody of this queue passes.
        _ => (Park::Head, Some(WHILE_FULL)),
    };
    let detail = WaitDetail { used: Some(used), limit: Some(limit), until: None };
    PutBack { task, park, wait: Some(Wait { reason, detail }), rest }
}

fn later(worker: &Worker, task: ReadyTask, reason: WaitReason, retry_after_ms: u64) -> PutBack {
    let rest = Duration::from_millis(retry_after_ms);
    let until = worker.clock.now() + TimeDelta::from_std(rest).unwrap_or_default();
    let detail = WaitDetail { until: Some(until), ..WaitDetail::default() };
    PutBack { task, park: Park::Head, wait: Some(Wait { reason, detail }), rest: Some(rest) }
}

/// Rebuilds a tag from the live attempts, unless somebody else does just now.
///
/// # Errors
/// When a store did not answer; the tag stays as it is, and nothing is submitted there.
pub(crate) async fn rebuild(worker: &Worker, tag: &SlotTag) -> Result<(), PassError> {
    let Some(ticket) = worker.control.begin_rebuild(tag).await? else { return Ok(()) };
    let live = match tag {
        SlotTag::Account(account) => worker.task_state.live_slots_of_account(account).await?,
        SlotTag::Tenant(tenant) => worker.task_state.live_slots_of_tenant(*tenant).await?,
    };
    let slots: Vec<_> = live.into_iter().map(slot_of).collect();
    match worker.control.finish_rebuild(ticket, &slots).await? {
        Rebuild::Done => tracing::info!(?tag, live = slots.len(), "the slots of a tag were rebuilt"),
        Rebuild::Lost => tracing::info!(?tag, "the rebuild of a tag came too late and begins again"),
    }
    Ok(())
}

/// Where a live attempt's slots are.
pub(crate) fn slot_of(live: LiveSlot) -> SlotRef {
    SlotRef {
        attempt: live.attempt,
        account: live.account,
        model: live.model,
        tenant: live.tenant,
        user: live.user,
    }
}
