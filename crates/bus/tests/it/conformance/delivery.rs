//! Messages arrive, whole, and are acknowledged after they were handled.

use std::sync::Arc;

use domain::TaskId;
use tokio::sync::Semaphore;

use super::*;

pub(crate) async fn a_message_arrives_with_its_topic_key_and_payload(backend: impl Backend) {
    let bus = backend.connect(options());
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    let sent = Envelope::new(TaskId::generate(), 7, Some("00-ab-cd-01".to_owned()));
    let elsewhere = NewEvent::about(Topic::KeyAccess, &envelope());
    send(&backend, &bus, vec![elsewhere, NewEvent::about(TOPIC, &sent)]).await;

    let message = told.next(1).await.remove(0);
    assert_eq!(message.envelope().unwrap(), sent);
    assert_eq!((message.topic, message.key), (TOPIC, sent.task_id.as_uuid().as_bytes().to_vec()));
    drained(&backend).await;
    assert_eq!(backend.lag(Topic::KeyAccess).await, 1, "nobody consumes that topic");
    testkit::wait_until("the consumer comes round", SOON, || async { consumer.status.idle_for().is_some() })
        .await;
    consumer.stop().await;
    assert!(told.is_empty(), "each once, when nothing goes wrong");
}

pub(crate) async fn messages_of_one_key_usually_arrive_in_order(backend: impl Backend) {
    let bus = backend.connect(BusOptions { batch_max: 3, ..options() });
    let task = TaskId::generate();
    let sent: Vec<_> = (1..=20).map(|version| Envelope::new(task, version, None)).collect();
    send(&backend, &bus, sent.iter().map(|envelope| NewEvent::about(TOPIC, envelope)).collect()).await;
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    let versions: Vec<i32> =
        told.next(20).await.iter().map(|message| message.envelope().unwrap().version).collect();
    assert_eq!(versions, (1..=20).collect::<Vec<_>>());
    consumer.stop().await;
}

pub(crate) async fn a_message_is_acknowledged_after_its_handler_and_not_before(backend: impl Backend) {
    let bus = backend.connect(options());
    let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let consumer = Consumer::start(&bus, {
        let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
        Each(move |_| {
            let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
            async move {
                entered.add_permits(1);
                leave.acquire().await.unwrap().forget();
                Verdict::Done
            }
        })
    });
    send(&backend, &bus, vec![with_payload("{}")]).await;
    entered.acquire().await.unwrap().forget();
    assert_eq!(backend.lag(TOPIC).await, 1);
    leave.add_permits(1);
    drained(&backend).await;
    consumer.stop().await;
}

pub(crate) async fn what_was_committed_while_nobody_listened_arrives(backend: impl Backend) {
    let before = backend.connect(options());
    send(&backend, &before, (0..600).map(|_| with_payload("{}")).collect()).await;
    drop(before);
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&backend.connect(options()), handler);
    told.next(600).await;
    drained(&backend).await;
    consumer.stop().await;
    assert!(told.is_empty());
}

pub(crate) async fn a_message_of_a_killed_consumer_comes_again(backend: impl Backend) {
    let short = BusOptions { visible_for: Duration::from_millis(500), ..options() };
    let bus = backend.connect(short.clone());
    let entered = Arc::new(Semaphore::new(0));
    let consumer = Consumer::start(&bus, {
        let entered = Arc::clone(&entered);
        Each(move |_| {
            entered.add_permits(1);
            std::future::pending::<Verdict>()
        })
    });
    let sent = with_payload(r#"{"once":"more"}"#);
    send(&backend, &bus, vec![sent.clone()]).await;
    entered.acquire().await.unwrap().forget();
    consumer.kill().await;

    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&backend.connect(short), handler);
    assert_eq!(told.next(1).await[0].payload, sent.payload.as_bytes());
    drained(&backend).await;
    consumer.stop().await;
}

pub(crate) async fn a_shutdown_finishes_the_batch_in_hand(backend: impl Backend) {
    let bus = backend.connect(BusOptions { batch_max: 2, ..options() });
    send(&backend, &bus, (0..5).map(|_| with_payload("{}")).collect()).await;
    let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let consumer = Consumer::start(&bus, {
        let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
        Each(move |_| {
            let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
            async move {
                entered.add_permits(1);
                leave.acquire().await.unwrap().forget();
                Verdict::Done
            }
        })
    });
    entered.acquire().await.unwrap().forget();
    consumer.ask_to_stop();
    leave.add_permits(100);
    consumer.stop().await;
    // At most the batch in hand (a broker's batches may be smaller), and nothing is lost.
    let left = backend.lag(TOPIC).await;
    assert!((3..=4).contains(&left), "{left} left");

    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    told.next(usize::try_from(left).unwrap()).await;
    drained(&backend).await;
    consumer.stop().await;
}
