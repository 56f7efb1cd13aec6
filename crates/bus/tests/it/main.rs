//! The queue against real servers.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod conformance;
mod kafka;
mod postgres;
