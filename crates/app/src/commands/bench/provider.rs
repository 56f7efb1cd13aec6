//! The mock provider's control: how long generations take there, what it counted, and when submits arrived.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use http::{Method, Uri};
use serde::{Deserialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::{connection::Connection, latency::Latency, target::Target};

/// The model that is asked for, see [`Submits`](super::submit::Submits).
const MODEL: &str = "/_control/models/mock-fast";
/// How long work that is left may take to be done.
const SETTLE_MAX: Duration = Duration::from_secs(120);
const SETTLE_LOOK: Duration = Duration::from_millis(250);
/// So many looks in a row without any news: the work is done.
const SETTLE_LOOKS: u32 = 4;

/// The provider behind what is measured.
#[derive(Debug, Clone)]
pub(super) struct Provider(Arc<Target>);

/// The counters that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Figures {
    pub(super) submits: u64,
    pub(super) running: u64,
    /// Videos that were fetched: every generation that came to a good end has one.
    pub(super) outputs: u64,
}

/// The first submit of one attempt.
#[derive(Debug, Deserialize)]
pub(super) struct Arrival {
    pub(super) at_us: Option<i64>,
    pub(super) submits: u64,
}

/// How the starts of a run went.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// From the 202's being read to the submit's arrival. Those that came before count as zero.
    pub(super) latency: Latency,
    /// Submits that the provider saw before the client had read the 202.
    pub(super) before_answer: u64,
    /// Attempts that the provider was asked for more than once.
    pub(super) double_submits: u64,
    /// Tasks whose arrival the provider does not know.
    pub(super) unseen: u64,
}

impl Provider {
    pub(super) fn new(target: Target) -> Self {
        Self(Arc::new(target))
    }

    pub(super) async fn figures(&self) -> anyhow::Result<Figures> {
        self.get("/_control/figures").await
    }

    /// Sets how long generations take from now on, and returns what it was.
    pub(super) async fn set_generation(&self, generation: Duration) -> anyhow::Result<Duration> {
        #[derive(Deserialize)]
        struct Model {
            model: String,
            duration_ms: u64,
        }
        let models: Vec<Model> = self.get("/_control/models").await?;
        let model = models.into_iter().find(|model| model.model == "mock-fast");
        let before = model.context("the provider has no model mock-fast")?.duration_ms;
        let body = format!(r#"{{"duration_ms":{}}}"#, generation.as_millis());
        let request = self.0.send(Method::PUT, Uri::from_static(MODEL), body);
        let set = Connection::new(Arc::clone(&self.0)).ask(request).await;
        set.map_err(|failure| anyhow::anyhow!("{}: {failure}", self.0.url))?;
        Ok(Duration::from_millis(before))
    }

    /// Compares the arrivals of a run that took `elapsed` with the times at which its submits were accepted.
    pub(super) async fn starts(&self, tasks: &[(String, i64)], elapsed: Duration) -> anyhow::Result<Starts> {
        // Nothing older is of interest; a second more costs nothing.
        let within = elapsed.as_millis() + 1_000;
        let arrivals: BTreeMap<String, Arrival> =
            self.get(&format!("/_control/arrivals?within_ms={within}")).await?;
        Ok(starts(tasks, &arrivals))
    }

    /// Waits until the provider has nothing to do and nobody brings it anything new.
    ///
    /// # Errors
    /// When it does not answer. Whether it came to rest is the answer.
    pub(super) async fn settle(&self, stop: &CancellationToken) -> anyhow::Result<bool> {
        let from = Instant::now();
        let (mut before, mut same) = (None, 0);
        while from.elapsed() < SETTLE_MAX && !stop.is_cancelled() {
            let figures = self.figures().await?;
            same = if figures.running == 0 && before == Some(figures) { same + 1 } else { 0 };
            if same == SETTLE_LOOKS {
                return Ok(true);
            }
            before = Some(figures);
            tokio::select! {
                () = tokio::time::sleep(SETTLE_LOOK) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(false)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request = self.0.get(&path.parse().context("a path")?);
        let body = Connection::new(Arc::clone(&self.0)).ask(request).await;
        let body = body.map_err(|failure| anyhow::anyhow!("the provider's {path}: {failure}"))?;
        serde_json::from_slice(&body).with_context(|| format!("the provider's {path} is no mock provider's"))
    }
}

fn starts(tasks: &[(String, i64)], arrivals: &BTreeMap<String, Arrival>) -> Starts {
    let mut starts = Starts::default();
    for (task, accepted_us) in tasks {
        // References read `<task>.<attempt>`, and the first attempt is the one that was waited for.
        let first = arrivals.get(&format!("{task}.1"));
        match first.and_then(|arrival| arrival.at_us) {
            Some(at) => {
                let late = u64::try_from(at - accepted_us);
                starts.before_answer += u64::from(late.is_err());
                starts.latency.record(Duration::from_micros(late.unwrap_or(0)));
            }
            None => starts.unseen += 1,
        }
    }
    let twice = arrivals.values().filter(|arrival| arrival.submits > 1).count();
    starts.double_submits = u64::try_from(twice).unwrap_or(u64::MAX);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_count_from_the_answer_and_name_what_is_odd() {
        let told = r#"{"a.1":{"at_us":5000,"submits":1},"b.1":{"at_us":900,"submits":2},"c.2":{"at_us":1,"submits":1}}"#;
        let arrivals = serde_json::from_str(told).unwrap();
        let tasks = [("a", 3_000), ("b", 1_000), ("c", 0)].map(|(id, at)| (id.to_owned(), at));
        let starts = starts(&tasks, &arrivals);
        assert_eq!(
            (starts.latency.count(), starts.before_answer, starts.double_submits, starts.unseen),
            (2, 1, 1, 1)
        );
        assert!((starts.latency.percentiles().unwrap().max - 2.0).abs() < 0.01);
    }

    #[tokio::test]
    async fn the_mock_provider_understands_every_call() {
        let running = mock_provider::start(mock_provider::Config::default()).await.unwrap();
        let target = Target::parse(&running.url(), "k", false).await.unwrap();
        let provider = Provider::new(target.clone());
        assert_eq!(provider.set_generation(Duration::from_millis(10)).await.unwrap(), Duration::from_secs(1));
        assert_eq!(
            provider.set_generation(Duration::from_millis(10)).await.unwrap(),
            Duration::from_millis(10)
        );
        let body = r#"{"model":"mock-fast","prompt":"a cat","duration_seconds":5,"client_reference":"t.1"}"#;
        let submit = target.send(Method::POST, Uri::from_static("/v1/jobs"), body);
        Connection::new(Arc::new(target)).ask(submit).await.unwrap();
        assert!(provider.settle(&CancellationToken::new()).await.unwrap());
        let figures = provider.figures().await.unwrap();
        assert_eq!((figures.submits, figures.running, figures.outputs), (1, 0, 0));
        let starts = provider.starts(&[("t".to_owned(), 0)], Duration::from_secs(60)).await.unwrap();
        assert_eq!((starts.latency.count(), starts.unseen), (1, 0));
        running.stop().await;
    }
}
