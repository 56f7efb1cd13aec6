//! When a refused or failed try may be repeated.

use std::time::Duration;

/// The pause before the next try: 1 s, then times 4, at most 60 s, each spread by ±20 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The pause after the first try.
    pub first: Duration,
    /// What the pause is multiplied with after each further try.
    pub factor: u32,
    /// The longest pause before the spread is added.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), factor: 4, max: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The pause after `tries` tries have failed (from 1), where `spread` lies in [0, 1) and comes from the
    /// caller's random source. A pause that the provider asked for wins when it is the longer one.
    #[must_use]
    pub fn pause(&self, tries: u32, spread: f64, asked: Option<Duration>) -> Duration {
        let grown = self.factor.saturating_pow(tries.saturating_sub(1));
        let base = self.first.saturating_mul(grown).min(self.max);
        let spread = base.mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0));
        asked.map_or(spread, |asked| asked.max(spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_by_four_and_stops_at_a_minute() {
        let pauses: Vec<_> =
            (1..=5).map(|n| Backoff::default().pause(n, 0.5, None).as_secs_f64().round()).collect();
        assert_eq!(pauses, [1.0, 4.0, 16.0, 60.0, 60.0]);
        assert_eq!(Backoff::default().pause(u32::MAX, 0.5, None), Duration::from_secs(60));
    }

    #[test]
    fn the_spread_stays_within_a_fifth() {
        let backoff = Backoff::default();
        assert_eq!(backoff.pause(1, 0.0, None), Duration::from_millis(800));
        assert!(backoff.pause(1, 0.999, None) < Duration::from_millis(1_200));
    }

    #[test]
    fn a_pause_asked_for_by_the_provider_is_kept() {
        let asked = Some(Duration::from_secs(30));
        assert_eq!(Backoff::default().pause(1, 0.5, asked), Duration::from_secs(30));
    }
}
