//! What happens when the server forgets, freezes, refuses or dies: against private servers that each test starts,
//! since the shared one must not be harmed.

mod degradation;
mod forgetting;
mod private_redis;
mod speed;
mod subscription;
