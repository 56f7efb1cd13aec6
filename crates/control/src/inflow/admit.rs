//! Asking the limits.

use std::time::Instant;

use domain::{limits::LimitScope, metric};

use super::reply;
use crate::{
    Admission, Control, ControlError, InflowCharge, InflowLimit, IpCharge, RefusedBy, Standing,
    instance::command,
    script::{Call, Script},
};

/// Whether a question uses up what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Charge,
    Look,
}

impl Control {
    /// Decides one request: the replay entry first, then every limit and the address's counter together.
    ///
    /// # Errors
    /// Without an answer the caller falls back to its in-process limits; `Unknown` may have charged.
    pub async fn admit(&self, charge: InflowCharge) -> Result<Admission, ControlError> {
        let started = Instant::now();
        let mut calls = Vec::with_capacity(2);
        calls.push(self.inflow_call(&charge, Mode::Charge));
        if let Some(ip) = &charge.ip {
            calls.push(self.ip_call(ip));
        }
        let answers = self.0.gatherer.ask(self, calls).await?;
        metrics::histogram!(metric::RATE_LIMIT_LUA_LATENCY_MS)
            .record(started.elapsed().as_secs_f64() * 1_000.0);

        let mut answers = answers.into_iter();
        let mut next =
            || answers.next().unwrap_or_else(|| Err(ControlError::Protocol("no answer".to_owned())));
        let by_limits = reply::read_inflow(next()?, charge.checks.len())?;
        let by_ip = if charge.ip.is_some() { reply::read_ip(next()?)? } else { None };
        let admission = self.combine(&charge, by_limits, by_ip).await;
        count(&charge, &admission);
        Ok(admission)
    }

    /// Says what [`Control::admit`] would answer now, by the same script, and uses up nothing. The address's counter isn't
    /// asked.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn look(&self, charge: &InflowCharge) -> Result<Admission, ControlError> {
        let mut answers = self.0.gatherer.ask(self, vec![self.inflow_call(charge, Mode::Look)]).await?;
        let answer = answers.pop().unwrap_or_else(|| Err(ControlError::Protocol("no answer".to_owned())));
        reply::read_inflow(answer?, charge.checks.len())
    }

    /// The address refuses on top of whatever the limits said; then what they charged goes back.
    async fn combine(&self, charge: &InflowCharge, by_limits: Admission, by_ip: Option<u64>) -> Admission {
        let Some(retry_after_ms) = by_ip else { return by_limits };
        let states = match by_limits {
            Admission::Granted(states) => {
                let charged = charge.charged(&states, |_| true);
                if let Err(error) = self.refund(std::slice::from_ref(&charged)).await {
                    tracing::debug!(
                        error = error.label(),
                        "what a refused request took comes back by time only"
                    );
                }
                states
            }
            Admission::Refused { states, .. } => states,
            Admission::Replay(_) | Admission::CostAboveCapacity { .. } => Vec::new(),
        };
        Admission::Refused { by: RefusedBy::Ip, retry_after_ms, states }
    }

    fn inflow_call(&self, charge: &InflowCharge, mode: Mode) -> Call {
        if let (Some(replay), true) = (&charge.replay, charge.checks.is_empty()) {
            // No limit is to be charged, so there is nothing for a script to decide.
            return command("GET").arg(self.keys().replay(charge.tenant, replay.user, &replay.hash));
        }
        let mut keys = Vec::with_capacity(1 + charge.checks.len());
        keys.push(match &charge.replay {
            Some(replay) => self.keys().replay(charge.tenant, replay.user, &replay.hash),
            None => self.keys().no_replay(charge.tenant),
        });
        keys.extend(self.check_keys(charge));
        let call = Script::Inflow
            .on(&keys)
            .arg(u8::from(charge.replay.is_some()))
            .arg(u8::from(mode == Mode::Charge));
        check_args(call, charge)
    }

    pub(crate) fn check_keys(&self, charge: &InflowCharge) -> impl Iterator<Item = String> {
        charge.checks.iter().map(|check| self.keys().inflow(charge.tenant, check))
    }

    fn ip_call(&self, ip: &IpCharge) -> Call {
        Script::IpWindow.on(&[self.keys().ip_window(ip.ip)]).arg(ip.limit).arg(ip.window_ms.max(10)).arg(1)
    }
}

impl InflowCharge {
    /// The part of it that a granted request was charged, as far as it is `wanted`: what a refund may give back. What a
    /// limit had counted before belongs to a twin of the request and stays.
    #[must_use]
    pub fn charged(&self, states: &[crate::CheckState], wanted: impl Fn(&InflowLimit) -> bool) -> Self {
        let checks = self.checks.iter().zip(states);
        let charged =
            checks.filter(|(check, state)| state.standing == Standing::Passes && wanted(&check.limit));
        let checks = charged.map(|(check, _)| check.clone()).collect();
        Self { tenant: self.tenant, replay: None, checks, ip: None }
    }
}

/// What the scripts want to know of each check. A refill or a window of nothing would divide by zero or forget at once.
pub(super) fn check_args(call: Call, charge: &InflowCharge) -> Call {
    charge.checks.iter().fold(call, |call, check| {
        let kind = match check.limit {
            InflowLimit::Bucket(_) => "bucket",
            InflowLimit::Window { .. } => "window",
        };
        let call = call.arg(kind).arg(u8::from(check.shadow)).arg(check.cost);
        match &check.limit {
            InflowLimit::Bucket(bucket) => {
                call.arg(bucket.capacity).arg(bucket.refill.max(1)).arg(bucket.per_ms.max(1))
            }
            InflowLimit::Window { window, entry } => {
                call.arg(window.limit).arg(window.window_ms.max(1)).arg(entry.as_str())
            }
        }
    })
}

fn count(charge: &InflowCharge, admission: &Admission) {
    if let Admission::Granted(states) | Admission::Refused { states, .. } = admission {
        for (check, state) in charge.checks.iter().zip(states) {
            if check.shadow && state.standing == Standing::Short {
                let (scope, rule) = (check.scope.as_str(), check.rule);
                metrics::counter!(metric::RATE_LIMIT_SHADOW, "scope" => scope, "rule" => rule).increment(1);
            }
        }
    }
    match admission {
        Admission::Granted(_) => metrics::counter!(metric::RATE_LIMIT_ALLOWED).increment(1),
        Admission::Refused { by, retry_after_ms, .. } => {
            let (scope, rule) = match by {
                RefusedBy::Ip => (LimitScope::Ip.as_str(), "window"),
                RefusedBy::Check(index) => charge
                    .checks
                    .get(*index)
                    .map_or(("unknown", "unknown"), |check| (check.scope.as_str(), check.rule)),
            };
            metrics::counter!(metric::RATE_LIMIT_REJECTED, "scope" => scope, "rule" => rule).increment(1);
            #[expect(
                clippy::cast_precision_loss,
                reason = "a histogram of waits needs no more than 53 bits"
            )]
            metrics::histogram!(metric::RATE_LIMIT_RETRY_AFTER_MS).record(*retry_after_ms as f64);
        }
        Admission::Replay(_) | Admission::CostAboveCapacity { .. } => {}
    }
}
