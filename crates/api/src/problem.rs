//! Refusals as RFC 9457 problems: one body shape, one stable code each, one page per code.
//!
//! Which error belongs where: the crates below know nothing of HTTP and return small enums; [`from`] turns each of
//! them into a [`Problem`] by exhaustive matches, so a new variant makes the compiler ask what a client is told.
//! Turning a problem into a response has no side effects: it rides as a response extension, and the edge, which
//! knows the request's id, writes the body and logs the cause once. Causes never reach a client.

mod code;
pub(crate) mod from;
pub(crate) mod pages;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use domain::limits::{LimitScope, Reset};
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

pub use self::code::Code;
use crate::{limits::LimitLines, view::Millis};

/// What is wrong with one member or parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// The member, parameter or header, such as `duration_seconds`.
    pub(crate) field: String,
    /// What is wrong in one word, such as `required`, `unknown`, `duplicate`, `out_of_range`.
    pub(crate) code: Cow<'static, str>,
    /// What is wrong in a sentence.
    pub(crate) message: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.into(), code: Cow::Borrowed(code), message: message.into() }
    }
}

/// The limit that refused a request.
#[derive(Debug, Clone)]
pub(crate) struct RefusedBy {
    pub(crate) scope: LimitScope,
    /// Its name in the RateLimit-Policy header.
    pub(crate) policy: Cow<'static, str>,
    /// Its size: requests per window, or things at once.
    pub(crate) limit: u64,
    /// Until it is whole again, where that is a matter of time.
    pub(crate) reset: Option<Reset>,
}

/// A refusal: what the client is told, and the cause that only the log sees.
#[derive(Clone)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    refused_by: Option<RefusedBy>,
    credits: Option<CreditsShort>,
    retry_after: Option<Duration>,
    headers: HeaderMap,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The figures of a 402.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct CreditsShort {
    pub(crate) required: i64,
    pub(crate) available: i64,
    pub(crate) held: i64,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            refused_by: None,
            credits: None,
            retry_after: None,
            headers: HeaderMap::new(),
            cause: None,
        }))
    }

    /// The one answer for what is unknown, foreign or not an id at all. It carries nothing of the request, so
    /// that nobody learns from it which of the three it was.
    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "There is nothing here, or nothing that you may see.")
    }

    pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::MalformedRequest, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Forbidden, detail)
    }

    pub(crate) fn invalid(errors: Vec<FieldError>) -> Self {
        let mut problem = Self::new(Code::ValidationFailed, "Some members or parameters are not acceptable.");
        problem.0.errors = errors;
        problem
    }

    /// One bad member or parameter.
    pub(crate) fn field(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, code, message)])
    }

    /// Too much to do, or something that is needed is away. Nothing was done.
    pub(crate) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unavailable, detail).retry_after(Duration::from_secs(1))
    }

    /// A fault of ours.
    pub(crate) fn internal(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(
            Code::Internal,
            "Something went wrong on our side. Quote the request id when you report it.",
        )
        .because(cause)
    }

    pub(crate) fn because(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.cause = Some(Arc::new(cause));
        self
    }

    /// When trying again makes sense. True in milliseconds in the body, in whole seconds (rounded up) in the header.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait.max(Duration::from_millis(1)));
        self
    }

    pub(crate) fn refused_by(mut self, limit: RefusedBy) -> Self {
        self.0.refused_by = Some(limit);
        self
    }

    pub(crate) fn credits(mut self, figures: CreditsShort) -> Self {
        self.0.credits = Some(figures);
        self
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// The figures of the limits that were asked, for the RateLimit headers.
    pub(crate) fn with_limits(mut self, lines: &LimitLines) -> Self {
        lines.write(&mut self.0.headers);
        self
    }

    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    pub(crate) fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync)> {
        self.0.cause.as_deref()
    }

    /// The body, for the answer itself or as a member of another one.
    pub(crate) fn body(&self, request_id: &str, now: DateTime<Utc>) -> ProblemBody {
        let Inner { code, detail, errors, refused_by, credits, retry_after, .. } = &*self.0;
        ProblemBody {
            kind: code.page(),
            title: code.title(),
            status: code.status().as_u16(),
            detail: detail.to_string(),
            code: code.as_str(),
            request_id: request_id.to_owned(),
            retryable: code.is_retryable(),
            errors: errors.clone(),
            scope: refused_by.as_ref().map(|limit| limit.scope.as_str()),
            policy: refused_by.as_ref().map(|limit| limit.policy.to_string()),
            limit: refused_by.as_ref().map(|limit| limit.limit),
            reset: refused_by.as_ref().and_then(|limit| limit.reset).map(|reset| Millis(reset.instant(now))),
            retry_after_ms: retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            required: credits.map(|figures| figures.required),
            available: credits.map(|figures| figures.available),
            held: credits.map(|figures| figures.held),
        }
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem")
            .field("code", &self.0.code)
            .field("detail", &self.0.detail)
            .field("errors", &self.0.errors)
            .field("cause", &self.0.cause)
            .finish_non_exhaustive()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        *response.status_mut() = self.0.code.status();
        let headers = response.headers_mut();
        headers.extend(self.0.headers.clone());
        if let Some(wait) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if self.0.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"aivideo\""));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Seconds for a Retry-After header: never earlier than the truth, at least 1.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    let whole = wait.as_secs();
    if wait.subsec_nanos() > 0 { whole + 1 } else { whole }.max(1)
}

/// A refusal (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// The page of this code.
    #[serde(rename = "type")]
    #[schema(value_type = String, examples("/problems/not_found"))]
    kind: String,
    /// The code in words.
    #[schema(value_type = String)]
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What happened this time.
    detail: String,
    /// A stable code, the last part of `type`.
    #[schema(value_type = String, examples("not_found"))]
    code: &'static str,
    /// The request's id, also in `X-Request-Id`.
    request_id: String,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// The members and parameters that are not acceptable.
    errors: Vec<FieldError>,
    /// Whom the limit counts: ip, key, user, tenant, endpoint or model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    scope: Option<&'static str>,
    /// The limit's name in `RateLimit-Policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// The limit's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// When the limit is whole again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    reset: Option<Millis>,
    /// Milliseconds after which trying again makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// What the request costs, when credits are short.
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<i64>,
    /// Credits that may be spent, when credits are short.
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<i64>,
    /// Credits held by open tasks, when credits are short.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_never_promises_an_earlier_time_than_the_truth() {
        for (millis, seconds) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (59_999, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }

    #[test]
    fn a_limits_refusal_names_everything_a_client_needs() {
        let problem = Problem::new(Code::RateLimited, "Too many submits.")
            .retry_after(Duration::from_millis(11_400))
            .refused_by(RefusedBy {
                scope: LimitScope::User,
                policy: "user".into(),
                limit: 5,
                reset: Some(Reset::In(Duration::from_secs(60))),
            });
        insta::assert_json_snapshot!(problem.body("req_1", DateTime::UNIX_EPOCH));
        assert_eq!(problem.into_response().headers()[header::RETRY_AFTER], "12");
    }

    #[test]
    fn a_bad_member_is_named() {
        let problem = Problem::field("duration_seconds", "out_of_range", "must be from 1 to 10");
        insta::assert_json_snapshot!(problem.body("req_1", DateTime::UNIX_EPOCH));
    }

    #[test]
    fn a_cause_is_never_told() {
        let problem = Problem::internal(std::io::Error::other("password=hunter2"));
        assert!(
            !serde_json::to_string(&problem.body("req_1", DateTime::UNIX_EPOCH)).unwrap().contains("hunter2")
        );
        assert!(problem.cause().unwrap().to_string().contains("hunter2"));
    }
}
