//! What the tests of this crate share.

use std::time::Duration;

use domain::{AttemptRef, ModelName, ProviderAccountId, TaskId, TenantId, UserId, limits::Bucket};
use redis::FromRedisValue;
use testkit::TestRedis;

use crate::{
    Control, ControlConfig, DispatchRates, Rebuild, SlotClaim, SlotLimits, SlotTag, instance::command,
    keys::Keys,
};

/// A handle on a corner of the shared server, patient enough for a busy machine.
pub(crate) struct Corner {
    pub(crate) control: Control,
    redis: TestRedis,
}

impl Corner {
    pub(crate) fn new() -> Self {
        let redis = TestRedis::new();
        Self { control: Control::new(config(&redis)).unwrap(), redis }
    }

    /// Another process's handle on the same corner.
    pub(crate) fn other(&self) -> Control {
        Control::new(self.config()).unwrap()
    }

    pub(crate) fn config(&self) -> ControlConfig {
        config(&self.redis)
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::new(&self.redis.prefix)
    }

    /// A plain command, as a hand that plants or inspects keys would give it.
    pub(crate) async fn raw<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let call = words[1..].iter().fold(command(words[0]), |call, word| call.arg(*word));
        self.control.0.control.call(call).await.unwrap()
    }

    /// Makes a tag ready with nothing in it.
    pub(crate) async fn make_ready(&self, tag: &SlotTag) {
        let ticket = self.control.begin_rebuild(tag).await.unwrap().expect("nobody else rebuilds");
        assert_eq!(self.control.finish_rebuild(ticket, &[]).await, Ok(Rebuild::Done));
    }

    /// Every key of the corner with its remaining life in ms.
    pub(crate) async fn all_keys(&self) -> Vec<(String, i64)> {
        let mut cursor = "0".to_owned();
        let mut found = Vec::new();
        loop {
            let pattern = format!("{}*", self.redis.prefix);
            let (next, keys): (String, Vec<String>) =
                self.raw(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"]).await;
            for key in keys {
                let ttl = self.raw(&["PTTL", &key]).await;
                found.push((key, ttl));
            }
            if next == "0" {
                return found;
            }
            cursor = next;
        }
    }
}

fn config(redis: &TestRedis) -> ControlConfig {
    ControlConfig {
        prefix: redis.prefix.clone(),
        connect_limit: Duration::from_secs(5),
        response_limit: Duration::from_secs(5),
        ..ControlConfig::single(redis.url.clone())
    }
}

pub(crate) fn account() -> ProviderAccountId {
    "mock".parse().unwrap()
}

pub(crate) fn model() -> ModelName {
    "mock-fast".parse().unwrap()
}

/// A claim of a new task, with room everywhere and no rates.
pub(crate) fn claim(tenant: TenantId, user: UserId) -> SlotClaim {
    SlotClaim {
        attempt: AttemptRef { task: TaskId::generate(), attempt_no: 1 },
        account: account(),
        model: model(),
        tenant,
        user,
        limits: SlotLimits { account: 1_000, model: 1_000, tenant: 1_000, user: 1_000 },
        rates: DispatchRates::default(),
    }
}

/// A bucket that practically never refills within a test.
pub(crate) fn slow(capacity: u32) -> Bucket {
    Bucket { capacity, refill: 1, per_ms: 3_600_000 }
}
