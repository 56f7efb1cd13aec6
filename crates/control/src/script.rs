//! The Lua scripts, and teaching them to a server that has forgotten them.
//!
//! A script is run by its hash. After a restart or SCRIPT FLUSH the server answers NOSCRIPT; then all scripts are
//! loaded in one pipeline by whoever comes first, the others wait for it, and each sends again what did not run.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use redis::{Cmd, ToRedisArgs, Value};

use crate::error::ControlError;

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $($file:literal)+;)*) => {
        /// Every script by the name of its file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Script { $($(#[$doc])* $name,)* }

        impl Script {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            const fn source(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($(include_str!(concat!("../../../lua/", $file, ".lua")), "\n"),+),)*
                }
            }
        }
    };
}

scripts! {
    /// Decides all entry limits of one request together, or answers with a replay.
    Inflow = "lib_clock" "lib_bucket" "lib_window" "inflow";
    /// Gives back what `inflow` charged.
    InflowRefund = "lib_clock" "lib_bucket" "lib_window" "inflow_refund";
    /// The sliding counter of one address.
    IpWindow = "ip_window";
    /// The sliding log of failed authentications of one address.
    AuthWindow = "lib_clock" "lib_window" "auth_window";
    /// Takes the places of attempts under one tag.
    SlotAcquire = "lib_clock" "lib_bucket" "lib_many" "slot_acquire";
    /// Gives them back.
    SlotRelease = "lib_many" "slot_release";
    /// Vouches for attempts of one tag.
    SlotVouch = "slot_vouch";
    /// Puts live attempts back, and ends a rebuild.
    SlotRestore = "slot_restore";
    /// Holds submits back.
    NotBefore = "not_before";
    /// Takes in how a submit to an account went.
    BreakerNote = "lib_clock" "breaker_note";
    /// Writes or prolongs leases.
    LeasePut = "lease_put";
    /// Removes leases.
    LeaseDrop = "lib_many" "lease_drop";
    /// Adds tasks to a ready queue.
    ReadyAdd = "lib_ready" "ready_add";
    /// Takes those whose turn it is.
    ReadyPop = "lib_ready" "lib_many" "ready_pop";
    /// Returns them.
    ReadyPutBack = "lib_ready" "ready_put_back";
    /// Wakes parked users and tenants.
    ReadyWake = "lib_ready" "ready_wake";
    /// Forgets tasks.
    ReadyRemove = "lib_ready" "lib_many" "ready_remove";
    /// How many turns away a task is.
    ReadyPosition = "lib_ready" "ready_position";
    /// Takes in how long jobs took.
    ServiceLearn = "service_learn";
    /// Sets a snapshot unless a newer one is there.
    SnapshotSet = "snapshot_set";
    /// Sets progress if it is later.
    ProgressSet = "progress_set";
    /// Prolongs or releases a lock.
    LockExtend = "lock_extend";
    /// Appends changes to a stream and publishes them.
    ChangeAppend = "change_append";
}

static HASHES: LazyLock<Vec<String>> = LazyLock::new(|| {
    Script::ALL.iter().map(|script| redis::Script::new(script.source()).get_hash().to_owned()).collect()
});

impl Script {
    /// Starts a call: the keys first, the arguments by [`Call::arg`].
    pub(crate) fn on<K: ToRedisArgs>(self, keys: &[K]) -> Call {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(HASHES[self as usize].as_str()).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        Call(command)
    }
}

/// A script with its keys and arguments, or a plain command.
#[derive(Debug, Clone)]
pub(crate) struct Call(Cmd);

impl Call {
    /// Adds an argument.
    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.0.arg(argument);
        self
    }

    /// The command as it goes over the wire.
    pub(crate) fn command(&self) -> Cmd {
        self.0.clone()
    }
}

impl From<Cmd> for Call {
    fn from(command: Cmd) -> Self {
        Self(command)
    }
}

/// Loads all scripts, once for however many callers found them gone.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    generation: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl Loader {
    /// How often the scripts were loaded. Read it before the pipeline that may find them gone.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Loads the scripts, unless somebody did since `seen`.
    pub(crate) async fn load(
        &self,
        seen: u64,
        send: impl AsyncFnOnce(Vec<Cmd>) -> Result<Vec<Value>, ControlError>,
    ) -> Result<(), ControlError> {
        let _turn = self.turn.lock().await;
        if self.generation() != seen {
            return Ok(());
        }
        let commands = Script::ALL.iter().map(|script| {
            let mut load = Cmd::new();
            load.arg("SCRIPT").arg("LOAD").arg(script.source());
            load
        });
        for answer in send(commands.collect()).await? {
            if let Value::ServerError(error) = answer {
                return Err(ControlError::from_code(error.code(), error.details().unwrap_or_default()));
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_opens_with_its_keys_and_its_reply() {
        for script in Script::ALL {
            let source = script.source();
            for word in ["-- KEYS[1", "-- Reply"] {
                assert!(source.contains(word), "{script:?} does not say {word}");
            }
        }
    }
}
