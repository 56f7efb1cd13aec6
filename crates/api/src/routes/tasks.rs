//! Tasks: one, many, cancel, follow.

pub(crate) mod cancel;
mod comments;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod list;

use std::sync::Arc;

use domain::{TaskId, task::TaskSnapshot};
use tenancy::Session;

use crate::{
    live::LiveFacts,
    problem::{Problem, from::store_problem},
    state::ApiState,
    view::task::TaskView,
};

/// The task, if this session may see it. The check is made on every read, also when a cache has answered: who may
/// see a task is not a property of the cache.
pub(crate) async fn visible(
    state: &ApiState,
    session: &Session,
    id: TaskId,
    at_least: Option<i32>,
) -> Result<Arc<TaskSnapshot>, Problem> {
    let found = state.task_state().snapshot(id, at_least).await.map_err(|error| store_problem!(error))?;
    found.filter(|snapshot| session.principal.sees(&snapshot.owner())).ok_or_else(Problem::not_found)
}

/// The task as PostgreSQL has it, past every cache: for whoever has just subscribed and must not miss what was
/// committed before. While PostgreSQL is away, what a cache has is all there is.
pub(crate) async fn visible_fresh(
    state: &ApiState,
    session: &Session,
    id: TaskId,
) -> Result<Arc<TaskSnapshot>, Problem> {
    match state.task_state().record(id).await {
        Ok(Some(record)) if session.principal.sees(&record.snapshot.owner()) => Ok(Arc::new(record.snapshot)),
        Ok(_) => Err(Problem::not_found()),
        Err(_) => visible(state, session, id, None).await,
    }
}

/// Puts a snapshot together with what is known at this moment.
pub(crate) fn view<'a>(state: &ApiState, snapshot: &'a TaskSnapshot, live: &LiveFacts) -> TaskView<'a> {
    let now = state.clock().now();
    let link = snapshot.output_asset_id.map(|asset| state.media().sign_link(asset, now));
    TaskView::new(snapshot, live, link)
}
