//! Test support: a database per test, a Redis prefix per test, and waiting for events without sleeping blindly.
//!
//! Tests run against real servers, because what they must prove (locks, constraints, scripts, lost answers) does
//! not exist in a fake. To stay quick, the schema is migrated once into a template database and each test gets a
//! clone of it; what only happens on the way to a server is done by a [`Proxy`], and what would harm the shared Redis is
//! done to a [`PrivateRedis`]. Development only: no crate depends on this one outside its tests.
//!
//! | variable | default |
//! |---|---|
//! | `DATABASE_URL` | `postgres://postgres@127.0.0.1:25432/postgres` (a role that may create databases) |
//! | `REDIS_URL` | `redis://127.0.0.1:26379` |
//! | `AIVTEST_KEEP` | unset; when set, test databases stay for inspection |

mod database;
mod private_redis;
mod proxy;
mod redis_prefix;
mod wait;

pub use database::TestDb;
/// A clock that stands still until the test moves it.
pub use domain::clock::ManualClock as TestClock;
pub use private_redis::PrivateRedis;
pub use proxy::Proxy;
pub use redis_prefix::TestRedis;
pub use wait::{wait_for, wait_until};

/// The value of an environment variable, or the development default.
fn env_or(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}
