//! Entry limits inside this process, for the time in which Redis control is away.
//!
//! Admission may fail open: a few extra tasks only wait in the queue. So each process then lets its share of every
//! rate through, by buckets that know nothing of the other processes.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use control::{Admission, BucketState, InflowCharge, InflowCheck, InflowKey, RefusedBy};
use domain::{TenantId, limits::LimitScope};

/// Buckets at most. Beyond that the full ones, which say the same as absent ones, make room.
const BUCKETS_MAX: usize = 10_000;

pub(crate) struct LocalLimits {
    /// The part of each rate that this process lets through.
    share: f64,
    buckets: Mutex<HashMap<Key, Level>>,
}

type Key = (TenantId, LimitScope, String);

/// A bucket's tokens at an instant.
#[derive(Debug, Clone, Copy)]
struct Level {
    tokens: f64,
    at: Instant,
    /// When it will be full again.
    full_at: Instant,
}

impl LocalLimits {
    pub(crate) fn new(share: f64) -> Self {
        Self { share, buckets: Mutex::default() }
    }

    /// Decides one request. Refused by one is charged by none, as in Redis.
    pub(crate) fn admit(&self, charge: &InflowCharge, now: Instant) -> Admission {
        // A poisoned lock only means that a test or a bug panicked in here; the figures are still usable.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = Vec::with_capacity(charge.checks.len());
        let mut levels = Vec::with_capacity(charge.checks.len());
        let mut refused: Option<(usize, Duration)> = None;
        for (place, check) in charge.checks.iter().enumerate() {
            if check.cost > check.bucket.capacity {
                return Admission::CostAboveCapacity { check: place };
            }
            let (capacity, per_second) = self.shared(check);
            let key = (charge.tenant, check.scope, name(&check.key));
            let tokens = buckets.get(&key).map_or(capacity, |level| {
                let elapsed = now.saturating_duration_since(level.at).as_secs_f64();
                capacity.min(level.tokens + elapsed * per_second)
            });
            let missing = f64::from(check.cost) - tokens;
            if missing > 0.0 {
                let wait = Duration::from_secs_f64(missing / per_second);
                if refused.is_none_or(|(_, longest)| wait > longest) {
                    refused = Some((place, wait));
                }
            }
            levels.push((key, tokens, capacity, per_second));
        }
        for (check, (_, tokens, capacity, per_second)) in charge.checks.iter().zip(&mut levels) {
            if refused.is_none() {
                *tokens -= f64::from(check.cost);
            }
            states.push(BucketState {
                remaining: whole(*tokens),
                reset_ms: millis(Duration::from_secs_f64((*capacity - *tokens).max(0.0) / *per_second)),
            });
        }
        if let Some((place, wait)) = refused {
            let retry_after_ms = millis(wait).max(1);
            return Admission::Refused { by: RefusedBy::Check(place), retry_after_ms, states };
        }
        if buckets.len() + levels.len() > BUCKETS_MAX {
            buckets.retain(|_, level| level.full_at > now);
        }
        if buckets.len() + levels.len() <= BUCKETS_MAX {
            for (key, tokens, capacity, per_second) in levels {
                let full_at = now + Duration::from_secs_f64((capacity - tokens).max(0.0) / per_second);
                buckets.insert(key, Level { tokens, at: now, full_at });
            }
        }
        Admission::Granted(states)
    }

    /// This process's part of a bucket: capacity, never below one request, and tokens per second.
    fn shared(&self, check: &InflowCheck) -> (f64, f64) {
        let bucket = &check.bucket;
        let capacity = (f64::from(bucket.capacity) * self.share).max(f64::from(check.cost.max(1)));
        let period = Duration::from_millis(bucket.per_ms.max(1)).as_secs_f64();
        let per_second = f64::from(bucket.refill.max(1)) * self.share / period;
        (capacity, per_second)
    }
}

fn name(key: &InflowKey) -> String {
    match key {
        InflowKey::User(user) => user.to_string(),
        InflowKey::Tenant => String::new(),
        InflowKey::Endpoint(endpoint) => (*endpoint).to_owned(),
        InflowKey::Model(model) => model.to_string(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between nothing and a capacity, which is a u32"
)]
fn whole(tokens: f64) -> u32 {
    tokens.floor().clamp(0.0, f64::from(u32::MAX)) as u32
}

/// Whole milliseconds, rounded up.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use domain::{UserId, limits::Bucket};

    use super::*;

    fn charge(tenant: TenantId, user: UserId) -> InflowCharge {
        let check = |scope, key, bucket| InflowCheck { scope, key, rule: "submit", bucket, cost: 1 };
        InflowCharge {
            tenant,
            replay: None,
            checks: vec![
                check(LimitScope::User, InflowKey::User(user), Bucket::per_second(2, 4)),
                check(LimitScope::Tenant, InflowKey::Tenant, Bucket::per_second(100, 10)),
            ],
            ip: None,
        }
    }

    #[test]
    fn a_process_lets_its_share_through_and_says_truly_when_to_come_again() {
        let limits = LocalLimits::new(0.5);
        let (one, now) = (charge(TenantId::generate(), UserId::generate()), Instant::now());
        assert!(matches!(limits.admit(&one, now), Admission::Granted(_)));
        assert!(matches!(limits.admit(&one, now), Admission::Granted(_)));
        let Admission::Refused { by: RefusedBy::Check(0), retry_after_ms, states } = limits.admit(&one, now)
        else {
            panic!("half of four are two")
        };
        assert_eq!((retry_after_ms, states[0].remaining, states[1].remaining), (1_000, 0, 3));
        let early = now + Duration::from_millis(retry_after_ms - 1);
        assert!(matches!(limits.admit(&one, early), Admission::Refused { .. }));
        let later = now + Duration::from_millis(retry_after_ms);
        assert!(matches!(limits.admit(&one, later), Admission::Granted(_)));
    }

    #[test]
    fn refused_by_one_is_charged_by_none() {
        let limits = LocalLimits::new(1.0);
        let (tenant, now) = (TenantId::generate(), Instant::now());
        let greedy = charge(tenant, UserId::generate());
        for _ in 0..20 {
            limits.admit(&greedy, now);
        }
        // The greedy user took 4 of the tenant's 10 and was refused 16 times.
        let Admission::Granted(states) = limits.admit(&charge(tenant, UserId::generate()), now) else {
            panic!()
        };
        assert_eq!(states[1].remaining, 5);
    }

    #[test]
    fn many_subjects_do_not_grow_it_without_end() {
        let limits = LocalLimits::new(1.0);
        let (tenant, start) = (TenantId::generate(), Instant::now());
        for turn in 0..30_000_u64 {
            let now = start + Duration::from_millis(turn);
            limits.admit(&charge(tenant, UserId::generate()), now);
        }
        assert!(limits.buckets.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
