//! Proving that the money adds up. Each rule is one statement over the snapshot that the caller has opened.

use pg::{PgConnection, PgError, Violation};

/// Checks the ledger's own invariants.
///
/// # Errors
/// When a statement fails.
pub async fn audit(conn: &mut PgConnection) -> Result<Vec<Violation>, PgError> {
    let mut found = Vec::new();
    // An account is the sum of its grants, bucket by bucket.
    let rows = sqlx::query!(
        r#"SELECT a.id, a.granted, a.available, a.held, a.captured, a.expired, a.withdrawn,
                  coalesce(sum(g.granted), 0)::bigint AS "g_granted!", coalesce(sum(g.available), 0)::bigint AS "g_available!",
                  coalesce(sum(g.held), 0)::bigint AS "g_held!", coalesce(sum(g.captured), 0)::bigint AS "g_captured!",
                  coalesce(sum(g.expired), 0)::bigint AS "g_expired!", coalesce(sum(g.withdrawn), 0)::bigint AS "g_withdrawn!"
           FROM credit_accounts a LEFT JOIN credit_grants g ON g.account_id = a.id GROUP BY a.id
           HAVING (a.granted, a.available, a.held, a.captured, a.expired, a.withdrawn) IS DISTINCT FROM
                  (coalesce(sum(g.granted), 0), coalesce(sum(g.available), 0), coalesce(sum(g.held), 0),
                   coalesce(sum(g.captured), 0), coalesce(sum(g.expired), 0), coalesce(sum(g.withdrawn), 0))"#
    )
    .fetch_all(&mut *conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "account_is_sum_of_grants",
        subject: r.id.to_string(),
        detail: format!(
            "account {:?}, grants {:?}",
            (r.granted, r.available, r.held, r.captured, r.expired, r.withdrawn),
            (r.g_granted, r.g_available, r.g_held, r.g_captured, r.g_expired, r.g_withdrawn)
        ),
    }));
    // A grant is the sum of its movements, bucket by bucket.
    let rows = sqlx::query!(
        r#"WITH moved AS (
               SELECT grant_id, bucket, sum(amount) AS amount FROM (
                   SELECT grant_id, to_bucket AS bucket, amount FROM credit_ledger
                   UNION ALL SELECT grant_id, from_bucket, -amount FROM credit_ledger) AS m
               GROUP BY grant_id, bucket),
           stated AS (
               SELECT g.id AS grant_id, b.bucket, b.amount FROM credit_grants g, LATERAL (VALUES
                   ('available', g.available), ('held', g.held), ('captured', g.captured), ('expired', g.expired),
                   ('withdrawn', g.withdrawn), ('source', -g.granted)) AS b(bucket, amount))
           SELECT coalesce(s.grant_id, m.grant_id) AS "grant_id!", coalesce(s.bucket, m.bucket) AS "bucket!",
                  coalesce(s.amount, 0)::bigint AS "stated!", coalesce(m.amount, 0)::bigint AS "moved!"
           FROM stated s FULL JOIN moved m ON m.grant_id = s.grant_id AND m.bucket = s.bucket
           WHERE coalesce(s.amount, 0) <> coalesce(m.amount, 0)"#
    )
    .fetch_all(&mut *conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "grant_is_sum_of_ledger",
        subject: r.grant_id.to_string(),
        detail: format!("{}: the grant says {}, its movements {}", r.bucket, r.stated, r.moved),
    }));
    // References that foreign keys would have kept.
    let rows = sqlx::query!(
        r#"SELECT l.id FROM credit_ledger l
           WHERE NOT EXISTS (SELECT FROM credit_grants g WHERE g.id = l.grant_id AND g.account_id = l.account_id)"#
    )
    .fetch_all(conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "ledger_row_has_its_grant",
        subject: r.id.to_string(),
        detail: "no such grant of this account".to_owned(),
    }));
    Ok(found)
}
