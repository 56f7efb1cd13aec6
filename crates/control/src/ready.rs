//! The ready queue of each model: fair by tenant, then by user, weighted, work-conserving.
//!
//! Only heads are here, at most 100 per user; the rest waits in PostgreSQL and is fetched when [`Popped::refill`]
//! says so. Anything may be lost: a missing marker makes the owner of the tasks add them again, and adding is
//! idempotent.
//!
//! Pop no more than there is room for: what is put back keeps its turn, but while it is out others cannot have it.

mod add;
#[cfg(test)]
mod fairness;
mod look;
mod pop;
mod put_back;
mod record;
mod tenants;
#[cfg(test)]
mod tests;

use std::time::Duration;

use domain::{ModelName, Priority, TaskId, TenantId, UserId};

pub use self::tenants::{TenantTurn, TurnOrder};

/// A task that waits for a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyTask {
    /// The task.
    pub task: TaskId,
    /// Our model; each has a queue of its own.
    pub model: ModelName,
    /// Whose.
    pub tenant: TenantId,
    /// Whose.
    pub user: UserId,
    /// Its head start among its user's tasks.
    pub priority: Priority,
    /// The tenant's share relative to others. 0 counts as 1.
    pub tenant_weight: u32,
    /// When it was created (milliseconds since 1970): age decides between equals.
    pub created_ms: i64,
    /// Not popped before this instant (milliseconds since 1970). 0 is at once.
    pub not_before_ms: i64,
    /// The attempt that its claim will make.
    pub next_attempt_no: i32,
}

/// What became of an added task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It waits now.
    New,
    /// It waited, or is claimed, already.
    Already,
    /// The user has 100 better heads; it stays in PostgreSQL until [`Popped::refill`] names the user.
    Full,
}

/// About how many turns away a task is, 1 being the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Among all of its model.
    pub of_model: u64,
    /// Among its tenant's.
    pub of_tenant: u64,
    /// Among its user's.
    pub of_user: u64,
}

/// One user's queue of one model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueuedUser {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
}

/// The tasks whose turn it is, now claimed by the caller for ten seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Popped {
    /// In the order of their turn. Each must go to [`crate::Control::done_ready`] or [`crate::Control::put_back`]; else it returns
    /// by itself after ten seconds.
    pub tasks: Vec<ReadyTask>,
    /// Users of whom more tasks wait in PostgreSQL and whose heads run low: fetch and add their oldest.
    pub refill: Vec<QueuedUser>,
    /// Whether the queue is known to be complete. If not, add all queued tasks, then [`crate::Control::mark_ready`].
    pub marked: bool,
    /// Milliseconds until something that is parked now can be popped, if nothing can be now.
    pub next_due_ms: Option<u64>,
}

/// Where a popped task goes that did not start. In every case its turn is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Park {
    /// To the head of its user's tasks, at once: the account is full, so nobody passes it.
    Head,
    /// The user is at a limit: none of its tasks is popped until [`crate::Control::wake`] or the time. A release between
    /// the refusal and this call wakes nobody, so choose a few seconds.
    User {
        /// At most so long.
        for_at_most: Duration,
    },
    /// The tenant is.
    Tenant {
        /// At most so long.
        for_at_most: Duration,
    },
    /// This task alone waits.
    Task {
        /// Until this instant (milliseconds since 1970).
        until_ms: i64,
    },
}

/// A user of whom something ended, so that it and its tenant may have room again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wake {
    /// Which queue. Limits span models: name every model that is served.
    pub model: ModelName,
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
}
