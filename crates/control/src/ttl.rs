//! Expiries. What many keys share is spread a little, so that they do not all go in the same moment.

use std::time::Duration;

use rand::RngExt as _;

/// Milliseconds of `base`, and up to a tenth more.
pub(crate) fn jittered_ms(base: Duration) -> u64 {
    let base = millis(base).max(1);
    base + rand::rng().random_range(0..=base / 10)
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use domain::{Priority, TaskId, TenantId, UserId, limits::Window};

    use super::*;
    use crate::{
        Change, DispatchPause, DispatchRates, FailedAuthLimit, InflowCharge, InflowCheck, InflowKey,
        InflowLimit, IpCharge, ModelWait, Park, Progress, Promise, ReadyTask, ReplayKey, SlotClaim, SlotTag,
        StoredAnswer, WaitNote,
        testing::{Corner, account, claim, model, slow},
    };

    #[test]
    fn jitter_only_adds_and_at_most_a_tenth() {
        for _ in 0..1_000 {
            assert!((1_000..=1_100).contains(&jittered_ms(Duration::from_secs(1))));
        }
    }

    /// Uses every verb that writes, then looks at every key there is.
    #[tokio::test]
    async fn no_key_of_any_kind_stays_for_ever() {
        let corner = Corner::new();
        let control = &corner.control;
        let (tenant, user, task) = (TenantId::generate(), UserId::generate(), TaskId::generate());
        let replay = ReplayKey { user, hash: "h".to_owned() };
        let answer = StoredAnswer { status: 202, body: String::new(), fingerprint: String::new() };
        let ip = "203.0.113.1".parse().unwrap();
        let check = |key| InflowCheck {
            scope: domain::limits::LimitScope::User,
            key,
            rule: "submit",
            limit: InflowLimit::Bucket(slow(2)),
            cost: 1,
            shadow: false,
        };
        let keys =
            [InflowKey::User(user), InflowKey::Tenant, InflowKey::Endpoint("e"), InflowKey::Model(model())];
        let window = InflowLimit::Window { window: Window::in_minutes(2, 10), entry: "e".to_owned() };
        let strict = InflowCheck { limit: window, ..check(InflowKey::Expensive(user, model())) };
        let shadow = InflowCheck { shadow: true, ..strict.clone() };
        let ip_charge = IpCharge { ip, limit: 9, window_ms: 10_000 };
        let charge = InflowCharge {
            tenant,
            replay: None,
            checks: keys.into_iter().map(check).chain([strict, shadow]).collect(),
            ip: Some(ip_charge),
        };
        for _ in 0..4 {
            control.admit(charge.clone()).await.unwrap();
        }
        control.refund(std::slice::from_ref(&charge)).await.unwrap();
        control.admit(charge).await.unwrap();
        control.remember_answers(&[(tenant, replay, answer)]).await.unwrap();
        control.charge_failed_auth(ip, FailedAuthLimit { limit: 2, window_ms: 60_000 }).await.unwrap();

        for tag in [SlotTag::Account(account()), SlotTag::Tenant(tenant)] {
            corner.make_ready(&tag).await;
        }
        let rates = DispatchRates { account: Some(slow(5)), model: Some(slow(5)) };
        for claim in [SlotClaim { rates, ..claim(tenant, user) }, claim(tenant, user)] {
            let _ = control.acquire_slots(&[claim], crate::Trips::Two).await;
        }
        let pause = Duration::from_secs(2);
        control.set_not_before(&[DispatchPause { account: account(), model: None, pause }]).await.unwrap();

        let ready: Vec<_> = (0..5)
            .map(|i| ReadyTask {
                task: TaskId::generate(),
                model: model(),
                tenant: if i % 2 == 0 { tenant } else { TenantId::generate() },
                user,
                priority: Priority::default(),
                tenant_weight: 1,
                created_ms: 1,
                not_before_ms: if i == 4 { 9_999_999_999_999 } else { 0 },
                next_attempt_no: 1,
            })
            .collect();
        control.add_ready(&ready).await.unwrap();
        let popped = control.pop_ready(&model(), 3, &"w".parse().unwrap(), 0).await.unwrap().tasks;
        control.put_back(&[(popped[0].clone(), Park::User { for_at_most: pause })]).await.unwrap();
        control.put_back(&[(popped[1].clone(), Park::Tenant { for_at_most: pause })]).await.unwrap();
        control.mark_ready(&model()).await.unwrap();

        control.set_snapshots(&[(task, 1, "{}".to_owned(), pause)]).await.unwrap();
        control.mark_absent(TaskId::generate()).await.unwrap();
        control.set_progress(&[(task, Progress { version: 1, percent: 1 })]).await.unwrap();
        let wait = ModelWait { model: model(), lasts: pause, json: "{}".to_owned() };
        control.set_waits(&[WaitNote { task, json: "{}".to_owned() }], Some(wait)).await.unwrap();
        control.keep_promises(&[(task, Promise { from_ms: 1, to_ms: 2 })], 0).await.unwrap();
        control.learn_service_times(&[(model(), vec![pause])]).await.unwrap();
        control
            .publish(&[Change { tenant, task, version: 1, kind: "k".to_owned(), progress: None }])
            .await
            .unwrap();
        let _lock = control.try_lock("purpose", 1, pause).await.unwrap().unwrap();

        let keys = corner.all_keys().await;
        assert!(keys.len() > 30, "{keys:?}");
        for (key, ttl) in keys {
            // A key may have gone between the scan and the look.
            assert!(ttl > 0 || ttl == -2, "{key} never expires");
        }
    }
}
