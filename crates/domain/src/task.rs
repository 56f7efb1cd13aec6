//! The life of a generation task.
//!
//! - [`status`]: the nine states by name, event types and stages, as the API and the database spell them.
//! - [`state`]: the same states with the data that is valid in each.
//! - [`mod@transition`]: the pure rule that says what may happen next and what it costs.
//! - [`snapshot`]: the facts of one version, as they are cached and served.

pub mod snapshot;
pub mod state;
pub mod status;
pub mod transition;

pub use snapshot::{Inputs, TaskCredits, TaskEventRow, TaskSnapshot};
pub use state::{Attempt, JobHandle, TaskState};
pub use status::{EventType, Stage, TaskStatus};
pub use transition::{Effect, Event, Facts, Refusal, Seen, Step, transition};
