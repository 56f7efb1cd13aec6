//! How a request can fail, and whether the other side can have seen it.

use std::net::IpAddr;

use http::StatusCode;

/// Whether a failed request can have reached the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not: repeating it does no harm.
    NotSent,
    /// It may have arrived and taken effect, or not.
    MaybeSent,
}

/// Why an address is refused without being tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// Not an absolute URL.
    #[error("not a usable URL")]
    Malformed,
    /// Neither http nor https.
    #[error("the scheme is not allowed")]
    Scheme,
    /// A name or a password in the URL.
    #[error("credentials in the URL are not allowed")]
    UserInfo,
    /// A port that is not on the list.
    #[error("port {0} is not allowed")]
    Port(u16),
    /// An address outside the public internet, written down or found by resolving a name.
    #[error("address {0} is not on the public internet")]
    Address(IpAddr),
    /// A redirect from outside to a private host, or from https to http.
    #[error("a redirect may not lead there")]
    Redirect,
}

/// Which limit a request ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// The whole request took too long.
    Total,
    /// Nothing arrived for too long.
    Idle,
}

/// What can go wrong with a request. `Display` stays one layer deep; the cause is the `source`.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is refused; nothing was sent there.
    #[error("blocked address")]
    Blocked(#[source] Blocked),
    /// The name does not resolve, nobody listens, or TLS could not be agreed on.
    #[error("cannot connect")]
    Unreachable(#[source] reqwest::Error),
    /// The caller's [`crate::SendGuard`] said no directly before the request would have been written.
    #[error("held back by the caller")]
    HeldBack,
    /// A limit passed.
    #[error("timed out ({limit:?})")]
    TimedOut {
        /// Which.
        limit: TimeLimit,
        /// Whether the request can have arrived.
        sent: Sent,
    },
    /// The connection broke, or what came back is not HTTP, or it ended before its announced length.
    #[error("the connection broke")]
    Broken {
        /// Whether the request can have arrived.
        sent: Sent,
        /// What the client library says.
        #[source]
        source: reqwest::Error,
    },
    /// The answer is larger than the caller's limit, in bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
    /// The answer is compressed although that was not asked for; it is not unpacked.
    #[error("the answer is encoded")]
    Encoded,
    /// A download was answered with something else than success.
    #[error("answered {status}")]
    Status {
        /// The answer's status.
        status: StatusCode,
        /// Its Retry-After, as it stands there.
        retry_after: Option<String>,
    },
    /// More redirects than the caller allows, or one without a place to go to.
    #[error("redirected")]
    Redirected,
}

impl FetchError {
    /// Whether the other side can have seen the request.
    #[must_use]
    pub const fn sent(&self) -> Sent {
        match self {
            Self::Blocked(_) | Self::Unreachable(_) | Self::HeldBack => Sent::NotSent,
            Self::TimedOut { sent, .. } | Self::Broken { sent, .. } => *sent,
            Self::TooLarge(_) | Self::Encoded | Self::Status { .. } | Self::Redirected => Sent::MaybeSent,
        }
    }
}
