//! What a member has in every state: its client, what it owns, and what is to be committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

use domain::complaints::Complaints;
use outbox::Topic;
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, KafkaResult},
    message::BorrowedMessage,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    KafkaBus, KafkaFault,
    client::{self, Voice},
    context::{Event, MemberContext},
    progress::{Commits, Epoch, Offsets, Owned},
};
use crate::{BusOptions, ConsumerStatus, Message, Place};

/// A member that has not been a steady one for this long is built anew.
const UNSTEADY_MAX: Duration = Duration::from_secs(20);

static COMMITS: Complaints = Complaints::new();
static FETCHES: Complaints = Complaints::new();

/// The way to the handler and back.
pub(super) struct Link {
    pub(super) hand_out: mpsc::Sender<Vec<Message>>,
    /// What is done of the batch that was handed out.
    pub(super) done: Receiver<Offsets>,
    pub(super) shutdown: CancellationToken,
}

/// What a member has in every state.
pub(super) struct Seat {
    pub(super) consumer: BaseConsumer<MemberContext>,
    pub(super) topic: Topic,
    pub(super) topic_name: String,
    pub(super) options: BusOptions,
    pub(super) status: ConsumerStatus,
    pub(super) link: Link,
    pub(super) owned: Owned,
    /// Under which ownerships the batch under way was handed out.
    pub(super) under_way: Option<BTreeMap<i32, Epoch>>,
    pub(super) commits: Commits,
    pub(super) last_steady: Instant,
}

impl Seat {
    /// Joins the group of a topic.
    pub(super) fn take(
        bus: &KafkaBus,
        topic: Topic,
        status: ConsumerStatus,
        link: Link,
    ) -> Result<Self, KafkaFault> {
        let options = bus.options.clone();
        let millis = |duration: Duration| duration.as_millis().to_string();
        let context = MemberContext::new(Voice::new(status.clone()));
        let consumer: BaseConsumer<MemberContext> = client::config(&bus.address)
            .set("group.id", bus.group_name(topic))
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(options.membership.session))
            .set("heartbeat.interval.ms", millis(options.membership.session / 4))
            .set("max.poll.interval.ms", millis(options.membership.stall.max(options.membership.session)))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            // Few and small messages are wanted at once; many are not to fill the memory.
            .set("fetch.wait.max.ms", "500")
            .set("fetch.error.backoff.ms", "200")
            .set("queued.min.messages", "2000")
            .set("queued.max.messages.kbytes", "8192")
            .set("statistics.interval.ms", "1000")
            .create_with_context(context)?;
        let topic_name = bus.topic_name(topic);
        consumer.subscribe(&[&topic_name])?;
        Ok(Self {
            consumer,
            topic,
            topic_name,
            options,
            status,
            link,
            owned: Owned::default(),
            under_way: None,
            commits: Commits::default(),
            last_steady: Instant::now(),
        })
    }

    /// Takes the result of the batch under way, if it is there. False when the handler's side is gone.
    pub(super) fn collect(&mut self) -> bool {
        match self.link.done.try_recv() {
            Ok(offsets) => self.finished(offsets),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return false,
        }
        true
    }

    /// As `collect`, and waits for it.
    pub(super) fn await_done(&mut self, wait: Duration) {
        match self.link.done.recv_timeout(wait) {
            Ok(offsets) => self.finished(offsets),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    fn finished(&mut self, offsets: Offsets) {
        let epochs = self.under_way.take().unwrap_or_default();
        self.commits.want(self.owned.still(&epochs, offsets));
        self.status.came_round();
    }

    pub(super) fn commit(&mut self) {
        let Some(offsets) = self.commits.next(Instant::now()) else { return };
        let mut list = TopicPartitionList::new();
        let filled = offsets.iter().try_for_each(|(partition, offset)| {
            list.add_partition_offset(&self.topic_name, *partition, Offset::Offset(*offset))
        });
        if let Err(error) = filled.and_then(|()| self.consumer.commit(&list, CommitMode::Async)) {
            self.committed(Err(error));
        }
    }

    pub(super) fn committed(&mut self, result: KafkaResult<()>) {
        match result {
            Ok(()) => self.commits.succeeded(),
            Err(error) => {
                self.commits.failed(Instant::now());
                if let Some(silent) = COMMITS.complain(Instant::now()) {
                    tracing::warn!(silent, topic = %self.topic, %error, "a commit failed and will be repeated");
                }
            }
        }
    }

    /// Whether anything of these partitions is under way.
    pub(super) fn concerns(&self, partitions: &BTreeSet<i32>) -> bool {
        let handled = self.under_way.as_ref().is_some_and(|epochs| {
            epochs.keys().any(|partition| partitions.contains(partition) && self.owned.holds(*partition))
        });
        handled || self.commits.concerns(partitions)
    }

    pub(super) fn let_go(&mut self, partitions: &BTreeSet<i32>) {
        self.owned.lose(partitions);
        self.commits.forget(partitions);
        if let Err(error) = self.consumer.incremental_unassign(&self.list(partitions)) {
            tracing::debug!(%error, "partitions were not given back");
        }
    }

    /// Leaves, answering what the group still asks.
    pub(super) fn end(self) {
        let context = self.consumer.context();
        context.close();
        while let Some(event) = context.next() {
            let answer = match event {
                Event::Assigned(partitions) => self.consumer.incremental_assign(&self.list(&partitions)),
                Event::Revoked(partitions) | Event::Lost(partitions) => {
                    self.consumer.incremental_unassign(&self.list(&partitions))
                }
                Event::Committed(_) | Event::Group { .. } => Ok(()),
            };
            if let Err(error) = answer {
                tracing::debug!(%error, "a change of the group was not answered");
            }
        }
    }

    pub(super) fn list(&self, partitions: &BTreeSet<i32>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(&self.topic_name, *partition);
        }
        list
    }

    pub(super) fn pause(&self, partitions: &BTreeSet<i32>) {
        if let Err(error) = self.consumer.pause(&self.list(partitions)) {
            tracing::debug!(%error, "partitions were not paused");
        }
    }

    pub(super) fn resume(&self, partitions: &BTreeSet<i32>) {
        if let Err(error) = self.consumer.resume(&self.list(partitions)) {
            tracing::debug!(%error, "partitions were not resumed");
        }
    }

    pub(super) fn read(&self, message: &BorrowedMessage<'_>) -> Message {
        Message {
            topic: self.topic,
            place: Place { partition: message.partition(), offset: message.offset() },
            key: message.key().unwrap_or_default().to_vec(),
            payload: message.payload().unwrap_or_default().to_vec(),
        }
    }

    /// Whether an error is more than librdkafka mends by itself.
    pub(super) fn judge(&self, error: KafkaError) -> Option<KafkaFault> {
        use rdkafka::types::RDKafkaErrorCode as Code;
        let broken = matches!(error, KafkaError::MessageConsumptionFatal(_))
            || matches!(
                error.rdkafka_error_code(),
                Some(
                    Code::PollExceeded
                        | Code::UnknownTopicOrPartition
                        | Code::UnknownTopic
                        | Code::UnknownPartition
                        | Code::TopicAuthorizationFailed
                        | Code::GroupAuthorizationFailed
                )
            );
        if broken {
            return Some(error.into());
        }
        self.status.failed(&error);
        if let Some(silent) = FETCHES.complain(Instant::now()) {
            tracing::warn!(silent, topic = %self.topic, %error, "messages cannot be fetched");
        }
        None
    }

    /// Whether the membership is broken. Without a broker it is not: a member that was killed meanwhile would have to be
    /// missed by the group for a whole session before its successor may begin, while this one just goes on.
    pub(super) fn judge_group(
        &mut self,
        steady: bool,
        reachable: bool,
        state: String,
        idle: bool,
    ) -> Option<KafkaFault> {
        if !reachable {
            self.last_steady = Instant::now();
        }
        if steady {
            self.last_steady = Instant::now();
            if idle {
                self.status.came_round();
            }
        }
        (self.last_steady.elapsed() > UNSTEADY_MAX).then_some(KafkaFault::OutOfGroup(state))
    }
}
