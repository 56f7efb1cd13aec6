//! The people on call: they look at `/readyz`, at the metrics, and at what the providers get to see.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::Method;
use tokio::{
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    record::{Kind, Notes, Readiness, Scrape, Seen},
    traffic::noted,
};
use crate::{
    client::{Answer, Client},
    provider::MockProvider,
};

const READY_EVERY: Duration = Duration::from_millis(250);
const METRICS_EVERY: Duration = Duration::from_millis(1_000);
const PROVIDER_EVERY: Duration = Duration::from_millis(200);
/// A provider that is frozen says nothing for long; what counts is what it says before and after.
const PROVIDER_ANSWER_MAX: Duration = Duration::from_millis(500);
/// What watching two processes costs them, in requests a second.
#[cfg(test)]
pub(crate) const PER_SECOND: f64 = 2.0 * (4.0 + 1.0);

/// Looks until the handle is dropped.
pub(crate) fn watch(
    notes: &Arc<Notes>,
    client: &Client,
    processes: &[SocketAddr],
    providers: &[Arc<MockProvider>; 2],
) -> JoinSet<()> {
    let mut watchers = JoinSet::new();
    for (process, address) in processes.iter().copied().enumerate() {
        let (own_notes, own_client) = (Arc::clone(notes), client.clone());
        watchers.spawn(async move {
            let mut rhythm = rhythm(READY_EVERY);
            loop {
                rhythm.tick().await;
                ready(&own_notes, &own_client, process, address).await;
            }
        });
        let (own_notes, own_client) = (Arc::clone(notes), client.clone());
        watchers.spawn(async move {
            let mut rhythm = rhythm(METRICS_EVERY);
            loop {
                rhythm.tick().await;
                metrics(&own_notes, &own_client, address).await;
            }
        });
    }
    for provider in providers {
        let (notes, provider) = (Arc::clone(notes), Arc::clone(provider));
        watchers.spawn(async move {
            let mut rhythm = rhythm(PROVIDER_EVERY);
            loop {
                rhythm.tick().await;
                seen(&notes, &provider).await;
            }
        });
    }
    watchers
}

fn rhythm(period: Duration) -> Interval {
    let mut rhythm = interval(period);
    rhythm.set_missed_tick_behavior(MissedTickBehavior::Delay);
    rhythm
}

async fn seen(notes: &Notes, provider: &MockProvider) {
    if let Ok(Ok(submits)) = tokio::time::timeout(PROVIDER_ANSWER_MAX, provider.submits()).await {
        let seen = Seen { provider: provider.name, at: notes.now(), submits };
        notes.add(|record| record.seen.push(seen));
    }
}

async fn ready(notes: &Notes, client: &Client, process: usize, address: SocketAddr) {
    let url = format!("http://{address}/readyz");
    let answer = noted(notes, Kind::Ready, client.ask(Method::GET, &url, None, None)).await;
    let names = |answer: &Answer| {
        let names = answer.json["degraded"].as_array().into_iter().flatten();
        names.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let readiness = Readiness {
        process,
        at: notes.now(),
        status: answer.as_ref().map(|answer| answer.status),
        degraded: answer.as_ref().map(names).unwrap_or_default(),
    };
    notes.add(|record| record.readiness.push(readiness));
}

async fn metrics(notes: &Notes, client: &Client, address: SocketAddr) {
    let url = format!("http://{address}/metrics");
    if let Ok(answer) = client.ask(Method::GET, &url, None, None).await {
        let scrape = Scrape::parse(notes.now(), &String::from_utf8_lossy(&answer.body));
        notes.add(|record| record.scrapes.push(scrape));
    }
}
