//! The scheduler: everything between an accepted task and its end.
//!
//! PostgreSQL says what is to be done and who does it, Redis says whose turn it is and whether there is room, and the
//! provider is called by nobody else. The scheduler itself holds nothing that matters: killed at any moment, another
//! one continues from what PostgreSQL has.
//!
//! Reading order:
//! - `intake` and `ready` bring queued tasks into the fair queue; `dispatch` takes them out, claims and starts
//!   them.
//! - `drive` is the way of one attempt, one file per stage: `submit`, `reconcile_submit`, `follow`, `output`, `outlive`.
//! - `effort` makes the scheduler work less while the process answers late.
//! - `callbacks` tells the drivers what providers call about.
//! - `heartbeat`, `reaper`, `sweeper`, `slot_reconciler` are reconcilers: no input, idempotent, by timer; `loops` shows
//!   their last run.

mod attempt_end;
mod bell;
mod callbacks;
mod config;
mod dispatch;
mod drive;
mod effort;
mod follow;
mod give_back;
mod heartbeat;
mod intake;
mod loops;
mod moves;
mod outlive;
mod output;
mod outputs;
mod owed;
mod owned;
mod pace;
mod progress;
mod provider_health;
mod ready;
mod reaper;
mod recent;
mod reconcile_submit;
mod run;
mod service;
mod slot_reconciler;
mod submit;
mod sweeper;
mod usual;
mod worker;

pub use callbacks::CallbackUrl;
pub use config::{SchedulerConfig, SchedulerConfigError};
pub use effort::EffortConfig;
pub use intake::Nudge;
pub use loops::{LoopName, LoopReport, Loops, PassError};
pub use provider_health::PauseBounds;
pub use run::{Scheduler, SchedulerParts};
