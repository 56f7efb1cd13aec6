//! What is computed while reading a task: progress, position, why it waits, how long it may take.
//!
//! None of it is a fact of a version, so none of it is stored with the snapshot, and all of it may be missing: what
//! is not known is null, never guessed. Readers of one task at the same moment share one trip to Redis.

mod estimate;

use std::{sync::Arc, time::Duration};

use catalogue::Catalogue;
use chrono::{DateTime, Utc};
use control::{Control, ControlError};
use domain::{
    TaskId, TaskStatus,
    model::{Model, Route},
    task::TaskSnapshot,
    wait::{Eta, Wait, WaitDetail, WaitReason},
};
use moka::future::Cache;

/// How long readers of one version share what was computed.
const SHARED_FOR: Duration = Duration::from_millis(50);
const POLL_MS_MIN: u64 = 500;
const POLL_MS_MAX: u64 = 5_000;

/// What was computed for one answer; whatever is unknown is none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LiveFacts {
    /// Per cent.
    pub(crate) progress: Option<u8>,
    /// 1 is the next of its model.
    pub(crate) position: Option<u64>,
    /// Why it waits.
    pub(crate) wait: Option<Wait>,
    /// Until it starts while it waits, until it ends while it is generated.
    pub(crate) eta: Option<Eta>,
    /// When asking again makes sense; none when it has ended.
    pub(crate) poll_after_ms: Option<u64>,
}

/// Computes [`LiveFacts`].
pub(crate) struct Live {
    control: Control,
    catalogue: Catalogue,
    shared: Cache<(TaskId, i32), Arc<LiveFacts>>,
}

impl Live {
    pub(crate) fn new(control: Control, catalogue: Catalogue) -> Self {
        let shared = Cache::builder().max_capacity(50_000).time_to_live(SHARED_FOR).build();
        Self { control, catalogue, shared }
    }

    /// What is known beside this snapshot at `now`.
    pub(crate) async fn of(&self, snapshot: &TaskSnapshot, now: DateTime<Utc>) -> Arc<LiveFacts> {
        if snapshot.status.is_terminal() {
            return Arc::default();
        }
        let key = (snapshot.task_id, snapshot.version);
        self.shared.get_with(key, async { Arc::new(self.compute(snapshot, now).await) }).await
    }

    /// The same for the items of a list: progress and the pace of polling, in one trip. Positions and reasons are
    /// only computed for a task that is looked at by itself.
    pub(crate) async fn of_list(&self, snapshots: &[&TaskSnapshot]) -> Vec<LiveFacts> {
        let running: Vec<TaskId> =
            snapshots.iter().filter(|snapshot| at_provider(snapshot.status)).map(|s| s.task_id).collect();
        let known = if running.is_empty() {
            Vec::new()
        } else {
            self.control.get_progress(&running).await.unwrap_or_default()
        };
        let mut known = running.iter().zip(known).filter_map(|(task, progress)| Some((*task, progress?)));
        let known: std::collections::HashMap<_, _> = known.by_ref().collect();
        let facts = |snapshot: &&TaskSnapshot| LiveFacts {
            progress: known
                .get(&snapshot.task_id)
                .filter(|progress| progress.version == snapshot.version)
                .map(|progress| progress.percent),
            poll_after_ms: self.poll_after_ms(snapshot, None),
            ..LiveFacts::default()
        };
        snapshots.iter().map(facts).collect()
    }

    async fn compute(&self, snapshot: &TaskSnapshot, now: DateTime<Utc>) -> LiveFacts {
        let mut facts = LiveFacts::default();
        let model = self.catalogue.model(&snapshot.model);
        if snapshot.status == TaskStatus::Queued {
            let (position, wait) =
                tokio::join!(self.position(snapshot), self.wait(snapshot, model.as_deref(), now));
            // Whoever can't say where a task stands can't start it either.
            let wait = if position.is_err() { Some(plain(WaitReason::ControlUnavailable)) } else { wait };
            let position = position.ok().flatten();
            facts.position = position;
            facts.eta = model.as_deref().and_then(|model| {
                let places = self.places(model);
                estimate::until_start(model.usual_duration(), places, position, wait.as_ref(), now)
            });
            facts.wait = wait;
        } else if at_provider(snapshot.status) {
            facts.progress = self.progress(snapshot).await;
            if snapshot.status == TaskStatus::Running && !snapshot.cancel_requested {
                let elapsed = now - snapshot.updated_at;
                facts.eta = model
                    .as_deref()
                    .and_then(|model| estimate::until_end(model.usual_duration(), elapsed, facts.progress));
            }
        }
        facts.poll_after_ms = self.poll_after_ms(snapshot, facts.eta);
        facts
    }

    async fn position(&self, snapshot: &TaskSnapshot) -> Result<Option<u64>, ControlError> {
        let TaskSnapshot { model, tenant_id, user_id, task_id, .. } = snapshot;
        let found = self.control.positions(&[(model.clone(), *tenant_id, *user_id, *task_id)]).await;
        found.map(|mut found| found.pop().flatten())
    }

    async fn progress(&self, snapshot: &TaskSnapshot) -> Option<u8> {
        let progress = self.control.get_progress(&[snapshot.task_id]).await.ok()?.pop().flatten()?;
        // What was reported of another version says nothing of this one.
        (progress.version == snapshot.version).then_some(progress.percent)
    }

    /// Why a queued task waits: what holds for everybody first, then what its scheduler noted.
    async fn wait(&self, snapshot: &TaskSnapshot, model: Option<&Model>, now: DateTime<Utc>) -> Option<Wait> {
        let intents = self.catalogue.intents().await;
        if model.is_some_and(|model| intents.is_ok_and(|intents| intents.stop(model))) {
            return Some(plain(WaitReason::ProviderPaused));
        }
        if let Some(until) = snapshot.not_before.filter(|until| *until > now) {
            let detail = WaitDetail { until: Some(until), ..WaitDetail::default() };
            return Some(Wait { reason: WaitReason::NotBefore, detail });
        }
        let note = self.control.get_waits(&[snapshot.task_id]).await.ok()?.pop().flatten()?;
        serde_json::from_str(&note).ok()
    }

    /// How long a further task of this model would wait.
    pub(crate) async fn until_start(&self, model: &Model, now: DateTime<Utc>) -> Option<Eta> {
        if self.catalogue.intents().await.is_ok_and(|intents| intents.stop(model)) {
            return None;
        }
        let waiting = self.control.queue_depths(std::slice::from_ref(&model.name)).await.ok()?.pop()?;
        estimate::until_start(model.usual_duration(), self.places(model), Some(waiting + 1), None, now)
    }

    /// How many of the model's tasks run side by side at most.
    fn places(&self, model: &Model) -> u32 {
        let places_at = |route: &Route| {
            self.catalogue.account(&route.account).map(|account| account.slots_of(&route.provider_model))
        };
        model.routes.iter().filter_map(places_at).fold(0, u32::saturating_add).max(1)
    }

    /// Often enough to see a quick task end, seldom enough not to be a burden.
    fn poll_after_ms(&self, snapshot: &TaskSnapshot, eta: Option<Eta>) -> Option<u64> {
        if snapshot.status.is_terminal() {
            return None;
        }
        let usual =
            self.catalogue.model(&snapshot.model).map_or(POLL_MS_MAX, |model| model.usual_duration_ms);
        let soonest = eta.map_or(0, |eta| eta.from_seconds.saturating_mul(500));
        Some((usual / 10).max(soonest).clamp(POLL_MS_MIN, POLL_MS_MAX))
    }
}

fn plain(reason: WaitReason) -> Wait {
    Wait { reason, detail: WaitDetail::default() }
}

const fn at_provider(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::ProviderSubmitted | TaskStatus::Running)
}
