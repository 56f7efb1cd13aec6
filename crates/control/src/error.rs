//! What can go wrong between us and Redis, by what a caller must do about it.
//!
//! The one distinction that matters most: [`ControlError::Unknown`] means that the command may have run. Whoever
//! sees it repeats only what is idempotent. Every other variant says that nothing was changed.

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Redis could not be reached, or its breaker is open; the command was not sent.
    #[error("Redis is not reachable")]
    Unavailable,
    /// The answer did not come in time or the connection broke: the command may have run.
    #[error("Redis did not answer in time")]
    Unknown,
    /// More callers wait than the bound of the gatherer.
    #[error("too many commands wait for Redis")]
    Overloaded,
    /// `maxmemory` is reached and nothing may be evicted. For control this means that control is gone.
    #[error("Redis is out of memory")]
    OutOfMemory,
    /// The server became a replica.
    #[error("Redis is read-only")]
    ReadOnly,
    /// The server still loads its data.
    #[error("Redis is loading its data")]
    Loading,
    /// The server refuses writes because it cannot persist them.
    #[error("Redis cannot persist and refuses writes")]
    Misconfigured,
    /// The key lives on, or moves to, another node.
    #[error("the key has moved to another Redis node")]
    Moved,
    /// An answer that should not exist: a fault in a script, or a key of another form under our name.
    #[error("unexpected answer from Redis: {0}")]
    Protocol(String),
}

impl ControlError {
    /// Whether the command may have run although it failed.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether the server answers but is of no use as a whole: it takes no writes, or not those of this keyspace.
    /// Its breaker opens at once.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::OutOfMemory | Self::ReadOnly | Self::Loading | Self::Misconfigured | Self::Moved)
    }

    /// A short fixed word for logs and metric labels.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Overloaded => "overloaded",
            Self::OutOfMemory => "out_of_memory",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::Misconfigured => "misconfigured",
            Self::Moved => "moved",
            Self::Protocol(_) => "protocol",
        }
    }
}

impl From<redis::RedisError> for ControlError {
    fn from(error: redis::RedisError) -> Self {
        if let Some(code) = error.code() {
            return Self::from_code(code, error.detail().unwrap_or_default());
        }
        if error.is_connection_refusal() {
            return Self::Unavailable;
        }
        if error.is_timeout() || error.is_io_error() || error.is_connection_dropped() {
            return Self::Unknown;
        }
        Self::Protocol(error.to_string())
    }
}

impl ControlError {
    /// From the first word of an error reply.
    pub(crate) fn from_code(code: &str, detail: &str) -> Self {
        match code {
            "OOM" => Self::OutOfMemory,
            "READONLY" => Self::ReadOnly,
            "LOADING" | "BUSY" | "MASTERDOWN" => Self::Loading,
            "MISCONF" | "NOREPLICAS" => Self::Misconfigured,
            "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => Self::Moved,
            // Redis wraps the error of a command that a script called; the first word of the text tells which.
            "ERR" if detail.contains("OOM command not allowed") => Self::OutOfMemory,
            "ERR" if detail.contains("READONLY ") => Self::ReadOnly,
            "ERR" if detail.contains("MISCONF ") => Self::Misconfigured,
            _ => Self::Protocol(format!("{code} {detail}")),
        }
    }
}
