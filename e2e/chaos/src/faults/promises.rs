//! What is promised while a dependency is gone: its degradation table as values.

use std::time::Duration;

use super::cases::{Case, Effect, Row};

/// One Redis limit is 80 ms for a connection and 80 ms for an answer, prolonged once where the process itself was late;
/// the rest is for a debug build on a busy machine.
const PROMPT: Duration = Duration::from_secs(1);
/// Several trips to a late PostgreSQL.
const SEVERAL_TRIPS: Duration = Duration::from_secs(6);
/// The longest wait for a submit's outcome (`generation.answer_limit_ms`), half a second until a known caller is taken for
/// known, and a moment.
const ANSWER_LIMIT: Duration = Duration::from_millis(11_000);
/// Streams read PostgreSQL again at least every ten seconds.
const STREAM_LATE_MAX: Duration = Duration::from_secs(11);
/// "Automatic return within 5 s."
const RETURN_MAX: Duration = Duration::from_secs(5);
/// What was accepted meanwhile is found by a reconciler that looks every two seconds for what has waited for five, and it
/// looks again within the time of the return.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);

/// What has to hold while, and after, one dependency is hurt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Promises {
    /// No answer takes longer.
    pub(crate) answer_max: Duration,
    pub(crate) submits: Submits,
    pub(crate) reads: Reads,
    pub(crate) jobs: Jobs,
    /// What `/readyz` answers.
    pub(crate) ready: Ready,
    /// How it is called in `/readyz` and in the header; nothing where nothing is degraded.
    pub(crate) named: Option<Named>,
    /// Where the metrics show it.
    pub(crate) metric: Option<Metric>,
    /// A task that runs at a provider when it begins is followed to its end meanwhile.
    pub(crate) followed: bool,
    pub(crate) stream: Stream,
    /// A waiting task is shown with one of these reasons; with none nothing is demanded.
    pub(crate) waits: &'static [&'static str],
    /// Until everything works again.
    pub(crate) return_max: Duration,
    /// Until the tasks that were accepted meanwhile are at their providers.
    pub(crate) catch_up_max: Duration,
}

/// What becomes of submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submits {
    /// Each is accepted.
    Accepted,
    /// Each is accepted, or told by 503 when to come back.
    OrComeBack,
}

/// What becomes of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Each is answered.
    Answered,
    /// Some from a cache, which say that it is one; the others are told by 503 when to come back.
    CachedOrComeBack,
}

/// What the providers get to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jobs {
    /// New submits go on at both accounts.
    GoOn,
    /// No new submit at any.
    None,
    /// New submits go on at the account that is not hurt.
    ElsewhereGoOn,
}

/// What `/readyz` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// 200, all the time.
    Always,
    /// 503 before long.
    No,
}

/// A name in `/readyz` and in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// This one.
    As(&'static str),
    /// Any that is none of a store's: nothing says how an account is called there.
    Account,
}

/// A metric that shows an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// `breaker_open{store="…"}` is 1.
    Store(&'static str),
    /// `provider_breaker_open{account="…"}` is 1.
    Account(&'static str),
    /// `outbox_age_ms` has grown.
    OutboxAge,
}

/// What becomes of an open stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// It stays open, and tells of an end at the latest so long after it.
    Tells(Duration),
    /// It stays open.
    Stays,
}

impl Promises {
    /// Those about a case.
    pub(crate) fn of(case: Case) -> Self {
        let undisturbed = Self {
            answer_max: PROMPT,
            submits: Submits::Accepted,
            reads: Reads::Answered,
            jobs: Jobs::GoOn,
            ready: Ready::Always,
            named: None,
            metric: None,
            followed: true,
            stream: Stream::Tells(STREAM_LATE_MAX),
            waits: &[],
            return_max: RETURN_MAX,
            catch_up_max: CATCH_UP_MAX,
        };
        let store = |name| Self {
            named: Some(Named::As(name)),
            metric: Some(Metric::Store(name)),
            ..undisturbed.clone()
        };
        match (case.effect(), case.row) {
            (Effect::Slow, Row::Postgres) => Self { answer_max: SEVERAL_TRIPS, ..undisturbed },
            (Effect::Forgetful | Effect::Slow, _) => undisturbed,
            (Effect::Gone, Row::Cache) => store("cache"),
            (Effect::Gone, Row::Realtime) => store("realtime"),
            (Effect::Gone, Row::Control) => {
                Self { jobs: Jobs::None, waits: &["control_unavailable"], ..store("control") }
            }
            // A reconciler brings what the queue does not.
            (Effect::Gone, Row::Queue) => {
                Self { jobs: Jobs::GoOn, metric: Some(Metric::OutboxAge), ..store("queue") }
            }
            (Effect::Gone, Row::Postgres) => Self {
                answer_max: ANSWER_LIMIT,
                submits: Submits::OrComeBack,
                reads: Reads::CachedOrComeBack,
                jobs: Jobs::None,
                ready: Ready::No,
                followed: false,
                stream: Stream::Stays,
                ..store("postgresql")
            },
            (Effect::Gone, Row::Provider) => Self {
                jobs: Jobs::ElsewhereGoOn,
                named: Some(Named::Account),
                metric: Some(Metric::Account("mock")),
                followed: false,
                stream: Stream::Stays,
                waits: &["breaker_open", "provider_backoff", "not_before"],
                ..undisturbed
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::cases::{Way, choose};

    fn of(row: Row, way: Way) -> Promises {
        Promises::of(Case { row, way })
    }

    #[test]
    fn control_alone_lets_tasks_in_and_lets_no_job_out() {
        for way in [Way::Stop, Way::Freeze, Way::Delay, Way::Oom, Way::Readonly] {
            let promises = of(Row::Control, way);
            assert_eq!((promises.submits, promises.jobs), (Submits::Accepted, Jobs::None), "{way:?}");
            assert!(promises.followed, "running tasks are still followed");
        }
        for way in [Way::ScriptFlush, Way::Flushall] {
            assert_eq!(of(Row::Control, way).jobs, Jobs::GoOn, "{way:?}");
        }
    }

    #[test]
    fn only_without_postgresql_anything_is_refused() {
        for case in choose(&[], &[]).unwrap() {
            let promises = Promises::of(case);
            let refuses = promises.submits == Submits::OrComeBack;
            assert_eq!(refuses, case.row == Row::Postgres && case.way != Way::Delay, "{case}");
            assert_eq!(refuses, promises.ready == Ready::No, "{case}");
            assert_eq!(refuses, promises.reads == Reads::CachedOrComeBack, "{case}");
        }
    }

    #[test]
    fn whatever_is_gone_is_named_and_shown_and_comes_back_in_time() {
        for case in choose(&[], &[]).unwrap() {
            let promises = Promises::of(case);
            let gone = case.effect() == Effect::Gone;
            assert_eq!((promises.named.is_some(), promises.metric.is_some()), (gone, gone), "{case}");
            assert_eq!(promises.return_max, Duration::from_secs(5), "{case}");
            // A promise about a stream's lateness shows only where the outage lasts longer.
            if let (Stream::Tells(late), Row::Realtime) = (promises.stream, case.row) {
                assert!(case.row.usual() > late, "{case}");
            }
        }
    }
}
