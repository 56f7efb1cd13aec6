//! Amounts of credits: whole, never negative, checked.
//!
//! A credit is the smallest unit. There are no fractions and no floats anywhere near money, and an operation
//! that would leave the legal range is an error that the caller has to look at, not a wrap.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

/// An amount of credits, from 0 to 2^53 - 1 (the largest integer that every JSON parser keeps exactly).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Credits(i64);

/// An amount outside 0 to 2^53 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an amount of credits must lie between 0 and {}", Credits::MAX)]
pub struct CreditsOutOfRange;

impl Credits {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// # Errors
    /// When the amount is negative or above [`Credits::MAX`].
    pub const fn new(amount: i64) -> Result<Self, CreditsOutOfRange> {
        if amount < 0 || amount > Self::MAX.0 { Err(CreditsOutOfRange) } else { Ok(Self(amount)) }
    }

    /// The amount as a number, for a database column.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this is nothing.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, if it is a legal amount.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).and_then(|sum| Self::new(sum).ok())
    }

    /// The difference, if `other` is not the larger one.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).and_then(|rest| Self::new(rest).ok())
    }

    /// This amount `times` over, if that is a legal amount: the price of so many seconds.
    #[must_use]
    pub fn checked_mul(self, times: u32) -> Option<Self> {
        self.0.checked_mul(i64::from(times)).and_then(|product| Self::new(product).ok())
    }
}

impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} credits", self.0)
    }
}

impl<'de> Deserialize<'de> for Credits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(i64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_range_is_closed_at_both_ends() {
        assert!(Credits::new(-1).is_err());
        assert!(Credits::new(1 << 53).is_err());
        assert_eq!(Credits::new((1 << 53) - 1), Ok(Credits::MAX));
        assert!(serde_json::from_str::<Credits>("-5").is_err());
        assert!(serde_json::from_str::<Credits>("0.5").is_err());
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_wide_integers(a in 0..=Credits::MAX.0, b in 0..=Credits::MAX.0, n: u32) {
            let (x, y) = (Credits(a), Credits(b));
            let legal = |v: i128| (0..=i128::from(Credits::MAX.0)).contains(&v).then_some(v);
            let wide = |c: Option<Credits>| c.map(|c| i128::from(c.0));
            prop_assert_eq!(wide(x.checked_add(y)), legal(i128::from(a) + i128::from(b)));
            prop_assert_eq!(wide(x.checked_sub(y)), legal(i128::from(a) - i128::from(b)));
            prop_assert_eq!(wide(x.checked_mul(n)), legal(i128::from(a) * i128::from(n)));
        }
    }
}
