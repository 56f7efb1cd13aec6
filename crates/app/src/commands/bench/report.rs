//! What was measured, as records, as a table for people and as one JSON document.

mod record;

use std::collections::BTreeMap;

use serde::Serialize;

pub(super) use self::record::{Record, per_second};
use super::{
    args::{Against, Settings},
    latency::{Latency, Percentiles},
    machine::{Machine, Versions},
};

/// Raised when the document changes so that readers of it must.
const FORM: u32 = 1;

/// The runs of one figure together.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) figure: &'static str,
    pub(super) variant: String,
    pub(super) runs: usize,
    /// The median of the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_second: Option<f64>,
    /// Least and most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_second_range: Option<(f64, f64)>,
    /// Of all runs' samples together.
    pub(super) latency_ms: Option<Percentiles>,
    pub(super) errors: u64,
    #[serde(skip)]
    pub(super) latency: Latency,
}

/// Everything that one call of the command measured.
#[derive(Debug)]
pub(super) struct Report {
    machine: Machine,
    pub(super) versions: Versions,
    settings: SettingsShown,
    pub(super) records: Vec<Record>,
    /// Tasks that were accepted, those of warm-ups too, and how many a PostgreSQL of ours holds.
    pub(super) accepted: u64,
    pub(super) stored: Option<u64>,
    /// What is wrong beyond failed requests.
    pub(super) faults: Vec<String>,
    silent: bool,
}

#[derive(Debug, Serialize)]
struct SettingsShown {
    measures: Vec<&'static str>,
    /// `private`, or the address.
    against: String,
    connections: usize,
    seconds: u64,
    runs: usize,
    in_flight: Vec<usize>,
    tasks: BTreeMap<usize, usize>,
    ids: usize,
    warm_up: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_ms: Option<u128>,
}

impl Report {
    pub(super) fn new(settings: &Settings) -> Self {
        let in_flight = settings.in_flight_runs().to_vec();
        Self {
            machine: Machine::look(),
            versions: Versions::own(),
            settings: SettingsShown {
                measures: settings.measures.iter().map(|measure| measure.name()).collect(),
                against: match &settings.against {
                    Against::Private => "private".to_owned(),
                    Against::Given { api, .. } => api.url.clone(),
                },
                connections: settings.connections,
                seconds: settings.duration.as_secs(),
                runs: settings.runs,
                tasks: in_flight.iter().map(|n| (*n, settings.tasks(*n))).collect(),
                in_flight,
                ids: settings.ids,
                warm_up: settings.warm_up,
                generation_ms: settings.generation.map(|generation| generation.as_millis()),
            },
            records: Vec::new(),
            accepted: 0,
            stored: None,
            faults: Vec::new(),
            silent: settings.json,
        }
    }

    /// Takes in a run, and shows it at once.
    pub(super) fn add(&mut self, record: Record) {
        if !self.silent {
            if self.records.is_empty() {
                println!("{}", self.heading());
            }
            println!("{}", record.lines());
        }
        if let Some(double) = record.more.double_submits.filter(|double| *double > 0) {
            self.faults.push(format!("{double} attempts were submitted more than once"));
        }
        self.records.push(record);
    }

    /// Whether all went well.
    pub(super) fn is_good(&self) -> bool {
        self.faults.is_empty() && self.records.iter().all(|record| record.errors == 0)
    }

    /// The figures, each with its runs taken together, in the order in which they were measured.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        let mut summaries: Vec<(Summary, Vec<f64>)> = Vec::new();
        for record in &self.records {
            let same =
                |summary: &Summary| summary.figure == record.figure && summary.variant == record.variant;
            let at = summaries.iter().position(|(summary, _)| same(summary)).unwrap_or_else(|| {
                let empty = Summary {
                    figure: record.figure,
                    variant: record.variant.clone(),
                    runs: 0,
                    per_second: None,
                    per_second_range: None,
                    latency_ms: None,
                    errors: 0,
                    latency: Latency::default(),
                };
                summaries.push((empty, Vec::new()));
                summaries.len() - 1
            });
            let (summary, rates) = &mut summaries[at];
            summary.runs += 1;
            summary.errors += record.errors;
            summary.latency.merge(&record.latency);
            rates.extend(record.per_second);
        }
        let closed = summaries.into_iter().map(|(mut summary, mut rates)| {
            rates.sort_by(f64::total_cmp);
            summary.per_second = median(&rates);
            summary.per_second_range = rates.first().copied().zip(rates.last().copied());
            summary.latency_ms = summary.latency.percentiles();
            summary
        });
        closed.collect()
    }

    /// The lines below the table: medians where there were several runs, and what PostgreSQL holds.
    pub(super) fn closing(&self) -> String {
        let mut text = String::new();
        let summaries = self.summaries();
        if summaries.iter().any(|summary| summary.runs > 1) {
            text.push_str("\nmedians\n");
            for summary in &summaries {
                let name = format!("{}, {}", summary.figure, summary.variant);
                text.push_str(&row(&name, summary.per_second, summary.latency_ms, summary.errors));
                text.push('\n');
            }
        }
        if let Some(stored) = self.stored {
            text.push_str(&format!("\n{} tasks accepted, {stored} stored\n", self.accepted));
        }
        for fault in &self.faults {
            text.push_str(&format!("\nFAULT: {fault}\n"));
        }
        text
    }

    /// The one document. `complete` is false when it was interrupted.
    pub(super) fn json(&self, complete: bool) -> serde_json::Value {
        serde_json::json!({
            "form": FORM,
            "complete": complete,
            "good": self.is_good() && complete,
            "machine": self.machine,
            "versions": self.versions,
            "settings": self.settings,
            "runs": self.records,
            "medians": self.summaries(),
            "accepted": self.accepted,
            "stored": self.stored,
            "faults": self.faults,
        })
    }

    /// One line about the machine, for the table and the plot.
    pub(super) fn place(&self) -> String {
        let cpu = self.machine.cpu.as_deref().unwrap_or("unknown CPU");
        let mut text = format!("{} cores, {cpu}, aivideo {}", self.machine.cores, self.versions.aivideo);
        if let Some(postgres) = &self.versions.postgres {
            text.push_str(&format!(", PostgreSQL {} with fsync {}", postgres.version, postgres.fsync));
        }
        text
    }

    fn heading(&self) -> String {
        let columns = ["per second", "p50 ms", "p95 ms", "p99 ms", "max ms", "errors"];
        let columns: String = columns.iter().map(|column| format!("{column:>11}")).collect();
        format!("{}\n\n{:<34}{columns}", self.place(), "figure")
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn row(name: &str, per_second: Option<f64>, latency: Option<Percentiles>, errors: u64) -> String {
    let rate = per_second.map_or_else(|| "-".to_owned(), thousands);
    let mut text = format!("{name:<34}{rate:>11}");
    match latency {
        Some(Percentiles { p50, p95, p99, max }) => {
            [p50, p95, p99, max].iter().for_each(|ms| text.push_str(&format!("{ms:>11.1}")));
        }
        None => text.push_str(&format!("{:>11}", "-").repeat(4)),
    }
    text.push_str(&format!("{errors:>11}"));
    text
}

/// A whole number with its thousands set apart.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
pub(super) mod tests;
