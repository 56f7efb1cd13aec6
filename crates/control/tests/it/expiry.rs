//! What is left of many who came once.

use std::time::Duration;

use control::{
    Admission, FailedAuthLimit, InflowCharge, InflowCheck, InflowKey, InflowLimit, IpCharge, ReplayKey,
    StoredAnswer,
};
use domain::{
    TenantId, UserId,
    limits::{Bucket, LimitScope, Window},
};
use futures::{StreamExt, stream};

use crate::private_redis::{PrivateRedis, control_of};

const SUBJECTS: u32 = 10_000;
/// Kinds of keys that each of them leaves: two buckets, a strict window and its shadow, a replay entry, two of the address.
const KINDS: u32 = 7;

/// Fails the test by name when a key would stay for ever, or when there are too few.
const LOOK: &str = "local cursor, count = '0', 0
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    count = count + 1
    if redis.call('PTTL', key) == -1 then
      return redis.error_reply('ERR never expires: ' .. key)
    end
  end
until cursor == '0'
if count < tonumber(ARGV[1]) then
  return redis.error_reply('ERR only ' .. count .. ' keys')
end
return redis.status_reply('OK')";

#[tokio::test]
async fn ten_thousand_subjects_leave_no_key_that_stays_for_ever() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    let come = |n: u32| {
        let control = control.clone();
        async move {
            let (tenant, user) = (TenantId::generate(), UserId::generate());
            let check = |key, limit| InflowCheck {
                scope: LimitScope::User,
                key,
                rule: "submit",
                limit,
                cost: 1,
                shadow: false,
            };
            let bucket = || InflowLimit::Bucket(Bucket { capacity: 1, refill: 1, per_ms: 12_000 });
            let window =
                InflowLimit::Window { window: Window::in_minutes(2, 10), entry: format!("entry {n}") };
            let strict = check(InflowKey::Expensive(user, "mock-pro".parse().unwrap()), window);
            let ip = std::net::Ipv4Addr::from(0x0A00_0000 + n).into();
            let charge = InflowCharge {
                tenant,
                replay: None,
                checks: vec![
                    check(InflowKey::User(user), bucket()),
                    check(InflowKey::Tenant, bucket()),
                    InflowCheck { shadow: true, ..strict.clone() },
                    strict,
                ],
                ip: Some(IpCharge { ip, limit: 9, window_ms: 10_000 }),
            };
            assert!(matches!(control.admit(charge.clone()).await, Ok(Admission::Granted(_))));
            assert!(matches!(control.admit(charge).await, Ok(Admission::Refused { .. })));
            let replay = ReplayKey { user, hash: "h".to_owned() };
            let answer = StoredAnswer { status: 202, body: String::new(), fingerprint: String::new() };
            control.remember_answers(&[(tenant, replay, answer)]).await.unwrap();
            let limit = FailedAuthLimit { limit: 2, window_ms: 60_000 };
            control.charge_failed_auth(ip, limit).await.unwrap();
        }
    };
    stream::iter((0..SUBJECTS).map(come)).buffer_unordered(256).collect::<()>().await;
    redis.command(&["EVAL", LOOK, "0", &(SUBJECTS * KINDS).to_string()]).await;
}
