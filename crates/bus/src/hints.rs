//! Nudges: within the process by a bell per topic, between processes by LISTEN and NOTIFY.
//!
//! NOTIFY inside a writing transaction would make all commits wait for one another, so it goes out on a connection
//! of its own, after the commit, at most every 10 ms however many ask for it, and only for topics that nobody in
//! this process consumes. All of it is a hint: lost ones cost the time to the next look.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use outbox::Topic;
use sqlx::{
    Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::{
    sync::{Notify, futures::Notified},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

const CHANNEL: &str = "aiv_bus";
/// The shortest time between two NOTIFY.
const PACE: Duration = Duration::from_millis(10);
/// How long the server may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// After which silence the listening connection is asked whether it is alive.
const SILENCE: Duration = Duration::from_secs(15);
/// The pause after a fault.
const RECOVERY: Duration = Duration::from_secs(1);

/// The nudges of one process. Its connections end with this value.
pub(crate) struct Hints {
    shared: Arc<Shared>,
    connect: Arc<PgConnectOptions>,
    listening: AtomicBool,
    alive: CancellationToken,
    _end: DropGuard,
}

struct Shared {
    bells: [Notify; Topic::ALL.len()],
    /// How many consumers each topic has in this process.
    consumers: [AtomicUsize; Topic::ALL.len()],
    /// Topics that other processes are to be told about, as bits.
    untold: AtomicU8,
    tell: Notify,
}

/// A consumer in this process.
pub(crate) struct Consuming<'a>(&'a AtomicUsize);

impl Drop for Consuming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const fn bit(topic: Topic) -> u8 {
    1 << topic as u8
}

impl Hints {
    pub(crate) fn new(pool: &PgPool) -> Self {
        let shared = Arc::new(Shared {
            bells: std::array::from_fn(|_| Notify::new()),
            consumers: std::array::from_fn(|_| AtomicUsize::new(0)),
            untold: AtomicU8::new(0),
            tell: Notify::new(),
        });
        let (connect, alive) = (pool.connect_options(), CancellationToken::new());
        tokio::spawn(
            alive.clone().run_until_cancelled_owned(tell(Arc::clone(&shared), Arc::clone(&connect))),
        );
        Self { shared, connect, listening: AtomicBool::new(false), _end: alive.clone().drop_guard(), alive }
    }

    /// Notes that this process consumes the topic for as long as the guard lives, and begins to listen for others.
    pub(crate) fn consume(&self, topic: Topic) -> Consuming<'_> {
        let consumers = &self.shared.consumers[topic as usize];
        consumers.fetch_add(1, Ordering::Relaxed);
        self.listen();
        Consuming(consumers)
    }

    /// Begins to listen for other processes, if that has not been done.
    pub(crate) fn listen(&self) {
        if !self.listening.swap(true, Ordering::Relaxed) {
            let listening = listen(Arc::clone(&self.shared), Arc::clone(&self.connect));
            tokio::spawn(self.alive.clone().run_until_cancelled_owned(listening));
        }
    }

    /// The bell of a topic. Arm it before looking for messages, so that none slips in between.
    pub(crate) fn bell(&self, topic: Topic) -> Notified<'_> {
        self.shared.bells[topic as usize].notified()
    }

    pub(crate) fn nudge(&self, topic: Topic) {
        self.shared.ring(topic);
        if self.shared.consumers[topic as usize].load(Ordering::Relaxed) == 0 {
            self.shared.untold.fetch_or(bit(topic), Ordering::Relaxed);
            self.shared.tell.notify_one();
        }
    }
}

impl Shared {
    fn ring(&self, topic: Topic) {
        self.bells[topic as usize].notify_waiters();
    }
}

/// Tells other processes what has been nudged in this one.
async fn tell(shared: Arc<Shared>, options: Arc<PgConnectOptions>) {
    let mut connection = None;
    loop {
        shared.tell.notified().await;
        let untold = shared.untold.swap(0, Ordering::Relaxed);
        let topics = Topic::ALL.iter().filter(|topic| untold & bit(**topic) != 0);
        let payload = topics.map(|topic| topic.as_str()).collect::<Vec<_>>().join(" ");
        match timeout(ANSWER_LIMIT, notify(connection.take(), &options, &payload)).await {
            Ok(Ok(open)) => {
                connection = Some(open);
                sleep(PACE).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a hint to other processes is lost");
                sleep(RECOVERY).await;
            }
            Err(_) => sleep(RECOVERY).await,
        }
    }
}

async fn notify(
    connection: Option<PgConnection>,
    options: &PgConnectOptions,
    payload: &str,
) -> sqlx::Result<PgConnection> {
    let mut connection = match connection {
        Some(connection) => connection,
        // Nobody waits for the disk on account of a hint.
        None => PgConnection::connect_with(&options.clone().options([("synchronous_commit", "off")])).await?,
    };
    sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&mut connection).await?;
    Ok(connection)
}

/// Rings the bells that other processes ask for.
async fn listen(shared: Arc<Shared>, options: Arc<PgConnectOptions>) {
    // A pool of one: the listener takes its connection from a pool, and must not take it from the one for work.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .acquire_timeout(ANSWER_LIMIT)
        .connect_lazy_with((*options).clone());
    loop {
        if let Err(error) = listen_once(&shared, &pool).await {
            tracing::debug!(%error, "not listening for hints");
        }
        sleep(RECOVERY).await;
    }
}

async fn listen_once(shared: &Shared, pool: &PgPool) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(hint))) => {
                hint.payload()
                    .split(' ')
                    .filter_map(|topic| topic.parse().ok())
                    .for_each(|topic| shared.ring(topic));
            }
            // The connection was lost, and hints with it.
            Ok(Ok(None)) => Topic::ALL.iter().for_each(|topic| shared.ring(*topic)),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                timeout(ANSWER_LIMIT, sqlx::query("SELECT 1").execute(&mut listener))
                    .await
                    .map_err(|_| sqlx::Error::PoolTimedOut)??;
            }
        }
    }
}
