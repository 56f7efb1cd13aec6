//! Signatures after the Standard Webhooks convention, which several providers share.
//!
//! The MAC covers the delivery's id, its time and the raw body, so none of them can be changed, and a captured delivery
//! is worth nothing after [`TOLERANCE`]. Several signatures may stand side by side, and several secrets may be good at
//! the same time: that is how a secret is changed.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use domain::callback::CallbackRejection;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;

/// How far the time of a signature may be from now, in either direction.
pub const TOLERANCE: Duration = Duration::from_secs(300);
/// The longest id of a delivery.
const ID_BYTES_MAX: usize = 255;
/// Signatures in one header that are looked at.
const SIGNATURES_MAX: usize = 8;
/// The shortest key in bytes.
const KEY_BYTES_MIN: usize = 24;

/// A secret that signs deliveries. Its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

/// A text that is no secret of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be base64 of at least {KEY_BYTES_MIN} random bytes, `whsec_` in front of it or not")]
pub struct BadSecret;

impl SigningSecret {
    /// Reads a secret as providers show it: base64, with or without `whsec_` in front.
    ///
    /// # Errors
    /// When it is anything else, or too short to be one.
    pub fn parse(text: &str) -> Result<Self, BadSecret> {
        let key = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).map_err(|_| BadSecret)?;
        if key.len() < KEY_BYTES_MIN { Err(BadSecret) } else { Ok(Self(key)) }
    }

    fn mac(&self, id: &str, seconds: i64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(body);
        mac
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

/// The id of a delivery that one of the secrets has signed at about `now`.
///
/// # Errors
/// Why it is not to be believed. Nothing that a sender can write makes this panic.
pub fn verified_id<'a>(
    secrets: &[SigningSecret],
    headers: &'a HeaderMap,
    body: &[u8],
    now: DateTime<Utc>,
) -> Result<&'a str, CallbackRejection> {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let value = values.next().and_then(|value: &HeaderValue| value.to_str().ok());
        value.filter(|_| values.next().is_none()).ok_or(CallbackRejection::Unsigned)
    };
    let (id, time, signatures) = (one("webhook-id")?, one("webhook-timestamp")?, one("webhook-signature")?);
    let is_id = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    let seconds = time.parse::<i64>().ok().filter(|seconds| is_id && seconds.to_string() == time);
    let seconds = seconds.ok_or(CallbackRejection::Unsigned)?;
    if now.timestamp().abs_diff(seconds) > TOLERANCE.as_secs() {
        return Err(CallbackRejection::Stale);
    }
    let given: Vec<Vec<u8>> = signatures
        .split(' ')
        .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
        .take(SIGNATURES_MAX)
        .collect();
    if given.is_empty() {
        return Err(CallbackRejection::Unsigned);
    }
    let fits = |secret: &SigningSecret| {
        let mac = secret.mac(id, seconds, body);
        given.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    };
    if secrets.iter().any(fits) { Ok(id) } else { Err(CallbackRejection::Forged) }
}

/// The headers of a delivery as a provider would sign it.
#[cfg(test)]
pub(crate) fn signed(secret: &SigningSecret, id: &str, seconds: i64, body: &[u8]) -> HeaderMap {
    let signature = STANDARD.encode(secret.mac(id, seconds, body).finalize().into_bytes());
    let value = |text: String| HeaderValue::try_from(text).expect("a header");
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", value(id.to_owned()));
    headers.insert("webhook-timestamp", value(seconds.to_string()));
    headers.insert("webhook-signature", value(format!("v1,{signature}")));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector that a provider publishes.
    const SECRET: &str = "whsec_dGVzdHNlY3JldHRlc3RzZWNyZXR0ZXN0c2VjcmV0MTI=";
    const ID: &str = "9876543210";
    const TIME: i64 = 1_781_080_794;
    const BODY: &[u8] = br#"{"id":"1234567890","status":"succeeded","message":"","create_time":1781080778802,"update_time":1781080794151}"#;
    const SIGNATURE: &str = "v1,UsKlJP00XoQyOn410NM9xv34sP+Gl0jnOO9Lcpr7NJ4=";

    fn headers(id: &str, time: &str, signature: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_str(id).expect("a header"));
        headers.insert("webhook-timestamp", HeaderValue::from_str(time).expect("a header"));
        headers.insert("webhook-signature", HeaderValue::from_bytes(signature).expect("a header"));
        headers
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).expect("a time")
    }

    fn check(headers: &HeaderMap, body: &[u8], now: i64) -> Result<String, CallbackRejection> {
        let secrets = [SigningSecret::parse(SECRET).expect("a secret")];
        verified_id(&secrets, headers, body, at(now)).map(ToOwned::to_owned)
    }

    #[test]
    fn the_published_vector_is_believed_for_five_minutes_either_way() {
        let signed = headers(ID, &TIME.to_string(), SIGNATURE.as_bytes());
        for now in [TIME, TIME + 300, TIME - 300] {
            assert_eq!(check(&signed, BODY, now), Ok(ID.to_owned()));
        }
        for now in [TIME + 301, TIME - 301, TIME + 600] {
            assert_eq!(check(&signed, BODY, now), Err(CallbackRejection::Stale));
        }
        let several = format!("v1a,AAAA v1,AAAA {SIGNATURE}");
        assert_eq!(check(&headers(ID, &TIME.to_string(), several.as_bytes()), BODY, TIME), Ok(ID.to_owned()));
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        let time = TIME.to_string();
        let forged = Err(CallbackRejection::Forged);
        let mut spaced = BODY.to_vec();
        spaced.insert(1, b' ');
        assert_eq!(check(&headers(ID, &time, SIGNATURE.as_bytes()), &spaced, TIME), forged);
        assert_eq!(check(&headers(ID, &(TIME + 1).to_string(), SIGNATURE.as_bytes()), BODY, TIME), forged);
        assert_eq!(check(&headers("9876543211", &time, SIGNATURE.as_bytes()), BODY, TIME), forged);
        let other = SigningSecret::parse(&format!("whsec_{}", STANDARD.encode([7; 32]))).expect("a secret");
        let signed = headers(ID, &time, SIGNATURE.as_bytes());
        assert_eq!(verified_id(&[other], &signed, BODY, at(TIME)), Err(CallbackRejection::Forged));
        assert_eq!(verified_id(&[], &signed, BODY, at(TIME)), Err(CallbackRejection::Forged));
    }

    #[test]
    fn what_cannot_be_a_signature_is_none() {
        let (time, unsigned) = (TIME.to_string(), Err(CallbackRejection::Unsigned));
        for signature in ["", "v1", "v1,", "v2,UsKl", "é", "v1,\u{fffd}"] {
            let got = check(&headers(ID, &time, signature.as_bytes()), BODY, TIME);
            assert!(
                matches!(got, Err(CallbackRejection::Unsigned | CallbackRejection::Forged)),
                "{signature}"
            );
        }
        for time in ["", "soon", "+1781080794", "99999999999999999999"] {
            assert_eq!(check(&headers(ID, time, SIGNATURE.as_bytes()), BODY, TIME), unsigned, "{time}");
        }
        assert_eq!(check(&headers(&"x".repeat(256), &time, SIGNATURE.as_bytes()), BODY, TIME), unsigned);
        assert_eq!(check(&HeaderMap::new(), BODY, TIME), unsigned);
        let mut twice = headers(ID, &time, SIGNATURE.as_bytes());
        twice.append("webhook-id", HeaderValue::from_static("another"));
        assert_eq!(check(&twice, BODY, TIME), unsigned);
    }

    #[test]
    fn a_secret_is_long_and_never_shown() {
        for bad in ["", "whsec_", "whsec_c2hvcnQ=", "not base64 at all, however long it may be"] {
            assert_eq!(SigningSecret::parse(bad), Err(BadSecret), "{bad}");
        }
        assert_eq!(format!("{:?}", SigningSecret::parse(SECRET)), "Ok(SigningSecret(..))");
    }
}
