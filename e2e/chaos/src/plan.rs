//! What will happen in a run, decided beforehand by the seed.

use std::{fmt, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};

use crate::{
    provider_faults,
    settings::{Scenario, Settings},
};

/// How long the broker is away.
const OUTAGE: Duration = Duration::from_secs(60);

/// Everything that will be done, in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub(crate) acts: Vec<(Duration, Act)>,
    pub(crate) tasks: Vec<TaskPlan>,
    /// Jobs that the provider may have of ours at once.
    pub(crate) slots: u64,
    /// What is demanded beyond the invariants.
    pub(crate) demands: Demands,
}

/// What a scenario demands beyond what is always demanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demands {
    /// Every task succeeds, since nothing happens that may fail one.
    pub(crate) all_succeed: bool,
    /// Every submit is accepted at its first try.
    pub(crate) first_try_accepted: bool,
}

/// A sabotage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    /// kill -9, and a start some time later.
    Kill { process: usize, down: Duration },
    /// SIGTERM, the end awaited, and a start.
    Roll { process: usize },
    /// SIGSTOP, later SIGCONT: it goes on in the belief that it still owns what it owned.
    FreezeProcess { process: usize, for_: Duration },
    /// kill -9 of one of PostgreSQL's own processes: it drops all connections and recovers.
    CrashPostgres,
    /// FLUSHALL.
    FlushRedis,
    /// SCRIPT FLUSH.
    ForgetScripts,
    /// SIGSTOP, later SIGCONT.
    FreezeRedis { for_: Duration },
    /// kill -9, and a start with nothing in it.
    LoseRedis { down: Duration },
    /// These rules from now on.
    Provider { rules: Vec<Value> },
    /// This share of the jobs fails from now on, in percent.
    FailRate { percent: u32 },
    /// kill -9 of the broker, and a start some time later.
    KillBroker { down: Duration },
    /// SIGSTOP of the broker, later SIGCONT.
    FreezeBroker { for_: Duration },
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { process, down } => write!(f, "kill -9 process {process}, back in {down:?}"),
            Self::Roll { process } => write!(f, "SIGTERM to process {process}, and a new start"),
            Self::FreezeProcess { process, for_ } => write!(f, "freeze process {process} for {for_:?}"),
            Self::CrashPostgres => f.write_str("crash PostgreSQL"),
            Self::FlushRedis => f.write_str("FLUSHALL"),
            Self::ForgetScripts => f.write_str("SCRIPT FLUSH"),
            Self::FreezeRedis { for_ } => write!(f, "freeze Redis for {for_:?}"),
            Self::LoseRedis { down } => write!(f, "kill -9 Redis, back empty in {down:?}"),
            Self::Provider { rules } if rules.is_empty() => f.write_str("the provider behaves"),
            Self::Provider { rules } => {
                f.write_str("the provider misbehaves:")?;
                rules.iter().try_for_each(|rule| write!(f, " {rule}"))
            }
            Self::FailRate { percent } => write!(f, "{percent} % of the jobs fail"),
            Self::KillBroker { down } => write!(f, "kill -9 the broker, back in {down:?}"),
            Self::FreezeBroker { for_ } => write!(f, "freeze the broker for {for_:?}"),
        }
    }
}

/// What becomes of the first request for a task. Whatever it is, the client asks again under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstTry {
    /// Sent, and the answer read.
    Whole,
    /// Hung up in the middle of the body.
    CutBody,
    /// Sent whole, hung up before the answer.
    Unread,
}

/// One task and how its client behaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskPlan {
    pub(crate) at: Duration,
    pub(crate) body: Value,
    pub(crate) first_try: FirstTry,
    /// After the acceptance.
    pub(crate) cancel: Option<Duration>,
    /// The same request once more, after the acceptance.
    pub(crate) replay: Option<Duration>,
}

impl Plan {
    /// The plan of these settings: equal settings, equal plan.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let mut rng = StdRng::seed_from_u64(settings.seed);
        let span = Duration::from_secs(settings.seconds);
        match settings.scenario {
            Scenario::Storm => Self {
                tasks: tasks(&mut rng, settings.tasks, span, true),
                acts: storm(&mut rng, settings, span),
                // Somewhat more than the load needs, so that a backlog fills them all.
                slots: (settings.tasks as u64).div_ceil(settings.seconds.max(1)).max(8) * 2,
                demands: Demands::default(),
            },
            Scenario::KafkaTwoProcesses => Self {
                tasks: tasks(&mut rng, settings.tasks, span, false),
                acts: vec![
                    (span / 2, Act::Kill { process: 1, down: Duration::from_secs(2) }),
                    (span * 2 / 3, Act::FlushRedis),
                ],
                slots: 100,
                demands: Demands { all_succeed: true, first_try_accepted: false },
            },
            Scenario::KafkaOutage | Scenario::KafkaFreeze => Self {
                tasks: tasks(&mut rng, settings.tasks, span, false),
                acts: vec![(
                    span / 6,
                    match settings.scenario {
                        Scenario::KafkaFreeze => Act::FreezeBroker { for_: OUTAGE },
                        _ => Act::KillBroker { down: OUTAGE },
                    },
                )],
                slots: 1_024,
                demands: Demands { all_succeed: true, first_try_accepted: true },
            },
            Scenario::FiftyPlaces => Self {
                tasks: tasks(&mut rng, settings.tasks, span, false),
                acts: vec![
                    (span / 6, Act::Kill { process: 0, down: Duration::from_secs(2) }),
                    (span * 2 / 6, Act::FlushRedis),
                    (
                        span * 3 / 6,
                        Act::Kill { process: settings.processes.len() - 1, down: Duration::from_secs(2) },
                    ),
                    (span * 4 / 6, Act::LoseRedis { down: Duration::from_secs(1) }),
                ],
                slots: 50,
                demands: Demands { all_succeed: true, first_try_accepted: false },
            },
        }
    }

    /// How many times it kills a process.
    #[must_use]
    pub fn kills(&self) -> usize {
        self.acts.iter().filter(|(_, act)| matches!(act, Act::Kill { .. })).count()
    }
}

/// Tasks spread evenly over the time.
fn tasks(rng: &mut StdRng, count: usize, span: Duration, odd_clients: bool) -> Vec<TaskPlan> {
    let pause = span.as_secs_f64() / count.max(1) as f64;
    (0..count)
        .map(|n| {
            let mut some = |percent: f64| odd_clients && rng.random_bool(percent / 100.0);
            let (cancel, replay, cut, unread) = (some(6.0), some(8.0), some(3.0), some(4.0));
            let mut after = |millis| Duration::from_millis(rng.random_range(0..millis));
            let (cancel, replay) = (cancel.then(|| after(3_000)), replay.then(|| after(8_000)));
            let model = match rng.random_range(0..20) {
                0 if odd_clients => "mock-pro",
                1 if odd_clients => "mock-slow",
                _ => "mock-fast",
            };
            let seconds = if odd_clients { rng.random_range(1..=10) } else { 1 };
            TaskPlan {
                at: Duration::from_secs_f64(pause * n as f64),
                body: json!({ "model": model, "prompt": format!("scene {n}"), "duration_seconds": seconds }),
                first_try: match (cut, unread) {
                    (true, _) => FirstTry::CutBody,
                    (_, true) => FirstTry::Unread,
                    _ => FirstTry::Whole,
                },
                cancel,
                replay,
            }
        })
        .collect()
}

/// Kills as many as asked, the rest in proportion, all at random moments.
fn storm(rng: &mut StdRng, settings: &Settings, span: Duration) -> Vec<(Duration, Act)> {
    let processes = settings.processes.len();
    let (kills, seconds) = (settings.kills, settings.seconds);
    // What one rule may hit: about two seconds' worth of tasks.
    let strikes = (settings.tasks as u64 * 2).div_ceil(seconds.max(1)).max(4);
    let mut acts = Vec::new();
    for n in 0..kills {
        let down = Duration::from_millis(rng.random_range(0..3_000));
        acts.push(Act::Kill { process: (n + rng.random_range(0..2)) % processes, down });
    }
    acts.extend((0..processes.max(kills / 10)).map(|n| Act::Roll { process: n % processes }));
    for _ in 0..(seconds / 30).max(1) {
        acts.push(Act::FlushRedis);
        acts.push(Act::ForgetScripts);
        acts.push(Act::FreezeRedis { for_: Duration::from_millis(rng.random_range(500..3_000)) });
        acts.push(Act::LoseRedis { down: Duration::from_millis(rng.random_range(0..2_000)) });
        acts.push(Act::FailRate { percent: rng.random_range(1..20) });
        acts.push(Act::FailRate { percent: 0 });
    }
    for _ in 0..(seconds / 60).max(1) {
        // Longer than a lease lasts, so that others have taken over by then.
        let for_ = Duration::from_millis(rng.random_range(11_000..16_000));
        acts.push(Act::FreezeProcess { process: rng.random_range(0..processes), for_ });
        acts.push(Act::CrashPostgres);
    }
    for _ in 0..(seconds / 5).max(3) {
        acts.push(Act::Provider { rules: provider_faults::rules(rng, strikes) });
    }
    acts.shuffle(rng);
    // Evenly spread, with jitter: chance alone would leave long quiet stretches.
    let pause = span.as_secs_f64() / acts.len() as f64;
    let at = |(n, act)| (Duration::from_secs_f64(pause * (n as f64 + rng.random_range(0.0..1.0))), act);
    acts.into_iter().enumerate().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64) -> Settings {
        Settings { kills: 30, seconds: 120, tasks: 2_000, ..Settings::short("aivideo".into(), seed) }
    }

    #[test]
    fn a_seed_decides_everything_and_another_one_otherwise() {
        assert_eq!(Plan::new(&settings(7)), Plan::new(&settings(7)));
        assert_ne!(Plan::new(&settings(7)).acts, Plan::new(&settings(8)).acts);
        assert_ne!(Plan::new(&settings(7)).tasks, Plan::new(&settings(8)).tasks);
    }

    #[test]
    fn a_storm_kills_every_process_as_often_as_asked_and_holds_every_kind_of_fault() {
        let plan = Plan::new(&settings(1));
        assert_eq!(plan.kills(), 30);
        let kinds = |wanted: fn(&Act) -> bool| plan.acts.iter().filter(|(_, act)| wanted(act)).count();
        for process in 0..3 {
            let hits = plan
                .acts
                .iter()
                .filter(|(_, act)| matches!(act, Act::Kill { process: p, .. } if *p == process));
            assert!(hits.count() > 3, "process {process} is spared");
        }
        assert!(kinds(|act| matches!(act, Act::Roll { .. })) >= 3);
        assert!(kinds(|act| matches!(act, Act::FreezeProcess { .. })) >= 1);
        assert!(kinds(|act| matches!(act, Act::CrashPostgres)) >= 1);
        assert!(kinds(|act| matches!(act, Act::FlushRedis)) >= 1);
        assert!(kinds(|act| matches!(act, Act::ForgetScripts)) >= 1);
        assert!(kinds(|act| matches!(act, Act::FreezeRedis { .. })) >= 1);
        assert!(kinds(|act| matches!(act, Act::LoseRedis { .. })) >= 1);
        assert!(kinds(|act| matches!(act, Act::Provider { .. })) >= 10);
        assert!(plan.acts.is_sorted_by_key(|(at, _)| *at));
        assert!(plan.acts.iter().all(|(at, _)| *at <= Duration::from_secs(120)));
    }

    #[test]
    fn clients_of_every_kind_are_there() {
        let plan = Plan::new(&settings(1));
        assert_eq!(plan.tasks.len(), 2_000);
        let count = |wanted: fn(&TaskPlan) -> bool| plan.tasks.iter().filter(|task| wanted(task)).count();
        assert!(count(|task| task.cancel.is_some()) > 50);
        assert!(count(|task| task.replay.is_some()) > 50);
        assert!(count(|task| task.first_try == FirstTry::CutBody) > 20);
        assert!(count(|task| task.first_try == FirstTry::Unread) > 20);
    }
}
