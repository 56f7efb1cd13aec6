//! `GET /tasks`: the caller's tasks, newest first.

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use domain::{ModelName, ProjectId, TaskId, TaskStatus, task::TaskSnapshot};
use task_state::{Cursor, ListFilter, ListScope};

use crate::{
    extract::{
        Params, ParamsOf, QueryParams, Reader,
        auth::require_read,
        params::{LIMIT_DEFAULT, LIMIT_MAX},
    },
    openapi::ReadProblems,
    problem::{Problem, from::store_problem},
    routes::tasks::view,
    state::ApiState,
    view::{Page, json, task::TaskView},
};

const TAG_CHARS_MAX: usize = 64;

/// The parameters of `GET /tasks`.
#[derive(Debug)]
pub(crate) struct Ask {
    filter: ListFilter,
    cursor: Option<Cursor>,
    limit: u16,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        let status = params.list::<TaskStatus>("status")?.unwrap_or_default();
        let ids = params.list::<TaskId>("ids")?.unwrap_or_default();
        if ids.len() > usize::from(LIMIT_MAX) {
            params.refuse("ids", "out_of_range", format!("at most {LIMIT_MAX} ids"));
        }
        let tag = params.text("tag");
        if tag
            .as_deref()
            .is_some_and(|tag| tag.is_empty() || tag.chars().count() > TAG_CHARS_MAX || tag.contains('\0'))
        {
            params.refuse("tag", "out_of_range", format!("must have 1 to {TAG_CHARS_MAX} characters"));
        }
        let default = if ids.is_empty() { LIMIT_DEFAULT } else { LIMIT_MAX };
        Ok(Self {
            filter: ListFilter {
                status,
                model: params.take::<ModelName>("model")?,
                project: params.take::<ProjectId>("project_id")?,
                tag,
                created_after: params.take::<DateTime<Utc>>("created_after")?,
                created_before: params.take::<DateTime<Utc>>("created_before")?,
                ids,
            },
            cursor: params.take::<Cursor>("cursor")?,
            limit: params.limit(default)?,
        })
    }
}

/// Tasks
///
/// Newest first. Items have the members of a single task, with `queue_position`, `eta`, `wait_reason` and
/// `wait_detail` null. With `ids` it reads many tasks at once; those that are unknown or not yours are left out.
#[utoipa::path(
    get,
    path = "/tasks",
    operation_id = "listTasks",
    tag = "tasks",
    params(
        ("status" = Option<String>, Query, min_length = 1, description = "Any of these, separated by commas."),
        ("model" = Option<String>, Query, min_length = 1, max_length = 64, description = "Of this model."),
        ("project_id" = Option<String>, Query, pattern = "^proj_[0-9a-f]{32}$", description = "Of this project."),
        ("tag" = Option<String>, Query, min_length = 1, max_length = 64, description = "With this tag."),
        ("created_after" = Option<String>, Query, format = DateTime, description = "Accepted after this instant."),
        ("created_before" = Option<String>, Query, format = DateTime, description = "Accepted before this instant."),
        ("ids" = Option<String>, Query, min_length = 37, description = "These tasks, separated by commas; at most 100."),
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses(
        (status = 200, description = "A page of tasks.", body = Page<TaskView<'static>>),
        ReadProblems,
    ),
)]
pub(crate) async fn list_tasks(
    State(state): State<ApiState>,
    Reader(session): Reader,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<Response, Problem> {
    require_read(&session)?;
    let scope = ListScope::of(&session.principal);
    let page = {
        let _turn = state.store().pass().await?;
        state.task_state().list(&scope, &ask.filter, ask.cursor, ask.limit).await
    };
    let page = page.map_err(|error| store_problem!(error))?;
    // The query has seen to it; a list that showed more than a single read would is not shown at all.
    let seen = |snapshot: &&TaskSnapshot| session.principal.sees(&snapshot.owner());
    let snapshots: Vec<&TaskSnapshot> =
        page.items.iter().map(|record| &record.snapshot).filter(seen).collect();
    let live = state.live().of_list(&snapshots).await;
    let items = snapshots.iter().zip(&live).map(|(snapshot, live)| view(&state, snapshot, live)).collect();
    Ok(json(&Page { items, next_cursor: page.next.map(|cursor| cursor.to_string()) }))
}
