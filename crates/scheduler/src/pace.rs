//! When to look again: the pauses between calls about one job.
//!
//! While all goes well the pace is the adapter's, spread a little so that a thousand jobs begun together are not
//! asked about together for ever. A call that tells nothing doubles the pause for that one job, so a job whose
//! every look hangs costs less and less and holds up nobody. A pause that the provider asks for wins.

use std::time::Duration;

/// The pauses of one job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pace {
    /// Between two looks that told something.
    every: Duration,
    /// Looks in a row that told nothing.
    failures: u32,
}

/// How much less often is looked where the provider calls.
const FALLBACK_FACTOR: u32 = 5;
/// How much more often is looked by whoever has looks to spare.
const SPARED_FACTOR: u32 = 4;
/// The longest pause between looks for that reason.
const FALLBACK_MAX: Duration = Duration::from_secs(60);
/// The pause after the first look that told nothing.
const FIRST_FAILURE: Duration = Duration::from_millis(500);
/// The longest pause after looks that told nothing.
const FAILURE_MAX: Duration = Duration::from_secs(30);

impl Pace {
    pub(crate) const fn new(every: Duration) -> Self {
        Self { every, failures: 0 }
    }

    /// The pause after a look that told something. `spread` lies in [0, 1).
    pub(crate) fn after_success(&mut self, spread: f64) -> Duration {
        self.failures = 0;
        self.every.mul_f64(0.9 + 0.2 * spread)
    }

    /// The pause after a look at a job that should have been over by then: short as long as fewer `looks` were made than the
    /// pace had come to in the time that the job takes already.
    pub(crate) fn after_early(&mut self, spread: f64, taken: Duration, looks: u32) -> Duration {
        let pause = self.after_success(spread);
        if self.every.saturating_mul(looks + 1) <= taken { pause / SPARED_FACTOR } else { pause }
    }

    /// The pause after a look that told something, where the provider calls when there is news. It is also the longest
    /// that a callback which never comes can delay the end.
    pub(crate) fn fallback(&mut self, spread: f64) -> Duration {
        self.failures = 0;
        let longest = self.every.saturating_mul(FALLBACK_FACTOR).min(FALLBACK_MAX).max(self.every);
        longest.mul_f64(0.8 + 0.2 * spread)
    }

    /// The pause after a look that told nothing, at least the one that was asked for.
    pub(crate) fn after_failure(&mut self, spread: f64, asked: Option<Duration>) -> Duration {
        let doubled = FIRST_FAILURE.max(self.every).saturating_mul(1 << self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        let pause = doubled.min(FAILURE_MAX).mul_f64(0.8 + 0.4 * spread);
        asked.map_or(pause, |asked| asked.max(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_doubles_the_pause_and_success_forgets_it() {
        let mut pace = Pace::new(Duration::from_secs(1));
        let pauses: Vec<_> = (0..7).map(|_| pace.after_failure(0.5, None).as_secs_f64().round()).collect();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        assert_eq!(pace.after_success(0.5), Duration::from_secs(1));
        assert_eq!(pace.after_failure(0.5, None), Duration::from_secs(1));
    }

    #[test]
    fn looks_that_were_spared_follow_faster_and_are_no_more_than_the_pace_allows() {
        let (every, ms) = (Duration::from_millis(50), Duration::from_millis);
        let mut pace = Pace::new(every);
        let (mut taken, mut looks) = (ms(190), 1);
        while taken < ms(1_000) {
            taken += pace.after_early(0.5, taken, looks);
            looks += 1;
            assert!(every * looks <= taken + every, "{looks} looks in {taken:?}");
        }
        assert_eq!(pace.after_early(0.5, ms(190), 1), every / 4);
        assert_eq!(pace.after_early(0.5, ms(190), 3), every);
    }

    #[test]
    fn the_fallback_is_slower_and_bounded() {
        let longest = |every| {
            let mut pace = Pace::new(Duration::from_secs(every));
            let (shortest, longest) = (pace.fallback(0.0), pace.fallback(1.0));
            assert!(shortest < longest, "it is spread");
            longest.as_secs_f64().round()
        };
        assert_eq!([longest(1), longest(10), longest(30), longest(90)], [5.0, 50.0, 60.0, 90.0]);
    }

    #[test]
    fn a_pause_asked_for_by_the_provider_is_kept_and_a_short_pace_has_a_floor_after_trouble() {
        let mut pace = Pace::new(Duration::from_millis(50));
        assert_eq!(pace.after_failure(0.5, Some(Duration::from_secs(7))), Duration::from_secs(7));
        let mut pace = Pace::new(Duration::from_millis(50));
        assert_eq!(pace.after_failure(0.0, None), Duration::from_millis(400));
    }
}
