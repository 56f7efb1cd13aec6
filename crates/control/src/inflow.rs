//! Limits at the entry: token buckets decided together, the replay entry before them, the counter of the address.
//!
//! One request is one script on the tenant's tag and one on the address's, in one pipeline. Concurrent requests
//! share that pipeline (see [`Gatherer`]). Passing here is not permission: the transaction in PostgreSQL is.

mod admit;
mod gather;
mod refund;
mod replay;

use std::net::IpAddr;

use domain::{
    ModelName, TenantId, UserId,
    limits::{Bucket, LimitScope},
};
use serde::{Deserialize, Serialize};

pub(crate) use gather::Gatherer;

/// What one request asks of the limits.
#[derive(Debug, Clone)]
pub struct InflowCharge {
    /// The tenant; all buckets of one request are its own.
    pub tenant: TenantId,
    /// The idempotency key, if the request has one.
    pub replay: Option<ReplayKey>,
    /// The buckets, decided together: refused by one is charged by none. May be empty.
    pub checks: Vec<InflowCheck>,
    /// The shared counter of the caller's address.
    pub ip: Option<IpCharge>,
}

/// One bucket of a request.
#[derive(Debug, Clone)]
pub struct InflowCheck {
    /// What refusals and headers call it.
    pub scope: LimitScope,
    /// Whose bucket it is.
    pub key: InflowKey,
    /// The name of the rule; part of the key and a metric label, so from configuration, never from a request.
    pub rule: &'static str,
    /// Its size and rate.
    pub bucket: Bucket,
    /// Tokens wanted.
    pub cost: u32,
}

/// Whose bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InflowKey {
    /// A user's.
    User(UserId),
    /// The tenant's.
    Tenant,
    /// A route's, within the tenant.
    Endpoint(&'static str),
    /// A model's, within the tenant.
    Model(ModelName),
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
    /// The same key was answered before. Nothing was charged to a bucket.
    Replay(StoredAnswer),
    /// Go on. One state per check, in order.
    Granted(Vec<BucketState>),
    /// No. Nothing was charged to a bucket.
    Refused {
        /// What refused; if several did, the one with the longest wait.
        by: RefusedBy,
        /// After this a request alone succeeds. At least 1.
        retry_after_ms: u64,
        /// One state per check, in order.
        states: Vec<BucketState>,
    },
    /// The check asks for more than its bucket can ever hold: waiting would not help.
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

/// A bucket after the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketState {
    /// Whole tokens left.
    pub remaining: u32,
    /// Until it is full again.
    pub reset_ms: u64,
}
