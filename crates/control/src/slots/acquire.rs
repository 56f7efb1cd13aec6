//! Taking places.

use std::time::Duration;

use domain::{limits::Bucket, metric, wait::WaitReason};

use super::{MARKER_TTL, SETS_TTL, grouped::CHUNK};
use crate::{
    Control, ControlError, Sent, SlotClaim, SlotOutcome, SlotSet, SlotTag, Trips,
    instance::parse,
    script::{Call, Script},
    ttl::{jittered_ms, millis},
};

/// How long a dispatch bucket that nobody uses is remembered. Forgetting it is safe (it starts empty) but slow.
const DISPATCH_TTL: Duration = Duration::from_secs(24 * 3_600);

// A set that vanished while its marker stood would count as empty.
const _: () = assert!(MARKER_TTL.as_secs() * 11 / 10 < SETS_TTL.as_secs());

impl Control {
    /// Takes places: account and model (with the dispatch rates) first, then tenant and user; where one pair refuses,
    /// the other is given back. It may for a moment under-admit, never over-admit. Repeating a claim that holds its
    /// places gives `Acquired` again and charges no rate.
    ///
    /// One outcome per claim. After `Unknown`, release the slot and claim it again.
    pub async fn acquire_slots(
        &self,
        claims: &[SlotClaim],
        trips: Trips,
    ) -> Vec<Result<SlotOutcome, ControlError>> {
        let all: Vec<usize> = (0..claims.len()).collect();
        let asked = |indexes: &[usize], pair| indexes.iter().map(|index| (&claims[*index], pair)).collect();
        let (mut outcomes, second) = match trips {
            Trips::One => {
                let mut pairs: Vec<_> = asked(&all, Pair::Account);
                pairs.extend(asked(&all, Pair::Tenant));
                let mut first = self.acquire_pairs(pairs).await;
                let second = first.split_off(claims.len());
                (first, all.into_iter().zip(second).collect::<Vec<_>>())
            }
            Trips::Two => {
                let first = self.acquire_pairs(asked(&all, Pair::Account)).await;
                let through: Vec<usize> =
                    all.into_iter().filter(|index| first[*index] == Ok(SlotOutcome::Acquired)).collect();
                let second = self.acquire_pairs(asked(&through, Pair::Tenant)).await;
                (first, through.into_iter().zip(second).collect())
            }
        };
        let mut give_back = Vec::new();
        for (index, second) in second {
            match (&outcomes[index], second) {
                (Ok(SlotOutcome::Acquired), Ok(SlotOutcome::Acquired)) => continue,
                // The account's place is held, so whatever failed here, the caller must release before trying again.
                (Ok(SlotOutcome::Acquired), second) => {
                    outcomes[index] = second.map_err(|_| ControlError::Unknown);
                }
                (_, Ok(SlotOutcome::Acquired)) => {}
                (_, _) => continue,
            }
            give_back.push(index);
        }
        if !give_back.is_empty() {
            let slots: Vec<_> = give_back.iter().map(|index| claims[*index].slot()).collect();
            if self.release_slots(&slots, Sent::No).await.is_err() {
                for index in give_back {
                    outcomes[index] = Err(ControlError::Unknown);
                }
            }
        }
        count(&outcomes);
        outcomes
    }

    /// One trip.
    async fn acquire_pairs(&self, asked: Vec<(&SlotClaim, Pair)>) -> Vec<Result<SlotOutcome, ControlError>> {
        let groups = alike(&asked);
        let calls = groups.iter().map(|group| self.acquire_call(&asked, group)).collect();
        let mut outcomes = vec![Err(ControlError::Unknown); asked.len()];
        match self.0.control.calls(calls).await {
            Ok(replies) => {
                for (group, reply) in groups.iter().zip(replies) {
                    let replies = reply.and_then(parse::<Vec<Vec<u64>>>);
                    for (place, index) in group.iter().enumerate() {
                        let (claim, pair) = asked[*index];
                        let numbers =
                            replies.as_ref().map(|all| all.get(place).map_or(&[][..], Vec::as_slice));
                        outcomes[*index] =
                            numbers.map_err(Clone::clone).and_then(|numbers| read(numbers, claim, pair));
                    }
                }
            }
            Err(error) => outcomes.fill(Err(error)),
        }
        outcomes
    }

    /// The call of claims that are alike, in their order.
    fn acquire_call(&self, asked: &[(&SlotClaim, Pair)], group: &[usize]) -> Call {
        let keys = self.keys();
        let (first, pair) = asked[group[0]];
        let (marker, broad, broad_limit) = match pair {
            Pair::Account => (
                SlotTag::Account(first.account.clone()),
                SlotSet::Account(first.account.clone()),
                first.limits.account,
            ),
            Pair::Tenant => {
                (SlotTag::Tenant(first.tenant), SlotSet::Tenant(first.tenant), first.limits.tenant)
            }
        };
        let mut names = vec![keys.slots_ready(&marker), keys.slots(&broad)];
        if pair == Pair::Account {
            names.push(keys.health(&first.account));
            names.push(keys.dispatch_account(&first.account));
            names.push(keys.dispatch_model(&first.account, &first.model));
            names.push(keys.probes(&first.account));
        }
        let fixed = names.len();
        let members: Vec<_> = group
            .iter()
            .map(|index| {
                let (claim, _) = asked[*index];
                let (narrow, limit) = match pair {
                    Pair::Account => {
                        (SlotSet::Model(claim.account.clone(), claim.model.clone()), claim.limits.model)
                    }
                    Pair::Tenant => (SlotSet::User(claim.tenant, claim.user), claim.limits.user),
                };
                let narrow = keys.slots(&narrow);
                let place = names[fixed..].iter().position(|name| *name == narrow).unwrap_or_else(|| {
                    names.push(narrow);
                    names.len() - 1 - fixed
                });
                (claim.attempt.to_string(), place + 1, limit)
            })
            .collect();
        let call = Script::SlotAcquire
            .on(&names)
            .arg(if pair == Pair::Account { "account" } else { "tenant" })
            .arg(broad_limit)
            .arg(millis(self.0.slot_vouch))
            .arg(jittered_ms(SETS_TTL));
        let call = match pair {
            Pair::Tenant => call,
            Pair::Account => {
                let call = call.arg(first.model.as_str()).arg(jittered_ms(DISPATCH_TTL));
                rate_args(rate_args(call, first.rates.account), first.rates.model)
            }
        };
        members.into_iter().fold(call, |call, (member, place, limit)| call.arg(member).arg(place).arg(limit))
    }
}

/// The indexes of claims that one script serves in their order: those of a model at an account, and those of a tenant.
fn alike(asked: &[(&SlotClaim, Pair)]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, (claim, pair)) in asked.iter().enumerate() {
        let is_like = |group: &&mut Vec<usize>| {
            let (first, first_pair) = asked[group[0]];
            let same = match pair {
                Pair::Account => {
                    (&first.account, &first.model) == (&claim.account, &claim.model)
                        && (first.limits.account, first.limits.model)
                            == (claim.limits.account, claim.limits.model)
                        && first.rates == claim.rates
                }
                Pair::Tenant => (first.tenant, first.limits.tenant) == (claim.tenant, claim.limits.tenant),
            };
            first_pair == *pair && same && group.len() < CHUNK
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// The two halves of a claim, each under a tag of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pair {
    Account,
    Tenant,
}

fn rate_args(call: Call, rate: Option<Bucket>) -> Call {
    match rate {
        None => call.arg(0).arg(1).arg(1),
        // A bucket that can never hold one token would stop the account silently.
        Some(bucket) => call.arg(bucket.capacity.max(1)).arg(bucket.refill.max(1)).arg(bucket.per_ms.max(1)),
    }
}

fn read(numbers: &[u64], claim: &SlotClaim, pair: Pair) -> Result<SlotOutcome, ControlError> {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(match (numbers, pair) {
        ([1], _) => SlotOutcome::Acquired,
        ([0], Pair::Account) => SlotOutcome::NotReady { tag: SlotTag::Account(claim.account.clone()) },
        ([0], Pair::Tenant) => SlotOutcome::NotReady { tag: SlotTag::Tenant(claim.tenant) },
        ([2, which, used, limit], _) => SlotOutcome::Full {
            reason: match (pair, which) {
                (Pair::Account, 1) => WaitReason::ProviderConcurrency,
                (Pair::Account, _) => WaitReason::ModelConcurrency,
                (Pair::Tenant, 1) => WaitReason::TenantConcurrency,
                (Pair::Tenant, _) => WaitReason::UserConcurrency,
            },
            used: small(*used),
            limit: small(*limit),
        },
        ([3, retry_after_ms], _) => SlotOutcome::Rate { retry_after_ms: (*retry_after_ms).max(1) },
        ([4, retry_after_ms], _) => SlotOutcome::NotBefore { retry_after_ms: (*retry_after_ms).max(1) },
        ([5, retry_after_ms], _) => SlotOutcome::BreakerOpen { retry_after_ms: (*retry_after_ms).max(1) },
        (other, _) => return Err(ControlError::Protocol(format!("slot_acquire.lua answered {other:?}"))),
    })
}

fn count(outcomes: &[Result<SlotOutcome, ControlError>]) {
    for outcome in outcomes {
        let reason = match outcome {
            Ok(SlotOutcome::Acquired) => {
                metrics::counter!(metric::SLOT_ACQUIRE_SUCCESS).increment(1);
                continue;
            }
            Ok(SlotOutcome::Full { reason, .. }) => reason.as_str(),
            Ok(SlotOutcome::Rate { .. }) => WaitReason::ProviderRate.as_str(),
            Ok(SlotOutcome::NotBefore { .. }) => WaitReason::ProviderBackoff.as_str(),
            Ok(SlotOutcome::BreakerOpen { .. }) => WaitReason::BreakerOpen.as_str(),
            Ok(SlotOutcome::NotReady { .. }) => "not_ready",
            Err(_) => WaitReason::ControlUnavailable.as_str(),
        };
        metrics::counter!(metric::SLOT_ACQUIRE_REJECTED, "reason" => reason).increment(1);
    }
}
