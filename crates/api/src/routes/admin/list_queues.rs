//! `GET /admin/queue`.

use axum::{extract::State, response::Response};
use control::{TenantTurn, TurnOrder};
use domain::{ModelName, TenantId};
use operator::{QueueSeen, look_at_queues};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::{Params, ParamsOf, QueryParams, params::LIMIT_DEFAULT},
    openapi::ReadProblems,
    problem::Problem,
    routes::admin::Looks,
    state::ApiState,
    view::{Millis, Page, json},
};

/// The queue of one model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueView {
    /// The model.
    #[schema(value_type = String)]
    model: ModelName,
    /// Queued tasks, those included that are put off.
    waiting: u64,
    /// When the one was made that waits longest.
    #[schema(value_type = Option<String>, format = DateTime)]
    oldest: Option<Millis>,
    /// Tasks in the ready queue: the first of each user.
    ready: u64,
    /// Whether the ready queue is known to be complete.
    complete: bool,
    /// Tenants with a task that may go now.
    tenants_active: u64,
    /// The first of them, in the order of their turn.
    tenants: Vec<TurnView>,
}

/// A tenant whose turn comes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueTurn)]
struct TurnView {
    /// The tenant.
    #[schema(value_type = String)]
    tenant_id: TenantId,
    /// Its share relative to others.
    weight: u32,
    /// Its tasks in the ready queue.
    ready: u64,
}

impl From<TenantTurn> for TurnView {
    fn from(turn: TenantTurn) -> Self {
        let TenantTurn { tenant, weight, waiting } = turn;
        Self { tenant_id: tenant, weight, ready: waiting }
    }
}

impl From<QueueSeen> for QueueView {
    fn from(seen: QueueSeen) -> Self {
        let QueueSeen { model, waiting, oldest, ready, complete, turns: TurnOrder { active, next } } = seen;
        Self {
            model,
            waiting,
            oldest: oldest.map(Millis),
            ready,
            complete,
            tenants_active: active,
            tenants: next.into_iter().map(Into::into).collect(),
        }
    }
}

/// The parameters of `GET /admin/queue`.
#[derive(Debug)]
pub(crate) struct Ask {
    tenants: u16,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { tenants: params.limit(LIMIT_DEFAULT)? })
    }
}

/// What waits for each model
#[utoipa::path(
    get,
    path = "/admin/queue",
    operation_id = "adminListQueues",
    tag = "admin",
    params(
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Tenants of each model at most; 20 unless given."),
    ),
    responses((status = 200, description = "The queue of every model.", body = Page<QueueView>), ReadProblems),
)]
pub(crate) async fn list_queues(
    State(state): State<ApiState>,
    _: Looks,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let queues = look_at_queues(state.control(), state.task_state(), state.catalogue(), ask.tenants).await?;
    Ok(json(&Page::whole(queues.into_iter().map(QueueView::from).collect())))
}
