//! Callbacks: a job is reported when it starts, as it goes on, and when it ends.
//!
//! Nothing runs per job. One queue holds when which job is due for its next report, one loop sends what is due, and a
//! bounded number of requests is under way. A report is a job as the API shows it, signed after the Standard Webhooks
//! convention; what is not taken is sent again a few times, under the same id with a fresh signature. Only loopback
//! addresses and listed hosts are called, over plain HTTP.

mod send;

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    faults::{On, Sending},
    jobs::{Count, Status},
    routes::App,
};

/// Reports that may wait; more are lost, as a real provider loses some.
const WAITING_MAX: usize = 400_000;
/// Requests under way at once.
const UNDER_WAY_MAX: usize = 256;
/// Between two reports of one job that goes on, at least.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The pauses before a report is sent again.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];
/// Between a job's end by its own clock and the report about it.
const AFTER_END: Duration = Duration::from_millis(1);

/// What callbacks are signed with. Its `Debug` shows nothing.
#[derive(Clone)]
pub struct CallbackSecret(Vec<u8>);

impl CallbackSecret {
    /// Reads base64, with or without `whsec_` in front; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let key = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?;
        (!key.is_empty()).then_some(Self(key))
    }

    /// One that nobody else knows, so that callbacks are signed and nobody can check them.
    fn random() -> Self {
        Self(rand::random::<[u8; 32]>().to_vec())
    }
}

impl fmt::Debug for CallbackSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackSecret(..)")
    }
}

/// Where a job is reported to, and what the addresses of its output begin with.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: http::Uri,
    pub(crate) base: String,
}

/// A job that is due for a report.
pub(crate) struct News {
    pub(crate) target: Arc<Target>,
    pub(crate) seen: crate::jobs::Seen,
    pub(crate) created_at: Instant,
    pub(crate) ends_at: Instant,
}

/// One report on its way.
#[derive(Clone)]
struct Report {
    job: Arc<str>,
    target: Arc<Target>,
    id: String,
    body: Bytes,
    /// How often it has been sent.
    tries: usize,
}

enum What {
    /// Look at the job and report what it is.
    Look(Arc<str>),
    /// Send this; a fault rule has had its say if there is a plan.
    Send(Box<Report>, Option<Box<Sending>>),
}

struct Due {
    at: Instant,
    what: What,
}

/// The earliest is the greatest: a heap gives that first.
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

/// What waits to be sent, and with what it is signed.
pub(crate) struct Callbacks {
    waiting: Mutex<BinaryHeap<Due>>,
    changed: Notify,
    secret: CallbackSecret,
    /// `host:port` that may be called although they are not loopback.
    hosts: Vec<String>,
}

impl Callbacks {
    pub(crate) fn new(secret: Option<CallbackSecret>, hosts: Vec<String>) -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
            secret: secret.unwrap_or_else(CallbackSecret::random),
            hosts,
        }
    }

    /// A job is to be reported for the first time at `at`, or because it was just canceled.
    pub(crate) fn look(&self, job: Arc<str>, at: Instant) {
        self.push(Due { at, what: What::Look(job) });
    }

    fn push(&self, due: Due) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push(due);
            self.changed.notify_one();
        }
    }

    /// The first that is due, or when that will be.
    fn next(&self, now: Instant) -> Result<What, Option<Instant>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.peek() {
            Some(due) if due.at <= now => waiting.pop().map(|due| due.what).ok_or(None),
            other => Err(other.map(|due| due.at)),
        }
    }
}

/// Sends what is due until the provider stops.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    loop {
        match app.callbacks.next(Instant::now()) {
            Ok(What::Look(job)) => look(&app, &job),
            Ok(What::Send(report, None)) => plan(&app, *report),
            Ok(What::Send(report, Some(plan))) => {
                let place = tokio::select! {
                    () = stop.cancelled() => return,
                    place = places.clone().acquire_owned() => place,
                };
                let (app, stop) = (app.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = deliver(&app, *report, &plan) => {}
                    }
                    drop(place);
                });
            }
            Err(due) => {
                let pause = async {
                    match due {
                        Some(at) => tokio::time::sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = pause => {}
                    () = app.callbacks.changed.notified() => {}
                }
            }
        }
    }
}

/// Makes the report that is due, and says when the next one is. An end is reported once.
fn look(app: &App, job: &Arc<str>) {
    let now = Instant::now();
    let Some(News { target, seen, created_at, ends_at }) = app.jobs.news(job, now) else { return };
    if matches!(seen.status, Status::Queued | Status::Running) {
        let step = PROGRESS_EVERY.max((ends_at - created_at) / 10);
        let at = if now + step * 2 > ends_at { ends_at + AFTER_END } else { now + step };
        app.callbacks.look(job.clone(), at);
    }
    let id = format!("msg_{job}_{:?}_{}", seen.status, seen.progress).to_lowercase();
    let body = app.report(seen, &target.base);
    plan(app, Report { job: job.clone(), target, id, body, tries: 0 });
}

/// Asks the fault rules about one sending.
fn plan(app: &App, report: Report) {
    let sending = app.fault(On::Callback, Some(&report.job)).sending();
    if sending.lost {
        return;
    }
    let (now, delay) = (Instant::now(), sending.delay);
    if sending.duplicate {
        let twin = Sending { duplicate: false, ..sending.clone() };
        let what = What::Send(Box::new(report.clone()), Some(Box::new(twin)));
        app.callbacks.push(Due { at: now + delay, what });
    }
    app.callbacks.push(Due { at: now + delay, what: What::Send(Box::new(report), Some(Box::new(sending))) });
}

/// Sends a report once; if it was not taken, it will be sent again.
async fn deliver(app: &App, mut report: Report, plan: &Sending) {
    app.jobs.count(Count::Callback);
    match send::send(&app.callbacks, &report, plan).await {
        Ok(status) if status.is_success() => app.jobs.count(Count::CallbackTaken),
        outcome => {
            tracing::debug!(job = &*report.job, id = report.id, ?outcome, "a callback was not taken");
            let Some(pause) = PAUSES.get(report.tries) else { return };
            report.tries += 1;
            app.callbacks.push(Due { at: Instant::now() + *pause, what: What::Send(Box::new(report), None) });
        }
    }
}
