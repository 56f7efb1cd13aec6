//! What is demanded in the end, asked from outside: over HTTP, of the provider, and by `aivideo audit`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    audit::audit,
    fleet::Fleet,
    journal::Journal,
    load::{Accepted, Load},
    plan::Plan,
    servers::Servers,
};

const LIVE: &str = "QUEUED,SCHEDULING,PROVIDER_SUBMITTED,RUNNING,POST_PROCESSING,RECONCILING";
/// How a task may fail by what the provider is made to do. What is missing here is missing on purpose: no fault of
/// this suite makes a provider lose a job, leaves a submit unconfirmed or takes as long as a deadline.
const LAWFUL_FAILURES: [&str; 5] =
    ["rate_limited", "concurrency_full", "overloaded", "provider_internal", "bad_output"];
/// Between two looks whether anything still moves.
const LOOK: Duration = Duration::from_millis(500);
/// Between two lines about it.
const SAY: Duration = Duration::from_secs(5);
/// Tasks whose submit is repeated in the end.
const REPLAYED: usize = 50;
/// A read may meet a process whose connections have not all come back yet.
const READS_MAX: u32 = 10;

/// Who judges.
pub(crate) struct Judge<'a> {
    pub(crate) load: &'a Load,
    pub(crate) servers: &'a Servers,
    pub(crate) fleet: &'a Fleet,
    pub(crate) journal: &'a Journal,
    pub(crate) plan: &'a Plan,
}

impl Judge<'_> {
    /// Waits until no task and no job is alive any more.
    pub(crate) async fn wait_for_rest(&self, limit: Duration) -> anyhow::Result<()> {
        let (begun, mut said) = (Instant::now(), Instant::now());
        loop {
            let live = self.read(&format!("/tasks?limit=100&status={LIVE}")).await?;
            let live = live["items"].as_array().context("a list")?;
            let stats = self.stats().await?;
            if live.is_empty() && stats["running"] == 0 {
                return Ok(());
            }
            if begun.elapsed() > limit {
                for task in live.iter().take(20) {
                    self.complain(format!("not at rest after {limit:?}: {task}"));
                }
                self.complain(format!("jobs at the provider after {limit:?}: {}", stats["running"]));
                return Ok(());
            }
            if said.elapsed() > SAY {
                said = Instant::now();
                let more = if live.len() == 100 { " or more" } else { "" };
                self.journal.note(format!("{}{more} tasks alive, {} jobs", live.len(), stats["running"]));
            }
            sleep(LOOK).await;
        }
    }

    /// Everything else. Returns how many tasks ended in which way.
    pub(crate) async fn judge(&self, accepted: &[Accepted]) -> anyhow::Result<BTreeMap<String, usize>> {
        let ends = self.tasks(accepted).await?;
        self.provider().await?;
        self.replays(accepted).await?;
        self.audit().await?;
        self.logs()?;
        Ok(ends)
    }

    /// One task per key, and each has an end that something explains; together they cost what was captured.
    async fn tasks(&self, accepted: &[Accepted]) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut known: HashMap<&str, &Accepted> = HashMap::new();
        for one in accepted {
            if let Some(other) = known.insert(&one.task, one) {
                self.complain(format!("{} is the task of two keys, {} and {}", one.task, other.n, one.n));
            }
        }
        if accepted.len() != self.plan.tasks.len() {
            self.complain(format!("{} of {} were accepted", accepted.len(), self.plan.tasks.len()));
        }
        let (mut ends, mut charged, mut seen) = (BTreeMap::new(), 0, HashSet::new());
        let mut cursor: Option<String> = None;
        loop {
            let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let page = self.read(&format!("/tasks?limit=100{after}")).await?;
            for task in page["items"].as_array().context("a list")? {
                let id = task["task_id"].as_str().context("an id")?;
                seen.insert(id.to_owned());
                charged += task["credits"]["charged"].as_i64().context("credits")?;
                self.end(task, known.get(id).copied());
                let end =
                    [&task["status"], &task["error_code"]].map(|value| value.as_str().unwrap_or_default());
                *ends.entry(end.join(" ").trim().to_owned()).or_default() += 1;
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        for lost in accepted.iter().filter(|one| !seen.contains(&one.task)) {
            self.complain(format!(
                "LOST: submit {} was accepted as {}, which is not there",
                lost.n, lost.task
            ));
        }
        let credits = self.read("/credits").await?;
        let figure = |name: &str| credits[name].as_i64().unwrap_or(i64::MIN);
        let conserved = figure("granted") == figure("available") + figure("captured");
        if !conserved || figure("held") != 0 || figure("captured") != charged {
            self.complain(format!("credits: {credits}, while the tasks' charges add up to {charged}"));
        }
        Ok(ends)
    }

    fn end(&self, task: &Value, accepted: Option<&Accepted>) {
        let Some(accepted) = accepted else {
            return self.complain(format!("a task that no client was told of: {task}"));
        };
        let plan = &self.plan.tasks[accepted.n];
        let code = task["error_code"].as_str().unwrap_or_default();
        let lawful = match task["status"].as_str() {
            Some("SUCCEEDED") => !accepted.canceling && task["output_asset_id"].is_string(),
            Some("CANCELED") => plan.cancel.is_some(),
            Some("FAILED") => LAWFUL_FAILURES.contains(&code) && !self.plan.demands.all_succeed,
            _ => false,
        };
        if !lawful {
            self.complain(format!(
                "an end that nothing explains (canceling: {}): {task}",
                accepted.canceling
            ));
        }
    }

    /// The provider never had two jobs of one task, nor more than it allows, and saw each reference once.
    async fn provider(&self) -> anyhow::Result<()> {
        let stats = self.stats().await?;
        let most = stats["max_live_by_task"].as_u64().context("a figure")?;
        if most > 1 {
            self.complain(format!("DOUBLE: a task had {most} jobs at once"));
        }
        let running = stats["max_running"].as_u64().context("a figure")?;
        if running > self.plan.slots {
            self.complain(format!("{running} jobs ran at once, {} are allowed", self.plan.slots));
        }
        for (reference, count) in stats["submits_by_reference"].as_object().context("a map")? {
            if count.as_u64() != Some(1) {
                self.complain(format!("DOUBLE: {reference} was submitted {count} times"));
            }
        }
        for task in stats["live_by_task"].as_object().context("a map")?.keys() {
            self.complain(format!("{task} still has a job"));
        }
        Ok(())
    }

    /// Keys are remembered: the same request is the same task, another request is refused.
    async fn replays(&self, accepted: &[Accepted]) -> anyhow::Result<()> {
        let every = (accepted.len() / REPLAYED).max(1);
        for one in accepted.iter().step_by(every) {
            let task = &self.plan.tasks[one.n];
            self.load.replay(one.n, task, &one.task).await;
            let mut other = task.body.clone();
            other["prompt"] = json!("something else");
            let (url, key) = (self.load.doors.url("/generations"), self.load.key(one.n));
            let answer = self.load.client.ask(Method::POST, &url, Some(&other), Some(&key)).await?;
            if (answer.status, &answer.json["code"]) != (422, &json!("idempotency_mismatch")) {
                let n = one.n;
                self.complain(format!(
                    "another request under the key of {n}: {} {}",
                    answer.status, answer.json
                ));
            }
        }
        Ok(())
    }

    async fn audit(&self) -> anyhow::Result<()> {
        let folder = self.fleet.members()[0].log.parent().context("a folder")?;
        let rows = audit(&self.load.aivideo, folder, &self.servers.variables, self.journal).await?;
        rows.into_iter().for_each(|row| self.complain(format!("audit: {row}")));
        Ok(())
    }

    /// No process may have panicked, whatever it met.
    fn logs(&self) -> anyhow::Result<()> {
        for member in self.fleet.members() {
            for line in member.panics()? {
                self.complain(format!("{}: {line}", member.log.display()));
            }
        }
        Ok(())
    }

    pub(crate) async fn stats(&self) -> anyhow::Result<Value> {
        self.load.provider.get(&format!("{}/_control/stats", self.servers.ready.mock_provider_url)).await
    }

    async fn read(&self, path: &str) -> anyhow::Result<Value> {
        let mut tries = 1;
        loop {
            match self.load.client.get(&self.load.doors.url(path)).await {
                Ok(json) => return Ok(json),
                Err(error) if tries >= READS_MAX => return Err(error),
                Err(_) => tries += 1,
            }
            sleep(LOOK).await;
        }
    }

    fn complain(&self, what: String) {
        self.load.tally.violation(what);
    }
}
