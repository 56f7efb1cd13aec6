//! The limits of one submit: which ones it asks, and what their answer says to the client.

use std::{net::IpAddr, time::Duration};

use chrono::{DateTime, Utc};
use control::{
    Admission, CheckState, InflowCharge, InflowCheck, InflowKey, InflowLimit, IpCharge, RefusedBy, Standing,
};
use domain::{
    LocalDay,
    limits::{Bucket, LimitScope, Window},
    principal::Credential,
};
use ledger::{DailyQuota, QuotaStanding, QuotaWindows};
use tenancy::{
    Session,
    limit_rules::{Figure, LimitName, Shadow},
};

use crate::{GenerationConfig, SubmitError, batch::Element};

/// The name of the submit rule in keys and metrics.
const SUBMIT: &str = "submit";
/// The name of the rule about expensive models in metrics.
const EXPENSIVE: &str = "expensive";
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

/// What this submit of the session asks of the limits.
pub(crate) fn charge(session: &Session, element: &Element, ip: Option<IpCharge>) -> InflowCharge {
    let (user, tier, rules) = (session.principal.user, &session.tier, &session.rules);
    let model = &element.request.model;
    let of_user = match &rules.key_submit {
        Some(own) => bucket(InflowKey::Key(own.key.clone()), own.bucket),
        None => bucket(InflowKey::User(user), tier.user.submit),
    };
    let expensive = tier.expensive.filter(|_| model.expensive);
    let checks = [
        of_user,
        bucket(InflowKey::Tenant, tier.tenant.submit),
        bucket(InflowKey::Endpoint(ENDPOINT), rules.routes.endpoints.get(ENDPOINT).copied()),
        bucket(InflowKey::Model(model.name.clone()), rules.routes.models.get(&model.name).copied()),
        expensive.map(|window| strict(session, element, window)),
    ];
    let shadows = rules.shadows.iter().filter_map(|shadow| shadow_check(shadow, session, element));
    InflowCharge {
        tenant: session.principal.tenant,
        replay: element.replay_key(),
        checks: checks.into_iter().flatten().chain(shadows).collect(),
        ip,
    }
}

fn bucket(key: InflowKey, bucket: Option<Bucket>) -> Option<InflowCheck> {
    let limit = InflowLimit::Bucket(bucket?);
    Some(InflowCheck { scope: scope(&key), key, rule: SUBMIT, limit, cost: 1, shadow: false })
}

fn strict(session: &Session, element: &Element, window: Window) -> InflowCheck {
    let key = InflowKey::Expensive(session.principal.user, element.request.model.name.clone());
    let limit = InflowLimit::Window { window, entry: entry(element) };
    InflowCheck { scope: scope(&key), key, rule: EXPENSIVE, limit, cost: 1, shadow: false }
}

/// What a limit in shadow mode counts of this submit, if anything.
fn shadow_check(shadow: &Shadow, session: &Session, element: &Element) -> Option<InflowCheck> {
    let (principal, model) = (&session.principal, &element.request.model);
    let key = match &shadow.limit {
        // Where the key's own bucket counts, the user's doesn't.
        LimitName::SubmitUser if session.rules.key_submit.is_none() => InflowKey::User(principal.user),
        LimitName::SubmitKey => match &principal.credential {
            Credential::Key(key) => InflowKey::Key(key.clone()),
            Credential::BrowserToken(_) => return None,
        },
        LimitName::SubmitTenant => InflowKey::Tenant,
        LimitName::SubmitEndpoint(ENDPOINT) => InflowKey::Endpoint(ENDPOINT),
        LimitName::SubmitModel(name) if *name == model.name => InflowKey::Model(name.clone()),
        LimitName::ExpensiveUser if model.expensive => {
            let Figure::Window(Some(window)) = shadow.figure else { return None };
            return Some(InflowCheck { shadow: true, ..strict(session, element, window) });
        }
        _ => return None,
    };
    let Figure::Bucket(figure) = shadow.figure else { return None };
    Some(InflowCheck { shadow: true, ..bucket(key, figure)? })
}

/// The shadows that would have refused this submit.
pub(crate) fn refusing_shadows<'a>(
    session: &'a Session,
    element: &'a Element,
    charge: &'a InflowCharge,
    states: &'a [CheckState],
) -> impl Iterator<Item = &'a Shadow> {
    let asked = charge.checks.iter().zip(states).filter(|(check, _)| check.shadow).map(|(_, state)| state);
    let shadows = session.rules.shadows.iter();
    let counted = shadows.filter(|shadow| shadow_check(shadow, session, element).is_some());
    counted.zip(asked).filter(|(_, state)| state.standing == Standing::Short).map(|(shadow, _)| shadow)
}

/// What a window counts this submit as. Twins under one idempotency key are one, as they make one task; another request
/// under that key is not, or it could take the first one's place in the window back with its own.
fn entry(element: &Element) -> String {
    match &element.key {
        Some(key) => format!("{}.{}", hex::encode(key.hash), hex::encode(&key.fingerprint[..8])),
        None => element.task.to_string(),
    }
}

/// The shared counter of an address, if there is one.
pub(crate) fn ip_charge(config: &GenerationConfig, ip: Option<IpAddr>) -> Option<IpCharge> {
    let ip = ip.filter(|_| config.ip_requests > 0)?;
    Some(IpCharge { ip, limit: config.ip_requests, window_ms: config.ip_window_ms })
}

/// Whether a limit counts this request so strictly that only the shared count will do.
pub(crate) fn is_strict(charge: &InflowCharge) -> bool {
    charge.checks.iter().any(|check| is_window(&check.limit) && !check.shadow)
}

pub(crate) const fn is_window(limit: &InflowLimit) -> bool {
    matches!(limit, InflowLimit::Window { .. })
}

/// What an admission means for the submit: the limits to report, or the refusal. A replay is not meant here.
pub(crate) fn judge(charge: &InflowCharge, admission: &Admission) -> Result<Vec<LimitState>, SubmitError> {
    match admission {
        Admission::Granted(states) => Ok(report(charge, states)),
        Admission::Replay(_) => Ok(Vec::new()),
        Admission::Refused { by, retry_after_ms, states } => {
            let retry_after = Duration::from_millis((*retry_after_ms).max(1));
            let by = match by {
                RefusedBy::Check(place) => {
                    charge.checks.get(*place).zip(states.get(*place)).map(|(check, at)| state(check, *at))
                }
                RefusedBy::Ip => charge.ip.map(|ip| of_ip(&ip, retry_after)),
            };
            let by = by.ok_or(SubmitError::Internal)?;
            Err(SubmitError::RateLimited { by, retry_after, limits: report(charge, states) })
        }
        Admission::CostAboveCapacity { check } => {
            let check = charge.checks.get(*check).ok_or(SubmitError::Internal)?;
            let empty = CheckState { remaining: 0, reset_ms: 0, standing: Standing::Short };
            Err(SubmitError::CostAboveCapacity { by: state(check, empty) })
        }
    }
}

/// The limits that bind. Of a shadow nobody is told but its operator.
fn report(charge: &InflowCharge, states: &[CheckState]) -> Vec<LimitState> {
    let checks = charge.checks.iter().zip(states);
    checks.filter(|(check, _)| !check.shadow).map(|(check, at)| state(check, *at)).collect()
}

fn state(check: &InflowCheck, at: CheckState) -> LimitState {
    LimitState {
        scope: check.scope,
        policy: policy(&check.key),
        limit: check.limit.most(),
        window: match &check.limit {
            InflowLimit::Bucket(bucket) => bucket.window(),
            InflowLimit::Window { window, .. } => window.length(),
        },
        remaining: at.remaining,
        reset: Duration::from_millis(at.reset_ms),
    }
}

fn of_ip(ip: &IpCharge, retry_after: Duration) -> LimitState {
    LimitState {
        scope: LimitScope::Ip,
        policy: "submit-ip",
        limit: ip.limit,
        window: Duration::from_millis(ip.window_ms.into()),
        remaining: 0,
        reset: retry_after,
    }
}

/// The daily quotas of a submit's owners, for as far as they have any.
pub(crate) fn of_days(windows: &QuotaWindows, quota: &DailyQuota, now: DateTime<Utc>) -> Vec<LimitState> {
    windows.standings(quota).map(|standing| of_day(standing, quota.day, now)).collect()
}

pub(crate) fn of_day(standing: QuotaStanding, day: LocalDay, now: DateTime<Utc>) -> LimitState {
    let QuotaStanding { scope, used, limit } = standing;
    LimitState {
        scope,
        policy: if scope == LimitScope::Tenant { "daily-tenant" } else { "daily-user" },
        limit,
        window: day.length(),
        remaining: limit.saturating_sub(used),
        reset: day.left_at(now),
    }
}

/// The name under which headers and refusals speak of a submit limit.
const fn policy(key: &InflowKey) -> &'static str {
    match key {
        InflowKey::User(_) => "submit-user",
        InflowKey::Key(_) => "submit-key",
        InflowKey::Tenant => "submit-tenant",
        InflowKey::Endpoint(_) => "submit-endpoint",
        InflowKey::Model(_) => "submit-model",
        InflowKey::Expensive(..) => "expensive-user",
    }
}

/// Whom headers and refusals call a submit limit's subject.
const fn scope(key: &InflowKey) -> LimitScope {
    match key {
        InflowKey::User(_) | InflowKey::Expensive(..) => LimitScope::User,
        InflowKey::Key(_) => LimitScope::Key,
        InflowKey::Tenant => LimitScope::Tenant,
        InflowKey::Endpoint(_) => LimitScope::Endpoint,
        InflowKey::Model(_) => LimitScope::Model,
    }
}
