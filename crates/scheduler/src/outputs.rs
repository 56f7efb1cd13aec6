//! How many outputs are fetched at once, and how many wait.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of downloads.
#[derive(Debug)]
pub(crate) struct Outputs {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Outputs {
    pub(crate) fn new(max: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(max)), waiting: AtomicUsize::new(0) }
    }

    /// Outputs that are ready at the provider and wait for a turn here.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A turn to fetch one. Those who wait are served in order.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::new(&self.waiting);
        // The semaphore is never closed.
        self.turns.clone().acquire_owned().await.ok()
    }
}

/// Counts one waiter, also when it is dropped while it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_is_counted_until_it_is_served_or_gone() {
        let outputs = Outputs::new(1);
        let first = outputs.turn().await;
        assert_eq!(outputs.waiting(), 0);
        let mut second = Box::pin(outputs.turn());
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!(outputs.waiting(), 1);
        drop(second);
        assert_eq!(outputs.waiting(), 0);
        drop(first);
    }
}
