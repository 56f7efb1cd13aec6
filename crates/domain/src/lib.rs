//! The vocabulary of the platform: ids, credits, the life of a task, failures, prices and limits.
//!
//! Everything here is a value or a pure function. There is no IO, no clock that is read behind the caller's
//! back and no randomness that is not handed in, so every rule in this crate can be tested by a table or a
//! property. Read [`task::transition()`] first: it is the heart of the product.

pub mod callback;
pub mod clock;
pub mod complaints;
pub mod credits;
pub mod error_code;
pub mod failure;
pub mod ids;
pub mod limits;
pub mod metric;
pub mod model;
pub mod principal;
pub mod priority;
pub mod retry;
pub mod task;
pub mod text;
pub mod text_enum;
pub mod time_zone;
pub mod wait;

pub use credits::Credits;
pub use error_code::ErrorCode;
pub use failure::FailureClass;
pub use ids::{
    AccountId, AssetId, AttemptRef, GrantId, KeyId, ModelName, ProjectId, ProviderAccountId, TaskId,
    TenantId, TokenId, UserId, WorkerId,
};
pub use principal::{Principal, Scope, Scopes};
pub use priority::Priority;
pub use task::TaskStatus;
pub use time_zone::{LocalDay, TimeZone};
