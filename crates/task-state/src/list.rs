//! Lists of tasks, newest first, by keyset.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use domain::{ModelName, Principal, ProjectId, Scope, TaskId, TaskStatus, TenantId, UserId};
use pg::PgError;
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use crate::{
    TaskState,
    record::{TaskRecord, TaskRow, task_columns},
};

/// Whose tasks a list may show. Made from the principal only, so that no route can widen it.
#[derive(Debug, Clone)]
pub enum ListScope {
    /// The user's own and those of the user's projects.
    User {
        /// The user.
        user: UserId,
        /// Projects that the user is a member of.
        projects: Vec<ProjectId>,
    },
    /// All of the tenant.
    Tenant(TenantId),
    /// All there is: for the platform's operators.
    Platform,
}

impl ListScope {
    /// What the principal may list.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        if principal.scopes.has(Scope::Admin) {
            Self::Platform
        } else if principal.scopes.has(Scope::TenantRead) || principal.scopes.has(Scope::TenantWrite) {
            Self::Tenant(principal.tenant)
        } else {
            Self::User { user: principal.user, projects: principal.memberships.keys().copied().collect() }
        }
    }
}

/// What a list is narrowed to.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Any of these states; empty is any.
    pub status: Vec<TaskStatus>,
    /// This model.
    pub model: Option<ModelName>,
    /// This project.
    pub project: Option<ProjectId>,
    /// This label.
    pub tag: Option<String>,
    /// Accepted after this instant.
    pub created_after: Option<DateTime<Utc>>,
    /// Accepted before this instant.
    pub created_before: Option<DateTime<Utc>>,
    /// These tasks; empty is any.
    pub ids: Vec<TaskId>,
}

/// Where a page begins: behind the last task of the page before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(Uuid);

/// A text that is no cursor of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor that this list has given out")]
pub struct BadCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1{}", self.0.as_simple())
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let cursor = text
            .strip_prefix("v1")
            .and_then(|digits| Uuid::try_parse(digits).ok())
            .map(Self)
            .ok_or(BadCursor)?;
        if cursor.to_string() == text { Ok(cursor) } else { Err(BadCursor) }
    }
}

/// A page of tasks.
#[derive(Debug)]
pub struct Page {
    /// The tasks, newest first.
    pub items: Vec<TaskRecord>,
    /// Where the next page begins; none after the last.
    pub next: Option<Cursor>,
}

impl TaskState {
    /// A page of at most `limit` tasks.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(
        &self,
        scope: &ListScope,
        filter: &ListFilter,
        after: Option<Cursor>,
        limit: u16,
    ) -> Result<Page, PgError> {
        let mut query: QueryBuilder<Postgres> = QueryBuilder::new(concat!(
            "SELECT ",
            task_columns!(),
            " FROM generation_tasks t JOIN generation_inputs i ON i.task_id = t.id WHERE "
        ));
        match scope {
            ListScope::Platform => {
                query.push("TRUE");
            }
            ListScope::Tenant(tenant) => {
                query.push("t.tenant_id = ").push_bind(tenant.as_uuid());
            }
            ListScope::User { user, projects } if projects.is_empty() => {
                query.push("t.user_id = ").push_bind(user.as_uuid());
            }
            ListScope::User { user, projects } => {
                query.push("(t.user_id = ").push_bind(user.as_uuid()).push(" OR t.project_id = ANY(");
                query.push_bind(projects.iter().map(|p| p.as_uuid()).collect::<Vec<_>>()).push("))");
            }
        }
        if !filter.status.is_empty() {
            let texts: Vec<String> = filter.status.iter().map(|s| s.as_str().to_owned()).collect();
            query.push(" AND t.status = ANY(").push_bind(texts).push(")");
        }
        if let Some(model) = &filter.model {
            query.push(" AND t.model = ").push_bind(model.as_str().to_owned());
        }
        if let Some(project) = filter.project {
            query.push(" AND t.project_id = ").push_bind(project.as_uuid());
        }
        if let Some(tag) = &filter.tag {
            query.push(" AND ").push_bind(tag.clone()).push(" = ANY(i.tags)");
        }
        if let Some(instant) = filter.created_after {
            query.push(" AND t.created_at > ").push_bind(instant);
        }
        if let Some(instant) = filter.created_before {
            query.push(" AND t.created_at < ").push_bind(instant);
        }
        if !filter.ids.is_empty() {
            let ids: Vec<Uuid> = filter.ids.iter().map(|t| t.as_uuid()).collect();
            query.push(" AND t.id = ANY(").push_bind(ids).push(")");
        }
        if let Some(Cursor(id)) = after {
            query.push(" AND t.id < ").push_bind(id);
        }
        query.push(" ORDER BY t.id DESC LIMIT ").push_bind(i64::from(limit) + 1);

        let rows: Vec<TaskRow> = query.build_query_as().fetch_all(&self.shared.pool).await?;
        let mut items = rows.into_iter().map(TaskRecord::try_from).collect::<Result<Vec<_>, _>>()?;
        let more = items.len() > usize::from(limit);
        items.truncate(usize::from(limit));
        let next = items.last().filter(|_| more).map(|last| Cursor(last.id().as_uuid()));
        Ok(Page { items, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_has_one_spelling() {
        let cursor = Cursor(TaskId::generate().as_uuid());
        assert_eq!(cursor.to_string().parse::<Cursor>(), Ok(cursor));
        for bad in ["", "v1", "v1zz", &cursor.to_string().to_uppercase(), &cursor.to_string()[2..]] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
