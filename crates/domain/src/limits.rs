//! Limits as values: token buckets, strict windows, concurrency and queue bounds, tiers.
//!
//! The figures of a tier are per user; a tenant has [`TENANT_FACTOR`] times as much unless its tier says
//! otherwise. Who keeps the counts (Redis, PostgreSQL or this process) is decided elsewhere.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

/// How many times a user's limits its tenant has, for tiers that do not say.
pub const TENANT_FACTOR: u32 = 10;

/// The routes on which a tenant's submits can be limited by themselves.
pub const SUBMIT_ENDPOINTS: &[&str] = &["generations"];

text_enum! {
    /// What a limit is counted for. Appears in refusals and in the RateLimit headers.
    LimitScope {
        /// One address.
        Ip = "ip",
        /// One API key (reads).
        Key = "key",
        /// One user.
        User = "user",
        /// One tenant.
        Tenant = "tenant",
        /// One route of a tenant.
        Endpoint = "endpoint",
        /// One model of a tenant.
        Model = "model",
        /// One account at a provider.
        Provider = "provider",
    }
}

/// A token bucket: `capacity` tokens at most, `refill` of them back in every `per`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The most that can be saved up: the burst.
    pub capacity: u32,
    /// Tokens per period.
    pub refill: u32,
    /// The period in milliseconds.
    pub per_ms: u64,
}

impl Bucket {
    /// `rate` tokens a second with the given burst.
    #[must_use]
    pub const fn per_second(rate: u32, burst: u32) -> Self {
        Self { capacity: burst, refill: rate, per_ms: 1_000 }
    }

    /// `rate` tokens a minute with the given burst.
    #[must_use]
    pub const fn per_minute(rate: u32, burst: u32) -> Self {
        Self { capacity: burst, refill: rate, per_ms: 60_000 }
    }

    /// The time in which an empty bucket fills up: the window of the RateLimit-Policy header.
    #[must_use]
    pub fn window(&self) -> Duration {
        let refill = u64::from(self.refill.max(1));
        Duration::from_millis((u64::from(self.capacity) * self.per_ms).div_ceil(refill))
    }

    /// This bucket `factor` times as large.
    #[must_use]
    pub const fn times(self, factor: u32) -> Self {
        Self {
            capacity: self.capacity.saturating_mul(factor),
            refill: self.refill.saturating_mul(factor),
            per_ms: self.per_ms,
        }
    }
}

/// A strict window: in no stretch of its length are there more than `limit`. Unlike a bucket it has no burst on top
/// of a rate, so it suits what is expensive and rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The most.
    pub limit: u32,
    /// The length in milliseconds.
    pub window_ms: u64,
}

impl Window {
    /// So many in so many minutes.
    #[must_use]
    pub const fn in_minutes(limit: u32, minutes: u64) -> Self {
        Self { limit, window_ms: minutes * 60_000 }
    }

    /// Its length.
    #[must_use]
    pub const fn length(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }
}

/// When all of a limit is there again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// After this time.
    In(Duration),
    /// At this instant, whenever it is asked.
    At(DateTime<Utc>),
}

impl Reset {
    /// The instant, for who asks at `now`.
    #[must_use]
    pub fn instant(self, now: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::In(wait) => now + wait,
            Self::At(at) => at,
        }
    }
}

/// What one subject (a user or a tenant) may have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SubjectLimits {
    /// Submits. None is unlimited.
    pub submit: Option<Bucket>,
    /// Tasks that hold a place at a provider.
    pub running: u32,
    /// Tasks that wait besides.
    pub queued: u32,
    /// Tasks that are accepted on one local day. None is unlimited.
    pub daily: Option<u32>,
}

impl SubjectLimits {
    /// Open tasks at most: those running and those waiting together.
    #[must_use]
    pub const fn open(&self) -> u32 {
        self.running.saturating_add(self.queued)
    }

    /// These limits `factor` times as large.
    fn times(self, factor: u32) -> Self {
        Self {
            submit: self.submit.map(|bucket| bucket.times(factor)),
            running: self.running.saturating_mul(factor),
            queued: self.queued.saturating_mul(factor),
            daily: self.daily.map(|daily| daily.saturating_mul(factor)),
        }
    }
}

/// A tier: what its users and tenants may do, and their share in the fair queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Per user.
    pub user: SubjectLimits,
    /// Per tenant.
    pub tenant: SubjectLimits,
    /// Submits of one expensive model by one user. None is unlimited.
    pub expensive: Option<Window>,
    /// Reads per key, kept in process. None is unlimited.
    pub reads: Option<Bucket>,
    /// Share in the fair queue relative to other tenants.
    pub weight: u32,
}

impl Tier {
    /// The default of every new tenant.
    #[must_use]
    pub fn free() -> Self {
        Self {
            expensive: Some(Window::in_minutes(3, 10)),
            ..Self::tenfold(
                "free",
                SubjectLimits {
                    submit: Some(Bucket::per_minute(5, 5)),
                    running: 1,
                    queued: 5,
                    daily: Some(10),
                },
            )
        }
    }

    /// For paying users.
    #[must_use]
    pub fn pro() -> Self {
        let user =
            SubjectLimits { submit: Some(Bucket::per_second(10, 60)), running: 10, queued: 200, daily: None };
        Self::tenfold("pro", user)
    }

    /// For companies; the tenant has the same figures as one of its users.
    #[must_use]
    pub fn enterprise() -> Self {
        let limits = SubjectLimits {
            submit: Some(Bucket::per_second(1_000, 2_000)),
            running: 1_000,
            queued: 100_000,
            daily: None,
        };
        Self {
            name: "enterprise".to_owned(),
            user: limits,
            tenant: limits,
            expensive: None,
            reads: Some(Bucket::per_second(20_000, 40_000)),
            weight: 1,
        }
    }

    /// The tiers that exist when nothing is configured.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        vec![Self::free(), Self::pro(), Self::enterprise()]
    }

    fn tenfold(name: &str, user: SubjectLimits) -> Self {
        Self {
            name: name.to_owned(),
            user,
            tenant: user.times(TENANT_FACTOR),
            expensive: None,
            reads: Some(Bucket::per_second(100, 200)),
            weight: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_the_time_to_fill_up() {
        assert_eq!(Bucket::per_minute(5, 5).window(), Duration::from_secs(60));
        assert_eq!(Bucket::per_second(1_000, 2_000).window(), Duration::from_secs(2));
    }

    #[test]
    fn a_tenant_has_ten_times_its_users_figures_except_in_enterprise() {
        assert_eq!(Tier::free().tenant.running, 10);
        assert_eq!(Tier::pro().tenant.submit, Some(Bucket { capacity: 600, refill: 100, per_ms: 1_000 }));
        assert_eq!((Tier::free().user.daily, Tier::free().tenant.daily), (Some(10), Some(100)));
        assert_eq!((Tier::pro().tenant.daily, Tier::enterprise().tenant.daily), (None, None));
        assert_eq!(Tier::enterprise().tenant, Tier::enterprise().user);
    }

    #[test]
    fn only_the_free_tier_counts_expensive_submits_strictly() {
        let windows: Vec<_> = Tier::defaults().into_iter().map(|tier| tier.expensive).collect();
        assert_eq!(windows, [Some(Window { limit: 3, window_ms: 600_000 }), None, None]);
    }
}
