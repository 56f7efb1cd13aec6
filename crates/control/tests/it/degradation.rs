//! A server that freezes, dies or refuses.

use std::time::{Duration, Instant};

use control::{BreakerState, Control, ControlConfig, ControlError, Sent};
use domain::TaskId;
use tokio::time::timeout;

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

/// Who is refused a connection need not wait for the limit to know it, however many ask at once.
#[tokio::test]
async fn a_refused_connection_is_an_answer_and_not_a_wait() {
    let mut redis = PrivateRedis::start().await;
    redis.kill();
    let control = control_of(&redis, SOON);
    let answers = timeout(SOON / 2, futures::future::join_all((0..64).map(|_| set(&control)))).await;
    assert_eq!(answers.expect("nobody waits"), vec![Err(ControlError::Unavailable); 64]);
    redis.start_again().await;
    until_well(&control).await;
}

/// Waits until probes find these instances away, and the others well.
async fn until_degraded(control: &Control, names: &[&str]) {
    testkit::wait_until("the breakers", SOON, async || {
        control.probe().await.degraded().collect::<Vec<_>>() == names
    })
    .await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_gone_until_it_takes_them_again() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    // A replica of nobody refuses writes as well, by script and by command.
    let oom: [&[&str]; 2] = [&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]];
    let readonly: [&[&str]; 2] = [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]];
    for ([hurt, heal], error) in [(oom, ControlError::OutOfMemory), (readonly, ControlError::ReadOnly)] {
        until_well(&control).await;
        redis.command(hurt).await;
        assert_eq!(set(&control).await, Err(error.clone()));
        assert_eq!(control.health().cache, BreakerState::Open, "one refusal is enough");
        assert_eq!(set(&control).await, Err(ControlError::Unavailable));
        // Reads succeed there, those that are let through. They must not make it look well.
        for _ in 0..3 {
            testkit::wait_until("a read", SOON, async || {
                let read = control.get_snapshots(&[TaskId::generate()]).await;
                assert_ne!(control.health().cache, BreakerState::Closed, "{error}");
                read.is_ok()
            })
            .await;
        }
        // Instances that nobody writes to are found out by the probe.
        until_degraded(&control, &["cache", "control", "realtime"]).await;
        redis.command(heal).await;
        until_degraded(&control, &[]).await;
        assert_eq!(set(&control).await, Ok(vec![true]));
    }
}

#[tokio::test]
async fn scripts_and_commands_are_refused_alike() {
    let redis = PrivateRedis::start().await;
    let hurt: [(&[&str], ControlError); 2] = [
        (&["CONFIG", "SET", "maxmemory", "1"], ControlError::OutOfMemory),
        (&["REPLICAOF", "127.0.0.1", "1"], ControlError::ReadOnly),
    ];
    for (words, error) in hurt {
        redis.command(words).await;
        assert_eq!(set(&control_of(&redis, SOON)).await, Err(error.clone()));
        let absent = control_of(&redis, SOON).mark_absent(TaskId::generate()).await;
        assert_eq!(absent, Err(error));
        redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
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
    let absent = control_of(&redis, SOON).mark_absent(TaskId::generate()).await;
    assert_eq!(absent, Err(ControlError::Misconfigured));
    until_degraded(&control, &["cache", "control", "realtime"]).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_gone_until_it_has() {
    let mut redis = PrivateRedis::start().await;
    let fill = "for n = 1, 2000 do redis.call('SET', 'filler:' .. n, string.rep('x', 100)) end";
    redis.command(&["EVAL", fill, "0"]).await;
    redis.command(&["SAVE"]).await;
    let control = control_of(&redis, Duration::from_secs(5));
    until_well(&control).await;
    redis.kill();
    tokio::join!(redis.load_again(Duration::from_millis(3)), async {
        testkit::wait_until("the loading", SOON, async || set(&control).await == Err(ControlError::Loading))
            .await;
        assert_ne!(control.health().cache, BreakerState::Closed);
        until_degraded(&control, &["cache", "control", "realtime"]).await;
    });
    until_degraded(&control, &[]).await;
    assert_eq!(set(&control).await, Ok(vec![true]));
}

#[tokio::test]
async fn only_the_instance_that_is_hurt_is_taken_for_gone() {
    let (cache, mut control_server, realtime) =
        tokio::join!(PrivateRedis::start(), PrivateRedis::start(), PrivateRedis::start());
    let config = |limit| ControlConfig {
        cache_url: cache.url(),
        realtime_url: realtime.url(),
        connect_limit: limit,
        response_limit: limit,
        breaker_pause: Duration::from_millis(100),
        ..ControlConfig::single(control_server.url())
    };
    let control = Control::new(config(SHORT)).unwrap();
    until_well(&control).await;
    cache.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    until_degraded(&control, &["cache"]).await;
    control_server.kill();
    until_degraded(&control, &["cache", "control"]).await;
    realtime.freeze();
    until_degraded(&control, &["cache", "control", "realtime"]).await;
    cache.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    control_server.start_again().await;
    until_degraded(&control, &["realtime"]).await;
    realtime.thaw();
    until_degraded(&control, &[]).await;
}

/// Every connection of the pool is dead, and no caller pays for it.
#[tokio::test]
async fn a_restart_between_two_commands_is_noticed_by_nobody() {
    let mut redis = PrivateRedis::start().await;
    let control = control_of(&redis, Duration::from_secs(5));
    for _ in 0..5 {
        // As many at once as make the pool open all its connections.
        for outcome in futures::future::join_all((0..64).map(|_| set(&control))).await {
            assert_eq!(outcome, Ok(vec![true]));
        }
        redis.kill();
        redis.start_again().await;
        let outcomes = futures::future::join_all((0..64).map(|_| set(&control))).await;
        assert_eq!(outcomes, vec![Ok(vec![true]); 64]);
        assert_eq!(control.health().cache, BreakerState::Closed);
    }
}

/// A machine that vanished closes no connection: the old ones look alive, and lead nowhere.
#[tokio::test]
async fn once_the_breaker_has_opened_no_older_connection_is_used_again() {
    let redis = PrivateRedis::start().await;
    let proxy = testkit::Proxy::before(&redis.url()).await;
    let control = Control::new(ControlConfig {
        connect_limit: SHORT,
        response_limit: SHORT,
        breaker_failures: 1,
        breaker_pause: Duration::from_millis(100),
        ..ControlConfig::single(proxy.url(&redis.url()))
    })
    .unwrap();
    until_well(&control).await;
    futures::future::join_all((0..64).map(|_| set(&control))).await;
    proxy.freeze();
    assert_eq!(set(&control).await, Err(ControlError::Unknown));
    assert_eq!(control.health().cache, BreakerState::Open);
    let opened = proxy.opened();
    proxy.thaw();
    testkit::wait_until("a probe", SOON, async || set(&control).await.is_ok()).await;
    assert!(proxy.opened() > opened, "a connection of before was used again");
    for outcome in futures::future::join_all((0..64).map(|_| set(&control))).await {
        assert_eq!(outcome, Ok(vec![true]));
    }
}

#[tokio::test]
async fn a_lock_is_lost_when_redis_was_silent_for_as_long_as_it_lives() {
    let mut redis = PrivateRedis::start().await;
    let control = control_of(&redis, SHORT);
    until_well(&control).await;
    let ttl = SHORT * 6;
    let locked = async || control.try_lock("poster", 1, ttl).await.unwrap().expect("nobody holds it");

    // A silence that is shorter costs nothing.
    let guard = locked().await;
    redis.freeze();
    testkit::wait_until("a failure", SOON, async || set(&control).await.is_err()).await;
    redis.thaw();
    assert!(timeout(ttl * 2, guard.lost()).await.is_err(), "it was not prolonged");
    guard.release().await;
    until_well(&control).await;

    for restart in [false, true] {
        let guard = locked().await;
        if restart {
            redis.kill();
            redis.start_again().await;
        } else {
            redis.freeze();
        }
        timeout(SOON, guard.lost()).await.expect("the loss is told");
        assert!(guard.is_lost());
        if !restart {
            redis.thaw();
        }
        until_well(&control).await;
        guard.release().await;
    }
}
