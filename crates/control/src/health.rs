//! What `/readyz` and the header `AIVideo-Degraded` are told about Redis.

use crate::{BreakerState, Control};

/// The breakers of the three instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Snapshots and progress.
    pub cache: BreakerState,
    /// Limits, slots, leases, queues.
    pub control: BreakerState,
    /// Channels and streams.
    pub realtime: BreakerState,
}

impl Health {
    /// Names of the instances that are away, as the header lists them.
    pub fn degraded(self) -> impl Iterator<Item = &'static str> {
        [("cache", self.cache), ("control", self.control), ("realtime", self.realtime)]
            .into_iter()
            .filter(|(_, state)| *state != BreakerState::Closed)
            .map(|(name, _)| name)
    }
}

impl Control {
    /// The breakers as they stand; asks nobody.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            cache: self.0.cache.state(),
            control: self.0.control.state(),
            realtime: self.0.realtime.state(),
        }
    }

    /// Writes to all three instances, so that a breaker in front of an idle instance opens and closes too.
    pub async fn probe(&self) -> Health {
        let (cache, control, realtime) =
            tokio::join!(self.0.cache.probe(), self.0.control.probe(), self.0.realtime.probe());
        for (name, answer) in [("cache", cache), ("control", control), ("realtime", realtime)] {
            if let Err(error) = answer {
                tracing::debug!(instance = name, error = error.label(), "Redis did not take a probe");
            }
        }
        self.health()
    }
}
