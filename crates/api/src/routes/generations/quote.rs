//! The answer of a dry run.

use axum::response::Response;
use chrono::{DateTime, Utc};
use domain::wait::Eta;
use generation::{BindingLimit, Decision, GenerationRequest};
use serde::Serialize;
use tenancy::Session;
use utoipa::ToSchema;

use crate::{
    edge::RequestContext,
    problem::{Problem, ProblemBody, from::submit_problem},
    state::ApiState,
    view::{Millis, json, task::EtaView},
};

/// What a request would cost and what would become of it now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Quote)]
pub(crate) struct QuoteView {
    /// The price.
    credits: i64,
    /// `starts_now`, `queues` or `refused`.
    #[schema(value_type = String)]
    decision: &'static str,
    /// Why it would be refused.
    problem: Option<ProblemBody>,
    /// The limit that makes it wait, or refuses it.
    binding_limit: Option<BindingLimitView>,
    /// When it would start; null when nobody knows.
    #[schema(value_type = Option<EtaView>)]
    eta: Option<Eta>,
}

/// The limit that decides.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BindingLimit)]
struct BindingLimitView {
    /// Whose limit.
    #[schema(value_type = String)]
    scope: &'static str,
    /// Its name.
    #[schema(value_type = String)]
    policy: &'static str,
    /// Its size.
    limit: u32,
    /// What is left of it.
    remaining: u32,
    /// When all of it is back; null when that is no matter of time.
    #[schema(value_type = Option<String>, format = DateTime)]
    reset: Option<Millis>,
}

impl BindingLimitView {
    fn new(binding: BindingLimit, now: DateTime<Utc>) -> Self {
        let BindingLimit { scope, policy, limit, remaining, reset } = binding;
        let reset = reset.map(|reset| Millis(reset.instant(now)));
        Self { scope: scope.as_str(), policy, limit, remaining, reset }
    }
}

/// Says what would become of the request. A refusal is an answer here, not an error.
pub(super) async fn answer(
    state: &ApiState,
    session: &Session,
    request: GenerationRequest,
    context: &RequestContext,
) -> Result<Response, Problem> {
    let model = request.model.clone();
    let now = state.clock().now();
    let quote = {
        let _turn = state.store().pass().await?;
        state.generation().quote(session, request).await.map_err(submit_problem)?
    };
    let eta = match quote.decision {
        Decision::StartsNow => Some(Eta { from_seconds: 0, to_seconds: 0 }),
        Decision::Queues => match quote.eta {
            Some(eta) => Some(eta),
            None => {
                state
                    .live()
                    .until_start(&model, (session.principal.tenant, session.principal.user), now)
                    .await
            }
        },
        Decision::Refused => None,
    };
    Ok(json(&QuoteView {
        credits: quote.credits.get(),
        decision: quote.decision.as_str(),
        problem: quote.problem.map(|error| submit_problem(error).body(context.id(), now)),
        binding_limit: quote.binding_limit.map(|binding| BindingLimitView::new(binding, now)),
        eta,
    }))
}
