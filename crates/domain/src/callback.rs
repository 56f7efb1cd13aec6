//! What a provider's callback says once somebody who knows the provider has read it.
//!
//! Providers sign in different ways, or not at all, and spell the same news differently. Only an adapter knows. The HTTP
//! side, which must not know any provider, holds a [`CallbackVerifier`] that app puts together. A callback is never
//! believed to the point of moving a task: whatever it says, the owner of the attempt asks the provider.

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::{
    ids::{AttemptRef, ProviderAccountId},
    task::state::JobHandle,
};

/// A request as it came in. Signatures cover bytes, so nothing of it has been parsed or changed.
#[derive(Debug, Clone, Copy)]
pub struct RawCallback<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path as the provider called it.
    pub path: &'a str,
    /// The query, without the question mark.
    pub query: Option<&'a str>,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a Bytes,
}

/// Whose callbacks arrive at an address that we gave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackAddress {
    /// The account at the provider.
    pub account: ProviderAccountId,
    /// The attempt for which the address was made.
    pub attempt: AttemptRef,
}

/// News about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackNews {
    /// The provider's name of this delivery, the same for every repetition of it.
    pub delivery: String,
    /// The provider's word for what happened.
    pub kind: String,
    /// Whether that means the end of the job.
    pub says_ended: bool,
}

/// What a callback is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackVerdict {
    /// Signed by the provider, body included.
    Event {
        /// What it says.
        news: CallbackNews,
        /// The job that it speaks of.
        job: JobHandle,
    },
    /// Not, or not wholly, signed: a reason to look, and nothing else.
    Hint(CallbackNews),
    /// The provider only wants to know whether somebody is there.
    Handshake {
        /// The type of the answer.
        content_type: &'static str,
        /// What it expects to hear.
        body: Bytes,
    },
    /// Not from the provider, or too old.
    Reject(CallbackRejection),
}

/// Why a callback is rejected. For the log: the sender learns only that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackRejection {
    /// The account's provider sends none, or we have nothing to check its signature with.
    #[error("this account takes no callbacks")]
    NotExpected,
    /// A header of the signature is missing or cannot be one.
    #[error("the signature is missing or malformed")]
    Unsigned,
    /// Signed too long ago, or in the future.
    #[error("the signature's time is too far from now")]
    Stale,
    /// The signature is somebody else's, or the request was changed.
    #[error("the signature does not fit")]
    Forged,
    /// Signed by the provider, and yet nothing that this adapter can read.
    #[error("the signed body makes no sense")]
    Unreadable,
}

/// Reads callbacks of every account of this process.
#[async_trait]
pub trait CallbackVerifier: Send + Sync + 'static {
    /// Whose address this is, by the two segments of its path; none when we never gave it out. Reads neither headers
    /// nor body and asks nobody, so it may be called for whoever comes.
    fn address(&self, account: &str, token: &str) -> Option<CallbackAddress>;

    /// What a request to such an address is worth.
    async fn verify(&self, address: &CallbackAddress, callback: RawCallback<'_>) -> CallbackVerdict;
}
