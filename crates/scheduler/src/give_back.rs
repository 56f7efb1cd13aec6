//! Giving back what an attempt held: its slots, its lease, its user's turn.
//!
//! Every finished attempt gives back a handful of things in Redis. One task of this process gathers them and sends
//! what has come together since the last time in one go, so a thousand ends a second cost a few dozen round trips.
//! What Redis did not confirm is asked for again, which does no harm; a slot that stays behind would take up room until
//! nobody vouches for it any more. Whatever is lost all the same (a full buffer, the end of this process) runs out by
//! itself or is found by the slot reconciler.

use std::{collections::HashSet, time::Duration};

use control::{Lease, Sent, SlotRef, Wake};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// Something to give back.
#[derive(Debug)]
pub(crate) enum Return {
    /// The provider is through with the attempt.
    Slots(SlotRef, Sent),
    /// Nobody has to own it any more.
    Lease(Lease),
}

/// Returns that may wait to be sent. An attempt makes two.
const WAITING_MAX: usize = 16_384;
/// Sent together at most.
const BATCH_MAX: usize = 512;
/// Slots that may wait to be released again; beyond them the reconciler has to.
const AGAIN_MAX: usize = 4 * BATCH_MAX;
/// Before slots are released again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Where returns are handed in.
#[derive(Debug, Clone)]
pub(crate) struct Returns(mpsc::Sender<Return>);

impl Returns {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Return>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Hands one in. Dropping it is harmless, see above.
    pub(crate) fn hand_in(&self, what: Return) {
        if let Err(error) = self.0.try_send(what) {
            tracing::debug!(%error, "a return was dropped");
        }
    }
}

/// Gives back until `over`, and then what waits still.
pub(crate) async fn run(worker: &Worker, mut handed_in: mpsc::Receiver<Return>, over: &CancellationToken) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    let mut again = Vec::new();
    loop {
        tokio::select! {
            biased;
            _ = handed_in.recv_many(&mut batch, BATCH_MAX) => {}
            () = over.cancelled() => break,
            () = tokio::time::sleep(AGAIN_AFTER), if !again.is_empty() => batch.append(&mut again),
        }
        again.extend(give_back(worker, batch.drain(..)).await);
        again.truncate(AGAIN_MAX);
    }
    if !again.is_empty() {
        give_back(worker, again.into_iter()).await;
    }
}

/// Returns the slots that were not released.
async fn give_back(worker: &Worker, batch: impl Iterator<Item = Return>) -> Vec<Return> {
    let (mut sent, mut unsent, mut leases) = (Vec::new(), Vec::new(), Vec::new());
    let mut wakes = HashSet::new();
    for what in batch {
        match what {
            Return::Slots(slot, how) => {
                wakes.insert((slot.tenant, slot.user));
                match how {
                    Sent::Yes => sent.push(slot),
                    Sent::No => unsent.push(slot),
                }
            }
            Return::Lease(lease) => leases.push(lease),
        }
    }
    let mut again = Vec::new();
    for (slots, how) in [(sent, Sent::Yes), (unsent, Sent::No)] {
        if !slots.is_empty()
            && let Err(error) = worker.control.release_slots(&slots, how).await
        {
            tracing::info!(slots = slots.len(), %error, "slots were not released and will be again");
            again.extend(slots.into_iter().map(|slot| Return::Slots(slot, how)));
        }
    }
    if !leases.is_empty()
        && let Err(error) = worker.control.drop_leases(&leases).await
    {
        tracing::debug!(leases = leases.len(), %error, "leases were not dropped; they run out");
    }
    // A user's limit spans models, so every queue may have something of theirs to start.
    let models = worker.catalogue.models();
    let wakes: Vec<_> = wakes
        .into_iter()
        .flat_map(|(tenant, user)| {
            models.iter().map(move |model| Wake { model: model.name.clone(), tenant, user })
        })
        .collect();
    if !wakes.is_empty()
        && let Err(error) = worker.control.wake(&wakes).await
    {
        tracing::debug!(%error, "parked users were not woken; they return by their timers");
    }
    worker.ring_all();
    again
}
