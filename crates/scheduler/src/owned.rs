//! The attempts that this worker owns, and the question whether it may still send.
//!
//! Ownership is a fact in PostgreSQL (worker and fencing token); this table is the worker's own memory of it. The
//! lease in Redis only tells others that the owner is alive. What decides here is the monotonic clock: from the
//! instant before a lease was last renewed, it is good for the lease's time and not a moment longer, whatever the
//! worker was doing meanwhile, standing still included.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use control::{Lease, SlotRef};
use domain::{AttemptRef, ModelName, TaskId, metric, task::Attempt};
use task_state::{AttemptKey, TaskRecord};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// One owned attempt, shared by the code that drives it, the heartbeat and those who bring it news.
#[derive(Debug)]
pub(crate) struct Owned {
    /// What the lease says, which is all that is needed to find its slots, too.
    pub(crate) lease: Lease,
    /// The model by our name.
    pub(crate) model: ModelName,
    /// Tries of the task that had failed before this one.
    pub(crate) tries: u32,
    /// The task's version as far as it is known here.
    version: AtomicI32,
    /// The task as it was last seen under this attempt.
    known: Mutex<Option<Arc<TaskRecord>>>,
    /// The instant before the lease was last put or renewed; none while there is none.
    renewed_at: Mutex<Option<Instant>>,
    /// Nothing is submitted after this, however well the lease is renewed: `submit_until` in PostgreSQL counts on it.
    send_before: Instant,
    /// A submit of this attempt, by whomever, has certainly ended then.
    pub(crate) submit_ends_at: Instant,
    /// Whether the provider may still have a job of it, so that its slots have to be vouched for.
    holds_slots: AtomicBool,
    /// Whether the task's owner wants out.
    cancel_requested: AtomicBool,
    /// Whether the task ended without this attempt.
    task_ended: AtomicBool,
    /// Whether the provider has called since the last look, and whether it called the job ended.
    called: AtomicBool,
    called_ended: AtomicBool,
    /// Rung when one of those above changed.
    pub(crate) wake: Notify,
    /// Another worker has it now: stop.
    pub(crate) lost: CancellationToken,
    /// A place within the worker's own limit. Attempts that were taken over have a place only if one was free.
    _place: Option<OwnedSemaphorePermit>,
}

impl Owned {
    /// A fresh ownership of the task's attempt, without a lease yet.
    pub(crate) fn new(
        lease: Lease,
        task: Known,
        window: SubmitWindow,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            lease,
            model: task.model,
            tries: task.tries,
            version: AtomicI32::new(task.version),
            known: Mutex::new(None),
            renewed_at: Mutex::new(None),
            send_before: window.send_before,
            submit_ends_at: window.ends_at,
            holds_slots: AtomicBool::new(true),
            cancel_requested: AtomicBool::new(task.cancel_requested),
            task_ended: AtomicBool::new(task.ended),
            called: AtomicBool::new(false),
            called_ended: AtomicBool::new(false),
            wake: Notify::new(),
            lost: CancellationToken::new(),
            _place: place,
        }
    }

    /// The name of the attempt outside.
    pub(crate) fn name(&self) -> AttemptRef {
        AttemptRef { task: self.lease.task, attempt_no: self.lease.attempt_no }
    }

    /// Number and token, as fenced writes carry them.
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt { no: self.lease.attempt_no, fencing_token: self.lease.fencing_token }
    }

    /// Attempt and token, as writes about the attempt alone carry them.
    pub(crate) fn key(&self) -> AttemptKey {
        AttemptKey { attempt: self.name(), fencing_token: self.lease.fencing_token }
    }

    /// The task's version as far as it is known here.
    pub(crate) fn version(&self) -> i32 {
        self.version.load(Ordering::Relaxed)
    }

    /// The task as it was last seen under this attempt, for moves that are quicker when it is still so.
    pub(crate) fn known(&self) -> Option<Arc<TaskRecord>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in a later version of the task.
    pub(crate) fn learn(&self, task: &Arc<TaskRecord>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.clone());
        self.version.fetch_max(task.snapshot.version, Ordering::Relaxed);
        if task.snapshot.cancel_requested && !task.snapshot.status.is_terminal() {
            self.request_cancel();
        }
    }

    /// Where its slots are.
    pub(crate) fn slot(&self) -> SlotRef {
        SlotRef {
            attempt: self.name(),
            account: self.lease.account.clone(),
            model: self.lease.model.clone(),
            tenant: self.lease.tenant,
            user: self.lease.user,
        }
    }

    /// Whether a submit may be written at `now`: the lease holds, and the time that was announced for it is not over.
    pub(crate) fn may_send(&self, now: Instant, lease: Duration) -> bool {
        let renewed_at = *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        let leased = renewed_at.is_some_and(|renewed_at| now < renewed_at + lease);
        leased && now < self.send_before && !self.lost.is_cancelled()
    }

    /// Notes a renewal that was asked for at `asked_at`.
    pub(crate) fn renewed(&self, asked_at: Instant) {
        let mut renewed_at = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        *renewed_at = renewed_at.map_or(Some(asked_at), |before| Some(before.max(asked_at)));
    }

    pub(crate) fn holds_slots(&self) -> bool {
        self.holds_slots.load(Ordering::SeqCst)
    }

    /// Marks the slots as given back. Whether they were still held.
    pub(crate) fn take_slots(&self) -> bool {
        self.holds_slots.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn cancel_requested(&self) -> bool {
        self.cancel_requested.load(Ordering::SeqCst)
    }

    /// Tells the driver that the user wants out.
    pub(crate) fn request_cancel(&self) {
        if !self.cancel_requested.swap(true, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Tells the driver that the provider has called.
    pub(crate) fn called_back(&self, says_ended: bool) {
        self.called_ended.fetch_or(says_ended, Ordering::SeqCst);
        self.called.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Whether the provider has called since that was last asked for.
    pub(crate) fn is_called(&self) -> bool {
        self.called.load(Ordering::SeqCst)
    }

    /// What the provider has called since this was last asked.
    pub(crate) fn take_call(&self) -> Call {
        let (called, ended) =
            (self.called.swap(false, Ordering::SeqCst), self.called_ended.swap(false, Ordering::SeqCst));
        match (called, ended) {
            (_, true) => Call::Ended,
            (true, false) => Call::News,
            (false, false) => Call::None,
        }
    }

    pub(crate) fn task_ended(&self) -> bool {
        self.task_ended.load(Ordering::SeqCst)
    }

    /// Tells the driver that the task ended without it.
    pub(crate) fn end_task(&self) {
        if !self.task_ended.swap(true, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }
}

/// What a provider has called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nothing.
    None,
    /// Something.
    News,
    /// That the job has ended.
    Ended,
}

/// What a driver has to know of its task from the start.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The model by our name.
    pub(crate) model: ModelName,
    /// Tries that had failed before.
    pub(crate) tries: u32,
    /// The version that was read.
    pub(crate) version: i32,
    /// Whether the user wants out.
    pub(crate) cancel_requested: bool,
    /// Whether it has ended already.
    pub(crate) ended: bool,
}

impl From<&TaskRecord> for Known {
    fn from(task: &TaskRecord) -> Self {
        let snapshot = &task.snapshot;
        Self {
            model: snapshot.model.clone(),
            tries: snapshot.tries.unsigned_abs(),
            version: snapshot.version,
            cancel_requested: snapshot.cancel_requested,
            ended: snapshot.status.is_terminal(),
        }
    }
}

/// The times that bound the submit of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubmitWindow {
    /// Nothing is sent from then on.
    pub(crate) send_before: Instant,
    /// Whatever was sent has ended then.
    pub(crate) ends_at: Instant,
}

/// All attempts of this worker.
#[derive(Debug, Default)]
pub(crate) struct Holdings(Mutex<BTreeMap<AttemptRef, Arc<Owned>>>);

impl Holdings {
    fn table(&self) -> MutexGuard<'_, BTreeMap<AttemptRef, Arc<Owned>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an ownership. An older one of the same attempt is lost by that.
    pub(crate) fn add(&self, owned: Arc<Owned>) {
        if let Some(older) = self.table().insert(owned.name(), owned) {
            older.lost.cancel();
        }
    }

    /// Takes an ownership out, unless a newer one has replaced it.
    pub(crate) fn remove(&self, owned: &Owned) {
        let mut table = self.table();
        if table.get(&owned.name()).is_some_and(|now| now.lease.fencing_token == owned.lease.fencing_token) {
            table.remove(&owned.name());
        }
    }

    pub(crate) fn get(&self, name: AttemptRef) -> Option<Arc<Owned>> {
        self.table().get(&name).cloned()
    }

    /// Whether this very attempt is still held.
    pub(crate) fn has(&self, owned: &Owned) -> bool {
        self.table().get(&owned.name()).is_some_and(|held| std::ptr::eq(held.as_ref(), owned))
    }

    /// The attempts of a task; more than one only while an older one outlives its time.
    pub(crate) fn of_task(&self, task: TaskId) -> Vec<Arc<Owned>> {
        let any = AttemptRef { task, attempt_no: i32::MIN }..=AttemptRef { task, attempt_no: i32::MAX };
        self.table().range(any).map(|(_, owned)| owned.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Owned>> {
        self.table().values().cloned().collect()
    }
}

/// Stops what drives attempts that are another worker's now. After a long stall these are many, so they share a line.
pub(crate) fn lose(taken: &[Arc<Owned>]) {
    let Some(example) = taken.first() else { return };
    metrics::counter!(metric::SLOT_HEARTBEAT_FAILED).increment(taken.len() as u64);
    tracing::warn!(attempts = taken.len(), example = %example.name(), "other workers have taken attempts over");
    for owned in taken {
        owned.lost.cancel();
    }
}

#[cfg(test)]
mod tests {
    use domain::{TaskId, TenantId, UserId};

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn owned(token: i64, task: TaskId) -> Owned {
        let lease = Lease {
            task,
            attempt_no: 1,
            fencing_token: token,
            worker: "w".parse().unwrap(),
            tenant: TenantId::generate(),
            user: UserId::generate(),
            account: "mock".parse().unwrap(),
            model: "mock-fast".parse().unwrap(),
        };
        let model = "mock-fast".parse().unwrap();
        let known = Known { model, tries: 0, version: 2, cancel_requested: false, ended: false };
        let now = Instant::now();
        Owned::new(lease, known, SubmitWindow { send_before: now + LEASE, ends_at: now + LEASE * 2 }, None)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_after_a_standstill_that_outlived_the_lease() {
        let owned = owned(1, TaskId::generate());
        assert!(!owned.may_send(Instant::now(), LEASE), "there is no lease yet");
        owned.renewed(Instant::now());
        assert!(owned.may_send(Instant::now(), LEASE));
        tokio::time::advance(LEASE).await;
        assert!(!owned.may_send(Instant::now(), LEASE));
    }

    #[tokio::test(start_paused = true)]
    async fn renewing_does_not_stretch_the_time_announced_for_the_submit() {
        let owned = owned(1, TaskId::generate());
        tokio::time::advance(LEASE).await;
        owned.renewed(Instant::now());
        assert!(!owned.may_send(Instant::now(), LEASE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_counts_from_before_it_was_asked_for() {
        let owned = owned(1, TaskId::generate());
        let asked_at = Instant::now();
        tokio::time::advance(Duration::from_secs(4)).await;
        owned.renewed(asked_at);
        owned.renewed(asked_at - Duration::from_secs(1));
        assert!(owned.may_send(asked_at + Duration::from_secs(9), LEASE));
    }

    #[test]
    fn a_newer_ownership_replaces_and_stops_the_older_one() {
        let (holdings, task) = (Holdings::default(), TaskId::generate());
        let (old, new) = (Arc::new(owned(1, task)), Arc::new(owned(2, task)));
        holdings.add(old.clone());
        holdings.add(new.clone());
        assert!(old.lost.is_cancelled() && !new.lost.is_cancelled());
        holdings.remove(&old);
        assert!(holdings.get(new.name()).is_some());
        holdings.remove(&new);
        assert!(holdings.all().is_empty());
    }
}
