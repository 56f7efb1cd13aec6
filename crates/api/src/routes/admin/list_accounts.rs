//! `GET /admin/accounts`.

use axum::{extract::State, response::Response};
use control::AccountBreaker;
use domain::ProviderAccountId;
use operator::{AccountSeen, look_at_accounts};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::NoParams,
    openapi::ReadProblems,
    problem::Problem,
    routes::admin::{Looks, list_pauses::PauseView},
    state::ApiState,
    view::{Page, json},
};

/// A provider account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Account)]
pub(crate) struct AccountView {
    /// Its name.
    #[schema(value_type = String)]
    account: ProviderAccountId,
    /// Jobs that it may have of ours at once.
    slots: u32,
    /// `closed`: submits go through; `open`: none does; `half_open`: one at a time, to see whether it is well again.
    breaker: &'static str,
    /// Failures in a row while the breaker is closed.
    failures: Option<u32>,
    /// Milliseconds until an open breaker lets a submit through.
    open_for_ms: Option<u64>,
    /// What an operator intends with it.
    pause: Option<PauseView>,
}

impl From<AccountSeen> for AccountView {
    fn from(seen: AccountSeen) -> Self {
        let AccountSeen { account, slots, breaker, intent } = seen;
        let (breaker, failures, open_for_ms) = match breaker {
            AccountBreaker::Closed { troubles } => ("closed", Some(troubles), None),
            AccountBreaker::Open(left) => {
                ("open", None, Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
            }
            AccountBreaker::HalfOpen => ("half_open", None, None),
        };
        Self { account, slots, breaker, failures, open_for_ms, pause: intent.map(Into::into) }
    }
}

/// The provider accounts
///
/// Whether each may be used, and where its breaker stands.
#[utoipa::path(
    get,
    path = "/admin/accounts",
    operation_id = "adminListAccounts",
    tag = "admin",
    responses((status = 200, description = "Every account.", body = Page<AccountView>), ReadProblems),
)]
pub(crate) async fn list_accounts(
    State(state): State<ApiState>,
    _: Looks,
    _: NoParams,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let pauses = state.operator().pauses().await?;
    let accounts = look_at_accounts(state.control(), state.catalogue(), pauses).await?;
    Ok(json(&Page::whole(accounts.into_iter().map(AccountView::from).collect())))
}
