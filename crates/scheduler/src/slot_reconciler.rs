//! The slot reconciler: compares the slot sets with PostgreSQL's live attempts, both ways, and repairs.
//!
//! A live attempt that is missing in a set is put back, whatever the limits say: it is at the provider already. A member
//! that nobody vouches for and that PostgreSQL does not call live is taken out; nothing else ever takes one out without
//! the provider being through. Every repair is logged and counted, because each means that something else went wrong.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use control::{SlotMember, SlotRef, SlotSet, SlotTag};
use domain::{AttemptRef, TaskId, TenantId, UserId, metric};

use crate::{
    dispatch::{rebuild, slot_of},
    loops::{Next, PassError},
    worker::Worker,
};

/// Tenants and users that met a limit lately: if a ghost holds their places, it is found there.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<HashSet<(TenantId, UserId)>>);

/// Suspects between two passes; more are noted again when they meet their limit again.
const SUSPECTS_MAX: usize = 10_000;

impl Suspects {
    pub(crate) fn note(&self, tenant: TenantId, user: UserId) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < SUSPECTS_MAX {
            noted.insert((tenant, user));
        }
    }

    fn take(&self) -> HashSet<(TenantId, UserId)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the last pass found missing. Only what is missing twice is put back: the first time it may just have been
/// taken or released.
#[derive(Debug, Default)]
pub(crate) struct MissingBefore(Mutex<HashSet<AttemptRef>>);

/// One pass.
///
/// # Errors
/// When a store did not answer.
pub(crate) async fn pass(worker: &Worker, missing_before: &MissingBefore) -> Result<Next, PassError> {
    for account in worker.catalogue.accounts() {
        // Does nothing where the marker is there.
        rebuild(worker, &SlotTag::Account(account.id.clone())).await?;
    }
    // First which sets there are to look at, then their members, and only then what lives: an attempt that is claimed
    // in between is in the later picture, and a member that has expired was taken long before the first.
    let known: Vec<_> = worker.task_state.all_live_slots().await?.into_iter().map(slot_of).collect();
    let sets = sets_of(worker, &known);
    let members = worker.control.slot_members(&sets).await?;
    let live: HashMap<AttemptRef, SlotRef> = worker
        .task_state
        .all_live_slots()
        .await?
        .into_iter()
        .map(|slot| (slot.attempt, slot_of(slot)))
        .collect();
    let present: HashMap<SlotSet, Vec<SlotMember>> = sets.into_iter().zip(members).collect();
    restore_missing(worker, &live, &present, missing_before).await?;
    remove_ghosts(worker, &live, &present).await?;
    Ok(Next::Timer)
}

fn sets_of_slot(slot: &SlotRef) -> [SlotSet; 4] {
    [
        SlotSet::Account(slot.account.clone()),
        SlotSet::Model(slot.account.clone(), slot.model.clone()),
        SlotSet::Tenant(slot.tenant),
        SlotSet::User(slot.tenant, slot.user),
    ]
}

fn sets_of(worker: &Worker, live: &[SlotRef]) -> Vec<SlotSet> {
    let mut sets: HashSet<SlotSet> = live.iter().flat_map(sets_of_slot).collect();
    for route in worker.catalogue.models().iter().flat_map(|model| &model.routes) {
        sets.insert(SlotSet::Account(route.account.clone()));
        sets.insert(SlotSet::Model(route.account.clone(), route.provider_model.clone()));
    }
    for (tenant, user) in worker.suspects.take() {
        sets.insert(SlotSet::Tenant(tenant));
        sets.insert(SlotSet::User(tenant, user));
    }
    sets.into_iter().collect()
}

async fn restore_missing(
    worker: &Worker,
    live: &HashMap<AttemptRef, SlotRef>,
    present: &HashMap<SlotSet, Vec<SlotMember>>,
    before: &MissingBefore,
) -> Result<(), PassError> {
    let members: HashMap<&SlotSet, HashSet<AttemptRef>> =
        present.iter().map(|(set, members)| (set, members.iter().map(|m| m.attempt).collect())).collect();
    // A set that was not looked at says nothing.
    let is_missing = |slot: &SlotRef| {
        sets_of_slot(slot)
            .iter()
            .any(|set| members.get(set).is_some_and(|members| !members.contains(&slot.attempt)))
    };
    let missing: HashSet<_> =
        live.values().filter(|slot| is_missing(slot)).map(|slot| slot.attempt).collect();
    let twice: Vec<_> = {
        let mut before = before.0.lock().unwrap_or_else(PoisonError::into_inner);
        let twice = missing.intersection(&before).filter_map(|attempt| live.get(attempt).cloned()).collect();
        *before = missing;
        twice
    };
    if twice.is_empty() {
        return Ok(());
    }
    metrics::counter!(metric::SLOT_RECONCILE_DIFF, "kind" => "missing").increment(twice.len() as u64);
    for slot in &twice {
        tracing::debug!(attempt = %slot.attempt, account = %slot.account, "a live attempt had lost its slot");
    }
    tracing::warn!(attempts = twice.len(), example = %twice[0].attempt, "live attempts had lost their slots");
    worker.control.restore_slots(&twice).await?;
    Ok(())
}

async fn remove_ghosts(
    worker: &Worker,
    live: &HashMap<AttemptRef, SlotRef>,
    present: &HashMap<SlotSet, Vec<SlotMember>>,
) -> Result<(), PassError> {
    let mut found = HashSet::new();
    for (set, members) in present {
        let ghosts: Vec<AttemptRef> = members
            .iter()
            // One that lives at another account than the one it first asked has no right to a place here.
            .filter(|member| {
                let belongs = live.get(&member.attempt).is_some_and(|slot| sets_of_slot(slot).contains(set));
                member.expired && !belongs
            })
            .map(|member| member.attempt)
            .collect();
        if ghosts.is_empty() {
            continue;
        }
        metrics::counter!(metric::SLOT_RECONCILE_DIFF, "kind" => "ghost").increment(ghosts.len() as u64);
        for ghost in &ghosts {
            tracing::debug!(attempt = %ghost, ?set, "a slot was held by an attempt that is over");
        }
        found.extend(ghosts.iter().copied());
        worker.control.remove_slot_members(set, &ghosts).await?;
        note_owners(worker, &ghosts).await?;
        if let SlotSet::Account(account) | SlotSet::Model(account, _) = set {
            worker.ring_account(account);
        }
    }
    if let Some(example) = found.iter().next() {
        tracing::warn!(attempts = found.len(), %example, "slots were held by attempts that are over");
    }
    Ok(())
}

/// A ghost of an account is likely one of its tenant and user too: they are looked at in the next pass.
async fn note_owners(worker: &Worker, ghosts: &[AttemptRef]) -> Result<(), PassError> {
    let tasks: Vec<TaskId> = ghosts.iter().map(|ghost| ghost.task).collect();
    for record in worker.task_state.records(&tasks).await? {
        worker.suspects.note(record.snapshot.tenant_id, record.snapshot.user_id);
    }
    Ok(())
}
