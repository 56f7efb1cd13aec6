//! Several consumers of one topic.

use std::collections::HashSet;

use super::*;

pub(crate) async fn consumers_share_the_messages(backend: impl Backend) {
    let processes: Vec<_> =
        (0..3).map(|_| backend.connect(BusOptions { batch_max: 5, ..options() })).collect();
    let (handler, mut told) = Tell::new();
    let tell = handler.0;
    let consumers: Vec<_> = processes.iter().map(|bus| Consumer::start(bus, Tell(tell.clone()))).collect();
    let sent: Vec<_> = (0..300).map(|_| envelope()).collect();
    for part in sent.chunks(20) {
        send(&backend, &processes[0], part.iter().map(|sent| NewEvent::about(TOPIC, sent)).collect()).await;
    }
    let mut left: HashSet<_> = sent.iter().map(|envelope| envelope.event_id).collect();
    while !left.is_empty() {
        left.remove(&told.next(1).await[0].envelope().unwrap().event_id);
    }
    drained(&backend).await;
    for consumer in consumers {
        consumer.stop().await;
    }
    assert_eq!(letters(&backend).await, []);
}
