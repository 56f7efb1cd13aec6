//! `GET /admin/slots`.

use axum::{extract::State, response::Response};
use control::SlotSet;
use domain::{AttemptRef, ModelName, ProviderAccountId, TaskId, TenantId, UserId, WorkerId};
use operator::{Page, SetSeen, SlotSeen, SlotSources, SlotsOf, SlotsSeen, look_at_slots};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::{
        Params, ParamsOf, QueryParams,
        params::{IdCursor, PageOf},
    },
    openapi::ReadProblems,
    problem::Problem,
    routes::admin::Looks,
    state::ApiState,
    view::{Millis, json},
};

/// Who has places at providers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Slots)]
struct SlotsView {
    /// How many places are taken and how many there are, per account and model, or per tenant and user.
    sets: Vec<SlotSetView>,
    /// The places, oldest task first.
    items: Vec<SlotView>,
    /// Where the next page begins; null when this is the last one.
    next_cursor: Option<String>,
}

/// How a set of places is filled: an account's, one of its models', a tenant's, or one of its users'.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SlotSet)]
struct SlotSetView {
    /// The provider account; null for a tenant's and a user's.
    #[schema(value_type = Option<String>)]
    account: Option<ProviderAccountId>,
    /// The model's name at the provider; null for all of the account.
    #[schema(value_type = Option<String>)]
    model: Option<ModelName>,
    /// The tenant; null for an account's and a model's.
    #[schema(value_type = Option<String>)]
    tenant_id: Option<TenantId>,
    /// The user; null for all of the tenant.
    #[schema(value_type = Option<String>)]
    user_id: Option<UserId>,
    /// Places that are taken.
    used: usize,
    /// Places there are.
    limit: u32,
    /// Whether the set is known to be complete. If not, nothing is submitted until it has been rebuilt.
    ready: bool,
}

/// A place, or a live attempt that should have one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Slot)]
struct SlotView {
    /// The task.
    #[schema(value_type = String)]
    task_id: TaskId,
    /// The attempt of the task.
    attempt_no: i32,
    /// The provider account.
    #[schema(value_type = Option<String>)]
    account: Option<ProviderAccountId>,
    /// The model's name at the provider; null when the attempt was never claimed, like all below that is not about the place.
    #[schema(value_type = Option<String>)]
    model: Option<ModelName>,
    /// The tenant.
    #[schema(value_type = Option<String>)]
    tenant_id: Option<TenantId>,
    /// The user.
    #[schema(value_type = Option<String>)]
    user_id: Option<UserId>,
    /// The process that follows the attempt.
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
    /// When it was claimed.
    #[schema(value_type = Option<String>, format = DateTime)]
    claimed_at: Option<Millis>,
    /// Whether PostgreSQL calls it live. A place without a live attempt is taken out once nobody vouches for it any more.
    live: bool,
    /// Until when its owner vouches for the place; null when it has none, which is put right within seconds.
    #[schema(value_type = Option<String>, format = DateTime)]
    vouched_until: Option<Millis>,
    /// Whether that is over. The place counts all the same.
    expired: bool,
}

impl From<SetSeen> for SlotSetView {
    fn from(seen: SetSeen) -> Self {
        let SetSeen { set, used, limit, ready } = seen;
        let (account, model, tenant_id, user_id) = match set {
            SlotSet::Account(account) => (Some(account), None, None, None),
            SlotSet::Model(account, model) => (Some(account), Some(model), None, None),
            SlotSet::Tenant(tenant) => (None, None, Some(tenant), None),
            SlotSet::User(tenant, user) => (None, None, Some(tenant), Some(user)),
        };
        Self { account, model, tenant_id, user_id, used, limit, ready }
    }
}

impl From<SlotSeen> for SlotView {
    fn from(seen: SlotSeen) -> Self {
        let SlotSeen { attempt, account, place, holder } = seen;
        Self {
            task_id: attempt.task,
            attempt_no: attempt.attempt_no,
            account,
            tenant_id: holder.as_ref().map(|holder| holder.tenant),
            user_id: holder.as_ref().map(|holder| holder.user),
            claimed_at: holder.as_ref().map(|holder| Millis(holder.claimed_at)),
            live: holder.as_ref().is_some_and(|holder| holder.live),
            vouched_until: place.map(|place| Millis(place.vouched_until)),
            expired: place.is_some_and(|place| place.expired),
            worker: holder.as_ref().map(|holder| holder.worker.clone()),
            model: holder.map(|holder| holder.model),
        }
    }
}

impl From<SlotsSeen> for SlotsView {
    fn from(seen: SlotsSeen) -> Self {
        let SlotsSeen { sets, slots: Page { items, next } } = seen;
        Self {
            sets: sets.into_iter().map(Into::into).collect(),
            items: items.into_iter().map(Into::into).collect(),
            next_cursor: next.map(|attempt| IdCursor(attempt).to_string()),
        }
    }
}

/// The parameters of `GET /admin/slots`.
#[derive(Debug)]
pub(crate) struct Ask {
    of: SlotsOf,
    page: PageOf<AttemptRef>,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        let of = match (params.take("account")?, params.take("tenant_id")?) {
            (None, None) => SlotsOf::Accounts,
            (Some(account), None) => SlotsOf::Account(account),
            (None, Some(tenant)) => SlotsOf::Tenant(tenant),
            (Some(account), Some(_)) => {
                params.refuse("tenant_id", "one_of", "can't be given together with account");
                SlotsOf::Account(account)
            }
        };
        Ok(Self { of, page: PageOf::take(params)? })
    }
}

/// Who has places at providers
///
/// Of every provider account, of one, or of one tenant.
#[utoipa::path(
    get,
    path = "/admin/slots",
    operation_id = "adminListSlots",
    tag = "admin",
    params(
        ("account" = Option<String>, Query, min_length = 1, description = "Of this provider account only."),
        ("tenant_id" = Option<String>, Query, pattern = "^ten_[0-9a-f]{32}$", description = "Of this tenant only."),
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "The sets and a page of places.", body = SlotsView), ReadProblems),
)]
pub(crate) async fn list_slots(
    State(state): State<ApiState>,
    _: Looks,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<Response, Problem> {
    let sources = SlotSources {
        control: state.control(),
        task_state: state.task_state(),
        catalogue: state.catalogue(),
        tenancy: state.tenancy(),
    };
    let _turn = state.store().pass().await?;
    let seen = look_at_slots(&sources, &ask.of, ask.page.after, ask.page.limit).await?;
    Ok(json(&SlotsView::from(seen)))
}
