//! The facts of one version of a task: what is cached, compared and served.
//!
//! A snapshot says only what PostgreSQL says of one version. Progress, queue position, waiting reason and signed
//! links are computed when an answer is rendered and are never part of it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::status::{EventType, Stage, TaskStatus};
use crate::{
    credits::Credits,
    error_code::ErrorCode,
    ids::{AssetId, ModelName, ProjectId, ProviderAccountId, TaskId, TenantId, UserId},
    principal::Owner,
    priority::Priority,
};

/// What the user asked for, as sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The prompt, untrimmed.
    pub prompt: String,
    /// What the video must not show.
    pub negative_prompt: Option<String>,
    /// Length in whole seconds.
    pub duration_seconds: u32,
    /// Such as `720p`.
    pub resolution: String,
    /// Such as `16:9`.
    pub aspect_ratio: Option<String>,
    /// The random seed.
    pub seed: Option<u32>,
    /// The user's own labels.
    pub tags: Vec<String>,
}

/// What a task costs and where the credits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCredits {
    /// The price, fixed at submit.
    pub quoted: Credits,
    /// Still held.
    pub held: Credits,
    /// Taken as payment.
    pub charged: Credits,
    /// Given back.
    pub released: Credits,
}

impl TaskCredits {
    /// Where the credits of a task with this price and status are: held while it lives, then all charged or all
    /// released.
    #[must_use]
    pub const fn of(price: Credits, status: TaskStatus) -> Self {
        const ZERO: Credits = Credits::ZERO;
        match status {
            TaskStatus::Succeeded => Self { quoted: price, held: ZERO, charged: price, released: ZERO },
            TaskStatus::Failed | TaskStatus::Canceled => {
                Self { quoted: price, held: ZERO, charged: ZERO, released: price }
            }
            TaskStatus::Queued
            | TaskStatus::Scheduling
            | TaskStatus::Reconciling
            | TaskStatus::ProviderSubmitted
            | TaskStatus::Running
            | TaskStatus::PostProcessing => {
                Self { quoted: price, held: price, charged: ZERO, released: ZERO }
            }
        }
    }
}

/// One version of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSnapshot {
    /// Counts visible changes, from 1. First, because Redis compares snapshots by how their JSON begins.
    pub version: i32,
    /// The task.
    pub task_id: TaskId,
    /// Its tenant. Kept so that a cached answer can be checked against who asks.
    pub tenant_id: TenantId,
    /// Its owner.
    pub user_id: UserId,
    /// The project it belongs to.
    pub project_id: Option<ProjectId>,
    /// The state.
    pub status: TaskStatus,
    /// Whether a cancel waits for its answer.
    pub cancel_requested: bool,
    /// The public model name.
    pub model: ModelName,
    /// The provider account that got the job; none before the first claim.
    pub provider: Option<ProviderAccountId>,
    /// Tries that got a reference so far.
    pub attempt_no: i32,
    /// Tries that the provider refused or failed.
    pub tries: i32,
    /// Why it failed.
    pub error_code: Option<ErrorCode>,
    /// A sentence for the user.
    pub error_message: Option<String>,
    /// The stored video.
    pub output_asset_id: Option<AssetId>,
    /// What was asked for.
    pub inputs: Inputs,
    /// How urgent it is among its user's tasks.
    #[serde(default)]
    pub priority: Priority,
    /// What it costs.
    pub credits: TaskCredits,
    /// When it is given up.
    pub deadline_at: DateTime<Utc>,
    /// Before this instant it is not tried again.
    pub not_before: Option<DateTime<Utc>>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When this version came to be.
    pub updated_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

impl TaskSnapshot {
    /// Where it stands in a user's words.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        Stage::of(self.status, self.cancel_requested)
    }

    /// Whose it is.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        Owner { tenant: self.tenant_id, user: self.user_id, project: self.project_id }
    }
}

/// One row of a task's history, as streams and `task_events` carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEventRow {
    /// The task.
    pub task_id: TaskId,
    /// The version that this change made.
    pub version: i32,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The state after it.
    pub status: TaskStatus,
    /// The stage after it.
    pub stage: Stage,
    /// The try that was under way.
    pub attempt_no: i32,
    /// When.
    pub at: DateTime<Utc>,
    /// The credits that this change held, charged or released; 0 when it moved none.
    pub credits: Credits,
    /// Why it failed.
    pub error_code: Option<ErrorCode>,
}
