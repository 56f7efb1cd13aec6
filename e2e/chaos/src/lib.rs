//! The chaos suite: the real binary as several processes, under load, while everything around it breaks.
//!
//! A run starts private servers and a few `aivideo serve` processes, submits tasks like impatient clients do, and
//! meanwhile kills processes, empties Redis, and lets the provider misbehave. Then it lifts every fault, waits until
//! nothing moves any more, and holds what is there against what was promised: no accepted task lost, none submitted
//! twice, the provider's limit kept, every credit accounted for.
//!
//! What happens is decided before the run by a seed (see [`Plan`]), so a run can be repeated, although no two
//! meet the same instants. Nothing here knows the platform from inside: it is asked over HTTP and by its own commands.
//!
//! That is the storm, and its command is `chaos`. The other command is `faults`: one dependency at a time, and what people
//! notice of it; it begins in [`faults`].
//!
//! Read [`Settings`] first, then `plan` for what may happen, `load` and `saboteur` for the two sides of a run, and
//! `verdict` for what is demanded in the end.

mod audit;
mod client;
pub mod faults;
mod fleet;
mod folder;
mod journal;
mod kafka;
mod load;
mod plan;
mod postgres;
mod process;
mod provider;
mod provider_faults;
mod proxy;
mod redis;
mod report;
mod run;
mod saboteur;
mod servers;
mod settings;
mod verdict;

pub use plan::Plan;
pub use report::Report;
pub use run::run;
pub use settings::{Scenario, Settings, mixed_roles};
