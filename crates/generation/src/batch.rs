//! One transaction for a slice of submits: a fixed number of statements, one verdict per element in arrival order.
//! [`crate::foresight`] does without the locks where it can.
//!
//! Keys are reserved first, then accounts, grants, quota windows and open counts are locked, both in one round trip; every
//! element is decided in memory against the locked figures, and what was decided is written. (An UPDATE over joined rows would
//! touch an account once however many elements name it.) The order of the locks is that of the first migration.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use domain::{AccountId, TaskId, TenantId, TimeZone, UserId, principal::Role};
use ledger::{Admission, AdmissionLocks, DailyQuota, LockedRow, Subject};
use pg::{PgConnection, PgError};
use task_state::{NewTask, NewlyQueued};
use tenancy::{
    idempotency::{self, IdempotencyKey, KeyRef, NewKey, Reserved},
    projects::{SubmitAccess, SubmitInto, submit_access},
};

use crate::{
    LimitState, SubmitError, answer, limits,
    request::{GenerationRequest, ROUTE},
};

/// One submit, as far as it is decided here.
#[derive(Debug)]
pub(crate) struct Element {
    /// The task that will be made. Known beforehand, so that a lost COMMIT answer can be looked up.
    pub(crate) task: TaskId,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    /// The account that pays.
    pub(crate) account: AccountId,
    /// Whether the credential may submit into every project of the tenant.
    pub(crate) tenant_wide: bool,
    /// Open tasks that the user and the tenant may have.
    pub(crate) user_open_max: u32,
    pub(crate) tenant_open_max: u32,
    /// How many tasks are accepted on one day; none without a quota.
    pub(crate) daily: Option<Daily>,
    pub(crate) request: GenerationRequest,
    pub(crate) key: Option<Keyed>,
    pub(crate) traceparent: Option<String>,
}

/// How many tasks are accepted of a user and a tenant on one day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Daily {
    /// Where days begin and end.
    pub(crate) zone: TimeZone,
    pub(crate) user_max: Option<u32>,
    pub(crate) tenant_max: Option<u32>,
}

/// An idempotency key with what is compared and looked up by it.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    pub(crate) key: IdempotencyKey,
    /// Hash of route and key; its name in Redis.
    pub(crate) hash: [u8; 16],
    /// Hash of the request.
    pub(crate) fingerprint: [u8; 32],
}

/// What became of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The task exists now. What is left of the day is told to the client.
    Accepted { body: String, queued: NewlyQueued, quotas: Vec<LimitState> },
    /// The same request was answered before.
    Replayed { subject: String, status: u16, body: String },
    /// Nothing of it exists.
    Refused(SubmitError),
}

/// Why a transaction failed, and where: a wait for a key is a twin's, a wait for anything else is not.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) at: Step,
    pub(crate) error: PgError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Reserve,
    Elsewhere,
}

impl Failed {
    /// Of a statement that reserves keys and does something else besides.
    pub(crate) fn of_statement(error: PgError) -> Self {
        let at = if error.arose_in("tenancy_reserve_keys") { Step::Reserve } else { Step::Elsewhere };
        Self { at, error }
    }
}

impl From<PgError> for Failed {
    fn from(error: PgError) -> Self {
        Self { at: Step::Elsewhere, error }
    }
}

/// What a transaction came to.
#[derive(Debug)]
pub(crate) struct Written {
    /// One per element.
    pub(crate) verdicts: Vec<Verdict>,
    /// The figures after it, as long as nobody else changes them.
    pub(crate) admission: Admission,
    /// Its instant.
    pub(crate) now: DateTime<Utc>,
}

/// Writes a batch, in the transaction of the given instant. No idempotency key may be in it twice.
pub(crate) async fn write(
    conn: &mut PgConnection,
    elements: &[Arc<Element>],
    now: DateTime<Utc>,
) -> Result<Written, Failed> {
    let all: Vec<&Element> = elements.iter().map(|element| &**element).collect();
    let access = project_access(conn, &all).await?;
    let (mut verdicts, mut admission) = open(conn, &all, now).await?;

    let mut tasks = Vec::with_capacity(elements.len());
    let mut refused_keys = Vec::new();
    for ((element, access), verdict) in all.into_iter().zip(access).zip(&mut verdicts) {
        if verdict.is_some() {
            continue;
        }
        *verdict = Some(match element.admit(access, &mut admission, now) {
            Err(error) => {
                refused_keys.extend(element.key_ref());
                Verdict::Refused(error)
            }
            Ok(()) => {
                let task = element.new_task(now);
                let queued = task.queued(now);
                tasks.push(task);
                let quotas = element.quota_states(&admission, now);
                Verdict::Accepted { body: element.body(now), queued, quotas }
            }
        });
    }
    task_state::create(conn, &tasks, &admission, now).await?;
    // A refused request does not consume its key.
    idempotency::forget(conn, &refused_keys).await?;
    Ok(Written { verdicts: verdicts.into_iter().flatten().collect(), admission, now })
}

/// Reserves the keys and locks what the elements touch. No verdict for the elements that go on.
async fn open(
    conn: &mut PgConnection,
    elements: &[&Element],
    now: DateTime<Utc>,
) -> Result<(Vec<Option<Verdict>>, Admission), Failed> {
    let mut verdicts = vec![None; elements.len()];
    let keyed: Vec<usize> = (0..elements.len()).filter(|place| elements[*place].key.is_some()).collect();
    let answers: Vec<(String, String)> =
        keyed.iter().map(|place| (elements[*place].task.to_string(), elements[*place].body(now))).collect();
    let keys: Vec<NewKey<'_>> = keyed
        .iter()
        .zip(&answers)
        .filter_map(|(place, (subject, body))| elements[*place].new_key(subject, body))
        .collect();
    let (reserved, admission) = reserve_and_lock(conn, &keys, locks(elements, now)).await?;
    for (place, outcome) in keyed.into_iter().zip(reserved) {
        verdicts[place] = match outcome {
            Reserved::Fresh => None,
            Reserved::Replay { subject, status, body } => Some(Verdict::Replayed { subject, status, body }),
            Reserved::Mismatch => Some(Verdict::Refused(SubmitError::IdempotencyMismatch)),
        };
    }
    Ok((verdicts, admission))
}

/// Reserves the keys and then takes the locks, in one round trip. Where some key is not free, what stands there is read
/// after it; the locks are those of all elements then, which is more than needed and no harm.
async fn reserve_and_lock(
    conn: &mut PgConnection,
    keys: &[NewKey<'_>],
    locks: AdmissionLocks,
) -> Result<(Vec<Reserved>, Admission), Failed> {
    let columns = idempotency::Columns::of(keys);
    let rows = sqlx::query!(
        r#"SELECT r.reserved AS "reserved!", l.what AS "what?", l.id AS "id?", l.owner AS "owner?",
                  l.available AS "available?", l.held AS "held?", l.priority AS "priority?", l.at AS "at?"
           FROM tenancy_reserve_keys($1, $2, $3, $4, $5, $6, $7) AS r (reserved)
           -- The locks need nothing of the keys; naming them puts the keys first.
           LEFT JOIN LATERAL ledger_lock_admission(
               CASE WHEN r.reserved >= 0 THEN $8::uuid[] END, $9, $10, $11, $12, $13) AS l ON TRUE"#,
        &columns.users,
        &columns.routes as &[&str],
        &columns.keys as &[&str],
        &columns.fingerprints as &[&[u8]],
        &columns.subjects as &[&str],
        &columns.statuses,
        &columns.bodies as &[&str],
        &locks.accounts,
        &locks.kinds,
        &locks.subjects,
        &locks.day_kinds,
        &locks.day_subjects,
        &locks.days
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(|error| Failed::of_statement(error.into()))?;
    let free = rows.first().map_or(0, |row| row.reserved);
    let locked = rows.into_iter().filter_map(|row| {
        Some(LockedRow {
            what: row.what?,
            id: row.id?,
            owner: row.owner,
            available: row.available?,
            held: row.held,
            priority: row.priority,
            at: row.at,
        })
    });
    let admission = locks.read(locked)?;
    let reserved = if usize::try_from(free).is_ok_and(|free| free == keys.len()) {
        vec![Reserved::Fresh; keys.len()]
    } else {
        idempotency::reserve(conn, keys).await.map_err(|error| Failed { at: Step::Reserve, error })?
    };
    Ok((reserved, admission))
}

/// What the elements touch.
fn locks(elements: &[&Element], now: DateTime<Utc>) -> AdmissionLocks {
    let accounts: Vec<AccountId> = elements.iter().map(|element| element.account).collect();
    let subjects: Vec<Subject> = elements
        .iter()
        .flat_map(|element| [Subject::Tenant(element.tenant), Subject::User(element.user)])
        .collect();
    let quotas: Vec<DailyQuota> = elements.iter().filter_map(|element| element.quota(now)).collect();
    AdmissionLocks::of(&accounts, &subjects, &quotas)
}

/// Decides one element as if it were alone, and writes nothing: why it is refused, or none, and the figures after it.
pub(crate) async fn decide(
    conn: &mut PgConnection,
    element: &Element,
) -> Result<(Option<SubmitError>, Admission), PgError> {
    let now = pg::now(conn).await?;
    let access = project_access(conn, &[element]).await?.pop().flatten();
    let subjects = [Subject::Tenant(element.tenant), Subject::User(element.user)];
    let quota = element.quota(now);
    let mut admission = ledger::lock_admission(conn, &[element.account], &subjects, quota.as_slice()).await?;
    Ok((element.admit(access, &mut admission, now).err(), admission))
}

/// How each element stands to the project that it names; none when it names none.
async fn project_access(
    conn: &mut PgConnection,
    elements: &[&Element],
) -> Result<Vec<Option<SubmitAccess>>, PgError> {
    let wishes: Vec<SubmitInto> = elements
        .iter()
        .filter_map(|element| {
            let project = element.request.project?;
            Some(SubmitInto { project, tenant: element.tenant, user: element.user })
        })
        .collect();
    let mut found = submit_access(conn, &wishes).await?.into_iter();
    Ok(elements.iter().map(|element| element.request.project.and_then(|_| found.next())).collect())
}

impl Element {
    /// Decides this element against what is left after those before it, and notes there what it takes.
    pub(crate) fn admit(
        &self,
        access: Option<SubmitAccess>,
        admission: &mut Admission,
        now: DateTime<Utc>,
    ) -> Result<(), SubmitError> {
        let Admission { funds, open: counts, quota: windows } = admission;
        match access {
            None => {}
            Some(SubmitAccess::Unknown) => return Err(SubmitError::UnknownProject),
            Some(_) if self.tenant_wide => {}
            Some(SubmitAccess::Member(Role::Owner | Role::Editor)) => {}
            Some(SubmitAccess::Member(Role::Viewer)) => return Err(SubmitError::Forbidden),
            Some(SubmitAccess::SameTenant) => return Err(SubmitError::UnknownProject),
        }
        let (tenant, user) = ((self.tenant, self.tenant_open_max), (self.user, self.user_open_max));
        counts.check(tenant, user).map_err(|full| self.queue_full(&full))?;
        let quota = self.quota(now);
        if let Some(quota) = &quota {
            windows.check(quota).map_err(|full| SubmitError::QuotaExceeded {
                by: limits::of_day(full, quota.day, now),
                resets_at: quota.day.ends_at,
                limits: limits::of_days(windows, quota, now),
            })?;
        }
        let needed = self.request.price;
        funds.try_hold(self.account, self.task, needed).map_err(|lack| SubmitError::InsufficientCredits {
            available: lack.available,
            held: lack.held,
            needed,
        })?;
        counts.try_add(tenant, user).map_err(|full| self.queue_full(&full))?;
        if let Some(quota) = &quota {
            windows.add(quota);
        }
        Ok(())
    }

    /// What it takes of the day, if its owners have a quota.
    fn quota(&self, now: DateTime<Utc>) -> Option<DailyQuota> {
        let Daily { zone, user_max, tenant_max } = self.daily?;
        let day = zone.day_of(now);
        Some(DailyQuota { day, tenant: (self.tenant, tenant_max), user: (self.user, user_max) })
    }

    /// What is left of the day after it.
    fn quota_states(&self, admission: &Admission, now: DateTime<Utc>) -> Vec<LimitState> {
        self.quota(now).map_or_else(Vec::new, |quota| limits::of_days(&admission.quota, &quota, now))
    }

    fn queue_full(&self, full: &ledger::Full) -> SubmitError {
        // Nobody knows when a task will end; one usually takes as long as its model says.
        let usual = self.request.model.usual_duration();
        let retry_after = usual.clamp(SubmitError::SOON, Duration::from_secs(60));
        SubmitError::QueueFull { scope: full.scope, open: full.open, limit: full.limit, retry_after }
    }

    pub(crate) fn body(&self, now: DateTime<Utc>) -> String {
        let request = &self.request;
        answer::accepted(self.task, &request.model.name, request.price, now, request.deadline_seconds)
    }

    /// Its key with the answer that it will have been given.
    pub(crate) fn new_key<'a>(&'a self, subject: &'a str, body: &'a str) -> Option<NewKey<'a>> {
        let fingerprint = self.key.as_ref()?.fingerprint;
        Some(NewKey { key: self.key_ref()?, fingerprint, subject, status: answer::ACCEPTED, body })
    }

    pub(crate) fn key_ref(&self) -> Option<KeyRef<'_>> {
        let key = self.key.as_ref()?.key.as_str();
        Some(KeyRef { user: self.user, route: ROUTE, key })
    }

    pub(crate) fn new_task(&self, now: DateTime<Utc>) -> NewTask {
        let request = &self.request;
        NewTask {
            task: self.task,
            tenant: self.tenant,
            user: self.user,
            project: request.project,
            account: self.account,
            model: request.model.name.clone(),
            price: request.price,
            inputs: request.inputs.clone(),
            deadline_seconds: request.deadline_seconds,
            priority: request.priority,
            traceparent: self.traceparent.clone(),
            quota_day: self.quota(now).map(|quota| quota.day.starts_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::Credits;
    use tenancy::Session;

    use super::*;
    use crate::tests_support::{Process, World};

    fn element(process: &Process, session: &Session, seconds: u32) -> Arc<Element> {
        Arc::new(Element::new(session, process.request("a cat", seconds), None, None))
    }

    #[tokio::test]
    async fn fifty_elements_of_one_batch_share_thirty_credits_in_arrival_order() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(30).await);
        let batch: Vec<_> = (0..50).map(|_| element(&process, &ada, 5)).collect();
        let written = batch.clone();
        let verdicts = pg::transact(&world.db.pool, move |conn| {
            Box::pin(async move {
                let now = pg::now(conn).await?;
                write(conn, &written, now).await
            })
        })
        .await
        .unwrap()
        .verdicts;
        let accepted: Vec<_> =
            verdicts.iter().map(|verdict| matches!(verdict, Verdict::Accepted { .. })).collect();
        assert_eq!(accepted, [vec![true; 3], vec![false; 47]].concat());
        let refusal = SubmitError::InsufficientCredits {
            available: Credits::ZERO,
            held: Credits::new(30).unwrap(),
            needed: Credits::new(10).unwrap(),
        };
        assert_eq!(verdicts[49], Verdict::Refused(refusal));
        assert_eq!(world.count("generation_tasks").await, 3);
        assert_eq!(world.balance(&ada).await.held, Credits::new(30).unwrap());
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn what_a_refused_element_would_have_taken_is_there_for_the_next() {
        let world = World::new().await;
        let (process, ada, bob) = (world.process().await, world.user(10).await, world.user(2).await);
        let batch = [
            element(&process, &ada, 4),
            element(&process, &bob, 2),
            element(&process, &ada, 2),
            element(&process, &bob, 1),
            element(&process, &ada, 1),
        ];
        let written = batch.to_vec();
        let verdicts = pg::transact(&world.db.pool, move |conn| {
            Box::pin(async move {
                let now = pg::now(conn).await?;
                write(conn, &written, now).await
            })
        })
        .await
        .unwrap()
        .verdicts;
        let accepted: Vec<_> =
            verdicts.iter().map(|verdict| matches!(verdict, Verdict::Accepted { .. })).collect();
        assert_eq!(accepted, [true, false, false, true, true]);
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn a_batch_costs_the_same_statements_whatever_its_size() {
        let world = World::new().await;
        let (process, ada, bob) = (world.process().await, world.user(10_000).await, world.user(10_000).await);
        let statements = async |size: usize| {
            let batch: Vec<_> =
                (0..size).map(|n| element(&process, if n % 2 == 0 { &ada } else { &bob }, 1)).collect();
            let mut conn = world.db.pool.acquire().await.unwrap();
            sqlx::query("BEGIN").execute(&mut *conn).await.unwrap();
            let now = pg::now(&mut conn).await.unwrap();
            write(&mut conn, &batch, now).await.unwrap();
            // Each statement of a transaction that writes takes the next command number.
            let last: i32 = sqlx::query_scalar("SELECT max(cmax::text::int) FROM outbox_events")
                .fetch_one(&mut *conn)
                .await
                .unwrap();
            sqlx::query("COMMIT").execute(&mut *conn).await.unwrap();
            last
        };
        statements(2).await;
        let (small, large) = (statements(2).await, statements(100).await);
        assert_eq!(small, large);
    }
}
