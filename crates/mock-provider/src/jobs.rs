//! Jobs and the figures about them.
//!
//! A job's fate and its end are fixed when it is submitted. What it looks like is computed when somebody asks, so a
//! job costs memory and nothing else. Live figures need the moment at which jobs end: a heap of end times is settled
//! before each use, which makes "the most alive at once" exact without a timer. The clock is the caller's argument.

mod saved;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    hash::{DefaultHasher, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Config, Model,
    callbacks::{News, Target},
};

/// References whose submit counts are remembered; far above what a test compares, far below what memory holds.
const COUNTED_REFERENCES_MAX: usize = 500_000;
/// Bytes of prompts that ended jobs may keep (a fault rule may ask what a prompt contains).
const ENDED_PROMPT_BYTES_MAX: usize = 64 << 20;
/// A job waits in the provider's own queue for a tenth of its time, at most this long.
const QUEUED_MAX: Duration = Duration::from_millis(50);

/// Who made a job: a digest of the credential, `None` without one.
pub(crate) type Account = Option<u64>;
/// What digests of credentials begin with. It is random, and kept where jobs are kept.
type Salt = [u64; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Queued,
    Running,
    Succeeded,
    Failed,
    Canceled,
}

/// A job as a caller sees it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: Arc<str>,
    pub(crate) status: Status,
    /// Whole percent.
    pub(crate) progress: u8,
}

/// What a submit asks for, already checked for form.
pub(crate) struct NewJob {
    pub(crate) model: String,
    pub(crate) prompt: String,
    pub(crate) client_reference: String,
    pub(crate) account: Account,
    /// Where it is reported to.
    pub(crate) callback: Option<Arc<Target>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    UnknownModel,
    /// More live jobs than the provider holds.
    Full,
}

struct Job {
    reference: Arc<str>,
    model: Arc<str>,
    prompt: Box<str>,
    account: Account,
    created_at: Instant,
    ends_at: Instant,
    will_fail: bool,
    /// Set by the settling of its end or by a cancel, with the progress reached.
    ended: Option<(Status, u8)>,
    /// Where it is reported to; none once its end has been.
    callback: Option<Arc<Target>>,
}

impl Job {
    fn seen(&self, id: &Arc<str>, now: Instant) -> Seen {
        let (status, progress) = self.ended.unwrap_or_else(|| {
            let total = self.ends_at - self.created_at;
            let elapsed = now.saturating_duration_since(self.created_at);
            if elapsed < QUEUED_MAX.min(total / 10) {
                return (Status::Queued, 0);
            }
            let percent = elapsed.as_millis() * 100 / total.as_millis().max(1);
            (Status::Running, u8::try_from(percent).unwrap_or(99).min(99))
        });
        Seen { id: id.clone(), status, progress }
    }
}

#[derive(Default)]
struct Inner {
    models: BTreeMap<Arc<str>, Model>,
    jobs: HashMap<Arc<str>, Job>,
    by_reference: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// When live jobs end. Entries of canceled jobs stay until their time and are skipped.
    ends: BinaryHeap<Reverse<(Instant, Arc<str>)>>,
    /// Ended jobs, oldest first, and the bytes of their prompts.
    ended: VecDeque<Arc<str>>,
    ended_prompt_bytes: usize,
    submits_by_reference: HashMap<Arc<str>, Submits>,
    counted: VecDeque<Arc<str>>,
    live_by_task: HashMap<Arc<str>, u64>,
    figures: Figures,
}

/// The submits with one reference.
struct Submits {
    count: u64,
    /// When the first was seen; `None` when that was in an earlier life.
    first_at: Option<Instant>,
}

/// A reference's first arrival, as a load generator compares it with its own clock.
pub(crate) struct Arrival {
    pub(crate) reference: Arc<str>,
    pub(crate) ago: Duration,
    pub(crate) submits: u64,
}

/// Plain counters, as the stats and the state file spell them.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    submits: u64,
    max_live_by_task: u64,
    polls: u64,
    lookups: u64,
    cancels: u64,
    outputs: u64,
    running: u64,
    max_running: u64,
    /// Callbacks sent, repetitions included, and those that were answered 2xx.
    #[serde(default)]
    callbacks: u64,
    #[serde(default)]
    callbacks_taken: u64,
}

/// The answer of `GET /_control/stats`.
#[derive(Serialize)]
pub(crate) struct Stats {
    #[serde(flatten)]
    figures: Figures,
    #[serde(serialize_with = "as_map")]
    submits_by_reference: Vec<(Arc<str>, u64)>,
    #[serde(serialize_with = "as_map")]
    live_by_task: Vec<(Arc<str>, u64)>,
}

/// Pairs with distinct names as a JSON object: copied out under the lock, spelled out after it.
fn as_map<S: Serializer>(pairs: &[(Arc<str>, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, count)| (&**name, count)))
}

/// What requests other than submits are counted as.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Poll,
    Lookup,
    Cancel,
    Output,
    Callback,
    CallbackTaken,
}

/// All jobs of this process behind one lock, which is held for microseconds and never across an await.
pub(crate) struct Jobs {
    inner: Mutex<Inner>,
    salt: Salt,
    ended_jobs_max: usize,
    live_jobs_max: usize,
}

impl Jobs {
    pub(crate) fn new(config: &Config) -> Self {
        let models = config.models.iter().map(|m| (Arc::from(m.name.as_str()), m.clone())).collect();
        Self {
            inner: Mutex::new(Inner { models, ..Inner::default() }),
            salt: rand::random(),
            ended_jobs_max: config.ended_jobs_max,
            live_jobs_max: config.live_jobs_max,
        }
    }

    /// Whom a credential stands for. Credentials are only ever compared, so a salted digest is all that is kept.
    pub(crate) fn account(&self, credential: Option<&[u8]>) -> Account {
        let credential = credential?;
        let mut hasher = DefaultHasher::new();
        self.salt.iter().for_each(|word| hasher.write_u64(*word));
        hasher.write(credential);
        Some(hasher.finish())
    }

    /// The state with every job ended whose time has come.
    fn settled(&self, now: Instant) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while inner.ends.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, id))) = inner.ends.pop() else { break };
            if let Some(job) = inner.jobs.get(&id).filter(|job| job.ended.is_none()) {
                let end = if job.will_fail { (Status::Failed, 99) } else { (Status::Succeeded, 100) };
                inner.end(&id, end, self.ended_jobs_max);
            }
        }
        inner
    }

    /// Counts a submit that the provider got to see, whatever it answers.
    pub(crate) fn count_submit(&self, reference: &str, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.figures.submits += 1;
        if let Some(submits) = inner.submits_by_reference.get_mut(reference) {
            submits.count += 1;
            return;
        }
        if inner.counted.len() >= COUNTED_REFERENCES_MAX
            && let Some(oldest) = inner.counted.pop_front()
        {
            inner.submits_by_reference.remove(&oldest);
        }
        let reference: Arc<str> = reference.into();
        inner.counted.push_back(reference.clone());
        inner.submits_by_reference.insert(reference, Submits { count: 1, first_at: Some(now) });
    }

    /// The references whose first submit came within the last `window`, newest first, at most `max` of them. They
    /// are counted in the order of their arrival, so nothing older is looked at.
    pub(crate) fn arrivals(&self, window: Duration, max: usize, now: Instant) -> Vec<Arrival> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = inner.counted.iter().rev().filter_map(|reference| {
            let submits = inner.submits_by_reference.get(reference)?;
            let ago = now.saturating_duration_since(submits.first_at?);
            Some(Arrival { reference: reference.clone(), ago, submits: submits.count })
        });
        newest.take_while(|arrival| arrival.ago <= window).take(max).collect()
    }

    pub(crate) fn count(&self, what: Count) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Count::Poll => inner.figures.polls += 1,
            Count::Lookup => inner.figures.lookups += 1,
            Count::Cancel => inner.figures.cancels += 1,
            Count::Output => inner.figures.outputs += 1,
            Count::Callback => inner.figures.callbacks += 1,
            Count::CallbackTaken => inner.figures.callbacks_taken += 1,
        }
    }

    /// Makes a job. The same reference twice makes two: like the real ones, this provider knows no idempotency.
    pub(crate) fn create(&self, new: NewJob, now: Instant) -> Result<Seen, Refused> {
        let mut guard = self.settled(now);
        let inner = &mut *guard;
        let (model, settings) =
            inner.models.get_key_value(new.model.as_str()).ok_or(Refused::UnknownModel)?;
        if inner.ends.len() >= self.live_jobs_max {
            return Err(Refused::Full);
        }
        let id: Arc<str> = format!("job_{}", uuid::Uuid::now_v7().simple()).into();
        let job = Job {
            model: model.clone(),
            reference: new.client_reference.into(),
            prompt: new.prompt.into(),
            account: new.account,
            created_at: now,
            ends_at: now + settings.duration,
            will_fail: settings.fail_rate > 0.0 && rand::random::<f64>() < settings.fail_rate,
            ended: None,
            callback: new.callback,
        };
        let seen = job.seen(&id, now);
        inner.admit(id, job);
        Ok(seen)
    }

    /// A job of this account. A caller without a credential sees all; one with another's sees none of them.
    pub(crate) fn get(&self, id: &str, account: Account, now: Instant) -> Option<Seen> {
        let inner = self.settled(now);
        let (id, job) = inner.jobs.get_key_value(id)?;
        job.visible_to(account).then(|| job.seen(id, now))
    }

    /// The jobs of this account that carry the reference, oldest first.
    pub(crate) fn find(&self, reference: &str, account: Account, now: Instant) -> Vec<Seen> {
        let inner = self.settled(now);
        let ids = inner.by_reference.get(reference).map(Vec::as_slice).unwrap_or_default();
        let jobs = ids.iter().filter_map(|id| inner.jobs.get(id).map(|job| (id, job)));
        jobs.filter(|(_, job)| job.visible_to(account)).map(|(id, job)| job.seen(id, now)).collect()
    }

    /// The job as it is to be reported now; none for one that nobody wants to hear of, any more or at all.
    pub(crate) fn news(&self, id: &Arc<str>, now: Instant) -> Option<News> {
        let mut inner = self.settled(now);
        let job = inner.jobs.get_mut(id)?;
        let seen = job.seen(id, now);
        let target = if job.ended.is_some() { job.callback.take() } else { job.callback.clone() }?;
        Some(News { target, seen, created_at: job.created_at, ends_at: job.ends_at })
    }

    /// When a job that was made at `now` is first reported: when it has left the queue.
    pub(crate) fn starts_at(&self, id: &str, now: Instant) -> Instant {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.jobs.get(id).map_or(now, |job| now + QUEUED_MAX.min((job.ends_at - job.created_at) / 10))
    }

    /// Model and prompt of a job, for fault rules.
    pub(crate) fn described(&self, id: &str) -> Option<(Arc<str>, Box<str>)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.jobs.get(id).map(|job| (job.model.clone(), job.prompt.clone()))
    }

    /// Ends a live job; one that has ended stays as it is.
    pub(crate) fn cancel(&self, id: &str, account: Account, now: Instant) -> Option<Seen> {
        let mut inner = self.settled(now);
        let (id, job) = inner.jobs.get_key_value(id).filter(|(_, job)| job.visible_to(account))?;
        let (id, before) = (id.clone(), job.seen(id, now));
        if job.ended.is_none() {
            inner.end(&id, (Status::Canceled, before.progress), self.ended_jobs_max);
        }
        inner.jobs.get(&id).map(|job| job.seen(&id, now)).or(Some(before))
    }

    pub(crate) fn stats(&self, now: Instant) -> Stats {
        let inner = self.settled(now);
        let submits = inner.submits_by_reference.iter();
        Stats {
            figures: inner.figures.clone(),
            submits_by_reference: submits.map(|(k, submits)| (k.clone(), submits.count)).collect(),
            live_by_task: inner.live_by_task.iter().map(|(k, v)| (k.clone(), *v)).collect(),
        }
    }

    /// The plain counters alone: cheap enough to be read in the middle of a load.
    pub(crate) fn figures(&self, now: Instant) -> Figures {
        self.settled(now).figures.clone()
    }

    /// Figures start again; jobs that are alive stay, and so the two maxima start at what is alive.
    pub(crate) fn reset(&self, now: Instant) {
        let mut inner = self.settled(now);
        inner.submits_by_reference.clear();
        inner.counted.clear();
        let running = inner.figures.running;
        let max_live_by_task = inner.live_by_task.values().copied().max().unwrap_or(0);
        inner.figures = Figures { running, max_running: running, max_live_by_task, ..Figures::default() };
    }

    pub(crate) fn models(&self) -> Vec<Model> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.models.values().cloned().collect()
    }

    /// Changes how later jobs of a model go; `None` when there is no such model.
    pub(crate) fn set_model(
        &self,
        name: &str,
        duration: Option<Duration>,
        fail_rate: Option<f64>,
    ) -> Option<Model> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let model = inner.models.get_mut(name)?;
        model.duration = duration.unwrap_or(model.duration);
        model.fail_rate = fail_rate.unwrap_or(model.fail_rate);
        Some(model.clone())
    }
}

impl Job {
    fn visible_to(&self, account: Account) -> bool {
        account.is_none() || self.account.is_none() || account == self.account
    }
}

impl Inner {
    /// Takes in a live job.
    fn admit(&mut self, id: Arc<str>, job: Job) {
        let live = self.live_by_task.entry(task_of(&job.reference).into()).or_default();
        *live += 1;
        let figures = &mut self.figures;
        figures.max_live_by_task = figures.max_live_by_task.max(*live);
        figures.running += 1;
        figures.max_running = figures.max_running.max(figures.running);
        self.by_reference.entry(job.reference.clone()).or_default().push(id.clone());
        self.ends.push(Reverse((job.ends_at, id.clone())));
        self.jobs.insert(id, job);
    }

    fn end(&mut self, id: &Arc<str>, end: (Status, u8), ended_jobs_max: usize) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.ended = Some(end);
        self.figures.running -= 1;
        let task = task_of(&job.reference);
        if let Some(live) = self.live_by_task.get_mut(task) {
            *live -= 1;
            if *live == 0 {
                self.live_by_task.remove(task);
            }
        }
        self.ended_prompt_bytes += job.prompt.len();
        self.ended.push_back(id.clone());
        while self.ended.len() > ended_jobs_max || self.ended_prompt_bytes > ENDED_PROMPT_BYTES_MAX {
            let Some(oldest) = self.ended.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, id: &Arc<str>) {
        let Some(job) = self.jobs.remove(id) else { return };
        self.ended_prompt_bytes -= job.prompt.len();
        if let Some(ids) = self.by_reference.get_mut(&job.reference) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_reference.remove(&job.reference);
            }
        }
    }
}

/// References read `<task>.<attempt>`; the part before the dot names the task.
fn task_of(reference: &str) -> &str {
    reference.split('.').next().unwrap_or(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_job(model: &str, reference: &str) -> NewJob {
        NewJob {
            model: model.into(),
            prompt: "a cat".into(),
            client_reference: reference.into(),
            account: None,
            callback: None,
        }
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_job_advances_by_the_clock_alone() {
        let (jobs, start) = (Jobs::new(&Config::default()), Instant::now());
        let id = jobs.create(new_job("mock-fast", "t1.1"), start).expect("created").id;
        let at = |millis| {
            let seen = jobs.get(&id, None, start + ms(millis)).expect("there");
            (seen.status, seen.progress)
        };
        assert_eq!(at(0), (Status::Queued, 0));
        assert_eq!(at(500), (Status::Running, 50));
        assert_eq!(at(999), (Status::Running, 99));
        assert_eq!(at(1_000), (Status::Succeeded, 100));
        let late = jobs.cancel(&id, None, start + ms(1_001)).expect("there");
        assert_eq!(late.status, Status::Succeeded, "too late to cancel");
    }

    #[test]
    fn most_alive_at_once_is_exact_although_nobody_looked() {
        let (jobs, start) = (Jobs::new(&Config::default()), Instant::now());
        jobs.create(new_job("mock-fast", "t1.1"), start).expect("created");
        jobs.create(new_job("mock-fast", "t1.2"), start + ms(1_001)).expect("created");
        assert_eq!(jobs.stats(start + ms(1_001)).figures.max_live_by_task, 1, "the first had ended");
        jobs.create(new_job("mock-fast", "t1.3"), start + ms(1_002)).expect("created");
        let stats = jobs.stats(start + ms(1_002));
        assert_eq!((stats.figures.max_live_by_task, stats.figures.max_running), (2, 2));
        assert_eq!(stats.live_by_task, [("t1".into(), 2)]);
        jobs.reset(start + ms(3_000));
        let stats = jobs.stats(start + ms(3_000));
        assert_eq!(
            (stats.figures.max_live_by_task, stats.figures.max_running, stats.live_by_task.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn counts_by_reference_outlive_the_jobs() {
        let (jobs, start) = (Jobs::new(&Config { ended_jobs_max: 10, ..Config::default() }), Instant::now());
        for n in 0..100_000 {
            let reference = format!("t{n}.1");
            jobs.count_submit(&reference, start + ms(n));
            jobs.create(new_job("mock-fast", &reference), start + ms(n)).expect("created");
        }
        let stats = jobs.stats(start + ms(200_000));
        assert_eq!(stats.submits_by_reference.len(), 100_000);
        assert!(stats.submits_by_reference.iter().all(|(_, submits)| *submits == 1));
        let inner = jobs.inner.lock().expect("lock");
        assert_eq!((inner.jobs.len(), inner.by_reference.len(), inner.figures.running), (10, 10, 0));
    }

    #[test]
    fn an_arrival_is_the_first_submit_and_the_window_looks_back_from_now() {
        let (jobs, start) = (Jobs::new(&Config::default()), Instant::now());
        for (reference, at) in [("t1.1", 0), ("t2.1", 500), ("t3.1", 900), ("t2.1", 950)] {
            jobs.count_submit(reference, start + ms(at));
        }
        let seen = |window, max| {
            let arrivals = jobs.arrivals(window, max, start + ms(1_000));
            let plain = arrivals.into_iter().map(|a| (a.reference.to_string(), a.ago, a.submits));
            plain.collect::<Vec<_>>()
        };
        assert_eq!(seen(ms(600), 9), [("t3.1".to_owned(), ms(100), 1), ("t2.1".to_owned(), ms(500), 2)]);
        assert_eq!(seen(ms(2_000), 9).len(), 3);
        assert_eq!(seen(ms(2_000), 1), [("t3.1".to_owned(), ms(100), 1)]);
    }

    #[test]
    fn another_credential_sees_nothing() {
        let (jobs, now) = (Jobs::new(&Config::default()), Instant::now());
        let mine = NewJob { account: Some(1), ..new_job("mock-slow", "t1.1") };
        let id = jobs.create(mine, now).expect("created").id;
        assert!(jobs.get(&id, Some(2), now).is_none() && jobs.cancel(&id, Some(2), now).is_none());
        assert!(jobs.find("t1.1", Some(2), now).is_empty());
        assert!(jobs.get(&id, Some(1), now).is_some() && jobs.get(&id, None, now).is_some());
    }

    #[test]
    fn a_full_provider_refuses() {
        let (jobs, now) = (Jobs::new(&Config { live_jobs_max: 1, ..Config::default() }), Instant::now());
        jobs.create(new_job("mock-slow", "t1.1"), now).expect("created");
        let refused = |model| jobs.create(new_job(model, "t2.1"), now).expect_err("refused");
        assert_eq!([refused("mock-slow"), refused("nope")], [Refused::Full, Refused::UnknownModel]);
    }
}
