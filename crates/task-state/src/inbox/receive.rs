//! Storing a batch of callbacks: what is known of their attempts, a verdict on each, one insert.

use std::collections::{HashMap, HashSet};

use domain::{AttemptRef, TaskId, WorkerId};
use pg::{PgConnection, PgError};

use super::{BODY_BYTES_KEPT, IgnoredBecause, NewProviderEvent, Received};

/// What PostgreSQL knows of an attempt that somebody calls about.
#[derive(Debug, Clone)]
struct Facts {
    account: String,
    owner: WorkerId,
    job: Option<String>,
    through: bool,
    closed: bool,
    present: bool,
    task_ended: bool,
}

/// Stores the batch in the caller's transaction; one outcome per element.
pub(super) async fn receive(
    conn: &mut PgConnection,
    batch: &[NewProviderEvent],
) -> Result<Vec<Received>, PgError> {
    let facts = facts(conn, batch).await?;
    let judged: Vec<Received> = batch.iter().map(|event| judge(event, facts.get(&event.attempt))).collect();
    // Of equal deliveries the first counts; the others would only meet its row.
    let mut named = HashSet::with_capacity(batch.len());
    let firsts: Vec<(&NewProviderEvent, &Received)> = batch
        .iter()
        .zip(&judged)
        .filter(|(event, _)| named.insert((&event.account, &*event.news.delivery)))
        .collect();
    let mut stored = insert(conn, &firsts).await?;
    Ok(batch
        .iter()
        .zip(judged)
        .map(|(event, received)| {
            let key = (event.account.to_string(), event.news.delivery.clone());
            if stored.remove(&key) { received } else { Received::Ignored(IgnoredBecause::Repeated) }
        })
        .collect())
}

/// What is to become of a callback that has not come before. What it says does not matter, only whose it is: an attempt
/// that is over has nothing to learn.
fn judge(event: &NewProviderEvent, facts: Option<&Facts>) -> Received {
    let Some(facts) = facts.filter(|facts| facts.account == event.account.as_str()) else {
        return Received::Ignored(IgnoredBecause::UnknownAttempt);
    };
    let other_job = match (&event.job, &facts.job) {
        (Some(told), Some(known)) => told.as_str() != known,
        // An early one: our own answer to the submit is not stored yet.
        (_, None) | (None, _) => false,
    };
    let because = if other_job {
        IgnoredBecause::OtherJob
    } else if facts.closed && !facts.present {
        IgnoredBecause::OlderAttempt
    } else if facts.closed && facts.task_ended {
        IgnoredBecause::TaskEnded
    } else if facts.closed {
        IgnoredBecause::AttemptClosed
    } else if facts.through {
        IgnoredBecause::ProviderThrough
    } else {
        return Received::Pending { owner: facts.owner.clone() };
    };
    Received::Ignored(because)
}

async fn facts(
    conn: &mut PgConnection,
    batch: &[NewProviderEvent],
) -> Result<HashMap<AttemptRef, Facts>, PgError> {
    let rows = sqlx::query!(
        r#"SELECT a.task_id, a.attempt_no, a.provider_account_id, a.worker_id, a.provider_task_id,
                  a.through_at IS NOT NULL AS "through!", a.closed_at IS NOT NULL AS "closed!",
                  (t.attempt_no = a.attempt_no) AS "present!", t.ended_at IS NOT NULL AS "task_ended!"
           FROM unnest($1::uuid[], $2::int[]) AS d(task_id, attempt_no)
                JOIN task_attempts a ON a.task_id = d.task_id AND a.attempt_no = d.attempt_no
                JOIN generation_tasks t ON t.id = a.task_id"#,
        &batch.iter().map(|event| event.attempt.task.as_uuid()).collect::<Vec<_>>(),
        &batch.iter().map(|event| event.attempt.attempt_no).collect::<Vec<_>>()
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let attempt = AttemptRef { task: TaskId::from_uuid(row.task_id), attempt_no: row.attempt_no };
            let owner = row.worker_id.parse().map_err(|_| PgError::BadRow {
                table: "task_attempts",
                column: "worker_id",
                id: attempt.to_string(),
            })?;
            let facts = Facts {
                account: row.provider_account_id,
                owner,
                job: row.provider_task_id,
                through: row.through,
                closed: row.closed,
                present: row.present,
                task_ended: row.task_ended,
            };
            Ok((attempt, facts))
        })
        .collect()
}

/// The keys of those that were not there yet.
async fn insert(
    conn: &mut PgConnection,
    firsts: &[(&NewProviderEvent, &Received)],
) -> Result<HashSet<(String, String)>, PgError> {
    let texts = |f: fn(&NewProviderEvent) -> &str| -> Vec<String> {
        firsts.iter().map(|(event, _)| f(event).to_owned()).collect()
    };
    let kept = |event: &NewProviderEvent| event.body[..event.body.len().min(BODY_BYTES_KEPT)].to_vec();
    let reasons = firsts.iter().map(|(_, received)| match received {
        Received::Ignored(because) => Some(because.as_str().to_owned()),
        Received::Pending { .. } => None,
    });
    // In the order of the key, so that two batches with the same deliveries wait for each other and not in a circle.
    let rows = sqlx::query!(
        "INSERT INTO provider_events (provider_account_id, delivery_id, task_id, attempt_no, kind, says_ended, job, body,
                                      body_bytes, received_at, outcome, reason)
         SELECT account, delivery, task_id, attempt_no, kind, says_ended, job, body, body_bytes, aiv_now(),
                CASE WHEN reason IS NULL THEN 'pending' ELSE 'ignored' END, reason
         FROM unnest($1::text[], $2::text[], $3::uuid[], $4::int[], $5::text[], $6::bool[], $7::text[], $8::bytea[],
                     $9::int[], $10::text[])
              AS d(account, delivery, task_id, attempt_no, kind, says_ended, job, body, body_bytes, reason)
         ORDER BY account, delivery
         ON CONFLICT (provider_account_id, delivery_id) DO NOTHING
         RETURNING provider_account_id, delivery_id",
        &texts(|event| event.account.as_str()),
        &texts(|event| &event.news.delivery),
        &firsts.iter().map(|(event, _)| event.attempt.task.as_uuid()).collect::<Vec<_>>(),
        &firsts.iter().map(|(event, _)| event.attempt.attempt_no).collect::<Vec<_>>(),
        &texts(|event| &event.news.kind),
        &firsts.iter().map(|(event, _)| event.news.says_ended).collect::<Vec<_>>(),
        &firsts
            .iter()
            .map(|(event, _)| event.job.as_ref().map(|job| job.as_str().to_owned()))
            .collect::<Vec<_>>() as _,
        &firsts.iter().map(|(event, _)| kept(event)).collect::<Vec<_>>(),
        &firsts
            .iter()
            .map(|(event, _)| i32::try_from(event.body.len()).unwrap_or(i32::MAX))
            .collect::<Vec<_>>(),
        &reasons.collect::<Vec<_>>() as _
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.provider_account_id, row.delivery_id)).collect())
}
