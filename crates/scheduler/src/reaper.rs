//! The reaper: finds open attempts whose owner is gone and takes them over, and brings this worker the news about
//! its own.
//!
//! An owner is gone when its lease was missing in two looks at least one heartbeat apart. While Redis cannot be asked
//! nobody is taken over. PostgreSQL's conditional update decides between several reapers and an owner that comes back.
//! A claimed attempt without a handle may have a submit on its way; it is left alone until that has certainly ended, and
//! is then in doubt like a submit that timed out.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use control::Lease;
use domain::{AttemptRef, TaskStatus, metric, task::Attempt};
use task_state::{AttemptKey, OpenAttempt, TakenOver, TaskRecord};
use tokio::time::Instant;

use crate::{
    drive::{Stage, drive, stage_of},
    loops::{Next, PassError},
    owned::{self, Owned, SubmitWindow},
    worker::Worker,
};

/// Attempts read together.
const PAGE: i64 = 1_000;
/// Attempts taken over in one transaction.
const BATCH: usize = 100;

/// When each lease was first found missing.
#[derive(Debug, Default)]
pub(crate) struct Missing(Mutex<HashMap<AttemptKey, Instant>>);

impl Missing {
    /// Takes in one look. Returns those that were missing in a look before, at least `apart` ago, and ever since.
    fn look(&self, missing: &HashSet<AttemptKey>, apart: Duration, now: Instant) -> HashSet<AttemptKey> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|key, _| missing.contains(key));
        for key in missing {
            since.entry(*key).or_insert(now);
        }
        since
            .iter()
            .filter(|(_, first)| now.saturating_duration_since(**first) >= apart)
            .map(|(key, _)| *key)
            .collect()
    }

    /// Nothing is known about leases while Redis is away, and what was known before counts no longer.
    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// One pass.
///
/// # Errors
/// When a store did not answer.
pub(crate) async fn pass(worker: &Arc<Worker>, missing: &Missing) -> Result<Next, PassError> {
    let (mut others, mut taken) = (Vec::new(), Vec::new());
    let mut after = None;
    loop {
        let page = worker.task_state.open_attempts(after, PAGE).await?;
        after = page.last().map(|open| open.key.attempt);
        let full = i64::try_from(page.len()).is_ok_and(|count| count == PAGE);
        others.extend(page.into_iter().filter(|open| !tell_owner(worker, open, &mut taken)));
        if !full {
            break;
        }
    }
    owned::lose(&taken);
    let gone = find_gone(worker, missing, &others).await?;
    let room = (2 * worker.config.worker_attempts_max).saturating_sub(worker.holdings.len());
    let gone: Vec<_> = others.into_iter().filter(|open| gone.contains(&open.key)).take(room).collect();
    for batch in gone.chunks(BATCH) {
        take_over(worker, batch).await?;
    }
    Ok(Next::Timer)
}

/// Tells the driver of an attempt of ours what happened to its task. Whether it is ours; if others took it, it is noted.
fn tell_owner(worker: &Worker, open: &OpenAttempt, taken: &mut Vec<Arc<Owned>>) -> bool {
    let Some(owned) = worker.holdings.get(open.key.attempt) else { return false };
    if open.key.fencing_token > owned.lease.fencing_token {
        taken.push(owned);
        return false;
    }
    if open.task_ended_at.is_some() || !open.present {
        owned.end_task();
    } else if open.cancel_requested && open.cancel_sent_at.is_none() {
        owned.request_cancel();
    }
    true
}

/// Those attempts of others whose owner is gone and that may be taken over now.
async fn find_gone(
    worker: &Worker,
    missing: &Missing,
    others: &[OpenAttempt],
) -> Result<HashSet<AttemptKey>, PassError> {
    let asked: Vec<_> = others.iter().map(|open| (open.account.clone(), open.key.attempt.task)).collect();
    let leases = match worker.control.look_leases(&asked).await {
        Ok(leases) => leases,
        Err(error) => {
            missing.forget();
            return Err(error.into());
        }
    };
    let without = others
        .iter()
        .zip(leases)
        .filter(|(open, lease)| !lease.as_ref().is_some_and(|lease| is_sign_of_life(lease, open.key)))
        .map(|(open, _)| open.key)
        .collect();
    // One heartbeat and a half: an owner whose lease was flushed puts it back with its next heartbeat.
    let mut gone = missing.look(&without, worker.config.heartbeat.mul_f64(1.5), Instant::now());
    let may_be_sending = |open: &OpenAttempt| {
        open.task_status == TaskStatus::Scheduling && open.job.is_none() && open.read_at < open.submit_until
    };
    for open in others.iter().filter(|open| may_be_sending(open)) {
        gone.remove(&open.key);
    }
    Ok(gone)
}

fn is_sign_of_life(lease: &Lease, key: AttemptKey) -> bool {
    lease.attempt_no == key.attempt.attempt_no && lease.fencing_token >= key.fencing_token
}

async fn take_over(worker: &Arc<Worker>, batch: &[OpenAttempt]) -> Result<(), PassError> {
    metrics::counter!(metric::SLOT_LEASE_EXPIRED).increment(batch.len() as u64);
    let asked_at = Instant::now();
    let keys = batch.iter().map(|open| open.key).collect();
    let outcomes = worker.task_state.take_over(worker.id.clone(), keys).await?;
    let mut adopted = Vec::new();
    for (open, outcome) in batch.iter().zip(outcomes) {
        let (task, token, ended) = match outcome {
            TakenOver::Task(task, Attempt { fencing_token, .. }) => (task, fencing_token, false),
            TakenOver::Attempt(task, key) => (task, key.fencing_token, true),
            TakenOver::Lost => continue,
        };
        tracing::info!(attempt = %open.key.attempt, from = %open.worker, status = %task.snapshot.status, "taken over");
        let owned = adopt(worker, open, &task, token, asked_at);
        let stage = if ended { Stage::Outlive } else { stage_of(&task, &owned) };
        adopted.push((owned, stage));
    }
    let leases: Vec<_> = adopted.iter().map(|(owned, _)| owned.lease.clone()).collect();
    // Without a lease the attempts are ours all the same, and the next heartbeat puts it there.
    if let Err(error) = worker.control.put_leases(&leases, worker.config.lease).await {
        tracing::warn!(%error, "the leases of attempts taken over were not written yet");
    }
    for (owned, stage) in adopted {
        worker.drivers.spawn(drive(worker.clone(), owned, stage));
    }
    Ok(())
}

fn adopt(
    worker: &Worker,
    open: &OpenAttempt,
    task: &TaskRecord,
    fencing_token: i64,
    now: Instant,
) -> Arc<Owned> {
    let AttemptRef { task: id, attempt_no } = open.key.attempt;
    let lease = Lease {
        task: id,
        attempt_no,
        fencing_token,
        worker: worker.id.clone(),
        tenant: open.tenant,
        user: open.user,
        account: open.account.clone(),
        model: open.model.clone(),
    };
    let rest = (open.submit_until - open.read_at).to_std().unwrap_or_default();
    // Whatever was sent was sent by the owner before; this one sends nothing for the attempt.
    let window = SubmitWindow { send_before: now, ends_at: Instant::now() + rest };
    let place = worker.places.clone().try_acquire_owned().ok();
    let owned = Arc::new(Owned::new(lease, task.into(), window, place));
    if open.through {
        owned.take_slots();
    }
    worker.holdings.add(owned.clone());
    owned
}

#[cfg(test)]
mod tests {
    use domain::TaskId;

    use super::*;

    const APART: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_gone_only_when_two_looks_one_heartbeat_apart_found_none() {
        let missing = Missing::default();
        let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 1 };
        let key = AttemptKey { attempt, fencing_token: 7 };
        let (one, none) = (HashSet::from([key]), HashSet::new());
        let start = Instant::now();
        assert!(missing.look(&one, APART, start).is_empty());
        assert!(missing.look(&one, APART, start + APART / 2).is_empty());
        assert_eq!(missing.look(&one, APART, start + APART), one);
        // Seen once in between: the count begins anew.
        assert!(missing.look(&none, APART, start + APART).is_empty());
        assert!(missing.look(&one, APART, start + APART * 2).is_empty());
        missing.forget();
        assert!(missing.look(&one, APART, start + APART * 3).is_empty());
    }
}
