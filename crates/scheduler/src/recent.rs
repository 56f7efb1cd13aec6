//! Tasks that this process queued a moment ago.
//!
//! The writer of a submit nudges the scheduler in the same process, and the message of the same submit arrives a
//! little later. Without a memory each task would be loaded and queued twice. Forgetting is harmless.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use domain::TaskId;

/// Tasks that are remembered.
const REMEMBERED_MAX: usize = 16_384;

/// The last few thousand tasks.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    known: HashSet<TaskId>,
    order: VecDeque<TaskId>,
}

impl Recent {
    /// Remembers tasks, the oldest making room.
    pub(crate) fn remember(&self, tasks: impl IntoIterator<Item = TaskId>) {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for task in tasks {
            if memory.known.insert(task) {
                memory.order.push_back(task);
            }
            if memory.order.len() > REMEMBERED_MAX
                && let Some(oldest) = memory.order.pop_front()
            {
                memory.known.remove(&oldest);
            }
        }
    }

    /// Those tasks that are not remembered.
    pub(crate) fn unknown(&self, tasks: impl IntoIterator<Item = TaskId>) -> Vec<TaskId> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.into_iter().filter(|task| !memory.known.contains(task)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first() {
        let recent = Recent::default();
        let first = TaskId::generate();
        recent.remember([first, first]);
        assert_eq!(recent.unknown([first]), []);
        recent.remember((0..REMEMBERED_MAX).map(|_| TaskId::generate()));
        assert_eq!(recent.unknown([first]), [first]);
    }
}
