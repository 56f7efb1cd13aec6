//! Entry limits inside this process, for the time in which Redis control is away.
//!
//! Admission may fail open: a few extra tasks only wait in the queue. So each process then lets its share of every
//! rate through, by buckets that know nothing of the other processes. A strict window becomes such a bucket too, where
//! configuration lets expensive models in at all then; a shadow counts nothing here.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use control::{
    Admission, CheckState, InflowCharge, InflowCheck, InflowKey, InflowLimit, RefusedBy, Standing,
};
use domain::TenantId;

/// Buckets at most. Beyond that the full ones, which say the same as absent ones, make room.
const BUCKETS_MAX: usize = 10_000;

pub(crate) struct LocalLimits {
    /// The part of each rate that this process lets through.
    share: f64,
    buckets: Mutex<HashMap<Key, Level>>,
}

type Key = (TenantId, InflowKey);

/// Whether a question uses up what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Charge,
    Look,
}

/// A bucket that a request asks.
struct Asked {
    /// Its place among the checks.
    place: usize,
    key: Key,
    tokens: f64,
    capacity: f64,
    per_second: f64,
}

impl Asked {
    fn until_full(&self) -> Duration {
        Duration::from_secs_f64((self.capacity - self.tokens).max(0.0) / self.per_second)
    }
}

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
    pub(crate) fn admit(&self, charge: &InflowCharge, mode: Mode, now: Instant) -> Admission {
        // A poisoned lock only means that a test or a bug panicked in here; the figures are still usable.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = Vec::with_capacity(charge.checks.len());
        let mut levels = Vec::with_capacity(charge.checks.len());
        let mut refused: Option<(usize, f64)> = None;
        for (place, check) in charge.checks.iter().enumerate() {
            if check.shadow {
                let most = check.limit.most();
                states.push(CheckState { remaining: most, reset_ms: 0, standing: Standing::Passes });
                continue;
            }
            if check.cost > check.limit.most() {
                return Admission::CostAboveCapacity { check: place };
            }
            let (capacity, per_second) = self.shared(check);
            let key = (charge.tenant, check.key.clone());
            let tokens = buckets.get(&key).map_or(capacity, |level| {
                let elapsed = now.saturating_duration_since(level.at).as_secs_f64();
                capacity.min(level.tokens + elapsed * per_second)
            });
            let missing = f64::from(check.cost) - tokens;
            let wait = if missing > 0.0 { missing / per_second } else { 0.0 };
            if wait > refused.map_or(0.0, |(_, longest)| longest) {
                refused = Some((place, wait));
            }
            let standing = if missing > 0.0 { Standing::Short } else { Standing::Passes };
            states.push(CheckState { remaining: 0, reset_ms: 0, standing });
            levels.push(Asked { place, key, tokens, capacity, per_second });
        }
        let charged = refused.is_none() && mode == Mode::Charge;
        for asked in &mut levels {
            if charged {
                asked.tokens -= f64::from(charge.checks[asked.place].cost);
            }
            let state = &mut states[asked.place];
            state.remaining = whole(asked.tokens);
            state.reset_ms = millis(asked.until_full());
        }
        if let Some((place, wait)) = refused {
            let retry_after_ms = millis(Duration::from_secs_f64(wait)).max(1);
            return Admission::Refused { by: RefusedBy::Check(place), retry_after_ms, states };
        }
        if charged {
            if buckets.len() + levels.len() > BUCKETS_MAX {
                buckets.retain(|_, level| level.full_at > now);
            }
            if buckets.len() + levels.len() <= BUCKETS_MAX {
                for asked in levels {
                    let full_at = now + asked.until_full();
                    buckets.insert(asked.key, Level { tokens: asked.tokens, at: now, full_at });
                }
            }
        }
        Admission::Granted(states)
    }

    /// This process's part of a limit: capacity, never below one request, and tokens per second.
    fn shared(&self, check: &InflowCheck) -> (f64, f64) {
        let (refill, per_ms) = match &check.limit {
            InflowLimit::Bucket(bucket) => (bucket.refill, bucket.per_ms),
            InflowLimit::Window { window, .. } => (window.limit, window.window_ms),
        };
        let capacity = (f64::from(check.limit.most()) * self.share).max(f64::from(check.cost.max(1)));
        let period = Duration::from_millis(per_ms.max(1)).as_secs_f64();
        (capacity, f64::from(refill.max(1)) * self.share / period)
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
    use domain::{
        UserId,
        limits::{Bucket, LimitScope, Window},
    };

    use super::*;

    fn charge(tenant: TenantId, user: UserId) -> InflowCharge {
        let check = |scope, key, bucket| {
            let limit = InflowLimit::Bucket(bucket);
            InflowCheck { scope, key, rule: "submit", limit, cost: 1, shadow: false }
        };
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
        assert!(matches!(limits.admit(&one, Mode::Charge, now), Admission::Granted(_)));
        assert!(matches!(limits.admit(&one, Mode::Charge, now), Admission::Granted(_)));
        let Admission::Refused { by: RefusedBy::Check(0), retry_after_ms, states } =
            limits.admit(&one, Mode::Charge, now)
        else {
            panic!("half of four are two")
        };
        assert_eq!((retry_after_ms, states[0].remaining, states[1].remaining), (1_000, 0, 3));
        let early = now + Duration::from_millis(retry_after_ms - 1);
        assert!(matches!(limits.admit(&one, Mode::Charge, early), Admission::Refused { .. }));
        let later = now + Duration::from_millis(retry_after_ms);
        assert!(matches!(limits.admit(&one, Mode::Charge, later), Admission::Granted(_)));
    }

    #[test]
    fn refused_by_one_is_charged_by_none() {
        let limits = LocalLimits::new(1.0);
        let (tenant, now) = (TenantId::generate(), Instant::now());
        let greedy = charge(tenant, UserId::generate());
        for _ in 0..20 {
            limits.admit(&greedy, Mode::Charge, now);
        }
        // The greedy user took 4 of the tenant's 10 and was refused 16 times.
        let Admission::Granted(states) = limits.admit(&charge(tenant, UserId::generate()), Mode::Charge, now)
        else {
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
            limits.admit(&charge(tenant, UserId::generate()), Mode::Charge, now);
        }
        assert!(limits.buckets.lock().unwrap().len() <= BUCKETS_MAX);
    }

    #[test]
    fn a_window_is_a_bucket_of_this_process_and_a_shadow_counts_nothing() {
        let (limits, now) = (LocalLimits::new(0.5), Instant::now());
        let window = InflowLimit::Window { window: Window::in_minutes(4, 10), entry: "e".to_owned() };
        let strict = InflowCheck {
            scope: LimitScope::User,
            key: InflowKey::Expensive(UserId::generate(), "mock-pro".parse().unwrap()),
            rule: "expensive",
            limit: window,
            cost: 1,
            shadow: false,
        };
        let mut one = charge(TenantId::generate(), UserId::generate());
        one.checks = vec![InflowCheck { shadow: true, ..strict.clone() }, strict];
        for _ in 0..2 {
            assert!(
                matches!(limits.admit(&one, Mode::Look, now), Admission::Granted(_)),
                "looking takes nothing"
            );
            assert!(matches!(limits.admit(&one, Mode::Charge, now), Admission::Granted(_)));
        }
        match limits.admit(&one, Mode::Charge, now) {
            // Two of its share of two in ten minutes.
            Admission::Refused { by: RefusedBy::Check(1), retry_after_ms: 300_000, states } => {
                assert_eq!((states[0].standing, states[1].standing), (Standing::Passes, Standing::Short));
            }
            other => panic!("{other:?}"),
        }
    }
}
