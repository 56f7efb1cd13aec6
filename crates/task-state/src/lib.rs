//! Tasks: the only way one comes to be, moves, and is read.
//!
//! Nobody else writes `generation_tasks`, `task_attempts` or `task_events`. A move is asked for with
//! [`TaskState::advance`]; what it does is decided by `domain::task::transition`, and its effects (history, money,
//! open counts, the asset row) are written in the same transaction. Writes are gathered: callers that ask at the
//! same time share one commit.
//!
//! - writing: `create`, [`advance`](TaskState::advance), [`claim`](TaskState::claim),
//!   [`take_over`](TaskState::take_over), `attempts`
//! - after a commit: `project` puts the new snapshots into Redis and tells the streams
//! - `inbox`: what providers call about; it moves nothing
//! - reading: `read`, `list`, `events`, `watch`, `backlog` (what the reconcilers compare)
//! - `audit`: the invariants of tasks

mod advance;
mod apply;
pub mod attempts;
pub mod audit;
pub mod backlog;
mod claim;
mod create;
mod events;
mod holders;
#[cfg(test)]
mod hot_update_test;
mod inbox;
mod known;
mod list;
mod project;
mod read;
mod record;
mod take_over;
mod watch;
mod writer;

use std::{sync::Arc, time::Duration};

use control::Control;
use pg::PgPool;

pub use advance::{Expect, Move, MoveDetail, MoveError, MoveOutcome};
pub use attempts::{AttemptKey, AttemptOutcome, OpenAttempt, Ownership};
pub use backlog::{LiveSlot, Turn, Waiting};
pub use claim::{Claim, ClaimOutcome, JobsToday};
pub use create::{NewTask, NewlyQueued, arguments, create};
pub use holders::Holder;
pub use inbox::{
    BODY_BYTES_KEPT, Called, IgnoredBecause, NewProviderEvent, ReceiveError, Received, retire::retire_events,
};
pub use list::{Cursor, ListFilter, ListScope, Page};
pub use record::TaskRecord;
pub use take_over::TakenOver;
pub use watch::{Changed, Watch};

/// The figures that decide how long states may last, and how writes are gathered.
#[derive(Debug, Clone)]
pub struct TaskStateConfig {
    /// How many tries a task may have.
    pub max_tries: u32,
    /// The time that RECONCILING is given.
    pub reconciling: Duration,
    /// The time that POST_PROCESSING is given.
    pub post_processing: Duration,
    /// How many transactions of moves may run side by side.
    pub writers: usize,
}

impl Default for TaskStateConfig {
    fn default() -> Self {
        Self {
            max_tries: 3,
            reconciling: Duration::from_secs(600),
            post_processing: Duration::from_secs(900),
            writers: 2,
        }
    }
}

/// The handle through which tasks are moved and read. Cheap to clone.
#[derive(Clone)]
pub struct TaskState {
    shared: Arc<Shared>,
}

struct Shared {
    pool: PgPool,
    control: Control,
    config: TaskStateConfig,
    writers: writer::Writers,
    inbox: inbox::Inbox,
    cache: read::ProcessCache,
    projector: project::Projector,
}

impl TaskState {
    /// Starts the gathering writers on the current runtime. They end when the last handle is dropped.
    #[must_use]
    pub fn new(pool: PgPool, control: Control, config: TaskStateConfig) -> Self {
        Self::assemble(pool, control, config, read::ProcessCache::new())
    }

    /// A second one in the same process, with connections and writers of its own, which start on the current runtime.
    /// What one of them writes the readers of both see at once.
    #[must_use]
    pub fn beside(&self, pool: PgPool, control: Control) -> Self {
        Self::assemble(pool, control, self.shared.config.clone(), self.shared.cache.clone())
    }

    fn assemble(pool: PgPool, control: Control, config: TaskStateConfig, cache: read::ProcessCache) -> Self {
        let (writers, queues) = writer::Writers::new(config.writers);
        let projector = project::Projector::start(control.clone());
        cache.look_at(projector.unsent());
        let (inbox, waiting) = inbox::Inbox::new();
        let shared = Arc::new(Shared { pool, control, config, writers, inbox, cache, projector });
        for queue in queues {
            writer::spawn(Arc::downgrade(&shared), queue);
        }
        inbox::spawn(Arc::downgrade(&shared), waiting);
        Self { shared }
    }

    /// Gathers moves for this long before each commit from now on: larger batches for later answers. Zero, the default,
    /// waits for nobody.
    pub fn gather(&self, pause: Duration) {
        self.shared.writers.gather(pause);
    }

    /// Waits until every move that was asked for has been written. For shutdown: ask for nothing more after it.
    pub async fn drain(&self) {
        self.shared.writers.drain().await;
    }
}
