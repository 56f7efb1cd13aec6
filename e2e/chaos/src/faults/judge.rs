//! Holds the figures of a case against its promises.

use std::time::Duration;

use super::{
    figures::Figures,
    promises::{Jobs, Metric, Named, Promises, Reads, Ready, Stream, Submits},
};

/// What a broken promise about a name says of answers without one.
const NOTHING: &str = "nothing";
/// Names that `/readyz` and the header have for stores and the queue.
const STORES: [&str; 5] = ["cache", "control", "realtime", "postgresql", "queue"];

/// Every promise that was broken, in plain words.
pub(crate) fn broken(promises: &Promises, seen: &Figures) -> Vec<String> {
    let mut broken = Vec::new();
    answers(promises, seen, &mut broken);
    jobs(promises, seen, &mut broken);
    visible(promises, seen, &mut broken);
    followed(promises, seen, &mut broken);
    let limit = millis(promises.return_max);
    match seen.back_after_ms {
        Some(took) if took <= limit => {}
        Some(took) => {
            let last = &seen.back_last;
            broken.push(format!(
                "it was back only {took} ms after the end, {limit} are promised; last: {last}"
            ));
        }
        None => broken.push(format!("it never came back by itself; what is missing: {}", seen.back_last)),
    }
    let limit = millis(promises.catch_up_max);
    match seen.caught_up_after_ms {
        Some(took) if took <= limit => {}
        Some(took) => broken.push(format!("tasks waited {took} ms after the end, {limit} are promised")),
        None => broken.push("tasks that were accepted meanwhile wait and wait".to_owned()),
    }
    broken
}

/// Nobody waits for ever, and nobody is sent away who is promised an answer.
fn answers(promises: &Promises, seen: &Figures, broken: &mut Vec<String>) {
    if let Some(first) = seen.unanswered.first() {
        broken.push(format!("{} requests got no answer, such as {first}", seen.unanswered.len()));
    }
    let limit = millis(promises.answer_max);
    if seen.slowest_ms > limit {
        let slowest = format!("{} took {} ms", seen.slowest, seen.slowest_ms);
        broken.push(format!("an answer hung: {slowest}, {limit} are promised"));
    }
    for (what, count) in &seen.refused {
        let is_submit = what.starts_with("submit") || what.starts_with("replay");
        let may_be_told_to_come_back = if is_submit {
            promises.submits == Submits::OrComeBack
        } else {
            promises.reads == Reads::CachedOrComeBack
        };
        if !may_be_told_to_come_back || !what.ends_with(" 503") {
            broken.push(format!("{count} times: {what}"));
        }
    }
    for (what, count) in seen.impolite.iter().filter(|(what, _)| what.ends_with(" 503")) {
        broken.push(format!("{count} times: {what} without a Retry-After"));
    }
    if promises.reads == Reads::CachedOrComeBack && seen.cached_and_named == 0 {
        broken.push("no read was answered by a cache with a word about what is away".to_owned());
    }
}

/// What the providers saw.
fn jobs(promises: &Promises, seen: &Figures, broken: &mut Vec<String>) {
    let of = |provider: &str| seen.provider_submits.get(provider).copied().unwrap_or(0);
    let (mock, second) = (of("mock"), of("second"));
    let kept = match promises.jobs {
        Jobs::GoOn => mock > 0 && second > 0,
        Jobs::None => mock == 0 && second == 0,
        Jobs::ElsewhereGoOn => second > 0,
    };
    if !kept {
        let promised = match promises.jobs {
            Jobs::GoOn => "both go on",
            Jobs::None => "none",
            Jobs::ElsewhereGoOn => "the second account goes on",
        };
        broken.push(format!("submits at the providers: {mock} and {second}; promised: {promised}"));
    }
}

/// Somebody on call sees it.
fn visible(promises: &Promises, seen: &Figures, broken: &mut Vec<String>) {
    match promises.ready {
        Ready::Always if seen.ready.iter().any(|status| *status != 200) => {
            broken.push(format!("/readyz answered {:?}, 200 is promised", seen.ready));
        }
        Ready::No if !seen.ready.contains(&503) => {
            broken.push(format!("/readyz answered {:?}, 503 is promised", seen.ready));
        }
        _ => {}
    }
    if let Some(named) = promises.named {
        for (place, names) in
            [("/readyz", &seen.named_in_readyz), ("AIVideo-Degraded", &seen.named_in_header)]
        {
            let is_named = match named {
                Named::As(name) => names.contains(name),
                Named::Account => names.iter().any(|name| !STORES.contains(&name.as_str())),
            };
            if !is_named {
                let wanted = match named {
                    Named::As(name) => name,
                    Named::Account => "the account",
                };
                broken.push(format!("{place} named {}, and not {wanted}", listed(names)));
            }
        }
    }
    let shown = match promises.metric {
        None => true,
        Some(Metric::Store(store)) => seen.stores_in_metrics.contains(store),
        Some(Metric::Account(account)) => seen.accounts_in_metrics.contains(account),
        Some(Metric::OutboxAge) => seen.outbox_age_ms_max >= seen.outage_ms / 2,
    };
    if !shown {
        let metric = match promises.metric {
            Some(Metric::Store(store)) => format!("breaker_open{{store=\"{store}\"}} was never 1"),
            Some(Metric::Account(account)) => {
                format!("provider_breaker_open{{account=\"{account}\"}} was never 1")
            }
            _ => format!("outbox_age_ms was never more than {}", seen.outbox_age_ms_max),
        };
        broken.push(format!("the metrics do not show it: {metric}"));
    }
    let told = |reason: &&str| seen.wait_reasons.contains(*reason);
    if !promises.waits.is_empty() && !promises.waits.iter().any(told) {
        let reasons = listed(&seen.wait_reasons);
        broken.push(format!(
            "waiting tasks gave the reasons: {reasons}; promised: {}",
            promises.waits.join(" or ")
        ));
    }
}

/// What ran is not forgotten, nor whoever watches it.
fn followed(promises: &Promises, seen: &Figures, broken: &mut Vec<String>) {
    if promises.followed && !seen.followed {
        broken.push("the task that ran at a provider was not followed to its end meanwhile".to_owned());
    }
    if let Some(why) = &seen.stream.broke {
        broken.push(format!("the stream was over before it had told of the end: {why}"));
    } else if !seen.stream.told {
        broken.push("the stream never told of the end".to_owned());
    }
    if let (Stream::Tells(limit), Some(late)) = (promises.stream, seen.stream.late_ms)
        && late > millis(limit)
    {
        broken.push(format!("the stream told of the end {late} ms late, {} are promised", millis(limit)));
    }
}

fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    if names.is_empty() { NOTHING.to_owned() } else { names.join(", ") }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::faults::{
        cases::{Case, Row, Way},
        figures::StreamFigures,
    };

    fn promises(row: Row, way: Way) -> Promises {
        Promises::of(Case { row, way })
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// An outage in which everything was kept that can be promised about Redis control.
    fn kept() -> Figures {
        Figures {
            requests: 100,
            slowest_ms: 400,
            slowest: "submit".to_owned(),
            provider_submits: BTreeMap::from([("mock".to_owned(), 0), ("second".to_owned(), 0)]),
            ready: BTreeSet::from([200]),
            named_in_readyz: names(&["control"]),
            named_in_header: names(&["control"]),
            stores_in_metrics: names(&["control"]),
            wait_reasons: names(&["control_unavailable"]),
            followed: true,
            stream: StreamFigures { broke: None, told: true, late_ms: Some(300) },
            outage_ms: 8_000,
            back_after_ms: Some(2_300),
            caught_up_after_ms: Some(4_000),
            ..Figures::default()
        }
    }

    #[track_caller]
    fn assert_broken(promises: &Promises, seen: &Figures, words: &str) {
        let found = broken(promises, seen);
        assert!(found.len() == 1 && found[0].contains(words), "{found:?}");
    }

    #[test]
    fn what_kept_every_promise_is_not_blamed() {
        assert_eq!(broken(&promises(Row::Control, Way::Stop), &kept()), Vec::<String>::new());
    }

    #[test]
    fn each_promise_about_control_can_be_broken_alone() {
        let control = promises(Row::Control, Way::Freeze);
        let submits = |count| BTreeMap::from([("mock".to_owned(), count), ("second".to_owned(), 0)]);
        for (seen, words) in [
            (Figures { slowest_ms: 1_001, ..kept() }, "hung: submit took 1001 ms"),
            (Figures { unanswered: vec!["submit: reset".into()], ..kept() }, "1 requests got no answer"),
            (
                Figures { refused: BTreeMap::from([("submit 503".into(), 2)]), ..kept() },
                "2 times: submit 503",
            ),
            (Figures { provider_submits: submits(1), ..kept() }, "promised: none"),
            (Figures { ready: BTreeSet::from([200, 503]), ..kept() }, "200 is promised"),
            (
                Figures { named_in_readyz: names(&["cache"]), ..kept() },
                "/readyz named cache, and not control",
            ),
            (Figures { named_in_header: names(&[]), ..kept() }, "AIVideo-Degraded named nothing"),
            (Figures { stores_in_metrics: names(&[]), ..kept() }, "breaker_open{store=\"control\"}"),
            (Figures { wait_reasons: names(&[]), ..kept() }, "control_unavailable"),
            (Figures { followed: false, ..kept() }, "not followed"),
            (Figures { back_after_ms: Some(5_001), ..kept() }, "5001 ms after the end"),
            (Figures { back_after_ms: None, ..kept() }, "never came back"),
            (Figures { caught_up_after_ms: Some(10_001), ..kept() }, "waited 10001 ms"),
            (Figures { caught_up_after_ms: None, ..kept() }, "wait and wait"),
        ] {
            assert_broken(&control, &seen, words);
        }
        let stream = |broke: Option<&str>, told, late_ms| Figures {
            stream: StreamFigures { broke: broke.map(str::to_owned), told, late_ms },
            ..kept()
        };
        assert_broken(
            &control,
            &stream(Some("closed"), false, None),
            "before it had told of the end: closed",
        );
        assert_broken(&control, &stream(None, false, None), "never told");
        assert_broken(&control, &stream(None, true, Some(11_001)), "11001 ms late");
    }

    /// The same for PostgreSQL.
    fn kept_without_postgres() -> Figures {
        Figures {
            slowest_ms: 10_100,
            refused: BTreeMap::from([("submit 503".into(), 30), ("uncached read 503".into(), 9)]),
            ready: BTreeSet::from([200, 503]),
            named_in_readyz: names(&["postgresql"]),
            named_in_header: names(&["postgresql"]),
            stores_in_metrics: names(&["postgresql"]),
            wait_reasons: names(&[]),
            cached_and_named: 4,
            followed: false,
            ..kept()
        }
    }

    #[test]
    fn without_postgresql_a_polite_503_is_no_breach_and_anything_else_is() {
        let postgres = promises(Row::Postgres, Way::Stop);
        assert_eq!(broken(&postgres, &kept_without_postgres()), Vec::<String>::new());
        let impolite = BTreeMap::from([("submit 503".into(), 3)]);
        let seen = Figures { impolite, ..kept_without_postgres() };
        assert_broken(&postgres, &seen, "3 times: submit 503 without a Retry-After");
        let refused = BTreeMap::from([("cached read 500".into(), 1)]);
        assert_broken(&postgres, &Figures { refused, ..kept_without_postgres() }, "1 times: cached read 500");
        let seen = Figures { cached_and_named: 0, ..kept_without_postgres() };
        assert_broken(&postgres, &seen, "no read was answered by a cache");
        let seen = Figures { ready: BTreeSet::from([200]), ..kept_without_postgres() };
        assert_broken(&postgres, &seen, "503 is promised");
    }

    #[test]
    fn a_lost_account_is_named_by_any_name_and_leaves_the_other_alone() {
        let provider = promises(Row::Provider, Way::Stop);
        let seen = Figures {
            provider_submits: BTreeMap::from([("mock".to_owned(), 0), ("second".to_owned(), 17)]),
            named_in_readyz: names(&["provider:mock"]),
            named_in_header: names(&["provider:mock"]),
            accounts_in_metrics: names(&["mock"]),
            wait_reasons: names(&["breaker_open"]),
            followed: false,
            ..kept()
        };
        assert_eq!(broken(&provider, &seen), Vec::<String>::new());
        let alone = BTreeMap::from([("mock".to_owned(), 0), ("second".to_owned(), 0)]);
        let hurt = Figures { provider_submits: alone, ..seen.clone() };
        assert_broken(&provider, &hurt, "the second account goes on");
        let hidden = Figures { named_in_header: names(&["cache"]), ..seen.clone() };
        assert_broken(&provider, &hidden, "AIVideo-Degraded named cache, and not the account");
        assert_broken(&provider, &Figures { accounts_in_metrics: names(&[]), ..seen }, "never 1");
    }

    #[test]
    fn a_queue_that_is_away_shows_in_the_age_of_what_waits() {
        let queue = promises(Row::Queue, Way::Stop);
        let seen = Figures {
            named_in_readyz: names(&["queue"]),
            named_in_header: names(&["queue"]),
            outbox_age_ms_max: 7_000,
            provider_submits: BTreeMap::from([("mock".to_owned(), 9), ("second".to_owned(), 8)]),
            ..kept()
        };
        assert_eq!(broken(&queue, &seen), Vec::<String>::new());
        assert_broken(&queue, &Figures { outbox_age_ms_max: 900, ..seen }, "outbox_age_ms");
    }
}
