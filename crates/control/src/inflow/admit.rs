//! Asking the limits.

use std::time::Instant;

use domain::{limits::LimitScope, metric};
use redis::Value;

use crate::{
    Admission, BucketState, Control, ControlError, InflowCharge, IpCharge, RefusedBy, StoredAnswer,
    instance::{command, parse},
    script::{Call, Script},
};

impl Control {
    /// Decides one request: the replay entry first, then every bucket and the address's counter together.
    ///
    /// # Errors
    /// Without an answer the caller falls back to its in-process limits; `Unknown` may have charged.
    pub async fn admit(&self, charge: InflowCharge) -> Result<Admission, ControlError> {
        let started = Instant::now();
        let mut calls = Vec::with_capacity(2);
        calls.push(self.inflow_call(&charge));
        if let Some(ip) = &charge.ip {
            calls.push(self.ip_call(ip));
        }
        let answers = self.0.gatherer.ask(self, calls).await?;
        metrics::histogram!(metric::RATE_LIMIT_LUA_LATENCY_MS)
            .record(started.elapsed().as_secs_f64() * 1_000.0);

        let mut answers = answers.into_iter();
        let mut next =
            || answers.next().unwrap_or_else(|| Err(ControlError::Protocol("no answer".to_owned())));
        let by_buckets = read_inflow(next()?, charge.checks.len())?;
        let by_ip = if charge.ip.is_some() { read_ip(next()?)? } else { None };
        let admission = self.combine(&charge, by_buckets, by_ip).await;
        count(&charge, &admission);
        Ok(admission)
    }

    /// The address refuses on top of whatever the buckets said; then what they charged goes back.
    async fn combine(&self, charge: &InflowCharge, by_buckets: Admission, by_ip: Option<u64>) -> Admission {
        let Some(retry_after_ms) = by_ip else { return by_buckets };
        let states = match by_buckets {
            Admission::Granted(states) => {
                if let Err(error) = self.refund(std::slice::from_ref(charge)).await {
                    tracing::debug!(
                        error = error.label(),
                        "tokens of a refused request come back by time only"
                    );
                }
                states
            }
            Admission::Refused { states, .. } => states,
            Admission::Replay(_) | Admission::CostAboveCapacity { .. } => Vec::new(),
        };
        Admission::Refused { by: RefusedBy::Ip, retry_after_ms, states }
    }

    fn inflow_call(&self, charge: &InflowCharge) -> Call {
        if let (Some(replay), true) = (&charge.replay, charge.checks.is_empty()) {
            // No bucket is to be charged, so there is nothing for a script to decide.
            return command("GET").arg(self.keys().replay(charge.tenant, replay.user, &replay.hash));
        }
        let mut keys = Vec::with_capacity(1 + charge.checks.len());
        keys.push(match &charge.replay {
            Some(replay) => self.keys().replay(charge.tenant, replay.user, &replay.hash),
            None => self.keys().no_replay(charge.tenant),
        });
        keys.extend(self.bucket_keys(charge));
        let call = Script::Inflow.on(&keys).arg(u8::from(charge.replay.is_some()));
        bucket_args(call, charge)
    }

    pub(crate) fn bucket_keys(&self, charge: &InflowCharge) -> impl Iterator<Item = String> {
        charge.checks.iter().map(|check| self.keys().inflow(charge.tenant, &check.key, check.rule))
    }

    fn ip_call(&self, ip: &IpCharge) -> Call {
        Script::IpWindow.on(&[self.keys().ip_window(ip.ip)]).arg(ip.limit).arg(ip.window_ms.max(10)).arg(1)
    }
}

/// Capacity, refill, period and cost of each bucket. A refill of nothing would divide by zero.
pub(crate) fn bucket_args(call: Call, charge: &InflowCharge) -> Call {
    charge.checks.iter().fold(call, |call, check| {
        let bucket = check.bucket;
        call.arg(bucket.capacity).arg(bucket.refill.max(1)).arg(bucket.per_ms.max(1)).arg(check.cost)
    })
}

fn read_inflow(reply: Value, checks: usize) -> Result<Admission, ControlError> {
    let parts = match reply {
        Value::Array(parts) => parts,
        // The answers of a plain GET.
        Value::Nil if checks == 0 => return Ok(Admission::Granted(Vec::new())),
        Value::BulkString(json) if checks == 0 => return read_replay(&json),
        _ => return Err(unexpected()),
    };
    let mut parts = parts.into_iter();
    let code: u8 = parse(parts.next().ok_or_else(unexpected)?)?;
    if code == 0 {
        let json: String = parse(parts.next().ok_or_else(unexpected)?)?;
        return read_replay(json.as_bytes());
    }
    let numbers: Vec<u64> = parts.map(parse).collect::<Result<_, _>>()?;
    // Scripts count from 1.
    let check = |number: u64| usize::try_from(number).unwrap_or(0).saturating_sub(1);
    let states = |numbers: &[u64]| -> Result<Vec<BucketState>, ControlError> {
        let states: Vec<_> = numbers
            .chunks_exact(2)
            .map(|pair| BucketState {
                remaining: u32::try_from(pair[0]).unwrap_or(u32::MAX),
                reset_ms: pair[1],
            })
            .collect();
        if states.len() == checks { Ok(states) } else { Err(unexpected()) }
    };
    match (code, numbers.as_slice()) {
        (1, rest) => Ok(Admission::Granted(states(rest)?)),
        (2, [by, retry_after_ms, rest @ ..]) => Ok(Admission::Refused {
            by: RefusedBy::Check(check(*by)),
            retry_after_ms: *retry_after_ms,
            states: states(rest)?,
        }),
        (3, [by]) => Ok(Admission::CostAboveCapacity { check: check(*by) }),
        _ => Err(unexpected()),
    }
}

fn read_replay(json: &[u8]) -> Result<Admission, ControlError> {
    let answer: StoredAnswer =
        serde_json::from_slice(json).map_err(|error| ControlError::Protocol(error.to_string()))?;
    Ok(Admission::Replay(answer))
}

/// The wait, if the address is refused.
fn read_ip(reply: Value) -> Result<Option<u64>, ControlError> {
    let (allowed, number): (bool, u64) = parse(reply)?;
    Ok((!allowed).then_some(number.max(1)))
}

fn unexpected() -> ControlError {
    ControlError::Protocol("the reply of inflow.lua has another shape".to_owned())
}

fn count(charge: &InflowCharge, admission: &Admission) {
    match admission {
        Admission::Granted(_) => metrics::counter!(metric::RATE_LIMIT_ALLOWED).increment(1),
        Admission::Refused { by, retry_after_ms, .. } => {
            let (scope, rule) = match by {
                RefusedBy::Ip => (LimitScope::Ip.as_str(), "window"),
                RefusedBy::Check(index) => charge
                    .checks
                    .get(*index)
                    .map_or(("unknown", "unknown"), |check| (check.scope.as_str(), check.rule)),
            };
            metrics::counter!(metric::RATE_LIMIT_REJECTED, "scope" => scope, "rule" => rule).increment(1);
            #[expect(
                clippy::cast_precision_loss,
                reason = "a histogram of waits needs no more than 53 bits"
            )]
            metrics::histogram!(metric::RATE_LIMIT_RETRY_AFTER_MS).record(*retry_after_ms as f64);
        }
        Admission::Replay(_) | Admission::CostAboveCapacity { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{ModelName, TenantId, UserId, limits::Bucket};
    use futures::future::join_all;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        InflowCheck, InflowKey, ReplayKey,
        testing::{Corner, slow},
    };

    fn check(key: InflowKey, bucket: Bucket, cost: u32) -> InflowCheck {
        let scope = match key {
            InflowKey::User(_) => LimitScope::User,
            InflowKey::Tenant => LimitScope::Tenant,
            InflowKey::Endpoint(_) => LimitScope::Endpoint,
            InflowKey::Model(_) => LimitScope::Model,
        };
        InflowCheck { scope, key, rule: "submit", bucket, cost }
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
        let key = corner.control.bucket_keys(charge).next().unwrap();
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
        let granted =
            admissions.iter().filter(|admission| matches!(admission, Admission::Granted(_))).count();
        assert_eq!(granted, 10);
    }

    #[tokio::test]
    async fn a_months_rest_a_clock_set_back_and_a_planted_value_all_give_one_burst() {
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
            let key = corner.control.bucket_keys(&charge).next().unwrap();
            let left: f64 = corner.raw(&["HGET", &key, "tokens"]).await;
            assert!((0.0..=5.0).contains(&left), "{left}");
            let ttl: i64 = corner.raw(&["PTTL", &key]).await;
            assert!((1..=300_000).contains(&ttl), "the window is 300 s, the key lives {ttl} ms");
        }
    }

    #[tokio::test]
    async fn what_a_hand_left_behind_heals_when_it_is_touched() {
        let corner = Corner::new();
        let charge = tenant_charge(TenantId::generate(), slow(5));
        let key = corner.control.bucket_keys(&charge).next().unwrap();
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
    async fn the_wait_is_the_real_one_and_a_retry_after_it_succeeds() {
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
        testkit::wait_until("a refill", Duration::from_secs(5), async || {
            granted(&corner, 1, &charge).await == 1
        })
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
            assert_eq!(
                corner.control.admit(with(replay.clone())).await,
                Ok(Admission::Replay(answer.clone()))
            );
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
            vec![
                check(InflowKey::Tenant, slow(5), 1),
                check(InflowKey::User(UserId::generate()), slow(5), 6),
            ],
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
                let key = corner.control.bucket_keys(&tenant_charge(tenant, bucket)).next().unwrap();
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
}
