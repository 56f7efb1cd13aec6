//! A handle to a Redis server of one test's own.

use std::time::Duration;

use control::{Control, ControlConfig};
pub(crate) use testkit::PrivateRedis;

/// A handle with short limits, so that tests of failures are quick.
pub(crate) fn control_of(redis: &PrivateRedis, limit: Duration) -> Control {
    Control::new(ControlConfig {
        connect_limit: limit,
        response_limit: limit,
        breaker_failures: 3,
        breaker_pause: Duration::from_millis(100),
        ..ControlConfig::single(redis.url())
    })
    .unwrap()
}
