//! The table, for people and for programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    path::PathBuf,
};

use serde::Serialize;

use super::{cases::Case, figures::Figures};

/// One line of the table and what lies behind it.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    #[serde(flatten)]
    pub(crate) case: Case,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// Rows of the audit afterwards.
    pub(crate) audit: Vec<String>,
    /// Every broken promise, those about tasks and credits included.
    pub(crate) broken: Vec<String>,
    /// Where the processes' logs are, after a bad case.
    pub(crate) folder: Option<PathBuf>,
}

/// All lines.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FaultsReport {
    /// In the order of the table.
    pub cases: Vec<CaseReport>,
}

impl FaultsReport {
    /// Whether every promise was kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.cases.iter().all(|case| case.broken.is_empty())
    }
}

/// Names and widths of the columns; the last one is as wide as it likes.
const COLUMNS: [(&str, usize); 12] = [
    ("row", 9),
    ("way", 12),
    ("sent", 5),
    ("refused", 32),
    ("slowest", 8),
    ("mock/second", 11),
    ("/readyz", 28),
    ("AIVideo-Degraded", 18),
    ("back", 7),
    ("caught up", 9),
    ("audit", 7),
    ("promises", 0),
];

/// The head of the table.
#[must_use]
pub fn head() -> String {
    columns(&COLUMNS.map(|(name, _)| name.to_owned()))
}

fn columns(cells: &[String; 12]) -> String {
    let mut line = String::new();
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        // Writing into a text cannot fail.
        let _ = write!(line, "{cell:<width$} ");
    }
    line.trim_end().to_owned()
}

impl CaseReport {
    fn cells(&self) -> [String; 12] {
        let figures = &self.figures;
        let submits = |name: &str| figures.provider_submits.get(name).copied().unwrap_or(0);
        let seconds = |millis: u64| format!("{}.{:02} s", millis / 1_000, millis % 1_000 / 10);
        let statuses = listed(figures.ready.iter().map(ToString::to_string));
        [
            self.case.row.name().to_owned(),
            self.case.way.name().to_owned(),
            figures.requests.to_string(),
            refused(&figures.refused, figures.unanswered.len()),
            seconds(figures.slowest_ms),
            format!("{}/{}", submits("mock"), submits("second")),
            format!("{statuses} {}", names(&figures.named_in_readyz)),
            names(&figures.named_in_header),
            figures.back_after_ms.map_or("never".to_owned(), seconds),
            figures.caught_up_after_ms.map_or("never".to_owned(), seconds),
            if self.audit.is_empty() { "clean".to_owned() } else { format!("{} rows", self.audit.len()) },
            if self.broken.is_empty() { "kept".to_owned() } else { format!("{} BROKEN", self.broken.len()) },
        ]
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&columns(&self.cells()))
    }
}

impl fmt::Display for FaultsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            return f.write_str("every promise was kept");
        }
        let count: usize = self.cases.iter().map(|case| case.broken.len()).sum();
        write!(f, "{count} broken promises:")?;
        for case in self.cases.iter().filter(|case| !case.broken.is_empty()) {
            for broken in &case.broken {
                write!(f, "\n  - {} {}: {broken}", case.case.row.name(), case.case.way.name())?;
            }
            if let Some(folder) = &case.folder {
                write!(f, "\n    logs: {}", folder.display())?;
            }
        }
        Ok(())
    }
}

/// How many were refused by status, whatever they were for.
fn refused(refused: &BTreeMap<String, usize>, unanswered: usize) -> String {
    let mut by_status: BTreeMap<&str, usize> = BTreeMap::new();
    for (what, count) in refused {
        let status = what.rsplit(' ').next().unwrap_or(what);
        *by_status.entry(status).or_default() += count;
    }
    let mut parts: Vec<_> = by_status.iter().map(|(status, count)| format!("{count}x{status}")).collect();
    if unanswered > 0 {
        parts.push(format!("{unanswered} without answer"));
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn names(names: &BTreeSet<String>) -> String {
    if names.is_empty() { "-".to_owned() } else { listed(names.iter().cloned()) }
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::cases::{Row, Way};

    fn report(broken: &[&str]) -> CaseReport {
        CaseReport {
            case: Case { row: Row::Postgres, way: Way::Freeze },
            figures: Figures {
                requests: 311,
                refused: BTreeMap::from([
                    ("submit 503".to_owned(), 40),
                    ("uncached read 503".to_owned(), 2),
                    ("uncached read 500".to_owned(), 1),
                ]),
                unanswered: vec!["submit: reset".to_owned()],
                slowest_ms: 10_049,
                provider_submits: BTreeMap::from([("mock".to_owned(), 3), ("second".to_owned(), 0)]),
                ready: BTreeSet::from([200, 503]),
                named_in_readyz: BTreeSet::from(["control".to_owned(), "postgresql".to_owned()]),
                back_after_ms: Some(2_310),
                caught_up_after_ms: None,
                ..Figures::default()
            },
            audit: Vec::new(),
            broken: broken.iter().map(|&what| what.to_owned()).collect(),
            folder: Some("/tmp/x".into()),
        }
    }

    #[test]
    fn a_line_has_every_figure_below_its_name() {
        let (head, line) = (head(), report(&[]).to_string());
        let cell = |name: &str, width: usize| {
            let from = head.find(name).unwrap();
            line[from..].chars().take(width).collect::<String>().trim().to_owned()
        };
        assert_eq!(cell("row", 9), "postgres");
        assert_eq!(cell("way", 12), "freeze");
        assert_eq!(cell("sent", 5), "311");
        assert_eq!(cell("refused", 32), "1x500, 42x503, 1 without answer");
        assert_eq!(cell("slowest", 8), "10.04 s");
        assert_eq!(cell("mock/second", 11), "3/0");
        assert_eq!(cell("/readyz", 28), "200,503 control,postgresql");
        assert_eq!(cell("back", 7), "2.31 s");
        assert_eq!(cell("caught up", 9), "never");
        assert_eq!(cell("audit", 7), "clean");
        assert_eq!(cell("promises", 20), "kept");
    }

    #[test]
    fn broken_promises_are_listed_with_their_case_and_its_logs() {
        let report = FaultsReport { cases: vec![report(&[]), report(&["it hung", "it lied"])] };
        assert!(!report.is_good());
        assert!(report.cases[1].to_string().ends_with("2 BROKEN"));
        let text = report.to_string();
        assert!(text.starts_with("2 broken promises:\n  - postgres freeze: it hung\n"), "{text}");
        assert!(text.ends_with("it lied\n    logs: /tmp/x"), "{text}");
        assert!(FaultsReport::default().is_good());
    }

    #[test]
    fn programs_get_the_same() {
        let json = serde_json::to_value(report(&["it hung"])).unwrap();
        assert_eq!((&json["row"], &json["way"]), (&"postgres".into(), &"freeze".into()));
        assert_eq!((&json["requests"], &json["broken"][0]), (&311.into(), &"it hung".into()));
        assert_eq!(json["refused"]["submit 503"], 40);
        assert_eq!(json["provider_submits"]["mock"], 3);
    }
}
