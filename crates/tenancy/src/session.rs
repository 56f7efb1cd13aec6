//! Who is asking, with everything that a request needs to know of them.

use std::{collections::HashMap, sync::Arc};

use domain::{AccountId, Principal, ProjectId, TenantId, TimeZone, UserId, limits::Tier, principal::Role};

use crate::{Payer, limit_rules::CallerRules};

/// An authenticated caller: what they may see, what limits they have, where they may come from.
#[derive(Debug, Clone)]
pub struct Session {
    /// What they may see and do.
    pub principal: Principal,
    /// Their limits, with what operators set over them.
    pub tier: Arc<Tier>,
    /// What binds them besides.
    pub rules: Arc<CallerRules>,
    /// Their names, and their tenant's.
    pub profile: Arc<Profile>,
    /// Browsers of other origins are refused when this is not empty.
    pub origins: Arc<[String]>,
}

/// A user with their tenant, as of at most five seconds ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The user.
    pub user: UserId,
    /// The user's name.
    pub user_name: String,
    /// The tenant's own name for the user.
    pub external_id: Option<String>,
    /// The tenant.
    pub tenant: TenantId,
    /// The tenant's name.
    pub tenant_name: String,
    /// The name of the tenant's tier.
    pub tier: String,
    /// The tenant's time zone, in which its days begin and end.
    pub time_zone: TimeZone,
    /// Who pays for the user's tasks.
    pub payer: Payer,
    /// The account that pays: the user's or the tenant's.
    pub account: AccountId,
    /// The user's roles in projects.
    pub memberships: Arc<HashMap<ProjectId, Role>>,
}
