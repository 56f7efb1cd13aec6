//! Handlers that fail, hang or panic: retried in place, then exactly the poisonous messages are buried.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bus::Message;
use outbox::ReplayOutcome;
use tokio::sync::Semaphore;

use super::*;

pub(crate) async fn a_shutdown_amid_retries_gives_the_batch_back(backend: impl Backend) {
    let slow = Backoff { first: Duration::from_secs(3_600), factor: 1, max: Duration::from_secs(3_600) };
    let bus = backend.connect(BusOptions { backoff: slow, ..options() });
    send(&backend, &bus, vec![with_payload("{}")]).await;
    let failed = Arc::new(Semaphore::new(0));
    let consumer = Consumer::start(&bus, {
        let failed = Arc::clone(&failed);
        Each(move |_| {
            failed.add_permits(1);
            std::future::ready(Verdict::Fail("not now"))
        })
    });
    failed.acquire().await.unwrap().forget();
    consumer.stop().await;
    assert_eq!((backend.lag(TOPIC).await, letters(&backend).await.len()), (1, 0));

    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    told.next(1).await;
    drained(&backend).await;
    consumer.stop().await;
}

pub(crate) async fn a_failure_that_passes_loses_nothing(backend: impl Backend) {
    let bus = backend.connect(options());
    let calls = Arc::new(AtomicUsize::new(0));
    let consumer = Consumer::start(&bus, {
        let calls = Arc::clone(&calls);
        Each(move |_| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            std::future::ready(if call < 3 { Verdict::Fail("not yet") } else { Verdict::Done })
        })
    });
    send(&backend, &bus, vec![with_payload("{}")]).await;
    drained(&backend).await;
    assert_eq!((calls.load(Ordering::SeqCst), letters(&backend).await.len()), (4, 0));
    consumer.stop().await;
}

pub(crate) async fn a_message_that_always_fails_is_buried_after_three_retries(backend: impl Backend) {
    let bus = backend.connect(options());
    let calls = Arc::new(AtomicUsize::new(0));
    let consumer = Consumer::start(&bus, {
        let calls = Arc::clone(&calls);
        Each(move |message: Message| {
            let poison = message.payload == b"poison";
            calls.fetch_add(usize::from(poison), Ordering::SeqCst);
            std::future::ready(if poison { Verdict::Fail("it is poison") } else { Verdict::Done })
        })
    });
    send(&backend, &bus, vec![with_payload("poison")]).await;
    drained(&backend).await;
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    let buried = letters(&backend).await;
    assert_eq!(buried.iter().map(|letter| letter.reason.as_str()).collect::<Vec<_>>(), ["it is poison"]);

    send(&backend, &bus, vec![with_payload("good")]).await;
    drained(&backend).await;
    assert_eq!(letters(&backend).await.len(), 1);
    consumer.stop().await;
}

/// Case C35: one bad record stops nothing.
pub(crate) async fn bad_records_are_buried_and_replayed_once(backend: impl Backend) {
    let bus = backend.connect(options());
    let known = [envelope(), envelope()];
    let unknown = envelope();
    let panics = envelope();
    let fixed = Arc::new(AtomicUsize::new(0));
    let applied = Arc::new(Mutex::new(Vec::new()));
    let consumer = Consumer::start(&bus, {
        let (fixed, applied) = (Arc::clone(&fixed), Arc::clone(&applied));
        let (known, panics) = (known.clone(), panics.clone());
        Each(move |message: Message| {
            let verdict = match message.envelope() {
                Err(_) => Verdict::Reject("not readable"),
                Ok(envelope) if envelope == panics && fixed.load(Ordering::SeqCst) == 0 => panic!("a bug"),
                Ok(envelope) if envelope == panics || known.contains(&envelope) => {
                    applied.lock().unwrap().push(envelope);
                    Verdict::Done
                }
                Ok(_) => Verdict::Reject("no such task"),
            };
            std::future::ready(verdict)
        })
    });
    let payloads = [
        known[0].to_json(),
        "not JSON".to_owned(),
        r#"{"format":2,"subject":"x"}"#.to_owned(),
        unknown.to_json(),
        panics.to_json(),
        known[1].to_json(),
    ];
    send(&backend, &bus, payloads.iter().map(|payload| with_payload(payload)).collect()).await;
    drained(&backend).await;

    let seen = || {
        let mut ids: Vec<_> = applied.lock().unwrap().iter().map(|envelope| envelope.event_id).collect();
        // A failing neighbour may bring a good message in again; that is harmless.
        ids.sort();
        ids.dedup();
        ids
    };
    assert_eq!(seen(), [known[0].event_id, known[1].event_id]);
    let buried = letters(&backend).await;
    let mut found: Vec<_> = buried.iter().map(|l| (l.payload.clone(), l.reason.as_str())).collect();
    found.sort();
    let reasons = [
        (&payloads[1], "not readable"),
        (&payloads[2], "not readable"),
        (&payloads[3], "no such task"),
        (&payloads[4], "the handler panicked: a bug"),
    ];
    let mut expected: Vec<_> =
        reasons.map(|(payload, reason)| (payload.clone().into_bytes(), reason)).to_vec();
    expected.sort();
    assert_eq!(found, expected, "the others, with their bytes and the reason");
    let mut places: Vec<_> = buried.iter().map(|letter| (letter.partition, letter.offset)).collect();
    places.dedup();
    assert_eq!(places.len(), 4, "each from a place of its own");

    fixed.store(1, Ordering::SeqCst);
    let letter = buried.iter().find(|letter| letter.payload == payloads[4].as_bytes()).unwrap().id;
    let replay = || async {
        let outcome =
            pg::transact(backend.pool(), move |conn| Box::pin(outbox::replay(conn, letter))).await.unwrap();
        bus.nudge(TOPIC);
        outcome
    };
    assert_eq!(replay().await, ReplayOutcome::Replayed);
    assert!(matches!(replay().await, ReplayOutcome::Already { .. }));
    testkit::wait_until("the replayed message is applied", SOON, || async { seen().len() == 3 }).await;
    drained(&backend).await;
    assert_eq!(letters(&backend).await.len(), 4);
    consumer.stop().await;
}

pub(crate) async fn a_hanging_handler_does_not_stop_the_queue(backend: impl Backend) {
    let bus = backend.connect(BusOptions { handler_limit: Duration::from_millis(100), ..options() });
    let consumer = Consumer::start(
        &bus,
        Each(|message: Message| async move {
            if message.payload == b"hang" {
                std::future::pending::<()>().await;
            }
            Verdict::Done
        }),
    );
    send(&backend, &bus, vec![with_payload("good"), with_payload("hang"), with_payload("good")]).await;
    drained(&backend).await;
    let buried = letters(&backend).await;
    assert_eq!(buried.iter().map(|letter| letter.payload.as_slice()).collect::<Vec<_>>(), [b"hang"]);
    consumer.stop().await;
}
