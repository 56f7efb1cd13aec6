//! The submit figure: `POST /generations` with a fresh key each, as fast as answers come.

use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use super::{
    connection::Connection,
    load::{self, Tally, Watch},
    target::Target,
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Makes submits that no other run repeats. They ask for the mock provider's model and no other, so a run can never
/// cost anything.
#[derive(Debug, Clone)]
pub(super) struct Submits {
    target: Arc<Target>,
    run: String,
}

impl Submits {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self { target, run: hex::encode(rand::random::<[u8; 8]>()) }
    }

    /// A worker's next one.
    pub(super) fn request(&self, worker: usize, number: u64) -> Request<Full<Bytes>> {
        let reference = format!("bench-{}-{worker}-{number}", self.run);
        let body = format!(
            r#"{{"model":"mock-fast","prompt":"{reference}: a cat rides a bicycle on the moon, cinematic","duration_seconds":5}}"#
        );
        let mut request = self.target.send(Method::POST, Uri::from_static("/generations"), body);
        if let Ok(key) = HeaderValue::try_from(reference) {
            request.headers_mut().insert(KEY, key);
        }
        request
    }
}

/// When a flood ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// So much later.
    Over(Duration),
    /// After so many submits of all workers.
    Sent(usize),
}

/// Submits over so many connections.
pub(super) async fn flood(
    target: &Arc<Target>,
    connections: usize,
    until: Until,
    watch: &Watch,
) -> anyhow::Result<(Tally, Duration)> {
    let (target, submits, seen) = (Arc::clone(target), Submits::new(Arc::clone(target)), watch.clone());
    let from = Instant::now();
    let worker = async move |worker: usize, tally: &RefCell<Tally>| {
        let mut connection = Connection::new(Arc::clone(&target));
        for number in 0.. {
            let more = match until {
                Until::Over(duration) => from.elapsed() < duration,
                // The workers share the count evenly: number n of this worker is one of the first `count`.
                Until::Sent(count) => usize::try_from(number).is_ok_and(|n| n * connections + worker < count),
            };
            if !more || !seen.goes_on() {
                return;
            }
            let request = submits.request(worker, number);
            let from = Instant::now();
            let answer = connection.ask(request).await;
            if seen.note(from, answer, tally).await.is_some() {
                tally.borrow_mut().accepted += 1;
            }
        }
    };
    load::run(connections, watch, worker).await
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn every_submit_has_a_key_of_its_own_and_asks_for_the_mock_model() {
        let target = Arc::new(Target::parse("http://127.0.0.1:1", "k", false).await.unwrap());
        let (one, two) = (Submits::new(Arc::clone(&target)), Submits::new(target));
        let mut keys = std::collections::BTreeSet::new();
        for (submits, worker, number) in [(&one, 0, 0), (&one, 0, 1), (&one, 1, 0), (&two, 0, 0)] {
            let request = submits.request(worker, number);
            keys.insert(request.headers()[KEY].to_str().unwrap().to_owned());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["model"], "mock-fast", "a model that may cost something");
        }
        assert_eq!(keys.len(), 4);
    }
}
