//! The entry limits against a real Redis.

use std::time::Duration;

use domain::{
    ModelName, TenantId, UserId,
    limits::{Bucket, LimitScope, Window},
};
use futures::future::join_all;
use proptest::prelude::*;

use crate::{
    Admission, CheckState, InflowCharge, InflowCheck, InflowKey, InflowLimit, IpCharge, RefusedBy, ReplayKey,
    Standing, StoredAnswer,
    testing::{Corner, slow},
};

fn check(key: InflowKey, bucket: Bucket, cost: u32) -> InflowCheck {
    let scope = match key {
        InflowKey::User(_) | InflowKey::Expensive(..) => LimitScope::User,
        InflowKey::Key(_) => LimitScope::Key,
        InflowKey::Tenant => LimitScope::Tenant,
        InflowKey::Endpoint(_) => LimitScope::Endpoint,
        InflowKey::Model(_) => LimitScope::Model,
    };
    InflowCheck { scope, key, rule: "submit", limit: InflowLimit::Bucket(bucket), cost, shadow: false }
}

/// A strict window of a user on a model.
fn strict(user: UserId, window: Window, entry: &str) -> InflowCheck {
    let key = InflowKey::Expensive(user, "mock-pro".parse().unwrap());
    let limit = InflowLimit::Window { window, entry: entry.to_owned() };
    InflowCheck { scope: LimitScope::User, key, rule: "expensive", limit, cost: 1, shadow: false }
}

fn standings(states: &[CheckState]) -> Vec<Standing> {
    states.iter().map(|state| state.standing).collect()
}

fn charge(tenant: TenantId, checks: Vec<InflowCheck>) -> InflowCharge {
    InflowCharge { tenant, replay: None, checks, ip: None }
}

fn tenant_charge(tenant: TenantId, bucket: Bucket) -> InflowCharge {
    charge(tenant, vec![check(InflowKey::Tenant, bucket, 1)])
}

async fn granted(corner: &Corner, count: usize, charge: &InflowCharge) -> usize {
    let all = join_all((0..count).map(|_| corner.control.admit(charge.clone()))).await;
    all.into_iter().filter(|admission| matches!(admission, Ok(Admission::Granted(_)))).count()
}

async fn plant(corner: &Corner, charge: &InflowCharge, tokens: &str, last_ms: i64) {
    let key = corner.control.check_keys(charge).next().unwrap();
    let last = last_ms.to_string();
    corner.raw::<()>(&["DEL", &key]).await;
    corner.raw::<()>(&["HSET", &key, "tokens", tokens, "last_refill_ms", &last]).await;
}

#[tokio::test]
async fn refused_by_one_is_charged_by_none() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let model: ModelName = "mock-fast".parse().unwrap();
    let checks = |user_tokens, model_tokens| {
        charge(
            tenant,
            vec![
                check(InflowKey::User(user), slow(user_tokens), 1),
                check(InflowKey::Tenant, slow(100), 1),
                check(InflowKey::Endpoint("generations"), slow(100), 1),
                check(InflowKey::Model(model.clone()), slow(model_tokens), 1),
            ],
        )
    };
    for left in [4, 3] {
        match corner.control.admit(checks(5, 2)).await.unwrap() {
            Admission::Granted(states) => assert_eq!(states[0].remaining, left),
            other => panic!("{other:?}"),
        }
    }
    for _ in 0..3 {
        match corner.control.admit(checks(5, 2)).await.unwrap() {
            Admission::Refused { by, states, retry_after_ms } => {
                assert_eq!(by, RefusedBy::Check(3));
                let left: Vec<_> = states.iter().map(|state| state.remaining).collect();
                assert_eq!(left, [3, 98, 98, 0]);
                assert!((3_500_000..=3_600_000).contains(&retry_after_ms), "{retry_after_ms}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_at_once_from_two_processes_get_exactly_what_there_is() {
    let corner = Corner::new();
    let other = corner.other();
    let charge = tenant_charge(TenantId::generate(), slow(10));
    let calls = (0..50).map(|i| {
        let (control, charge) =
            (if i % 2 == 0 { corner.control.clone() } else { other.clone() }, charge.clone());
        tokio::spawn(async move { control.admit(charge).await.unwrap() })
    });
    let admissions: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let granted = admissions.iter().filter(|admission| matches!(admission, Admission::Granted(_))).count();
    assert_eq!(granted, 10);
}

#[tokio::test]
async fn c30_a_months_rest_a_clock_set_back_and_a_planted_value_all_give_one_burst() {
    let corner = Corner::new();
    let now = corner.control.now_ms().await.unwrap();
    let bucket = Bucket { capacity: 5, refill: 1, per_ms: 60_000 };
    for (tokens, last_ms) in [
        ("2", now - 30 * 86_400_000),
        ("5", now + 10_000),
        ("1000000", now),
        ("5", i64::MIN),
        ("5", i64::MAX),
        ("nan", now),
        ("inf", now),
    ] {
        let charge = tenant_charge(TenantId::generate(), bucket);
        plant(&corner, &charge, tokens, last_ms).await;
        assert_eq!(granted(&corner, 20, &charge).await, 5, "{tokens} tokens at {last_ms}");
        let key = corner.control.check_keys(&charge).next().unwrap();
        let left: f64 = corner.raw(&["HGET", &key, "tokens"]).await;
        assert!((0.0..=5.0).contains(&left), "{left}");
        let ttl: i64 = corner.raw(&["PTTL", &key]).await;
        assert!((1..=300_000).contains(&ttl), "the window is 300 s, the key lives {ttl} ms");
    }
}

#[tokio::test]
async fn c29_what_a_hand_left_behind_heals_when_it_is_touched() {
    let corner = Corner::new();
    let charge = tenant_charge(TenantId::generate(), slow(5));
    let key = corner.control.check_keys(&charge).next().unwrap();
    let now = corner.control.now_ms().await.unwrap();
    // Empty and without an expiry: refused, but no longer for ever.
    plant(&corner, &charge, "-7", now).await;
    assert_eq!(granted(&corner, 1, &charge).await, 0);
    assert!(corner.raw::<i64>(&["PTTL", &key]).await > 0);
    // Empty and dated an hour ahead: it refills from now on.
    plant(&corner, &charge, "0", now + 3_600_000).await;
    assert_eq!(granted(&corner, 1, &charge).await, 0);
    let last: i64 = corner.raw(&["HGET", &key, "last_refill_ms"]).await;
    assert!(last <= corner.control.now_ms().await.unwrap());
    // Of another type.
    corner.raw::<()>(&["DEL", &key]).await;
    corner.raw::<()>(&["SET", &key, "x"]).await;
    assert_eq!(granted(&corner, 9, &charge).await, 5);
}

#[tokio::test]
async fn c31_the_wait_is_the_real_one_and_a_retry_after_it_succeeds() {
    let corner = Corner::new();
    let charge = tenant_charge(TenantId::generate(), Bucket { capacity: 5, refill: 5, per_ms: 300_000 });
    let now = corner.control.now_ms().await.unwrap();
    plant(&corner, &charge, "0", now - 59_000).await;
    let Admission::Refused { retry_after_ms, .. } = corner.control.admit(charge.clone()).await.unwrap()
    else {
        panic!("granted one second early");
    };
    assert!((1..=1_000).contains(&retry_after_ms), "{retry_after_ms}");
    // So much later: the refill that was due when refused, and the wait.
    plant(&corner, &charge, "0", now - 60_000).await;
    assert_eq!(granted(&corner, 1, &charge).await, 1);
}

#[tokio::test]
async fn hammering_does_not_stop_a_slow_refill() {
    let corner = Corner::new();
    // One token in 300 ms, asked for much more often than a token's fraction could be written down.
    let charge = tenant_charge(TenantId::generate(), Bucket { capacity: 1, refill: 1, per_ms: 300 });
    assert_eq!(granted(&corner, 1, &charge).await, 1);
    testkit::wait_until("a refill", Duration::from_secs(5), async || granted(&corner, 1, &charge).await == 1)
        .await;
}

#[tokio::test]
async fn a_replay_answers_without_a_charge_and_is_the_users_own() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let replay = ReplayKey { user, hash: "h1".to_owned() };
    let answer = StoredAnswer { status: 202, body: "{\"a\":1}".to_owned(), fingerprint: "f".to_owned() };
    corner.control.remember_answers(&[(tenant, replay.clone(), answer.clone())]).await.unwrap();
    let with = |replay| InflowCharge { replay: Some(replay), ..tenant_charge(tenant, slow(1)) };
    for _ in 0..3 {
        assert_eq!(corner.control.admit(with(replay.clone())).await, Ok(Admission::Replay(answer.clone())));
    }
    let others = ReplayKey { user: UserId::generate(), ..replay.clone() };
    assert!(matches!(corner.control.admit(with(others.clone())).await, Ok(Admission::Granted(_))));

    let unlimited = |replay| InflowCharge { replay: Some(replay), checks: Vec::new(), tenant, ip: None };
    assert_eq!(corner.control.admit(unlimited(replay)).await, Ok(Admission::Replay(answer)));
    assert_eq!(corner.control.admit(unlimited(others)).await, Ok(Admission::Granted(Vec::new())));
}

#[tokio::test]
async fn refused_by_the_address_alone_gives_the_tenants_tokens_back() {
    let corner = Corner::new();
    let ip = IpCharge { ip: "203.0.113.7".parse().unwrap(), limit: 3, window_ms: 60_000 };
    let charge = InflowCharge { ip: Some(ip), ..tenant_charge(TenantId::generate(), slow(10)) };
    assert_eq!(granted(&corner, 3, &charge).await, 3);
    for _ in 0..5 {
        match corner.control.admit(charge.clone()).await.unwrap() {
            Admission::Refused { by: RefusedBy::Ip, retry_after_ms, .. } => {
                assert!((1..=60_000).contains(&retry_after_ms), "{retry_after_ms}");
            }
            other => panic!("{other:?}"),
        }
    }
    let elsewhere = InflowCharge { ip: None, ..charge };
    assert_eq!(granted(&corner, 20, &elsewhere).await, 7);
}

#[tokio::test]
async fn an_address_slides_out_of_its_window_and_leaves_nothing() {
    let corner = Corner::new();
    let ip = IpCharge { ip: "2001:db8::1".parse().unwrap(), limit: 4, window_ms: 500 };
    let charge = InflowCharge { ip: Some(ip), ..charge(TenantId::generate(), Vec::new()) };
    assert_eq!(granted(&corner, 10, &charge).await, 4);
    let key = corner.keys().ip_window(ip.ip);
    assert!((1..=500).contains(&corner.raw::<i64>(&["PTTL", &key]).await));
    testkit::wait_until("the window to pass", Duration::from_secs(5), async || {
        granted(&corner, 1, &charge).await == 1
    })
    .await;
    testkit::wait_until("the window to pass", Duration::from_secs(5), async || {
        corner.raw::<i64>(&["EXISTS", &key]).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_counter_without_an_expiry_heals() {
    let corner = Corner::new();
    let ip = IpCharge { ip: "198.51.100.1".parse().unwrap(), limit: 4, window_ms: 60_000 };
    let key = corner.keys().ip_window(ip.ip);
    let charge = InflowCharge { ip: Some(ip), ..charge(TenantId::generate(), Vec::new()) };
    // Far past, far future and nonsense: none of it counts.
    corner.raw::<()>(&["HSET", &key, "1", "99", "99999999999", "99", "x", "9", "5", "-9"]).await;
    assert_eq!(granted(&corner, 10, &charge).await, 4);
    assert!(corner.raw::<i64>(&["PTTL", &key]).await > 0);
    assert_eq!(corner.raw::<i64>(&["HLEN", &key]).await, 1);
}

#[tokio::test]
async fn what_can_never_be_is_said_at_once() {
    let corner = Corner::new();
    let tenant = TenantId::generate();
    let big = charge(
        tenant,
        vec![check(InflowKey::Tenant, slow(5), 1), check(InflowKey::User(UserId::generate()), slow(5), 6)],
    );
    assert_eq!(corner.control.admit(big).await, Ok(Admission::CostAboveCapacity { check: 1 }));
    assert_eq!(granted(&corner, 9, &tenant_charge(tenant, slow(5))).await, 5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The script against the definition of a token bucket, with time moved by moving the stored instant.
    #[test]
    fn the_bucket_agrees_with_its_definition(
        capacity in 1_u32..50,
        refill in 1_u32..20,
        per_ms in 100_000_u64..1_000_000,
        steps in prop::collection::vec((0_u64..2_000_000, 1_u32..5), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let corner = Corner::new();
            let bucket = Bucket { capacity, refill, per_ms };
            let tenant = TenantId::generate();
            let key = corner.control.check_keys(&tenant_charge(tenant, bucket)).next().unwrap();
            let mut model = f64::from(capacity);
            #[expect(clippy::cast_precision_loss, reason = "test figures are small")]
            for (rest_ms, cost) in steps {
                let last: Option<i64> = corner.raw(&["HGET", &key, "last_refill_ms"]).await;
                if let Some(last) = last {
                    let moved = (last - i64::try_from(rest_ms).unwrap()).to_string();
                    corner.raw::<()>(&["HSET", &key, "last_refill_ms", &moved]).await;
                }
                model = f64::from(capacity)
                    .min(model + rest_ms as f64 * f64::from(refill) / per_ms as f64);
                let charge = charge(tenant, vec![check(InflowKey::Tenant, bucket, cost)]);
                let admission = corner.control.admit(charge).await.unwrap();
                // Real time passes too; near a whole token either answer is right.
                let slack = 10_000.0 * f64::from(refill) / per_ms as f64;
                match admission {
                    Admission::Granted(_) => {
                        assert!(model + slack >= f64::from(cost), "granted with {model} of {cost}");
                        model = (model - f64::from(cost)).max(0.0);
                    }
                    Admission::Refused { retry_after_ms, .. } => {
                        assert!(model < f64::from(cost), "refused with {model} of {cost}");
                        let wait = (f64::from(cost) - model) * per_ms as f64 / f64::from(refill);
                        assert!(retry_after_ms as f64 <= wait.ceil() + 1.0, "{retry_after_ms} for {wait}");
                        assert!(retry_after_ms as f64 >= wait - 10_000.0);
                    }
                    Admission::CostAboveCapacity { .. } => assert!(cost > capacity),
                    Admission::Replay(_) => unreachable!(),
                }
            }
        });
    }
}

/// Three of them are there, however many processes ask, and what the window refuses no bucket is charged for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_strict_window_is_exact_and_decided_together_with_the_buckets() {
    let corner = Corner::new();
    let other = corner.other();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let window = Window::in_minutes(3, 10);
    let calls = (0..50).map(|i| {
        let control = if i % 2 == 0 { corner.control.clone() } else { other.clone() };
        let checks =
            vec![check(InflowKey::User(user), slow(100), 1), strict(user, window, &format!("task-{i}"))];
        tokio::spawn(async move { control.admit(charge(tenant, checks)).await.unwrap() })
    });
    let admissions: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let granted = admissions.iter().filter(|admission| matches!(admission, Admission::Granted(_))).count();
    assert_eq!(granted, 3);
    for admission in admissions {
        if let Admission::Refused { by, retry_after_ms, states } = admission {
            assert_eq!(by, RefusedBy::Check(1));
            assert!((590_000..=600_000).contains(&retry_after_ms), "{retry_after_ms}");
            assert_eq!(standings(&states), [Standing::Passes, Standing::Short]);
        }
    }
    let left = corner.control.look(&charge(tenant, vec![check(InflowKey::User(user), slow(100), 1)])).await;
    assert!(matches!(left, Ok(Admission::Granted(ref states)) if states[0].remaining == 97), "{left:?}");
    let key = corner.keys().inflow(tenant, &strict(user, window, ""));
    assert_eq!(corner.raw::<i64>(&["ZCARD", &key]).await, 3, "a refusal adds nothing");
    assert!((1..=600_000).contains(&corner.raw::<i64>(&["PTTL", &key]).await));
}

#[tokio::test]
async fn a_bucket_that_refuses_leaves_the_window_as_it_was() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let with = |entry: &str| {
        let checks =
            vec![check(InflowKey::User(user), slow(1), 1), strict(user, Window::in_minutes(3, 10), entry)];
        charge(tenant, checks)
    };
    assert!(matches!(corner.control.admit(with("a")).await, Ok(Admission::Granted(_))));
    for entry in ["b", "c", "d"] {
        match corner.control.admit(with(entry)).await.unwrap() {
            Admission::Refused { by: RefusedBy::Check(0), states, .. } => assert_eq!(states[1].remaining, 2),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_wait_of_a_window_is_the_real_one_and_a_retry_after_it_succeeds() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let window = Window { limit: 2, window_ms: 400 };
    let ask = async |entry: &str| {
        corner.control.admit(charge(tenant, vec![strict(user, window, entry)])).await.unwrap()
    };
    for entry in ["a", "b"] {
        assert!(matches!(ask(entry).await, Admission::Granted(_)));
    }
    let Admission::Refused { retry_after_ms, states, .. } = ask("c").await else { panic!("three of two") };
    assert!((1..=400).contains(&retry_after_ms) && states[0].reset_ms >= retry_after_ms, "{states:?}");
    tokio::time::sleep(Duration::from_millis(retry_after_ms)).await;
    assert!(matches!(ask("c").await, Admission::Granted(_)), "alone, after the wait");
    let key = corner.keys().inflow(tenant, &strict(user, window, ""));
    testkit::wait_until("the window to pass", Duration::from_secs(5), async || {
        corner.raw::<i64>(&["EXISTS", &key]).await == 0
    })
    .await;
}

#[tokio::test]
async fn twins_are_counted_once_and_a_refund_takes_back_what_was_added() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let with = |entry: &str| charge(tenant, vec![strict(user, Window::in_minutes(2, 10), entry)]);
    let admit = async |entry: &str| corner.control.admit(with(entry)).await.unwrap();
    let Admission::Granted(first) = admit("a").await else { panic!("there is room") };
    let Admission::Granted(twin) = admit("a").await else { panic!("it is the same request") };
    assert_eq!((standings(&first), standings(&twin)), (vec![Standing::Passes], vec![Standing::Counted]));
    assert_eq!((first[0].remaining, twin[0].remaining), (1, 1));

    // The twin was charged nothing, so it has nothing to give back.
    corner.control.refund(&[with("a").charged(&twin, |_| true)]).await.unwrap();
    assert!(matches!(admit("b").await, Admission::Granted(_)));
    assert!(matches!(admit("c").await, Admission::Refused { .. }));
    corner.control.refund(&[with("a").charged(&first, |_| true)]).await.unwrap();
    assert!(matches!(admit("c").await, Admission::Granted(_)), "a's place is free");
}

#[tokio::test]
async fn refused_by_the_address_gives_the_place_in_the_window_back() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let ip = IpCharge { ip: "203.0.113.8".parse().unwrap(), limit: 1, window_ms: 60_000 };
    let with = |entry: &str| InflowCharge {
        ip: Some(ip),
        ..charge(tenant, vec![strict(user, Window::in_minutes(3, 10), entry)])
    };
    assert!(matches!(corner.control.admit(with("a")).await, Ok(Admission::Granted(_))));
    for entry in ["b", "c", "d", "a"] {
        let refused = corner.control.admit(with(entry)).await.unwrap();
        assert!(matches!(refused, Admission::Refused { by: RefusedBy::Ip, .. }), "{refused:?}");
    }
    let key = corner.keys().inflow(tenant, &strict(user, Window::in_minutes(3, 10), ""));
    assert_eq!(
        corner.raw::<Vec<String>>(&["ZRANGE", &key, "0", "-1"]).await,
        ["a"],
        "it had its place before"
    );
}

#[tokio::test]
async fn a_look_says_what_a_request_would_be_told_and_leaves_no_trace() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let ask = |entry: &str| {
        let checks =
            vec![check(InflowKey::User(user), slow(5), 1), strict(user, Window::in_minutes(1, 10), entry)];
        charge(tenant, checks)
    };
    for _ in 0..10 {
        assert!(matches!(corner.control.look(&ask("a")).await, Ok(Admission::Granted(_))));
    }
    assert_eq!(corner.all_keys().await, []);
    corner.control.admit(ask("a")).await.unwrap();
    let Admission::Refused { by, retry_after_ms, states } = corner.control.look(&ask("b")).await.unwrap()
    else {
        panic!("the window is full")
    };
    let Admission::Refused { by: really, retry_after_ms: wait_ms, .. } =
        corner.control.admit(ask("b")).await.unwrap()
    else {
        panic!("as the look said")
    };
    assert_eq!((by, states[0].remaining), (really, 4));
    assert!(wait_ms <= retry_after_ms && retry_after_ms - wait_ms < 10_000, "{retry_after_ms}, {wait_ms}");
}

#[tokio::test]
async fn a_shadow_counts_for_itself_tells_and_refuses_nobody() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let ask = |n: u32| {
        let shadow = |check| InflowCheck { shadow: true, ..check };
        let checks = vec![
            check(InflowKey::User(user), slow(5), 1),
            shadow(check(InflowKey::User(user), slow(2), 1)),
            shadow(strict(user, Window::in_minutes(1, 10), &n.to_string())),
            // More than it can ever hold is no reason to refuse either.
            shadow(check(InflowKey::Tenant, slow(1), 2)),
        ];
        charge(tenant, checks)
    };
    let (passes, short) = (Standing::Passes, Standing::Short);
    for (n, expected) in [
        (1, [passes, passes, passes, short]),
        (2, [passes, passes, short, short]),
        (3, [passes, short, short, short]),
    ] {
        match corner.control.admit(ask(n)).await.unwrap() {
            Admission::Granted(states) => {
                assert_eq!(standings(&states), expected, "request {n}");
                assert_eq!(states[0].remaining, 5 - n, "the limit itself is another one");
            }
            other => panic!("{other:?}"),
        }
    }
    for n in 4..6 {
        assert!(matches!(corner.control.admit(ask(n)).await, Ok(Admission::Granted(_))));
    }
    let refused = corner.control.admit(ask(6)).await.unwrap();
    assert!(matches!(refused, Admission::Refused { by: RefusedBy::Check(0), .. }), "{refused:?}");
}

#[tokio::test]
async fn a_log_that_a_hand_left_behind_heals() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let window = Window::in_minutes(2, 10);
    let key = corner.keys().inflow(tenant, &strict(user, window, ""));
    let granted = async |entries: &[&str]| {
        let mut granted = 0;
        for entry in entries {
            let ask = charge(tenant, vec![strict(user, window, entry)]);
            granted += u32::from(matches!(corner.control.admit(ask).await, Ok(Admission::Granted(_))));
        }
        granted
    };
    let now = corner.control.now_ms().await.unwrap();
    // Long past, nobody's future and nonsense don't count, and are gone with the first entry.
    for (score, member) in [("0", "x"), ("99999999999999", "y"), ("inf", "z"), ("-inf", "w")] {
        corner.raw::<()>(&["ZADD", &key, score, member]).await;
    }
    assert_eq!(granted(&["a", "b", "c"]).await, 2);
    assert_eq!(corner.raw::<Vec<String>>(&["ZRANGE", &key, "0", "-1"]).await, ["a", "b"]);
    // Full and without an expiry: refused, but no longer for ever.
    corner.raw::<()>(&["PERSIST", &key]).await;
    assert_eq!(granted(&["c"]).await, 0);
    assert!((1..=600_000).contains(&corner.raw::<i64>(&["PTTL", &key]).await));
    // Of another type.
    corner.raw::<()>(&["DEL", &key]).await;
    corner.raw::<()>(&["SET", &key, "x"]).await;
    assert_eq!(granted(&["a", "b", "c"]).await, 2);
    // A clock set back by ten seconds: what was counted before still counts, and leaves a window from now.
    corner.raw::<()>(&["DEL", &key]).await;
    for member in ["a", "b"] {
        corner.raw::<()>(&["ZADD", &key, &(now + 10_000).to_string(), member]).await;
    }
    assert_eq!(granted(&["c"]).await, 0);
    let score: f64 = corner.raw(&["ZSCORE", &key, "a"]).await;
    let now = corner.control.now_ms().await.unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a time has fewer than 53 bits")]
    let now = now as f64;
    assert!(score <= now, "{score} lies ahead of {now}");
}

/// C29: however many users there are, and whoever asks is killed at whatever point of its question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c29_ten_thousand_users_leave_no_key_that_outlives_its_window() {
    const WINDOW_MS: u32 = 600_000;
    let corner = Corner::new();
    let bucket = Bucket { capacity: 2, refill: 2, per_ms: WINDOW_MS.into() };
    let window = Window { limit: 1, window_ms: WINDOW_MS.into() };
    for _ in 0..20 {
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..500 {
            let (control, tenant, user) = (corner.control.clone(), TenantId::generate(), UserId::generate());
            let checks = vec![check(InflowKey::User(user), bucket, 1), strict(user, window, "only")];
            let call = calls.spawn(async move { control.admit(charge(tenant, checks)).await });
            if n % 7 == 0 {
                tokio::task::yield_now().await;
                call.abort();
            }
        }
        while calls.join_next().await.is_some() {}
    }
    let keys = corner.all_keys().await;
    assert!(keys.len() > 15_000, "{} keys", keys.len());
    for (key, ttl_ms) in keys {
        assert!((1..=WINDOW_MS.into()).contains(&ttl_ms), "{key} lives for {ttl_ms} ms");
    }
}

#[tokio::test]
async fn c29_when_the_longest_window_has_passed_nothing_is_left() {
    let corner = Corner::new();
    let bucket = Bucket { capacity: 2, refill: 2, per_ms: 500 };
    let calls = (0..300).map(|_| {
        let user = UserId::generate();
        let window = Window { limit: 1, window_ms: 500 };
        let checks = vec![check(InflowKey::User(user), bucket, 1), strict(user, window, "only")];
        corner.control.admit(charge(TenantId::generate(), checks))
    });
    for admission in join_all(calls).await {
        assert!(matches!(admission, Ok(Admission::Granted(_))));
    }
    testkit::wait_until("the windows to pass", Duration::from_secs(10), async || {
        corner.all_keys().await.is_empty()
    })
    .await;
}
