//! Latencies: an HDR histogram of microseconds, and the percentiles that are reported of it.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer than any limit of ours; what lies beyond is counted as this.
const MICROS_MAX: u64 = 600_000_000;
/// Three digits of every value are true.
const DIGITS: u8 = 3;

/// What was measured of one kind.
#[derive(Debug, Clone)]
pub(super) struct Latency(Histogram<u64>);

/// In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        // It grows as far as values ask for, so hundreds of them cost little.
        Self(Histogram::new(DIGITS).expect("three digits are lawful"))
    }
}

impl Latency {
    pub(super) fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(MICROS_MAX).min(MICROS_MAX);
        // Not `saturating_record`: that one cuts off at what the histogram holds so far, where this one lets it grow.
        self.0.record(micros).expect("the histogram grows up to the largest value");
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // Both are bounded alike, and this one grows where it has to.
        self.0.add(&other.0).expect("histograms of one kind");
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// `None` when nothing was measured: no percentile is honest then.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| millis(self.0.value_at_quantile(quantile));
        (self.count() > 0).then(|| Percentiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: millis(self.0.max()),
        })
    }

    /// The curve from the median's left to the last sample: pairs of quantile and milliseconds.
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        self.0.iter_quantiles(4).map(|step| (step.quantile(), millis(step.value_iterated_to()))).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of minutes are far below 2^52")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let (mut odd, mut even) = (Latency::default(), Latency::default());
        for ms in 1..=100 {
            if ms % 2 == 0 { &mut even } else { &mut odd }.record(Duration::from_millis(ms));
        }
        odd.merge(&even);
        let seen = odd.percentiles().unwrap();
        for (seen, wanted) in [(seen.p50, 50.0), (seen.p95, 95.0), (seen.p99, 99.0), (seen.max, 100.0)] {
            assert!((seen - wanted).abs() <= wanted / 500.0, "{seen} for {wanted}");
        }
        assert_eq!(odd.count(), 100);
        let curve = odd.curve();
        assert!(curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{curve:?}");
    }

    #[test]
    fn nothing_measured_has_no_percentile_and_hours_are_cut_off() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentiles(), None);
        assert!(latency.curve().is_empty());
        latency.record(Duration::from_secs(7_200));
        let max = latency.percentiles().unwrap().max;
        assert!((max - 600_000.0).abs() < 1_000.0, "{max}");
    }
}
