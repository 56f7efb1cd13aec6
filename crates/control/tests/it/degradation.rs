//! A server that freezes, dies or refuses.

use std::time::{Duration, Instant};

use control::{BreakerState, Control, ControlError, Sent};
use domain::TaskId;

use crate::private_redis::{PrivateRedis, control_of};

const SHORT: Duration = Duration::from_millis(80);
const SOON: Duration = Duration::from_secs(10);

async fn set(control: &Control) -> Result<Vec<bool>, ControlError> {
    control.set_snapshots(&[(TaskId::generate(), 1, r#"{"version":1}"#.to_owned(), SOON)]).await
}

async fn until_well(control: &Control) {
    testkit::wait_until("Redis to be well again", SOON, async || {
        let well = set(control).await.is_ok();
        well && control.probe().await.degraded().next().is_none()
    })
    .await;
}

#[tokio::test]
async fn a_frozen_server_is_an_unknown_outcome_then_refused_at_once_then_well_again() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, SHORT);
    until_well(&control).await;
    redis.freeze();
    assert_eq!(set(&control).await, Err(ControlError::Unknown), "it was sent and may have run");
    testkit::wait_until("the breaker", SOON, async || {
        assert!(set(&control).await.is_err());
        control.health().cache == BreakerState::Open
    })
    .await;
    // Open: most callers learn it without waiting (one in a pause is the probe).
    let started = Instant::now();
    let quick = (0..20).map(|_| set(&control));
    let answers = futures::future::join_all(quick).await;
    assert!(answers.iter().filter(|answer| **answer == Err(ControlError::Unavailable)).count() >= 19);
    assert!(started.elapsed() < SHORT * 20);
    assert_eq!(control.health().degraded().collect::<Vec<_>>(), ["cache"], "the others were not asked");
    assert!(control.probe().await.control == BreakerState::Closed, "one failure is not enough");

    redis.thaw();
    until_well(&control).await;
}

#[tokio::test]
async fn a_dead_server_is_unavailable_and_a_new_one_is_found() {
    let mut redis = PrivateRedis::start().await;
    let control = control_of(&redis, SHORT);
    until_well(&control).await;
    redis.kill();
    testkit::wait_until("the breaker", SOON, async || {
        assert!(set(&control).await.is_err());
        control.health().cache != BreakerState::Closed
    })
    .await;
    redis.start_again().await;
    until_well(&control).await;
}

#[tokio::test]
async fn a_server_that_was_never_there_costs_an_error_and_nothing_else() {
    let mut redis = PrivateRedis::start().await;
    redis.kill();
    let control = control_of(&redis, SHORT);
    assert_eq!(set(&control).await, Err(ControlError::Unavailable));
    let lost = control.release_slots(&[], Sent::Yes).await;
    assert_eq!(lost, Ok(()), "nothing to do is nothing to fail");
}

#[tokio::test]
async fn refusals_of_the_server_have_their_types_and_do_not_open_the_breaker() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    until_well(&control).await;

    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for _ in 0..5 {
        assert_eq!(set(&control).await, Err(ControlError::OutOfMemory));
        assert_eq!(control.mark_absent(TaskId::generate()).await, Err(ControlError::OutOfMemory));
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;

    // A replica of nobody: refuses writes, by script and by command.
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(set(&control).await, Err(ControlError::ReadOnly));
    assert_eq!(control.mark_absent(TaskId::generate()).await, Err(ControlError::ReadOnly));
    redis.command(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(set(&control).await, Ok(vec![true]));
    assert_eq!(control.health().cache, BreakerState::Closed);
}

#[tokio::test]
async fn a_server_that_cannot_persist_has_a_type() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    until_well(&control).await;
    redis.command(&["SET", "something", "to save"]).await;
    // The folder for the dump is gone, so the next save fails and writes are refused.
    redis.remove_folder();
    redis.command(&["CONFIG", "SET", "save", "1 1"]).await;
    redis.command(&["BGSAVE"]).await;
    testkit::wait_until("the failed save", SOON, async || {
        set(&control).await == Err(ControlError::Misconfigured)
    })
    .await;
    assert_eq!(control.mark_absent(TaskId::generate()).await, Err(ControlError::Misconfigured));
}
