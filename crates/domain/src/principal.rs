//! Who asks, and what they may see.
//!
//! [`Principal::sees`] and [`Principal::access`] are the only places that decide about visibility. Every
//! read, list, stream and asset goes through them, also when the answer comes from a cache.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ids::{AccountId, KeyId, ProjectId, TenantId, TokenId, UserId},
    text_enum::text_enum,
};

text_enum! {
    /// A permission of a key or token.
    Scope {
        /// Read one's own tasks, assets, credits.
        Read = "read",
        /// Submit and cancel.
        Write = "write",
        /// Read everything of the tenant.
        TenantRead = "tenant:read",
        /// Change everything of the tenant, act for its users.
        TenantWrite = "tenant:write",
        /// Operate the platform.
        Admin = "admin",
    }
}

text_enum! {
    /// What a member may do in a project.
    Role {
        /// Everything, members included.
        Owner = "owner",
        /// Submit and cancel.
        Editor = "editor",
        /// Look.
        Viewer = "viewer",
    }
}

impl Role {
    /// Whether the role may submit into the project and cancel its tasks.
    #[must_use]
    pub const fn may_write(self) -> bool {
        matches!(self, Self::Owner | Self::Editor)
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// What a new key gets when nothing else is said: read and write.
    #[must_use]
    pub fn default_of_keys() -> Self {
        [Scope::Read, Scope::Write].into_iter().collect()
    }

    /// Whether the scope is in the set.
    #[must_use]
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & Self::bit(scope) != 0
    }

    /// Only those of this set that are in `other` too.
    #[must_use]
    pub const fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether every scope of this set is in `other`.
    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The scopes in order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.has(*scope))
    }

    const fn bit(scope: Scope) -> u8 {
        1 << scope as u8
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | Self::bit(scope)))
    }
}

/// How the caller proved who they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// An API key.
    Key(KeyId),
    /// A short-lived token for browsers. It mints nothing.
    BrowserToken(TokenId),
}

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The tenant.
    pub tenant: TenantId,
    /// The user who acts (or for whom a tenant's server acts).
    pub user: UserId,
    /// The credit account that pays for this user's tasks.
    pub account: AccountId,
    /// What the credential allows.
    pub scopes: Scopes,
    /// The credential.
    pub credential: Credential,
    /// The user's roles in projects, as of at most five seconds ago.
    pub memberships: Arc<HashMap<ProjectId, Role>>,
}

/// Whose a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// The project, if it belongs to one.
    pub project: Option<ProjectId>,
}

/// What a principal may do to a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Look and change.
    Write,
    /// Only look.
    Read,
    /// Must not even learn that it exists.
    Hidden,
}

impl Principal {
    /// What this principal may do to something of `owner`.
    #[must_use]
    pub fn access(&self, owner: &Owner) -> Access {
        if self.scopes.has(Scope::Admin) {
            return Access::Write;
        }
        if owner.tenant != self.tenant {
            return Access::Hidden;
        }
        let role = owner.project.and_then(|project| self.memberships.get(&project).copied());
        // In a project, the role counts, also for the task's own author; without one, authorship.
        let writes_by_membership = match owner.project {
            Some(_) => role.is_some_and(Role::may_write),
            None => owner.user == self.user,
        };
        let own = owner.user == self.user || role.is_some();
        if self.scopes.has(Scope::TenantWrite) || (writes_by_membership && self.scopes.has(Scope::Write)) {
            Access::Write
        } else if self.scopes.has(Scope::TenantRead) || (own && self.scopes.has(Scope::Read)) {
            Access::Read
        } else {
            Access::Hidden
        }
    }

    /// Whether this principal may look at something of `owner`.
    #[must_use]
    pub fn sees(&self, owner: &Owner) -> bool {
        self.access(owner) != Access::Hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(scopes: &[Scope]) -> Principal {
        Principal {
            tenant: TenantId::generate(),
            user: UserId::generate(),
            account: AccountId::generate(),
            scopes: scopes.iter().copied().collect(),
            credential: Credential::BrowserToken(TokenId::generate()),
            memberships: Arc::default(),
        }
    }

    #[test]
    fn a_user_key_reaches_only_its_users_things() {
        let me = principal(&[Scope::Read, Scope::Write]);
        let mine = Owner { tenant: me.tenant, user: me.user, project: None };
        assert_eq!(me.access(&mine), Access::Write);
        assert_eq!(me.access(&Owner { user: UserId::generate(), ..mine }), Access::Hidden);
        assert_eq!(me.access(&Owner { tenant: TenantId::generate(), ..mine }), Access::Hidden);
    }

    #[test]
    fn tenant_scopes_widen_to_the_tenant_and_not_beyond() {
        let server = principal(&[Scope::TenantRead]);
        let theirs = Owner { tenant: server.tenant, user: UserId::generate(), project: None };
        assert_eq!(server.access(&theirs), Access::Read);
        assert_eq!(server.access(&Owner { tenant: TenantId::generate(), ..theirs }), Access::Hidden);
    }

    #[test]
    fn a_projects_members_see_its_tasks_by_their_role() {
        let mut me = principal(&[Scope::Read, Scope::Write]);
        let project = ProjectId::generate();
        let theirs = Owner { tenant: me.tenant, user: UserId::generate(), project: Some(project) };
        assert_eq!(me.access(&theirs), Access::Hidden);
        for (role, access) in
            [(Role::Owner, Access::Write), (Role::Editor, Access::Write), (Role::Viewer, Access::Read)]
        {
            me.memberships = Arc::new(HashMap::from([(project, role)]));
            assert_eq!(me.access(&theirs), access);
        }
    }

    #[test]
    fn scopes_are_a_set() {
        let defaults = Scopes::default_of_keys();
        assert!(defaults.has(Scope::Read) && !defaults.has(Scope::Admin));
        assert!(defaults.is_within(Scope::ALL.iter().copied().collect()));
        assert_eq!(defaults.iter().collect::<Vec<_>>(), [Scope::Read, Scope::Write]);
    }
}
