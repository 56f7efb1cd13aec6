//! `GET /credits`: where the caller's credits are.

use axum::{extract::State, response::Response};
use domain::AccountId;
use ledger::Balance;
use serde::Serialize;
use tenancy::Session;
use utoipa::ToSchema;

use crate::{
    extract::{NoParams, Reader, auth::require_read},
    openapi::ReadProblems,
    problem::{Problem, from::store_problem},
    state::ApiState,
    view::json,
};

/// The credits of the account that pays for the caller's tasks. `granted` is the sum of the others.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Credits)]
pub(crate) struct CreditsView {
    /// The account.
    #[schema(value_type = String)]
    account_id: AccountId,
    /// All that was ever granted.
    granted: i64,
    /// Can be spent.
    available: i64,
    /// Held by open tasks.
    held: i64,
    /// Paid.
    captured: i64,
    /// Expired unspent.
    expired: i64,
    /// Taken back.
    withdrawn: i64,
}

impl From<Balance> for CreditsView {
    fn from(balance: Balance) -> Self {
        Self {
            account_id: balance.account_id,
            granted: balance.granted.get(),
            available: balance.available.get(),
            held: balance.held.get(),
            captured: balance.captured.get(),
            expired: balance.expired.get(),
            withdrawn: balance.withdrawn.get(),
        }
    }
}

/// The balance of the account that pays for the session's tasks.
pub(crate) async fn balance(state: &ApiState, session: &Session) -> Result<CreditsView, Problem> {
    let _turn = state.store().pass().await?;
    let balance = state.ledger().balance(session.principal.account).await;
    balance.map(CreditsView::from).map_err(|error| store_problem!(error))
}

/// Credits
#[utoipa::path(
    get,
    path = "/credits",
    operation_id = "getCredits",
    tag = "credits",
    responses((status = 200, description = "The figures.", body = CreditsView), ReadProblems),
)]
pub(crate) async fn get_credits(
    State(state): State<ApiState>,
    Reader(session): Reader,
    _: NoParams,
) -> Result<Response, Problem> {
    require_read(&session)?;
    Ok(json(&balance(&state, &session).await?))
}
