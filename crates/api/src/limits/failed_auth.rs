//! Wrong credentials, counted per address.
//!
//! A valid credential always passes: behind one address may sit a whole office, and one broken script there must not
//! lock out the others. What is limited is being wrong. The count lies in Redis (a sliding log), so that it holds over
//! all processes; while Redis is away each process counts by itself.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use control::{Control, FailedAuthLimit, FailedAuthWindow};
use domain::limits::{LimitScope, Reset};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _, clock::DefaultClock};

use crate::{
    config::FailedAuth,
    limits::ip::{Slots, limited_address},
    problem::{Code, Problem, RefusedBy},
};

const POLICY: &str = "failed_auth";
/// How many closed addresses are remembered, so that their failures cost no trip to Redis.
const CLOSED_MAX: u64 = 10_000;

/// Counts wrong credentials.
pub(crate) struct FailedAuths(Option<Counted>);

struct Counted {
    limit: FailedAuthLimit,
    closed_until: moka::sync::Cache<IpAddr, Instant>,
    slots: Slots,
    fallback: DefaultKeyedRateLimiter<u16>,
}

impl FailedAuths {
    pub(crate) fn new(config: Option<FailedAuth>) -> Self {
        Self(config.and_then(|FailedAuth { limit, window_ms }| {
            let every = Duration::from_millis(window_ms).checked_div(limit)?;
            let quota = Quota::with_period(every)?.allow_burst(limit.try_into().ok()?);
            let window_ms = u32::try_from(window_ms).unwrap_or(u32::MAX);
            Some(Counted {
                limit: FailedAuthLimit { limit, window_ms },
                closed_until: moka::sync::Cache::builder()
                    .max_capacity(CLOSED_MAX)
                    .time_to_live(Duration::from_millis(u64::from(window_ms)))
                    .build(),
                slots: Slots::default(),
                fallback: RateLimiter::keyed(quota),
            })
        }))
    }

    /// Notes a wrong credential. The problem is what its bearer is told: that it is wrong, or, when the address was
    /// wrong too often, to come back later.
    pub(crate) async fn charge(&self, control: &Control, address: IpAddr) -> Problem {
        let Some(counted) = &self.0 else { return unknown_credential() };
        let address = limited_address(address);
        let now = Instant::now();
        if let Some(until) = counted.closed_until.get(&address).filter(|until| *until > now) {
            return counted.refusal(until - now);
        }
        let retry_after = match control.charge_failed_auth(address, counted.limit).await {
            Ok(FailedAuthWindow::Open { .. }) => None,
            Ok(FailedAuthWindow::Closed { retry_after_ms }) => Some(Duration::from_millis(retry_after_ms)),
            Err(_) => counted
                .fallback
                .check_key(&counted.slots.of(address))
                .err()
                .map(|until| until.wait_time_from(DefaultClock::default().now())),
        };
        match retry_after {
            None => unknown_credential(),
            Some(wait) => {
                counted.closed_until.insert(address, now + wait);
                counted.refusal(wait)
            }
        }
    }
}

impl Counted {
    fn refusal(&self, wait: Duration) -> Problem {
        metrics::counter!(domain::metric::RATE_LIMIT_REJECTED, "rule" => POLICY).increment(1);
        Problem::new(Code::RateLimited, "Too many wrong credentials from this network.")
            .retry_after(wait)
            .refused_by(RefusedBy {
                scope: LimitScope::Ip,
                policy: POLICY.into(),
                limit: self.limit.limit.into(),
                reset: Some(Reset::In(Duration::from_millis(self.limit.window_ms.into()))),
            })
    }
}

/// The one answer to every credential that doesn't work; why is nobody's business but its owner's.
pub(crate) fn unknown_credential() -> Problem {
    Problem::new(Code::Unauthenticated, "The credential is not known, has been revoked or is over.")
}
