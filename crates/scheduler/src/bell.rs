//! The bell of a model's dispatch: rung when there is something new, and when there is room again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// A bell with two strings. Releases come a thousand times a second and matter only to a pump that found no room, so
/// theirs is heard only by one that said so.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    pub(crate) rung: Notify,
    waits_for_room: AtomicBool,
    releases: AtomicU64,
}

impl Bell {
    /// There is something new to dispatch.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// There may be room again.
    pub(crate) fn ring_for_room(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        if self.waits_for_room.swap(false, Ordering::SeqCst) {
            self.rung.notify_one();
        }
    }

    /// How many releases there were. Whoever found no room compares: another one since it looked is worth a look.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// From now on room matters. To be said before room is looked for, or a release in between goes unheard.
    pub(crate) fn wait_for_room(&self) {
        self.waits_for_room.store(true, Ordering::SeqCst);
    }

    /// Everything found room.
    pub(crate) fn found_room(&self) {
        self.waits_for_room.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_release_is_heard_once_and_only_by_a_pump_that_waits_for_room() {
        let bell = Bell::default();
        bell.ring_for_room();
        assert!(poll!(Box::pin(bell.rung.notified())).is_pending());
        bell.wait_for_room();
        bell.ring_for_room();
        bell.rung.notified().await;
        bell.ring_for_room();
        assert!(poll!(Box::pin(bell.rung.notified())).is_pending());
    }
}
