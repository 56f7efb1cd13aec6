//! Case C35 as Kafka has it: records of every bad kind in one partition, with their offsets.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bus::Message;
use outbox::ReplayOutcome;
use rdkafka::producer::FutureRecord;

use super::*;
use crate::conformance::{Consumer, Each, TOPIC, Verdict, drained, envelope, letters};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_records_of_a_partition_are_buried_with_their_offsets_and_replayed_once() {
    let backend = Kafka::start().await;
    let (good, unknown, panics, last) = (envelope(), envelope(), envelope(), envelope());
    let records: [Option<Vec<u8>>; 7] = [
        Some(good.to_json().into_bytes()),
        Some(vec![0xff, 0x00, 0xfe]),
        Some(br#"{"format":2,"subject":"x"}"#.to_vec()),
        None,
        Some(unknown.to_json().into_bytes()),
        Some(panics.to_json().into_bytes()),
        Some(last.to_json().into_bytes()),
    ];
    let producer = backend.producer();
    let (topic, key) = (backend.topic(TOPIC), panics.task_id.as_uuid());
    for payload in &records {
        let mut record: FutureRecord<'_, [u8], Vec<u8>> =
            FutureRecord::to(&topic).partition(3).key(key.as_bytes());
        record.payload = payload.as_ref();
        producer.send(record, SOON).await.unwrap();
    }

    let fixed = Arc::new(AtomicBool::new(false));
    let applied = Arc::new(Mutex::new(Vec::new()));
    let bus = backend.connect(options());
    let consumer = Consumer::start(&bus, {
        let (fixed, applied, unknown, panics) =
            (Arc::clone(&fixed), Arc::clone(&applied), unknown.clone(), panics.clone());
        Each(move |message: Message| {
            std::future::ready(match message.envelope() {
                Err(_) => Verdict::Reject("not readable"),
                Ok(found) if found == unknown => Verdict::Reject("no such task"),
                Ok(found) if found == panics && !fixed.load(Ordering::SeqCst) => panic!("a bug"),
                Ok(found) => {
                    applied.lock().unwrap().push(found.event_id);
                    Verdict::Done
                }
            })
        })
    });
    drained(&backend).await;

    let applied = || {
        let mut ids = applied.lock().unwrap().clone();
        // Its neighbour's panic may bring a good record in again.
        ids.sort();
        ids.dedup();
        ids
    };
    assert_eq!(applied(), [good.event_id, last.event_id]);
    let buried = letters(&backend).await;
    let mut found: Vec<_> =
        buried.iter().map(|l| (l.partition, l.offset, l.payload.as_slice(), l.reason.as_str())).collect();
    found.sort_unstable();
    let expect = |offset: usize, reason| {
        (3, i64::try_from(offset).unwrap(), records[offset].as_deref().unwrap_or_default(), reason)
    };
    let expected = [
        expect(1, "not readable"),
        expect(2, "not readable"),
        expect(3, "not readable"),
        expect(4, "no such task"),
        expect(5, "the handler panicked: a bug"),
    ];
    assert_eq!(found, expected);

    fixed.store(true, Ordering::SeqCst);
    let letter = buried.iter().find(|letter| letter.offset == 5).unwrap().id;
    let replay = || pg::transact(backend.pool(), move |conn| Box::pin(outbox::replay(conn, letter)));
    assert_eq!(replay().await.unwrap(), ReplayOutcome::Replayed);
    assert!(matches!(replay().await.unwrap(), ReplayOutcome::Already { .. }));
    testkit::wait_until("the replayed record is applied", SOON, || async { applied().len() == 3 }).await;
    drained(&backend).await;
    assert_eq!(letters(&backend).await.len(), 5);
    consumer.stop().await;
}
