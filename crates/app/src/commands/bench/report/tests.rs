//! The table and the document, over made-up runs.

use std::time::Duration;

use clap::Parser;

use super::*;
use crate::{
    cli::{Cli, Command},
    commands::bench::{
        args::Measure,
        failure::{Failure, Failures},
    },
};

/// A report of two submit runs and one start latency.
pub(in crate::commands::bench) async fn example() -> Report {
    let cli = Cli::try_parse_from(["aivideo", "bench", "submit", "start-latency", "--runs", "2", "--json"])
        .unwrap();
    let Command::Bench(args) = cli.command else { panic!("another command") };
    let mut report = Report::new(&Settings::from_args(args).await.unwrap());
    let latency = |ms: u64| {
        let mut latency = Latency::default();
        (1..=ms).for_each(|ms| latency.record(Duration::from_millis(ms)));
        latency
    };
    let second = Duration::from_secs(1);
    let mut failures = Failures::default();
    failures.note(&Failure::TimedOut);
    for (run, ms, failures) in [(1, 4_000, Failures::default()), (2, 2_000, failures)] {
        let mut record =
            Record::rate(Measure::Submit, "scheduler on", run, latency(ms), 2 * second, failures);
        record.more.finished_per_second_meanwhile = Some(321.0);
        report.add(record);
    }
    let starts = latency(5);
    report.add(Record::latency(
        Measure::StartLatency,
        "64 in flight <&>",
        1,
        starts,
        second,
        Failures::default(),
    ));
    report
}

#[tokio::test]
async fn the_document_says_all_that_was_measured_and_where() {
    let report = example().await;
    let json = report.json(true);
    let mut keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let wanted = [
        "accepted", "complete", "faults", "form", "good", "machine", "medians", "runs", "settings", "stored",
        "versions",
    ];
    assert_eq!(keys, wanted);
    assert_eq!(json["good"], false, "a run had an error");
    assert_eq!(json["settings"]["measures"], serde_json::json!(["submit", "start-latency"]));
    assert_eq!(json["settings"]["against"], "private");
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    assert_eq!((&runs[0]["per_second"], &runs[0]["count"]), (&2_000.0.into(), &4_000.into()));
    assert_eq!(runs[0]["finished_per_second_meanwhile"], 321.0);
    assert_eq!((&runs[1]["errors"], &runs[1]["failures"]["no answer in time"]), (&1.into(), &1.into()));
    assert!(runs[0].get("failures").is_none() && runs[2].get("per_second").is_none(), "{runs:?}");
    for name in ["p50", "p95", "p99", "max"] {
        assert!(runs[2]["latency_ms"][name].as_f64().unwrap() > 0.0, "{name}");
    }
    let submit = &json["medians"][0];
    assert_eq!((&submit["runs"], &submit["per_second"]), (&2.into(), &1_500.0.into()));
    assert_eq!(submit["per_second_range"], serde_json::json!([1_000.0, 2_000.0]));
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn the_table_has_a_line_a_run_and_shows_every_error() {
    let report = example().await;
    let lines: Vec<String> = report.records.iter().map(Record::lines).collect();
    assert!(lines[0].starts_with("submit, scheduler on") && lines[0].contains(" 2,000 "), "{}", lines[0]);
    assert!(lines[0].contains("finished meanwhile 321/s"), "{}", lines[0]);
    assert!(lines[1].contains("1 × no answer in time"), "{}", lines[1]);
    let heading = report.heading();
    let width = |text: &str| text.lines().next().unwrap().chars().count();
    assert_eq!(width(&lines[2]), width(heading.lines().last().unwrap()), "{heading}\n{}", lines[2]);
    assert!(report.closing().contains("medians\nsubmit, scheduler on"), "{}", report.closing());
}

#[tokio::test]
async fn double_submits_are_a_fault() {
    let mut report = example().await;
    report.records.clear();
    assert!(report.is_good());
    let latency = Latency::default();
    let mut record =
        Record::latency(Measure::StartLatency, "x", 1, latency, Duration::from_secs(1), Failures::default());
    record.more.double_submits = Some(1);
    report.add(record);
    assert!(!report.is_good() && report.closing().contains("FAULT"), "{}", report.closing());
}

#[test]
fn numbers_are_readable() {
    for (value, text) in [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.8, "1,234,568")] {
        assert_eq!(thousands(value), text);
    }
    assert_eq!((median(&[]), median(&[1.0, 2.0]), median(&[1.0, 2.0, 9.0])), (None, Some(1.5), Some(2.0)));
}
