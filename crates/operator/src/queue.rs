//! Looking at the queues: how many tasks wait for each model, since when, and whose turn it is.

use std::collections::HashMap;

use catalogue::Catalogue;
use chrono::{DateTime, Utc};
use control::{Control, TurnOrder};
use domain::ModelName;
use task_state::TaskState;

use crate::OperatorError;

/// The queue of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSeen {
    /// The model.
    pub model: ModelName,
    /// Queued tasks, those included that are put off, as PostgreSQL counts them.
    pub waiting: u64,
    /// When the one was made that waits longest.
    pub oldest: Option<DateTime<Utc>>,
    /// Tasks in the ready queue: the first of each user.
    pub ready: u64,
    /// Whether the ready queue is known to be complete.
    pub complete: bool,
    /// Whose turn it is.
    pub turns: TurnOrder,
}

/// The queues of all models, each with at most `most` tenants in the order of their turn.
///
/// # Errors
/// When a store fails.
pub async fn look_at_queues(
    control: &Control,
    task_state: &TaskState,
    catalogue: &Catalogue,
    most: u16,
) -> Result<Vec<QueueSeen>, OperatorError> {
    let models: Vec<ModelName> = catalogue.models().iter().map(|model| model.name.clone()).collect();
    let mut waiting: HashMap<ModelName, _> =
        task_state.waiting().await?.into_iter().map(|waiting| (waiting.model.clone(), waiting)).collect();
    let depths = control.queue_depths(&models).await?;
    let turns = control.turn_order(&models, most).await?;
    let mut seen = Vec::with_capacity(models.len());
    for ((model, ready), turns) in models.into_iter().zip(depths).zip(turns) {
        let waiting = waiting.remove(&model);
        seen.push(QueueSeen {
            complete: control.ready_marker(&model).await?,
            waiting: waiting.as_ref().map_or(0, |waiting| waiting.tasks),
            oldest: waiting.map(|waiting| waiting.oldest),
            model,
            ready,
            turns,
        });
    }
    Ok(seen)
}
