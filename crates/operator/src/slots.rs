//! Looking at slots: who holds what, by Redis, which decides about places, and by PostgreSQL, which knows what lives.
//!
//! Both are asked, one after the other, so an attempt that begins or ends in between is seen by one of them only. What
//! stays different longer than a few seconds is what an operator looks for: a place that nobody has a right to, or an
//! attempt without its place.

use std::collections::{BTreeMap, BTreeSet};

use catalogue::Catalogue;
use chrono::{DateTime, Utc};
use control::{Control, SlotMember, SlotSet, SlotTag};
use domain::{AttemptRef, ModelName, ProviderAccountId, TenantId};
use task_state::{Holder, LiveSlot, TaskState};
use tenancy::{Page, Tenancy};

use crate::OperatorError;

/// Whom a look asks.
#[derive(Clone, Copy)]
pub struct SlotSources<'a> {
    /// Redis: who has a place.
    pub control: &'a Control,
    /// PostgreSQL: what lives.
    pub task_state: &'a TaskState,
    /// How many places there are at providers.
    pub catalogue: &'a Catalogue,
    /// How many places tenants and users have.
    pub tenancy: &'a Tenancy,
}

/// Whose slots are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotsOf {
    /// Every account's.
    Accounts,
    /// One account's.
    Account(ProviderAccountId),
    /// One tenant's.
    Tenant(TenantId),
}

/// What is to be seen.
#[derive(Debug, Clone)]
pub struct SlotsSeen {
    /// How the sets are filled.
    pub sets: Vec<SetSeen>,
    /// A part of the places, oldest task first.
    pub slots: Page<SlotSeen, AttemptRef>,
}

/// How a set is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSeen {
    /// Which.
    pub set: SlotSet,
    /// Places that are taken.
    pub used: usize,
    /// Places there are.
    pub limit: u32,
    /// Whether it is known to be complete. If not, nothing is submitted until it is.
    pub ready: bool,
}

/// A place, or an attempt that should have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSeen {
    /// Whose.
    pub attempt: AttemptRef,
    /// The account, as far as it is known.
    pub account: Option<ProviderAccountId>,
    /// Its place; none for a live attempt that has none.
    pub place: Option<PlaceSeen>,
    /// What PostgreSQL knows of the attempt; nothing when it was never claimed.
    pub holder: Option<Holder>,
}

/// A place as Redis has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceSeen {
    /// Vouched for until.
    pub vouched_until: DateTime<Utc>,
    /// Whether that is over. The place counts all the same.
    pub expired: bool,
}

/// Looks at the slots of accounts or of a tenant: all sets, and at most `limit` places after the given one. The sets are read
/// whole, for none holds more than its limit allows.
///
/// # Errors
/// [`OperatorError::Field`] for an account or tenant that there is not; else when a store fails.
pub async fn look_at_slots(
    sources: &SlotSources<'_>,
    of: &SlotsOf,
    after: Option<AttemptRef>,
    limit: u16,
) -> Result<SlotsSeen, OperatorError> {
    let tags = tags(sources, of).await?;
    let mut live = Vec::new();
    for tag in &tags {
        live.extend(match tag {
            SlotTag::Account(account) => sources.task_state.live_slots_of_account(account).await?,
            SlotTag::Tenant(tenant) => sources.task_state.live_slots_of_tenant(*tenant).await?,
        });
    }
    let mut sets = Vec::new();
    for tag in &tags {
        sets.extend(sets_of(sources, tag, &live).await?);
    }
    let names: Vec<SlotSet> = sets.iter().map(|(set, _)| set.clone()).collect();
    let members = sources.control.slot_members(&names).await?;
    let ready: Vec<bool> = sources.control.slots_ready(&tags).await?;
    let is_ready = |set: &SlotSet| tags.iter().zip(&ready).any(|(tag, ready)| *ready && *tag == tag_of(set));
    let slots = page(sources, &names, &members, &live, after, limit).await?;
    let sets = sets
        .into_iter()
        .zip(&members)
        .map(|((set, limit), members)| SetSeen { ready: is_ready(&set), used: members.len(), set, limit })
        .collect();
    Ok(SlotsSeen { sets, slots })
}

async fn tags(sources: &SlotSources<'_>, of: &SlotsOf) -> Result<Vec<SlotTag>, OperatorError> {
    Ok(match of {
        SlotsOf::Accounts => {
            sources.catalogue.accounts().map(|account| SlotTag::Account(account.id.clone())).collect()
        }
        SlotsOf::Account(id) => {
            let account = sources.catalogue.account(id);
            account.ok_or_else(|| OperatorError::field("account", "unknown_value", "is no account"))?;
            vec![SlotTag::Account(id.clone())]
        }
        SlotsOf::Tenant(id) => vec![SlotTag::Tenant(*id)],
    })
}

fn tag_of(set: &SlotSet) -> SlotTag {
    match set {
        SlotSet::Account(account) | SlotSet::Model(account, _) => SlotTag::Account(account.clone()),
        SlotSet::Tenant(tenant) | SlotSet::User(tenant, _) => SlotTag::Tenant(*tenant),
    }
}

/// The sets of a tag with the places that they have, the one with all places first. Of a tenant's users those who have a live
/// attempt.
async fn sets_of(
    sources: &SlotSources<'_>,
    tag: &SlotTag,
    live: &[LiveSlot],
) -> Result<Vec<(SlotSet, u32)>, OperatorError> {
    match tag {
        SlotTag::Account(id) => {
            let Some(account) = sources.catalogue.account(id) else { return Ok(Vec::new()) };
            let routes = sources.catalogue.models().iter().flat_map(|model| &model.routes);
            let models: BTreeSet<&ModelName> =
                routes.filter(|route| route.account == *id).map(|route| &route.provider_model).collect();
            let of_model =
                |model: &ModelName| (SlotSet::Model(id.clone(), model.clone()), account.slots_of(model));
            let all = (SlotSet::Account(id.clone()), account.slots);
            Ok(std::iter::once(all).chain(models.into_iter().map(of_model)).collect())
        }
        SlotTag::Tenant(id) => {
            let tier = sources.tenancy.tier_of_tenant(*id).await?;
            let tier =
                tier.ok_or_else(|| OperatorError::field("tenant_id", "unknown_value", "is no tenant"))?;
            let users: BTreeSet<_> = live.iter().map(|slot| slot.user).collect();
            let of_user = |user| (SlotSet::User(*id, user), tier.user.running);
            let all = (SlotSet::Tenant(*id), tier.tenant.running);
            Ok(std::iter::once(all).chain(users.into_iter().map(of_user)).collect())
        }
    }
}

/// The places of the sets that hold all of an account or a tenant, with the live attempts that have none.
async fn page(
    sources: &SlotSources<'_>,
    sets: &[SlotSet],
    members: &[Vec<SlotMember>],
    live: &[LiveSlot],
    after: Option<AttemptRef>,
    limit: u16,
) -> Result<Page<SlotSeen, AttemptRef>, OperatorError> {
    let mut places: BTreeMap<AttemptRef, (Option<&ProviderAccountId>, Option<SlotMember>)> =
        live.iter().map(|slot| (slot.attempt, (Some(&slot.account), None))).collect();
    for (set, members) in sets.iter().zip(members) {
        let account = match set {
            SlotSet::Account(account) => Some(account),
            SlotSet::Tenant(_) => None,
            SlotSet::Model(..) | SlotSet::User(..) => continue,
        };
        for member in members {
            let place = places.entry(member.attempt).or_default();
            place.0 = place.0.or(account);
            place.1 = Some(*member);
        }
    }
    let mut behind = places.into_iter().filter(|(attempt, _)| after.is_none_or(|after| *attempt > after));
    let here: Vec<_> = behind.by_ref().take(limit.into()).collect();
    let next = behind.next().and_then(|_| here.last().map(|(attempt, _)| *attempt));
    let attempts: Vec<AttemptRef> = here.iter().map(|(attempt, _)| *attempt).collect();
    let holders = sources.task_state.holders(&attempts).await?;
    let mut holders: BTreeMap<AttemptRef, Holder> =
        holders.into_iter().map(|holder| (holder.attempt, holder)).collect();
    let items = here
        .into_iter()
        .map(|(attempt, (account, member))| {
            let holder = holders.remove(&attempt);
            let account = holder.as_ref().map(|holder| &holder.account).or(account).cloned();
            SlotSeen { attempt, account, place: member.map(PlaceSeen::from), holder }
        })
        .collect();
    Ok(Page { items, next })
}

impl From<SlotMember> for PlaceSeen {
    fn from(member: SlotMember) -> Self {
        let vouched_until = DateTime::from_timestamp_millis(member.vouched_until_ms);
        Self { vouched_until: vouched_until.unwrap_or_default(), expired: member.expired }
    }
}
