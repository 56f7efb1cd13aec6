//! Limits that this process keeps by itself, and the headers that tell of every limit.
//!
//! Submits are counted in Redis and PostgreSQL by the admission; what lies here is cheap and local: the address
//! limit in front of everything, the bucket of wrong credentials, and the read bucket of each key.

pub(crate) mod failed_auth;
pub(crate) mod ip;
pub(crate) mod reads;

use std::{borrow::Cow, fmt::Write as _};

use http::{HeaderMap, HeaderName, HeaderValue};

/// `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy` of the same draft.
pub(crate) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// One limit and where the caller stands with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitLine {
    /// The policy's name: letters, digits, `-`, `_`, `:` and `.` only.
    pub(crate) policy: Cow<'static, str>,
    /// Requests per window.
    pub(crate) quota: u64,
    /// The window in whole seconds.
    pub(crate) window_seconds: u64,
    /// Requests left.
    pub(crate) remaining: u64,
    /// Whole seconds until all of the quota is there again.
    pub(crate) reset_seconds: u64,
}

/// Every limit that a request was counted by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LimitLines(pub(crate) Vec<LimitLine>);

impl LimitLines {
    /// Adds both headers, or nothing when no limit was asked.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        let mut policy = String::with_capacity(32 * self.0.len());
        let mut state = String::with_capacity(32 * self.0.len());
        for line in &self.0 {
            let comma = if policy.is_empty() { "" } else { ", " };
            let LimitLine { policy: name, quota, window_seconds, remaining, reset_seconds } = line;
            // Writing to a string cannot fail.
            let _ = write!(policy, "{comma}\"{name}\";q={quota};w={window_seconds}");
            let _ = write!(state, "{comma}\"{name}\";r={remaining};t={reset_seconds}");
        }
        for (name, text) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, state)] {
            if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(text)) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_are_lists_of_named_items() {
        let line = |policy: &'static str, quota| LimitLine {
            policy: policy.into(),
            quota,
            window_seconds: 60,
            remaining: quota - 1,
            reset_seconds: 12,
        };
        let mut headers = HeaderMap::new();
        LimitLines(vec![line("user", 5), line("tenant", 50)]).write(&mut headers);
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"user\";q=5;w=60, \"tenant\";q=50;w=60");
        assert_eq!(headers[RATE_LIMIT], "\"user\";r=4;t=12, \"tenant\";r=49;t=12");
    }

    #[test]
    fn a_request_that_no_limit_counts_has_no_headers() {
        let mut headers = HeaderMap::new();
        LimitLines::default().write(&mut headers);
        assert!(headers.is_empty());
    }
}
