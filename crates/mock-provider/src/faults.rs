//! Faults on demand: rules that a test puts in place, and what they do to a request.
//!
//! A rule names the call it sits on, which jobs it concerns and how often it strikes; the first rule that fits wins.
//! Order within one request: `delay_ms`, then `hang`, then `drop`, then the answer's status, headers and body are
//! replaced, then it is cut off. An error status means that the provider refused: no job is made, no job canceled.
//! Everything else acts on the answer alone, after the job exists; only `drop: before_accept` comes before it.
//!
//! A callback is a request of ours, and a rule acts on each sending: `delay_ms` sends it later, `drop: before_accept`
//! never, `hang` and `truncate_bytes` leave its body unfinished, `body` replaces it before the signature and `headers`
//! after it, `duplicate` sends it twice. `status` and `drop: after_accept` are about its answer: it counts as that
//! status, or as none, and what was not taken is sent again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{routes::refusal, server::CloseConnection};

/// Largest answer that a rule can cut off.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The longest `delay_ms`: an hour.
const DELAY_MS_MAX: u64 = 3_600_000;

/// The calls a rule can sit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum On {
    Submit,
    Poll,
    Lookup,
    Output,
    Callback,
    Cancel,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    on: On,
    #[serde(default, rename = "match")]
    matching: Match,
    action: Action,
    /// How many requests it strikes; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
}

/// Which jobs a rule concerns. A look-up that finds nothing has no job and only fits an empty match.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt_contains: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Action {
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// A string is sent as it is, anything else as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<Drop>,
    hang: bool,
    /// The answer announces its whole length, but the connection closes after this many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncate_bytes: Option<usize>,
    /// A submit makes two jobs; a look-up lists each job twice; a callback is sent twice.
    duplicate: bool,
}

/// Close the connection without an answer, as if the request had never arrived, or after it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Drop {
    BeforeAccept,
    AfterAccept,
}

impl Rule {
    /// Says what is wrong with a rule that could not do what it says.
    fn check(&self) -> Result<(), String> {
        let action = &self.action;
        if action.status.is_some_and(|s| StatusCode::from_u16(s).is_err() || s < 200) {
            return Err("action.status: not an HTTP status from 200 to 999".into());
        }
        if action.delay_ms.is_some_and(|ms| ms > DELAY_MS_MAX) {
            return Err(format!("action.delay_ms: more than {DELAY_MS_MAX}"));
        }
        if action.hang && action.drop.is_some() {
            return Err("action: hang and drop exclude each other".into());
        }
        for (name, value) in &action.headers {
            if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
                return Err(format!("action.headers: {name:?} is no header"));
            }
        }
        Ok(())
    }

    fn fits(&self, on: On, model: Option<&str>, prompt: Option<&str>) -> bool {
        let contains = |part: &String| prompt.is_some_and(|prompt| prompt.contains(part.as_str()));
        self.on == on
            && self.times != Some(0)
            && self.matching.model.as_deref().is_none_or(|wanted| model == Some(wanted))
            && self.matching.prompt_contains.as_ref().is_none_or(contains)
    }
}

/// The rules in place.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Vec<Rule>>);

impl Faults {
    pub(crate) fn replace(&self, rules: Vec<Rule>) -> Result<(), String> {
        for (n, rule) in rules.iter().enumerate() {
            rule.check().map_err(|why| format!("rule {n}: {why}"))?;
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether looking a job up for its model and prompt is worth it.
    pub(crate) fn any(&self, on: On) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|rule| rule.on == on)
    }

    /// The action for this request, counted against its rule.
    pub(crate) fn take(&self, on: On, model: Option<&str>, prompt: Option<&str>) -> Action {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rule) = rules.iter_mut().find(|rule| rule.fits(on, model, prompt)) else {
            return Action::default();
        };
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        rule.action.clone()
    }
}

/// What a rule does to one sending of a callback.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sending {
    pub(crate) delay: Duration,
    /// It is never sent.
    pub(crate) lost: bool,
    /// Its answer is not heard.
    pub(crate) unanswered: bool,
    pub(crate) hang: bool,
    pub(crate) duplicate: bool,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Option<Bytes>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) truncate: Option<usize>,
}

impl Action {
    /// The same as an action on a callback.
    pub(crate) fn sending(self) -> Sending {
        let headers = self.headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        Sending {
            delay: Duration::from_millis(self.delay_ms.unwrap_or(0)),
            lost: self.drop == Some(Drop::BeforeAccept),
            unanswered: self.drop == Some(Drop::AfterAccept),
            hang: self.hang,
            duplicate: self.duplicate,
            headers: headers.collect(),
            body: self.body.map(|body| match body {
                serde_json::Value::String(text) => Bytes::from(text),
                json => Bytes::from(json.to_string()),
            }),
            status: self.status.and_then(|status| StatusCode::from_u16(status).ok()),
            truncate: self.truncate_bytes,
        }
    }

    pub(crate) fn drops_before_accept(&self) -> bool {
        self.drop == Some(Drop::BeforeAccept)
    }

    pub(crate) fn duplicates(&self) -> bool {
        self.duplicate
    }

    /// The provider's own refusal, when the status says so.
    pub(crate) fn refusal(&self) -> Option<Response> {
        let status = StatusCode::from_u16(self.status?).ok().filter(|s| s.as_u16() >= 400)?;
        let code = match status.as_u16() {
            401 | 403 => "provider_auth",
            402 => "provider_credit",
            404 => "provider_lost",
            410 => "model_gone",
            429 => "rate_limited",
            451 => "region_blocked",
            503 | 529 => "overloaded",
            500.. => "provider_internal",
            _ => "invalid_input",
        };
        Some(refusal(status, code, "as the fault rule says"))
    }

    /// Turns the honest answer into what the rule wants the caller to see.
    pub(crate) async fn apply(self, answer: Response) -> Response {
        if let Some(ms) = self.delay_ms {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        if self.hang {
            // Ends when the caller gives up or the server stops: both drop this future.
            std::future::pending::<()>().await;
        }
        if self.drop.is_some() {
            return CloseConnection::answer();
        }
        let mut answer = answer;
        if let Some(status) = self.status.and_then(|s| StatusCode::from_u16(s).ok()) {
            *answer.status_mut() = status;
        }
        if let Some(body) = self.body {
            let (kind, bytes) = match body {
                serde_json::Value::String(text) => ("text/plain; charset=utf-8", Bytes::from(text)),
                json => ("application/json", Bytes::from(json.to_string())),
            };
            answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            answer.headers_mut().remove(header::CONTENT_LENGTH);
            *answer.body_mut() = Body::from(bytes);
        }
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                answer.headers_mut().insert(name, value);
            }
        }
        match self.truncate_bytes {
            Some(kept) => cut_off(answer, kept).await,
            None => answer,
        }
    }
}

/// An answer that announces its whole length and breaks off after `kept` bytes.
async fn cut_off(answer: Response, kept: usize) -> Response {
    let (mut parts, body) = answer.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await else {
        return CloseConnection::answer();
    };
    if kept >= bytes.len() {
        return Response::from_parts(parts, Body::from(bytes));
    }
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    let start = futures::stream::iter([Ok(bytes.slice(..kept))]);
    // The pause lets the server write out what it has before the error ends the connection.
    let end = futures::stream::once(async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(std::io::Error::other("cut off as the fault rule says"))
    });
    (parts, Body::from_stream(start.chain(end))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: serde_json::Value) -> Result<Vec<Rule>, serde_json::Error> {
        serde_json::from_value(json)
    }

    #[test]
    fn a_rule_strikes_as_often_as_it_says_and_only_where_it_fits() {
        let faults = Faults::default();
        let list = serde_json::json!([
            {"on": "submit", "match": {"model": "mock-pro"}, "action": {"status": 429}, "times": 2},
            {"on": "submit", "match": {"prompt_contains": "cat"}, "action": {"drop": "before_accept"}}
        ]);
        faults.replace(rules(list).expect("well-formed")).expect("sensible");
        let status = |model, prompt| faults.take(On::Submit, Some(model), Some(prompt)).status;
        assert_eq!(status("mock-fast", "a dog"), None);
        assert_eq!([status("mock-pro", "a dog"), status("mock-pro", "a cat")], [Some(429); 2]);
        assert!(faults.take(On::Submit, Some("mock-pro"), Some("a cat")).drops_before_accept());
        assert!(!faults.take(On::Poll, Some("mock-pro"), Some("a cat")).drops_before_accept());
        assert!(!faults.take(On::Submit, None, None).drops_before_accept(), "nothing known fits no match");
    }

    #[test]
    fn what_a_rule_does_not_know_is_refused() {
        assert!(rules(serde_json::json!([{"on": "submit", "action": {"explode": true}}])).is_err());
        assert!(rules(serde_json::json!([{"on": "upload", "action": {}}])).is_err());
        assert!(rules(serde_json::json!([{"on": "poll", "match": {"user": "x"}, "action": {}}])).is_err());
        let faults = Faults::default();
        let odd =
            rules(serde_json::json!([{"on": "poll", "action": {"hang": true, "drop": "after_accept"}}]));
        assert!(faults.replace(odd.expect("well-formed")).is_err());
        assert!(faults.rules().is_empty());
    }
}
