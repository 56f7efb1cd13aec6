//! One Redis server: its pool, its limits and its breaker.
//!
//! A connection of the pool is multiplexed: it is checked out only to be cloned, so many pipelines share one
//! socket and a caller never waits for another caller's answer. A pipeline has a limit of its own; when it passes,
//! the outcome is unknown and the connection is replaced, since whatever it still carries is late as well.
//!
//! After a restart or a failover every connection of the pool leads nowhere, or to the wrong server. So who meets one that is
//! dead goes again over a fresh one, if nothing was sent, and everything older is thrown away; the same when the breaker opens.
//! A server that refuses connections is found out at once: the pool would let its callers wait for one until their limit.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bb8_redis::bb8;
use domain::complaints::Complaints;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};
use tokio::sync::Notify;

use crate::{
    breaker::{Breaker, BreakerState, Pass, Verdict},
    config::{ConfigError, ControlConfig, Instance},
    error::ControlError,
    keys::Keys,
    link::{Attempts, Failure, Link, Manager},
    patience,
    script::{Call, Loader},
    ttl::millis,
};

/// Commands per pipeline at most; a longer slice goes as several, one after the other. A script takes some tens of
/// microseconds and the server does one thing at a time, so this is also how long others wait behind a slice.
const PIPELINE_MAX: usize = 128;

/// How long what a probe has written stays.
const PROBE_TTL: Duration = Duration::from_secs(10);

/// What one command of a pipeline was answered.
pub(crate) type Answer = Result<Value, ControlError>;

/// A handle on one server.
pub(crate) struct Server {
    name: &'static str,
    pool: bb8::Pool<Manager>,
    breaker: Arc<Breaker>,
    loader: Loader,
    /// Writes something: only a server that takes writes is of use.
    probe: Call,
    connect_limit: Duration,
    response_limit: Duration,
    refusals: Refusals,
    /// Connections that are older lead to a server that has gone.
    gone: Mutex<Option<Instant>>,
    /// That it is away: every call that was under way finds it out.
    complaints: Complaints,
}

impl Server {
    /// A server with a breaker of its own.
    pub(crate) fn new(instance: Instance, config: &ControlConfig) -> Result<Self, ConfigError> {
        Self::with(instance, config, Arc::new(Breaker::new(config.breaker_failures, config.breaker_pause)))
    }

    /// The same server for another event loop: other connections behind the same breaker.
    pub(crate) fn beside(&self, instance: Instance, config: &ControlConfig) -> Result<Self, ConfigError> {
        Self::with(instance, config, Arc::clone(&self.breaker))
    }

    fn with(instance: Instance, config: &ControlConfig, breaker: Arc<Breaker>) -> Result<Self, ConfigError> {
        let attempts = Attempts::default();
        let manager = Manager {
            info: config.connection(instance)?,
            attempts: attempts.clone(),
            connect_limit: config.connect_limit,
            response_limit: config.response_limit,
        };
        let refusals = Refusals { name: instance.name(), attempts, heard: Arc::default() };
        let pool = bb8::Pool::builder()
            .max_size(config.pool_size)
            // A ping per check-out would double every round trip; broken connections say so themselves.
            .test_on_check_out(false)
            .connection_timeout(config.connect_limit)
            .retry_connection(false)
            .error_sink(Box::new(refusals.clone()))
            .build_unchecked(manager);
        Ok(Self {
            name: instance.name(),
            pool,
            breaker,
            loader: Loader::default(),
            probe: command("SET")
                .arg(Keys::new(&config.prefix).probe())
                .arg("")
                .arg("PX")
                .arg(millis(PROBE_TTL)),
            connect_limit: config.connect_limit,
            response_limit: config.response_limit,
            refusals,
            gone: Mutex::default(),
            complaints: Complaints::new(),
        })
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Whether it takes writes.
    pub(crate) async fn probe(&self) -> Result<(), ControlError> {
        self.calls_done(vec![self.probe.clone()]).await
    }

    /// One script or command.
    pub(crate) async fn call<T: FromRedisValue>(&self, call: Call) -> Result<T, ControlError> {
        let answer = self.calls(vec![call]).await?.pop();
        parse(answer.unwrap_or_else(|| Err(ControlError::Protocol("no answer".to_owned())))?)
    }

    /// Several, each with an answer of the same type; the first that failed fails all.
    pub(crate) async fn calls_as<T: FromRedisValue>(&self, calls: Vec<Call>) -> Result<Vec<T>, ControlError> {
        self.calls(calls).await?.into_iter().map(|answer| answer.and_then(parse)).collect()
    }

    /// Several whose answers say nothing.
    pub(crate) async fn calls_done(&self, calls: Vec<Call>) -> Result<(), ControlError> {
        self.calls(calls).await?.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Scripts and plain commands in one pipeline; one answer each, in order. A server that has forgotten the
    /// scripts is taught them once, and only what it did not run is sent again.
    ///
    /// # Errors
    /// When nothing of it got an answer. What fails later fails for those commands alone, since the earlier ones ran.
    pub(crate) async fn calls(&self, calls: Vec<Call>) -> Result<Vec<Answer>, ControlError> {
        let mut answers: Vec<Answer> = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(PIPELINE_MAX) {
            match self.pipeline(chunk).await {
                Ok(more) => answers.extend(more),
                Err(error) if answers.is_empty() => return Err(error),
                // The rest was not sent, and would only wait as long in vain.
                Err(error) => {
                    answers.extend(chunk.iter().map(|_| Err(error.clone())));
                    answers.resize_with(calls.len(), || Err(ControlError::Unavailable));
                    break;
                }
            }
        }
        Ok(answers)
    }

    async fn pipeline(&self, calls: &[Call]) -> Result<Vec<Answer>, ControlError> {
        let seen = self.loader.generation();
        let values = self.send(calls.iter().map(Call::command).collect()).await?;
        let mut forgotten = Vec::new();
        let mut answers: Vec<Answer> = Vec::with_capacity(values.len());
        for (index, value) in values.into_iter().enumerate() {
            if matches!(&value, Value::ServerError(error) if error.code() == "NOSCRIPT") {
                forgotten.push(index);
            }
            answers.push(typed(value));
        }
        if !forgotten.is_empty() {
            let again = match self.loader.load(seen, async |commands| self.send(commands).await).await {
                Ok(()) => self.send(forgotten.iter().map(|index| calls[*index].command()).collect()).await,
                Err(error) => Err(error),
            };
            match again {
                Ok(values) => {
                    forgotten.into_iter().zip(values).for_each(|(index, value)| answers[index] = typed(value))
                }
                Err(error) => forgotten.into_iter().for_each(|index| answers[index] = Err(error.clone())),
            }
        }
        Ok(answers)
    }

    /// Sends one pipeline under the breaker and the limits; one raw answer per command.
    async fn send(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, ControlError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let Some(pass) = self.breaker.admit(Instant::now()) else { return Err(ControlError::Unavailable) };
        let probe = (pass == Pass::Probe).then(|| self.probe.command());
        let probes = usize::from(probe.is_some());
        let mut pipeline = Pipeline::new();
        for command in probe.into_iter().chain(commands) {
            pipeline.add_command(command);
        }
        let before = self.breaker.state();
        let outcome = self.exchange(&pipeline).await;
        self.breaker.report(pass, verdict(&outcome), Instant::now());
        self.tell(before, &outcome);
        outcome.map(|mut values| values.split_off(probes))
    }

    /// Says when it goes and when it is back.
    fn tell(&self, before: BreakerState, outcome: &Result<Vec<Value>, ControlError>) {
        let after = self.breaker.state();
        if before == BreakerState::Closed && after == BreakerState::Open {
            if let Some(silent) = self.complaints.complain(Instant::now()) {
                let reason = match outcome {
                    Ok(values) => {
                        values.iter().find_map(refusal).map_or("other callers", |error| error.label())
                    }
                    Err(error) => error.label(),
                };
                tracing::warn!(
                    instance = self.name,
                    reason,
                    silent,
                    "Redis is of no use; commands are refused until a probe succeeds"
                );
            }
        } else if before != BreakerState::Closed && after == BreakerState::Closed {
            tracing::info!(instance = self.name, "Redis is well again");
        }
    }

    /// A clone of a pooled connection that is sound as far as anybody knows.
    async fn link(&self) -> Result<Link, ControlError> {
        // It hears from now on, not from its first look.
        let mut refused = pin!(self.refusals.heard.notified());
        let find = pin!(async {
            loop {
                let pooled = self.pool.get().await?;
                if pooled.is_sound(self.gone()) {
                    return Ok::<_, bb8::RunError<RedisError>>(pooled.clone());
                }
                // Dropping it removes it from the pool, so this ends after as many turns as the pool is large.
                pooled.mark_broken();
            }
        });
        let mut found = pin!(patience::within(self.connect_limit, find));
        loop {
            tokio::select! {
                biased;
                found = &mut found => match found {
                    Ok(Ok(link)) => return Ok(link),
                    Ok(Err(error)) => tracing::debug!(instance = self.name, %error, "no connection to Redis"),
                    Err(patience::Silent) => tracing::debug!(instance = self.name, "no connection in time"),
                },
                // Others that stand serve us in a moment.
                () = &mut refused => if self.pool.state().connections > 0 {
                    refused.set(self.refusals.heard.notified());
                    continue;
                },
            }
            // Not being able to connect is certain: nothing was sent.
            return Err(ControlError::Unavailable);
        }
    }

    /// When it was last seen to have gone.
    fn gone(&self) -> Option<Instant> {
        let seen = *self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        seen.max(self.breaker.opened())
    }

    async fn exchange(&self, pipeline: &Pipeline) -> Result<Vec<Value>, ControlError> {
        match self.link().await?.exchange(pipeline, self.response_limit).await {
            Ok(values) => return Ok(values),
            Err(Failure::Failed(error)) => return Err(error),
            // It died while nobody looked, and its neighbours with it.
            Err(Failure::NotSent) => {
                *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
        }
        match self.link().await?.exchange(pipeline, self.response_limit).await {
            Ok(values) => Ok(values),
            Err(Failure::Failed(error)) => Err(error),
            Err(Failure::NotSent) => Err(ControlError::Unavailable),
        }
    }
}

/// What the pool tells of connections that could not be made. It tells nobody who waits for one; they hear it here when the
/// last attempt has failed, for another may still succeed.
#[derive(Debug, Clone)]
struct Refusals {
    name: &'static str,
    attempts: Attempts,
    heard: Arc<Notify>,
}

impl bb8::ErrorSink<RedisError> for Refusals {
    fn sink(&self, error: RedisError) {
        tracing::debug!(instance = self.name, %error, "a connection to Redis could not be made");
        if self.attempts.is_over() {
            self.heard.notify_waiters();
        }
    }

    fn boxed_clone(&self) -> Box<dyn bb8::ErrorSink<RedisError>> {
        Box::new(self.clone())
    }
}

/// What an outcome says about the server.
fn verdict(outcome: &Result<Vec<Value>, ControlError>) -> Verdict {
    match outcome {
        Err(ControlError::Unavailable | ControlError::Unknown) => Verdict::Silent,
        Ok(values) if values.iter().any(|value| refusal(value).is_some()) => Verdict::Refusing,
        _ => Verdict::Answered,
    }
}

/// The error reply that says that the server is of no use for now, whatever it is asked.
fn refusal(value: &Value) -> Option<ControlError> {
    let Value::ServerError(error) = value else { return None };
    let error = ControlError::from_code(error.code(), error.details().unwrap_or_default());
    error.is_refusal().then_some(error)
}

/// Starts a plain command; its arguments by [`Call::arg`].
pub(crate) fn command(name: &str) -> Call {
    Call::from(redis::cmd(name))
}

/// An answer as the caller's type.
pub(crate) fn parse<T: FromRedisValue>(value: Value) -> Result<T, ControlError> {
    T::from_redis_value(value).map_err(|error| ControlError::Protocol(error.to_string()))
}

/// Sorts an error reply of one command out of the values.
fn typed(value: Value) -> Answer {
    match value {
        Value::ServerError(error) => {
            Err(ControlError::from_code(error.code(), error.details().unwrap_or_default()))
        }
        value => Ok(value),
    }
}
