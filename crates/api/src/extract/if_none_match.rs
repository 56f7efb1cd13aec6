//! What the client has already: the tags of `If-None-Match`.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderValue, header, request::Parts};

/// The tags of answers that the client has.
#[derive(Debug)]
pub(crate) struct IfNoneMatch(Vec<HeaderValue>);

impl IfNoneMatch {
    /// Takes the tags from a request's headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get_all(header::IF_NONE_MATCH).iter().cloned().collect())
    }

    /// Whether the client has this very answer. Weak comparison, as RFC 9110 wants it for If-None-Match.
    pub(crate) fn has(&self, etag: &HeaderValue) -> bool {
        let ours = etag.to_str().unwrap_or_default().trim_start_matches("W/");
        self.0
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == ours)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_listed_tag_will_do() {
        let etag = HeaderValue::from_static("W/\"3-x-x-00\"");
        let has = |values: &[&'static str]| {
            let named = |value: &&'static str| (header::IF_NONE_MATCH, HeaderValue::from_static(value));
            IfNoneMatch::of(&values.iter().map(named).collect()).has(&etag)
        };
        assert!(
            has(&["W/\"3-x-x-00\""])
                && has(&["\"3-x-x-00\""])
                && has(&["\"a\", W/\"3-x-x-00\""])
                && has(&["*"])
        );
        assert!(!has(&["W/\"3-x-x-01\""]) && !has(&[""]) && !has(&[]));
    }
}
