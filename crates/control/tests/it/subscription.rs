//! The subscription connection and its server.

use std::time::Duration;

use control::{Change, Signal, TenantWatch};
use domain::{TaskId, TenantId};
use tokio::time::timeout;

use crate::private_redis::{PrivateRedis, control_of};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);

fn change(tenant: TenantId, version: i32) -> Change {
    Change { tenant, task: TaskId::generate(), version, kind: "running".to_owned(), progress: None }
}

/// The next change, past any gaps; how many gaps there were.
async fn next_change(watch: &mut TenantWatch) -> (Change, usize) {
    let mut gaps = 0;
    loop {
        match timeout(SOON, watch.next()).await.expect("a signal") {
            Signal::Change(change) => return (change, gaps),
            Signal::Gap => gaps += 1,
        }
    }
}

#[tokio::test]
async fn a_watch_outlives_its_server_and_is_told_of_the_gap() {
    let mut redis = PrivateRedis::start().await;
    let control = control_of(&redis, SHORT);
    let tenant = TenantId::generate();
    let mut watch = control.watch_tenant(tenant).await;
    testkit::wait_until("the subscription", SOON, async || watch.is_live()).await;
    redis.kill();
    testkit::wait_until("the loss to be seen", SOON, async || !watch.is_live()).await;
    redis.start_again().await;
    testkit::wait_until("the subscription", SOON, async || watch.is_live()).await;
    let news = change(tenant, 2);
    testkit::wait_until("a publish", SOON, async || {
        control.publish(std::slice::from_ref(&news)).await.is_ok()
    })
    .await;
    let (heard, gaps) = next_change(&mut watch).await;
    assert_eq!(heard, news);
    assert_eq!(gaps, 1);
}

#[tokio::test]
async fn a_frozen_server_is_noticed_without_any_traffic() {
    let redis = PrivateRedis::start().await;
    let control = control_of(&redis, SHORT);
    let tenant = TenantId::generate();
    let mut watch = control.watch_tenant(tenant).await;
    testkit::wait_until("the subscription", SOON, async || watch.is_live()).await;
    redis.freeze();
    testkit::wait_until("the loss to be seen", SOON, async || !watch.is_live()).await;
    redis.thaw();
    testkit::wait_until("the subscription", SOON, async || watch.is_live()).await;
    let news = change(tenant, 2);
    testkit::wait_until("a publish", SOON, async || {
        control.publish(std::slice::from_ref(&news)).await.is_ok()
    })
    .await;
    let (heard, gaps) = next_change(&mut watch).await;
    assert_eq!(heard, news);
    assert!(gaps >= 1);
}

#[tokio::test]
async fn a_watch_begun_while_the_server_is_away_hears_a_gap_when_it_is_back() {
    let mut redis = PrivateRedis::start().await;
    redis.kill();
    let control = control_of(&redis, SHORT);
    let mut watch = control.watch_tenant(TenantId::generate()).await;
    assert!(!watch.is_live());
    redis.start_again().await;
    assert_eq!(timeout(SOON, watch.next()).await.unwrap(), Signal::Gap);
}
