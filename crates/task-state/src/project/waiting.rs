//! What waits to be told to Redis: of each task the latest version.
//!
//! Versions in between are left out, which nobody misses, since readers want the latest and streams read what they told
//! last from PostgreSQL. A task rests in some states only for a moment: it is claimed until its provider has it, and saved
//! once its video is there. Such a version waits that moment for the one after it, and two become one. The readers of this
//! process see it at once: they look here before they ask Redis. Streams hear of it through Redis, when it goes.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use domain::{TaskId, TaskStatus, task::TaskSnapshot};
use tokio::time::Instant;

/// Tasks that may wait; those of more are dropped.
pub(super) const WAITING_MAX: usize = 4_096;
/// Taken together.
pub(super) const BATCH_MAX: usize = 128;
/// How long a version waits for the one after it. Nobody who watches sees a tenth of a second.
const MOMENT: Duration = Duration::from_millis(100);

/// A queue of `T`, one for each task at most.
pub(super) struct Waiting<T> {
    latest: HashMap<TaskId, Version<T>>,
    /// Tasks whose version may go.
    ready: VecDeque<TaskId>,
    /// Tasks whose version waits for another, and until when, in that order. Some have gone since.
    resting: VecDeque<(Instant, TaskId)>,
    /// What was taken and has not arrived yet.
    going: HashMap<TaskId, (i32, T)>,
    closed: bool,
}

struct Version<T> {
    number: i32,
    rests: bool,
    what: T,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            latest: HashMap::new(),
            ready: VecDeque::new(),
            resting: VecDeque::new(),
            going: HashMap::new(),
            closed: false,
        }
    }
}

impl<T: Clone> Waiting<T> {
    /// Adds a version; one that `passes` waits a moment for the next.
    pub(super) fn put(&mut self, task: TaskId, number: i32, passes: bool, what: T, now: Instant) {
        let rests = passes && self.resting.len() < WAITING_MAX;
        if let Some(present) = self.latest.get_mut(&task) {
            if present.number > number {
                return;
            }
            let wakes = present.rests && !rests;
            *present = Version { number, rests: present.rests && rests, what };
            if wakes {
                self.ready.push_back(task);
            }
        } else if self.latest.len() < WAITING_MAX {
            self.latest.insert(task, Version { number, rests, what });
            if rests {
                self.resting.push_back((now + MOMENT, task));
            } else {
                self.ready.push_back(task);
            }
        } else {
            tracing::debug!(%task, "a projection was dropped: too many wait for Redis");
        }
    }

    /// What may go by now, at most a batch of it.
    pub(super) fn take(&mut self, now: Instant) -> Vec<T> {
        while let Some((due, task)) = self.resting.front().copied()
            && (due <= now || self.closed)
        {
            self.resting.pop_front();
            if let Some(version) = self.latest.get_mut(&task).filter(|version| version.rests) {
                version.rests = false;
                self.ready.push_back(task);
            }
        }
        let count = self.ready.len().min(BATCH_MAX);
        let mut taken = Vec::with_capacity(count);
        for task in self.ready.drain(..count) {
            if let Some(version) = self.latest.remove(&task) {
                self.going.insert(task, (version.number, version.what.clone()));
                taken.push(version.what);
            }
        }
        taken
    }

    /// This version has arrived, or is given up.
    pub(super) fn arrived(&mut self, task: TaskId, number: i32) {
        if self.going.get(&task).is_some_and(|(going, _)| *going <= number) {
            self.going.remove(&task);
        }
    }

    /// Somebody has written this version: what is older needs no telling any more.
    pub(super) fn overtaken(&mut self, task: TaskId, number: i32) {
        if self.latest.get(&task).is_some_and(|version| version.number < number) {
            self.latest.remove(&task);
        }
        self.arrived(task, number - 1);
    }

    /// The latest version of a task that Redis may not have yet.
    pub(super) fn of(&self, task: TaskId) -> Option<&T> {
        self.latest
            .get(&task)
            .map(|version| &version.what)
            .or_else(|| self.going.get(&task).map(|(_, what)| what))
    }

    /// When the next that rests may go.
    pub(super) fn due(&self) -> Option<Instant> {
        self.resting.front().map(|(due, _)| *due)
    }

    /// Nothing comes any more, so nothing rests either.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }
}

/// Whether a task is in this state for a moment only, when all goes well. Who has just asked for a cancel wants to see it.
pub(super) const fn is_passing(snapshot: &TaskSnapshot) -> bool {
    match snapshot.status {
        TaskStatus::Scheduling | TaskStatus::PostProcessing => !snapshot.cancel_requested,
        TaskStatus::Queued
        | TaskStatus::Reconciling
        | TaskStatus::ProviderSubmitted
        | TaskStatus::Running
        | TaskStatus::Succeeded
        | TaskStatus::Failed
        | TaskStatus::Canceled => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a version that is told at once, or only passes.
    fn put(waiting: &mut Waiting<(TaskId, i32)>, task: TaskId, number: i32, passes: bool, now: Instant) {
        waiting.put(task, number, passes, (task, number), now);
    }

    #[test]
    fn of_each_task_the_latest_waits_in_the_order_of_the_first() {
        let (one, other, now) = (TaskId::generate(), TaskId::generate(), Instant::now());
        let mut waiting = Waiting::default();
        for (task, number) in [(one, 2), (other, 7), (one, 4), (one, 3)] {
            put(&mut waiting, task, number, false, now);
        }
        assert_eq!(waiting.take(now), [(one, 4), (other, 7)]);
        assert!(waiting.take(now).is_empty());
        put(&mut waiting, one, 5, false, now);
        put(&mut waiting, one, 4, true, now);
        assert_eq!(waiting.take(now), [(one, 5)]);
    }

    #[test]
    fn a_passing_version_waits_a_moment_for_the_next() {
        let (one, other, now) = (TaskId::generate(), TaskId::generate(), Instant::now());
        let mut waiting = Waiting::default();
        put(&mut waiting, one, 1, true, now);
        put(&mut waiting, other, 1, true, now);
        assert!(waiting.take(now).is_empty());
        assert_eq!(waiting.due(), Some(now + MOMENT));
        // The next version ends the waiting of the one; the other has waited enough.
        put(&mut waiting, one, 2, false, now);
        assert_eq!(waiting.take(now), [(one, 2)]);
        assert_eq!(waiting.take(now + MOMENT), [(other, 1)]);
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn what_waits_or_is_on_its_way_can_be_seen() {
        let (task, now) = (TaskId::generate(), Instant::now());
        let mut waiting = Waiting::default();
        put(&mut waiting, task, 1, false, now);
        assert_eq!(waiting.of(task), Some(&(task, 1)));
        waiting.take(now);
        assert_eq!(waiting.of(task), Some(&(task, 1)));
        put(&mut waiting, task, 2, true, now);
        assert_eq!(waiting.of(task), Some(&(task, 2)));
        waiting.take(now + MOMENT);
        waiting.arrived(task, 1);
        assert_eq!((waiting.of(task), waiting.of(TaskId::generate())), (Some(&(task, 2)), None));
        waiting.arrived(task, 2);
        assert_eq!(waiting.of(task), None);
    }

    #[test]
    fn what_was_overtaken_elsewhere_is_neither_seen_nor_sent() {
        let (task, now) = (TaskId::generate(), Instant::now());
        let mut waiting = Waiting::default();
        put(&mut waiting, task, 1, false, now);
        waiting.take(now);
        put(&mut waiting, task, 2, true, now);
        waiting.overtaken(task, 2);
        assert_eq!(waiting.of(task), Some(&(task, 2)));
        waiting.overtaken(task, 3);
        assert_eq!(waiting.of(task), None);
        assert!(waiting.take(now + MOMENT).is_empty());
    }

    #[test]
    fn passing_versions_in_a_row_wait_no_longer_than_the_first() {
        let (task, now) = (TaskId::generate(), Instant::now());
        let mut waiting = Waiting::default();
        put(&mut waiting, task, 1, true, now);
        put(&mut waiting, task, 2, true, now + MOMENT / 2);
        assert_eq!(waiting.take(now + MOMENT), [(task, 2)]);
        // One that may go stays so.
        put(&mut waiting, task, 3, false, now);
        put(&mut waiting, task, 4, true, now);
        assert_eq!(waiting.take(now), [(task, 4)]);
    }

    #[test]
    fn more_than_fit_are_left_out_and_batches_are_bounded() {
        let now = Instant::now();
        let mut waiting = Waiting::default();
        for _ in 0..WAITING_MAX + 10 {
            put(&mut waiting, TaskId::generate(), 1, false, now);
        }
        assert_eq!(waiting.take(now).len(), BATCH_MAX);
        assert_eq!(waiting.latest.len(), WAITING_MAX - BATCH_MAX);
    }

    #[test]
    fn what_rests_is_bounded_and_goes_at_the_end() {
        let (task, now) = (TaskId::generate(), Instant::now());
        let mut waiting = Waiting::default();
        let mut taken = 0;
        // Each that is overtaken leaves its place among those that rest.
        for _ in 0..WAITING_MAX + 10 {
            put(&mut waiting, task, 1, true, now);
            put(&mut waiting, task, 2, false, now);
            taken += waiting.take(now).len();
        }
        assert_eq!((taken, waiting.resting.len()), (WAITING_MAX + 10, WAITING_MAX));
        let mut waiting = Waiting::default();
        put(&mut waiting, task, 3, true, now);
        waiting.close();
        assert_eq!(waiting.take(now), [(task, 3)]);
    }
}
