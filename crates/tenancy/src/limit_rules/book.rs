//! The rules by whom they speak of, and what follows from them for one caller.

use std::{collections::HashMap, sync::Arc};

use domain::{
    KeyId, TenantId,
    limits::{Bucket, Tier},
};

use super::{Figure, LimitName, LimitRule, RuleSubject};
use crate::config::{RouteLimits, Tiers};

/// Every rule there is. Of one subject the rules in force come before their shadows.
#[derive(Debug, Default)]
pub(crate) struct RuleBook {
    of_tier: HashMap<String, Vec<LimitRule>>,
    of_tenant: HashMap<TenantId, Vec<LimitRule>>,
    of_key: HashMap<KeyId, Vec<LimitRule>>,
}

/// What binds a caller besides the figures of the tier.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallerRules {
    /// Limits of the tenant on routes and models.
    pub routes: RouteLimits,
    /// The submits of the caller's key, where they count by themselves.
    pub key_submit: Option<KeySubmit>,
    /// Limits that only count and tell.
    pub shadows: Vec<Shadow>,
}

/// The submits of one key, which count in its own bucket, in place of its user's.
#[derive(Debug, Clone, PartialEq)]
pub struct KeySubmit {
    /// The key.
    pub key: KeyId,
    /// Its bucket. None is unlimited.
    pub bucket: Option<Bucket>,
}

/// A limit that only counts and tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Shadow {
    /// Whose rule it is.
    pub subject: RuleSubject,
    /// Which limit.
    pub limit: LimitName,
    /// How much it would allow.
    pub figure: Figure,
}

impl CallerRules {
    /// Whether nothing in it is about submits of the key.
    pub(crate) fn is_without_key(&self) -> bool {
        self.key_submit.is_none() && self.shadows.iter().all(|shadow| shadow.limit != LimitName::SubmitKey)
    }

    pub(crate) fn leave_key_out(&mut self) {
        self.key_submit = None;
        self.shadows.retain(|shadow| shadow.limit != LimitName::SubmitKey);
    }
}

impl RuleBook {
    pub(crate) fn new(rules: Vec<LimitRule>) -> Self {
        let mut book = Self::default();
        for rule in rules {
            let place = match rule.key.subject.clone() {
                RuleSubject::Tier(name) => book.of_tier.entry(name).or_default(),
                RuleSubject::Tenant(id) => book.of_tenant.entry(id).or_default(),
                RuleSubject::Key(id) => book.of_key.entry(id).or_default(),
            };
            place.push(rule);
        }
        for rules in
            book.of_tier.values_mut().chain(book.of_tenant.values_mut()).chain(book.of_key.values_mut())
        {
            rules.sort_by_key(|rule| rule.key.shadow);
        }
        book
    }

    /// The tier of a tenant with its rules applied, and what binds its caller besides. The key is the caller's own, if it
    /// is one.
    pub(crate) fn of(
        &self,
        tiers: &Tiers,
        tier: &Arc<Tier>,
        tenant: TenantId,
        key: Option<&KeyId>,
    ) -> (Arc<Tier>, Arc<CallerRules>) {
        let of_tier = self.of_tier.get(&tier.name);
        let of_tenant = self.of_tenant.get(&tenant);
        let of_key = key.and_then(|key| self.of_key.get(key));
        if of_tier.is_none() && of_tenant.is_none() && of_key.is_none() {
            return (Arc::clone(tier), Arc::clone(tiers.unruled()));
        }
        let (mut tier, mut rules) = (Tier::clone(tier), CallerRules::clone(tiers.unruled()));
        // The more particular comes later, and stays.
        for rule in [of_tier, of_tenant, of_key].into_iter().flatten().flatten() {
            rules.shadows.retain(|shadow| shadow.limit != rule.key.limit);
            if rule.key.shadow {
                rules.shadows.push(Shadow {
                    subject: rule.key.subject.clone(),
                    limit: rule.key.limit.clone(),
                    figure: rule.figure,
                });
            } else {
                apply(rule, &mut tier, &mut rules);
            }
        }
        (Arc::new(tier), Arc::new(rules))
    }
}

fn apply(rule: &LimitRule, tier: &mut Tier, rules: &mut CallerRules) {
    match (&rule.key.limit, rule.figure) {
        (LimitName::SubmitUser, Figure::Bucket(bucket)) => tier.user.submit = bucket,
        (LimitName::SubmitTenant, Figure::Bucket(bucket)) => tier.tenant.submit = bucket,
        (LimitName::Reads, Figure::Bucket(bucket)) => tier.reads = bucket,
        (LimitName::ExpensiveUser, Figure::Window(window)) => tier.expensive = window,
        (LimitName::RunningUser, Figure::Count(count)) => tier.user.running = count,
        (LimitName::RunningTenant, Figure::Count(count)) => tier.tenant.running = count,
        (LimitName::QueuedUser, Figure::Count(count)) => tier.user.queued = count,
        (LimitName::QueuedTenant, Figure::Count(count)) => tier.tenant.queued = count,
        (LimitName::DailyUser, Figure::Quota(quota)) => tier.user.daily = quota,
        (LimitName::DailyTenant, Figure::Quota(quota)) => tier.tenant.daily = quota,
        (LimitName::SubmitKey, Figure::Bucket(bucket)) => {
            if let RuleSubject::Key(key) = &rule.key.subject {
                rules.key_submit = Some(KeySubmit { key: key.clone(), bucket });
            }
        }
        (LimitName::SubmitEndpoint(endpoint), Figure::Bucket(Some(bucket))) => {
            rules.routes.endpoints.insert((*endpoint).to_owned(), bucket);
        }
        (LimitName::SubmitEndpoint(endpoint), Figure::Bucket(None)) => {
            rules.routes.endpoints.remove(*endpoint);
        }
        (LimitName::SubmitModel(model), Figure::Bucket(Some(bucket))) => {
            rules.routes.models.insert(model.clone(), bucket);
        }
        (LimitName::SubmitModel(model), Figure::Bucket(None)) => {
            rules.routes.models.remove(model);
        }
        // A figure of another form than its limit's is not written, and not read either.
        (_, Figure::Bucket(_) | Figure::Window(_) | Figure::Count(_) | Figure::Quota(_)) => {}
    }
}
