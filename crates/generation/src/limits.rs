//! The limits of one submit: which buckets it asks, and what their answer says to the client.

use std::{net::IpAddr, time::Duration};

use control::{Admission, BucketState, InflowCharge, InflowCheck, InflowKey, IpCharge, RefusedBy, ReplayKey};
use domain::limits::{Bucket, LimitScope};
use tenancy::{LimitRules, Session};

use crate::{GenerationConfig, SubmitError, request::GenerationRequest};

/// The name of the submit rule in keys and metrics.
const RULE: &str = "submit";
/// The name of this route in keys, metrics and configuration.
const ENDPOINT: &str = "generations";

/// A limit as a client is told of it, in headers and in refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitState {
    /// Whose limit.
    pub scope: LimitScope,
    /// Its name.
    pub policy: &'static str,
    /// The most that can be used at once.
    pub limit: u32,
    /// The time in which that comes back.
    pub window: Duration,
    /// What is left now.
    pub remaining: u32,
    /// Until all of it is back.
    pub reset: Duration,
}

/// What a submit of this session asks of the limits. With `cost` 0 it only looks.
pub(crate) fn charge(
    session: &Session,
    request: &GenerationRequest,
    rules: &LimitRules,
    replay: Option<ReplayKey>,
    ip: Option<IpCharge>,
    cost: u32,
) -> InflowCharge {
    let principal = &session.principal;
    let check = |scope, key, bucket: Option<Bucket>| {
        bucket.map(|bucket| InflowCheck { scope, key, rule: RULE, bucket, cost })
    };
    let model = &request.model.name;
    let checks = [
        check(LimitScope::User, InflowKey::User(principal.user), session.tier.user.submit),
        check(LimitScope::Tenant, InflowKey::Tenant, session.tier.tenant.submit),
        check(LimitScope::Endpoint, InflowKey::Endpoint(ENDPOINT), rules.endpoints.get(ENDPOINT).copied()),
        check(LimitScope::Model, InflowKey::Model(model.clone()), rules.models.get(model).copied()),
    ];
    InflowCharge { tenant: principal.tenant, replay, checks: checks.into_iter().flatten().collect(), ip }
}

/// The shared counter of an address, if there is one.
pub(crate) fn ip_charge(config: &GenerationConfig, ip: Option<IpAddr>) -> Option<IpCharge> {
    let ip = ip.filter(|_| config.ip_requests > 0)?;
    Some(IpCharge { ip, limit: config.ip_requests, window_ms: config.ip_window_ms })
}

/// What an admission means for the submit: the limits to report, or the refusal. A replay is not meant here.
pub(crate) fn judge(charge: &InflowCharge, admission: Admission) -> Result<Vec<LimitState>, SubmitError> {
    match admission {
        Admission::Granted(states) => Ok(report(charge, &states)),
        Admission::Replay(_) => Ok(Vec::new()),
        Admission::Refused { by, retry_after_ms, states } => {
            let limits = report(charge, &states);
            let retry_after = Duration::from_millis(retry_after_ms.max(1));
            let by = match by {
                RefusedBy::Check(place) => limits.get(place).copied(),
                RefusedBy::Ip => charge.ip.map(|ip| of_ip(&ip, retry_after)),
            };
            let by = by.ok_or(SubmitError::Internal)?;
            Err(SubmitError::RateLimited { by, retry_after, limits })
        }
        Admission::CostAboveCapacity { check } => {
            let check = charge.checks.get(check).ok_or(SubmitError::Internal)?;
            let empty = BucketState { remaining: 0, reset_ms: 0 };
            Err(SubmitError::CostAboveCapacity { by: state(check, empty) })
        }
    }
}

fn report(charge: &InflowCharge, states: &[BucketState]) -> Vec<LimitState> {
    charge.checks.iter().zip(states).map(|(check, bucket)| state(check, *bucket)).collect()
}

fn state(check: &InflowCheck, bucket: BucketState) -> LimitState {
    LimitState {
        scope: check.scope,
        policy: policy(check.scope),
        limit: check.bucket.capacity,
        window: check.bucket.window(),
        remaining: bucket.remaining,
        reset: Duration::from_millis(bucket.reset_ms),
    }
}

fn of_ip(ip: &IpCharge, retry_after: Duration) -> LimitState {
    LimitState {
        scope: LimitScope::Ip,
        policy: policy(LimitScope::Ip),
        limit: ip.limit,
        window: Duration::from_millis(ip.window_ms.into()),
        remaining: 0,
        reset: retry_after,
    }
}

/// The name under which headers and refusals speak of a submit limit.
const fn policy(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::Ip => "submit-ip",
        LimitScope::Key => "submit-key",
        LimitScope::User => "submit-user",
        LimitScope::Tenant => "submit-tenant",
        LimitScope::Endpoint => "submit-endpoint",
        LimitScope::Model => "submit-model",
        LimitScope::Provider => "submit-provider",
    }
}
