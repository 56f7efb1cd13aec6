//! Dispatch: from the head of a model's queue to a submit under way.
//!
//! Each model has its own pump. One pass pops as many tasks as there is likely room for and sets their dispatch going:
//! it takes their slots and rates in Redis, claims them in PostgreSQL in one commit, writes their leases and starts their
//! drivers. A few dispatches overlap. Everything is done for the whole batch; nothing in Redis is asked per task. What finds no room goes back with the reason noted, and
//! the pump rests until a release rings or the time that was named is over.
//!
//! - [`ways`]: which provider account each task goes to
//! - [`take_slots`]: places and rates, and the rebuild of tags that are not ready
//! - [`start`]: claim, leases, drivers

mod start;
mod take_slots;
mod ways;

pub(crate) use take_slots::{rebuild, slot_of};

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use control::{ModelWait, Park, Popped, QueuedUser, ReadyTask, Trips, WaitNote};
use domain::{TaskId, model::Model, wait::Wait};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use self::ways::{Way, Ways, Wheel};
use crate::{
    loops::{Next, PassError},
    worker::Worker,
};

/// Between two looks at what operators intend, while they intend that nothing is submitted.
const WHILE_PAUSED: Duration = Duration::from_secs(1);
/// Until the next look while outputs wait for their turn.
const WHILE_OUTPUTS_WAIT: Duration = Duration::from_millis(25);
/// Until the next look when everything is full, should no release ring.
const WHILE_FULL: Duration = Duration::from_secs(1);

/// Tries to return what was popped in vain; after them it comes back by itself.
const RETURN_AFTER: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(400), Duration::from_millis(1_600)];

/// Batches of one model that are on their way from their pop to their drivers. The next is popped while the last is
/// claimed, so that a task which comes a moment too late for one does not wait for its end.
const UNDER_WAY_MAX: u32 = 3;

/// One model's pump.
#[derive(Debug)]
pub(crate) struct Pump {
    model: Arc<Model>,
    /// How many pops have been answered: the number of the next one, and of the last one if its answer was lost.
    pops: AtomicU64,
    /// How many tasks the next pass pops: doubles while all find room, falls to what found some. Whatever is popped in
    /// vain cannot be had by other schedulers meanwhile, and has to be put back.
    want: AtomicUsize,
    /// Whose turn it is among the accounts of its routes.
    wheel: Wheel,
    /// Turns to dispatch a batch.
    turns: Arc<Semaphore>,
    /// Tasks of those batches; they are not among the worker's holdings yet.
    under_way: AtomicUsize,
    news: Mutex<News>,
}

/// What dispatches have to tell the next pass.
#[derive(Debug, Default)]
struct News {
    /// Until when nothing is popped, because there was no room, unless there was another release than these.
    rest: Option<(Instant, u64)>,
    /// Why one of them failed.
    failed: Option<PassError>,
    /// Users whose heads ran low and were not refilled yet. The queue tells it once, so a refill that failed is owed.
    owed: HashSet<QueuedUser>,
    /// When it was last said what all tasks of the model wait for.
    told_at: Option<Instant>,
}

/// How many tasks a pass pops at most, and in how many trips their slots are taken.
struct Appetite {
    most: usize,
    trips: Trips,
}

/// A popped task that does not start now.
#[derive(Debug)]
struct PutBack {
    task: ReadyTask,
    why: Refusal,
}

/// Why a task does not start now.
#[derive(Debug)]
struct Refusal {
    park: Park,
    wait: Option<Wait>,
    /// How long the whole pump has to wait for the same reason.
    rest: Option<Duration>,
}

impl Pump {
    pub(crate) fn new(model: Arc<Model>, worker: &Worker) -> Self {
        Self {
            model,
            pops: AtomicU64::new(0),
            want: AtomicUsize::new(worker.config.dispatch_batch_max),
            wheel: Wheel::default(),
            turns: Arc::new(Semaphore::new(UNDER_WAY_MAX as usize)),
            under_way: AtomicUsize::new(0),
            news: Mutex::default(),
        }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One pass: pops a batch and sets its dispatch going.
    ///
    /// # Errors
    /// When a store did not answer, now or in a dispatch since the last pass. What was popped comes back by itself after
    /// its claim.
    pub(crate) async fn pass(self: &Arc<Self>, worker: &Arc<Worker>) -> Result<Next, PassError> {
        if let Some(error) = self.news().failed.take() {
            return Err(error);
        }
        if worker.outputs.waiting() > worker.config.outputs_waiting_max {
            return Ok(Next::In(WHILE_OUTPUTS_WAIT));
        }
        // While the process answers late, fewer and larger batches cost less.
        let gather = worker.effort.gather();
        if !gather.is_zero() {
            tokio::time::sleep(gather).await;
        }
        // Where room is scarce one batch goes after the other: a second one would get the places that become free while the
        // first, whose turn it is, is being put back.
        let scarce = self.want.load(Ordering::Relaxed) < worker.config.dispatch_batch_max;
        let turns = if scarce { UNDER_WAY_MAX } else { 1 };
        let turn = self.turns.clone().acquire_many_owned(turns).await?;
        // Asked now and not before the waiting: what is popped goes where operators leave it open at this moment.
        let intents = worker.catalogue.intents().await?;
        let ways = match ways::open_ways(worker, &self.model, &intents)? {
            Ways::Open(ways) => ways,
            Ways::Paused => return Ok(Next::In(WHILE_PAUSED)),
            Ways::Spent(wait) => {
                if self.has_to_tell() {
                    self.note_waits(worker, &[], self.model_wait(&wait, WHILE_PAUSED)).await;
                }
                return Ok(Next::In(WHILE_PAUSED));
            }
        };
        let bell = worker.bell(&self.model.name);
        bell.wait_for_room();
        if let Some(rest) = self.rest(bell.releases()) {
            // Whatever rings ends it: a release, or something new.
            return Ok(Next::In(rest));
        }
        let releases = bell.releases();
        let appetite = self.appetite(worker);
        if appetite.most == 0 {
            // The next place that is freed rings.
            return Ok(Next::Timer);
        }
        let popped = self.pop(worker, appetite.most).await?;
        let count = popped.tasks.len();
        let out = popped.tasks.iter().map(|task| task.task).collect();
        if count > 0 {
            self.set_going(worker, popped.tasks, ways, appetite.trips, releases, turn);
        }
        self.refill(worker, popped.refill, &out).await?;
        if count < appetite.most {
            // Nothing is left that needs room; what is under way and finds none rings by itself.
            bell.found_room();
            return Ok(popped.next_due_ms.map_or(Next::Timer, |ms| Next::In(Duration::from_millis(ms))));
        }
        Ok(Next::In(Duration::ZERO))
    }

    /// For how long nothing is popped, because there was no room and there were only these releases since.
    fn rest(&self, releases: u64) -> Option<Duration> {
        let (until, since) = self.news().rest.take()?;
        let left = until.saturating_duration_since(Instant::now());
        (since == releases && !left.is_zero()).then_some(left)
    }

    /// Whether it is time to say again what all tasks of the model wait for. New ones wake the pump at any rate.
    fn has_to_tell(&self) -> bool {
        let mut news = self.news();
        let has_to = news.told_at.is_none_or(|told_at| told_at.elapsed() >= WHILE_PAUSED / 2);
        if has_to {
            news.told_at = Some(Instant::now());
        }
        has_to
    }

    /// How much there is likely room for.
    fn appetite(&self, worker: &Worker) -> Appetite {
        let owned = worker.holdings.len() + self.under_way.load(Ordering::SeqCst);
        let room =
            worker.config.worker_attempts_max.saturating_sub(owned).min(worker.places.available_permits());
        let max = worker.config.dispatch_batch_max;
        let want = self.want.load(Ordering::Relaxed);
        // It falls when something finds no room.
        let trips = if want < max { Trips::Two } else { Trips::One };
        Appetite { most: want.min(room).min(worker.effort.starts(max)), trips }
    }

    async fn pop(&self, worker: &Worker, most: usize) -> Result<Popped, PassError> {
        let number = self.pops.load(Ordering::Relaxed);
        let max = u32::try_from(most).unwrap_or(u32::MAX);
        let popped = worker.control.pop_ready(&self.model.name, max, &worker.id, number).await?;
        self.pops.store(number + 1, Ordering::Relaxed);
        if !popped.marked {
            worker.fill.notify_one();
        }
        let max = worker.config.dispatch_batch_max;
        let next = if popped.tasks.len() >= most { most.saturating_mul(2).min(max) } else { max };
        self.want.store(next, Ordering::Relaxed);
        Ok(popped)
    }

    /// Dispatches a batch in a task of its own, so that a shutdown in the middle leaves no claimed task without a driver.
    fn set_going(
        self: &Arc<Self>,
        worker: &Arc<Worker>,
        tasks: Vec<ReadyTask>,
        ways: Vec<Arc<Way>>,
        trips: Trips,
        releases: u64,
        turn: OwnedSemaphorePermit,
    ) {
        let count = tasks.len();
        self.under_way.fetch_add(count, Ordering::SeqCst);
        let (pump, going) = (self.clone(), worker.clone());
        worker.drivers.spawn(async move {
            pump.dispatch(&going, tasks, &ways, trips, releases).await;
            pump.under_way.fetch_sub(count, Ordering::SeqCst);
            drop(turn);
        });
    }

    /// Fetches the next tasks of users whose heads run low, those of earlier passes included whose refill failed. `out` are
    /// on their way already.
    async fn refill(
        &self,
        worker: &Worker,
        low: Vec<QueuedUser>,
        out: &HashSet<TaskId>,
    ) -> Result<(), PassError> {
        let owed: Vec<QueuedUser> = {
            let mut news = self.news();
            news.owed.extend(low);
            news.owed.iter().cloned().collect()
        };
        worker.refill(&self.model.name, &owed, out).await?;
        self.news().owed.clear();
        Ok(())
    }

    /// Takes slots for the tasks, claims those that got them and starts them. Puts back the others, and tells the next
    /// pass what it has to know.
    ///
    /// `releases` are those that there were before the pop.
    async fn dispatch(
        &self,
        worker: &Arc<Worker>,
        tasks: Vec<ReadyTask>,
        ways: &[Arc<Way>],
        trips: Trips,
        releases: u64,
    ) {
        let popped = tasks.clone();
        let result = self.try_dispatch(worker, tasks, ways, trips).await;
        let put_back = match result {
            Ok(put_back) => put_back,
            Err(error) => {
                return_soon(worker, popped);
                self.news().failed = Some(error);
                return worker.ring(&self.model.name);
            }
        };
        if put_back.is_empty() {
            return;
        }
        self.want.store((popped.len() - put_back.len()).max(1), Ordering::Relaxed);
        let rest = put_back.iter().filter_map(|back| back.why.rest).max();
        let returned = self.return_tasks(worker, put_back).await;
        {
            let mut news = self.news();
            news.rest = rest.map(|rest| (Instant::now() + rest, releases));
            news.failed = returned.err().or(news.failed.take());
        }
        // The pump may sleep on another word by now: it has to hear of the rest, or to look again.
        worker.ring(&self.model.name);
    }

    async fn try_dispatch(
        &self,
        worker: &Arc<Worker>,
        tasks: Vec<ReadyTask>,
        ways: &[Arc<Way>],
        trips: Trips,
    ) -> Result<Vec<PutBack>, PassError> {
        let wishes = take_slots::wishes(worker, &self.wheel, ways, tasks).await?;
        let mut taken = take_slots::take(worker, wishes, trips).await?;
        let no_room = start::start(worker, taken.acquired, taken.asked_at).await?;
        taken.put_back.extend(no_room);
        Ok(taken.put_back)
    }

    /// What keeps all tasks of the model waiting, and for how long at least.
    fn model_wait(&self, wait: &Wait, lasts: Duration) -> Option<ModelWait> {
        let json = serde_json::to_string(wait).ok()?;
        Some(ModelWait { model: self.model.name.clone(), lasts, json })
    }

    /// Tells their owners why tasks wait.
    async fn note_waits(&self, worker: &Worker, notes: &[WaitNote], of_model: Option<ModelWait>) {
        if let Err(error) = worker.control.set_waits(notes, of_model).await {
            tracing::debug!(%error, "why tasks wait was not noted");
        }
    }

    async fn return_tasks(&self, worker: &Worker, put_back: Vec<PutBack>) -> Result<(), PassError> {
        if put_back.is_empty() {
            return Ok(());
        }
        let of_all = put_back.iter().find_map(|back| back.why.wait.as_ref().zip(back.why.rest));
        let of_model = of_all.and_then(|(wait, rest)| self.model_wait(wait, rest));
        let notes: Vec<_> = put_back
            .iter()
            .filter_map(|back| {
                let json = serde_json::to_string(back.why.wait.as_ref()?).ok()?;
                Some(WaitNote { task: back.task.task, json })
            })
            .collect();
        let tasks: Vec<_> = put_back.into_iter().map(|back| (back.task, back.why.park)).collect();
        // At once: as long as they are out, others pass them.
        let (returned, ()) =
            tokio::join!(worker.control.put_back(&tasks), self.note_waits(worker, &notes, of_model));
        returned?;
        Ok(())
    }
}

/// Returns tasks whose dispatch failed, before their time out of the queue is over. Whether some were claimed all the
/// same, PostgreSQL knows, and refuses those when their turn comes again. Slots that some hold already stay theirs:
/// taking them again takes nothing.
fn return_soon(worker: &Arc<Worker>, tasks: Vec<ReadyTask>) {
    let returning = worker.clone();
    worker.drivers.spawn(async move {
        let tasks: Vec<_> = tasks.into_iter().map(|task| (task, Park::Head)).collect();
        for pause in RETURN_AFTER {
            tokio::time::sleep(pause).await;
            match returning.control.put_back(&tasks).await {
                Ok(()) => return tasks.iter().for_each(|(task, _)| returning.ring(&task.model)),
                Err(error) => tracing::debug!(%error, "popped tasks were not put back yet"),
            }
        }
    });
}
