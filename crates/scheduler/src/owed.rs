//! Tasks that could not be queued because Redis was away.
//!
//! Their messages are acknowledged all the same, so the reconciler would find them only when they are old enough to be missed.
//! Remembering them lets everything that came during an outage start as soon as it is over. Forgetting is harmless.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use domain::TaskId;

/// Tasks that are remembered; those beyond are found by the reconciler's walk.
const REMEMBERED_MAX: usize = 16_384;

/// What this process owes the ready queues.
#[derive(Debug, Default)]
pub(crate) struct Owed(Mutex<BTreeSet<TaskId>>);

impl Owed {
    /// Remembers tasks, as long as there is room.
    pub(crate) fn note(&self, tasks: impl IntoIterator<Item = TaskId>) {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = REMEMBERED_MAX.saturating_sub(owed.len());
        owed.extend(tasks.into_iter().take(room));
    }

    /// Hands them out, the oldest first, and forgets them.
    pub(crate) fn take(&self) -> Vec<TaskId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_owed_once_and_there_is_a_bound() {
        let owed = Owed::default();
        let mut tasks: Vec<_> = (0..3).map(|_| TaskId::generate()).collect();
        tasks.sort_unstable();
        owed.note(tasks.iter().rev().copied());
        owed.note(tasks.iter().copied());
        assert_eq!(owed.take(), tasks);
        assert_eq!(owed.take(), []);
        owed.note((0..REMEMBERED_MAX + 5).map(|_| TaskId::generate()));
        assert_eq!(owed.take().len(), REMEMBERED_MAX);
    }
}
