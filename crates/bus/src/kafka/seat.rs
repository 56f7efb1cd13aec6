//! What a member has in every state: its client, what it owns, and what is to be committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use domain::complaints::Complaints;
use outbox::Topic;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
    message::BorrowedMessage,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    KafkaBus, KafkaFault,
    client::{self, Voice},
    committer::Committer,
    context::{Brokers, Event, Group, MemberContext, Standing},
    progress::{Commits, Epoch, Offsets, Owned},
};
use crate::{BusOptions, ConsumerStatus, GroupProtocol, MembershipOptions, Message, Place};

/// A member that has not been a steady one for this long is built anew.
const UNSTEADY_MAX: Duration = Duration::from_secs(20);
/// A member that the group leaves without partitions for this long is one in waiting, and well.
const WAITING_MIN: Duration = Duration::from_secs(3);

/// The longest pause between two heartbeats of a classic member.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);

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
    pub(super) consumer: Arc<BaseConsumer<MemberContext>>,
    committer: Committer,
    pub(super) topic: Topic,
    pub(super) topic_name: String,
    pub(super) options: BusOptions,
    pub(super) status: ConsumerStatus,
    pub(super) link: Link,
    pub(super) owned: Owned,
    /// Under which ownerships the batch under way was handed out.
    pub(super) under_way: Option<BTreeMap<i32, Epoch>>,
    pub(super) commits: Commits,
    last_steady: Instant,
    taken: Instant,
    /// Whether what we had was given to others without our leave, and nothing since to us.
    bereft: bool,
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
        let context = MemberContext::new(Voice::new(status.clone()), options.membership.protocol);
        let consumer: BaseConsumer<MemberContext> =
            membership(client::config(&bus.address), &options.membership)
                .set("group.id", bus.group_name(topic))
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
        let consumer = Arc::new(consumer);
        Ok(Self {
            committer: Committer::start(topic.as_str(), &consumer).map_err(|_| KafkaFault::Thread)?,
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
            taken: Instant::now(),
            bereft: false,
        })
    }

    /// Takes partitions that the group gives.
    pub(super) fn gain(&mut self, partitions: &BTreeSet<i32>, paused: bool) -> KafkaResult<()> {
        self.consumer.incremental_assign(&self.list(partitions))?;
        // Partitions that were paused when they left come back as they went.
        if paused {
            self.pause(partitions)
        } else {
            self.resume(partitions)
        }
        tracing::info!(topic = %self.topic, ?partitions, "partitions gained");
        self.owned.gain(partitions);
        self.bereft = false;
        Ok(())
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
        match filled {
            Ok(()) if self.committer.ask(list) => {}
            Ok(()) => self.committed(Err(KafkaError::Canceled)),
            Err(error) => self.committed(Err(error)),
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

    /// Notes that partitions are somebody else's already: whatever is still done for them counts for nothing.
    pub(super) fn lose(&mut self, partitions: &BTreeSet<i32>) {
        self.owned.lose(partitions);
        self.commits.forget(partitions);
        self.bereft = true;
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
                Event::Committed(_) | Event::Group(_) => Ok(()),
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
        let unknown =
            matches!(error.rdkafka_error_code(), Some(Code::UnsupportedFeature | Code::UnsupportedVersion));
        if broken && unknown && self.options.membership.protocol == GroupProtocol::Consumer {
            return Some(KafkaFault::GroupProtocol);
        }
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
    pub(super) fn judge_group(&mut self, group: Group, idle: bool) -> Option<KafkaFault> {
        let Group { standing, fetched, brokers, state } = group;
        if brokers == Brokers::Forgotten {
            return Some(KafkaFault::Forgotten);
        }
        let well = match standing {
            Standing::Out => false,
            Standing::Waiting => {
                self.owned.all().is_empty() && !self.bereft && self.taken.elapsed() > WAITING_MIN
            }
            // What is owned and not fetched, whatever the reason, would wait for ever.
            Standing::Steady => self.owned.all().is_subset(&fetched),
        };
        if well || brokers == Brokers::Away {
            self.last_steady = Instant::now();
        }
        if well && idle {
            self.status.came_round();
        }
        (self.last_steady.elapsed() > UNSTEADY_MAX).then(|| KafkaFault::OutOfGroup(state))
    }
}

/// How a membership is kept, in librdkafka's words.
fn membership(mut config: ClientConfig, options: &MembershipOptions) -> ClientConfig {
    let MembershipOptions { protocol, session, stall, .. } = *options;
    let millis = |duration: Duration| duration.as_millis().to_string();
    config.set("group.protocol", protocol.name()).set("max.poll.interval.ms", millis(stall.max(session)));
    if protocol == GroupProtocol::Classic {
        config
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(session))
            // Each step of a change waits for everybody's next heartbeat.
            .set("heartbeat.interval.ms", millis(HEARTBEAT_MAX.min(session / 4)));
    }
    config
}
