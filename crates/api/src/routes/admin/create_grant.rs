//! `POST /admin/grants`.

use axum::{extract::State, response::Response};
use domain::{AccountId, Credits, GrantId, UserId};
use operator::{GrantMade, NewGrant};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    extract::{Body, IdempotencyKey, NoParams},
    once::{created, once, render},
    openapi::{ConflictProblems, WriteProblems},
    problem::Problem,
    routes::admin::Changes,
    state::ApiState,
    view::Millis,
};

/// A grant to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGrant)]
pub(crate) struct NewGrantBody {
    /// The credits go to the account that pays for this user's tasks.
    #[schema(value_type = String)]
    user_id: UserId,
    /// How much.
    #[schema(value_type = i64, minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    credits: Credits,
    /// For display, 1 to 64 characters; `operator` unless given.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    category: Option<String>,
}

/// A grant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Grant)]
struct GrantView {
    /// The grant.
    #[schema(value_type = String)]
    id: GrantId,
    /// The user.
    #[schema(value_type = String)]
    user_id: UserId,
    /// The account that got it.
    #[schema(value_type = String)]
    account_id: AccountId,
    /// How much.
    credits: i64,
    /// For display.
    category: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Millis,
}

impl From<&GrantMade> for GrantView {
    fn from(made: &GrantMade) -> Self {
        let GrantMade { id, user, account, credits, category, created_at } = made.clone();
        Self {
            id,
            user_id: user,
            account_id: account,
            credits: credits.get(),
            category,
            created_at: Millis(created_at),
        }
    }
}

/// Grant credits
#[utoipa::path(
    post,
    path = "/admin/grants",
    operation_id = "adminCreateGrant",
    tag = "admin",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, pattern = "^[!-~]+$", description = "Makes the request repeatable for 24 hours.")),
    request_body = NewGrantBody,
    responses((status = 201, description = "The grant.", body = GrantView), WriteProblems, ConflictProblems),
)]
pub(crate) async fn create_grant(
    State(state): State<ApiState>,
    Changes { session, actor }: Changes,
    _: NoParams,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<NewGrantBody>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let once = once(&session, "POST /admin/grants", key, &body, |made| render(&GrantView::from(made)));
    let new = NewGrant { user: body.user_id, credits: body.credits, category: body.category };
    let done = state.operator().grant(actor, once, new).await?;
    Ok(created(done, |made| render(&GrantView::from(made)), |_| None))
}
