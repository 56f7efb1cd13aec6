//! The Idempotency-Key header.

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderName, request::Parts};

use crate::problem::Problem;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The key that makes a write repeatable, if the client sent one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(pub(crate) Option<tenancy::idempotency::IdempotencyKey>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parse(&parts.headers).map(Self)
    }
}

/// The key of these headers.
pub(crate) fn parse(headers: &HeaderMap) -> Result<Option<tenancy::idempotency::IdempotencyKey>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::malformed("Idempotency-Key may be given only once."));
    }
    let key = tenancy::idempotency::IdempotencyKey::parse(value.as_bytes());
    key.map(Some).map_err(|malformed| Problem::malformed(format!("{malformed}.")))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::problem::Code;

    #[test]
    fn one_well_formed_key_or_none() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, HeaderValue::from_static(value));
            }
            parse(&headers)
                .map(|key| key.map(|key| key.as_str().to_owned()))
                .map_err(|problem| problem.code())
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["\"abc\""]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&["a b"]), Err(Code::MalformedRequest));
        assert_eq!(read(&["a", "b"]), Err(Code::MalformedRequest));
    }
}
