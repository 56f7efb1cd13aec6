//! What went wrong under load: counted by kind, shown, never hidden.

use std::{collections::BTreeMap, fmt, io};

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Kinds that are told apart; a server that answers with ever new words is counted under one more.
const KINDS_MAX: usize = 32;

/// One request, or one task, that did not go as it should.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection was had.
    Connect(io::ErrorKind),
    /// It broke before the whole answer was there.
    Lost(String),
    /// No answer in time.
    TimedOut,
    /// An answer other than 2xx, with the problem's code where it has one.
    Status(StatusCode, Option<String>),
    /// A 2xx answer that does not say what it should.
    NotUnderstood(&'static str),
    /// A task that ended otherwise than it should.
    Ended(String),
    /// A task that did not end.
    NoEnd,
}

impl Failure {
    pub(super) fn status(status: StatusCode, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Problem {
            code: String,
        }
        Self::Status(status, serde_json::from_slice::<Problem>(body).ok().map(|problem| problem.code))
    }

    pub(super) fn lost(error: &hyper::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(kind) => write!(f, "no connection: {kind}"),
            Self::Lost(why) => write!(f, "connection lost: {why}"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Status(status, Some(code)) => write!(f, "{} {code}", status.as_u16()),
            Self::Status(status, None) => write!(f, "{status}"),
            Self::NotUnderstood(what) => write!(f, "answer without {what}"),
            Self::Ended(status) => write!(f, "task ended {status}"),
            Self::NoEnd => f.write_str("task without an end in time"),
        }
    }
}

/// How often each kind came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Failures(pub(super) BTreeMap<String, u64>);

impl Failures {
    pub(super) fn note(&mut self, failure: &Failure) {
        self.add(failure.to_string(), 1);
    }

    pub(super) fn add(&mut self, kind: String, count: u64) {
        let known = self.0.len() < KINDS_MAX || self.0.contains_key(&kind);
        *self.0.entry(if known { kind } else { "others".to_owned() }).or_default() += count;
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(kind, count)| self.add(kind, count));
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<_> = self.0.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let texts: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_are_bounded() {
        let mut failures = Failures::default();
        let refused = Failure::status(StatusCode::TOO_MANY_REQUESTS, br#"{"code":"queue_full","title":"x"}"#);
        failures.note(&refused);
        failures.note(&Failure::TimedOut);
        failures.note(&refused);
        assert_eq!(failures.to_string(), "2 × 429 queue_full, 1 × no answer in time");
        for n in 0..100 {
            failures.note(&Failure::Ended(format!("oddly {n}")));
        }
        assert_eq!((failures.total(), failures.0.len()), (103, KINDS_MAX + 1));
        assert_eq!(Failure::status(StatusCode::BAD_GATEWAY, b"<html>").to_string(), "502 Bad Gateway");
    }
}
