//! Finding and listing tenants, for operators.

use chrono::{DateTime, Utc};
use domain::{AccountId, TenantId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{Page, Payer, Tenant};

/// The tenant of this id.
///
/// # Errors
/// When the statement fails.
pub async fn find_tenant(conn: &mut PgConnection, id: TenantId) -> Result<Option<Tenant>, PgError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, name, tier, time_zone, payer, account_id, created_at FROM tenants WHERE id = $1",
        id.as_uuid()
    )
    .fetch_optional(conn)
    .await?;
    row.map(TryInto::try_into).transpose()
}

/// At most `limit` tenants after the given one, oldest first.
///
/// # Errors
/// When the statement fails.
pub async fn list_tenants(
    conn: &mut PgConnection,
    after: Option<TenantId>,
    limit: u16,
) -> Result<Page<Tenant, TenantId>, PgError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, name, tier, time_zone, payer, account_id, created_at FROM tenants
         WHERE id > $1 ORDER BY id LIMIT $2",
        after.map_or(Uuid::nil(), TenantId::as_uuid),
        i64::from(limit) + 1
    )
    .fetch_all(conn)
    .await?;
    let tenants = rows.into_iter().map(TryInto::try_into).collect::<Result<Vec<Tenant>, _>>()?;
    Ok(Page::cut(tenants, limit, |tenant| tenant.id))
}

struct Row {
    id: Uuid,
    name: String,
    tier: String,
    time_zone: String,
    payer: String,
    account_id: Uuid,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Tenant {
    type Error = PgError;

    fn try_from(row: Row) -> Result<Self, PgError> {
        Ok(Self {
            id: TenantId::from_uuid(row.id),
            name: row.name,
            tier: row.tier,
            time_zone: row.time_zone,
            payer: Payer::of_row(row.id, &row.payer)?,
            account: AccountId::from_uuid(row.account_id),
            created_at: row.created_at,
        })
    }
}

impl<T, Id> Page<T, Id> {
    /// Makes a page of one more item than it may have: the surplus only says that there is a next page.
    pub(crate) fn cut(mut items: Vec<T>, limit: u16, id: impl Fn(&T) -> Id) -> Self {
        let more = items.len() > usize::from(limit);
        items.truncate(limit.into());
        let next = if more { items.last().map(id) } else { None };
        Self { items, next }
    }
}
