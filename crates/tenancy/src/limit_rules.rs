//! Limits that operators set at run time.
//!
//! A rule replaces one figure of the configuration for a tier, a tenant or a key; where several speak of the same limit
//! the most particular counts. It is a fact in PostgreSQL, so no deploy and no flush undoes it, and every process knows it
//! within five seconds. A rule in shadow replaces nothing: its limit is counted beside the one in force, and tells when it
//! would have refused, so that an operator sees what a figure would do before it does it.

mod book;
mod live;
mod rows;
mod shadow;

use std::{fmt, str::FromStr, time::Duration};

use chrono::{DateTime, Utc};
use domain::{
    KeyId, ModelName, TenantId,
    limits::{Bucket, LimitScope, SUBMIT_ENDPOINTS, Window},
};

pub(crate) use self::{book::RuleBook, live::LiveRules, shadow::ShadowLog};
pub use self::{
    book::{CallerRules, KeySubmit, Shadow},
    rows::{PutRuleError, find_limit_rules, put_limit_rule, remove_limit_rule},
};

/// Whose limit a rule sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RuleSubject {
    /// Every user and tenant of a tier.
    Tier(String),
    /// A tenant and its users.
    Tenant(TenantId),
    /// An API key.
    Key(KeyId),
}

/// Which limit a rule sets. Its text is the name under which clients are told of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LimitName {
    /// Submits of a user.
    SubmitUser,
    /// Submits of a key. They count in the key's own bucket, in place of its user's.
    SubmitKey,
    /// Submits of a tenant.
    SubmitTenant,
    /// Submits of a tenant on a route.
    SubmitEndpoint(&'static str),
    /// Submits of a tenant to a model.
    SubmitModel(ModelName),
    /// Submits of a user to each expensive model, counted strictly.
    ExpensiveUser,
    /// Everything but submits, per key.
    Reads,
    /// A user's tasks at providers.
    RunningUser,
    /// A tenant's tasks at providers.
    RunningTenant,
    /// A user's tasks that wait besides.
    QueuedUser,
    /// A tenant's tasks that wait besides.
    QueuedTenant,
    /// A user's tasks that are accepted on one local day.
    DailyUser,
    /// A tenant's tasks that are accepted on one local day.
    DailyTenant,
}

/// How much a limit allows; none of a bucket, window or quota is unlimited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// A rate.
    Bucket(Option<Bucket>),
    /// A strict window.
    Window(Option<Window>),
    /// A number of tasks.
    Count(u32),
    /// A number of tasks on one local day.
    Quota(Option<u32>),
}

/// What names a rule: there is one for each, and a shadow beside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleKey {
    /// Whose limit.
    pub subject: RuleSubject,
    /// Which limit.
    pub limit: LimitName,
    /// Whether it only counts and tells.
    pub shadow: bool,
}

/// A rule as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitRule {
    /// What names it.
    pub key: RuleKey,
    /// How much it allows.
    pub figure: Figure,
    /// Counts its changes.
    pub version: i64,
    /// When it was set.
    pub set_at: DateTime<Utc>,
}

/// Why a rule cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct RuleFault {
    /// What is wrong, such as `bucket.capacity`.
    pub field: &'static str,
    /// What is wrong in one word.
    pub code: &'static str,
    /// What is wrong in a sentence without its subject.
    pub message: &'static str,
}

/// A text that names no rule, no subject or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it names no tier, tenant, key or limit")]
pub struct NoSuchRule;

/// What form the figure of a limit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Bucket,
    Window,
    Count,
    Quota,
}

/// The largest number in a figure; far beyond any use, and safe in every calculation.
const FIGURE_MAX: u32 = 1_000_000_000;
/// Entries of one window at most: each is kept by itself.
const WINDOW_MAX: u32 = 10_000;
/// The longest period or window.
const PERIOD_MAX: Duration = Duration::from_secs(86_400);
/// The longest time in which a bucket fills up: so long is its memory.
const FILL_MAX: Duration = Duration::from_secs(30 * 86_400);

impl LimitName {
    pub(crate) const fn form(&self) -> Form {
        match self {
            Self::SubmitUser
            | Self::SubmitKey
            | Self::SubmitTenant
            | Self::SubmitEndpoint(_)
            | Self::SubmitModel(_)
            | Self::Reads => Form::Bucket,
            Self::ExpensiveUser => Form::Window,
            Self::RunningUser | Self::RunningTenant | Self::QueuedUser | Self::QueuedTenant => Form::Count,
            Self::DailyUser | Self::DailyTenant => Form::Quota,
        }
    }

    /// What refusals and metrics call those whom it limits.
    #[must_use]
    pub const fn scope(&self) -> LimitScope {
        match self {
            Self::SubmitUser
            | Self::ExpensiveUser
            | Self::RunningUser
            | Self::QueuedUser
            | Self::DailyUser => LimitScope::User,
            Self::SubmitKey | Self::Reads => LimitScope::Key,
            Self::SubmitTenant | Self::RunningTenant | Self::QueuedTenant | Self::DailyTenant => {
                LimitScope::Tenant
            }
            Self::SubmitEndpoint(_) => LimitScope::Endpoint,
            Self::SubmitModel(_) => LimitScope::Model,
        }
    }

    /// What its figure is called where one is given: `bucket`, `window` or `count`.
    #[must_use]
    pub const fn member(&self) -> &'static str {
        match self.form() {
            Form::Bucket => "bucket",
            Form::Window => "window",
            Form::Count | Form::Quota => "count",
        }
    }

    /// The figure of so many tasks; whether that is its own form is seen when the rule is checked.
    #[must_use]
    pub const fn tasks(&self, count: u32) -> Figure {
        match self.form() {
            Form::Quota => Figure::Quota(Some(count)),
            Form::Bucket | Form::Window | Form::Count => Figure::Count(count),
        }
    }

    /// The figure that takes it away; none for numbers of tasks at once, which always have an end.
    #[must_use]
    pub const fn unlimited(&self) -> Option<Figure> {
        match self.form() {
            Form::Bucket => Some(Figure::Bucket(None)),
            Form::Window => Some(Figure::Window(None)),
            Form::Quota => Some(Figure::Quota(None)),
            Form::Count => None,
        }
    }

    /// The least number of tasks that it can be.
    const fn least(&self) -> u32 {
        match self {
            Self::RunningUser | Self::RunningTenant | Self::DailyUser | Self::DailyTenant => 1,
            _ => 0,
        }
    }

    /// Whether it is a limit of a single key; the others are of users and tenants.
    const fn is_of_keys(&self) -> bool {
        matches!(self, Self::SubmitKey | Self::Reads)
    }

    /// Whether it is a limit that a tier or a tenant has.
    const fn is_of_tiers(&self) -> bool {
        !matches!(self, Self::SubmitKey)
    }
}

impl RuleKey {
    /// Whether a rule of this name can have this figure.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, figure: &Figure) -> Result<(), RuleFault> {
        let fault = |field, code, message| Err(RuleFault { field, code, message });
        match self.subject {
            RuleSubject::Key(_) if !self.limit.is_of_keys() => {
                return fault("limit", "not_supported", "must be submit-key or reads for a key");
            }
            RuleSubject::Tier(_) | RuleSubject::Tenant(_) if !self.limit.is_of_tiers() => {
                return fault("limit", "not_supported", "is a limit of single keys");
            }
            _ => {}
        }
        match (self.limit.form(), figure) {
            (Form::Bucket, Figure::Bucket(bucket)) => check_bucket(bucket.as_ref())?,
            (Form::Window, Figure::Window(window)) => check_window(window.as_ref())?,
            (Form::Count, Figure::Count(count)) => check_count(*count, self.limit.least())?,
            (Form::Quota, Figure::Quota(quota)) => {
                quota.map_or(Ok(()), |count| check_count(count, self.limit.least()))?
            }
            (Form::Bucket | Form::Window | Form::Count | Form::Quota, _) => {
                return fault(self.limit.member(), "required", "is the form that this limit has");
            }
        }
        if !self.shadow {
            return Ok(());
        }
        match figure {
            Figure::Count(_) | Figure::Quota(_) => fault(
                "shadow",
                "not_supported",
                "is for rates and windows: tasks are counted in one place only",
            ),
            Figure::Bucket(None) | Figure::Window(None) => {
                fault("shadow", "not_supported", "of no limit would have nothing to tell")
            }
            Figure::Bucket(Some(_)) | Figure::Window(Some(_)) => Ok(()),
        }
    }
}

fn check_bucket(bucket: Option<&Bucket>) -> Result<(), RuleFault> {
    let Some(bucket) = bucket else { return Ok(()) };
    let range = |field, message| Err(RuleFault { field, code: "out_of_range", message });
    if !(1..=FIGURE_MAX).contains(&bucket.capacity) {
        return range("bucket.capacity", "must be from 1 to 1000000000");
    }
    if !(1..=FIGURE_MAX).contains(&bucket.refill) {
        return range("bucket.refill", "must be from 1 to 1000000000");
    }
    if bucket.per_ms == 0 || Duration::from_millis(bucket.per_ms) > PERIOD_MAX {
        return range("bucket.per_ms", "must be from 1 to 86400000");
    }
    if bucket.window() > FILL_MAX {
        return range("bucket.refill", "must fill the bucket within 30 days");
    }
    Ok(())
}

fn check_window(window: Option<&Window>) -> Result<(), RuleFault> {
    let Some(window) = window else { return Ok(()) };
    let range = |field, message| Err(RuleFault { field, code: "out_of_range", message });
    if !(1..=WINDOW_MAX).contains(&window.limit) {
        return range("window.limit", "must be from 1 to 10000");
    }
    if window.window_ms == 0 || window.length() > PERIOD_MAX {
        return range("window.window_ms", "must be from 1 to 86400000");
    }
    Ok(())
}

fn check_count(count: u32, least: u32) -> Result<(), RuleFault> {
    let range = |message| Err(RuleFault { field: "count", code: "out_of_range", message });
    if count < least {
        return range("must be at least 1, or nothing would ever run");
    }
    if count > FIGURE_MAX {
        return range("must be at most 1000000000");
    }
    Ok(())
}

impl fmt::Display for RuleSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tier(name) => write!(f, "tier:{name}"),
            Self::Tenant(id) => write!(f, "tenant:{id}"),
            Self::Key(id) => write!(f, "key:{id}"),
        }
    }
}

impl FromStr for RuleSubject {
    type Err = NoSuchRule;

    fn from_str(text: &str) -> Result<Self, NoSuchRule> {
        match text.split_once(':') {
            Some(("tier", name)) if !name.is_empty() => Ok(Self::Tier(name.to_owned())),
            Some(("tenant", id)) => id.parse().map(Self::Tenant).map_err(|_| NoSuchRule),
            Some(("key", id)) => id.parse().map(Self::Key).map_err(|_| NoSuchRule),
            _ => Err(NoSuchRule),
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::SubmitUser => "submit-user",
            Self::SubmitKey => "submit-key",
            Self::SubmitTenant => "submit-tenant",
            Self::SubmitEndpoint(endpoint) => return write!(f, "submit-endpoint:{endpoint}"),
            Self::SubmitModel(model) => return write!(f, "submit-model:{model}"),
            Self::ExpensiveUser => "expensive-user",
            Self::Reads => "reads",
            Self::RunningUser => "running-user",
            Self::RunningTenant => "running-tenant",
            Self::QueuedUser => "queued-user",
            Self::QueuedTenant => "queued-tenant",
            Self::DailyUser => "daily-user",
            Self::DailyTenant => "daily-tenant",
        };
        f.write_str(name)
    }
}

impl FromStr for LimitName {
    type Err = NoSuchRule;

    fn from_str(text: &str) -> Result<Self, NoSuchRule> {
        Ok(match text.split_once(':') {
            Some(("submit-model", model)) => Self::SubmitModel(model.parse().map_err(|_| NoSuchRule)?),
            Some(("submit-endpoint", name)) => {
                let known = SUBMIT_ENDPOINTS.iter().find(|endpoint| **endpoint == name);
                Self::SubmitEndpoint(known.ok_or(NoSuchRule)?)
            }
            Some(_) => return Err(NoSuchRule),
            None => match text {
                "submit-user" => Self::SubmitUser,
                "submit-key" => Self::SubmitKey,
                "submit-tenant" => Self::SubmitTenant,
                "expensive-user" => Self::ExpensiveUser,
                "reads" => Self::Reads,
                "running-user" => Self::RunningUser,
                "running-tenant" => Self::RunningTenant,
                "queued-user" => Self::QueuedUser,
                "queued-tenant" => Self::QueuedTenant,
                "daily-user" => Self::DailyUser,
                "daily-tenant" => Self::DailyTenant,
                _ => return Err(NoSuchRule),
            },
        })
    }
}

/// The limit's name stands first, for that one has no spaces.
impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shadow = if self.shadow { "shadow" } else { "force" };
        write!(f, "{} {shadow} {}", self.limit, self.subject)
    }
}

impl FromStr for RuleKey {
    type Err = NoSuchRule;

    fn from_str(text: &str) -> Result<Self, NoSuchRule> {
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().ok_or(NoSuchRule);
        let limit = next()?.parse()?;
        let shadow = match next()? {
            "shadow" => true,
            "force" => false,
            _ => return Err(NoSuchRule),
        };
        Ok(Self { subject: next()?.parse()?, limit, shadow })
    }
}

#[cfg(test)]
mod tests;
