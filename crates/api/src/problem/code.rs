//! The codes: stable names that clients may switch on.

use http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident, $retry:literal, $title:literal;)*) => {
        /// A problem's stable name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code's text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The status that goes with it.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }

            /// The code in words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// The code of that text.
            fn of(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }

            /// The path of its page.
            pub(crate) fn page(self) -> String {
                match self { $(Self::$name => concat!("/problems/", $text).to_owned(),)* }
            }
        }
    };
}

codes! {
    /// Not JSON at all, a malformed header or cursor, a query value that doesn't parse.
    MalformedRequest = "malformed_request", BAD_REQUEST, false, "The request can't be read";
    /// No credential, or one that is unknown, revoked or over.
    Unauthenticated = "unauthenticated", UNAUTHORIZED, false, "No valid credential";
    /// The account cannot pay.
    InsufficientCredits = "insufficient_credits", PAYMENT_REQUIRED, false, "Not enough credits";
    /// The credential or the role does not allow this.
    Forbidden = "forbidden", FORBIDDEN, false, "Not allowed";
    /// A signed link past its time.
    LinkExpired = "link_expired", FORBIDDEN, false, "The link has expired";
    /// Unknown, foreign or not an id.
    NotFound = "not_found", NOT_FOUND, false, "Not found";
    /// The path exists, the method doesn't.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, false, "This path doesn't take this method";
    /// A cancel after the provider is through.
    TooLate = "too_late", CONFLICT, false, "Too late to cancel";
    /// A twin of the request is still under way.
    IdempotencyInProgress = "idempotency_in_progress", CONFLICT, true, "The first request with this key is still under way";
    /// The body is larger than its limit.
    PayloadTooLarge = "payload_too_large", PAYLOAD_TOO_LARGE, false, "The body is too large";
    /// Not JSON by its header, or an encoded body.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, false, "The body has an unsupported type or encoding";
    /// No byte of the file lies in the asked range.
    RangeNotSatisfiable = "range_not_satisfiable", RANGE_NOT_SATISFIABLE, false, "The range lies outside the file";
    /// A member or parameter that is missing, unknown, doubled or out of range.
    ValidationFailed = "validation_failed", UNPROCESSABLE_ENTITY, false, "Some values are not acceptable";
    /// The key was used for another request.
    IdempotencyMismatch = "idempotency_mismatch", UNPROCESSABLE_ENTITY, false, "This key belongs to another request";
    /// The cost can never fit the limit.
    CostAboveCapacity = "cost_above_capacity", UNPROCESSABLE_ENTITY, false, "The cost is above what the limit can ever allow";
    /// A rate was exceeded.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, true, "Too many requests";
    /// As many tasks wait as may wait.
    QueueFull = "queue_full", TOO_MANY_REQUESTS, true, "Too many tasks are waiting";
    /// The day's tasks are used.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, true, "The day's quota is used";
    /// The task could not start at once, and that was asked for.
    Concurrency = "concurrency", TOO_MANY_REQUESTS, true, "Too many tasks are running";
    /// A fault of ours.
    Internal = "internal", INTERNAL_SERVER_ERROR, true, "Something went wrong";
    /// Overload, or something that is needed is away.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, true, "The service is busy";
}

/// A text that is no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a problem code")]
pub struct UnknownCode;

impl std::str::FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        Self::of(text).ok_or(UnknownCode)
    }
}
