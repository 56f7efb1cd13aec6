//! Daily quotas against a real PostgreSQL: exact under races, given back once, never below nothing, and not kept for ever.

use chrono::{DateTime, TimeDelta, Utc};
use domain::{TenantId, TimeZone, UserId, limits::LimitScope};
use ledger::{DailyQuota, Ended, Ledger, QuotaStanding, Subject, lock_admission, retire_windows, settle};
use pg::{PgError, PgPool};
use testkit::TestDb;

use crate::write_admission;

fn quota(day: DateTime<Utc>, tenant_max: Option<u32>, user_max: Option<u32>) -> DailyQuota {
    DailyQuota {
        day: TimeZone::UTC.day_of(day),
        tenant: (TenantId::generate(), tenant_max),
        user: (UserId::generate(), user_max),
    }
}

/// One task in a transaction of its own; false when the day has no room for it.
async fn take(pool: &PgPool, quota: DailyQuota) -> bool {
    pg::transact(pool, move |conn| {
        Box::pin(async move {
            let (tenant, user) = (quota.tenant.0, quota.user.0);
            let subjects = [Subject::Tenant(tenant), Subject::User(user)];
            let mut admission = lock_admission(conn, &[], &subjects, &[quota]).await?;
            let fits = admission.quota.check(&quota).is_ok();
            if fits {
                admission.open.try_add((tenant, u32::MAX), (user, u32::MAX)).unwrap();
                admission.quota.add(&quota);
            }
            write_admission(conn, &admission).await?;
            Ok::<_, PgError>(fits)
        })
    })
    .await
    .unwrap()
}

async fn end(pool: &PgPool, quota: &DailyQuota, times: usize) -> Result<(), PgError> {
    let gives_back = Some(quota.day.starts_at);
    let ended = vec![Ended { tenant: quota.tenant.0, user: quota.user.0, gives_back }; times];
    pg::transact(pool, move |conn| Box::pin(async move { settle(conn, &[], &ended).await })).await
}

async fn used(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar("SELECT used FROM quota_windows ORDER BY subject_kind, subject_id, starts_at")
        .fetch_all(pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_exact_under_races_and_never_negative() {
    let db = TestDb::new().await;
    let quota = quota("2026-06-15T12:00:00Z".parse().unwrap(), Some(100), Some(6));
    let takes = (0..40).map(|_| {
        let pool = db.pool.clone();
        tokio::spawn(async move { take(&pool, quota).await })
    });
    let taken =
        futures::future::join_all(takes).await.into_iter().filter(|fits| *fits.as_ref().unwrap()).count();
    assert_eq!((taken, used(&db.pool).await), (6, vec![6, 6]));
    // Ends and further tasks at once.
    let moves = (0..6).map(|_| {
        let pool = db.pool.clone();
        tokio::spawn(async move {
            end(&pool, &quota, 1).await.unwrap();
            take(&pool, quota).await
        })
    });
    for again in futures::future::join_all(moves).await {
        assert!(again.unwrap(), "what was given back can be taken");
    }
    assert_eq!(used(&db.pool).await, [6, 6]);
    end(&db.pool, &quota, 6).await.unwrap();
    assert_eq!(used(&db.pool).await, [0, 0]);
    take(&db.pool, DailyQuota { day: TimeZone::UTC.day_of(quota.day.ends_at), ..quota }).await;
    let below = end(&db.pool, &quota, 1).await.unwrap_err();
    assert_eq!(below.constraint(), Some("quota_windows_not_negative"));
}

#[tokio::test]
async fn how_a_day_stands_is_read_by_the_stores_clock() {
    let db = TestDb::new().await;
    let instant: DateTime<Utc> = "2026-06-15T23:30:00Z".parse().unwrap();
    let quota = quota(instant, Some(100), Some(6));
    let stands = async |at, tenant_max, user_max| {
        let (tenant, user) = ((quota.tenant.0, tenant_max), (quota.user.0, user_max));
        Ledger::new(db.pool_at(at)).quota(TimeZone::UTC, tenant, user).await.unwrap()
    };
    let standing = |scope, used, limit| QuotaStanding { scope, used, limit };
    let nothing = vec![standing(LimitScope::User, 0, 6)];
    assert_eq!(stands(instant, None, Some(6)).await, Some((quota.day, nothing.clone())));
    assert!(take(&db.pool, quota).await && take(&db.pool, quota).await);
    let both = vec![standing(LimitScope::User, 2, 6), standing(LimitScope::Tenant, 2, 100)];
    assert_eq!(stands(instant, Some(100), Some(6)).await, Some((quota.day, both)));
    let tomorrow = TimeZone::UTC.day_of(quota.day.ends_at);
    assert_eq!(stands(quota.day.ends_at, None, Some(6)).await, Some((tomorrow, nothing)));
    assert_eq!(stands(instant, None, None).await, None);
}

#[tokio::test]
async fn a_window_is_kept_for_weeks_and_not_for_ever() {
    let db = TestDb::new().await;
    let instant: DateTime<Utc> = "2026-06-15T12:00:00Z".parse().unwrap();
    let (old, new) = (quota(instant, Some(9), None), quota(instant + TimeDelta::days(1), Some(9), None));
    assert!(take(&db.pool, old).await && take(&db.pool, new).await);
    let retire = async |at| retire_windows(&mut db.pool_at(at).acquire().await.unwrap(), 10).await.unwrap();
    assert_eq!(retire(old.day.starts_at + TimeDelta::days(40)).await, 0);
    assert_eq!(retire(old.day.ends_at + TimeDelta::days(40)).await, 2);
    assert_eq!(used(&db.pool).await, [1, 1]);
    // A task that outlived even that ends all the same.
    end(&db.pool, &old, 1).await.unwrap();
    assert_eq!(used(&db.pool).await, [1, 1]);
}
