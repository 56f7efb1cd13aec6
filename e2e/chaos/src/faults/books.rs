//! The books of a case: whether every task that was accepted is there, has ended well, and cost what it should.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    stage::{Stage, Wiring},
    traffic::{Submitted, has_ended},
};
use crate::{audit::audit, client::Client, journal::Journal, provider::MockProvider};

/// How long tasks may take to end when all is whole: a submit whose answer was lost is looked up, proved absent and
/// sent again after a pause.
const REST_MAX: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(300);
/// Ids in one request.
const PAGE: usize = 50;
/// As many of a kind are told.
const TOLD_MAX: usize = 3;

/// What is needed to look into them.
pub(crate) struct Books {
    client: Client,
    door: String,
    before: Value,
}

impl Books {
    /// Opens them while nothing is under way.
    pub(crate) async fn open(client: &Client, door: &str) -> anyhow::Result<Self> {
        let before = client.get(&format!("{door}/credits")).await?;
        Ok(Self { client: client.clone(), door: door.to_owned(), before })
    }

    /// Waits until the tasks have ended and closes the books. Returns the tasks that have, and what is wrong.
    pub(crate) async fn close(
        &self,
        submitted: &Submitted,
        providers: &[Arc<MockProvider>; 2],
    ) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let ids: BTreeSet<&str> = submitted.accepted.iter().map(|(_, task)| task.as_str()).collect();
        let mut wrong = submitted.wrong.clone();
        if ids.len() != submitted.accepted.len() {
            let doubled = submitted.accepted.len() - ids.len();
            wrong.push(format!("{doubled} tasks were accepted for more than one key"));
        }
        let tasks = self.at_rest(&ids).await?;
        let found: BTreeSet<&str> = tasks.iter().filter_map(|task| task["task_id"].as_str()).collect();
        let lost: Vec<&str> = ids.difference(&found).copied().collect();
        if !lost.is_empty() {
            wrong.push(format!("{} accepted tasks are lost, such as {}", lost.len(), lost[0]));
        }
        let bad: Vec<&Value> = tasks.iter().filter(|task| task["status"] != "SUCCEEDED").collect();
        if !bad.is_empty() {
            wrong.push(format!("{} tasks have not succeeded", bad.len()));
            wrong.extend(bad.iter().take(TOLD_MAX).map(|task| told(task)));
        }
        let charged = tasks.iter().filter_map(|task| task["credits"]["charged"].as_i64()).sum();
        let after = self.client.get(&format!("{}/credits", self.door)).await?;
        wrong.extend(wrong_credits(&self.before, &after, charged));
        for provider in providers {
            wrong.extend(doubled_jobs(&provider.stats().await?, provider.name));
        }
        Ok((tasks.iter().filter_map(|task| Some(task["task_id"].as_str()?.to_owned())).collect(), wrong))
    }

    /// How many of these tasks are at no provider yet.
    pub(crate) async fn waiting(&self, tasks: &[String]) -> anyhow::Result<usize> {
        let tasks = self.read(&tasks.iter().map(String::as_str).collect()).await?;
        Ok(tasks.iter().filter(|task| waits(task)).count())
    }

    /// Waits until these tasks have ended.
    pub(crate) async fn wait_for(&self, tasks: &[String]) -> anyhow::Result<()> {
        let ids = tasks.iter().map(String::as_str).collect();
        let tasks = self.at_rest(&ids).await?;
        match tasks.iter().find(|task| !has_ended(task)) {
            None => Ok(()),
            Some(task) => anyhow::bail!("a task does not end although nothing was hurt: {}", told(task)),
        }
    }

    /// The tasks, when all have ended or the patience has.
    async fn at_rest(&self, ids: &BTreeSet<&str>) -> anyhow::Result<Vec<Value>> {
        let begun = Instant::now();
        loop {
            let tasks = self.read(ids).await;
            let rest = tasks.as_ref().is_ok_and(|tasks| tasks.iter().all(has_ended));
            if rest || begun.elapsed() > REST_MAX {
                return tasks;
            }
            sleep(LOOK).await;
        }
    }

    async fn read(&self, ids: &BTreeSet<&str>) -> anyhow::Result<Vec<Value>> {
        let ids: Vec<&str> = ids.iter().copied().collect();
        let mut tasks = Vec::with_capacity(ids.len());
        for page in ids.chunks(PAGE) {
            let url = format!("{}/tasks?ids={}", self.door, page.join(","));
            let json = self.client.get(&url).await?;
            tasks.extend(json["items"].as_array().context("a list")?.iter().cloned());
        }
        Ok(tasks)
    }
}

/// What the platform itself finds wrong, asked for past every proxy.
pub(crate) async fn audited(
    aivideo: &Path,
    folder: &Path,
    wiring: &Wiring,
    journal: &Journal,
) -> anyhow::Result<Vec<String>> {
    audit(aivideo, folder, &wiring.direct, journal).await
}

/// Waits until the providers have no job any more, so that what comes next begins with none.
pub(crate) async fn idle(stage: &Stage) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < REST_MAX {
        let mut running = 0;
        for provider in &stage.providers {
            running += provider.stats().await?["running"].as_u64().unwrap_or(0);
        }
        if running == 0 {
            break;
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Whether a task is at no provider yet, as far as anybody knows.
fn waits(task: &Value) -> bool {
    matches!(task["status"].as_str(), Some("QUEUED" | "SCHEDULING" | "RECONCILING"))
}

fn told(task: &Value) -> String {
    let text = |name: &str| task[name].as_str().unwrap_or("-").to_owned();
    let [id, status, code, reason] = ["task_id", "status", "error_code", "wait_reason"].map(text);
    format!("{id} of {}: {status} {code}, waits for {reason}, attempt {}", text("model"), task["attempt_no"])
}

/// What was captured since is the sum of the tasks' charges, nothing is held, and nothing has come from nowhere.
fn wrong_credits(before: &Value, after: &Value, charged: i64) -> Option<String> {
    let figure = |of: &Value, name: &str| of[name].as_i64().unwrap_or(i64::MIN);
    let captured = figure(after, "captured").saturating_sub(figure(before, "captured"));
    let conserved = figure(after, "granted")
        == ["available", "held", "captured", "expired", "withdrawn"]
            .into_iter()
            .map(|name| figure(after, name))
            .fold(0, i64::saturating_add);
    (!conserved || figure(after, "held") != 0 || captured != charged)
        .then(|| format!("credits: {captured} captured, tasks were charged {charged}: {after}"))
}

/// The provider never had two jobs of one task, and saw every reference once.
fn doubled_jobs(stats: &Value, provider: &str) -> Vec<String> {
    let mut doubled = Vec::new();
    if stats["max_live_by_task"].as_u64().is_none_or(|most| most > 1) {
        doubled.push(format!("{provider}: a task had {} jobs at once", stats["max_live_by_task"]));
    }
    let references = stats["submits_by_reference"].as_object().into_iter().flatten();
    let repeated = references.filter(|(_, count)| count.as_u64() != Some(1));
    doubled.extend(
        repeated
            .take(TOLD_MAX)
            .map(|(name, count)| format!("{provider}: {name} was submitted {count} times")),
    );
    doubled
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn credits(available: i64, held: i64, captured: i64) -> Value {
        json!({ "granted": 100, "available": available, "held": held, "captured": captured, "expired": 0, "withdrawn": 0 })
    }

    #[test]
    fn credits_are_right_only_if_every_figure_is() {
        let before = credits(90, 0, 10);
        assert_eq!(wrong_credits(&before, &credits(84, 0, 16), 6), None);
        assert!(wrong_credits(&before, &credits(84, 0, 16), 4).is_some(), "captured twice");
        assert!(wrong_credits(&before, &credits(82, 2, 16), 6).is_some(), "still held");
        assert!(wrong_credits(&before, &credits(83, 0, 16), 6).is_some(), "one is missing");
        assert!(wrong_credits(&before, &json!({}), 6).is_some(), "no figures at all");
    }

    #[test]
    fn a_task_waits_until_a_provider_is_known_to_have_it() {
        for (status, waiting) in
            [("QUEUED", true), ("RECONCILING", true), ("RUNNING", false), ("FAILED", false)]
        {
            assert_eq!(waits(&json!({ "status": status })), waiting, "{status}");
        }
    }

    #[test]
    fn two_jobs_of_a_task_and_two_submits_of_a_reference_are_both_told() {
        let well = json!({ "max_live_by_task": 1, "submits_by_reference": { "a.1": 1, "b.1": 1 } });
        assert_eq!(doubled_jobs(&well, "mock"), Vec::<String>::new());
        let double = json!({ "max_live_by_task": 2, "submits_by_reference": { "a.1": 2, "b.1": 1 } });
        let found = doubled_jobs(&double, "mock");
        assert_eq!(found, ["mock: a task had 2 jobs at once", "mock: a.1 was submitted 2 times"]);
    }
}
