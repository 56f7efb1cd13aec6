//! From what a provider says to what it means.
//!
//! A status alone is not enough: 429 can be a rate, a full account or an empty one, and billing hides behind 400,
//! 402, 403 and 429. So a code in the body, where the adapter knows it, comes first and the status second.

use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::failure::FailureClass;
use fetch::{FetchError, Response, Sent, TimeLimit};
use http::{HeaderMap, StatusCode, header};

use crate::{
    capabilities::ProviderLimits,
    provider::{NotSent, SubmitOutcome, Unclear},
};

/// The longest text of a provider that is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 500;

/// The class of a refusal by its status alone.
#[must_use]
pub fn class_of_status(status: StatusCode) -> FailureClass {
    match status.as_u16() {
        400 | 405 | 406 | 409 | 411 | 413..=417 | 422 => FailureClass::InvalidInput,
        401 | 403 | 407 => FailureClass::ProviderAuth,
        402 => FailureClass::ProviderCredit,
        404 => FailureClass::NotFound,
        410 => FailureClass::ModelGone,
        429 => FailureClass::RateLimited,
        451 => FailureClass::RegionBlocked,
        503 | 529 => FailureClass::Overloaded,
        500..=599 => FailureClass::ProviderInternal,
        _ => FailureClass::Unknown,
    }
}

/// The class of a refusal: the body's code, where the adapter recognises it, else the status.
#[must_use]
pub fn class_of(status: StatusCode, code: Option<FailureClass>) -> FailureClass {
    code.filter(|class| *class != FailureClass::Unknown).unwrap_or_else(|| class_of_status(status))
}

/// What an answer without success means for a submit.
///
/// A 4xx is a refusal. A 5xx is one only when the provider itself says, by a code that it uses for nothing else,
/// that it takes nothing on at the moment; any other may come from a proxy behind which the job was made, and so
/// may a redirect and the 4xx that speak of time.
#[must_use]
pub fn refused_submit(
    status: StatusCode,
    code: Option<FailureClass>,
    retry_after: Option<Duration>,
    message: String,
) -> SubmitOutcome {
    let class = class_of(status, code);
    let turned_away = matches!(
        code,
        Some(FailureClass::Overloaded | FailureClass::RateLimited | FailureClass::ConcurrencyFull)
    );
    let certain = match status.as_u16() {
        408 | 425 | 499 => false,
        400..=498 => true,
        500..=599 => turned_away,
        _ => false,
    };
    if !certain {
        return SubmitOutcome::Unknown { message };
    }
    // There is no job to be unknown yet: a 404 to a submit speaks of the model or the path.
    let class = if class == FailureClass::NotFound { FailureClass::ModelGone } else { class };
    if class.is_retryable() {
        SubmitOutcome::RejectedRetryable { class, retry_after, message }
    } else {
        SubmitOutcome::RejectedFinal { class, message }
    }
}

/// What a submit that failed on its way means.
#[must_use]
pub fn failed_submit(error: &FetchError) -> SubmitOutcome {
    let message = chain(error);
    let why = match error {
        FetchError::HeldBack => NotSent::HeldBack,
        FetchError::Blocked(_) => NotSent::Blocked,
        error if error.sent() == Sent::NotSent => NotSent::Unreachable,
        _ => return SubmitOutcome::Unknown { message },
    };
    SubmitOutcome::NotSent { why, message }
}

/// What any other call that failed on its way means: nothing about the job.
#[must_use]
pub fn failed_call(error: &FetchError) -> Unclear {
    let class = match error {
        FetchError::TimedOut { limit: TimeLimit::Total | TimeLimit::Idle, .. } => FailureClass::Overloaded,
        _ => FailureClass::ProviderInternal,
    };
    Unclear { class, retry_after: None, message: chain(error) }
}

/// What any other call answered without success means, once its adapter has taken out the cases it knows.
#[must_use]
pub fn refused_call(
    status: StatusCode,
    code: Option<FailureClass>,
    retry_after: Option<Duration>,
    message: String,
) -> Unclear {
    Unclear { class: class_of(status, code), retry_after, message }
}

/// The pause that an answer asks for, within the limits. A 429 always asks for one, others by `Retry-After` only;
/// nonsense, zero and the past count as the shortest, decades as the longest.
#[must_use]
pub fn retry_after(answer: &Response, limits: &ProviderLimits, now: DateTime<Utc>) -> Option<Duration> {
    let asked = answer.headers.get(header::RETRY_AFTER);
    if asked.is_none() && answer.status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let pause = pause_of(&answer.headers, now).unwrap_or_default();
    Some(pause.clamp(limits.retry_after_min, limits.retry_after_max))
}

/// A `Retry-After` as it stands there, in whole seconds or as a date; `None` when it is neither.
fn pause_of(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        // Beyond what a duration holds is beyond every limit as well; NaN and the negative are no pause.
        return if seconds > 0.0 {
            Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
        } else {
            None
        };
    }
    let until = DateTime::parse_from_rfc2822(text).ok()?;
    (until.to_utc() - now).to_std().ok()
}

/// A provider's text, without control characters and of bounded length.
#[must_use]
pub fn kept_text(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if kept.len() + c.len_utf8() > MESSAGE_BYTES_MAX {
            break;
        }
        kept.push(c);
    }
    kept
}

/// An error with its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    kept_text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeZone;

    fn pause(status: u16, value: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::RETRY_AFTER, value.parse().expect("header"));
        }
        let status = StatusCode::from_u16(status).expect("status");
        let answer = Response { status, headers, body: bytes::Bytes::new() };
        let now = Utc.with_ymd_and_hms(2026, 11, 29, 12, 0, 0).single().expect("instant");
        retry_after(&answer, &ProviderLimits::default(), now).map(|pause| pause.as_secs())
    }

    #[test]
    fn a_retry_after_that_lies_is_bounded() {
        for odd in ["0", "-5", "abc", "", "NaN", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(pause(429, Some(odd)), Some(1), "{odd}");
        }
        for long in ["61", "1e400", "99999999999999999999", "inf", "Wed, 21 Oct 2065 07:28:00 GMT"] {
            assert_eq!(pause(429, Some(long)), Some(60), "{long}");
        }
        assert_eq!(pause(429, Some("7")), Some(7));
        assert_eq!(pause(503, Some("Sun, 29 Nov 2026 12:00:30 GMT")), Some(30));
        assert_eq!((pause(429, None), pause(503, None)), (Some(1), None));
    }

    fn submit(status: u16, code: Option<FailureClass>) -> SubmitOutcome {
        refused_submit(StatusCode::from_u16(status).expect("status"), code, None, String::new())
    }

    #[test]
    fn a_submit_is_refused_only_where_that_is_certain() {
        use FailureClass as C;
        let unknown = SubmitOutcome::Unknown { message: String::new() };
        for status in [302, 408, 500, 502, 503, 504, 599] {
            assert_eq!(submit(status, None), unknown, "{status}");
        }
        assert_eq!(submit(500, Some(C::ProviderInternal)), unknown);
        let retryable =
            |class| SubmitOutcome::RejectedRetryable { class, retry_after: None, message: String::new() };
        assert_eq!(submit(503, Some(C::Overloaded)), retryable(C::Overloaded));
        assert_eq!(submit(429, None), retryable(C::RateLimited));
        assert_eq!(submit(429, Some(C::ConcurrencyFull)), retryable(C::ConcurrencyFull));
        let refused = |class| SubmitOutcome::RejectedFinal { class, message: String::new() };
        assert_eq!(submit(429, Some(C::ProviderCredit)), refused(C::ProviderCredit), "billing behind a 429");
        assert_eq!(submit(400, Some(C::ModeratedInput)), refused(C::ModeratedInput));
        assert_eq!(submit(401, None), refused(C::ProviderAuth));
        assert_eq!(submit(404, None), refused(C::ModelGone));
        assert_eq!(
            submit(418, None),
            retryable(C::Unknown),
            "certainly no job, so a bounded retry does no harm"
        );
        assert_eq!(
            submit(422, Some(C::Unknown)),
            refused(C::InvalidInput),
            "an unknown code leaves the status"
        );
    }

    #[test]
    fn kept_texts_are_short_and_harmless() {
        assert_eq!(kept_text("a\r\nb\0c"), "a  b c");
        let long = kept_text(&"é".repeat(1_000));
        assert!(long.len() <= MESSAGE_BYTES_MAX && long.chars().all(|c| c == 'é'));
    }
}
