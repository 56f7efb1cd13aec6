//! The heartbeat: one renewal for all attempts of this worker in every tick, and the word that their slots are used.
//!
//! A lease only says that the owner is alive. "Another token" means that somebody took the attempt over: stop. A
//! lease that is gone (a flushed Redis) is put back if PostgreSQL still names this worker's token. While Redis cannot
//! be reached nobody can take over either, so following goes on; submitting does not, for the clock says no.

use std::sync::Arc;

use control::{Renewal, Vouched};
use domain::metric;
use task_state::Ownership;
use tokio::time::Instant;

use crate::{
    loops::{Next, PassError},
    owned::{self, Owned},
    worker::Worker,
};

/// One tick.
///
/// # Errors
/// When Redis or PostgreSQL did not answer; the next tick repeats it.
pub(crate) async fn pass(worker: &Worker) -> Result<Next, PassError> {
    let all = worker.holdings.all();
    if all.is_empty() {
        return Ok(Next::Timer);
    }
    let leases: Vec<_> = all.iter().map(|owned| owned.lease.clone()).collect();
    let asked_at = Instant::now();
    let renewals = match worker.control.renew_leases(&leases, worker.config.lease).await {
        Ok(renewals) => renewals,
        Err(error) => {
            metrics::counter!(metric::SLOT_HEARTBEAT_FAILED).increment(leases.len() as u64);
            return Err(error.into());
        }
    };
    let (mut absent, mut taken) = (Vec::new(), Vec::new());
    for (owned, renewal) in all.iter().zip(renewals) {
        match renewal {
            // It ended while the renewal was on its way, and its lease went.
            Renewal::Absent | Renewal::OtherToken(_) if !worker.holdings.has(owned) => {}
            Renewal::Renewed => owned.renewed(asked_at),
            Renewal::Absent => absent.push(owned.clone()),
            Renewal::OtherToken(token) if token > owned.lease.fencing_token => taken.push(owned.clone()),
            // What is left of an owner before us.
            Renewal::OtherToken(_) => absent.push(owned.clone()),
        }
    }
    owned::lose(&taken);
    if !absent.is_empty() {
        restore(worker, &absent).await?;
    }
    let (holding, slots): (Vec<_>, Vec<_>) =
        all.iter().filter(|owned| owned.holds_slots()).map(|owned| (owned, owned.slot())).unzip();
    let vouched = worker.control.vouch_slots(&slots, worker.config.lease).await?;
    let missing: Vec<_> = holding
        .into_iter()
        .zip(slots)
        .zip(vouched)
        // Those that were given back meanwhile are missing by right.
        .filter(|((owned, _), vouched)| *vouched == Vouched::Missing && owned.holds_slots())
        .map(|((_, slot), _)| slot)
        .collect();
    if !missing.is_empty() {
        // Redis lost them. Their attempts live, so they count whatever the limits say.
        metrics::counter!(metric::SLOT_RECONCILE_DIFF, "kind" => "missing").increment(missing.len() as u64);
        worker.control.restore_slots(&missing).await?;
    }
    Ok(Next::Timer)
}

/// Puts leases back that are gone, for attempts that PostgreSQL still calls ours.
async fn restore(worker: &Worker, absent: &[Arc<Owned>]) -> Result<(), PassError> {
    let asked_at = Instant::now();
    let keys: Vec<_> = absent.iter().map(|owned| owned.key()).collect();
    let ownership = worker.task_state.ownership(&keys).await?;
    let of = |which| {
        absent.iter().zip(&ownership).filter(move |(_, whose)| **whose == which).map(|(owned, _)| owned)
    };
    // One that ended has a driver who is about to hear of it, and who gives its slots back.
    let ours: Vec<_> = of(Ownership::Ours).collect();
    owned::lose(&of(Ownership::Taken).cloned().collect::<Vec<_>>());
    let leases: Vec<_> = ours.iter().map(|owned| owned.lease.clone()).collect();
    let put = worker.control.put_leases(&leases, worker.config.lease).await?;
    for (owned, renewal) in ours.into_iter().zip(put) {
        if renewal == Renewal::Renewed {
            owned.renewed(asked_at);
        }
    }
    Ok(())
}
