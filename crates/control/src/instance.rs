//! One Redis server: its pool, its limits and its breaker.
//!
//! A connection of the pool is multiplexed: it is checked out only to be cloned, so many pipelines share one
//! socket and a caller never waits for another caller's answer. A pipeline has a limit of its own; when it passes,
//! the outcome is unknown and the connection is replaced, since whatever it still carries is late as well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bb8_redis::RedisConnectionManager;
use domain::complaints::Complaints;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value, aio::MultiplexedConnection};

use crate::{
    breaker::{Breaker, BreakerState, Verdict},
    config::{ConfigError, ControlConfig, Instance},
    error::ControlError,
    patience,
    script::{Call, Loader},
};

/// Commands per pipeline at most; a longer slice goes as several, one after the other. A script takes some tens of
/// microseconds and the server does one thing at a time, so this is also how long others wait behind a slice.
const PIPELINE_MAX: usize = 128;

/// How much longer than ours the limit of the library is, which must never be the one that is met.
const LIBRARY_LIMIT_TIMES: u32 = 4;

/// What one command of a pipeline was answered.
pub(crate) type Answer = Result<Value, ControlError>;

/// A handle on one server.
pub(crate) struct Server {
    name: &'static str,
    pool: bb8::Pool<Manager>,
    breaker: Arc<Breaker>,
    loader: Loader,
    response_limit: Duration,
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
        let info = config.connection(instance)?;
        let inner = RedisConnectionManager::new(info).map_err(|_| ConfigError::Url {
            name: instance.name(),
            reason: "it cannot be parsed".to_owned(),
        })?;
        let manager =
            Manager { inner, connect_limit: config.connect_limit, response_limit: config.response_limit };
        let pool = bb8::Pool::builder()
            .max_size(config.pool_size)
            // A ping per check-out would double every round trip; broken connections mark themselves instead.
            .test_on_check_out(false)
            .connection_timeout(config.connect_limit)
            .retry_connection(false)
            .build_unchecked(manager);
        Ok(Self {
            name: instance.name(),
            pool,
            breaker,
            loader: Loader::default(),
            response_limit: config.response_limit,
            complaints: Complaints::new(),
        })
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.breaker.state()
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
        let values = self.send(calls.iter().map(Call::command)).await?;
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
                Ok(()) => self.send(forgotten.iter().map(|index| calls[*index].command())).await,
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
    async fn send(&self, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>, ControlError> {
        let mut pipeline = Pipeline::new();
        let mut count = 0;
        for command in commands {
            pipeline.add_command(command);
            count += 1;
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        if !self.breaker.admit(Instant::now()) {
            return Err(ControlError::Unavailable);
        }
        let before = self.breaker.state();
        let outcome = self.exchange(&pipeline, count).await;
        let verdict = match &outcome {
            Err(ControlError::Unavailable | ControlError::Unknown) => Verdict::Silent,
            _ => Verdict::Answered,
        };
        self.breaker.report(verdict, Instant::now());
        let after = self.breaker.state();
        if before == BreakerState::Closed && after == BreakerState::Open {
            if let Some(silent) = self.complaints.complain(Instant::now()) {
                tracing::warn!(
                    instance = self.name,
                    silent,
                    "Redis does not answer; commands are refused until a probe succeeds"
                );
            }
        } else if before != BreakerState::Closed && after == BreakerState::Closed {
            tracing::info!(instance = self.name, "Redis answers again");
        }
        outcome
    }

    /// A clone of a pooled connection that is not known to be broken.
    async fn link(&self) -> Result<Link, ControlError> {
        loop {
            let pooled = self.pool.get().await.map_err(|error| {
                tracing::debug!(instance = self.name, %error, "no connection to Redis");
                ControlError::Unavailable
            })?;
            if !pooled.is_broken() {
                return Ok(pooled.clone());
            }
            // Dropping it removes it from the pool, so this ends after as many turns as the pool is large.
        }
    }

    async fn exchange(&self, pipeline: &Pipeline, count: usize) -> Result<Vec<Value>, ControlError> {
        // Not being able to connect is certain: nothing was sent.
        let mut link = self.link().await?;
        let sent =
            patience::within(self.response_limit, link.connection.send_packed_commands(pipeline, 0, count));
        match sent.await {
            Ok(Ok(values)) if values.len() == count => Ok(values),
            Ok(Ok(values)) => {
                link.mark_broken();
                Err(ControlError::Protocol(format!("{} answers to {count} commands", values.len())))
            }
            Ok(Err(error)) => {
                let error = ControlError::from(error);
                if !matches!(error, ControlError::Protocol(_)) {
                    link.mark_broken();
                }
                // Even a refusal here comes after the connection stood, so the command may have arrived.
                Err(if error == ControlError::Unavailable { ControlError::Unknown } else { error })
            }
            Err(_) => {
                link.mark_broken();
                Err(ControlError::Unknown)
            }
        }
    }
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

/// A pooled connection that remembers, in all its clones, that it is of no use any more.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    broken: Arc<AtomicBool>,
}

impl Link {
    fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

/// bb8-redis's manager with our own limits, and with an answer to "is it broken".
struct Manager {
    inner: RedisConnectionManager,
    connect_limit: Duration,
    response_limit: Duration,
}

impl bb8::ManageConnection for Manager {
    type Connection = Link;
    type Error = RedisError;

    async fn connect(&self) -> Result<Link, RedisError> {
        let connecting = tokio::time::timeout(self.connect_limit, self.inner.connect());
        let mut connection = connecting
            .await
            .map_err(|_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))??;
        connection.set_response_timeout(self.response_limit * LIBRARY_LIMIT_TIMES);
        Ok(Link { connection, broken: Arc::new(AtomicBool::new(false)) })
    }

    async fn is_valid(&self, link: &mut Link) -> Result<(), RedisError> {
        self.inner.is_valid(&mut link.connection).await
    }

    fn has_broken(&self, link: &mut Link) -> bool {
        link.is_broken()
    }
}
