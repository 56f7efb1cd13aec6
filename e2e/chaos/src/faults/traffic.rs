//! The clients of a case: a few requests a second of every kind, whatever happens around them.
//!
//! A request is sent at its moment whether or not those before it were answered, as many clients would do. What was not
//! accepted is sent again under its key when all is over.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use super::record::{Kind, Notes, Request, StreamEvent};
use crate::client::{Answer, Client};

/// Between two requests of one kind; together they stay below fifty a second.
pub(crate) const SUBMIT_EVERY: Duration = Duration::from_millis(250);
pub(crate) const UNCACHED_EVERY: Duration = Duration::from_millis(500);
const CACHED_EVERY: Duration = Duration::from_millis(250);
const LONG_EVERY: Duration = Duration::from_millis(400);
const WAITING_EVERY: Duration = Duration::from_millis(1_000);
/// Every so many accepted tasks are sent once more.
const REPLAY_ONE_OF: usize = 4;
/// Models of the account that may be hurt, and of the other one.
pub(crate) const MODELS: [&str; 2] = ["mock-fast", "second-fast"];
/// How long a submit is repeated when all is whole again.
const INSIST: Duration = Duration::from_secs(20);
const INSIST_PAUSE: Duration = Duration::from_millis(200);

/// Tasks that have ended and can be read.
#[derive(Default)]
pub(crate) struct Stock {
    /// They were read in this case.
    pub(crate) read: Vec<String>,
    /// No process and no Redis holds them.
    pub(crate) unread: VecDeque<String>,
}

/// What became of the submits of a case.
#[derive(Default)]
pub(crate) struct Submitted {
    /// Number and task of those that were accepted.
    pub(crate) accepted: Vec<(usize, String)>,
    /// Those that were not, yet.
    pub(crate) open: Vec<usize>,
    next: usize,
    /// What a replay was told that it should not have been.
    pub(crate) wrong: Vec<String>,
}

/// All clients of a case.
pub(crate) struct Traffic {
    pub(crate) client: Client,
    /// Where the API is.
    pub(crate) door: String,
    pub(crate) notes: Arc<Notes>,
    /// Begins the keys of this case.
    pub(crate) name: String,
    pub(crate) stock: Mutex<Stock>,
    pub(crate) submitted: Mutex<Submitted>,
}

impl Traffic {
    /// Sends requests until told to stop, and returns when the last one is answered.
    pub(crate) async fn run(self: Arc<Self>, long: String, mut stop: watch::Receiver<bool>) {
        let mut rhythm =
            [SUBMIT_EVERY, CACHED_EVERY, UNCACHED_EVERY, WAITING_EVERY, LONG_EVERY].map(|every| {
                let mut rhythm = interval(every);
                rhythm.set_missed_tick_behavior(MissedTickBehavior::Skip);
                rhythm
            });
        let [submit, cached, uncached, waiting, following] = &mut rhythm;
        let mut under_way = JoinSet::new();
        loop {
            let this = Arc::clone(&self);
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                _ = submit.tick() => drop(under_way.spawn(async move { drop(this.submit_next().await) })),
                _ = cached.tick() => drop(under_way.spawn(async move { this.read_cached().await })),
                _ = uncached.tick() => drop(under_way.spawn(async move { this.read_uncached().await })),
                _ = waiting.tick() => drop(under_way.spawn(async move { this.read_waiting().await })),
                _ = following.tick() => {
                    let long = long.clone();
                    under_way.spawn(async move { this.read_long(&long).await });
                }
                Some(_) = under_way.join_next() => {}
            }
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Reads the events of a task until the stream is over.
    pub(crate) async fn follow(&self, task: &str) {
        let url = format!("{}/tasks/{task}/events", self.door);
        let closed = match self.client.stream(&url).await {
            Err(error) => format!("it did not open: {error:#}"),
            Ok(mut download) => {
                let mut events = Events::default();
                loop {
                    match download.stream.next().await {
                        None => break "the server closed it".to_owned(),
                        Some(Err(error)) => break format!("{:#}", anyhow::Error::from(error)),
                        Some(Ok(bytes)) => {
                            let told = events.push(&bytes);
                            let now = self.notes.now();
                            let told = told.into_iter().map(|ended| (now, StreamEvent::Told { ended }));
                            self.notes.add(|record| record.stream.extend(told));
                        }
                    }
                }
            }
        };
        let now = self.notes.now();
        self.notes.add(|record| record.stream.push((now, StreamEvent::Closed(closed))));
    }

    /// Submits what was not accepted again, under its key, until it is.
    pub(crate) async fn insist(&self) -> Vec<String> {
        let open = std::mem::take(&mut self.submitted().open);
        let mut given_up = Vec::new();
        for n in open {
            let begun = tokio::time::Instant::now();
            loop {
                let answer = self.post(n).await;
                match answer {
                    Ok(answer) if self.take_in(n, &answer) => break,
                    answer if begun.elapsed() > INSIST => {
                        let said = answer.map_or_else(
                            |error| format!("{error:#}"),
                            |answer| format!("{} {}", answer.status, answer.json),
                        );
                        given_up.push(format!("submit {n} was never accepted; last: {said}"));
                        break;
                    }
                    _ => sleep(INSIST_PAUSE).await,
                }
            }
        }
        given_up
    }

    /// A submit with a number of its own. Returns the task, if it was accepted.
    pub(crate) async fn submit_next(&self) -> Option<String> {
        let n = {
            let mut submitted = self.submitted();
            submitted.next += 1;
            submitted.next - 1
        };
        let answer = self.noted(Kind::Submit, self.post(n)).await;
        let task = match answer {
            Some(answer) if self.take_in(n, &answer) => answer.json["task_id"].as_str()?.to_owned(),
            _ => {
                self.submitted().open.push(n);
                return None;
            }
        };
        if n.is_multiple_of(REPLAY_ONE_OF) {
            let again = self.noted(Kind::Replay, self.post(n)).await;
            if let Some(again) = again.filter(|again| again.status == 202)
                && (again.json["task_id"] != task.as_str() || !again.replayed)
            {
                self.submitted().wrong.push(format!("submit {n} is {task}, its replay {}", again.json));
            }
        }
        Some(task)
    }

    /// Takes note of an acceptance; false for any other answer.
    fn take_in(&self, n: usize, answer: &Answer) -> bool {
        let Some(task) = answer.json["task_id"].as_str().filter(|_| answer.status == 202) else {
            return false;
        };
        self.submitted().accepted.push((n, task.to_owned()));
        true
    }

    async fn post(&self, n: usize) -> anyhow::Result<Answer> {
        self.post_as(n, MODELS[n % MODELS.len()]).await
    }

    /// A submit of a model outside the rhythm, for the task that is followed; it has to be accepted.
    pub(crate) async fn submit_long(&self, model: &str) -> anyhow::Result<String> {
        let n = usize::MAX;
        let answer = self.post_as(n, model).await?;
        anyhow::ensure!(self.take_in(n, &answer), "{} {}", answer.status, answer.json);
        Ok(answer.json["task_id"].as_str().unwrap_or_default().to_owned())
    }

    async fn post_as(&self, n: usize, model: &str) -> anyhow::Result<Answer> {
        let body = json!({ "model": model, "prompt": format!("scene {n}"), "duration_seconds": 1 });
        let (url, key) = (format!("{}/generations", self.door), format!("faults-{}-{n}", self.name));
        self.client.ask(Method::POST, &url, Some(&body), Some(&key)).await
    }

    async fn read_cached(&self) {
        let task = {
            let mut stock = self.stock();
            stock.read.rotate_left(1);
            stock.read.last().cloned()
        };
        if let Some(task) = task {
            self.noted(Kind::Cached, self.get(&format!("/tasks/{task}"))).await;
        }
    }

    async fn read_uncached(&self) {
        let path = match self.stock().unread.pop_front() {
            Some(task) => format!("/tasks/{task}"),
            None => "/credits".to_owned(),
        };
        self.noted(Kind::Uncached, self.get(&path)).await;
    }

    /// The youngest task of the account that may be hurt: while that is so, it waits and says why.
    async fn read_waiting(&self) {
        let task = {
            let submitted = self.submitted();
            let of_account = |(n, _): &&(usize, String)| n % MODELS.len() == 0 && *n != usize::MAX;
            submitted.accepted.iter().rev().find(of_account).map(|(_, task)| task.clone())
        };
        if let Some(task) = task {
            self.noted(Kind::Uncached, self.get(&format!("/tasks/{task}"))).await;
        }
    }

    async fn read_long(&self, task: &str) {
        let answer = self.noted(Kind::Cached, self.get(&format!("/tasks/{task}"))).await;
        if answer.is_some_and(|answer| has_ended(&answer.json)) {
            let now = self.notes.now();
            self.notes.add(|record| record.long_ended = record.long_ended.or(Some(now)));
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.client.ask(Method::GET, &format!("{}{path}", self.door), None, None).await
    }

    /// Waits for an answer and writes down what came.
    pub(crate) async fn noted(
        &self,
        kind: Kind,
        asked: impl Future<Output = anyhow::Result<Answer>>,
    ) -> Option<Answer> {
        noted(&self.notes, kind, asked).await
    }

    pub(crate) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submitted(&self) -> MutexGuard<'_, Submitted> {
        self.submitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for an answer and writes down what came.
pub(crate) async fn noted(
    notes: &Notes,
    kind: Kind,
    asked: impl Future<Output = anyhow::Result<Answer>>,
) -> Option<Answer> {
    let sent = notes.now();
    let answer = asked.await;
    let answered = notes.now();
    let (outcome, answer) = match answer {
        Ok(answer) => (Ok(answer.status), Some(answer)),
        Err(error) => (Err(format!("{error:#}")), None),
    };
    let request = Request {
        kind,
        sent,
        answered,
        outcome,
        comes_back: answer.as_ref().is_some_and(|answer| answer.retry_after.is_some()),
        degraded: answer.as_ref().map(|answer| answer.degraded.clone()).unwrap_or_default(),
        wait_reason: answer.as_ref().and_then(|answer| Some(answer.json["wait_reason"].as_str()?.to_owned())),
    };
    notes.add(|record| record.requests.push(request));
    answer
}

/// Whether a task, or an event of one, is at its end.
pub(crate) fn has_ended(task: &Value) -> bool {
    matches!(task["status"].as_str(), Some("SUCCEEDED" | "FAILED" | "CANCELED"))
}

/// A stream of events, put together from pieces that may be cut anywhere.
#[derive(Default)]
struct Events(Vec<u8>);

impl Events {
    /// Takes a piece in. For each event about a version that it completes, whether the task has ended with it.
    fn push(&mut self, piece: &[u8]) -> Vec<bool> {
        self.0.extend_from_slice(piece);
        let mut told = Vec::new();
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.0.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let value = |field: &str| {
                event.lines().find_map(|line| Some(line.strip_prefix(field)?.trim_start().to_owned()))
            };
            if matches!(value("event:").as_deref(), Some("task" | "snapshot")) {
                let data = value("data:").and_then(|data| serde_json::from_str::<Value>(&data).ok());
                told.push(data.is_some_and(|data| has_ended(&data)));
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_they_are_cut() {
        let text = "event: snapshot\nid: 3\ndata: {\"status\":\"RUNNING\"}\n\n: comment\n\n\
                    event: progress\ndata: {\"version\":3,\"progress\":40}\n\n\
                    event: task\nid: 4\ndata: {\"status\":\"SUCCEEDED\"}\n\n";
        for cut in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            let mut events = Events::default();
            let told = [events.push(first), events.push(second)].concat();
            assert_eq!(told, [false, true], "cut at {cut}");
        }
    }

    #[test]
    fn the_ends_of_a_task_are_three() {
        for (status, ended) in
            [("SUCCEEDED", true), ("FAILED", true), ("CANCELED", true), ("RECONCILING", false)]
        {
            assert_eq!(has_ended(&json!({ "status": status })), ended, "{status}");
        }
    }

    #[test]
    fn the_load_is_bounded() {
        let per_second = |every: Duration| 1.0 / every.as_secs_f64();
        let rhythm = [SUBMIT_EVERY, CACHED_EVERY, UNCACHED_EVERY, WAITING_EVERY, LONG_EVERY];
        let sum: f64 = rhythm.into_iter().map(per_second).sum();
        let replays = per_second(SUBMIT_EVERY) / REPLAY_ONE_OF as f64;
        let watching: f64 = super::super::watch::PER_SECOND;
        assert!(sum + replays + watching < 50.0, "{}", sum + replays + watching);
    }
}
