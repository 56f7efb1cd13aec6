//! Taking the places and rates of a batch, each task at the first account that has room, and rebuilding tags that Redis has lost.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use control::{
    ControlError, DispatchRates, Park, ReadyTask, Rebuild, Sent, SlotClaim, SlotLimits, SlotOutcome, SlotRef,
    SlotTag, Trips,
};
use domain::{
    AttemptRef,
    limits::Tier,
    wait::{Wait, WaitDetail, WaitReason},
};
use task_state::LiveSlot;
use tokio::time::Instant;

use super::{
    PutBack, Refusal, WHILE_FULL,
    ways::{Way, Wheel},
};
use crate::{loops::PassError, worker::Worker};

/// How often a claim is repeated that met a lost tag or an answer that did not come.
const ROUNDS_MAX: u32 = 5;
/// While another scheduler rebuilds a tag.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);
/// Until the next look at accounts whose breakers just opened again.
const WHILE_SHUT: Duration = Duration::from_millis(100);
/// A parked user or tenant comes back by a release, or after this.
const PARKED_MAX: Duration = Duration::from_secs(2);
/// A task whose owner is not known waits this long for an operator.
const UNKNOWN_OWNER: TimeDelta = TimeDelta::seconds(30);

/// A task with the accounts that it may go to.
pub(super) struct Wish {
    task: ReadyTask,
    /// None when its owner does not exist.
    tier: Option<Arc<Tier>>,
    /// Those still to be tried, the next one first.
    ways: VecDeque<Arc<Way>>,
    /// Why others do not take it, or rather the one of them that may take it soonest.
    refused: Option<Refusal>,
}

/// How a batch fared.
pub(super) struct Taken {
    /// Those that hold all their places now, and where.
    pub(super) acquired: Vec<(ReadyTask, Arc<Way>)>,
    /// The instant before Redis was first asked.
    pub(super) asked_at: Instant,
    /// The others.
    pub(super) put_back: Vec<PutBack>,
}

/// Says where each task may go.
///
/// # Errors
/// When PostgreSQL cannot say whose the tasks are.
pub(super) async fn wishes(
    worker: &Worker,
    wheel: &Wheel,
    ways: &[Arc<Way>],
    tasks: Vec<ReadyTask>,
) -> Result<Vec<Wish>, PassError> {
    let mut wishes = Vec::with_capacity(tasks.len());
    for task in tasks {
        let tier = worker.tenancy.tier_of(task.user).await?;
        let open = wheel.turn(ways, |account| worker.health.shut_for(account).is_some());
        let refused = open.is_empty().then(|| {
            let shut_for = ways.iter().filter_map(|way| worker.health.shut_for(&way.account.id)).min();
            later(worker, WaitReason::BreakerOpen, shut_for.unwrap_or(WHILE_SHUT))
        });
        wishes.push(Wish { task, tier, ways: open, refused });
    }
    Ok(wishes)
}

impl Wish {
    /// What it asks of the next account; none when there is no account, or no owner.
    fn claim(&self) -> Option<SlotClaim> {
        let (way, tier) = self.ways.front().zip(self.tier.as_ref())?;
        let (account, provider_model) = (&way.account, &way.provider_model);
        Some(SlotClaim {
            attempt: AttemptRef { task: self.task.task, attempt_no: self.task.next_attempt_no },
            account: account.id.clone(),
            model: provider_model.clone(),
            tenant: self.task.tenant,
            user: self.task.user,
            limits: SlotLimits {
                account: account.slots,
                model: account.slots_of(provider_model),
                tenant: tier.tenant.running,
                user: tier.user.running,
            },
            rates: DispatchRates { account: account.submits, model: account.submits_of(provider_model) },
        })
    }

    /// Goes on to the next account. Without one it is not to start now, for the reason that may be over soonest.
    fn refused(&mut self, why: Refusal) -> Option<Refusal> {
        self.ways.pop_front();
        let soonest = self.refused.take().filter(|before| before.rest <= why.rest).unwrap_or(why);
        if self.ways.is_empty() {
            return Some(soonest);
        }
        self.refused = Some(soonest);
        None
    }
}

/// Takes the slots of a batch.
///
/// # Errors
/// When Redis is away or PostgreSQL cannot say what lives: nothing may be submitted then.
pub(super) async fn take(worker: &Worker, wishes: Vec<Wish>, trips: Trips) -> Result<Taken, PassError> {
    let mut taken = Taken { acquired: Vec::new(), asked_at: Instant::now(), put_back: Vec::new() };
    let mut open = Vec::with_capacity(wishes.len());
    for mut wish in wishes {
        if wish.tier.is_none() {
            tracing::error!(task = %wish.task.task, user = %wish.task.user, "a queued task's owner is not known");
            let until_ms = (worker.clock.now() + UNKNOWN_OWNER).timestamp_millis();
            let why = Refusal { park: Park::Task { until_ms }, wait: None, rest: None };
            taken.put_back.push(PutBack { task: wish.task, why });
        } else if wish.ways.is_empty()
            && let Some(why) = wish.refused.take()
        {
            taken.put_back.push(PutBack { task: wish.task, why });
        } else {
            open.push(wish);
        }
    }
    let mut repeated = 0;
    while !open.is_empty() && repeated < ROUNDS_MAX {
        let asked = take_once(worker, open, trips, &mut taken).await?;
        open = asked.onward;
        if !asked.again.is_empty() {
            open.extend(asked.again);
            repeated += 1;
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        }
    }
    // Somebody else rebuilds for longer than we wait.
    taken.put_back.extend(open.into_iter().map(|wish| {
        let why = Refusal { park: Park::Head, wait: None, rest: Some(BETWEEN_ROUNDS) };
        PutBack { task: wish.task, why }
    }));
    Ok(taken)
}

/// Those of a round that are not through.
#[derive(Default)]
struct Asked {
    /// They go on to another account.
    onward: Vec<Wish>,
    /// They have to be asked for again, in a moment.
    again: Vec<Wish>,
}

/// One round.
async fn take_once(
    worker: &Worker,
    open: Vec<Wish>,
    trips: Trips,
    taken: &mut Taken,
) -> Result<Asked, PassError> {
    let claims: Vec<_> = open.iter().filter_map(Wish::claim).collect();
    let outcomes = worker.control.acquire_slots(&claims, trips).await;
    let mut asked = Asked::default();
    let (mut unknown, mut not_ready, mut away) = (Vec::new(), HashSet::new(), None);
    for ((mut wish, claim), outcome) in open.into_iter().zip(claims).zip(outcomes) {
        let why = match outcome {
            Ok(SlotOutcome::Acquired) => {
                if let Some(way) = wish.ways.pop_front() {
                    taken.acquired.push((wish.task, way));
                }
                continue;
            }
            Ok(SlotOutcome::NotReady { tag }) => {
                not_ready.insert(tag);
                asked.again.push(wish);
                continue;
            }
            Err(ControlError::Unknown) => {
                unknown.push(claim.slot());
                asked.again.push(wish);
                continue;
            }
            Err(error) => {
                away = Some(error);
                continue;
            }
            Ok(SlotOutcome::Full { reason, used, limit }) => {
                worker.suspects.note(wish.task.tenant, wish.task.user);
                let why = full(reason, used, limit);
                if matches!(why.park, Park::User { .. } | Park::Tenant { .. }) {
                    // No other account would change that.
                    taken.put_back.push(PutBack { task: wish.task, why });
                    continue;
                }
                why
            }
            Ok(SlotOutcome::Rate { retry_after_ms }) => {
                later_ms(worker, WaitReason::ProviderRate, retry_after_ms)
            }
            Ok(SlotOutcome::NotBefore { retry_after_ms }) => {
                later_ms(worker, WaitReason::ProviderBackoff, retry_after_ms)
            }
            Ok(SlotOutcome::BreakerOpen { retry_after_ms }) => {
                worker.health.is_shut(&claim.account, Duration::from_millis(retry_after_ms));
                later_ms(worker, WaitReason::BreakerOpen, retry_after_ms)
            }
        };
        match wish.refused(why) {
            None => asked.onward.push(wish),
            Some(why) => taken.put_back.push(PutBack { task: wish.task, why }),
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
    Ok(asked)
}

fn full(reason: WaitReason, used: u32, limit: u32) -> Refusal {
    let (park, rest) = match reason {
        WaitReason::UserConcurrency => (Park::User { for_at_most: PARKED_MAX }, None),
        WaitReason::TenantConcurrency => (Park::Tenant { for_at_most: PARKED_MAX }, None),
        // The account or the model there: nobody of this queue passes.
        _ => (Park::Head, Some(WHILE_FULL)),
    };
    let detail = WaitDetail { used: Some(used), limit: Some(limit), until: None };
    Refusal { park, wait: Some(Wait { reason, detail }), rest }
}

fn later_ms(worker: &Worker, reason: WaitReason, retry_after_ms: u64) -> Refusal {
    later(worker, reason, Duration::from_millis(retry_after_ms))
}

fn later(worker: &Worker, reason: WaitReason, rest: Duration) -> Refusal {
    let until = worker.clock.now() + TimeDelta::from_std(rest).unwrap_or_default();
    let detail = WaitDetail { until: Some(until), ..WaitDetail::default() };
    Refusal { park: Park::Head, wait: Some(Wait { reason, detail }), rest: Some(rest) }
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
