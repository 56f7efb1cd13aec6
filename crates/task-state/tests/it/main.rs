//! Tasks against a real PostgreSQL and Redis: the whole life, races for the last word, fences, and the audit.

mod harness;
mod life;
mod races;
mod reading;
