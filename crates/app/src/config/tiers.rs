//! Tiers: what their users and tenants may do.

use std::collections::BTreeMap;

use domain::limits::{Bucket, SubjectLimits, Tier, Window};
use serde::{Deserialize, Serialize};

/// One `tiers.<name>`. A rate is `{ capacity, refill, per_ms }` or `"unlimited"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TierConfig {
    /// Per user.
    pub(crate) user: SubjectLimits,
    /// Per tenant.
    pub(crate) tenant: SubjectLimits,
    /// Submits of one expensive model by one user, counted one by one: `{ limit, window_ms }` or `"unlimited"`.
    pub(crate) expensive: Option<Window>,
    /// Reads per key, kept in process.
    pub(crate) reads: Option<Bucket>,
    /// Share in the fair queue relative to other tenants.
    pub(crate) weight: u32,
}

/// The tiers that exist when nothing is configured.
pub(super) fn defaults() -> BTreeMap<String, TierConfig> {
    let entry = |tier: Tier| {
        let Tier { name, user, tenant, expensive, reads, weight } = tier;
        (name, TierConfig { user, tenant, expensive, reads, weight })
    };
    Tier::defaults().into_iter().map(entry).collect()
}

impl TierConfig {
    pub(super) fn to_tier(&self, name: &str) -> Tier {
        Tier {
            name: name.to_owned(),
            user: self.user,
            tenant: self.tenant,
            expensive: self.expensive,
            reads: self.reads,
            weight: self.weight,
        }
    }
}
