//! Tasks against a real PostgreSQL and Redis: the whole life, races for the last word, fences, and the audit.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod callbacks;
mod harness;
mod known;
mod life;
mod races;
mod reading;
