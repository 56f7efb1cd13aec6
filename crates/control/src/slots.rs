//! Slots: who holds a place at a provider, as sets of attempts and never as bare counters.
//!
//! A slot belongs to the provider job. Its member is `<task>.<attempt>`, its score the time until which an owner
//! vouches for it. **An expired member still counts**: only [`crate::Control::remove_slots`] and
//! [`crate::Control::remove_slot_members`], called by a reconciler that has asked the database, and
//! [`crate::Control::release_slots`], called when the provider is through, take it out.
//!
//! A tag (an account or a tenant) whose marker is missing may have lost members, so nothing is acquired there until
//! it is rebuilt. The marker lives shorter than the sets, so a set never vanishes while its marker says all is well.

mod acquire;
mod grouped;
mod members;
mod rebuild;
mod release;
#[cfg(test)]
mod tests;
mod vouch;

use std::time::Duration;

use domain::{AttemptRef, ModelName, ProviderAccountId, TenantId, UserId, limits::Bucket, wait::WaitReason};

/// How long a rebuilt tag counts as complete.
const MARKER_TTL: Duration = Duration::from_secs(3_600);
/// How long a set lives that nobody touches. Longer than the marker with its jitter.
const SETS_TTL: Duration = Duration::from_secs(2 * 3_600);

/// One attempt that wants a place.
#[derive(Debug, Clone)]
pub struct SlotClaim {
    /// The task and the attempt number that its claim will confirm.
    pub attempt: AttemptRef,
    /// Where.
    pub account: ProviderAccountId,
    /// The provider's model.
    pub model: ModelName,
    /// For whom.
    pub tenant: TenantId,
    /// For whom.
    pub user: UserId,
    /// Places there are.
    pub limits: SlotLimits,
    /// Submits per time; taken together with the account's place.
    pub rates: DispatchRates,
}

/// Places per set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// At the provider account.
    pub account: u32,
    /// For the model at that account.
    pub model: u32,
    /// For the tenant.
    pub tenant: u32,
    /// For the user.
    pub user: u32,
}

/// Submit rates at the provider. A missing bucket starts empty.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DispatchRates {
    /// Of the account.
    pub account: Option<Bucket>,
    /// Of the model at that account.
    pub model: Option<Bucket>,
}

/// How the two pairs of a claim are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trips {
    /// Both at once, for when there is likely room: where one pair refuses, the other was held for a moment in vain, and
    /// whoever asked for it in that moment may have found it full.
    One,
    /// The tenant's pair only for those that got the account's.
    Two,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotOutcome {
    /// All four places are held (perhaps since an earlier call).
    Acquired,
    /// One of the sets is full.
    Full {
        /// Which, in the words that the task's owner is told.
        reason: WaitReason,
        /// Places taken.
        used: u32,
        /// Places there are.
        limit: u32,
    },
    /// The submit rate is used up.
    Rate {
        /// Until the next token. At least 1.
        retry_after_ms: u64,
    },
    /// The provider asked us to wait.
    NotBefore {
        /// How long still. At least 1.
        retry_after_ms: u64,
    },
    /// The account's breaker is open, or half-open while somebody probes.
    BreakerOpen {
        /// Until the next probe may be let through. At least 1.
        retry_after_ms: u64,
    },
    /// The tag may have lost members: rebuild it (see [`crate::Control::begin_rebuild`]) before anything is submitted.
    NotReady {
        /// Which.
        tag: SlotTag,
    },
}

/// A group of sets with one hash tag and one readiness marker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SlotTag {
    /// A provider account's sets.
    Account(ProviderAccountId),
    /// A tenant's sets.
    Tenant(TenantId),
}

/// One set of slots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SlotSet {
    /// All of an account.
    Account(ProviderAccountId),
    /// Those of one of its models.
    Model(ProviderAccountId, ModelName),
    /// All of a tenant.
    Tenant(TenantId),
    /// Those of one of its users.
    User(TenantId, UserId),
}

/// Where the slots of one attempt are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotRef {
    /// The member.
    pub attempt: AttemptRef,
    /// The account.
    pub account: ProviderAccountId,
    /// The provider's model.
    pub model: ModelName,
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
}

impl SlotClaim {
    /// Where its slots are.
    #[must_use]
    pub fn slot(&self) -> SlotRef {
        SlotRef {
            attempt: self.attempt,
            account: self.account.clone(),
            model: self.model.clone(),
            tenant: self.tenant,
            user: self.user,
        }
    }
}

/// Whether the attempt reached the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It did, or may have.
    Yes,
    /// Certainly not: its dispatch tokens go back.
    No,
}

/// Whether a slot that was vouched for is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vouched {
    /// In all four sets.
    Kept,
    /// Missing in at least one: Redis lost it. Put it back by [`crate::Control::restore_slots`] if the attempt lives.
    Missing,
}

/// A member of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotMember {
    /// Whose.
    pub attempt: AttemptRef,
    /// Vouched for until (milliseconds since 1970, Redis time).
    pub vouched_until_ms: i64,
    /// Whether that is over. The member counts all the same.
    pub expired: bool,
}

/// The right to rebuild one tag, for a few seconds.
#[derive(Debug)]
pub struct RebuildTicket {
    pub(crate) tag: SlotTag,
    pub(crate) token: String,
}

impl RebuildTicket {
    /// What is rebuilt.
    #[must_use]
    pub const fn tag(&self) -> &SlotTag {
        &self.tag
    }
}

/// How a rebuild ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// The members are in and the marker is set.
    Done,
    /// The ticket ran out, or Redis was flushed meanwhile. Begin again: the live attempts must be read anew.
    Lost,
}
