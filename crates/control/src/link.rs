//! One connection to a Redis server, and what is known about its end.
//!
//! All its clones know when it is of no use any more: the server closed it, or somebody waited for an answer in vain. It
//! also counts the bytes that leave. A command that meets a dead connection has either been written, and may have run, or
//! it certainly has not: then it may go over another connection, whatever it does.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bb8_redis::bb8::ManageConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisResult,
    Value, aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::AbortHandle,
};
use tokio_util::io::InspectWriter;

use crate::{error::ControlError, patience};

/// How much longer than ours the limit of the library is, which must never be the one that is met.
const LIBRARY_LIMIT_TIMES: u32 = 4;

/// Why a pipeline has no answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection was dead before anything of it was written.
    NotSent,
    /// Anything else.
    Failed(ControlError),
}

/// A multiplexed connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    wire: Arc<Wire>,
    born: Instant,
}

/// What the clones share. The connection ends with the last of them.
struct Wire {
    broken: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    driver: AbortHandle,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    async fn open(info: &ConnectionInfo, response_limit: Duration) -> RedisResult<Self> {
        // From the beginning: whoever is distrusted while we introduce ourselves is this server.
        let born = Instant::now();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Self::over(stream, info, response_limit, born).await
            }
            ConnectionAddr::Unix(path) => {
                Self::over(UnixStream::connect(path).await?, info, response_limit, born).await
            }
            _ => Err(RedisError::from((ErrorKind::InvalidClientConfig, "neither TCP nor a Unix socket"))),
        }
    }

    async fn over<S>(
        stream: S,
        info: &ConnectionInfo,
        response_limit: Duration,
        born: Instant,
    ) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (broken, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&written);
        let counted = InspectWriter::new(stream, move |bytes: &[u8]| {
            count.fetch_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        });
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(response_limit * LIBRARY_LIMIT_TIMES));
        let (connection, driver) =
            MultiplexedConnection::new_with_config(info.redis_settings(), counted, config).await?;
        let ended = Arc::clone(&broken);
        let driver = tokio::spawn(async move {
            driver.await;
            ended.store(true, Ordering::Relaxed);
        });
        let wire = Arc::new(Wire { broken, written, driver: driver.abort_handle() });
        Ok(Self { connection, wire, born })
    }

    /// One answer per command, in order.
    pub(crate) async fn exchange(
        &mut self,
        pipeline: &Pipeline,
        limit: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let (count, before) = (pipeline.len(), self.written());
        let sent =
            patience::within(limit, pin!(self.connection.send_packed_commands(pipeline, 0, count))).await;
        match sent {
            Ok(Ok(values)) if values.len() == count => Ok(values),
            Ok(Ok(values)) => {
                self.mark_broken();
                let odd = format!("{} answers to {count} commands", values.len());
                Err(Failure::Failed(ControlError::Protocol(odd)))
            }
            Ok(Err(error)) => match ControlError::from(error) {
                error @ ControlError::Protocol(_) => Err(Failure::Failed(error)),
                error => {
                    self.mark_broken();
                    Err(match error {
                        ControlError::Unavailable | ControlError::Unknown if self.written() == before => {
                            Failure::NotSent
                        }
                        // Even a refusal here comes after the connection stood, so the command may have arrived.
                        ControlError::Unavailable | ControlError::Unknown => {
                            Failure::Failed(ControlError::Unknown)
                        }
                        error => Failure::Failed(error),
                    })
                }
            },
            // Whatever the connection still carries is late as well, and may be written any moment.
            Err(patience::Silent) => {
                self.mark_broken();
                Err(Failure::Failed(ControlError::Unknown))
            }
        }
    }

    /// Bytes that have left, of whoever sent them.
    fn written(&self) -> u64 {
        self.wire.written.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_broken(&self) {
        self.wire.broken.store(true, Ordering::Relaxed);
    }

    /// Whether it is of use as far as anybody knows, having been made after `since`.
    pub(crate) fn is_sound(&self, since: Option<Instant>) -> bool {
        !self.wire.broken.load(Ordering::Relaxed) && since.is_none_or(|since| self.born > since)
    }
}

/// How many connections are being made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts(Arc<AtomicUsize>);

/// One of them; it is over when this is dropped.
struct Attempt(Attempts);

impl Attempts {
    fn begin(&self) -> Attempt {
        self.0.fetch_add(1, Ordering::SeqCst);
        Attempt(self.clone())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes connections for the pool, within our own limits.
pub(crate) struct Manager {
    pub(crate) info: ConnectionInfo,
    pub(crate) attempts: Attempts,
    pub(crate) connect_limit: Duration,
    pub(crate) response_limit: Duration,
}

impl ManageConnection for Manager {
    type Connection = Link;
    type Error = RedisError;

    async fn connect(&self) -> Result<Link, RedisError> {
        let _attempt = self.attempts.begin();
        let opening = tokio::time::timeout(self.connect_limit, Link::open(&self.info, self.response_limit));
        opening.await.map_err(|_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))?
    }

    async fn is_valid(&self, link: &mut Link) -> Result<(), RedisError> {
        redis::cmd("PING").exec_async(&mut link.connection).await
    }

    fn has_broken(&self, link: &mut Link) -> bool {
        !link.is_sound(None)
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use testkit::{Proxy, TestRedis, wait_until};

    use super::*;

    const PATIENT: Duration = Duration::from_secs(5);

    async fn open(url: &str) -> Link {
        Link::open(&url.into_connection_info().unwrap(), PATIENT).await.unwrap()
    }

    fn ping() -> Pipeline {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("PING");
        pipeline
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_says_so_before_anybody_asks_it() {
        let redis = TestRedis::new();
        let proxy = Proxy::before(&redis.url).await;
        let mut link = open(&proxy.url(&redis.url)).await;
        assert_eq!(link.exchange(&ping(), PATIENT).await.unwrap().len(), 1);
        assert!(link.is_sound(None));
        proxy.cut();
        wait_until("its end to be seen", PATIENT, async || !link.is_sound(None)).await;
        assert_eq!(link.exchange(&ping(), PATIENT).await, Err(Failure::NotSent));
    }

    #[tokio::test]
    async fn what_was_written_before_the_end_may_have_run() {
        let redis = TestRedis::new();
        let proxy = Proxy::before(&redis.url).await;
        for lose in [Proxy::lose_answer_to, Proxy::lose_request] {
            let mut link = open(&proxy.url(&redis.url)).await;
            lose(&proxy, "PING");
            let failure = link.exchange(&ping(), PATIENT).await;
            assert_eq!(failure, Err(Failure::Failed(ControlError::Unknown)));
            assert!(!link.is_sound(None));
        }
    }

    #[tokio::test]
    async fn silence_is_unknown_and_ends_the_connection_for_all_its_clones() {
        let redis = TestRedis::new();
        let proxy = Proxy::before(&redis.url).await;
        let mut link = open(&proxy.url(&redis.url)).await;
        let clone = link.clone();
        proxy.freeze();
        let failure = link.exchange(&ping(), Duration::from_millis(50)).await;
        assert_eq!(failure, Err(Failure::Failed(ControlError::Unknown)));
        assert!(!clone.is_sound(None));
    }

    #[tokio::test]
    async fn an_older_one_is_not_sound_and_the_last_clone_takes_the_connection_along() {
        let redis = TestRedis::new();
        let link = open(&redis.url).await;
        assert!(!link.is_sound(Some(Instant::now())));
        let (clone, driver) = (link.clone(), link.wire.driver.clone());
        drop(link);
        assert!(!driver.is_finished());
        drop(clone);
        wait_until("the end of the driver", PATIENT, async || driver.is_finished()).await;
    }
}
