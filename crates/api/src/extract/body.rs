//! JSON bodies, read within their limits and taken strictly.
//!
//! Two passes over the text. The first asks only whether it is JSON: if not, the request can't be read (400). The
//! second takes it as the route's type: what it refuses (unknown, doubled or missing members, wrong types, numbers
//! that fit no type, strings that are not Unicode) is something to correct (422). A body is never an array in
//! disguise, and never compressed: a limit on bytes must be a limit on work.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::LengthLimitError;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{
    config::ApiConfig,
    edge::too_large,
    problem::{Code, Problem},
    state::ApiState,
};

/// A JSON body as the route's type.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ApiState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let bytes = read_json(request, state.config()).await?;
        parse(&bytes).map(Self)
    }
}

/// The body of a route that takes none: empty, or an object without members. Members would be ignored, so they are
/// refused.
#[derive(Debug)]
pub(crate) struct NoBody;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoMembers {}

impl FromRequest<ApiState> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self);
        }
        let bytes = read(request, state.config()).await?;
        if !bytes.is_empty() {
            parse::<NoMembers>(&bytes)?;
        }
        Ok(Self)
    }
}

/// Reads the body of a request that must be JSON by its header. The text is not looked at.
pub(crate) async fn read_json(request: Request, config: &ApiConfig) -> Result<Bytes, Problem> {
    check_headers(request.headers())?;
    read(request, config).await
}

/// Reads a provider's callback: any type, within the same limits, and never encoded, since signatures cover bytes.
pub(crate) async fn read_callback(
    headers: &HeaderMap,
    body: axum::body::Body,
    config: &ApiConfig,
) -> Result<Bytes, Problem> {
    check_encoding(headers)?;
    read_body(body, config).await
}

async fn read(request: Request, config: &ApiConfig) -> Result<Bytes, Problem> {
    read_body(request.into_body(), config).await
}

async fn read_body(body: axum::body::Body, config: &ApiConfig) -> Result<Bytes, Problem> {
    let max = usize::try_from(config.body_bytes_max).unwrap_or(usize::MAX);
    let read = axum::body::to_bytes(body, max);
    let limit = Duration::from_secs(config.body_seconds_max);
    match tokio::time::timeout(limit, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let error = error.into_inner();
            if error.is::<LengthLimitError>() {
                Err(too_large(config.body_bytes_max))
            } else {
                Err(Problem::malformed("The body was cut off."))
            }
        }
        Err(_) => Err(Problem::malformed("The body did not arrive in time.")),
    }
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let encoded = headers.get_all(header::CONTENT_ENCODING).iter().any(|value| value != "identity");
    if encoded {
        return Err(Problem::new(Code::UnsupportedMediaType, "Bodies may not be encoded (compressed)."));
    }
    Ok(())
}

fn check_headers(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |detail: &'static str| Err(Problem::new(Code::UnsupportedMediaType, detail));
    check_encoding(headers)?;
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_json = types.next().and_then(|value| value.to_str().ok()).is_some_and(is_json);
    if is_json && types.next().is_none() { Ok(()) } else { refuse("The body must be application/json.") }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| {
        Problem::malformed(format!(
            "The body is not JSON (line {}, column {}).",
            error.line(),
            error.column()
        ))
    })?;
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::field("", "wrong_type", "the body must be an object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        field_problem(&path, &error.into_inner())
    })
}

/// Says which member is wrong, and how, as far as the parser knows.
fn field_problem(path: &str, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    // The position helps nobody who has built the body by a library.
    let message = text.split(" at line ").next().unwrap_or_default().to_owned();
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let (field, code) = if message.starts_with("missing field") {
        (join(path, quoted), "required")
    } else if message.starts_with("unknown field") {
        (path.to_owned(), "unknown")
    } else if message.starts_with("duplicate field") {
        (join(path, quoted), "duplicate")
    } else if message.starts_with("invalid type") {
        (path.to_owned(), "wrong_type")
    } else {
        (path.to_owned(), "invalid")
    };
    Problem::field(field, code, message)
}

fn join(path: &str, member: &str) -> String {
    match path {
        "." | "" => member.to_owned(),
        _ => format!("{path}.{member}"),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its parsing is looked at")]
    struct Grant {
        credits: u64,
        #[serde(default)]
        category: Option<String>,
    }

    fn refusal(body: &str) -> (Code, serde_json::Value) {
        let problem = parse::<Grant>(body.as_bytes()).unwrap_err();
        (
            problem.code(),
            serde_json::to_value(problem.body("r", chrono::DateTime::UNIX_EPOCH)).unwrap()["errors"].clone(),
        )
    }

    #[test]
    fn what_is_not_json_cannot_be_read() {
        for body in [
            "",
            "x",
            "{",
            "{\"credits\":NaN}",
            "{\"credits\":1} x",
            "\u{FEFF}{\"credits\":1}",
            "{'credits':1}",
        ] {
            assert_eq!(refusal(body).0, Code::MalformedRequest, "{body}");
        }
    }

    #[test]
    fn what_is_json_and_wrong_is_named() {
        for (body, field, code) in [
            (r#"{"credits":1,"credits":2}"#, "credits", "duplicate"),
            (r#"{"credits":1,"colour":2}"#, "colour", "unknown"),
            (r"{}", "credits", "required"),
            (r#"{"credits":"1"}"#, "credits", "wrong_type"),
            (r#"{"credits":-1}"#, "credits", "invalid"),
            (r#"{"credits":1.5}"#, "credits", "wrong_type"),
            (r#"{"credits":1e400}"#, "credits", "invalid"),
            (r#"{"credits":1,"category":"\ud800"}"#, "category", "invalid"),
            (r"[1]", "", "wrong_type"),
            (r"null", "", "wrong_type"),
        ] {
            let (problem, errors) = refusal(body);
            assert_eq!(problem, Code::ValidationFailed, "{body}");
            assert_eq!(
                (&errors[0]["field"], &errors[0]["code"]),
                (&field.into(), &code.into()),
                "{body} {errors}"
            );
        }
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let deep = format!("{{\"credits\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(refusal(&deep).0, Code::ValidationFailed);
    }

    #[test]
    fn only_json_and_never_encoded() {
        let headers = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            check_headers(&headers).map_err(|problem| problem.code())
        };
        assert_eq!(headers(&[("content-type", "application/json; charset=utf-8")]), Ok(()));
        assert_eq!(
            headers(&[("content-type", "application/vnd.x+json"), ("content-encoding", "identity")]),
            Ok(())
        );
        for bad in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/json"), ("content-type", "text/plain")],
            &[("content-type", "application/json"), ("content-encoding", "gzip")],
            &[
                ("content-type", "application/json"),
                ("content-encoding", "identity"),
                ("content-encoding", "br"),
            ],
        ] {
            assert_eq!(headers(bad), Err(Code::UnsupportedMediaType), "{bad:?}");
        }
    }
}
