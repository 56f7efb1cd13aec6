//! The dashboard asks for what processes show, and compose names what the binary takes.

use std::{collections::BTreeSet, fs, path::PathBuf};

use domain::metric;
use serde_json::Value;

/// What PromQL puts behind the name of a histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];
/// Words of the query language that look like names.
const WORDS: [&str; 6] = ["sum", "max", "by", "rate", "histogram_quantile", "le"];

fn repository(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every query of every panel.
fn queries() -> Vec<String> {
    let text = repository("config/observability/grafana/dashboards/aivideo.json");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

/// The names of metrics in a query: words outside label lists and selectors.
fn names(query: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut word, mut labels) = (String::new(), false);
    for c in query.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() || c == '_' || c == '$' {
            word.push(c);
            continue;
        }
        // `by` opens a list of labels; so does a brace; a bracket holds a time.
        let by = word == "by";
        let is_name = word.starts_with(|c: char| c.is_ascii_lowercase()) && !WORDS.contains(&word.as_str());
        if is_name && !labels {
            found.insert(word.clone());
        }
        if !word.is_empty() {
            word.clear();
        }
        match c {
            ')' | '}' | ']' => labels = false,
            '{' | '[' => labels = true,
            _ => labels = labels || by,
        }
    }
    found
}

#[test]
fn every_query_of_the_dashboard_asks_for_metrics_that_are_named_in_the_code() {
    let queries = queries();
    assert!(queries.len() > 20, "the dashboard was not read: {queries:?}");
    for query in &queries {
        let names = names(query);
        assert!(!names.is_empty(), "no metric in {query}");
        for name in names {
            let base = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
            assert!(metric::ALL.contains(&base), "{name} of {query} is no metric");
        }
    }
}

#[test]
fn a_person_on_call_finds_the_figures_that_matter() {
    let shown = queries().join(" ");
    for name in [
        metric::ACCEPT_LATENCY_MS,
        metric::START_LATENCY_MS,
        metric::ETA_ERROR_MS,
        metric::ETA_PROMISES,
        metric::FINISH_LATENCY_MS,
        metric::OUTBOX_AGE_MS,
        metric::QUEUE_DEPTH,
        metric::POLL_LAG_MS,
        metric::BREAKER_OPEN,
        metric::LEDGER_DRIFT,
        metric::STREAM_LENGTH,
        metric::STREAM_LAG_MS,
        metric::PROVIDER_CALLS,
        metric::DEAD_LETTER,
    ] {
        assert!(shown.contains(name), "no panel shows {name}");
    }
}

#[test]
fn names_are_told_from_labels_and_times() {
    let query = r#"sum by (le, model) (rate(a_ms_bucket{kind="b"}[$__rate_interval])) / max(c_total)"#;
    assert_eq!(names(query).into_iter().collect::<Vec<_>>(), ["a_ms_bucket", "c_total"]);
}
