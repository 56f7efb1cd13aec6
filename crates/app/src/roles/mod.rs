//! What a process does, by role. Each role is a future that ends after its shutdown; [`crate::serve`] orders them.

pub(crate) mod api;
pub(crate) mod drift;
pub(crate) mod gauges;
pub(crate) mod relay;
pub(crate) mod retire;
pub(crate) mod scheduler;
