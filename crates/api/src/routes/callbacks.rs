//! `POST /callbacks/providers/{provider_account}/{token}`: providers report about jobs.
//!
//! No credential of ours is asked for: the address itself carries one, and the provider signs. What comes is stored and
//! answered after the commit; it moves nothing. Late, repeated and reordered callbacks are as welcome as any other, so
//! that a provider never has a reason to repeat them.

use axum::{
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use domain::callback::{CallbackAddress, CallbackNews, CallbackRejection, CallbackVerdict, RawCallback};
use domain::task::JobHandle;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use task_state::{NewProviderEvent, ReceiveError, Received};
use utoipa::ToSchema;

use crate::{
    edge::RequestContext,
    extract::{body::read_callback, id::segment},
    openapi::CallbackProblems,
    problem::{Code, Problem},
    state::ApiState,
    view::json,
};

/// Proof that a callback was stored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CallbackReceipt)]
pub(crate) struct CallbackReceipt {
    /// Always true.
    received: bool,
}

/// Report about a job
///
/// For providers, at the address that each submit gives them. The answer is 200 as soon as the callback is stored,
/// whatever it says and however often it comes; nothing is decided by it. An address that was never given out does not
/// exist, and a signature that does not fit, or is too old, is refused.
#[utoipa::path(
    post,
    path = "/callbacks/providers/{provider_account}/{token}",
    operation_id = "receiveProviderCallback",
    tag = "callbacks",
    security(()),
    params(
        ("provider_account" = String, Path, description = "The account at the provider."),
        ("token" = String, Path, description = "Whose attempt it is, signed by us."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "As the provider writes it."),
    responses(
        (status = 200, description = "It is stored.", body = CallbackReceipt),
        CallbackProblems,
    ),
)]
pub(crate) async fn receive_callback(
    State(state): State<ApiState>,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    // The address first: a stranger's body is not even read.
    let account: String = segment(&mut parts, &state, "provider_account").await?;
    let token: String = segment(&mut parts, &state, "token").await?;
    let address = state.callbacks().address(&account, &token).ok_or_else(Problem::not_found)?;
    let context = RequestContext::from_request_parts(&mut parts, &state).await?;
    context.note_task(address.attempt.task);
    let body = read_callback(&parts.headers, body, state.config()).await?;
    let callback = RawCallback {
        method: &parts.method,
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers: &parts.headers,
        body: &body,
    };
    match state.callbacks().verify(&address, callback).await {
        CallbackVerdict::Event { news, job } => store(&state, address, news, Some(job), body).await,
        CallbackVerdict::Hint(news) => store(&state, address, news, None, body).await,
        CallbackVerdict::Handshake { content_type, body } => {
            let content_type = HeaderValue::from_static(content_type);
            Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
        }
        CallbackVerdict::Reject(why) => Err(rejected(&address, why)),
    }
}

async fn store(
    state: &ApiState,
    address: CallbackAddress,
    news: CallbackNews,
    job: Option<JobHandle>,
    body: bytes::Bytes,
) -> Result<Response, Problem> {
    let CallbackAddress { account, attempt } = address;
    let event = NewProviderEvent { account, attempt, news, job, body };
    match state.task_state().receive(event).await {
        Ok(Received::Pending { owner }) => state.called(owner),
        Ok(Received::Ignored(_)) => {}
        Err(ReceiveError::Full) => {
            return Err(Problem::unavailable("Too many callbacks wait to be stored. Send it again."));
        }
        Err(error @ (ReceiveError::Store(_) | ReceiveError::Stopped)) => {
            return Err(
                Problem::unavailable("The callback can't be stored now. Send it again.").because(error)
            );
        }
    }
    Ok((StatusCode::OK, json(&CallbackReceipt { received: true })).into_response())
}

/// Whoever knows the address learns that the signature is the trouble, and not which part of it.
fn rejected(address: &CallbackAddress, why: CallbackRejection) -> Problem {
    let CallbackAddress { account, attempt } = address;
    let outcome = match why {
        CallbackRejection::NotExpected => "not_expected",
        CallbackRejection::Unsigned => "unsigned",
        CallbackRejection::Stale => "stale",
        CallbackRejection::Forged => "forged",
        CallbackRejection::Unreadable => "unreadable",
    };
    metrics::counter!(domain::metric::PROVIDER_CALLBACK, "account" => account.to_string(), "outcome" => outcome)
        .increment(1);
    tracing::warn!(%account, %attempt, reason = outcome, "a callback is rejected");
    match why {
        CallbackRejection::NotExpected => Problem::not_found(),
        CallbackRejection::Unsigned | CallbackRejection::Stale | CallbackRejection::Forged => {
            Problem::new(Code::Unauthenticated, "The signature is missing, too old, or not this body's.")
                .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Signature"))
        }
        CallbackRejection::Unreadable => Problem::malformed("The body can't be read."),
    }
}
