//! What was seen while a dependency was hurt, with the moments at which it was seen.
//!
//! Everything is noted first and judged later: what counts as "during" is known only when it is over.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A moment, since the notebook was opened.
pub(crate) type Moment = Duration;

/// The moments that divide a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moments {
    /// The dependency is hurt.
    pub(crate) hurt: Moment,
    /// Its healing begins: until here it cannot have been used.
    pub(crate) healing: Moment,
    /// It can be used again.
    pub(crate) whole: Moment,
    /// What was asked up to here counts as asked during it. The same as `whole`, unless it was hurt by one blow.
    pub(crate) end: Moment,
}

impl Moments {
    /// Until when it is hurt for certain: a server that starts may be of use before we know it.
    pub(crate) fn watched_until(&self) -> Moment {
        if self.end > self.whole { self.end } else { self.healing }
    }
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A task, under a key of its own.
    Submit,
    /// The same once more, right after its acceptance.
    Replay,
    /// A task that was read a moment ago.
    Cached,
    /// A task that nobody has read before, or what no cache holds.
    Uncached,
    /// `GET /readyz`.
    Ready,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Replay => "replay",
            Self::Cached => "cached read",
            Self::Uncached => "uncached read",
            Self::Ready => "/readyz",
        }
    }
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
    /// Its status, or why there was no answer.
    pub(crate) outcome: Result<u16, String>,
    /// Whether it says when to come back.
    pub(crate) comes_back: bool,
    /// What the answer names as away.
    pub(crate) degraded: Vec<String>,
    /// Why the task that was read waits.
    pub(crate) wait_reason: Option<String>,
}

impl Request {
    /// Answered as on any other day.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self.outcome, Ok(200 | 202))
    }
}

/// One answer of `/readyz`.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    pub(crate) process: usize,
    pub(crate) at: Moment,
    /// None without an answer.
    pub(crate) status: Option<u16>,
    pub(crate) degraded: Vec<String>,
}

impl Readiness {
    fn is_good(&self) -> bool {
        self.status == Some(200) && self.degraded.is_empty()
    }
}

/// One look at the metrics of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scrape {
    pub(crate) at: Moment,
    /// Stores that are taken for away.
    pub(crate) stores: BTreeSet<String>,
    /// Provider accounts whose breaker is open.
    pub(crate) accounts: BTreeSet<String>,
    /// The age of the oldest message that waits, where this process knows it.
    pub(crate) outbox_age_ms: Option<f64>,
}

impl Scrape {
    /// Reads what Prometheus would.
    pub(crate) fn parse(at: Moment, text: &str) -> Self {
        let mut scrape = Self { at, stores: BTreeSet::new(), accounts: BTreeSet::new(), outbox_age_ms: None };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if let Some(store) = label(series, "breaker_open", "store")
                && value > 0.0
            {
                scrape.stores.insert(store.to_owned());
            } else if let Some(account) = label(series, "provider_breaker_open", "account")
                && value > 0.0
            {
                scrape.accounts.insert(account.to_owned());
            } else if series == "outbox_age_ms" {
                scrape.outbox_age_ms = Some(value);
            }
        }
        scrape
    }
}

/// The value of a metric's label, where the series is one of that metric.
fn label<'a>(series: &'a str, metric: &str, label: &str) -> Option<&'a str> {
    let labels = series.strip_prefix(metric)?.strip_prefix('{')?.strip_suffix('}')?;
    labels.split(',').find_map(|pair| pair.strip_prefix(label)?.strip_prefix("=\"")?.strip_suffix('"'))
}

/// How many submits a provider had seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) provider: &'static str,
    pub(crate) at: Moment,
    pub(crate) submits: u64,
}

/// What a stream did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// It told of a version of the task.
    Told {
        /// Whether the task has ended.
        ended: bool,
    },
    /// It was over.
    Closed(String),
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) requests: Vec<Request>,
    pub(crate) readiness: Vec<Readiness>,
    pub(crate) scrapes: Vec<Scrape>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) stream: Vec<(Moment, StreamEvent)>,
    /// When a read first showed the end of the task that ran when it began.
    pub(crate) long_ended: Option<Moment>,
    /// When a task that was accepted after the healing was first known to be at its provider. What the provider itself
    /// has seen says less: a frozen one finds submits that nobody waits for any more.
    pub(crate) resumed: Vec<(&'static str, Moment)>,
    /// When no task that was accepted meanwhile waited any more.
    pub(crate) caught_up: Option<Moment>,
}

/// A record that many write into.
pub(crate) struct Notes {
    begun: Instant,
    record: Mutex<Record>,
}

impl Notes {
    pub(crate) fn open() -> Self {
        Self { begun: Instant::now(), record: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Moment {
        self.begun.elapsed()
    }

    pub(crate) fn add<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T {
        note(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What has to be well again before a dependency counts as back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// Processes whose `/readyz` is asked.
    pub(crate) processes: usize,
    pub(crate) providers: [&'static str; 2],
    /// Whether the outbox has to be empty too.
    pub(crate) outbox: bool,
}

/// Younger messages are on their way and wait for nobody; it is looked at every two seconds.
const OUTBOX_AGE_MS_MAX: f64 = 1_000.0;

/// Everything works again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// So long after the healing.
    pub(crate) after: Duration,
    /// What was the last to do so.
    pub(crate) last: String,
}

impl Record {
    /// When everything worked again as on any other day: every kind of request, every process by its own word, and new
    /// tasks at every provider.
    ///
    /// # Errors
    /// With what does not, yet.
    pub(crate) fn back(&self, moments: &Moments, needed: Whole) -> Result<Back, Vec<String>> {
        let whole = moments.whole;
        let mut seen: Vec<(String, Option<Moment>)> = Vec::new();
        for kind in [Kind::Submit, Kind::Cached, Kind::Uncached] {
            let sent = self.requests.iter().filter(|request| request.kind == kind && request.sent >= whole);
            let since = good_since(sent.map(|request| (request.answered, request.is_good())));
            seen.push((format!("the {}", kind.name()), since));
        }
        for process in 0..needed.processes {
            let asked = self.readiness.iter().filter(|one| one.process == process && one.at >= whole);
            let since = good_since(asked.map(|one| (one.at, one.is_good())));
            seen.push((format!("/readyz of process {process}"), since));
        }
        for provider in needed.providers {
            let first = self.resumed.iter().find(|(at, _)| *at == provider).map(|(_, moment)| *moment);
            seen.push((format!("a new task at the account {provider}"), first));
        }
        if needed.outbox {
            let known = self.scrapes.iter().filter(|scrape| scrape.at >= whole);
            let known = known.filter_map(|scrape| Some((scrape.at, scrape.outbox_age_ms?)));
            let since = good_since(known.map(|(at, age)| (at, age < OUTBOX_AGE_MS_MAX)));
            seen.push(("an outbox in which nothing old waits".to_owned(), since));
        }
        let missing: Vec<String> =
            seen.iter().filter(|(_, since)| since.is_none()).map(|(what, _)| what.clone()).collect();
        let last = seen.into_iter().filter_map(|(last, since)| Some((since?, last))).max();
        match last {
            Some((since, last)) if missing.is_empty() => {
                Ok(Back { after: since.saturating_sub(whole), last })
            }
            _ => Err(missing),
        }
    }
}

/// Since when it has been good without a break.
fn good_since(seen: impl Iterator<Item = (Moment, bool)>) -> Option<Moment> {
    let mut seen: Vec<_> = seen.collect();
    seen.sort_by_key(|(at, _)| *at);
    seen.into_iter().fold(None, |since, (at, good)| if good { since.or(Some(at)) } else { None })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MOMENTS: Moments =
        Moments { hurt: ms(2_000), healing: ms(10_000), whole: ms(10_200), end: ms(10_200) };

    pub(crate) const fn ms(millis: u64) -> Moment {
        Duration::from_millis(millis)
    }

    pub(crate) fn request(kind: Kind, sent: u64, took: u64, status: u16) -> Request {
        Request {
            kind,
            sent: ms(sent),
            answered: ms(sent + took),
            outcome: Ok(status),
            comes_back: status == 503,
            degraded: Vec::new(),
            wait_reason: None,
        }
    }

    pub(crate) fn readiness(process: usize, at: u64, status: u16, degraded: &[&str]) -> Readiness {
        let degraded = degraded.iter().map(|&name| name.to_owned()).collect();
        Readiness { process, at: ms(at), status: Some(status), degraded }
    }

    const NEEDED: Whole = Whole { processes: 2, providers: ["mock", "second"], outbox: false };

    /// Everything is well again 2.1 s after the healing, the second process last.
    fn recovered() -> Record {
        Record {
            requests: vec![
                request(Kind::Submit, 9_900, 20, 503),
                request(Kind::Submit, 10_250, 50, 202),
                request(Kind::Cached, 10_250, 10, 200),
                request(Kind::Uncached, 10_250, 10, 503),
                request(Kind::Uncached, 10_750, 10, 200),
            ],
            readiness: vec![
                readiness(0, 10_300, 200, &[]),
                readiness(1, 10_300, 200, &["control"]),
                readiness(1, 12_300, 200, &[]),
            ],
            resumed: vec![("second", ms(10_500)), ("mock", ms(11_000))],
            ..Record::default()
        }
    }

    #[test]
    fn it_is_back_when_the_last_of_all_works_again() {
        let back = recovered().back(&MOMENTS, NEEDED).unwrap();
        assert_eq!(back, Back { after: ms(2_100), last: "/readyz of process 1".to_owned() });
    }

    #[test]
    fn what_never_worked_again_or_broke_once_more_is_not_back() {
        let mut record = recovered();
        record.resumed.retain(|(provider, _)| *provider != "second");
        let missing = vec!["a new task at the account second".to_owned()];
        assert_eq!(record.back(&MOMENTS, NEEDED), Err(missing));

        let mut record = recovered();
        record.readiness.push(readiness(0, 12_500, 200, &["cache"]));
        assert_eq!(record.back(&MOMENTS, NEEDED), Err(vec!["/readyz of process 0".to_owned()]));
        record.readiness.push(readiness(0, 13_000, 200, &[]));
        assert_eq!(record.back(&MOMENTS, NEEDED).unwrap().after, ms(2_800));
    }

    #[test]
    fn the_queue_is_back_when_nothing_old_waits() {
        let needed = Whole { outbox: true, ..NEEDED };
        let scrape = |at, age: Option<f64>| Scrape {
            at: ms(at),
            stores: BTreeSet::new(),
            accounts: BTreeSet::new(),
            outbox_age_ms: age,
        };
        let mut record = recovered();
        record.scrapes = vec![scrape(10_300, Some(8_000.0)), scrape(11_000, None)];
        assert!(record.back(&MOMENTS, needed).is_err());
        record.scrapes.push(scrape(14_200, Some(40.0)));
        assert_eq!(record.back(&MOMENTS, needed).unwrap().after, ms(4_000));
    }

    #[test]
    fn metrics_are_read_as_prometheus_would() {
        let text = "# TYPE breaker_open gauge\nbreaker_open{store=\"cache\"} 0\nbreaker_open{store=\"control\"} 1\n\
                    provider_breaker_open{account=\"mock\"} 1\nprovider_breaker_open{account=\"second\"} 0\n\
                    outbox_age_ms 1234.5\nloop_idle_seconds{loop=\"x y\"} 3\nodd\n";
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let expected =
            Scrape { at: ms(1), stores: set("control"), accounts: set("mock"), outbox_age_ms: Some(1_234.5) };
        assert_eq!(Scrape::parse(ms(1), text), expected);
    }
}
