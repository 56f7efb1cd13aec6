//! Proving what must hold of tasks, over the snapshot that the caller has opened. Each rule is one statement.

use std::time::Duration;

use pg::{PgConnection, PgError, Violation};

/// Checks the invariants of tasks. A task may be past its deadline by `sweep` before that counts.
///
/// # Errors
/// When a statement fails.
pub async fn audit(conn: &mut PgConnection, sweep: Duration) -> Result<Vec<Violation>, PgError> {
    let mut found = Vec::new();
    money(conn, &mut found).await?;
    history(conn, &mut found).await?;
    liveness(conn, &mut found, sweep).await?;
    references(conn, &mut found).await?;
    Ok(found)
}

/// A live task holds its price; an ended one holds nothing and was charged its price or nothing.
async fn money(conn: &mut PgConnection, found: &mut Vec<Violation>) -> Result<(), PgError> {
    let rows = sqlx::query!(
        r#"SELECT t.id, t.status, t.price, coalesce(l.held, 0)::bigint AS "held!",
                  coalesce(l.captured, 0)::bigint AS "captured!", coalesce(l.released, 0)::bigint AS "released!"
           FROM generation_tasks t LEFT JOIN (
               SELECT cause_id, sum(amount) FILTER (WHERE kind = 'hold') AS held,
                      sum(amount) FILTER (WHERE kind = 'capture') AS captured,
                      sum(amount) FILTER (WHERE kind = 'release') AS released
               FROM credit_ledger WHERE kind IN ('hold', 'capture', 'release') GROUP BY cause_id) l ON l.cause_id = t.id
           WHERE coalesce(l.held, 0) <> t.price
              OR coalesce(l.captured, 0) <> CASE WHEN t.status = 'SUCCEEDED' THEN t.price ELSE 0 END
              OR coalesce(l.released, 0) <> CASE WHEN t.status IN ('FAILED', 'CANCELED') THEN t.price ELSE 0 END"#
    )
    .fetch_all(&mut *conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "task_is_settled_as_it_ended",
        subject: r.id.to_string(),
        detail: format!(
            "{} at {}: held {}, captured {}, released {}",
            r.status, r.price, r.held, r.captured, r.released
        ),
    }));
    let rows = sqlx::query!(
        r#"SELECT c.subject_kind, c.subject_id, c.open, count(t.id) AS "counted!"
           FROM open_counts c LEFT JOIN generation_tasks t ON t.ended_at IS NULL
                AND CASE c.subject_kind WHEN 'user' THEN t.user_id ELSE t.tenant_id END = c.subject_id
           GROUP BY c.subject_kind, c.subject_id, c.open HAVING c.open <> count(t.id)"#
    )
    .fetch_all(&mut *conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "open_count_is_counted",
        subject: format!("{} {}", r.subject_kind, r.subject_id),
        detail: format!("the count says {}, there are {}", r.open, r.counted),
    }));
    quotas(conn, found).await
}

/// What was used of a day is the tasks that took of it and did not give it back. Windows of long ago may be retired.
async fn quotas(conn: &mut PgConnection, found: &mut Vec<Violation>) -> Result<(), PgError> {
    let rows = sqlx::query!(
        r#"WITH counted AS (
               SELECT s.kind, s.id, t.quota_day, count(*) AS tasks
               FROM generation_tasks t, LATERAL (VALUES ('user', t.user_id), ('tenant', t.tenant_id)) AS s (kind, id)
               WHERE t.quota_day IS NOT NULL AND t.status NOT IN ('FAILED', 'CANCELED')
               GROUP BY s.kind, s.id, t.quota_day)
           SELECT coalesce(w.subject_kind, c.kind) AS "kind!", coalesce(w.subject_id, c.id) AS "id!",
                  coalesce(w.starts_at, c.quota_day) AS "day!", coalesce(w.used, 0) AS "used!",
                  coalesce(c.tasks, 0) AS "counted!"
           FROM quota_windows w
           FULL JOIN counted c ON c.kind = w.subject_kind AND c.id = w.subject_id AND c.quota_day = w.starts_at
           WHERE coalesce(w.used, 0) <> coalesce(c.tasks, 0)
             AND (w.used IS NOT NULL OR c.quota_day > aiv_now() - interval '30 days')"#
    )
    .fetch_all(conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "quota_used_is_counted",
        subject: format!("{} {}", r.kind, r.id),
        detail: format!("the day that began at {}: used {}, counted {}", r.day, r.used, r.counted),
    }));
    Ok(())
}

/// Versions have no gap, and exactly one terminal event belongs to each ended task and none to a live one.
async fn history(conn: &mut PgConnection, found: &mut Vec<Violation>) -> Result<(), PgError> {
    let rows = sqlx::query!(
        r#"SELECT t.id, t.version, t.ended_at IS NOT NULL AS "ended!", coalesce(e.events, 0) AS "events!",
                  coalesce(e.terminal, 0) AS "terminal!"
           FROM generation_tasks t LEFT JOIN (
               SELECT task_id, count(*) AS events,
                      count(*) FILTER (WHERE type IN ('succeeded', 'failed', 'canceled')) AS terminal
               FROM task_events GROUP BY task_id) e ON e.task_id = t.id
           WHERE coalesce(e.events, 0) <> t.version
              OR coalesce(e.terminal, 0) <> CASE WHEN t.ended_at IS NULL THEN 0 ELSE 1 END"#
    )
    .fetch_all(conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "history_matches_the_task",
        subject: r.id.to_string(),
        detail: format!(
            "version {}, ended {}: {} events, {} terminal",
            r.version, r.ended, r.events, r.terminal
        ),
    }));
    Ok(())
}

/// No task is past its deadline by more than a sweep; at most one live job per task.
async fn liveness(
    conn: &mut PgConnection,
    found: &mut Vec<Violation>,
    sweep: Duration,
) -> Result<(), PgError> {
    let rows = sqlx::query!(
        "SELECT id, status, deadline_at FROM generation_tasks
         WHERE ended_at IS NULL AND deadline_at < aiv_now() - make_interval(secs => $1)",
        sweep.as_secs_f64()
    )
    .fetch_all(&mut *conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "task_ends_by_its_deadline",
        subject: r.id.to_string(),
        detail: format!("{} although its deadline was {}", r.status, r.deadline_at),
    }));
    let rows = sqlx::query!(
        r#"SELECT task_id, count(*) AS "live!" FROM task_attempts WHERE through_at IS NULL
           GROUP BY task_id HAVING count(*) > 1"#
    )
    .fetch_all(&mut *conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "one_live_job_per_task",
        subject: r.task_id.to_string(),
        detail: format!("{} attempts are live at a provider", r.live),
    }));
    let rows = sqlx::query!(
        "SELECT t.id, t.status FROM generation_tasks t
         WHERE t.status IN ('SCHEDULING', 'PROVIDER_SUBMITTED', 'RUNNING', 'POST_PROCESSING', 'RECONCILING')
           AND NOT EXISTS (SELECT FROM task_attempts a WHERE a.task_id = t.id AND a.attempt_no = t.attempt_no
                             AND a.closed_at IS NULL AND a.fencing_token = t.fencing_token)"
    )
    .fetch_all(conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "live_task_has_its_open_attempt",
        subject: r.id.to_string(),
        detail: format!("{} without an open attempt of the same token", r.status),
    }));
    Ok(())
}

/// References that foreign keys would have kept.
async fn references(conn: &mut PgConnection, found: &mut Vec<Violation>) -> Result<(), PgError> {
    let rows = sqlx::query!(
        r#"SELECT t.id AS "id!", 'generation_inputs' AS "missing!" FROM generation_tasks t
             WHERE NOT EXISTS (SELECT FROM generation_inputs i WHERE i.task_id = t.id)
           UNION ALL SELECT t.id, 'users' FROM generation_tasks t
             WHERE NOT EXISTS (SELECT FROM users u WHERE u.id = t.user_id AND u.tenant_id = t.tenant_id)
           UNION ALL SELECT t.id, 'credit_accounts' FROM generation_tasks t
             WHERE NOT EXISTS (SELECT FROM credit_accounts a WHERE a.id = t.account_id)
           UNION ALL SELECT t.id, 'projects' FROM generation_tasks t
             WHERE t.project_id IS NOT NULL
               AND NOT EXISTS (SELECT FROM projects p WHERE p.id = t.project_id AND p.tenant_id = t.tenant_id)
           UNION ALL SELECT t.id, 'assets' FROM generation_tasks t
             WHERE t.status = 'SUCCEEDED' AND NOT EXISTS (
               SELECT FROM assets a WHERE a.task_id = t.id AND a.kind = 'output' AND a.id = t.output_asset_id)"#
    )
    .fetch_all(conn)
    .await?;
    found.extend(rows.into_iter().map(|r| Violation {
        rule: "task_reference_exists",
        subject: r.id.to_string(),
        detail: format!("no row in {}", r.missing),
    }));
    Ok(())
}
