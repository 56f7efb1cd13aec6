//! Who is who, and the limits that are not a tier's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenancy::{RouteLimits, TenancyConfig, Tiers};

use super::{fault::Faults, tiers::TierConfig};

/// Section `tenancy`; the tiers have sections of their own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TenancySection {
    /// The tier of a tenant that names none.
    pub(crate) default_tier: String,
    /// Limits that a whole tenant has on a route or a model; none unless configured.
    pub(crate) rules: RouteLimits,
    /// For how long a key, a user or a membership may be remembered, in milliseconds; at most 5,000.
    pub(crate) cache_ms: u64,
}

impl Default for TenancySection {
    fn default() -> Self {
        let TenancyConfig { default_tier, rules, cache_ms, .. } = TenancyConfig::default();
        Self { default_tier, rules, cache_ms }
    }
}

impl TenancySection {
    pub(super) fn check(&self, tiers: &BTreeMap<String, TierConfig>, faults: &mut Faults) {
        for (name, tier) in tiers {
            for (subject, limits) in [("user", tier.user), ("tenant", tier.tenant)] {
                let field = format!("tiers.{name}.{subject}.running");
                faults.require(limits.running > 0, field, "must be at least 1, or nothing would ever run");
            }
            faults.require(tier.weight > 0, format!("tiers.{name}.weight"), "must be at least 1");
        }
        faults.check("tenancy", Tiers::new(self.to_tenancy(tiers)).map(drop));
    }

    pub(crate) fn to_tenancy(&self, tiers: &BTreeMap<String, TierConfig>) -> TenancyConfig {
        TenancyConfig {
            tiers: tiers.iter().map(|(name, tier)| tier.to_tier(name)).collect(),
            default_tier: self.default_tier.clone(),
            rules: self.rules.clone(),
            cache_ms: self.cache_ms,
        }
    }
}
