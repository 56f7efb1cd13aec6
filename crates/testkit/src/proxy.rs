//! A TCP proxy in front of a real server, for the faults that only happen on the way: lost answers, silence,
//! broken connections, distance.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

/// Stands between a client and a server, and does to their bytes what the test asks for. Ends, with its connections,
/// when dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Shared {
    server: String,
    delay_ms: AtomicU64,
    frozen: watch::Sender<bool>,
    /// Ends the present connections.
    cut: Mutex<CancellationToken>,
    refusing: AtomicBool,
    /// What waits for a request.
    trap: Mutex<Option<Trap>>,
    lost: AtomicUsize,
    opened: AtomicUsize,
}

/// Springs at the first request that contains one of the needles.
#[derive(Debug)]
struct Trap {
    needles: Vec<Vec<u8>>,
    act: Act,
}

/// What a trap does to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    LoseRequest,
    LoseAnswer,
    FreezeBefore,
    FreezeAfter,
}

impl Proxy {
    /// A proxy in front of the server that a URL names (`postgres://…`, `redis://…`, `http://…` with a port).
    ///
    /// # Panics
    /// When the URL names no host and port.
    pub async fn before(url: &str) -> Self {
        let url = Url::parse(url).expect("a URL");
        let server =
            format!("{}:{}", url.host_str().expect("a host"), url.port_or_known_default().expect("a port"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            server,
            delay_ms: AtomicU64::new(0),
            frozen: watch::Sender::new(false),
            cut: Mutex::new(end.child_token()),
            refusing: AtomicBool::new(false),
            trap: Mutex::new(None),
            lost: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
        });
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&shared))));
        Self { addr, shared, _end: end.drop_guard() }
    }

    /// The same URL, by way of the proxy.
    ///
    /// # Panics
    /// When the URL names no host.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let mut url = Url::parse(url).expect("a URL");
        url.set_host(Some("127.0.0.1")).expect("a URL with a host");
        url.set_port(Some(self.addr.port())).expect("a URL with a port");
        url.into()
    }

    /// Holds every piece of every connection back for that long, in both directions.
    pub fn set_delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.shared.delay_ms.store(millis, Ordering::Relaxed);
    }

    /// Nothing passes any more, and no connection breaks: the other side seems to hang.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Everything passes again, also what was held back.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Breaks all connections. New ones are let through.
    pub fn cut(&self) {
        let mut cut = self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cut.cancel();
        *cut = CancellationToken::new();
    }

    /// From now on new connections are broken at once, or let through again.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Lets the next request that contains `needle` through, then breaks its connection instead of passing the
    /// server's answer on. Once.
    pub fn lose_answer_to(&self, needle: &str) {
        self.set_trap(&[needle], Act::LoseAnswer);
    }

    /// Breaks the connection of the next request that contains `needle` instead of passing it on. Once.
    pub fn lose_request(&self, needle: &str) {
        self.set_trap(&[needle], Act::LoseRequest);
    }

    /// Freezes every connection when the next request comes that contains one of the needles; the request itself is
    /// held back. Whoever sent it can be killed in exactly this moment: see [`Self::frozen`].
    pub fn freeze_before(&self, needles: &[&str]) {
        self.set_trap(needles, Act::FreezeBefore);
    }

    /// The same, but the request reaches the server and only its answer is held back.
    pub fn freeze_after(&self, needles: &[&str]) {
        self.set_trap(needles, Act::FreezeAfter);
    }

    /// Waits until the connections are frozen.
    pub async fn frozen(&self) {
        // The sender lives in `self`.
        let _ = self.shared.frozen.subscribe().wait_for(|frozen| *frozen).await;
    }

    fn set_trap(&self, needles: &[&str], act: Act) {
        let needles = needles.iter().map(|needle| needle.as_bytes().to_vec()).collect();
        *self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(Trap { needles, act });
    }

    /// How many requests and answers were lost that way.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// How many connections have been opened so far.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.shared.opened.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        if shared.refusing.load(Ordering::SeqCst) {
            continue;
        }
        shared.opened.fetch_add(1, Ordering::SeqCst);
        let cut = shared.cut.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let carried = carry(client, Arc::clone(&shared));
        tokio::spawn(cut.run_until_cancelled_owned(carried));
    }
}

/// Carries one connection's bytes until either side ends it.
async fn carry(mut client: TcpStream, shared: Arc<Shared>) {
    let Ok(mut server) = TcpStream::connect(&shared.server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let answer_is_lost = AtomicBool::new(false);
    let up = async {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            match shared.springs(&piece[..length]) {
                None => shared.hold_back().await,
                Some(Act::LoseAnswer) => answer_is_lost.store(true, Ordering::SeqCst),
                Some(Act::LoseRequest) => {
                    shared.lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Some(Act::FreezeBefore) => {
                    shared.frozen.send_replace(true);
                    shared.hold_back().await;
                }
                // Answers are frozen before this one can come.
                Some(Act::FreezeAfter) => {
                    shared.frozen.send_replace(true);
                }
            }
            if to_server.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            if answer_is_lost.load(Ordering::SeqCst) {
                shared.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            shared.hold_back().await;
            if to_client.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

impl Shared {
    /// What is to be done if this piece is the request that the trap waits for; then the trap is gone.
    fn springs(&self, piece: &[u8]) -> Option<Act> {
        let mut trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |needle: &Vec<u8>| piece.windows(needle.len()).any(|part| part == needle);
        Some(trap.take_if(|trap| trap.needles.iter().any(holds))?.act)
    }

    async fn hold_back(&self) {
        let delay = self.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        // The sender lives in `self`.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }
}

#[cfg(test)]
mod tests {
    use pg::{PgConfig, PgError};

    use super::*;
    use crate::{TestDb, wait_until};

    async fn behind(proxy: &Proxy, db: &TestDb) -> pg::PgPool {
        pg::connect(&PgConfig { max_connections: 2, ..PgConfig::new(proxy.url(&db.url)) }).await.unwrap()
    }

    async fn insert(pool: &pg::PgPool) -> Result<(), PgError> {
        pg::transact(pool, |conn| {
            Box::pin(async move {
                let events = "INSERT INTO outbox_events (topic, key, payload, shard)
                              VALUES ('t', gen_random_uuid(), '', 0)";
                sqlx::query(events).execute(conn).await?;
                Ok(())
            })
        })
        .await
    }

    #[tokio::test]
    async fn a_commit_or_its_answer_can_be_lost_and_the_client_cannot_tell_which() {
        let db = TestDb::new().await;
        let proxy = Proxy::before(&db.url).await;
        let pool = behind(&proxy, &db).await;
        let rows = || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM outbox_events").fetch_one(&pool);

        proxy.lose_answer_to("COMMIT");
        let outcome = insert(&pool).await;
        assert!(matches!(outcome, Err(PgError::CommitUnknown(_))), "{outcome:?}");
        assert_eq!((rows().await.unwrap(), proxy.lost()), (1, 1));

        proxy.lose_request("COMMIT");
        let outcome = insert(&pool).await;
        assert!(matches!(outcome, Err(PgError::CommitUnknown(_))), "{outcome:?}");
        assert_eq!((rows().await.unwrap(), proxy.lost()), (1, 2));
    }

    #[tokio::test]
    async fn everything_can_freeze_before_or_after_one_request() {
        let db = TestDb::new().await;
        for (after, rows) in [(false, 0), (true, 1)] {
            let proxy = Proxy::before(&db.url).await;
            let pool = behind(&proxy, &db).await;
            if after {
                proxy.freeze_after(&["no such text", "COMMIT"]);
            } else {
                proxy.freeze_before(&["no such text", "COMMIT"]);
            }
            let inserting = tokio::spawn({
                let pool = pool.clone();
                async move { insert(&pool).await }
            });
            tokio::time::timeout(Duration::from_secs(10), proxy.frozen()).await.expect("it springs");
            let count =
                || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM outbox_events").fetch_one(&db.pool);
            wait_until("the commit, where it was let through", Duration::from_secs(10), async || {
                count().await.unwrap() == rows
            })
            .await;
            assert!(!inserting.is_finished());
            proxy.thaw();
            inserting.await.unwrap().unwrap();
            sqlx::query("DELETE FROM outbox_events").execute(&db.pool).await.unwrap();
        }
    }

    #[tokio::test]
    async fn connections_can_freeze_and_break() {
        let db = TestDb::new().await;
        let proxy = Proxy::before(&db.url).await;
        let pool = behind(&proxy, &db).await;
        let ask = || sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&pool);
        assert_eq!(ask().await.unwrap(), 1);

        proxy.freeze();
        assert!(tokio::time::timeout(Duration::from_millis(200), ask()).await.is_err());
        proxy.thaw();
        assert_eq!(ask().await.unwrap(), 1);

        let mut held = pool.acquire().await.unwrap();
        let opened = proxy.opened();
        proxy.cut();
        let broken = sqlx::query("SELECT 1").execute(&mut *held).await.unwrap_err();
        assert!(matches!(PgError::from(broken), PgError::Unavailable(_)));
        drop(held);
        // A connection that was used a moment ago is not asked whether it lives; whoever meets a dead one is told so.
        wait_until("a new connection", Duration::from_secs(10), || async { ask().await.is_ok() }).await;
        assert!(proxy.opened() > opened);

        proxy.refuse(true);
        proxy.cut();
        let refused = tokio::time::timeout(Duration::from_millis(200), ask()).await;
        assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
        proxy.refuse(false);
        wait_until("it to be reached again", Duration::from_secs(10), || async { ask().await.is_ok() }).await;
    }
}
