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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use domain::{clock::SystemClock, task::JobHandle};

    use super::*;
    use crate::standard_webhooks::signed;

    fn secret(text: &str) -> SigningSecret {
        SigningSecret::parse(text).expect("a secret")
    }

    const OLD: &str = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk";
    const NEW: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";

    /// What a reader with these secrets makes of a body that was signed with another a moment ago.
    async fn read(secrets: &[&str], signer: &str, body: &'static str, method: Method) -> CallbackVerdict {
        let clock: SharedClock = Arc::new(SystemClock);
        let headers = signed(&secret(signer), "msg_1", clock.now().timestamp(), body.as_bytes());
        let reader = MockCallbacks::new(secrets.iter().map(|text| secret(text)).collect(), clock);
        let body = Bytes::from_static(body.as_bytes());
        let raw = RawCallback { method: &method, path: "/x", query: None, headers: &headers, body: &body };
        reader.read(raw).await
    }

    #[tokio::test]
    async fn a_signed_job_is_news_about_it() {
        for (body, kind, says_ended) in [
            (r#"{"id":"job_1","status":"running","progress":40}"#, "running", false),
            (r#"{"id":"job_1","status":"succeeded","output_url":"http://x/o"}"#, "succeeded", true),
            (r#"{"id":"job_1","status":"failed"}"#, "failed", true),
            (r#"{"id":"job_1","status":"canceled"}"#, "canceled", true),
            (r#"{"id":"job_1","status":"warming_up"}"#, "warming_up", false),
        ] {
            let news = CallbackNews { delivery: "msg_1".into(), kind: kind.into(), says_ended };
            let event = CallbackVerdict::Event { news, job: JobHandle::new("job_1") };
            assert_eq!(read(&[NEW], NEW, body, Method::POST).await, event);
        }
    }

    #[tokio::test]
    async fn while_a_secret_is_changed_both_are_good_and_without_one_nothing_is() {
        const BODY: &str = r#"{"id":"job_1","status":"running"}"#;
        for (secrets, signer, why) in [
            (&[NEW, OLD][..], OLD, None),
            (&[NEW, OLD], NEW, None),
            (&[NEW], OLD, Some(CallbackRejection::Forged)),
            (&[], NEW, Some(CallbackRejection::NotExpected)),
        ] {
            let verdict = read(secrets, signer, BODY, Method::POST).await;
            match why {
                None => assert!(matches!(verdict, CallbackVerdict::Event { .. }), "{verdict:?}"),
                Some(why) => assert_eq!(verdict, CallbackVerdict::Reject(why)),
            }
        }
        let got = read(&[NEW], NEW, BODY, Method::GET).await;
        assert_eq!(got, CallbackVerdict::Reject(CallbackRejection::NotExpected));
        for body in ["", "[]", r#"{"id":"../x","status":"running"}"#] {
            let verdict = read(&[NEW], NEW, body, Method::POST).await;
            assert_eq!(verdict, CallbackVerdict::Reject(CallbackRejection::Unreadable), "{body}");
        }
    }
}
