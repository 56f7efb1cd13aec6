//! The read bucket of each key, kept in this process: a read never costs a trip to Redis for being counted.
//!
//! Everything that isn't a submit is counted here. With several processes each keeps its own share.

use std::{sync::Arc, time::Duration};

use domain::{
    limits::{Bucket, LimitScope, Reset},
    principal::Credential,
};
use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    middleware::StateInformationMiddleware,
    state::{InMemoryState, NotKeyed},
};

use crate::{
    limits::{LimitLine, LimitLines},
    problem::{Code, Problem, RefusedBy},
};

/// How many keys are remembered; a forgotten one starts full again.
const KEYS_MAX: u64 = 100_000;
/// A key that was quiet for so long has a full bucket anyway (or nearly).
const FORGET_AFTER: Duration = Duration::from_secs(300);
const POLICY: &str = "reads";

type Limiter = RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>;

/// The read buckets of all keys.
pub(crate) struct ReadLimits {
    of_key: moka::sync::Cache<Credential, Arc<Reads>>,
    clock: DefaultClock,
}

struct Reads {
    bucket: Bucket,
    limiter: Limiter,
}

impl ReadLimits {
    pub(crate) fn new() -> Self {
        let of_key = moka::sync::Cache::builder().max_capacity(KEYS_MAX).time_to_idle(FORGET_AFTER).build();
        Self { of_key, clock: DefaultClock::default() }
    }

    /// Charges one request to the key. None: the key has no read limit.
    pub(crate) fn charge(
        &self,
        key: &Credential,
        bucket: Option<Bucket>,
    ) -> Result<Option<LimitLines>, Problem> {
        let Some(reads) = bucket.and_then(|bucket| self.of(key, bucket)) else { return Ok(None) };
        match reads.limiter.check() {
            Ok(state) => Ok(Some(lines(reads.bucket, state.remaining_burst_capacity()))),
            Err(until) => {
                metrics::counter!(domain::metric::RATE_LIMIT_REJECTED, "rule" => POLICY).increment(1);
                Err(refusal(reads.bucket, until.wait_time_from(self.clock.now())))
            }
        }
    }

    /// Charges one request to a bucket that only counts. Says whether it would have refused.
    pub(crate) fn would_refuse(&self, key: &Credential, bucket: Bucket) -> bool {
        let over = self.of(key, bucket).is_some_and(|reads| reads.limiter.check().is_err());
        if over {
            let (scope, rule) = (LimitScope::Key.as_str(), POLICY);
            metrics::counter!(domain::metric::RATE_LIMIT_SHADOW, "scope" => scope, "rule" => rule)
                .increment(1);
        }
        over
    }

    /// The bucket of a key. None: it has no size that a limiter could keep.
    fn of(&self, key: &Credential, bucket: Bucket) -> Option<Arc<Reads>> {
        let quota = quota(bucket)?;
        let make = || Arc::new(Reads { bucket, limiter: fresh(quota) });
        Some(match self.of_key.get(key) {
            // A key whose tier has changed gets the new tier's bucket.
            Some(reads) if reads.bucket == bucket => reads,
            Some(_) => {
                let reads = make();
                self.of_key.insert(key.clone(), Arc::clone(&reads));
                reads
            }
            None => self.of_key.get_with_by_ref(key, make),
        })
    }
}

fn quota(bucket: Bucket) -> Option<Quota> {
    let every = Duration::from_millis(bucket.per_ms).checked_div(bucket.refill)?;
    Some(Quota::with_period(every)?.allow_burst(bucket.capacity.try_into().ok()?))
}

fn fresh(quota: Quota) -> Limiter {
    DefaultDirectRateLimiter::direct(quota).with_middleware()
}

fn lines(bucket: Bucket, remaining: u32) -> LimitLines {
    let missing = Bucket { capacity: bucket.capacity.saturating_sub(remaining), ..bucket };
    LimitLines(vec![LimitLine {
        policy: POLICY.into(),
        quota: bucket.capacity.into(),
        window_seconds: bucket.window().as_secs().max(1),
        remaining: remaining.into(),
        reset_seconds: missing.window().as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX),
    }])
}

fn refusal(bucket: Bucket, wait: Duration) -> Problem {
    Problem::new(Code::RateLimited, "This key reads too often.")
        .retry_after(wait)
        .refused_by(RefusedBy {
            scope: LimitScope::Key,
            policy: POLICY.into(),
            limit: bucket.capacity.into(),
            reset: Some(Reset::In(bucket.window())),
        })
        .with_limits(&lines(bucket, 0))
}

#[cfg(test)]
mod tests {
    use domain::TokenId;

    use super::*;

    #[test]
    fn a_key_has_its_burst_and_no_more() {
        let limits = ReadLimits::new();
        let key = Credential::BrowserToken(TokenId::generate());
        let bucket = Some(Bucket::per_minute(1, 3));
        for left in [2, 1, 0] {
            let lines = limits.charge(&key, bucket).unwrap().unwrap();
            assert_eq!(lines.0[0].remaining, left);
        }
        let refused = limits.charge(&key, bucket).unwrap_err().body("r", chrono::DateTime::UNIX_EPOCH);
        let wait_ms = serde_json::to_value(&refused).unwrap()["retry_after_ms"].as_u64().unwrap();
        assert!((59_000..=60_000).contains(&wait_ms), "{wait_ms}");
        let other = Credential::BrowserToken(TokenId::generate());
        assert!(limits.charge(&other, bucket).is_ok(), "each key has its own");
    }

    #[test]
    fn a_shadow_says_what_it_would_do() {
        let limits = ReadLimits::new();
        let key = Credential::BrowserToken(TokenId::generate());
        let told: Vec<_> = (0..4).map(|_| limits.would_refuse(&key, Bucket::per_minute(1, 2))).collect();
        assert_eq!(told, [false, false, true, true]);
    }

    #[test]
    fn a_changed_tier_counts_at_once_and_no_limit_means_none() {
        let limits = ReadLimits::new();
        let key = Credential::BrowserToken(TokenId::generate());
        assert!(limits.charge(&key, Some(Bucket::per_minute(1, 1))).is_ok());
        assert!(limits.charge(&key, Some(Bucket::per_minute(1, 1))).is_err());
        assert!(limits.charge(&key, Some(Bucket::per_minute(1, 2))).is_ok());
        assert_eq!(limits.charge(&key, None).unwrap(), None);
    }
}
