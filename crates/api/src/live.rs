//! What is computed while reading a task: progress, position, why it waits, how long it may take.
//!
//! None of it is a fact of a version, so none of it is stored with the snapshot, and all of it may be missing: what
//! is not known is null, never guessed. Readers of one task at the same moment share one trip to Redis.

mod estimate;
mod room;

use std::{sync::Arc, time::Duration};

use catalogue::Catalogue;
use chrono::{DateTime, Utc};
use control::{Control, ControlError, Place, Promise, ServiceTime, SlotSet};
use domain::{
    ModelName, TaskId, TaskStatus, TenantId, UserId,
    model::Model,
    task::TaskSnapshot,
    wait::{Eta, Wait, WaitDetail, WaitReason},
};
use moka::future::Cache;
use tenancy::Tenancy;

use self::room::{Filled, Room, RouteRoom};

/// How long readers of one version share what was computed.
const SHARED_FOR: Duration = Duration::from_millis(50);
/// How long what is known of a model serves all its readers.
const MODEL_SHARED_FOR: Duration = Duration::from_millis(500);
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
    tenancy: Tenancy,
    shared: Cache<(TaskId, i32), Arc<LiveFacts>>,
    services: Cache<ModelName, ServiceTime>,
    /// Tasks whose readers were told when they would start.
    promised: Cache<TaskId, ()>,
}

impl Live {
    pub(crate) fn new(control: Control, catalogue: Catalogue, tenancy: Tenancy) -> Self {
        let shared = Cache::builder().max_capacity(50_000).time_to_live(SHARED_FOR).build();
        let services = Cache::builder().max_capacity(1_000).time_to_live(MODEL_SHARED_FOR).build();
        let promised = Cache::builder().max_capacity(50_000).build();
        Self { control, catalogue, tenancy, shared, services, promised }
    }

    /// What is known beside this snapshot at `now`.
    pub(crate) async fn of(&self, snapshot: &TaskSnapshot, now: DateTime<Utc>) -> Arc<LiveFacts> {
        if snapshot.status.is_terminal() {
            return Arc::default();
        }
        let key = (snapshot.task_id, snapshot.version);
        // Boxed where it begins: whoever finds an answer there doesn't carry the room for making one.
        self.shared.get_with(key, async { Arc::new(Box::pin(self.compute(snapshot, now)).await) }).await
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
            // Boxed: it asks much that a running task's readers don't.
            Box::pin(self.queued(snapshot, model.as_deref(), now, &mut facts)).await;
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

    /// Where a queued task stands, why it waits and until when.
    async fn queued(
        &self,
        snapshot: &TaskSnapshot,
        model: Option<&Model>,
        now: DateTime<Utc>,
        facts: &mut LiveFacts,
    ) {
        let room = async {
            match model {
                Some(model) => self.room(model, snapshot.tenant_id, snapshot.user_id).await,
                None => None,
            }
        };
        let notes = self.control.wait_of(snapshot.task_id, &snapshot.model);
        let (place, room, notes) = tokio::join!(self.place(snapshot), room, notes);
        // Whoever can't say where a task stands can't start it either.
        facts.wait = match &place {
            Err(_) => Some(plain(WaitReason::ControlUnavailable)),
            Ok(_) => {
                let (own, of_model) = notes.unwrap_or_default();
                let notes = [own, of_model].into_iter().flatten();
                self.wait(snapshot, model, room.as_ref(), notes, now).await
            }
        };
        let place = place.ok().flatten();
        facts.position = place.map(|place| place.of_model);
        if let (Some(model), Some(place), Some(room)) = (model, place, &room) {
            let service = self.service(model).await;
            facts.eta = estimate::until_start(service, room, place, facts.wait.as_ref(), now);
        }
        self.promise(snapshot.task_id, facts.eta, now).await;
    }

    async fn place(&self, snapshot: &TaskSnapshot) -> Result<Option<Place>, ControlError> {
        let TaskSnapshot { model, tenant_id, user_id, task_id, .. } = snapshot;
        let found = self.control.positions(&[(model.clone(), *tenant_id, *user_id, *task_id)]).await;
        found.map(|mut found| found.pop().flatten())
    }

    async fn progress(&self, snapshot: &TaskSnapshot) -> Option<u8> {
        let progress = self.control.get_progress(&[snapshot.task_id]).await.ok()?.pop().flatten()?;
        // What was reported of another version says nothing of this one.
        (progress.version == snapshot.version).then_some(progress.percent)
    }

    /// Why a queued task waits: what holds for everybody first, then its own limits as they are filled now, then what the
    /// schedulers noted of it or of its model, then the model's places.
    async fn wait(
        &self,
        snapshot: &TaskSnapshot,
        model: Option<&Model>,
        room: Option<&Room>,
        notes: impl Iterator<Item = String> + Send,
        now: DateTime<Utc>,
    ) -> Option<Wait> {
        let intents = self.catalogue.intents().await;
        if model.is_some_and(|model| intents.is_ok_and(|intents| intents.stop(model))) {
            return Some(plain(WaitReason::ProviderPaused));
        }
        if let Some(until) = snapshot.not_before.filter(|until| *until > now) {
            let detail = WaitDetail { until: Some(until), ..WaitDetail::default() };
            return Some(Wait { reason: WaitReason::NotBefore, detail });
        }
        if let Some(own) = room.and_then(Room::own_limit) {
            return Some(own);
        }
        let noted = notes.filter_map(|note| serde_json::from_str(&note).ok());
        let mut noted = noted.filter(|wait| room::still_holds(wait, room.is_some(), now));
        noted.next().or_else(|| room.and_then(Room::model_limit))
    }

    /// The places of a model, a tenant and a user, and how many of them are taken; none while nobody can say.
    async fn room(&self, model: &Model, tenant: TenantId, user: UserId) -> Option<Room> {
        let tier = self.tenancy.tier_of(user).await.ok().flatten()?;
        let intents = self.catalogue.intents().await.ok()?;
        let routes: Vec<_> = intents
            .open_routes(model)
            .filter_map(|route| Some((self.catalogue.account(&route.account)?, &route.provider_model)))
            .collect();
        let mut sets = vec![SlotSet::Tenant(tenant), SlotSet::User(tenant, user)];
        for (account, provider_model) in &routes {
            sets.push(SlotSet::Account(account.id.clone()));
            sets.push(SlotSet::Model(account.id.clone(), (*provider_model).clone()));
        }
        let used = self.control.slots_used(&sets).await.ok()?;
        let (own, at_routes) = used.split_at(2);
        let filled = |used, limit| Filled { used, limit };
        Some(Room {
            tenant: filled(own[0], tier.tenant.running),
            user: filled(own[1], tier.user.running),
            routes: routes
                .iter()
                .zip(at_routes.chunks_exact(2))
                .map(|((account, provider_model), used)| RouteRoom {
                    account: filled(used[0], account.slots),
                    model: filled(used[1], account.slots_of(provider_model)),
                })
                .collect(),
        })
    }

    /// How long the model's jobs take: as measured, or as its configuration says while nothing was.
    async fn service(&self, model: &Model) -> ServiceTime {
        let look = async {
            let found = self.control.service_times(std::slice::from_ref(&model.name)).await;
            let measured = found.ok().and_then(|mut found| found.pop().flatten());
            let usual = model.usual_duration();
            measured.unwrap_or(ServiceTime { mean: usual, deviation: usual / 4 })
        };
        self.services.get_with(model.name.clone(), look).await
    }

    /// Keeps what a reader is told for the first time, so that it can be compared with what happens.
    async fn promise(&self, task: TaskId, eta: Option<Eta>, now: DateTime<Utc>) {
        let Some(eta) = eta else { return };
        if self.promised.contains_key(&task) {
            return;
        }
        self.promised.insert(task, ()).await;
        let now_ms = now.timestamp_millis();
        let at =
            |seconds: u64| now_ms.saturating_add(i64::try_from(seconds).unwrap_or(0).saturating_mul(1_000));
        let promise = Promise { from_ms: at(eta.from_seconds), to_ms: at(eta.to_seconds) };
        if let Err(error) = self.control.keep_promises(&[(task, promise)], now_ms).await {
            tracing::debug!(%error, "what a reader was told was not kept");
        }
    }

    /// How long a further task of this model and user would wait.
    pub(crate) async fn until_start(
        &self,
        model: &Model,
        (tenant, user): (TenantId, UserId),
        now: DateTime<Utc>,
    ) -> Option<Eta> {
        if self.catalogue.intents().await.is_ok_and(|intents| intents.stop(model)) {
            return None;
        }
        let waiting = self.control.queue_depths(std::slice::from_ref(&model.name)).await.ok()?.pop()?;
        let room = self.room(model, tenant, user).await?;
        let place = Place { of_model: waiting + 1, of_tenant: 1, of_user: 1 };
        estimate::until_start(self.service(model).await, &room, place, room.own_limit().as_ref(), now)
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
