//! The one guarded HTTP client: every request to an address that came from outside leaves through it.
//!
//! A product's user names an image, a customer names a webhook, a provider names the address of its video; each of
//! them could name our own database instead. So an address is checked in every form in which it can be written, the
//! connection goes to the very address that was checked, redirects are followed only where a caller allows them and
//! are checked anew, and no answer may be larger or slower than the caller's limits.
//!
//! It also answers the question on which money hangs when a request fails: [`FetchError::sent`] says whether the
//! other side can have seen it. The answer does not come from guessing at error texts but from the request's body,
//! which notes whether it was ever asked for (see [`SendGuard`] for the check at the same place).

mod address;
mod body;
mod client;
mod download;
mod error;
mod guard;
#[cfg(test)]
mod tests;

pub use address::is_public;
pub use body::SendGuard;
pub use client::{Fetch, FetchConfig, Limits, NewFetchError, Request, Response};
pub use download::Download;
pub use error::{Blocked, FetchError, Sent, TimeLimit};
