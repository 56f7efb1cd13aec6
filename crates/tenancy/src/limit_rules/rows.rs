//! Rules as rows.

use chrono::{DateTime, Utc};
use domain::limits::{Bucket, Window};
use pg::{PgConnection, PgError};

use super::{Figure, Form, LimitRule, RuleFault, RuleKey, RuleSubject};
use crate::{Page, Tiers, find_tenant};

/// Rules at most: each process keeps all of them in mind.
const RULES_MAX: i64 = 10_000;

/// Why a rule is not set.
#[derive(Debug, thiserror::Error)]
pub enum PutRuleError {
    /// It cannot be.
    #[error(transparent)]
    Fault(#[from] RuleFault),
    /// There is no such tier, tenant or key.
    #[error("there is no such tier, tenant or key")]
    NoSubject,
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(#[from] PgError),
}

/// Sets a rule; an earlier one of the same name is replaced. Returns it with the one before.
///
/// # Errors
/// [`PutRuleError`].
pub async fn put_limit_rule(
    conn: &mut PgConnection,
    tiers: &Tiers,
    key: &RuleKey,
    figure: &Figure,
) -> Result<(Option<LimitRule>, LimitRule), PutRuleError> {
    key.check(figure)?;
    if !subject_exists(conn, tiers, &key.subject).await? {
        return Err(PutRuleError::NoSubject);
    }
    let (subject, policy) = (key.subject.to_string(), key.limit.to_string());
    let before = sqlx::query_as!(
        Row,
        "SELECT subject, policy, shadow, most, refill, per_ms, version, set_at FROM limit_rules
         WHERE subject = $1 AND policy = $2 AND shadow = $3 FOR NO KEY UPDATE",
        subject,
        policy,
        key.shadow
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(PgError::from)?;
    if before.is_none() && count(conn).await? >= RULES_MAX {
        let message = "is one rule too many: there are 10000 already";
        return Err(RuleFault { field: "limit", code: "too_many", message }.into());
    }
    let (most, refill, per_ms) = columns(figure);
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO limit_rules (subject, policy, shadow, most, refill, per_ms) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (subject, policy, shadow) DO UPDATE SET most = excluded.most, refill = excluded.refill,
             per_ms = excluded.per_ms, set_at = aiv_now(), version = limit_rules.version + 1
         RETURNING subject, policy, shadow, most, refill, per_ms, version, set_at",
        subject,
        policy,
        key.shadow,
        most,
        refill,
        per_ms
    )
    .fetch_one(conn)
    .await
    .map_err(PgError::from)?;
    Ok((
        before.and_then(Row::read),
        LimitRule { key: key.clone(), figure: *figure, version: row.version, set_at: row.set_at },
    ))
}

/// Takes a rule away. Returns what it was; none when there was none.
///
/// # Errors
/// When the statement fails.
pub async fn remove_limit_rule(conn: &mut PgConnection, key: &RuleKey) -> Result<Option<LimitRule>, PgError> {
    let row = sqlx::query_as!(
        Row,
        "DELETE FROM limit_rules WHERE subject = $1 AND policy = $2 AND shadow = $3
         RETURNING subject, policy, shadow, most, refill, per_ms, version, set_at",
        key.subject.to_string(),
        key.limit.to_string(),
        key.shadow
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.and_then(Row::read))
}

/// At most `limit` rules after the given one, of one subject or of all, by subject and limit.
///
/// # Errors
/// When the statement fails.
pub async fn find_limit_rules(
    conn: &mut PgConnection,
    subject: Option<&RuleSubject>,
    after: Option<&RuleKey>,
    limit: u16,
) -> Result<Page<LimitRule, RuleKey>, PgError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT subject, policy, shadow, most, refill, per_ms, version, set_at FROM limit_rules
         WHERE ($1::text IS NULL OR subject = $1) AND ($2::text IS NULL OR (subject, policy, shadow) > ($2, $3, $4))
         ORDER BY subject, policy, shadow LIMIT $5",
        subject.map(ToString::to_string),
        after.map(|key| key.subject.to_string()),
        after.map_or_else(String::new, |key| key.limit.to_string()),
        after.is_some_and(|key| key.shadow),
        i64::from(limit) + 1
    )
    .fetch_all(conn)
    .await?;
    Ok(Page::cut(rows.into_iter().filter_map(Row::read).collect(), limit, |rule| rule.key.clone()))
}

/// Every rule.
pub(super) async fn all_limit_rules(conn: &mut PgConnection) -> Result<Vec<LimitRule>, PgError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT subject, policy, shadow, most, refill, per_ms, version, set_at FROM limit_rules"
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().filter_map(Row::read).collect())
}

async fn count(conn: &mut PgConnection) -> Result<i64, PgError> {
    Ok(sqlx::query_scalar!("SELECT count(*) AS \"count!\" FROM limit_rules").fetch_one(conn).await?)
}

async fn subject_exists(
    conn: &mut PgConnection,
    tiers: &Tiers,
    subject: &RuleSubject,
) -> Result<bool, PgError> {
    Ok(match subject {
        RuleSubject::Tier(name) => tiers.get(name).is_some(),
        RuleSubject::Tenant(id) => find_tenant(conn, *id).await?.is_some(),
        RuleSubject::Key(id) => {
            sqlx::query_scalar!(
                "SELECT EXISTS (SELECT FROM api_keys WHERE id = $1 AND revoked_at IS NULL) AS \"exists!\"",
                id.as_str()
            )
            .fetch_one(conn)
            .await?
        }
    })
}

fn columns(figure: &Figure) -> (Option<i64>, Option<i64>, Option<i64>) {
    let period = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    match figure {
        Figure::Bucket(Some(bucket)) => {
            (Some(bucket.capacity.into()), Some(bucket.refill.into()), Some(period(bucket.per_ms)))
        }
        Figure::Window(Some(window)) => (Some(window.limit.into()), None, Some(period(window.window_ms))),
        Figure::Bucket(None) | Figure::Window(None) | Figure::Quota(None) => (None, None, None),
        Figure::Count(count) | Figure::Quota(Some(count)) => (Some((*count).into()), None, None),
    }
}

struct Row {
    subject: String,
    policy: String,
    shadow: bool,
    most: Option<i64>,
    refill: Option<i64>,
    per_ms: Option<i64>,
    version: i64,
    set_at: DateTime<Utc>,
}

impl Row {
    /// The rule; none when this program knows no such rule. A later one may have written it, and a hand may have erred:
    /// neither must keep everybody out.
    fn read(self) -> Option<LimitRule> {
        let rule = self.parse();
        if rule.is_none() {
            tracing::warn!(
                subject = self.subject,
                policy = self.policy,
                "a limit rule can't be read; it counts as absent"
            );
        }
        rule
    }

    fn parse(&self) -> Option<LimitRule> {
        let key = RuleKey {
            subject: self.subject.parse().ok()?,
            limit: self.policy.parse().ok()?,
            shadow: self.shadow,
        };
        let number = |value: i64| u32::try_from(value).ok();
        let period = |value: i64| u64::try_from(value).ok();
        let figure = match (key.limit.form(), self.most, self.refill, self.per_ms) {
            (Form::Bucket, None, None, None) => Figure::Bucket(None),
            (Form::Window, None, None, None) => Figure::Window(None),
            (Form::Quota, None, None, None) => Figure::Quota(None),
            (Form::Bucket, Some(most), Some(refill), Some(per_ms)) => {
                let (capacity, refill, per_ms) = (number(most)?, number(refill)?, period(per_ms)?);
                Figure::Bucket(Some(Bucket { capacity, refill, per_ms }))
            }
            (Form::Window, Some(most), None, Some(per_ms)) => {
                Figure::Window(Some(Window { limit: number(most)?, window_ms: period(per_ms)? }))
            }
            (Form::Count, Some(most), None, None) => Figure::Count(number(most)?),
            (Form::Quota, Some(most), None, None) => Figure::Quota(Some(number(most)?)),
            _ => return None,
        };
        key.check(&figure).ok()?;
        Some(LimitRule { key, figure, version: self.version, set_at: self.set_at })
    }
}
