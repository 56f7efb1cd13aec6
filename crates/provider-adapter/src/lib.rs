//! Third-party providers behind one trait.
//!
//! Providers differ in everything: how a job is named, whether it can be found again, what "canceled" means, where
//! the file lies and for how long. [`Provider`] is what the rest of the platform sees of them: seven verbs whose
//! outcomes are spelled out, because money hangs on the difference between "certainly refused" and "nobody knows".
//! Adapters translate; they decide nothing, store nothing, and every call of theirs has its own limit.
//!
//! Read [`provider`] first, then [`mock`], the smallest complete adapter. Every adapter passes the same conformance
//! suite against a scripted server over real HTTP (`conformance`, compiled for tests).

pub mod callbacks;
mod capabilities;
pub mod classify;
#[cfg(test)]
mod conformance;
mod handle;
mod measured;
pub mod mock;
pub mod provider;
mod registry;
pub mod standard_webhooks;

pub use capabilities::{CallbackForm, CancelForm, Capabilities, OutputForm, ProgressForm, ProviderLimits};
pub use domain::task::state::JobHandle;
pub use fetch::SendGuard;
pub use handle::Job;
pub use provider::{
    CancelOutcome, LookUp, NotSent, Observation, OutputError, OutputRef, OutputStream, Provider, SubmitJob,
    SubmitOutcome, Unclear,
};
pub use registry::{DuplicateAccount, Providers};
