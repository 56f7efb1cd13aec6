//! What librdkafka tells a member while it is polled.
//!
//! A change of the group is only noted here and answered by the member when it is ready, which is the whole point:
//! the callback could not wait for a batch under way without standing still itself.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rdkafka::{
    ClientContext, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
    types::RDKafkaRespErr,
};

use super::client::Voice;

/// What has happened to a member.
pub(super) enum Event {
    /// These partitions become ours once we say so.
    Assigned(BTreeSet<i32>),
    /// These partitions stay ours until we say so.
    Revoked(BTreeSet<i32>),
    /// These partitions are somebody else's already.
    Lost(BTreeSet<i32>),
    /// The answer to the commit under way.
    Committed(KafkaResult<()>),
    /// The state of the membership, once a second.
    Group {
        /// Whether we are in the group, with an assignment, and its coordinator answers.
        steady: bool,
        /// Whether any broker is connected.
        reachable: bool,
        /// In librdkafka's words.
        state: String,
    },
}

pub(super) struct MemberContext {
    voice: Voice,
    events: Mutex<VecDeque<Event>>,
    closing: AtomicBool,
}

impl MemberContext {
    pub(super) fn new(voice: Voice) -> Self {
        Self { voice, events: Mutex::default(), closing: AtomicBool::new(false) }
    }

    pub(super) fn next(&self) -> Option<Event> {
        self.events().pop_front()
    }

    /// From now on changes of the group are answered at once: nobody takes events any more.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.voice.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.voice.error(error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let Some(group) = statistics.cgrp else { return };
        let steady = group.state == "up" && group.join_state == "steady";
        let state = format!("{}, {}", group.state, group.join_state);
        let reachable =
            statistics.brokers.values().any(|broker| matches!(broker.state.as_str(), "UP" | "UPDATE"));
        self.events().push_back(Event::Group { steady, reachable, state });
    }
}

impl ConsumerContext for MemberContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let partitions = list.elements().iter().map(|element| element.partition()).collect();
        let assigned = matches!(what, RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS);
        if self.closing.load(Ordering::SeqCst) {
            // Nothing of a new assignment would be read; an empty answer is one too.
            let answer = if assigned {
                consumer.incremental_assign(list)
            } else {
                consumer.incremental_unassign(list)
            };
            if let Err(error) = answer {
                tracing::debug!(%error, "a change of the group was not answered");
            }
            return;
        }
        self.events().push_back(match (assigned, consumer.assignment_lost()) {
            (true, _) => Event::Assigned(partitions),
            (false, false) => Event::Revoked(partitions),
            (false, true) => Event::Lost(partitions),
        });
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.events().push_back(Event::Committed(result));
    }
}
