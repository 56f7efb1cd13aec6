//! A task as it is shown: the facts of one version, and what is computed while reading.

use domain::{
    AssetId, ErrorCode, ModelName, Priority, ProjectId, ProviderAccountId, TaskId, TaskStatus,
    task::{EventType, Inputs, Stage, TaskCredits, TaskEventRow, TaskSnapshot},
    wait::{Eta, WaitDetail, WaitReason},
};
use http::HeaderValue;
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::{live::LiveFacts, view::Millis};

/// A task: facts of one version, and what was computed for this answer (null when unknown).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskView<'a> {
    /// The task.
    #[schema(value_type = String, examples("task_0193a1b2c3d4e5f60718293a4b5c6d7e"))]
    task_id: TaskId,
    /// The project it belongs to.
    #[schema(value_type = Option<String>)]
    project_id: Option<ProjectId>,
    /// QUEUED, SCHEDULING, PROVIDER_SUBMITTED, RUNNING, POST_PROCESSING, SUCCEEDED, FAILED, CANCELED or RECONCILING.
    /// May grow.
    #[schema(value_type = String)]
    status: TaskStatus,
    /// queued, dispatching, provider_queued, provider_generating, reconciling, fetching_output, canceling or done.
    /// May grow.
    #[schema(value_type = String)]
    stage: Stage,
    /// Per cent, as the provider reports it.
    #[schema(minimum = 0, maximum = 100)]
    progress: Option<u8>,
    /// 1 is the next of its model.
    queue_position: Option<u64>,
    /// Seconds until it starts (while queued) or ends (while generating), as a range.
    #[schema(value_type = Option<EtaView>)]
    eta: Option<Eta>,
    /// Why it waits. May grow.
    #[schema(value_type = Option<String>)]
    wait_reason: Option<WaitReason>,
    /// The figures behind the reason.
    wait_detail: Option<WaitDetailView>,
    /// The provider account that has it.
    #[schema(value_type = Option<String>)]
    provider: Option<&'a ProviderAccountId>,
    /// The model.
    #[schema(value_type = String)]
    model: &'a ModelName,
    /// Counts our references at the provider, from 1.
    attempt_no: i32,
    /// Attempts that the provider refused or failed.
    tries: i32,
    /// A preview image; null until there are any.
    #[schema(value_type = Option<String>)]
    preview_asset_id: Option<AssetId>,
    /// The video.
    #[schema(value_type = Option<String>)]
    output_asset_id: Option<AssetId>,
    /// A link to the video, made for this answer; it works without a credential for at least an hour.
    output_url: Option<String>,
    /// Why it failed. May grow.
    #[schema(value_type = Option<String>)]
    error_code: Option<ErrorCode>,
    /// The same as a sentence.
    error_message: Option<&'a str>,
    /// What was asked for.
    inputs: InputsView<'a>,
    /// How urgent it is among its user's tasks, from 0 to 9.
    #[schema(value_type = u8, minimum = 0, maximum = 9)]
    priority: Priority,
    /// What it costs and where the credits are.
    #[schema(value_type = CreditsView)]
    credits: TaskCredits,
    /// When it is given up.
    #[schema(value_type = String, format = DateTime)]
    deadline_at: Millis,
    /// Counts visible changes.
    version: i32,
    /// After how many milliseconds asking again makes sense; null when it has ended.
    poll_after_ms: Option<u64>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Millis,
    /// When this version came to be.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Millis,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Millis>,
}

/// What a task was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TaskInputs)]
struct InputsView<'a> {
    /// As sent.
    prompt: &'a str,
    /// As sent.
    negative_prompt: Option<&'a str>,
    /// Length of the video.
    duration_seconds: u32,
    /// Such as 720p.
    resolution: &'a str,
    /// Such as 16:9.
    aspect_ratio: Option<&'a str>,
    /// The random seed.
    #[schema(format = Int64, minimum = 0, maximum = 4_294_967_295_u32)]
    seed: Option<u32>,
    /// The user's own labels.
    tags: &'a [String],
}

impl<'a> From<&'a Inputs> for InputsView<'a> {
    fn from(inputs: &'a Inputs) -> Self {
        Self {
            prompt: &inputs.prompt,
            negative_prompt: inputs.negative_prompt.as_deref(),
            duration_seconds: inputs.duration_seconds,
            resolution: &inputs.resolution,
            aspect_ratio: inputs.aspect_ratio.as_deref(),
            seed: inputs.seed,
            tags: &inputs.tags,
        }
    }
}

/// A range of whole seconds from now.
#[derive(Debug, ToSchema)]
#[schema(as = Eta)]
#[expect(dead_code, reason = "describes domain::wait::Eta in the document")]
pub(crate) struct EtaView {
    /// At the earliest.
    from_seconds: u64,
    /// At the latest.
    to_seconds: u64,
}

/// Where a task's credits are.
#[derive(Debug, ToSchema)]
#[schema(as = TaskCredits)]
#[expect(dead_code, reason = "describes domain::task::TaskCredits in the document")]
struct CreditsView {
    /// The price, fixed at submit.
    quoted: i64,
    /// Still held.
    held: i64,
    /// Taken as payment.
    charged: i64,
    /// Given back.
    released: i64,
}

/// The figures behind a wait reason; each may be missing.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = WaitDetail)]
struct WaitDetailView {
    /// Places in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u32>,
    /// Places there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Millis>,
}

impl From<&WaitDetail> for WaitDetailView {
    fn from(detail: &WaitDetail) -> Self {
        Self { used: detail.used, limit: detail.limit, until: detail.until.map(Millis) }
    }
}

impl<'a> TaskView<'a> {
    /// Puts a snapshot and what was computed beside it together.
    pub(crate) fn new(snapshot: &'a TaskSnapshot, live: &LiveFacts, output_url: Option<String>) -> Self {
        Self {
            task_id: snapshot.task_id,
            project_id: snapshot.project_id,
            status: snapshot.status,
            stage: snapshot.stage(),
            progress: live.progress,
            queue_position: live.position,
            eta: live.eta,
            wait_reason: live.wait.as_ref().map(|wait| wait.reason),
            wait_detail: live.wait.as_ref().map(|wait| WaitDetailView::from(&wait.detail)),
            provider: snapshot.provider.as_ref(),
            model: &snapshot.model,
            attempt_no: snapshot.attempt_no,
            tries: snapshot.tries,
            preview_asset_id: None,
            output_asset_id: snapshot.output_asset_id,
            output_url,
            error_code: snapshot.error_code,
            error_message: snapshot.error_message.as_deref(),
            inputs: InputsView::from(&snapshot.inputs),
            priority: snapshot.priority,
            credits: snapshot.credits,
            deadline_at: Millis(snapshot.deadline_at),
            version: snapshot.version,
            poll_after_ms: live.poll_after_ms,
            created_at: Millis(snapshot.created_at),
            updated_at: Millis(snapshot.updated_at),
            ended_at: snapshot.ended_at.map(Millis),
        }
    }

    /// The video and the link to it.
    pub(crate) fn link(&self) -> Option<(AssetId, &str)> {
        self.output_asset_id.zip(self.output_url.as_deref())
    }

    /// A weak tag over everything that may differ between two answers: version, progress and position in clear, the
    /// rest (reason, figures, eta, link) as a hash. Every process makes the same tag of the same answer.
    pub(crate) fn etag(&self) -> HeaderValue {
        let mut hash = Sha256::new();
        hash.update(self.wait_reason.map_or("", WaitReason::as_str));
        if let Some(WaitDetailView { used, limit, until }) = &self.wait_detail {
            hash.update(format!(
                "|{used:?}|{limit:?}|{:?}",
                until.map(|Millis(until)| until.timestamp_millis())
            ));
        }
        if let Some(eta) = self.eta {
            hash.update(format!("|{}-{}", eta.from_seconds, eta.to_seconds));
        }
        hash.update(self.output_url.as_deref().unwrap_or_default());
        let figure = |known: Option<u64>| known.map_or_else(|| "x".to_owned(), |figure| figure.to_string());
        let (progress, position) = (figure(self.progress.map(u64::from)), figure(self.queue_position));
        let short = hex::encode(&hash.finalize()[..4]);
        let tag = format!("W/\"{}-{progress}-{position}-{short}\"", self.version);
        HeaderValue::from_maybe_shared(bytes::Bytes::from(tag)).unwrap_or(HeaderValue::from_static("W/\"0\""))
    }
}

/// One visible change of a task, as streams carry it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TaskEvent)]
pub(crate) struct EventView {
    /// The task.
    #[schema(value_type = String)]
    task_id: TaskId,
    /// The version that this change made.
    version: i32,
    /// What happened. May grow.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    event_type: EventType,
    /// The state after it.
    #[schema(value_type = String)]
    status: TaskStatus,
    /// The stage after it.
    #[schema(value_type = String)]
    stage: Stage,
    /// The attempt that was under way.
    attempt_no: i32,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Millis,
    /// Credits that this change held, charged or gave back.
    credits: i64,
    /// Why it failed.
    #[schema(value_type = Option<String>)]
    error_code: Option<ErrorCode>,
}

impl From<&TaskEventRow> for EventView {
    fn from(row: &TaskEventRow) -> Self {
        Self {
            task_id: row.task_id,
            version: row.version,
            event_type: row.event_type,
            status: row.status,
            stage: row.stage,
            attempt_no: row.attempt_no,
            at: Millis(row.at),
            credits: row.credits.get(),
            error_code: row.error_code,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use chrono::{DateTime, TimeDelta};
    use domain::{Credits, TenantId, UserId, wait::Wait};

    use super::*;

    /// A queued task with fixed values.
    pub(crate) fn snapshot() -> TaskSnapshot {
        let id = "0193a1b2c3d47e5f80718293a4b5c6d7";
        let at = DateTime::UNIX_EPOCH + TimeDelta::microseconds(1_764_400_000_123_456);
        TaskSnapshot {
            task_id: format!("task_{id}").parse().unwrap(),
            tenant_id: format!("ten_{id}").parse::<TenantId>().unwrap(),
            user_id: format!("user_{id}").parse::<UserId>().unwrap(),
            project_id: None,
            version: 1,
            status: TaskStatus::Queued,
            cancel_requested: false,
            model: "mock-fast".parse().unwrap(),
            provider: None,
            attempt_no: 0,
            tries: 0,
            error_code: None,
            error_message: None,
            output_asset_id: None,
            inputs: Inputs {
                prompt: "Paper boat".to_owned(),
                negative_prompt: None,
                duration_seconds: 5,
                resolution: "720p".to_owned(),
                aspect_ratio: Some("16:9".to_owned()),
                seed: Some(7),
                tags: vec!["demo".to_owned()],
            },
            priority: Priority::default(),
            credits: TaskCredits::of(Credits::new(10).unwrap(), TaskStatus::Queued),
            deadline_at: at + TimeDelta::minutes(30),
            not_before: None,
            created_at: at,
            updated_at: at,
            ended_at: None,
        }
    }

    fn waiting() -> LiveFacts {
        LiveFacts {
            progress: None,
            position: Some(4),
            wait: Some(Wait {
                reason: WaitReason::ProviderConcurrency,
                detail: WaitDetail { used: Some(10), limit: Some(10), until: None },
            }),
            eta: Some(Eta { from_seconds: 40, to_seconds: 70 }),
            poll_after_ms: Some(2_000),
        }
    }

    #[test]
    fn a_waiting_task_says_why_and_how_long() {
        let snapshot = snapshot();
        let view = TaskView::new(&snapshot, &waiting(), None);
        insta::assert_json_snapshot!(view);
        assert_eq!(view.etag(), "W/\"1-x-4-15817355\"");
    }

    #[test]
    fn the_tag_differs_when_anything_does() {
        let base = snapshot();
        let tag = |change: fn(&mut TaskSnapshot, &mut LiveFacts, &mut Option<String>)| {
            let (mut snapshot, mut live, mut link) = (base.clone(), waiting(), None);
            change(&mut snapshot, &mut live, &mut link);
            TaskView::new(&snapshot, &live, link).etag()
        };
        let same = tag(|_, _, _| ());
        assert_eq!(same, tag(|_, _, _| ()));
        let others = [
            tag(|snapshot, _, _| snapshot.version = 2),
            tag(|_, live, _| live.progress = Some(1)),
            tag(|_, live, _| live.position = None),
            tag(|_, live, _| live.wait = None),
            tag(|_, live, _| live.eta = None),
            tag(|_, _, link| *link = Some("/assets/a/content?exp=1&sig=2".to_owned())),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(&same, other, "change {index}");
            assert!(!others[index + 1..].contains(other), "change {index}");
        }
    }
}
