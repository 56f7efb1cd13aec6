//! Watching one task: subscribe first, then read, then wait for what changed.
//!
//! A watch is woken by Redis and, because Redis may be away or lose a message, by a timer. It says only that
//! something may have changed; the reader reads.

use std::time::Duration;

use control::{Signal, TenantWatch};
use domain::{TaskId, TenantId};

use crate::TaskState;

/// Streams read PostgreSQL at least this often, whatever Redis says.
const REREAD: Duration = Duration::from_secs(10);
/// While realtime is away, this is how streams follow.
const REREAD_DEGRADED: Duration = Duration::from_secs(2);

/// What woke a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The task has (at least) this version now.
    Version(i32),
    /// The provider reports this much, for the given version.
    Progress {
        /// The version that the figure belongs to.
        version: i32,
        /// 0 to 100.
        percent: u8,
    },
    /// Time to read again: something may have been missed.
    Unsure,
}

/// One task's changes from the moment it was opened.
pub struct Watch {
    task: TaskId,
    tenant: TenantWatch,
    state: TaskState,
}

impl TaskState {
    /// Opens a watch. Changes that are committed after this returns wake it (read after it, not before).
    pub async fn watch(&self, tenant: TenantId, task: TaskId) -> Watch {
        Watch { task, tenant: self.shared.control.watch_tenant(tenant).await, state: self.clone() }
    }
}

impl Watch {
    /// Waits for the next change of the task. Returns at the latest after ten seconds, with [`Changed::Unsure`].
    /// Safe to drop and call again: no change is lost.
    pub async fn changed(&mut self) -> Changed {
        let degraded = self.state.shared.control.health().realtime == control::BreakerState::Open;
        let reread = tokio::time::sleep(if degraded { REREAD_DEGRADED } else { REREAD });
        tokio::pin!(reread);
        loop {
            tokio::select! {
                () = &mut reread => return Changed::Unsure,
                signal = self.tenant.next() => match signal {
                    Signal::Gap => return Changed::Unsure,
                    Signal::Change(change) if change.task != self.task => {}
                    Signal::Change(change) => return match change.progress {
                        Some(percent) => Changed::Progress { version: change.version, percent },
                        None => Changed::Version(change.version),
                    },
                },
            }
        }
    }
}
