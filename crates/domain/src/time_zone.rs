//! Time zones, and when a day begins and ends in them.
//!
//! A local day is not always 24 hours long, and does not always begin at midnight: where the clock is changed at midnight, it
//! begins at the first instant that bears its date. The rules come with the program, so every process of a release reckons
//! alike, whatever its machine has installed.

use std::{fmt, str::FromStr, time::Duration};

use chrono::{DateTime, MappedLocalTime, NaiveDate, NaiveTime, TimeZone as _, Utc};
use chrono_tz::{GapInfo, Tz};

/// A time zone of the IANA database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeZone(Tz);

/// A text that is no full name of a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such time zone")]
pub struct UnknownTimeZone;

/// One day as it was or will be in a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalDay {
    /// Its first instant.
    pub starts_at: DateTime<Utc>,
    /// The first instant of the next day.
    pub ends_at: DateTime<Utc>,
}

impl TimeZone {
    /// Where nothing else is said.
    pub const UTC: Self = Self(Tz::UTC);

    /// Its full name, such as `Europe/Paris`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// The day that an instant belongs to.
    #[must_use]
    pub fn day_of(self, instant: DateTime<Utc>) -> LocalDay {
        let date = instant.with_timezone(&self.0).date_naive();
        let (starts_at, _) = self.beginning_of(date);
        let ends_at = date.succ_opt().map_or(DateTime::<Utc>::MAX_UTC, |next| {
            let (first, last) = self.beginning_of(next);
            // A clock that is put back over midnight leaves a day and comes to it again.
            if first > instant { first } else { last }
        });
        LocalDay { starts_at, ends_at }
    }

    /// When the clock shows the beginning of a date: for the first and for the last time.
    fn beginning_of(self, date: NaiveDate) -> (DateTime<Utc>, DateTime<Utc>) {
        let midnight = date.and_time(NaiveTime::MIN);
        match self.0.from_local_datetime(&midnight) {
            MappedLocalTime::Single(at) => (at.to_utc(), at.to_utc()),
            MappedLocalTime::Ambiguous(first, last) => (first.to_utc(), last.to_utc()),
            MappedLocalTime::None => {
                // The clock is put forward over midnight: the day begins where it lands.
                let lands = GapInfo::new(&midnight, &self.0).and_then(|gap| gap.end);
                let at = lands.map_or_else(|| midnight.and_utc(), |at| at.to_utc());
                (at, at)
            }
        }
    }
}

impl LocalDay {
    /// How long it is.
    #[must_use]
    pub fn length(self) -> Duration {
        self.left_at(self.starts_at)
    }

    /// How much of it is left; nothing when it is over.
    #[must_use]
    pub fn left_at(self, instant: DateTime<Utc>) -> Duration {
        (self.ends_at - instant).to_std().unwrap_or_default()
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TimeZone {
    type Err = UnknownTimeZone;

    fn from_str(text: &str) -> Result<Self, UnknownTimeZone> {
        text.parse().map(Self).map_err(|_| UnknownTimeZone)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn day(zone: &str, instant: &str) -> (DateTime<Utc>, DateTime<Utc>, u64) {
        let day = zone.parse::<TimeZone>().unwrap().day_of(at(instant));
        (day.starts_at, day.ends_at, day.length().as_secs() / 3_600)
    }

    #[test]
    fn names_are_full_names_and_nothing_else() {
        for name in ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Asia/Kolkata"] {
            assert_eq!(name.parse::<TimeZone>().unwrap().to_string(), name);
        }
        for name in ["", "Mars/Base", "europe/paris", "+02:00", "CEST", " UTC"] {
            assert_eq!(name.parse::<TimeZone>(), Err(UnknownTimeZone), "{name}");
        }
    }

    #[test]
    fn a_day_goes_from_midnight_to_midnight_of_the_zone() {
        let instant = "2026-06-15T12:00:00Z";
        assert_eq!(day("UTC", instant), (at("2026-06-15T00:00:00Z"), at("2026-06-16T00:00:00Z"), 24));
        assert_eq!(day("Asia/Tokyo", instant), (at("2026-06-14T15:00:00Z"), at("2026-06-15T15:00:00Z"), 24));
        let (first, last) = ("2026-06-14T15:00:00Z", "2026-06-15T14:59:59.999999Z");
        assert_eq!(day("Asia/Tokyo", first), day("Asia/Tokyo", last));
        assert_ne!(day("Asia/Tokyo", last), day("Asia/Tokyo", "2026-06-15T15:00:00Z"));
    }

    #[test]
    fn zones_that_are_fourteen_hours_apart_change_their_day_fourteen_hours_apart() {
        let instant = "2026-06-15T11:00:00Z";
        let (ahead, _, _) = day("Pacific/Kiritimati", instant);
        assert_eq!((ahead, day("UTC", instant).0), (at("2026-06-15T10:00:00Z"), at("2026-06-15T00:00:00Z")));
        assert_eq!(day("UTC", instant).1 - ahead, TimeDelta::hours(14));
    }

    #[test]
    fn days_on_which_the_clock_is_changed_are_shorter_or_longer() {
        let new_york = |instant| day("America/New_York", instant);
        let forward = (at("2026-03-08T05:00:00Z"), at("2026-03-09T04:00:00Z"), 23);
        assert_eq!(new_york("2026-03-08T05:00:00Z"), forward);
        assert_eq!(new_york("2026-03-09T03:59:59Z"), forward);
        let back = (at("2026-11-01T04:00:00Z"), at("2026-11-02T05:00:00Z"), 25);
        assert_eq!(new_york("2026-11-01T04:00:00Z"), back);
        assert_eq!(new_york("2026-11-02T04:59:59Z"), back);
    }

    #[test]
    fn a_day_without_a_midnight_begins_where_the_clock_lands() {
        // In Cairo the clock goes from 00:00 to 01:00 on the last Friday of April.
        let friday = (at("2026-04-23T22:00:00Z"), at("2026-04-24T21:00:00Z"), 23);
        assert_eq!(day("Africa/Cairo", "2026-04-23T22:00:00Z"), friday);
        assert_eq!(day("Africa/Cairo", "2026-04-23T21:59:59Z").1, friday.0);
    }

    #[test]
    fn a_day_with_two_midnights_begins_with_the_first() {
        // In Havana the clock goes from 01:00 back to 00:00 on the first Sunday of November.
        let sunday = (at("2026-11-01T04:00:00Z"), at("2026-11-02T05:00:00Z"), 25);
        for instant in ["2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T04:59:59Z"] {
            assert_eq!(day("America/Havana", instant), sunday, "{instant}");
        }
        assert_eq!(day("America/Havana", "2026-11-01T03:59:59Z").1, sunday.0);
    }

    #[test]
    fn a_day_that_is_left_and_come_to_again_is_one() {
        // In St. John's the clock went from 00:01 back to 23:01, over midnight.
        let st_johns = |instant| day("America/St_Johns", instant);
        let (sunday, _, _) = st_johns("2010-11-07T02:30:30Z");
        assert_eq!(st_johns("2010-11-07T12:00:00Z").0, sunday);
        let (saturday, ends_at, _) = st_johns("2010-11-07T03:00:00Z");
        assert_eq!(saturday, st_johns("2010-11-06T12:00:00Z").0);
        assert!(saturday < sunday && ends_at > at("2010-11-07T03:00:00Z"));
    }

    proptest! {
        #[test]
        fn every_instant_lies_in_its_day(seconds in 0_i64..4_102_444_800, zone in 0..chrono_tz::TZ_VARIANTS.len()) {
            let zone = TimeZone(chrono_tz::TZ_VARIANTS[zone]);
            let instant = DateTime::from_timestamp(seconds, 0).unwrap();
            let day = zone.day_of(instant);
            prop_assert!(day.starts_at <= instant && instant < day.ends_at, "{zone}: {day:?}");
            prop_assert_eq!(zone.day_of(day.starts_at).starts_at, day.starts_at);
        }
    }
}
