//! Tiers and limit rules, from configuration.

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    ModelName,
    limits::{Bucket, Tier},
};
use serde::{Deserialize, Serialize};

use crate::limit_rules::CallerRules;

/// Tiers, rules and how long who-is-who may be remembered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenancyConfig {
    /// The tiers. The list replaces the default list as a whole.
    pub tiers: Vec<Tier>,
    /// The tier of a tenant that names none.
    pub default_tier: String,
    /// Limits that a whole tenant has on a route or a model; none unless configured.
    pub rules: RouteLimits,
    /// For how long a key, a user or a membership may be remembered, in milliseconds; at most 5,000.
    pub cache_ms: u64,
}

/// Submit limits of a tenant on routes and models, besides those of its tier.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouteLimits {
    /// By endpoint, such as `generations`.
    pub endpoints: BTreeMap<String, Bucket>,
    /// By model.
    pub models: BTreeMap<ModelName, Bucket>,
}

impl Default for TenancyConfig {
    fn default() -> Self {
        Self {
            tiers: Tier::defaults(),
            default_tier: "free".to_owned(),
            rules: RouteLimits::default(),
            cache_ms: 5_000,
        }
    }
}

/// Why tiers and rules cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two tiers have one name.
    #[error("the tier {0} is there twice")]
    TierTwice(String),
    /// The default tier is not among the tiers.
    #[error("the default tier {0} is not there")]
    NoDefaultTier(String),
    /// Who-is-who would be remembered for too long.
    #[error("cache_ms must be from 1 to 5000")]
    CacheTooLong,
    /// A bucket, window or day lets nothing through, ever.
    #[error("the limit of {0} never lets anything through")]
    DeadBucket(String),
}

/// The tiers by name. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tiers {
    by_name: Arc<BTreeMap<String, Arc<Tier>>>,
    default: Arc<Tier>,
    unruled: Arc<CallerRules>,
}

impl Tiers {
    /// Takes the configuration in.
    ///
    /// # Errors
    /// The first contradiction in it.
    pub fn new(config: TenancyConfig) -> Result<Self, ConfigError> {
        if config.cache_ms == 0 || config.cache_ms > 5_000 {
            return Err(ConfigError::CacheTooLong);
        }
        let dead = |bucket: &Bucket| bucket.capacity == 0 || bucket.refill == 0 || bucket.per_ms == 0;
        for (name, bucket) in &config.rules.endpoints {
            if dead(bucket) {
                return Err(ConfigError::DeadBucket(name.clone()));
            }
        }
        for (name, bucket) in &config.rules.models {
            if dead(bucket) {
                return Err(ConfigError::DeadBucket(name.to_string()));
            }
        }
        let mut by_name = BTreeMap::new();
        for tier in config.tiers {
            let buckets = [tier.user.submit, tier.tenant.submit, tier.reads];
            let no_window = tier.expensive.is_some_and(|window| window.limit == 0 || window.window_ms == 0);
            let no_day = [tier.user.daily, tier.tenant.daily].contains(&Some(0));
            if no_window || no_day || buckets.iter().flatten().any(dead) {
                return Err(ConfigError::DeadBucket(tier.name));
            }
            if let Some(double) = by_name.insert(tier.name.clone(), Arc::new(tier)) {
                return Err(ConfigError::TierTwice(double.name.clone()));
            }
        }
        let default = by_name
            .get(&config.default_tier)
            .cloned()
            .ok_or(ConfigError::NoDefaultTier(config.default_tier))?;
        let unruled = CallerRules { routes: config.rules, ..CallerRules::default() };
        Ok(Self { by_name: Arc::new(by_name), default, unruled: Arc::new(unruled) })
    }

    /// The tier of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tier>> {
        self.by_name.get(name)
    }

    /// The tier of a tenant: the one it names, or the default when configuration no longer has that one.
    #[must_use]
    pub fn of_tenant(&self, name: &str) -> &Arc<Tier> {
        self.by_name.get(name).unwrap_or_else(|| {
            tracing::warn!(tier = name, "a tenant's tier is not configured; the default applies");
            &self.default
        })
    }

    /// The tier of tenants that name none.
    #[must_use]
    pub const fn default_tier(&self) -> &Arc<Tier> {
        &self.default
    }

    /// Every tier, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tier>> {
        self.by_name.values()
    }

    /// What binds a caller of whom no rule speaks, besides the tier.
    pub(crate) const fn unruled(&self) -> &Arc<CallerRules> {
        &self.unruled
    }
}

#[cfg(test)]
mod tests {
    use domain::limits::Window;

    use super::*;

    #[test]
    fn the_free_tier_is_the_default() {
        let tiers = Tiers::new(TenancyConfig::default()).unwrap();
        assert_eq!(tiers.default_tier().name, "free");
        assert_eq!(tiers.of_tenant("withdrawn").name, "free");
        assert_eq!(tiers.of_tenant("pro").user.open(), 210);
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: fn(&mut TenancyConfig)| {
            let mut config = TenancyConfig::default();
            change(&mut config);
            Tiers::new(config).unwrap_err()
        };
        assert_eq!(refused(|config| config.cache_ms = 5_001), ConfigError::CacheTooLong);
        let twice = refused(|config| config.tiers.push(Tier::free()));
        assert_eq!(twice, ConfigError::TierTwice("free".to_owned()));
        let missing = refused(|config| config.default_tier = "gold".to_owned());
        assert_eq!(missing, ConfigError::NoDefaultTier("gold".to_owned()));
        let dead = refused(|config| config.tiers[0].reads = Some(Bucket::per_second(0, 5)));
        assert_eq!(dead, ConfigError::DeadBucket("free".to_owned()));
        let never = refused(|config| config.tiers[2].expensive = Some(Window { limit: 0, window_ms: 1 }));
        assert_eq!(never, ConfigError::DeadBucket("enterprise".to_owned()));
        let never = refused(|config| config.tiers[1].tenant.daily = Some(0));
        assert_eq!(never, ConfigError::DeadBucket("pro".to_owned()));
    }
}
