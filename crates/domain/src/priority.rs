//! How urgent a task is among the tasks of its own user.
//!
//! A priority is a head start of bounded length: the task is treated as if it had been made that much earlier. So urgent
//! tasks go first, and none waits for ever: whatever is older than the head start goes before everything that comes
//! later. Nothing has to be reckoned again while a task waits. Other users and tenants are not concerned.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A priority, from 0 (the default) to 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

/// A priority that there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a priority must lie between 0 and {}", Priority::MAX)]
pub struct PriorityOutOfRange;

impl Priority {
    /// The most urgent.
    pub const MAX: Self = Self(9);
    /// How much longer than it did a task seems to have waited, per step. `task_state_turn` in the database says the same.
    const STEP_MS: i64 = 60_000;

    /// # Errors
    /// When it is above [`Priority::MAX`].
    pub const fn new(priority: u8) -> Result<Self, PriorityOutOfRange> {
        if priority > Self::MAX.0 { Err(PriorityOutOfRange) } else { Ok(Self(priority)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Where a task that was made at this instant (milliseconds since 1970) stands among its user's: lower goes first.
    #[must_use]
    pub const fn turn(self, created_ms: i64) -> i64 {
        created_ms.saturating_sub(self.0 as i64 * Self::STEP_MS)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u8> for Priority {
    type Error = PriorityOutOfRange;

    fn try_from(priority: u8) -> Result<Self, Self::Error> {
        Self::new(priority)
    }
}

impl TryFrom<i16> for Priority {
    type Error = PriorityOutOfRange;

    fn try_from(priority: i16) -> Result<Self, Self::Error> {
        u8::try_from(priority).map_err(|_| PriorityOutOfRange).and_then(Self::new)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_goes_first_and_age_overtakes_it() {
        let (plain, urgent, minute) = (Priority::default(), Priority::MAX, 60_000);
        assert!(urgent.turn(1_000) < plain.turn(1_000));
        assert!(urgent.turn(8 * minute) < plain.turn(0));
        assert!(plain.turn(0) < urgent.turn(9 * minute + 1), "nothing that comes later passes it");
    }

    #[test]
    fn there_are_ten() {
        assert_eq!(Priority::try_from(9_i16), Ok(Priority::MAX));
        for beyond in [-1_i16, 10, 256] {
            assert_eq!(Priority::try_from(beyond), Err(PriorityOutOfRange), "{beyond}");
        }
        assert!(serde_json::from_str::<Priority>("10").is_err());
    }
}
