//! The clients: they submit at their planned moments, hang up, come back, repeat themselves and cancel.
//!
//! Every task has an Idempotency-Key and a client that does not give up: whatever fails, it asks again under the same
//! key at the next process. So there must be exactly one task per key in the end.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    client::{Answer, Client, Doors},
    plan::{FirstTry, TaskPlan},
};

/// Clients that are busy at once.
const CLIENTS_MAX: usize = 512;
/// How long one asks before it is taken for refused: beyond the longest time that all processes are away.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two tries, unless the answer says otherwise.
const PAUSE: Duration = Duration::from_millis(100);

/// The figures of a run, and what went wrong.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) accepted: AtomicUsize,
    pub(crate) replays: AtomicUsize,
    pub(crate) hung_up: AtomicUsize,
    pub(crate) cancels: AtomicUsize,
    pub(crate) retries: AtomicUsize,
    violations: Mutex<Vec<String>>,
    /// How many answers of each status the clients got.
    statuses: Mutex<BTreeMap<u16, usize>>,
}

impl Tally {
    pub(crate) fn violation(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn statuses(&self) -> BTreeMap<u16, usize> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, status: u16) {
        *self.statuses.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }
}

/// What a client knows in the end.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) n: usize,
    pub(crate) task: String,
    /// The cancel was answered "on its way": the task may not succeed any more.
    pub(crate) canceling: bool,
}

/// All that a client works with.
pub(crate) struct Load {
    pub(crate) aivideo: PathBuf,
    pub(crate) client: Client,
    /// Asks the provider for its figures.
    pub(crate) provider: Client,
    pub(crate) doors: Doors,
    pub(crate) tally: Arc<Tally>,
    /// Distinguishes this run's keys.
    pub(crate) seed: u64,
    pub(crate) first_try_accepted: bool,
}

impl Load {
    /// The key of a task.
    pub(crate) fn key(&self, n: usize) -> String {
        format!("chaos-{}-{n}", self.seed)
    }

    /// Submits every task of the plan and returns those that were accepted, in any order.
    pub(crate) async fn submit_all(self: &Arc<Self>, tasks: &[TaskPlan]) -> Vec<Accepted> {
        let begun = Instant::now();
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        let mut clients = JoinSet::new();
        let mut accepted = Vec::with_capacity(tasks.len());
        for (n, task) in tasks.iter().enumerate() {
            sleep_until(begun + task.at).await;
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
            let (load, task) = (Arc::clone(self), task.clone());
            clients.spawn(async move {
                let accepted = load.live(n, &task).await;
                drop(place);
                accepted
            });
            while let Some(ended) = clients.try_join_next() {
                accepted.extend(ended.ok().flatten());
            }
        }
        while let Some(ended) = clients.join_next().await {
            accepted.extend(ended.ok().flatten());
        }
        accepted
    }

    /// One client's life.
    async fn live(&self, n: usize, task: &TaskPlan) -> Option<Accepted> {
        let key = self.key(n);
        if task.first_try != FirstTry::Whole {
            self.tally.hung_up.fetch_add(1, Ordering::Relaxed);
            // It may meet a process that is away; then nothing was sent, which is a fault too.
            let _ = self.hang_up(self.doors.next(), task, &key).await;
        }
        let id = self.submit(n, task, &key).await?;
        self.tally.accepted.fetch_add(1, Ordering::Relaxed);
        let cancel = async {
            match task.cancel {
                Some(after) => {
                    sleep(after).await;
                    self.cancel(&id).await
                }
                None => false,
            }
        };
        let replay = async {
            if let Some(after) = task.replay {
                sleep(after).await;
                self.replay(n, task, &id).await;
            }
        };
        let (canceling, ()) = tokio::join!(cancel, replay);
        Some(Accepted { n, task: id, canceling })
    }

    async fn hang_up(&self, door: SocketAddr, task: &TaskPlan, key: &str) -> anyhow::Result<()> {
        let text = self.client.raw_submit(door, &task.body, key)?;
        let sent = if task.first_try == FirstTry::CutBody { text.len() - 5 } else { text.len() };
        let mut stream = TcpStream::connect(door).await?;
        stream.write_all(&text.as_bytes()[..sent]).await?;
        Ok(())
    }

    /// Asks until it is accepted.
    async fn submit(&self, n: usize, task: &TaskPlan, key: &str) -> Option<String> {
        let answer = self.insist(&format!("submit {n}"), "/generations", Some(task), Some(key)).await?;
        if answer.status != 202 {
            self.tally.violation(format!("submit {n} was answered {} {}", answer.status, answer.json));
            return None;
        }
        let id = answer.json["task_id"].as_str().map(str::to_owned);
        if id.is_none() {
            self.tally.violation(format!("submit {n} was accepted without an id: {}", answer.json));
        }
        id
    }

    /// The same request again; it must name the same task.
    pub(crate) async fn replay(&self, n: usize, task: &TaskPlan, id: &str) {
        let (what, key) = (format!("replay of {n}"), self.key(n));
        let Some(answer) = self.insist(&what, "/generations", Some(task), Some(&key)).await else { return };
        self.tally.replays.fetch_add(1, Ordering::Relaxed);
        if answer.status != 202 || answer.json["task_id"] != id || !answer.replayed {
            self.tally
                .violation(format!("{what}, task {id}, was answered {} {}", answer.status, answer.json));
        }
    }

    /// Whether the cancel is on its way.
    async fn cancel(&self, id: &str) -> bool {
        let path = format!("/tasks/{id}/cancel");
        let Some(answer) = self.insist(&format!("cancel of {id}"), &path, None, None).await else {
            return false;
        };
        self.tally.cancels.fetch_add(1, Ordering::Relaxed);
        match answer.status {
            200 | 409 => {}
            202 => return true,
            status => self.tally.violation(format!("cancel of {id} was answered {status} {}", answer.json)),
        }
        false
    }

    /// Posts until there is an answer that is meant to last.
    async fn insist(
        &self,
        what: &str,
        path: &str,
        task: Option<&TaskPlan>,
        key: Option<&str>,
    ) -> Option<Answer> {
        let begun = Instant::now();
        let mut last = String::from("nothing");
        while begun.elapsed() < PATIENCE {
            let url = self.doors.url(path);
            let mut pause = PAUSE;
            match self.client.ask(Method::POST, &url, task.map(|task| &task.body), key).await {
                Ok(answer) => {
                    self.tally.count(answer.status);
                    if !asks_to_come_back(&answer) {
                        return Some(answer);
                    }
                    pause = answer.retry_after.unwrap_or(PAUSE).min(Duration::from_secs(2));
                    last = format!("{} {}", answer.status, answer.json);
                }
                Err(error) => last = format!("{error:#}"),
            }
            if self.first_try_accepted {
                self.tally.violation(format!("{what} was not accepted at its first try: {last}"));
            }
            self.tally.retries.fetch_add(1, Ordering::Relaxed);
            sleep(pause).await;
        }
        self.tally.violation(format!("{what} was never answered; last: {last}"));
        None
    }
}

/// Overload, limits, and a twin that is still under way. Not 500: nothing here entitles the platform to one.
fn asks_to_come_back(answer: &Answer) -> bool {
    matches!(answer.status, 429 | 503)
        || answer.status == 409 && answer.json["code"] == "idempotency_in_progress"
}
