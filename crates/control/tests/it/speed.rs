//! A measurement, not a check: run it alone, in release, with `--ignored --nocapture`.

use std::time::{Duration, Instant};

use control::{Admission, InflowCharge, InflowCheck, InflowKey, InflowLimit, ReplayKey, SlotTag, Trips};
use domain::{
    TenantId, UserId,
    limits::{Bucket, LimitScope},
};
use futures::future::join_all;

use crate::private_redis::{PrivateRedis, control_of};

#[tokio::test]
#[ignore = "a measurement"]
async fn admits_per_second_of_one_core() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let check = |key, scope| InflowCheck {
        scope,
        key,
        rule: "submit",
        limit: InflowLimit::Bucket(Bucket::per_second(1_000_000, 1_000_000)),
        cost: 1,
        shadow: false,
    };
    let charge = InflowCharge {
        tenant,
        replay: Some(ReplayKey { user, hash: "0".repeat(64) }),
        checks: vec![
            check(InflowKey::User(user), LimitScope::User),
            check(InflowKey::Tenant, LimitScope::Tenant),
        ],
        ip: None,
    };
    for callers in [1_u32, 16, 64, 256] {
        let started = Instant::now();
        let each = 20_000 / callers.max(8);
        let all = (0..callers).map(|_| async {
            for _ in 0..each {
                assert!(matches!(control.admit(charge.clone()).await, Ok(Admission::Granted(_))));
            }
        });
        join_all(all).await;
        let rate = f64::from(callers * each) / started.elapsed().as_secs_f64();
        println!("{callers} callers: {rate:.0} admits/s");
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn slots_and_pops_per_second_of_one_core() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let (account, model): (domain::ProviderAccountId, domain::ModelName) =
        ("mock".parse().unwrap(), "mock-fast".parse().unwrap());
    for tag in [SlotTag::Account(account.clone()), SlotTag::Tenant(tenant)] {
        let ticket = control.begin_rebuild(&tag).await.unwrap().unwrap();
        control.finish_rebuild(ticket, &[]).await.unwrap();
    }
    let started = Instant::now();
    let (worker, mut moved) = ("measure".parse().unwrap(), 0_u32);
    while started.elapsed() < Duration::from_secs(2) {
        let ready: Vec<_> = (0..64)
            .map(|i| control::ReadyTask {
                task: domain::TaskId::generate(),
                model: model.clone(),
                tenant,
                user,
                priority: domain::Priority::default(),
                tenant_weight: 1,
                created_ms: i,
                not_before_ms: 0,
                next_attempt_no: 1,
            })
            .collect();
        control.add_ready(&ready).await.unwrap();
        let popped = control.pop_ready(&model, 64, &worker, moved.into()).await.unwrap().tasks;
        let claims: Vec<_> = popped
            .iter()
            .map(|task| control::SlotClaim {
                attempt: domain::AttemptRef { task: task.task, attempt_no: 1 },
                account: account.clone(),
                model: model.clone(),
                tenant,
                user,
                limits: control::SlotLimits { account: 999, model: 999, tenant: 999, user: 999 },
                rates: control::DispatchRates::default(),
            })
            .collect();
        for outcome in control.acquire_slots(&claims, Trips::Two).await {
            assert_eq!(outcome, Ok(control::SlotOutcome::Acquired));
        }
        control.done_ready(&popped).await.unwrap();
        let slots: Vec<_> = claims.iter().map(control::SlotClaim::slot).collect();
        control.release_slots(&slots, control::Sent::Yes).await.unwrap();
        moved += 64;
    }
    println!(
        "{:.0} tasks/s: add, pop, acquire, done, release",
        f64::from(moved) / started.elapsed().as_secs_f64()
    );
}
