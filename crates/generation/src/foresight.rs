//! Batches that are written in one round trip, decided before anything is locked.
//!
//! A writer remembers from which grant the accounts of its last batches burn ([`Foresight`]). When all submits of the next
//! batch are sure to be accepted if nothing else has changed, one statement reserves their keys, writes them, locks, and
//! compares what was remembered with what is there; it is a transaction by itself. When anything is otherwise nothing has
//! happened, and the batch takes the way over locks ([`crate::batch`]), which alone refuses, replays and decides in detail.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use domain::AccountId;
use futures::FutureExt as _;
use ledger::{Admission, Seen, Subject};
use pg::Dedicated;
use sqlx::{Arguments as _, postgres::PgArguments};
use task_state::NewTask;
use tenancy::idempotency::{self, NewKey};

use crate::batch::{Element, Failed, Verdict, Written};

/// What was seen is relied upon for this long. It also bounds how wrong the clock of this process can make an instant.
const SEEN_FOR: Duration = Duration::from_secs(1);
/// So many batches go over locks after one that was not as expected: whoever stood in its way may stand there again.
const REST: u32 = 16;

/// What a writer knows of its last batches.
#[derive(Debug, Default)]
pub(crate) struct Foresight(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    seen: Seen,
    /// The store's instant when something was last seen, and ours right after it.
    last: Option<(DateTime<Utc>, Instant)>,
    rest: u32,
}

/// A batch of which every submit is accepted, if all is as expected.
#[derive(Debug)]
pub(crate) struct Foreseen {
    accounts: Vec<AccountId>,
    /// One per element.
    verdicts: Vec<Verdict>,
    arguments: PgArguments,
}

impl Foresight {
    /// Whether the next batch may do without locks, as far as that is known.
    pub(crate) fn is_awake(&self) -> bool {
        self.known().rest == 0
    }

    /// The batch as it will be written; none when it has to be decided under locks.
    pub(crate) fn of(&self, elements: &[Arc<Element>], lock_limit: Duration) -> Option<Foreseen> {
        let mut known = self.known();
        if known.rest > 0 {
            known.rest -= 1;
            return None;
        }
        let (instant, since) = known.last.filter(|(_, since)| since.elapsed() < SEEN_FOR)?;
        let now = instant + TimeDelta::from_std(since.elapsed()).ok()?;
        // Projects have members, and days their quotas: these are looked up.
        if elements.iter().any(|element| element.request.project.is_some() || element.daily.is_some()) {
            return None;
        }
        let mut admission = known.seen.suppose(elements.iter().map(|element| element.account))?;
        for element in elements {
            element.admit(None, &mut admission, now).ok()?;
        }
        // Other batches may follow before this one is committed.
        known.seen.remember(&admission);
        drop(known);
        let tasks: Vec<NewTask> = elements.iter().map(|element| element.new_task(now)).collect();
        let bodies: Vec<String> = elements.iter().map(|element| element.body(now)).collect();
        let arguments = arguments(elements, &tasks, &bodies, &admission, lock_limit, now)?;
        let verdicts = tasks
            .iter()
            .zip(bodies)
            .map(|(task, body)| Verdict::Accepted { body, queued: task.queued(now), quotas: Vec::new() })
            .collect();
        let accounts = elements.iter().map(|element| element.account).collect();
        Some(Foreseen { accounts, verdicts, arguments })
    }

    /// Remembers the figures after a batch that was decided under locks and is committed.
    pub(crate) fn remember(&self, written: &Written) {
        let mut known = self.known();
        known.seen.remember(&written.admission);
        known.last = Some((written.now, Instant::now()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Foreseen {
    /// Writes it; no verdicts when something was otherwise than expected, and then nothing has happened.
    pub(crate) async fn write(
        self,
        session: &Dedicated,
        foresight: &Foresight,
    ) -> Result<Option<Vec<Verdict>>, Failed> {
        let Self { accounts, verdicts, arguments } = self;
        let outcome = session.statement(move |conn| {
            // Each names what it comes after: how long to wait for a lock, the keys, and then what is written.
            let statement = sqlx::query_scalar_with(
                "SELECT aiv_now()
                 FROM (SELECT set_config('lock_timeout', $43, TRUE)) AS waits (up_to),
                      LATERAL tenancy_reserve_keys(
                          CASE WHEN waits.up_to <> '' THEN $44::uuid[] END, $45, $46, $47, $48, $49, $50) AS keys (reserved),
                      LATERAL task_state_create(
                          CASE WHEN keys.reserved = cardinality($44) THEN $1::uuid[] END,
                          $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34,
                          $35, $36, $37, $38, $39, $40, $41, $42)",
                arguments,
            );
            statement.fetch_one(conn).boxed()
        });
        let outcome = outcome.await;
        let mut known = foresight.known();
        match outcome {
            Ok(now) => {
                known.last = Some((now, Instant::now()));
                Ok(Some(verdicts))
            }
            Err(error) => {
                known.seen.forget(accounts);
                if ledger::is_otherwise(&error) {
                    known.rest = REST;
                    return Ok(None);
                }
                Err(Failed::of_statement(error))
            }
        }
    }
}

/// The arguments of the statement: those of `task_state_create`, how long it waits for a lock, and the keys. None when
/// something cannot be sent at all, which is for the other way to tell.
fn arguments(
    elements: &[Arc<Element>],
    tasks: &[NewTask],
    bodies: &[String],
    admission: &Admission,
    lock_limit: Duration,
    now: DateTime<Utc>,
) -> Option<PgArguments> {
    let mut limits: HashMap<Subject, u32> = HashMap::new();
    for element in elements {
        for (subject, limit) in [
            (Subject::Tenant(element.tenant), element.tenant_open_max),
            (Subject::User(element.user), element.user_open_max),
        ] {
            limits.entry(subject).and_modify(|least| *least = limit.min(*least)).or_insert(limit);
        }
    }
    let subjects: Vec<String> = elements.iter().map(|element| element.task.to_string()).collect();
    let keys: Vec<NewKey<'_>> = elements
        .iter()
        .zip(&subjects)
        .zip(bodies)
        .filter_map(|((element, subject), body)| element.new_key(subject, body))
        .collect();
    let mut to = task_state::arguments(tasks, admission, now).ok()?;
    to.add(admission.most_open(&limits)).ok()?;
    to.add(lock_limit.as_millis().max(1).to_string()).ok()?;
    idempotency::Columns::of(&keys).add_to(&mut to).ok()?;
    Some(to)
}

#[cfg(test)]
mod tests {
    use domain::Credits;
    use futures::future::join_all;
    use tenancy::Session;

    use super::*;
    use crate::{
        SubmitError,
        batch::{self, Keyed},
        tests_support::{Process, World},
    };

    const LOCK_LIMIT: Duration = Duration::from_millis(500);

    /// A writer without its queue.
    struct Line {
        world: World,
        process: Process,
        session: Dedicated,
        foresight: Foresight,
    }

    impl Line {
        async fn new() -> Self {
            let world = World::new().await;
            let process = world.process().await;
            let session = Dedicated::new(world.db.pool.clone());
            Self { world, process, session, foresight: Foresight::default() }
        }

        fn batch(&self, user: &Session, keys: &[Option<&str>]) -> Vec<Arc<Element>> {
            let element = |key: &Option<&str>| {
                let request = self.process.request("a cat", 1);
                let key = key.map(|key| {
                    Keyed::new(tenancy::idempotency::IdempotencyKey::parse(key.as_bytes()).unwrap(), &request)
                });
                Arc::new(Element::new(user, request, key, None))
            };
            keys.iter().map(element).collect()
        }

        async fn locked(&self, elements: Vec<Arc<Element>>) -> Vec<Verdict> {
            let written = self
                .session
                .transact(
                    LOCK_LIMIT,
                    || false,
                    move |conn, now| async move { batch::write(conn, &elements, now).await }.boxed(),
                )
                .await;
            let written = written.unwrap();
            self.foresight.remember(&written);
            written.verdicts
        }

        /// None when it was not foreseen, or something was otherwise.
        async fn at_once(&self, elements: &[Arc<Element>]) -> Option<Vec<Verdict>> {
            let foreseen = self.foresight.of(elements, LOCK_LIMIT)?;
            foreseen.write(&self.session, &self.foresight).await.unwrap()
        }

        /// What exists of tasks, keys, ledger rows and messages.
        async fn rows(&self) -> [i64; 4] {
            let tables = ["generation_tasks", "idempotency_keys", "credit_ledger", "outbox_events"];
            let [a, b, c, d] = tables.map(|table| self.world.count(table));
            let (a, b, c, d) = tokio::join!(a, b, c, d);
            [a, b, c, d]
        }

        /// The batch is foreseen, meets something else than was expected, and leaves nothing behind.
        async fn misses(&self, elements: &[Arc<Element>]) {
            let before = self.rows().await;
            let foreseen =
                self.foresight.of(elements, LOCK_LIMIT).expect("nothing seems to stand in its way");
            assert!(foreseen.write(&self.session, &self.foresight).await.unwrap().is_none());
            assert_eq!(self.rows().await, before);
            for _ in 0..REST {
                assert!(!self.foresight.is_awake());
                assert!(self.foresight.of(elements, LOCK_LIMIT).is_none());
            }
            assert!(self.foresight.is_awake());
        }
    }

    fn is_accepted(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Accepted { .. })
    }

    #[tokio::test]
    async fn what_follows_a_batch_is_written_at_once_and_answered_alike() {
        let line = Line::new().await;
        let ada = line.world.user(100).await;
        assert!(line.at_once(&line.batch(&ada, &[None])).await.is_none(), "nobody was seen yet");
        line.locked(line.batch(&ada, &[None])).await;

        let keys: Vec<String> = (0..8).map(|n| format!("key-{n}")).collect();
        let keys: Vec<Option<&str>> = keys.iter().map(|key| Some(key.as_str())).collect();
        for round in 0..3 {
            let keys = if round == 0 { keys.clone() } else { vec![None; 5] };
            let verdicts = line.at_once(&line.batch(&ada, &keys)).await.expect("all is as it was");
            assert!(verdicts.iter().all(is_accepted));
        }
        assert_eq!(line.world.balance(&ada).await.held, Credits::new(2 * 19).unwrap());
        assert_eq!(line.rows().await, [19, 8, 20, 19]);

        // A replay finds the very answer that was given.
        let again = line.batch(&ada, &keys[..1]);
        line.misses(&again).await;
        let verdicts = line.locked(again).await;
        let [Verdict::Replayed { subject, body, .. }] = verdicts.as_slice() else { panic!("{verdicts:?}") };
        assert!(body.contains(subject.as_str()), "{body}");
        line.world.assert_sound().await;
    }

    #[tokio::test]
    async fn whatever_is_otherwise_stops_it_before_anything_is_written() {
        let line = Line::new().await;
        let (ada, bob) = (line.world.user(20).await, line.world.user(100).await);
        let one = |user: &Session| line.batch(user, &[Some("K")]);

        // Another process has spent what was left of the grant.
        line.locked(line.batch(&ada, &[None])).await;
        let other = line.world.process().await;
        other.submit(&ada, other.request("a dog", 9), None).await.unwrap();
        line.misses(&one(&ada)).await;
        assert!(matches!(line.locked(one(&ada)).await[..], [Verdict::Refused(_)]));

        // There is a grant that burns first.
        line.world.grant(ada.principal.account, 10).await;
        line.locked(line.batch(&ada, &[None])).await;
        line.world.grant(ada.principal.account, 5).await;
        let ends = |when: &'static str, available: i64| {
            let pool = line.world.db.pool.clone();
            let account = ada.principal.account.as_uuid();
            async move {
                let statement = "UPDATE credit_grants SET expires_at = now() + $3::interval WHERE account_id = $1 AND available = $2";
                let update = sqlx::query(statement).bind(account).bind(available).bind(when);
                assert_eq!(update.execute(&pool).await.unwrap().rows_affected(), 1);
            }
        };
        ends("1 hour", 5).await;
        line.misses(&one(&ada)).await;

        // The grant has ended meanwhile.
        line.locked(line.batch(&ada, &[None])).await;
        ends("-1 second", 3).await;
        line.misses(&one(&ada)).await;

        // Others have filled the user's queue.
        line.locked(line.batch(&bob, &[None])).await;
        sqlx::query("UPDATE open_counts SET open = 101000 WHERE subject_id = $1")
            .bind(bob.principal.user.as_uuid())
            .execute(&line.world.db.pool)
            .await
            .unwrap();
        line.misses(&one(&bob)).await;
        let verdicts = line.locked(one(&bob)).await;
        assert!(matches!(verdicts[..], [Verdict::Refused(SubmitError::QueueFull { open: 101_000, .. })]));
    }

    #[tokio::test]
    async fn what_may_be_refused_is_not_foreseen() {
        let line = Line::new().await;
        let ada = line.world.user(10).await;
        line.locked(line.batch(&ada, &[None])).await;
        assert!(line.foresight.of(&line.batch(&ada, &[None; 4]), LOCK_LIMIT).is_some());
        assert!(line.foresight.of(&line.batch(&ada, &[None; 5]), LOCK_LIMIT).is_none(), "8 credits are left");
        let tenant = line.world.another_tenant("daily").await;
        let daily = line.world.user_of(tenant, 10, domain::Scopes::default_of_keys()).await;
        line.locked(line.batch(&daily, &[None])).await;
        assert!(line.foresight.of(&line.batch(&daily, &[None]), LOCK_LIMIT).is_none(), "its day is counted");
        let age = |(instant, since): (_, Instant)| (instant, since.checked_sub(SEEN_FOR).unwrap());
        let last = line.foresight.known().last.map(age);
        line.foresight.known().last = last;
        assert!(line.foresight.of(&line.batch(&ada, &[None]), LOCK_LIMIT).is_none(), "that is long ago");
    }

    #[tokio::test]
    async fn a_locked_account_is_waited_for_no_longer_than_was_said() {
        let line = Line::new().await;
        let ada = line.world.user(10).await;
        line.locked(line.batch(&ada, &[None])).await;
        let mut holder = line.world.db.pool.acquire().await.unwrap();
        sqlx::raw_sql("BEGIN; SELECT 1 FROM credit_accounts FOR UPDATE").execute(&mut *holder).await.unwrap();
        let foreseen = line.foresight.of(&line.batch(&ada, &[None]), Duration::from_millis(50)).unwrap();
        let failed = foreseen.write(&line.session, &line.foresight).await.unwrap_err();
        assert!(matches!(failed.error, pg::PgError::LockTimeout(_)), "{failed:?}");
        sqlx::raw_sql("ROLLBACK").execute(&mut *holder).await.unwrap();
        assert!(line.at_once(&line.batch(&ada, &[None])).await.is_none(), "it is looked at anew");
        line.locked(line.batch(&ada, &[None])).await;
        let verdicts = line.at_once(&line.batch(&ada, &[None])).await.unwrap();
        assert!(verdicts.iter().all(is_accepted));
        line.world.assert_sound().await;
    }

    #[tokio::test]
    async fn batches_under_way_at_once_are_in_nobodys_way() {
        let line = Line::new().await;
        let ada = line.world.user(100).await;
        line.locked(line.batch(&ada, &[None])).await;
        let session = Dedicated::keeping(4, line.world.db.pool.clone());
        let foreseen: Vec<_> = (0..12)
            .map(|_| {
                line.foresight
                    .of(&line.batch(&ada, &[None; 4]), LOCK_LIMIT)
                    .expect("98 credits suffice for 49")
            })
            .collect();
        assert!(line.foresight.of(&line.batch(&ada, &[None; 4]), LOCK_LIMIT).is_none(), "2 credits are left");
        let outcomes =
            join_all(foreseen.into_iter().map(|batch| batch.write(&session, &line.foresight))).await;
        for verdicts in outcomes {
            assert!(verdicts.unwrap().unwrap().iter().all(is_accepted));
        }
        assert_eq!(line.world.balance(&ada).await.available, Credits::new(2).unwrap());
        line.world.assert_sound().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn three_processes_with_one_account_spend_what_it_has_and_no_more() {
        let world = World::new().await;
        let ada = world.user(2 * 150).await;
        let processes = [world.process().await, world.process().await, world.process().await];
        let submits = (0..450).map(|n| {
            let process = &processes[n % 3];
            let key = format!("key-{}", n / 2);
            let ada = &ada;
            async move { process.submit(ada, process.request("a cat", 1), Some(&key)).await }
        });
        let outcomes = join_all(submits).await;
        let accepted = outcomes.iter().flatten().filter(|submitted| !submitted.replayed).count();
        assert_eq!(accepted, 150);
        let refused = |outcome: &&Result<_, SubmitError>| {
            matches!(outcome, Err(SubmitError::InsufficientCredits { .. }))
        };
        let replays = outcomes.iter().flatten().filter(|submitted| submitted.replayed).count();
        assert_eq!(outcomes.iter().filter(refused).count() + replays + accepted, 450, "{outcomes:?}");
        assert_eq!(world.balance(&ada).await.available, Credits::ZERO);
        world.assert_sound().await;
    }
}
