//! The scheduler against real PostgreSQL, real Redis and a provider spoken to over HTTP.

mod cancel;
mod life;
mod money;
mod outputs;
mod ownership;
mod queue;
mod unknown;
mod world;
