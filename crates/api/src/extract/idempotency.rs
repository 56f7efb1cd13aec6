//! The Idempotency-Key header.

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderName, request::Parts};

use crate::problem::Problem;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const LENGTH_MAX: usize = 255;

/// The key that makes a write repeatable, if the client sent one: 1 to 255 visible ASCII characters, in quotes or
/// not (both spellings are the same key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parse(&parts.headers).map(Self)
    }
}

fn parse(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bad = || Problem::malformed("Idempotency-Key must be 1 to 255 visible ASCII characters, given once.");
    if values.next().is_some() {
        return Err(bad());
    }
    let text = value.to_str().map_err(|_| bad())?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => unquote(rest.strip_suffix('"').ok_or_else(bad)?).ok_or_else(bad)?,
        None => text.to_owned(),
    };
    let legal = (1..=LENGTH_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if legal { Ok(Some(key)) } else { Err(bad()) }
}

/// The content of a quoted string of RFC 9651, where only `\"` and `\\` are escapes.
fn unquote(inner: &str) -> Option<String> {
    let mut key = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => key.push(chars.next().filter(|next| matches!(next, '"' | '\\'))?),
            '"' => return None,
            other => key.push(other),
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key(values: &[&[u8]]) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        parse(&headers)
    }

    #[test]
    fn quoted_or_not_it_is_the_same_key() {
        assert_eq!(key(&[]).unwrap(), None);
        assert_eq!(key(&[b"abc"]).unwrap().as_deref(), Some("abc"));
        assert_eq!(key(&[b"\"abc\""]).unwrap().as_deref(), Some("abc"));
        assert_eq!(key(&[br#""a\"b\\c""#]).unwrap().as_deref(), Some("a\"b\\c"));
        assert_eq!(key(&["x".repeat(255).as_bytes()]).unwrap().map(|key| key.len()), Some(255));
    }

    #[test]
    fn anything_else_is_a_malformed_header() {
        let long = "x".repeat(256);
        for bad in [
            &[b"".as_slice()][..],
            &[b"\"\""],
            &[b"a b"],
            &[b"\"open"],
            &[b"\"a\"b\""],
            &[br#""a\b""#],
            &["é".as_bytes()],
            &[long.as_bytes()],
            &[b"a", b"b"],
        ] {
            assert_eq!(key(bad).unwrap_err().code(), crate::problem::Code::MalformedRequest, "{bad:?}");
        }
    }
}
