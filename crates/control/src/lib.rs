//! Redis: the whole keyspace, one typed function per Lua script.
//!
//! Redis is speed and control, never the truth: it may be flushed at any moment, and everything here is rebuilt
//! from PostgreSQL by those who own the facts. Two things follow. Every answer that admits something to a provider
//! fails closed (no marker, no slot), and every verb is safe to repeat.
//!
//! Read [`keys`] first, then a script under `lua/` beside the module that runs it. Every verb takes a slice and
//! travels as one pipeline per instance; nothing outside this crate formats a key or sees a connection.

mod account_breaker;
mod breaker;
mod config;
mod dispatch;
mod error;
mod failed_auth;
mod health;
mod inflow;
mod instance;
pub mod keys;
mod lease;
mod link;
mod lock;
mod patience;
mod progress;
mod promise;
mod ready;
mod realtime;
mod script;
mod service;
mod slots;
mod snapshot;
#[cfg(test)]
mod testing;
mod ttl;
mod wait;

use std::{sync::Arc, time::Duration};

use crate::{
    account_breaker::Shut,
    config::Instance,
    inflow::Gatherer,
    instance::{Server, command},
    keys::Keys,
    realtime::Subscriptions,
};
pub use crate::{
    account_breaker::{AccountBreaker, BreakerRule, Noted, Sign},
    breaker::BreakerState,
    config::{ConfigError, ControlConfig},
    dispatch::DispatchPause,
    error::ControlError,
    failed_auth::{FailedAuthLimit, FailedAuthWindow},
    health::Health,
    inflow::{
        Admission, CheckState, InflowCharge, InflowCheck, InflowKey, InflowLimit, IpCharge, RefusedBy,
        ReplayKey, Standing, StoredAnswer,
    },
    lease::{Lease, Renewal},
    lock::LockGuard,
    progress::Progress,
    promise::Promise,
    ready::{Added, Park, Place, Popped, QueuedUser, ReadyTask, TenantTurn, TurnOrder, Wake},
    realtime::{Change, Projection, Signal, TenantWatch},
    service::ServiceTime,
    slots::{
        DispatchRates, Rebuild, RebuildTicket, Sent, SlotClaim, SlotLimits, SlotMember, SlotOutcome, SlotRef,
        SlotSet, SlotTag, Trips, Vouched,
    },
    wait::{ModelWait, WaitNote},
};

/// The handle on all three instances. Cheap to clone.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    keys: Keys,
    cache: Server,
    control: Server,
    realtime: Server,
    gatherer: Gatherer,
    subscriptions: Subscriptions,
    shut: Arc<Shut>,
    slot_vouch: Duration,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("health", &self.health()).finish_non_exhaustive()
    }
}

impl Control {
    /// Opens nothing yet: connections are made when they are first needed, so a Redis that is away at start is the
    /// same as one that goes away later. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Only for settings that can never work.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let keys = Keys::new(&config.prefix);
        Ok(Self(Arc::new(Inner {
            cache: Server::new(Instance::Cache, &config)?,
            control: Server::new(Instance::Control, &config)?,
            realtime: Server::new(Instance::Realtime, &config)?,
            gatherer: Gatherer::new(config.gather_waiting_max),
            subscriptions: Subscriptions::new(keys.clone(), &config)?,
            shut: Arc::default(),
            slot_vouch: config.slot_vouch,
            keys,
        })))
    }

    /// The same instances for another event loop of this process, to be called there: other connections, the same breakers
    /// and the same notes of provider accounts that are shut, so that whoever asks for the health hears what both loops have met.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn beside(&self, config: ControlConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let Inner { cache, control, realtime, keys, shut, .. } = &*self.0;
        Ok(Self(Arc::new(Inner {
            cache: cache.beside(Instance::Cache, &config)?,
            control: control.beside(Instance::Control, &config)?,
            realtime: realtime.beside(Instance::Realtime, &config)?,
            gatherer: Gatherer::new(config.gather_waiting_max),
            subscriptions: Subscriptions::new(keys.clone(), &config)?,
            shut: Arc::clone(shut),
            slot_vouch: config.slot_vouch,
            keys: keys.clone(),
        })))
    }

    /// The control instance's own time in milliseconds since 1970: the clock that decides every expiry here.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn now_ms(&self) -> Result<i64, ControlError> {
        let (seconds, micros): (i64, i64) = self.0.control.call(command("TIME")).await?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    fn keys(&self) -> &Keys {
        &self.0.keys
    }
}
