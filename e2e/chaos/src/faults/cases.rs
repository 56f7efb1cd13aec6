//! What can be hurt, and in which ways: the rows of the degradation table.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use serde::Serialize;

/// A dependency of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Redis for snapshots and progress.
    Cache,
    /// Redis for limits, slots, leases and the ready queue.
    Control,
    /// Redis for channels and streams.
    Realtime,
    /// The broker that carries tasks to schedulers.
    Queue,
    /// PostgreSQL.
    Postgres,
    /// One of two provider accounts.
    Provider,
}

/// How it is hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// kill -9, and a start later: Redis with nothing in it, the others with their data. A provider is ended in good
    /// order instead, since a real one does not lose its jobs.
    Stop,
    /// SIGSTOP, and SIGCONT later: connections stay, and nobody answers.
    Freeze,
    /// Every answer comes late, by a proxy before it.
    Delay,
    /// SCRIPT FLUSH.
    ScriptFlush,
    /// FLUSHALL.
    Flushall,
    /// No memory left, and nothing may be evicted.
    Oom,
    /// A replica of a server that does not exist, so no write is taken.
    Readonly,
}

/// What a way does to a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It cannot be used for a while.
    Gone,
    /// It can be used, and takes its time.
    Slow,
    /// It is there all the time, but has forgotten something in one moment.
    Forgetful,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// What is hurt.
    pub row: Row,
    /// How.
    pub way: Way,
}

/// Of Redis, any answer that comes later than this counts as none: its limit, prolonged once where the process itself
/// was late. Shorter delays would hurt now and then, hence prove nothing.
pub(crate) const DELAY_MS_MIN: u64 = 200;
/// Beyond this the slowest answers of PostgreSQL, several trips each, meet the platform's own limits.
pub(crate) const DELAY_MS_MAX: u64 = 1_000;
/// A scheduler without progress for longer than 30 s is not ready any more, by promise, so an outage has to be shorter.
pub(crate) const SECONDS_MAX: u64 = 25;
/// What a hurt dependency needs at least to be noticed.
pub(crate) const SECONDS_MIN: u64 = 5;

impl Row {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 6] =
        [Self::Cache, Self::Control, Self::Realtime, Self::Queue, Self::Postgres, Self::Provider];

    /// Its name on the command line and in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Control => "control",
            Self::Realtime => "realtime",
            Self::Queue => "queue",
            Self::Postgres => "postgres",
            Self::Provider => "provider",
        }
    }

    /// The ways in which it is hurt.
    #[must_use]
    pub const fn ways(self) -> &'static [Way] {
        match self {
            Self::Control => &[
                Way::Stop,
                Way::Freeze,
                Way::Delay,
                Way::ScriptFlush,
                Way::Flushall,
                Way::Oom,
                Way::Readonly,
            ],
            _ => &[Way::Stop, Way::Freeze, Way::Delay],
        }
    }

    const fn is_redis(self) -> bool {
        matches!(self, Self::Cache | Self::Control | Self::Realtime)
    }

    /// For how long it is hurt unless somebody says otherwise: as long as the slowest promise about it takes.
    pub(crate) const fn usual(self) -> Duration {
        Duration::from_secs(match self {
            Self::Cache | Self::Control => 8,
            Self::Queue => 10,
            // A stream may notice by its own timer of ten seconds.
            Self::Realtime => 18,
            // The longest wait for a submit's outcome is ten seconds.
            Self::Postgres => 15,
            // Five failures, each after the submit's own limit, open its breaker.
            Self::Provider => 20,
        })
    }
}

impl Way {
    /// Its name on the command line and in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Freeze => "freeze",
            Self::Delay => "delay",
            Self::ScriptFlush => "script-flush",
            Self::Flushall => "flushall",
            Self::Oom => "oom",
            Self::Readonly => "readonly",
        }
    }
}

impl Case {
    pub(crate) const fn effect(self) -> Effect {
        match self.way {
            Way::ScriptFlush | Way::Flushall => Effect::Forgetful,
            Way::Delay if !self.row.is_redis() => Effect::Slow,
            _ => Effect::Gone,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.row.name(), self.way.name())
    }
}

/// The lines of the table that were asked for, in its order; without a row all rows, without a way all ways.
///
/// # Errors
/// When a way was asked for that none of these rows has.
pub fn choose(rows: &[Row], ways: &[Way]) -> Result<Vec<Case>, String> {
    let rows: Vec<Row> = Row::ALL.into_iter().filter(|row| rows.is_empty() || rows.contains(row)).collect();
    if let Some(way) = ways.iter().find(|way| !rows.iter().any(|row| row.ways().contains(way))) {
        let names: Vec<_> = rows.iter().map(|row| row.name()).collect();
        return Err(format!("--way: {} is no way to hurt {}", way.name(), names.join(" or ")));
    }
    let of = |row: Row| {
        let asked = |way: &&Way| ways.is_empty() || ways.contains(way);
        row.ways().iter().filter(asked).map(move |&way| Case { row, way }).collect::<Vec<_>>()
    };
    Ok(rows.into_iter().flat_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_wish_every_row_is_hurt_in_every_way() {
        let all = choose(&[], &[]).unwrap();
        assert_eq!(all.len(), 7 + 5 * 3);
        assert!(Row::ALL.iter().all(|row| all.iter().any(|case| case.row == *row)));
    }

    #[test]
    fn wishes_are_kept_in_the_order_of_the_table_and_never_doubled() {
        let some = choose(&[Row::Queue, Row::Control, Row::Queue], &[Way::Freeze, Way::Oom]).unwrap();
        let names: Vec<_> = some.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["control-freeze", "control-oom", "queue-freeze"]);
    }

    #[test]
    fn a_way_that_no_row_has_is_refused_by_name() {
        let refused = choose(&[Row::Queue, Row::Provider], &[Way::Stop, Way::Oom]).unwrap_err();
        assert_eq!(refused, "--way: oom is no way to hurt queue or provider");
    }

    #[test]
    fn a_late_redis_is_a_lost_one_and_any_other_late_server_is_only_slow() {
        let effect = |row, way| Case { row, way }.effect();
        assert_eq!(effect(Row::Control, Way::Delay), Effect::Gone);
        assert_eq!(effect(Row::Postgres, Way::Delay), Effect::Slow);
        assert_eq!(effect(Row::Postgres, Way::Freeze), Effect::Gone);
        assert_eq!(effect(Row::Control, Way::Flushall), Effect::Forgetful);
        assert_eq!(effect(Row::Control, Way::Oom), Effect::Gone);
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for row in Row::ALL {
            assert_eq!(row.to_possible_value().unwrap().get_name(), row.name());
            for way in row.ways() {
                assert_eq!(way.to_possible_value().unwrap().get_name(), way.name());
            }
            assert!((SECONDS_MIN..=SECONDS_MAX).contains(&row.usual().as_secs()), "{row:?}");
        }
    }
}
