//! Expiries. What many keys share is spread a little, so that they do not all go in the same moment.

use std::time::Duration;

use rand::RngExt as _;

/// Milliseconds of `base`, and up to a tenth more.
pub(crate) fn jittered_ms(base: Duration) -> u64 {
    let base = millis(base).max(1);
    base + rand::rng().random_range(0..=base / 10)
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
