//! A request body that knows whether it was asked for.
//!
//! The HTTP client asks for the first byte of the body only once a connection stands and the head is composed. A
//! request whose body was never handed over cannot have been understood by anybody, however its sending ended. The
//! two sides agree through one atomic: either the client takes the body first, and then the request may have been
//! sent; or the caller, giving up, revokes it first, and then it can never be sent, not even a moment later.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::Sent;

/// Asked directly before the request is written; `false` keeps it from being sent. Must not block.
///
/// This is where an owner compares its clock with its lease: after connecting, which can take seconds, and before
/// anything that the other side could act on.
#[derive(Clone)]
pub struct SendGuard(Arc<dyn Fn() -> bool + Send + Sync>);

impl SendGuard {
    /// A guard that asks the closure.
    pub fn new(may_send: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_send))
    }

    /// A guard that never objects.
    #[must_use]
    pub fn open() -> Self {
        Self::new(|| true)
    }

    pub(crate) fn may_send(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for SendGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendGuard")
    }
}

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const REVOKED: u8 = 2;
const HELD_BACK: u8 = 3;

/// How sending ended, as the body knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Never asked for, and never to be sent now.
    Revoked,
    HeldBack,
    Taken,
}

/// The caller's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark(Arc<AtomicU8>);

impl Mark {
    fn settle(&self, wanted: u8) -> u8 {
        match self.0.compare_exchange(WAITING, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => wanted,
            Err(earlier) => earlier,
        }
    }

    /// Gives the request up and says how it had stood.
    pub(crate) fn revoke(&self) -> Fate {
        match self.settle(REVOKED) {
            TAKEN => Fate::Taken,
            HELD_BACK => Fate::HeldBack,
            _ => Fate::Revoked,
        }
    }
}

impl Fate {
    pub(crate) const fn sent(self) -> Sent {
        match self {
            Self::Revoked | Self::HeldBack => Sent::NotSent,
            Self::Taken => Sent::MaybeSent,
        }
    }
}

/// The client's end.
pub(crate) struct MarkedBody {
    bytes: Option<Bytes>,
    guard: SendGuard,
    mark: Mark,
}

impl MarkedBody {
    pub(crate) fn new(bytes: Bytes, guard: SendGuard) -> (Self, Mark) {
        let mark = Mark::default();
        (Self { bytes: Some(bytes), guard, mark: mark.clone() }, mark)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the request is not to be sent any more")]
pub(crate) struct NotToBeSent;

impl Body for MarkedBody {
    type Data = Bytes;
    type Error = NotToBeSent;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NotToBeSent>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        let wanted = if self.guard.may_send() { TAKEN } else { HELD_BACK };
        match self.mark.settle(wanted) {
            TAKEN => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            _ => Poll::Ready(Some(Err(NotToBeSent))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
