//! How long answers take, by route, method and class of status.

use std::{
    collections::HashMap,
    sync::{OnceLock, PoisonError, RwLock},
    time::Duration,
};

use domain::metric::HTTP_REQUEST_DURATION_MS;
use http::{Method, StatusCode};
use metrics::Histogram;

/// The labels of methods; whatever else a client makes up is the last one.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "other"];
/// The labels of statuses.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// One histogram for each method and class, made when it is first needed.
type OfRoute = [[OnceLock<Histogram>; CLASSES.len()]; METHODS.len()];

/// The histograms of all routes. Asking the registry costs an allocation for each label; so it is asked once.
#[derive(Default)]
pub(crate) struct Durations {
    of: RwLock<HashMap<String, OfRoute>>,
}

impl Durations {
    /// Notes an answer. The route is the pattern that the path has matched, so there is a bounded number of them.
    pub(crate) fn note(&self, route: &str, method: &Method, status: StatusCode, took: Duration) {
        let known = self.of.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histograms) = known.get(route) {
            return record(histograms, route, method, status, took);
        }
        drop(known);
        let mut known = self.of.write().unwrap_or_else(PoisonError::into_inner);
        record(known.entry(route.to_owned()).or_default(), route, method, status, took);
    }
}

fn record(histograms: &OfRoute, route: &str, method: &Method, status: StatusCode, took: Duration) {
    let method = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1);
    let class = match status.as_u16() {
        0..300 => 0,
        300..400 => 1,
        400..500 => 2,
        _ => 3,
    };
    let make = || {
        metrics::histogram!(
            HTTP_REQUEST_DURATION_MS,
            "endpoint" => route.to_owned(),
            "method" => METHODS[method],
            "status" => CLASSES[class],
        )
    };
    histograms[method][class].get_or_init(make).record(took.as_secs_f64() * 1_000.0);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use metrics::{Counter, Gauge, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    use super::*;

    /// Remembers the labels of every histogram that it was asked for.
    #[derive(Default)]
    struct Registry(Mutex<Vec<Vec<String>>>);

    impl Recorder for Registry {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            self.0.lock().unwrap().push(key.labels().map(|label| label.value().to_owned()).collect());
            Histogram::noop()
        }
    }

    #[test]
    fn a_histogram_is_asked_for_once_and_odd_methods_share_one() {
        let (registry, durations) = (Registry::default(), Durations::default());
        let odd = |name: &str| name.parse::<Method>().unwrap();
        metrics::with_local_recorder(&registry, || {
            for (route, method, status) in [
                ("/tasks/{id}", Method::GET, StatusCode::OK),
                ("/tasks/{id}", Method::GET, StatusCode::NO_CONTENT),
                ("/tasks/{id}", Method::GET, StatusCode::NOT_MODIFIED),
                ("/tasks", odd("BREW"), StatusCode::METHOD_NOT_ALLOWED),
                ("/tasks", odd("SIP"), StatusCode::METHOD_NOT_ALLOWED),
            ] {
                durations.note(route, &method, status, Duration::from_millis(1));
            }
        });
        let asked = registry.0.into_inner().unwrap();
        let expected =
            [["/tasks/{id}", "GET", "2xx"], ["/tasks/{id}", "GET", "3xx"], ["/tasks", "other", "4xx"]];
        assert_eq!(asked, expected);
    }
}
