//! The script that every generation passes at the entry. Against the Redis of `REDIS_URL`, in a corner of its own.
//!
//! `cargo bench -p control`

use std::time::Duration;

use control::{Control, ControlConfig, InflowCharge, InflowCheck, InflowKey, InflowLimit, ReplayKey};
use divan::Bencher;
use domain::{
    TenantId, UserId,
    limits::{Bucket, LimitScope},
};
use testkit::TestRedis;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

const PATIENCE: Duration = Duration::from_secs(10);

struct Bench {
    runtime: Runtime,
    control: Control,
    _corner: TestRedis,
}

impl Bench {
    fn new() -> Self {
        let corner = TestRedis::new();
        let runtime = Runtime::new().expect("a runtime");
        let entered = runtime.enter();
        // Patient, because the machine may be busy.
        let config = ControlConfig {
            prefix: corner.prefix.clone(),
            connect_limit: PATIENCE,
            response_limit: PATIENCE,
            ..ControlConfig::single(corner.url.clone())
        };
        let control = Control::new(config).expect("REDIS_URL");
        drop(entered);
        Self { runtime, control, _corner: corner }
    }
}

#[divan::bench]
fn admit(bencher: Bencher<'_, '_>) {
    let bench = Bench::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let bucket = Bucket::per_second(1_000_000, 1_000_000);
    let limit = InflowLimit::Bucket(bucket);
    let check =
        |key, scope| InflowCheck { scope, key, rule: "submit", limit: limit.clone(), cost: 1, shadow: false };
    let charge = InflowCharge {
        tenant,
        replay: Some(ReplayKey { user, hash: "0".repeat(64) }),
        checks: vec![
            check(InflowKey::User(user), LimitScope::User),
            check(InflowKey::Tenant, LimitScope::Tenant),
        ],
        ip: None,
    };
    bencher.with_inputs(|| charge.clone()).bench_local_values(|charge| {
        bench.runtime.block_on(bench.control.admit(charge)).expect("admitted");
    });
}
