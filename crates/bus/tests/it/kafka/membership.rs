//! How soon a group settles: members that come, say goodbye and die, and one that nothing is left for.

use std::{collections::HashSet, time::Duration};

use bus::{GroupProtocol, Handler, HandlerError, MembershipOptions, Message};
use outbox::NewEvent;
use tokio::{sync::mpsc, time::Instant};

use super::{
    broker::Private,
    group::{MemberProcess, effects, effects_table},
    *,
};
use crate::conformance::{Consumer, TOPIC, Tell, envelope, send};

/// As many messages as reach every member, however the partitions are shared out.
const ROUND: usize = 60;
/// The broker's, by `scripts/kafka.sh`.
pub(super) const SESSION: Duration = Duration::from_secs(10);
/// What a few heartbeats take where other tests want the machine too.
const SETTLED_MAX: Duration = Duration::from_secs(8);

fn with(protocol: GroupProtocol) -> BusOptions {
    BusOptions { membership: MembershipOptions { protocol, ..MembershipOptions::default() }, ..options() }
}

/// Says who handled a message.
struct By {
    who: usize,
    tell: mpsc::UnboundedSender<usize>,
}

#[async_trait]
impl Handler for By {
    async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError> {
        for _ in batch {
            // At the end of a test nobody listens any more.
            let _ = self.tell.send(self.who);
        }
        Ok(())
    }
}

/// Who takes part in a round of messages.
async fn round(
    backend: &Kafka,
    bus: &Arc<dyn Bus>,
    told: &mut mpsc::UnboundedReceiver<usize>,
) -> HashSet<usize> {
    let events = (0..ROUND).map(|_| NewEvent::about(TOPIC, &envelope())).collect();
    send(backend, bus, events).await;
    let mut who = HashSet::new();
    for _ in 0..ROUND {
        who.insert(told.recv().await.unwrap());
    }
    who
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_join_at_once_share_within_seconds_and_a_goodbye_is_heard_at_once() {
    let backend = Kafka::start().await;
    let bus = backend.connect(options());
    let (tell, mut told) = mpsc::unbounded_channel();
    let started = Instant::now();
    let mut members: Vec<_> =
        (0..3).map(|who| Consumer::start(&bus, By { who, tell: tell.clone() })).collect();
    while round(&backend, &bus, &mut told).await.len() < 3 {}
    println!("three members share after {:?}", started.elapsed());
    assert!(started.elapsed() < SETTLED_MAX, "it took {:?}", started.elapsed());

    for left in [2, 1] {
        let started = Instant::now();
        members.remove(0).stop().await;
        println!("stopped after {:?}", started.elapsed());
        while round(&backend, &bus, &mut told).await.len() != left {}
        println!("{left} do without one that left after {:?}", started.elapsed());
        assert!(started.elapsed() < SETTLED_MAX, "it took {:?}", started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_partitions_of_a_dead_member_are_taken_over_after_its_session() {
    let backend = Kafka::start().await;
    effects_table(backend.pool()).await;
    let bus = backend.connect(options());
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut dead = MemberProcess::start(&backend, GroupProtocol::Consumer);
    let takes_part = async || {
        send(&backend, &bus, vec![NewEvent::about(TOPIC, &envelope())]).await;
        effects(backend.pool(), "process").await > 0
    };
    testkit::wait_until("it takes part", SOON, takes_part).await;
    let survivor = Consumer::start(&bus, By { who: 0, tell });
    testkit::wait_until("the other one too", SOON, async || {
        send(&backend, &bus, vec![NewEvent::about(TOPIC, &envelope())]).await;
        !told.is_empty()
    })
    .await;
    dead.kill().await;
    while told.try_recv().is_ok() {}
    let died = Instant::now();
    round(&backend, &bus, &mut told).await;
    testkit::wait_until("all is taken over", SOON, async || backend.lag(TOPIC).await == 0).await;
    println!("taken over after {:?}", died.elapsed());
    assert!(died.elapsed() < SESSION + SETTLED_MAX, "it took {:?}", died.elapsed());
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_nothing_is_left_for_is_well_and_takes_over_from_one_that_leaves() {
    let backend = Kafka::start().await;
    let bus = backend.connect(options());
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut members: Vec<_> =
        (0..12).map(|who| Consumer::start(&bus, By { who, tell: tell.clone() })).collect();
    while round(&backend, &bus, &mut told).await.len() < 12 {}
    let waiting = Consumer::start(&bus, By { who: 12, tell });
    let well = async || waiting.status.idle_for().is_some_and(|idle| idle < Duration::from_secs(3));
    testkit::wait_until("it comes round without a partition", SOON, well).await;
    assert_eq!(waiting.status.last_error(), None);
    members.remove(0).stop().await;
    while !round(&backend, &bus, &mut told).await.contains(&12) {}
    waiting.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_without_such_groups_is_told_apart_and_serves_classic_ones() {
    let broker = Private::start_with("group.coordinator.rebalance.protocols=classic\n").await;
    let backend = Kafka::on(&broker.address).await;
    let bus = backend.connect(options());
    let (relay, _) = Relay::start(&bus);
    let refused = Consumer::start(&bus, Tell::new().0);
    let says = async || refused.status.last_error().is_some_and(|error| error.contains("group_protocol"));
    testkit::wait_until("the consumer says what to do", SOON, says).await;
    refused.stop().await;

    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&backend.connect(with(GroupProtocol::Classic)), handler);
    send(&backend, &bus, vec![NewEvent::about(TOPIC, &envelope())]).await;
    told.next(1).await;
    consumer.stop().await;
    relay.stop().await;
}
