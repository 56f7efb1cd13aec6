//! The mock provider's callbacks: a job as its API shows it, signed after the Standard Webhooks convention.

use async_trait::async_trait;
use domain::{
    callback::{CallbackNews, CallbackRejection, CallbackVerdict, RawCallback},
    clock::SharedClock,
};
use http::Method;

use super::JobBody;
use crate::{
    callbacks::CallbackReader,
    classify,
    provider::Observation,
    standard_webhooks::{SigningSecret, verified_id},
};

/// Reads the callbacks of one account at a mock provider.
pub struct MockCallbacks {
    /// What the provider signs with: the secret in use, and the one before it while it is being changed.
    secrets: Vec<SigningSecret>,
    clock: SharedClock,
}

impl MockCallbacks {
    /// A reader that believes what one of these secrets has signed. Without a secret it believes nothing.
    #[must_use]
    pub fn new(secrets: Vec<SigningSecret>, clock: SharedClock) -> Self {
        Self { secrets, clock }
    }

    fn verdict(&self, callback: RawCallback<'_>) -> Result<CallbackVerdict, CallbackRejection> {
        if self.secrets.is_empty() || *callback.method != Method::POST {
            return Err(CallbackRejection::NotExpected);
        }
        let delivery = verified_id(&self.secrets, callback.headers, callback.body, self.clock.now())?;
        let body: JobBody =
            serde_json::from_slice(callback.body).map_err(|_| CallbackRejection::Unreadable)?;
        let job = body.handle().map_err(|_| CallbackRejection::Unreadable)?;
        let says_ended = body.observation().is_ok_and(|seen: Observation| seen.is_through());
        let news = CallbackNews {
            delivery: delivery.to_owned(),
            kind: classify::kept_text(&body.status),
            says_ended,
        };
        Ok(CallbackVerdict::Event { news, job })
    }
}

#[async_trait]
impl CallbackReader for MockCallbacks {
    async fn read(&self, callback: RawCallback<'_>) -> CallbackVerdict {
        self.verdict(callback).unwrap_or_else(CallbackVerdict::Reject)
    }
}
