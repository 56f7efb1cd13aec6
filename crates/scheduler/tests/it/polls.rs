//! Many open jobs, some of which answer no look.

use std::time::Duration;

use domain::TaskStatus;
use serde_json::json;
use testkit::wait_until;

use crate::world::{Order, PATIENCE, Setting, World};

const WELL: usize = 280;
/// More than may be asked about at once, so that they could take every turn.
const STUCK: usize = 20;
const TURNS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_answer_no_look_slow_down_only_themselves() {
    let mut setting = Setting { slots: 400, duration: Duration::from_secs(2), ..Setting::default() };
    setting.scheduler.account_requests_max = TURNS;
    let world = World::with(setting).await;
    world
        // Longer than any look is waited for, so that none of them is answered in time by chance.
        .faults(
            json!([{"on": "poll", "match": {"prompt_contains": "stuck"}, "action": {"delay_ms": 60_000}}]),
        )
        .await;
    let scheduler = world.scheduler("one");
    let stuck = world.submit(STUCK, Order { prompt: "stuck", ..Order::default() }).await;
    let well = world.submit(WELL, Order::default()).await;
    world.nudge(&scheduler, &stuck).await;
    world.nudge(&scheduler, &well).await;
    for record in world.ended(&well).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    let records = world.task_state.records(&stuck).await.unwrap();
    assert!(records.iter().all(|record| !record.snapshot.status.is_terminal()), "they hung all the time");

    // Alone now. At their usual pace each would be asked about ten times a second.
    let before = world.stat("polls").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let polls = world.stat("polls").await - before;
    assert!(polls <= 2 * STUCK as u64, "{polls} looks at {STUCK} jobs that answer nothing");

    world.faults(json!([])).await;
    wait_until("the stuck ones, once they answer", PATIENCE, || async {
        let records = world.task_state.records(&stuck).await.unwrap();
        records.iter().all(|record| record.snapshot.status == TaskStatus::Succeeded)
    })
    .await;
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}
