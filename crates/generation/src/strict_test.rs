//! Strict windows from a submit's point of view: exact, told truly, not charged for what came to nothing, and never guessed.

use std::{sync::Arc, time::Duration};

use domain::{
    Scopes,
    limits::{LimitScope, Window},
};
use futures::future::join_all;
use tenancy::Session;

use crate::{
    GenerationConfig, GenerationRequest, StrictWithoutRedis, SubmitError,
    quote::Decision,
    tests_support::{Process, World},
};

/// A request of the expensive model; 20 credits.
fn dear(process: &Process) -> GenerationRequest {
    process.parse(r#"{"model":"mock-pro","prompt":"a cat","duration_seconds":1}"#)
}

/// A user of the tier free.
async fn user(world: &World, credits: i64) -> Arc<Session> {
    let tenant = world.another_tenant("free").await;
    world.user_of(tenant, credits, Scopes::default_of_keys()).await
}

/// One with no other limit than the strict one.
async fn unhurried(world: &World, credits: i64) -> Arc<Session> {
    let mut session = Session::clone(&*user(world, credits).await);
    let mut tier = (*session.tier).clone();
    (tier.user.submit, tier.tenant.submit) = (None, None);
    (tier.user.running, tier.tenant.running) = (100, 100);
    session.tier = Arc::new(tier);
    Arc::new(session)
}

#[tokio::test]
async fn the_fourth_expensive_submit_in_ten_minutes_is_refused_and_says_when_to_come_again() {
    let world = World::new().await;
    let (process, ada) = (world.process().await, user(&world, 1_000).await);
    for left in [2, 1, 0] {
        let quote = process.generation.quote(&ada, dear(&process)).await.unwrap();
        assert_eq!(quote.problem, None, "asking takes no place");
        let done = process.submit(&ada, dear(&process), None).await.unwrap();
        let told = done.limits.iter().find(|limit| limit.policy == "expensive-user").unwrap();
        assert_eq!((told.scope, told.limit, told.remaining), (LimitScope::User, 3, left));
        assert_eq!(told.window, Duration::from_secs(600));
    }
    let quote = process.generation.quote(&ada, dear(&process)).await.unwrap();
    assert_eq!((quote.decision, quote.binding_limit.unwrap().policy), (Decision::Refused, "expensive-user"));
    let refused = process.submit(&ada, dear(&process), None).await.unwrap_err();
    for problem in [quote.problem.unwrap(), refused] {
        let SubmitError::RateLimited { by, retry_after, .. } = problem else { panic!("{problem:?}") };
        assert_eq!((by.policy, by.remaining), ("expensive-user", 0));
        assert!(retry_after > Duration::from_secs(500) && retry_after <= Duration::from_secs(600));
    }
    // The window is this model's, and what it refused cost no other limit anything.
    for _ in 0..2 {
        process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
    }
    let other = user(&world, 1_000).await;
    process.submit(&other, dear(&process), None).await.unwrap();
    world.assert_sound().await;
}

/// Processes share one count by one clock, that of Redis; however wrong their own are, nobody asks them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_processes_share_one_exact_count() {
    let world = World::new().await;
    let processes = [world.process().await, world.process().await, world.process().await];
    let (ada, bob) = (unhurried(&world, 10_000).await, user(&world, 10_000).await);
    let accepted = async |session: &Arc<Session>, request: fn(&Process) -> GenerationRequest| {
        let submits = (0..20).map(|n| {
            let process = &processes[n % 3];
            process.submit(session, request(process), None)
        });
        join_all(submits).await.into_iter().filter(Result::is_ok).count()
    };
    assert_eq!(accepted(&ada, dear).await, 3, "the window of the tier free");
    assert_eq!(accepted(&bob, |process| process.request("a cat", 1)).await, 5, "and its bucket");
    assert_eq!(world.count("generation_tasks").await, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twins_of_an_expensive_submit_take_one_place() {
    let world = World::new().await;
    let processes = [world.process().await, world.process().await];
    let ada = unhurried(&world, 10_000).await;
    let twins = (0..20).map(|n| {
        let process = &processes[n % 2];
        process.submit(&ada, dear(process), Some("K"))
    });
    for twin in join_all(twins).await {
        twin.unwrap();
    }
    assert_eq!(world.count("generation_tasks").await, 1);
    for _ in 0..2 {
        processes[0].submit(&ada, dear(&processes[0]), None).await.unwrap();
    }
    let full = processes[0].submit(&ada, dear(&processes[0]), None).await.unwrap_err();
    assert!(matches!(full, SubmitError::RateLimited { .. }), "{full:?}");
    // Another request under the key is a mismatch, and takes nobody's place back.
    let longer = processes[1].parse(r#"{"model":"mock-pro","prompt":"a cat","duration_seconds":2}"#);
    assert_eq!(processes[1].submit(&ada, longer, Some("K")).await, Err(SubmitError::IdempotencyMismatch));
    let full = processes[0].submit(&ada, dear(&processes[0]), None).await.unwrap_err();
    assert!(matches!(full, SubmitError::RateLimited { .. }), "{full:?}");
}

#[tokio::test]
async fn a_submit_that_was_refused_later_gives_its_place_back() {
    let world = World::new().await;
    let (process, ada) = (world.process().await, unhurried(&world, 19).await);
    for key in [None, Some("K"), None, Some("K"), None] {
        let refused = process.submit(&ada, dear(&process), key).await.unwrap_err();
        assert!(matches!(refused, SubmitError::InsufficientCredits { .. }), "{refused:?}");
    }
    world.grant(ada.principal.account, 1_000).await;
    for _ in 0..3 {
        process.submit(&ada, dear(&process), None).await.unwrap();
    }
    let full = process.submit(&ada, dear(&process), None).await.unwrap_err();
    assert!(matches!(full, SubmitError::RateLimited { .. }), "{full:?}");
}

#[tokio::test]
async fn without_redis_an_expensive_submit_is_refused_and_an_earlier_one_is_answered_again() {
    let world = World::new().await;
    let ada = user(&world, 1_000).await;
    let first = {
        let process = world.process().await;
        process.submit(&ada, dear(&process), Some("K")).await.unwrap()
    };
    let process = world.process_without_redis().await;
    let refused = process.submit(&ada, dear(&process), None).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Uncounted { .. }), "{refused:?}");
    assert!(refused.retry_after().is_some());
    let quote = process.generation.quote(&ada, dear(&process)).await.unwrap();
    assert_eq!((quote.decision, quote.problem), (Decision::Refused, Some(refused)));

    let twin = process.submit(&ada, dear(&process), Some("K")).await.unwrap();
    assert_eq!((twin.task, &twin.body, twin.replayed), (first.task, &first.body, true));
    process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
    assert_eq!(world.count("generation_tasks").await, 2);

    // Whom no window counts is let in, since an accepted task only waits.
    let wide = world.user(1_000).await;
    process.submit(&wide, dear(&process), None).await.unwrap();
}

#[tokio::test]
async fn without_redis_configuration_may_let_expensive_submits_wait_instead() {
    let world = World::new().await;
    let ada = unhurried(&world, 1_000).await;
    let config = GenerationConfig {
        strict_without_redis: StrictWithoutRedis::Queue,
        fallback_share: 0.7,
        ..GenerationConfig::default()
    };
    let process = world.process_without_redis_as(config);
    assert_eq!(ada.tier.expensive, Some(Window { limit: 3, window_ms: 600_000 }));
    // This process's share of three.
    for _ in 0..2 {
        process.submit(&ada, dear(&process), None).await.unwrap();
    }
    let full = process.submit(&ada, dear(&process), None).await.unwrap_err();
    let SubmitError::RateLimited { by, .. } = full else { panic!("{full:?}") };
    assert_eq!(by.policy, "expensive-user");
}

/// What the server forgets (its scripts, or everything with its connections) costs nobody an answer.
#[tokio::test]
async fn c34_scripts_that_are_gone_and_a_restart_with_no_data_refuse_nobody() {
    let world = World::new().await;
    let mut redis = testkit::PrivateRedis::start().await;
    let (process, ada) = (world.process_with_redis(&redis.url()), user(&world, 1_000).await);
    let left = async || {
        let done = process.submit(&ada, dear(&process), None).await.unwrap();
        let counted_in_redis = done.limits.iter().filter(|limit| !limit.policy.starts_with("daily"));
        counted_in_redis.map(|limit| limit.remaining).collect::<Vec<_>>()
    };
    assert_eq!(left().await, [4, 49, 2]);
    redis.command(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(left().await, [3, 48, 1], "by the count in Redis, after one reload");

    redis.kill();
    redis.start_again().await;
    process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
    // The dead connections are found out one by one.
    testkit::wait_until("the count to be there again", Duration::from_secs(5), async || {
        process.submit(&ada, dear(&process), None).await.is_ok()
    })
    .await;
}
