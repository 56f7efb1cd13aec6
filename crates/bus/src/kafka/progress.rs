//! How far a member has come: which partitions it owns, and which offsets are to be committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::Message;

/// The pause after a commit that failed.
const COMMIT_AGAIN: Duration = Duration::from_millis(500);

/// By partition, the offset after the last message that is done: what a commit says.
pub(super) type Offsets = BTreeMap<i32, i64>;

/// The offsets after the messages that are done. Behind one that is not done, nothing of its partition counts.
pub(super) fn done(batch: &[Message], undone: &[usize]) -> Offsets {
    let mut offsets = Offsets::new();
    let mut stuck = BTreeSet::new();
    for (index, message) in batch.iter().enumerate() {
        let partition = message.place.partition;
        if undone.contains(&index) {
            stuck.insert(partition);
        } else if !stuck.contains(&partition) {
            offsets.insert(partition, message.place.offset + 1);
        }
    }
    offsets
}

/// Tells one ownership of a partition from a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch(u64);

/// The partitions that are ours.
#[derive(Debug, Default)]
pub(super) struct Owned {
    partitions: BTreeMap<i32, Epoch>,
    epoch: u64,
}

impl Owned {
    pub(super) fn gain(&mut self, partitions: &BTreeSet<i32>) {
        self.epoch += 1;
        self.partitions.extend(partitions.iter().map(|partition| (*partition, Epoch(self.epoch))));
    }

    pub(super) fn lose(&mut self, partitions: &BTreeSet<i32>) {
        self.partitions.retain(|partition, _| !partitions.contains(partition));
    }

    pub(super) fn holds(&self, partition: i32) -> bool {
        self.partitions.contains_key(&partition)
    }

    pub(super) fn all(&self) -> BTreeSet<i32> {
        self.partitions.keys().copied().collect()
    }

    /// Under which ownership a batch is handled.
    pub(super) fn epochs(&self, batch: &[Message]) -> BTreeMap<i32, Epoch> {
        let partitions: BTreeSet<i32> = batch.iter().map(|message| message.place.partition).collect();
        let mut epochs = self.partitions.clone();
        epochs.retain(|partition, _| partitions.contains(partition));
        epochs
    }

    /// What of `offsets` may be committed: partitions that have been ours ever since.
    pub(super) fn still(&self, epochs: &BTreeMap<i32, Epoch>, mut offsets: Offsets) -> Offsets {
        offsets.retain(|partition, _| {
            epochs.get(partition).is_some_and(|epoch| self.partitions.get(partition) == Some(epoch))
        });
        offsets
    }
}

/// Commits: one under way at a time, the next one covers whatever was done meanwhile.
#[derive(Debug, Default)]
pub(super) struct Commits {
    wanted: Offsets,
    under_way: Option<Offsets>,
    not_before: Option<Instant>,
}

impl Commits {
    pub(super) fn want(&mut self, offsets: Offsets) {
        self.wanted.extend(offsets);
    }

    /// What to commit now, if anything.
    pub(super) fn next(&mut self, now: Instant) -> Option<Offsets> {
        if self.under_way.is_some() || self.not_before.is_some_and(|at| now < at) || self.wanted.is_empty() {
            return None;
        }
        self.under_way = Some(self.wanted.clone());
        Some(self.wanted.clone())
    }

    pub(super) fn succeeded(&mut self) {
        let Some(committed) = self.under_way.take() else { return };
        self.wanted.retain(|partition, offset| committed.get(partition) != Some(offset));
        self.not_before = None;
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.under_way = None;
        self.not_before = Some(now + COMMIT_AGAIN);
    }

    /// Partitions that are no longer ours are committed by nobody here.
    pub(super) fn forget(&mut self, partitions: &BTreeSet<i32>) {
        self.wanted.retain(|partition, _| !partitions.contains(partition));
    }

    /// Whether something of these partitions waits for a commit or its answer.
    pub(super) fn concerns(&self, partitions: &BTreeSet<i32>) -> bool {
        self.wanted.keys().any(|partition| partitions.contains(partition))
    }
}

#[cfg(test)]
mod tests {
    use outbox::Topic;

    use super::*;
    use crate::Place;

    fn batch(places: &[(i32, i64)]) -> Vec<Message> {
        let message = |(partition, offset): &(i32, i64)| Message {
            topic: Topic::GenerationRequested,
            place: Place { partition: *partition, offset: *offset },
            key: Vec::new(),
            payload: Vec::new(),
        };
        places.iter().map(message).collect()
    }

    fn set(partitions: &[i32]) -> BTreeSet<i32> {
        partitions.iter().copied().collect()
    }

    #[test]
    fn nothing_behind_an_undone_message_is_committed() {
        let batch = batch(&[(0, 5), (1, 9), (0, 6), (1, 10), (0, 7)]);
        assert_eq!(done(&batch, &[]), Offsets::from([(0, 8), (1, 11)]));
        assert_eq!(done(&batch, &[2]), Offsets::from([(0, 6), (1, 11)]));
        assert_eq!(done(&batch, &[0, 1]), Offsets::new());
    }

    #[test]
    fn work_of_an_earlier_ownership_is_not_committed() {
        let mut owned = Owned::default();
        owned.gain(&set(&[0, 1, 2]));
        let epochs = owned.epochs(&batch(&[(0, 1), (1, 1)]));
        let offsets = Offsets::from([(0, 2), (1, 2)]);
        assert_eq!(owned.still(&epochs, offsets.clone()), offsets);
        owned.lose(&set(&[1]));
        assert_eq!(owned.still(&epochs, offsets.clone()), Offsets::from([(0, 2)]));
        owned.gain(&set(&[1]));
        assert_eq!(
            owned.still(&epochs, offsets),
            Offsets::from([(0, 2)]),
            "it was somebody else's meanwhile"
        );
        assert!(owned.holds(1) && owned.all() == set(&[0, 1, 2]));
    }

    #[test]
    fn a_commit_covers_what_was_done_until_it_is_sent_and_is_repeated_when_it_fails() {
        let (mut commits, now) = (Commits::default(), Instant::now());
        assert_eq!(commits.next(now), None);
        commits.want(Offsets::from([(0, 1)]));
        assert_eq!(commits.next(now), Some(Offsets::from([(0, 1)])));
        commits.want(Offsets::from([(0, 2), (1, 7)]));
        assert_eq!(commits.next(now), None, "one at a time");
        commits.succeeded();
        assert!(commits.concerns(&set(&[0])), "the newer offset is not committed yet");
        assert_eq!(commits.next(now), Some(Offsets::from([(0, 2), (1, 7)])));
        commits.failed(now);
        assert_eq!(commits.next(now), None, "not at once");
        commits.forget(&set(&[1]));
        assert_eq!(commits.next(now + COMMIT_AGAIN), Some(Offsets::from([(0, 2)])));
        commits.succeeded();
        assert!(!commits.concerns(&set(&[0, 1])));
    }
}
