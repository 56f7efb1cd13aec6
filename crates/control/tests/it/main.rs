//! What happens when the server forgets, freezes, refuses or dies: against private servers that each test starts,
//! since the shared one must not be harmed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod degradation;
mod expiry;
mod forgetting;
mod private_redis;
mod speed;
mod subscription;
