//! Commits, and what becomes of them.
//!
//! librdkafka tells only those how a commit went who wait for it, unless a callback is set that rdkafka never sets: a
//! commit that nobody waits for is answered by nothing. The member's thread has to poll, so another one waits.

use std::{
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
};

use rdkafka::{
    TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
};

use super::context::MemberContext;

/// Commits in the order of asking, one after the other. Each answer becomes an event of the member.
pub(super) struct Committer(Sender<TopicPartitionList>);

impl Committer {
    pub(super) fn start(name: &str, consumer: &Arc<BaseConsumer<MemberContext>>) -> std::io::Result<Self> {
        let (ask, asked) = channel::<TopicPartitionList>();
        let context = Arc::clone(consumer.context());
        // The member's thread is to be the one that closes the consumer, unless it ends amid a commit.
        let consumer = Arc::downgrade(consumer);
        thread::Builder::new().name(format!("commits {name}")).spawn(move || {
            for list in asked {
                let Some(consumer) = consumer.upgrade() else { return };
                let result = consumer.commit(&list, CommitMode::Sync);
                drop(consumer);
                context.committed(result);
            }
        })?;
        Ok(Self(ask))
    }

    /// False when there is no thread any more.
    pub(super) fn ask(&self, list: TopicPartitionList) -> bool {
        self.0.send(list).is_ok()
    }
}
