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
    statistics::ConsumerGroup,
    types::RDKafkaRespErr,
};

use super::client::Voice;
use crate::GroupProtocol;

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
    Group(Group),
}

/// The state of a membership.
pub(super) struct Group {
    pub(super) standing: Standing,
    /// The partitions that messages are fetched of, or would be if there were any.
    pub(super) fetched: BTreeSet<i32>,
    pub(super) brokers: Brokers,
    /// In librdkafka's words.
    pub(super) state: String,
}

/// How a member stands with its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not in it, or its coordinator does not answer.
    Out,
    /// In it so far as the coordinator answers, and nothing was ever assigned: others have it all, or are about to
    /// give something up. The classic protocol has no such state, there an assignment of nothing is one too.
    Waiting,
    /// In it, with an assignment.
    Steady,
}

impl Standing {
    fn of(group: &ConsumerGroup, protocol: GroupProtocol) -> Self {
        match (group.state.as_str(), group.join_state.as_str(), protocol) {
            ("up", "steady", _) => Self::Steady,
            ("up", "init", GroupProtocol::Consumer) => Self::Waiting,
            _ => Self::Out,
        }
    }
}

/// Where the brokers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brokers {
    /// One is connected at least.
    There,
    /// librdkafka looks for them.
    Away,
    /// librdkafka does not look any more: it forgets brokers that metadata do not name, and a lone broker that its
    /// controller missed for a moment names nobody at all.
    Forgotten,
}

impl Brokers {
    fn of(statistics: &Statistics) -> Self {
        let brokers = statistics.brokers.values();
        // The coordinator is an entry of its own, which leads nowhere without the broker that it stands for.
        if !brokers.clone().any(|broker| matches!(broker.source.as_str(), "learned" | "configured")) {
            Self::Forgotten
        } else if brokers.clone().any(|broker| matches!(broker.state.as_str(), "UP" | "UPDATE")) {
            Self::There
        } else {
            Self::Away
        }
    }
}

pub(super) struct MemberContext {
    voice: Voice,
    protocol: GroupProtocol,
    events: Mutex<VecDeque<Event>>,
    closing: AtomicBool,
}

impl MemberContext {
    pub(super) fn new(voice: Voice, protocol: GroupProtocol) -> Self {
        Self { voice, protocol, events: Mutex::default(), closing: AtomicBool::new(false) }
    }

    pub(super) fn next(&self) -> Option<Event> {
        self.events().pop_front()
    }

    /// The answer to a commit is there.
    pub(super) fn committed(&self, result: KafkaResult<()>) {
        self.events().push_back(Event::Committed(result));
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
        let Some(group) = &statistics.cgrp else { return };
        let partitions = statistics.topics.values().flat_map(|topic| topic.partitions.values());
        self.events().push_back(Event::Group(Group {
            standing: Standing::of(group, self.protocol),
            fetched: partitions
                .filter(|partition| partition.fetch_state == "active")
                .map(|partition| partition.partition)
                .collect(),
            brokers: Brokers::of(&statistics),
            state: format!("{}, {}", group.state, group.join_state),
        }));
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
}
