//! Making the topics, by whoever comes first.

use std::time::Duration;

use outbox::{SHARDS, Topic};
use rdkafka::{
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    types::RDKafkaErrorCode,
};

use super::{KafkaBus, KafkaFault, client};
use crate::ConsumerStatus;

/// How long the broker may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Makes the topics that are missing, each with as many partitions as the outbox has shards. How often they are
/// replicated is the cluster's own default.
pub(super) async fn ensure(bus: &KafkaBus, status: &ConsumerStatus) -> Result<(), KafkaFault> {
    let admin: AdminClient<client::Voice> =
        client::config(&bus.address).create_with_context(client::Voice::new(status.clone()))?;
    let names: Vec<String> = Topic::ALL.iter().map(|topic| bus.topic_name(*topic)).collect();
    let topics: Vec<NewTopic<'_>> = names
        .iter()
        .map(|name| NewTopic::new(name, i32::from(SHARDS), TopicReplication::Fixed(-1)))
        .collect();
    let options =
        AdminOptions::new().request_timeout(Some(ANSWER_LIMIT)).operation_timeout(Some(ANSWER_LIMIT));
    let made = admin.create_topics(&topics, &options).await;
    // Its thread is joined, which may take a moment.
    tokio::task::spawn_blocking(move || drop(admin));
    for result in made? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => return Err(KafkaFault::Topic { topic, code }),
        }
    }
    Ok(())
}
