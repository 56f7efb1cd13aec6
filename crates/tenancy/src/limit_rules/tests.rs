//! Rules: their names, their order, and how soon they count.

use std::sync::Arc;

use domain::{
    Scope,
    limits::{Bucket, Tier},
};
use pg::PgConnection;
use testkit::{TestDb, wait_until};

use super::*;
use crate::{Session, Tenancy, TenancyConfig, limit_rules, tests_support::Seed};

fn rule(subject: &str, limit: &str) -> RuleKey {
    RuleKey { subject: subject.parse().unwrap(), limit: limit.parse().unwrap(), shadow: false }
}

fn shadow(subject: &str, limit: &str) -> RuleKey {
    RuleKey { shadow: true, ..rule(subject, limit) }
}

fn rate(capacity: u32) -> Figure {
    Figure::Bucket(Some(Bucket::per_minute(1, capacity)))
}

fn capacity(bucket: Option<Bucket>) -> Option<u32> {
    bucket.map(|bucket| bucket.capacity)
}

async fn put(conn: &mut PgConnection, tenancy: &Tenancy, key: RuleKey, figure: Figure) {
    limit_rules::put_limit_rule(conn, tenancy.tiers(), &key, &figure).await.unwrap();
    tenancy.forget_limit_rules().await;
}

async fn session(tenancy: &Tenancy, key: &str) -> Arc<Session> {
    tenancy.authenticate(key).await.unwrap()
}

#[test]
fn names_are_read_as_they_are_written_and_nothing_else_is() {
    let tenant = TenantId::generate();
    let subjects = ["tier:free".to_owned(), format!("tenant:{tenant}"), "key:abcdefghijkl".to_owned()];
    for text in &subjects {
        assert_eq!(text.parse::<RuleSubject>().unwrap().to_string(), *text);
    }
    for text in ["tier:", "tier", "user:x", "tenant:x", "key:", "key:a b", ""] {
        assert!(text.parse::<RuleSubject>().is_err(), "{text}");
    }
    let limits = [
        "submit-user",
        "submit-key",
        "submit-tenant",
        "submit-endpoint:generations",
        "submit-model:a/b:1",
        "expensive-user",
        "reads",
        "running-user",
        "running-tenant",
        "queued-user",
        "queued-tenant",
        "daily-user",
        "daily-tenant",
    ];
    for text in limits {
        assert_eq!(text.parse::<LimitName>().unwrap().to_string(), text);
        for subject in &subjects {
            let key = rule(subject, text);
            assert_eq!(key.to_string().parse::<RuleKey>().unwrap(), key);
            let shadow = RuleKey { shadow: true, ..key };
            assert_eq!(shadow.to_string().parse::<RuleKey>().unwrap(), shadow);
        }
    }
    for text in ["submit", "submit-endpoint:elsewhere", "submit-model:", "submit-user:x", "open-user", ""] {
        assert!(text.parse::<LimitName>().is_err(), "{text}");
    }
}

#[test]
fn figures_have_their_ranges() {
    let bucket = |capacity, refill, per_ms| Figure::Bucket(Some(Bucket { capacity, refill, per_ms }));
    let window = |limit, window_ms| Figure::Window(Some(Window { limit, window_ms }));
    for (limit, figure, field) in [
        ("submit-user", bucket(0, 1, 1), "bucket.capacity"),
        ("submit-user", bucket(1, 0, 1), "bucket.refill"),
        ("submit-user", bucket(1, 1, 0), "bucket.per_ms"),
        ("submit-user", bucket(1, 1, 86_400_001), "bucket.per_ms"),
        ("submit-user", bucket(u32::MAX, 1, 1), "bucket.capacity"),
        ("submit-user", bucket(1_000_000_000, 1, 86_400_000), "bucket.refill"),
        ("submit-user", window(1, 1), "bucket"),
        ("expensive-user", window(0, 1), "window.limit"),
        ("expensive-user", window(10_001, 1), "window.limit"),
        ("expensive-user", window(1, 0), "window.window_ms"),
        ("expensive-user", bucket(1, 1, 1), "window"),
        ("running-tenant", Figure::Count(0), "count"),
        ("queued-tenant", Figure::Count(u32::MAX), "count"),
        ("queued-tenant", bucket(1, 1, 1), "count"),
        ("daily-user", Figure::Quota(Some(0)), "count"),
        ("daily-user", Figure::Quota(Some(u32::MAX)), "count"),
        ("daily-tenant", Figure::Count(1), "count"),
        ("submit-key", bucket(1, 1, 1), "limit"),
    ] {
        let fault = rule("tier:free", limit).check(&figure).unwrap_err();
        assert_eq!(fault.field, field, "{limit} {figure:?}");
    }
    assert_eq!(rule("tier:free", "queued-user").check(&Figure::Count(0)), Ok(()));
    assert_eq!(rule("tier:free", "submit-user").check(&Figure::Bucket(None)), Ok(()));
    assert_eq!(rule("tier:free", "daily-user").check(&Figure::Quota(None)), Ok(()));
    let counted = shadow("tier:free", "daily-user").check(&Figure::Quota(Some(1)));
    assert_eq!(counted.unwrap_err().field, "shadow");
    let nothing = shadow("tier:free", "submit-user").check(&Figure::Bucket(None));
    assert_eq!(nothing.unwrap_err().field, "shadow");
}

#[tokio::test]
async fn the_most_particular_rule_counts_and_the_rest_stays_as_configured() {
    let db = TestDb::new().await;
    let (seed, other) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
    let mut conn = db.pool.acquire().await.unwrap();
    let (tenancy, key) = (seed.fresh(&db.pool), seed.key.text.clone());
    let configured = Tier::free();
    assert_eq!(*session(&tenancy, &key).await.tier, configured);

    put(&mut conn, &tenancy, rule("tier:free", "submit-user"), rate(7)).await;
    put(&mut conn, &tenancy, rule("tier:free", "running-tenant"), Figure::Count(77)).await;
    put(&mut conn, &tenancy, rule(&format!("tenant:{}", seed.tenant), "submit-user"), rate(8)).await;
    put(
        &mut conn,
        &tenancy,
        rule(&format!("tenant:{}", seed.tenant), "expensive-user"),
        Figure::Window(None),
    )
    .await;
    let one = session(&tenancy, &key).await;
    assert_eq!((capacity(one.tier.user.submit), one.tier.tenant.running), (Some(8), 77));
    assert_eq!((one.tier.expensive, one.tier.tenant.submit), (None, configured.tenant.submit));
    let two = session(&tenancy, &other.key.text).await;
    assert_eq!((capacity(two.tier.user.submit), two.tier.expensive), (Some(7), configured.expensive));
    // Whoever runs tasks goes by the same.
    let tier = tenancy.tier_of(seed.user).await.unwrap().unwrap();
    assert_eq!(tier.tenant.running, 77);

    let daily = async |key: &str| {
        let tier = Arc::clone(&session(&tenancy, key).await.tier);
        (tier.user.daily, tier.tenant.daily)
    };
    put(&mut conn, &tenancy, rule("tier:free", "daily-user"), Figure::Quota(Some(3))).await;
    put(&mut conn, &tenancy, rule(&format!("tenant:{}", seed.tenant), "daily-tenant"), Figure::Quota(None))
        .await;
    assert_eq!(daily(&key).await, (Some(3), None));
    assert_eq!(daily(&other.key.text).await, (Some(3), configured.tenant.daily));

    let gone = rule(&format!("tenant:{}", seed.tenant), "submit-user");
    assert!(limit_rules::remove_limit_rule(&mut conn, &gone).await.unwrap().is_some());
    tenancy.forget_limit_rules().await;
    assert_eq!(capacity(session(&tenancy, &key).await.tier.user.submit), Some(7));
}

#[tokio::test]
async fn a_keys_rule_is_of_that_key_alone_and_not_of_those_it_acts_for() {
    let db = TestDb::new().await;
    let seed = Seed::new(&db.pool).await;
    let mut conn = db.pool.acquire().await.unwrap();
    let tenancy = seed.fresh(&db.pool);
    let server = seed.key_with(&db.pool, seed.user, &[Scope::Read, Scope::Write, Scope::TenantWrite]).await;
    let subject = format!("key:{}", server.id);
    put(&mut conn, &tenancy, rule(&subject, "submit-key"), rate(50)).await;
    put(&mut conn, &tenancy, shadow(&subject, "submit-key"), rate(20)).await;
    put(&mut conn, &tenancy, rule(&subject, "reads"), rate(9)).await;

    let own = session(&tenancy, &server.text).await;
    assert_eq!(
        own.rules.key_submit,
        Some(KeySubmit { key: server.id.clone(), bucket: Some(Bucket::per_minute(1, 50)) })
    );
    assert_eq!((capacity(own.tier.reads), own.rules.shadows.len()), (Some(9), 1));
    let plain = session(&tenancy, &seed.key.text).await;
    assert_eq!((&plain.rules.key_submit, &*plain.rules.shadows), (&None, &[][..]));

    let user = seed.another_user(&db.pool, seed.tenant, Some("u-1")).await;
    let acting = tenancy.act_for(&own, "u-1").await.unwrap();
    assert_eq!(acting.principal.user, user);
    assert_eq!((&acting.rules.key_submit, &*acting.rules.shadows), (&None, &[][..]));
    assert_eq!(capacity(acting.tier.reads), Some(9), "reads are the key's, whoever it acts for");
}

#[tokio::test]
async fn routes_and_models_have_rules_and_unlimited_is_one() {
    let db = TestDb::new().await;
    let seed = Seed::new(&db.pool).await;
    let mut conn = db.pool.acquire().await.unwrap();
    let mut config = TenancyConfig::default();
    config.rules.endpoints.insert("generations".to_owned(), Bucket::per_second(1, 1));
    config.rules.models.insert("mock-pro".parse().unwrap(), Bucket::per_second(1, 1));
    let tenancy = Tenancy::new(db.pool.clone(), config.clone()).unwrap();
    assert_eq!(session(&tenancy, &seed.key.text).await.rules.routes, config.rules);
    put(&mut conn, &tenancy, rule("tier:free", "submit-endpoint:generations"), Figure::Bucket(None)).await;
    put(&mut conn, &tenancy, rule("tier:free", "submit-model:mock-pro"), rate(3)).await;
    put(&mut conn, &tenancy, rule("tier:free", "submit-model:mock-fast"), rate(4)).await;
    let rules = Arc::clone(&session(&tenancy, &seed.key.text).await.rules);
    assert!(rules.routes.endpoints.is_empty());
    let models: Vec<_> =
        rules.routes.models.iter().map(|(name, bucket)| (name.as_str(), bucket.capacity)).collect();
    assert_eq!(models, [("mock-fast", 4), ("mock-pro", 3)]);
}

#[tokio::test]
async fn a_shadow_changes_nothing_and_makes_way_for_a_more_particular_rule() {
    let db = TestDb::new().await;
    let (seed, other) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
    let mut conn = db.pool.acquire().await.unwrap();
    let tenancy = seed.fresh(&db.pool);
    let shadows = async |key: &str| -> Vec<(String, Figure)> {
        let session = session(&tenancy, key).await;
        session.rules.shadows.iter().map(|shadow| (shadow.subject.to_string(), shadow.figure)).collect()
    };
    put(&mut conn, &tenancy, rule("tier:free", "submit-user"), rate(7)).await;
    put(&mut conn, &tenancy, shadow("tier:free", "submit-user"), rate(2)).await;
    assert_eq!(capacity(session(&tenancy, &seed.key.text).await.tier.user.submit), Some(7));
    let of_tier = [("tier:free".to_owned(), rate(2))];
    assert_eq!(shadows(&seed.key.text).await, of_tier);

    // In force, the tier's would not be this tenant's.
    let of_tenant = format!("tenant:{}", seed.tenant);
    put(&mut conn, &tenancy, rule(&of_tenant, "submit-user"), rate(8)).await;
    assert_eq!(shadows(&seed.key.text).await, []);
    put(&mut conn, &tenancy, shadow(&of_tenant, "submit-user"), rate(3)).await;
    assert_eq!(shadows(&seed.key.text).await, [(of_tenant, rate(3))]);
    assert_eq!(shadows(&other.key.text).await, of_tier);
}

#[tokio::test]
async fn another_process_goes_by_a_rule_within_the_time_that_it_is_remembered() {
    let db = TestDb::new().await;
    let seed = Seed::new(&db.pool).await;
    let mut conn = db.pool.acquire().await.unwrap();
    let config = TenancyConfig { cache_ms: 100, ..TenancyConfig::default() };
    let there = Tenancy::new(db.pool.clone(), config).unwrap();
    let submits = async || capacity(session(&there, &seed.key.text).await.tier.user.submit);
    assert_eq!(submits().await, Some(5));
    put(&mut conn, &seed.tenancy, rule("tier:free", "submit-user"), rate(9)).await;
    assert_eq!(
        capacity(session(&seed.tenancy, &seed.key.text).await.tier.user.submit),
        Some(9),
        "here at once"
    );
    // Asked all the time, it is read ahead of time; the answer is never older than it may be.
    wait_until("the other process", Duration::from_secs(5), async || submits().await == Some(9)).await;
    limit_rules::remove_limit_rule(&mut conn, &rule("tier:free", "submit-user")).await.unwrap();
    wait_until("the other process", Duration::from_secs(5), async || submits().await == Some(5)).await;
}

#[tokio::test]
async fn a_rule_that_nobody_understands_keeps_nobody_out() {
    let db = TestDb::new().await;
    let seed = Seed::new(&db.pool).await;
    let mut conn = db.pool.acquire().await.unwrap();
    sqlx::query(
        "INSERT INTO limit_rules (subject, policy, shadow, most, refill, per_ms) VALUES
             ('tier:free', 'of-a-later-version', false, 1, NULL, NULL),
             ('tier:free', 'submit-user', false, 0, 1, 1), ('tier:free', 'running-user', false, NULL, NULL, NULL),
             ('tier:free', 'queued-user', false, 3, NULL, NULL)",
    )
    .execute(&mut *conn)
    .await
    .unwrap();
    let tier = Arc::clone(&session(&seed.fresh(&db.pool), &seed.key.text).await.tier);
    let configured = Tier::free().user;
    assert_eq!(
        (tier.user.submit, tier.user.running, tier.user.queued),
        (configured.submit, configured.running, 3)
    );
}

#[tokio::test]
async fn rules_are_listed_page_by_page() {
    let db = TestDb::new().await;
    let seed = Seed::new(&db.pool).await;
    let mut conn = db.pool.acquire().await.unwrap();
    let of_tenant = format!("tenant:{}", seed.tenant);
    for (key, figure) in [
        (rule("tier:pro", "reads"), rate(1)),
        (shadow("tier:free", "submit-user"), rate(2)),
        (rule("tier:free", "submit-user"), rate(3)),
        (rule(&of_tenant, "queued-user"), Figure::Count(4)),
    ] {
        put(&mut conn, &seed.tenancy, key, figure).await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = find_limit_rules(&mut conn, None, after.as_ref(), 2).await.unwrap();
        assert!(page.items.len() <= 2);
        seen.extend(page.items.into_iter().map(|rule| rule.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let all = [
        rule(&of_tenant, "queued-user"),
        rule("tier:free", "submit-user"),
        shadow("tier:free", "submit-user"),
        rule("tier:pro", "reads"),
    ];
    assert_eq!(seen, all);
    let of_free = find_limit_rules(&mut conn, Some(&"tier:free".parse().unwrap()), None, 10).await.unwrap();
    assert_eq!(of_free.items.len(), 2);
}
