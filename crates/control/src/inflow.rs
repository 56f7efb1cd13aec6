//! Limits at the entry: token buckets and strict windows decided together, the replay entry before them, the counter of
//! the address.
//!
//! One request is one script on the tenant's tag and one on the address's, in one pipeline. Concurrent requests
//! share that pipeline (see [`Gatherer`]). Passing here is not permission: the transaction in PostgreSQL is.

mod admit;
mod gather;
mod refund;
mod replay;
mod reply;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use domain::{
    KeyId, ModelName, TenantId, UserId,
    limits::{Bucket, LimitScope, Window},
};
use serde::{Deserialize, Serialize};

pub(crate) use gather::Gatherer;

/// What one request asks of the limits.
#[derive(Debug, Clone)]
pub struct InflowCharge {
    /// The tenant; all limits of one request are its own.
    pub tenant: TenantId,
    /// The idempotency key, if the request has one.
    pub replay: Option<ReplayKey>,
    /// The limits, decided together: refused by one is charged by none. May be empty.
    pub checks: Vec<InflowCheck>,
    /// The shared counter of the caller's address.
    pub ip: Option<IpCharge>,
}

/// One limit of a request.
#[derive(Debug, Clone)]
pub struct InflowCheck {
    /// What refusals and headers call it.
    pub scope: LimitScope,
    /// Whose limit it is.
    pub key: InflowKey,
    /// The name of the rule; part of the key and a metric label, so from configuration, never from a request.
    pub rule: &'static str,
    /// Its size.
    pub limit: InflowLimit,
    /// How much of it is wanted.
    pub cost: u32,
    /// A shadow counts like any other limit, in a place of its own, and tells when it would have refused; it refuses nobody.
    pub shadow: bool,
}

/// How a limit counts.
#[derive(Debug, Clone, PartialEq)]
pub enum InflowLimit {
    /// By tokens: a burst, and a rate.
    Bucket(Bucket),
    /// One by one: never more in any stretch of the window's length.
    Window {
        /// The window.
        window: Window,
        /// Names what this request adds. The same name is counted once, so twins of a request are one.
        entry: String,
    },
}

impl InflowLimit {
    /// The most that can be had at once.
    #[must_use]
    pub const fn most(&self) -> u32 {
        match self {
            Self::Bucket(bucket) => bucket.capacity,
            Self::Window { window, .. } => window.limit,
        }
    }
}

/// Whose limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InflowKey {
    /// A user's.
    User(UserId),
    /// An API key's.
    Key(KeyId),
    /// The tenant's.
    Tenant,
    /// A route's, within the tenant.
    Endpoint(&'static str),
    /// A model's, within the tenant.
    Model(ModelName),
    /// A user's, of one expensive model.
    Expensive(UserId, ModelName),
}

/// A sliding counter for one address (IPv6: its /64).
#[derive(Debug, Clone, Copy)]
pub struct IpCharge {
    /// The address.
    pub ip: IpAddr,
    /// Requests per window.
    pub limit: u32,
    /// The window in milliseconds.
    pub window_ms: u32,
}

/// Names an answer that may be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayKey {
    /// Who used the key.
    pub user: UserId,
    /// A hash of route and key, so that no client writes into our keyspace.
    pub hash: String,
}

/// An answer given before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// Hash of the request that got it; another request under the same key is a mismatch.
    pub fingerprint: String,
}

/// The limits' answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The same key was answered before. No limit was charged.
    Replay(StoredAnswer),
    /// Go on. One state per check, in order.
    Granted(Vec<CheckState>),
    /// No. No limit was charged.
    Refused {
        /// What refused; if several did, the one with the longest wait.
        by: RefusedBy,
        /// After this a request alone succeeds. At least 1.
        retry_after_ms: u64,
        /// One state per check, in order.
        states: Vec<CheckState>,
    },
    /// The check asks for more than its limit can ever hold: waiting would not help.
    CostAboveCapacity {
        /// Index of the check.
        check: usize,
    },
}

/// What refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    /// The check of this index.
    Check(usize),
    /// The address's counter.
    Ip,
}

/// A limit after the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckState {
    /// What is left, in whole numbers.
    pub remaining: u32,
    /// Until all of it is back.
    pub reset_ms: u64,
    /// How the request stands with it.
    pub standing: Standing,
}

/// How a request stands with one of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It lets the request through; a granted request was charged to it.
    Passes,
    /// It had counted this very request before, and did not again.
    Counted,
    /// Too little is left. That refused the request, unless the check is a shadow.
    Short,
}
