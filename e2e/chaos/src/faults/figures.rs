//! The figures of one case, worked out of what was noted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Serialize;

use super::record::{Kind, Moments, Record, Request, StreamEvent, Whole};

/// A submit that had its slot when the dependency was hurt may still be on its way for a moment.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// What is told of a case, and what its promises are held against.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Requests that were sent while it was hurt.
    pub(crate) requests: usize,
    /// Of those, the ones that were not answered as on any other day, by kind and status.
    pub(crate) refused: BTreeMap<String, usize>,
    /// Of those, the ones that did not say when to come back.
    pub(crate) impolite: BTreeMap<String, usize>,
    /// Requests that got no answer at all.
    pub(crate) unanswered: Vec<String>,
    pub(crate) slowest_ms: u64,
    /// What the slowest request was for.
    pub(crate) slowest: String,
    /// Submits at each provider while the dependency could not be used.
    pub(crate) provider_submits: BTreeMap<String, u64>,
    /// Statuses of `/readyz`.
    pub(crate) ready: BTreeSet<u16>,
    pub(crate) named_in_readyz: BTreeSet<String>,
    pub(crate) named_in_header: BTreeSet<String>,
    /// From the blow until anything was named.
    pub(crate) named_after_ms: Option<u64>,
    /// Stores whose breaker the metrics show open.
    pub(crate) stores_in_metrics: BTreeSet<String>,
    /// Provider accounts whose breaker the metrics show open.
    pub(crate) accounts_in_metrics: BTreeSet<String>,
    pub(crate) outbox_age_ms_max: u64,
    /// Reads that a cache answered and that said what is away.
    pub(crate) cached_and_named: usize,
    pub(crate) wait_reasons: BTreeSet<String>,
    /// Whether the task that ran at the blow ended before the healing.
    pub(crate) followed: bool,
    pub(crate) stream: StreamFigures,
    /// For how long it could not be used, or until when it was looked at after one blow.
    pub(crate) outage_ms: u64,
    /// From the healing until everything worked again.
    pub(crate) back_after_ms: Option<u64>,
    /// What was the last to work again, or what never did.
    pub(crate) back_last: String,
    /// From the healing until every task that was accepted meanwhile was at its provider.
    pub(crate) caught_up_after_ms: Option<u64>,
}

/// How the open stream fared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct StreamFigures {
    /// Why it was over before it had told of the end.
    pub(crate) broke: Option<String>,
    /// Whether it told of the end.
    pub(crate) told: bool,
    /// How long after the first read that showed the end.
    pub(crate) late_ms: Option<u64>,
}

impl Figures {
    pub(crate) fn of(record: &Record, moments: &Moments, needed: Whole) -> Self {
        let during = |at: Duration| (moments.hurt..moments.end).contains(&at);
        let back = record.back(moments, needed);
        let mut figures = Self {
            provider_submits: provider_submits(record, moments, needed),
            stream: StreamFigures::of(record),
            outage_ms: millis(moments.end.saturating_sub(moments.hurt)),
            back_after_ms: back.as_ref().ok().map(|back| millis(back.after)),
            caught_up_after_ms: record.caught_up.map(|at| millis(at.saturating_sub(moments.whole))),
            back_last: back.map_or_else(|missing| missing.join(", "), |back| back.last),
            followed: record.long_ended.is_some_and(|at| at <= moments.watched_until()),
            ..Self::default()
        };
        let mut named = None;
        for request in record.requests.iter().filter(|request| during(request.sent)) {
            figures.count(request);
            if request.answered < moments.end && !request.degraded.is_empty() {
                figures.named_in_header.extend(request.degraded.iter().cloned());
                named = Some(named.unwrap_or(request.answered).min(request.answered));
            }
        }
        for readiness in record.readiness.iter().filter(|readiness| during(readiness.at)) {
            figures.ready.extend(readiness.status);
            figures.named_in_readyz.extend(readiness.degraded.iter().cloned());
        }
        figures.named_after_ms = named.map(|at| millis(at.saturating_sub(moments.hurt)));
        for scrape in record.scrapes.iter().filter(|scrape| during(scrape.at)) {
            figures.stores_in_metrics.extend(scrape.stores.iter().cloned());
            figures.accounts_in_metrics.extend(scrape.accounts.iter().cloned());
            let age = Duration::try_from_secs_f64(scrape.outbox_age_ms.unwrap_or(0.0) / 1_000.0);
            figures.outbox_age_ms_max = figures.outbox_age_ms_max.max(age.map_or(0, millis));
        }
        figures
    }

    fn count(&mut self, request: &Request) {
        self.requests += 1;
        let took = millis(request.answered.saturating_sub(request.sent));
        if took >= self.slowest_ms {
            (self.slowest_ms, self.slowest) = (took, request.kind.name().to_owned());
        }
        self.wait_reasons.extend(request.wait_reason.clone());
        if request.kind == Kind::Cached && request.is_good() && !request.degraded.is_empty() {
            self.cached_and_named += 1;
        }
        match &request.outcome {
            // Its statuses are told by themselves.
            Ok(_) if request.kind == Kind::Ready => {}
            Ok(status) if !request.is_good() => {
                let name = format!("{} {status}", request.kind.name());
                if !request.comes_back {
                    *self.impolite.entry(name.clone()).or_default() += 1;
                }
                *self.refused.entry(name).or_default() += 1;
            }
            Ok(_) => {}
            Err(why) => self.unanswered.push(format!("{}: {why}", request.kind.name())),
        }
    }
}

/// Submits that a provider saw from a moment after the blow until the healing began.
fn provider_submits(record: &Record, moments: &Moments, needed: Whole) -> BTreeMap<String, u64> {
    let from = moments.hurt + ON_ITS_WAY;
    let to = moments.watched_until();
    let of = |provider: &'static str| {
        let until = |moment: Duration| {
            let seen = record.seen.iter().filter(|seen| seen.provider == provider && seen.at <= moment);
            seen.map(|seen| seen.submits).max().unwrap_or(0)
        };
        (provider.to_owned(), until(to).saturating_sub(until(from)))
    };
    needed.providers.into_iter().map(of).collect()
}

impl StreamFigures {
    fn of(record: &Record) -> Self {
        let told = record.stream.iter().find(|(_, event)| *event == StreamEvent::Told { ended: true });
        let told = told.map(|(at, _)| *at);
        let broke = record.stream.iter().find_map(|(at, event)| match event {
            StreamEvent::Closed(why) if told.is_none_or(|told| *at < told) => Some(why.clone()),
            _ => None,
        });
        let late = told.zip(record.long_ended).map(|(told, ended)| millis(told.saturating_sub(ended)));
        Self { broke, told: told.is_some(), late_ms: late }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::record::{
        Scrape, Seen,
        tests::{MOMENTS, ms, readiness, request},
    };

    const NEEDED: Whole = Whole { processes: 1, providers: ["mock", "second"], outbox: false };

    #[test]
    fn only_what_was_sent_during_it_counts() {
        let mut record = Record {
            requests: vec![
                request(Kind::Submit, 1_990, 900, 503),
                request(Kind::Submit, 2_000, 40, 202),
                request(Kind::Uncached, 3_000, 700, 503),
                request(Kind::Uncached, 4_000, 10, 500),
                Request { outcome: Err("reset".to_owned()), ..request(Kind::Cached, 5_000, 5, 0) },
                request(Kind::Submit, 10_200, 5_000, 503),
            ],
            ..Record::default()
        };
        record.requests[3].comes_back = false;
        let figures = Figures::of(&record, &MOMENTS, NEEDED);
        assert_eq!((figures.requests, figures.slowest_ms), (4, 700));
        assert_eq!(figures.slowest, "uncached read");
        let refused = BTreeMap::from([("uncached read 500".into(), 1), ("uncached read 503".into(), 1)]);
        assert_eq!(figures.refused, refused);
        assert_eq!(figures.impolite, BTreeMap::from([("uncached read 500".into(), 1)]));
        assert_eq!(figures.unanswered, ["cached read: reset"]);
        assert_eq!(figures.outage_ms, 8_200);
    }

    #[test]
    fn submits_on_their_way_at_the_blow_and_after_the_healing_are_none_of_the_outage() {
        let seen = |at, submits| Seen { provider: "mock", at: ms(at), submits };
        let record = Record {
            seen: vec![seen(1_900, 10), seen(2_900, 12), seen(6_000, 13), seen(10_100, 40)],
            ..Record::default()
        };
        let figures = Figures::of(&record, &MOMENTS, NEEDED);
        assert_eq!(figures.provider_submits, BTreeMap::from([("mock".into(), 1), ("second".into(), 0)]));

        // After a single blow everything up to the end is looked at.
        let blow = Moments { hurt: ms(2_000), healing: ms(2_010), whole: ms(2_010), end: ms(11_000) };
        let figures = Figures::of(&record, &blow, NEEDED);
        assert_eq!(figures.provider_submits["mock"], 28);
    }

    #[test]
    fn names_are_taken_from_where_they_were_seen() {
        let mut cached = request(Kind::Cached, 3_000, 10, 200);
        cached.degraded = vec!["control".to_owned()];
        cached.wait_reason = Some("control_unavailable".to_owned());
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let record = Record {
            requests: vec![cached],
            readiness: vec![readiness(0, 5_000, 200, &["control"]), readiness(0, 11_000, 503, &["cache"])],
            scrapes: vec![Scrape {
                at: ms(6_000),
                stores: set("control"),
                accounts: set("mock"),
                outbox_age_ms: Some(3_200.4),
            }],
            ..Record::default()
        };
        let figures = Figures::of(&record, &MOMENTS, NEEDED);
        assert_eq!((figures.named_in_header, figures.named_after_ms), (set("control"), Some(1_010)));
        assert_eq!((figures.named_in_readyz, figures.ready), (set("control"), BTreeSet::from([200])));
        assert_eq!((figures.stores_in_metrics, figures.accounts_in_metrics), (set("control"), set("mock")));
        assert_eq!((figures.outbox_age_ms_max, figures.cached_and_named), (3_200, 1));
        assert_eq!(figures.wait_reasons, set("control_unavailable"));
    }

    #[test]
    fn a_stream_that_closes_after_it_has_told_the_end_did_not_break() {
        let told = |ended| StreamEvent::Told { ended };
        let closed = || StreamEvent::Closed("closed".to_owned());
        let of = |stream, long_ended| {
            let record = Record { stream, long_ended, ..Record::default() };
            (Figures::of(&record, &MOMENTS, NEEDED).stream, Figures::of(&record, &MOMENTS, NEEDED).followed)
        };
        let (stream, followed) =
            of(vec![(ms(1), told(false)), (ms(6_500), told(true)), (ms(6_510), closed())], Some(ms(6_000)));
        assert_eq!(stream, StreamFigures { broke: None, told: true, late_ms: Some(500) });
        assert!(followed);
        let (stream, followed) = of(vec![(ms(1), told(false)), (ms(3_000), closed())], Some(ms(10_300)));
        assert_eq!(stream.broke.as_deref(), Some("closed"));
        assert!(!followed && !stream.told);
    }
}
