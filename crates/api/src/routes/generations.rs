//! `POST /generations`: asks for a video, or only what it would take.
//!
//! The order in which a submit is refused is part of the contract: declared size and address (the edge and the address
//! limit), then the credential, then the body, and only then what it costs.

mod quote;

use axum::{
    extract::{Request, State},
    response::Response,
};
use generation::{GenerationRequest, ParseError, Submission, Submitted};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use utoipa::ToSchema;

use crate::{
    edge::RequestContext,
    extract::{
        Auth, Params, ParamsOf, QueryParams,
        auth::{count_read, single},
        body::read_json,
        idempotency,
    },
    limits::LimitLines,
    once::REPLAYED,
    openapi::SubmitProblems,
    problem::{FieldError, Problem, from::submit_problem},
    routes::generations::quote::QuoteView,
    state::ApiState,
    view::json_text,
};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The parameters of `POST /generations`.
#[derive(Debug)]
pub(crate) struct Ask {
    dry_run: bool,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { dry_run: params.take("dry_run")?.unwrap_or(false) })
    }
}

/// A video to be made.
#[derive(Debug, ToSchema)]
#[schema(as = NewGeneration)]
#[expect(
    dead_code,
    reason = "describes the body in the document; generation reads it by its own strict rules"
)]
pub(crate) struct GenerationBody {
    /// One of `GET /models`.
    #[schema(examples("mock-fast"))]
    model: String,
    /// What the video shows: 1 to 4,000 Unicode characters after trimming, stored as sent.
    #[schema(min_length = 1, examples("A paper boat drifts down a rainy street"))]
    prompt: String,
    /// What it must not show, where the model understands that; at most 4,000 characters.
    negative_prompt: Option<String>,
    /// Length of the video, in the model's range.
    #[schema(minimum = 1, examples(5))]
    duration_seconds: u32,
    /// One of the model's; its default unless given.
    #[schema(examples("720p"))]
    resolution: Option<String>,
    /// One of the model's.
    #[schema(examples("16:9"))]
    aspect_ratio: Option<String>,
    /// The random seed, where the model understands one.
    #[schema(format = Int64, minimum = 0, maximum = 4_294_967_295_u32)]
    seed: Option<u32>,
    /// The project that the task belongs to; needs the role owner or editor there.
    project_id: Option<String>,
    /// Your own labels, to filter lists by: at most 10 of 1 to 64 characters.
    #[schema(max_items = 10)]
    tags: Option<Vec<String>>,
    /// After how many seconds the task is given up, waiting included; the model's deadline unless given.
    #[schema(minimum = 1, maximum = 86_400)]
    deadline_seconds: Option<u32>,
    /// How urgent it is among your own tasks, 0 unless given. Each step lets it go as if it had been asked for a minute
    /// earlier, so no task waits for ever. It never goes before other users' tasks for that.
    #[schema(minimum = 0, maximum = 9, examples(0))]
    priority: Option<u8>,
    /// What becomes of the request when as many tasks run as may: `queue` (unless given) lets it wait, `reject` refuses it
    /// with 429 `concurrency`.
    #[schema(pattern = "^(queue|reject)$", examples("queue"))]
    on_limit: Option<String>,
}

/// An accepted request.
#[derive(Debug, ToSchema)]
#[schema(as = Accepted)]
#[expect(dead_code, reason = "describes the body in the document; generation makes it once and replays it")]
pub(crate) struct AcceptedView {
    /// The task.
    task_id: String,
    /// QUEUED.
    status: String,
    /// queued.
    stage: String,
    /// 1.
    version: i32,
    /// The model.
    model: String,
    /// The price, held until the task ends.
    credits_held: i64,
    /// Null here; reads have it.
    queue_position: Option<u64>,
    /// After how many milliseconds looking makes sense.
    poll_after_ms: u64,
    /// When it was accepted.
    #[schema(format = DateTime)]
    created_at: String,
    /// When it is given up.
    #[schema(format = DateTime)]
    deadline_at: String,
}

/// Make a video
///
/// Accepted means paid for (the price is held) and safely queued. With `Idempotency-Key` the request can be repeated
/// for 24 hours and is done once. With `?dry_run=true` nothing is done: the answer says what would become of the
/// request.
#[utoipa::path(
    post,
    path = "/generations",
    operation_id = "createGeneration",
    tag = "generations",
    params(
        ("dry_run" = Option<bool>, Query, description = "Only say what would become of it."),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, pattern = "^[!-~]+$",
         description = "1 to 255 visible ASCII characters; makes the request repeatable."),
    ),
    request_body = GenerationBody,
    responses(
        (status = 200, description = "Of a dry run: the price and the decision.", body = QuoteView),
        (status = 202, description = "Accepted.", body = AcceptedView, headers(
            ("Location" = String, description = "The task."),
            ("Retry-After" = u64, description = "Seconds after which looking makes sense."),
            ("Idempotent-Replayed" = Option<String>, description = "`true` when this is the first answer again."),
        )),
        SubmitProblems,
    ),
)]
pub(crate) async fn create_generation(
    State(state): State<ApiState>,
    Auth(session): Auth,
    ParamsOf(ask): ParamsOf<Ask>,
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    let traceparent = traceparent(request.headers());
    if ask.dry_run {
        count_read(&state, &session, &context)?;
        let request = parse(&state, request).await?;
        return Box::pin(quote::answer(&state, &session, request, &context)).await;
    }
    let idempotency_key = idempotency::parse(request.headers())?;
    let request = parse(&state, request).await?;
    let submission =
        Submission { session, request, idempotency_key, ip: Some(context.address()), traceparent };
    let submitted = state.generation().submit(submission).await.map_err(submit_problem)?;
    context.note_task(submitted.task);
    metrics::histogram!(domain::metric::ACCEPT_LATENCY_MS)
        .record(context.arrived().elapsed().as_secs_f64() * 1_000.0);
    Ok(accepted(submitted))
}

async fn parse(state: &ApiState, request: Request) -> Result<GenerationRequest, Problem> {
    let body = read_json(request, state.config()).await?;
    GenerationRequest::parse(&body, state.catalogue()).map_err(|error| match error {
        ParseError::Malformed(_) => Problem::malformed(format!("{error}.")),
        ParseError::Invalid(errors) => Problem::invalid(
            errors
                .into_iter()
                .map(|error| FieldError::new(error.field, error.code.as_str(), error.message))
                .collect(),
        ),
    })
}

fn accepted(submitted: Submitted) -> Response {
    let Submitted { task, status, body, replayed, limits } = submitted;
    let mut response = json_text(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::ACCEPTED);
    let headers = response.headers_mut();
    let location = HeaderValue::from_maybe_shared(bytes::Bytes::from(format!("/tasks/{task}")));
    if let Ok(location) = location {
        headers.insert(header::LOCATION, location);
    }
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    LimitLines::from(limits.as_slice()).write(headers);
    response
}

/// The caller's W3C trace context, if it is well-formed; it goes with the task to the provider.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = single(headers, &TRACEPARENT).ok()??;
    let mut parts = text.split('-');
    let mut hex = |length: usize| {
        let part = parts.next()?;
        let legal =
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        legal.then_some(part)
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let zero = |digits: &str| digits.bytes().all(|byte| byte == b'0');
    let legal =
        version != "ff" && !zero(trace) && !zero(parent) && (version != "00" || parts.next().is_none());
    legal.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_trace_goes_on() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(text).unwrap())]);
            traceparent(&headers)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
