//! Callbacks, the side of them that only an adapter knows: whether one comes from the provider, and what it says.
//!
//! Apart from [`Provider`](crate::Provider), because it needs no connection to anybody: whoever only serves HTTP makes
//! these and no adapters.

use async_trait::async_trait;
use domain::callback::{CallbackVerdict, RawCallback};

/// Reads the callbacks of one account.
#[async_trait]
pub trait CallbackReader: Send + Sync + 'static {
    /// What the request is worth.
    async fn read(&self, callback: RawCallback<'_>) -> CallbackVerdict;
}
