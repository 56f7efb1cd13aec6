//! The scheduler against real PostgreSQL, real Redis and a provider spoken to over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod cancel;
mod counter;
mod fairness;
mod gaps;
mod leases;
mod life;
mod outputs;
mod ownership;
mod polls;
mod queue;
mod unknown;
mod world;
