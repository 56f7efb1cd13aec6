//! One subscription per tenant and process, on a connection of its own.
//!
//! Watchers only register what they want; one task makes the connection's subscriptions equal to it, again after every
//! reconnection. So nothing is queued, and a lost connection needs no bookkeeping.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use domain::TenantId;
use futures::StreamExt;
use redis::{
    Client, Msg,
    aio::{PubSubSink, PubSubStream},
};
use tokio::{
    sync::{Notify, broadcast, watch},
    time::timeout,
};

use crate::{Change, ConfigError, Control, ControlConfig, config::Instance, keys::Keys};

/// Signals that a watcher may lag behind before it is told to read again.
const LAG_MAX: usize = 1_024;
/// How often an idle connection is asked whether it still stands.
const PING_EVERY: Duration = Duration::from_secs(3);
/// Channels per command.
const SUBSCRIBE_MAX: usize = 256;

/// What a watcher hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// A task changed.
    Change(Change),
    /// Something may have been missed (reconnection, overflow): read again.
    Gap,
}

/// The process's subscriptions.
#[derive(Clone)]
pub(crate) struct Subscriptions(Arc<Shared>);

struct Shared {
    keys: Keys,
    client: Client,
    connect_limit: Duration,
    response_limit: Duration,
    tenants: Mutex<HashMap<TenantId, Tenant>>,
    changed: Arc<Notify>,
    running: AtomicBool,
}

struct Tenant {
    signals: broadcast::Sender<Signal>,
    /// Whether the server has confirmed the subscription that stands now.
    confirmed: watch::Sender<bool>,
    /// Whether something may have been published unheard since the first watcher came.
    missed: bool,
    watchers: usize,
}

impl Subscriptions {
    pub(crate) fn new(keys: Keys, config: &ControlConfig) -> Result<Self, ConfigError> {
        let info = config.connection(Instance::Realtime)?;
        let client = Client::open(info).map_err(|_| ConfigError::Url {
            name: "REDIS_REALTIME_URL",
            reason: "it cannot be parsed".to_owned(),
        })?;
        Ok(Self(Arc::new(Shared {
            keys,
            client,
            connect_limit: config.connect_limit,
            response_limit: config.response_limit,
            tenants: Mutex::default(),
            changed: Arc::new(Notify::new()),
            running: AtomicBool::new(false),
        })))
    }

    /// How a further connection for pub/sub is made: where to, and how long connecting and answers may take.
    pub(super) fn dial(&self) -> (&Client, Duration, Duration) {
        (&self.0.client, self.0.connect_limit, self.0.response_limit)
    }
}

impl Shared {
    fn tenants(&self) -> std::sync::MutexGuard<'_, HashMap<TenantId, Tenant>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watcher went on without a confirmed subscription.
    fn note_missed(&self, tenant: TenantId) {
        if let Some(entry) = self.tenants().get_mut(&tenant) {
            if *entry.confirmed.borrow() {
                // Confirmed in this very moment, so nobody else will tell.
                let _ = entry.signals.send(Signal::Gap);
            } else {
                entry.missed = true;
            }
        }
    }

    fn leave(&self, tenant: TenantId) {
        let mut tenants = self.tenants();
        if let Some(entry) = tenants.get_mut(&tenant) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                tenants.remove(&tenant);
                self.changed.notify_one();
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// A tenant's changes from now on. Dropping the last one of a tenant ends the subscription.
pub struct TenantWatch {
    tenant: TenantId,
    signals: broadcast::Receiver<Signal>,
    confirmed: watch::Receiver<bool>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for TenantWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantWatch").field("tenant", &self.tenant).field("live", &self.is_live()).finish()
    }
}

impl TenantWatch {
    /// The next signal. Never ends; while Redis is away it is silent, and the first signal afterwards is a `Gap`.
    pub async fn next(&mut self) -> Signal {
        match self.signals.recv().await {
            Ok(signal) => signal,
            Err(broadcast::error::RecvError::Lagged(_)) => Signal::Gap,
            // The sender lives as long as a watcher is registered, which this one is.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Whether changes are heard at the moment. If not, poll.
    #[must_use]
    pub fn is_live(&self) -> bool {
        *self.confirmed.borrow()
    }
}

impl Drop for TenantWatch {
    fn drop(&mut self) {
        self.shared.leave(self.tenant);
    }
}

impl Control {
    /// Watches a tenant. When this returns, changes published from now on are heard (or, with realtime away, a `Gap`
    /// will be): watch first, then read.
    pub async fn watch_tenant(&self, tenant: TenantId) -> TenantWatch {
        let shared = &self.0.subscriptions.0;
        let mut watch = {
            let mut tenants = shared.tenants();
            let entry = tenants.entry(tenant).or_insert_with(|| Tenant {
                signals: broadcast::channel(LAG_MAX).0,
                confirmed: watch::channel(false).0,
                missed: false,
                watchers: 0,
            });
            entry.watchers += 1;
            TenantWatch {
                tenant,
                signals: entry.signals.subscribe(),
                confirmed: entry.confirmed.subscribe(),
                shared: Arc::clone(shared),
            }
        };
        if !shared.running.swap(true, Ordering::AcqRel) {
            tokio::spawn(run(Arc::downgrade(shared), Arc::clone(&shared.changed)));
        }
        shared.changed.notify_one();
        // With realtime away the stream goes on by polling; the Gap comes with the reconnection.
        let limit = shared.connect_limit + shared.response_limit;
        if timeout(limit, watch.confirmed.wait_for(|confirmed| *confirmed)).await.is_err() {
            shared.note_missed(tenant);
        }
        watch
    }
}

/// Keeps a connection for as long as the process has a handle.
async fn run(shared: Weak<Shared>, changed: Arc<Notify>) {
    let fresh_pauses = || {
        ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(2))
            .with_jitter()
            .without_max_times()
            .build()
    };
    let mut pauses = fresh_pauses();
    let mut said = false;
    loop {
        let Some(now) = shared.upgrade() else { return };
        let connecting = timeout(now.connect_limit, now.client.get_async_pubsub()).await;
        let limit = now.response_limit;
        drop(now);
        if let Ok(Ok(connection)) = connecting {
            let (sink, stream) = connection.split();
            if said {
                tracing::info!("the subscription connection stands again");
            }
            (pauses, said) = (fresh_pauses(), false);
            serve(&shared, &changed, sink, stream, limit).await;
        }
        let Some(now) = shared.upgrade() else { return };
        for tenant in now.tenants().values_mut() {
            tenant.confirmed.send_replace(false);
            tenant.missed = true;
        }
        drop(now);
        if !said {
            tracing::warn!("the subscription connection is lost; streams poll until it is back");
            said = true;
        }
        tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(2))).await;
    }
}

/// Serves one connection until it breaks or nobody holds a handle any more.
async fn serve(
    shared: &Weak<Shared>,
    changed: &Notify,
    mut sink: PubSubSink,
    mut stream: PubSubStream,
    limit: Duration,
) {
    let mut subscribed: HashMap<String, TenantId> = HashMap::new();
    let mut ping = tokio::time::interval(PING_EVERY);
    let mut stale = true;
    loop {
        if std::mem::take(&mut stale) {
            let Some(now) = shared.upgrade() else { return };
            if adjust(&now, &mut sink, &mut subscribed, limit).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = changed.notified() => stale = true,
            message = stream.next() => {
                let (Some(message), Some(now)) = (message, shared.upgrade()) else { return };
                deliver(&now, &subscribed, &message);
            }
            _ = ping.tick() => {
                if !matches!(timeout(limit, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

/// Makes the connection's subscriptions equal to what is wanted.
async fn adjust(
    shared: &Shared,
    sink: &mut PubSubSink,
    subscribed: &mut HashMap<String, TenantId>,
    limit: Duration,
) -> Result<(), Broken> {
    let mut standing: HashSet<TenantId> = subscribed.values().copied().collect();
    let (new, gone): (Vec<_>, Vec<_>) = {
        let wanted = shared.tenants();
        let new = wanted.keys().filter(|tenant| !standing.contains(tenant)).copied().collect();
        (new, standing.iter().filter(|tenant| !wanted.contains_key(tenant)).copied().collect())
    };
    for tenants in gone.chunks(SUBSCRIBE_MAX) {
        let channels: Vec<_> = tenants.iter().map(|tenant| shared.keys.channel(*tenant)).collect();
        within(limit, sink.unsubscribe(&channels)).await?;
        for (channel, tenant) in channels.iter().zip(tenants) {
            subscribed.remove(channel);
            standing.remove(tenant);
        }
    }
    for tenants in new.chunks(SUBSCRIBE_MAX) {
        let channels: Vec<_> = tenants.iter().map(|tenant| shared.keys.channel(*tenant)).collect();
        within(limit, sink.subscribe(&channels)).await?;
        standing.extend(tenants);
        subscribed.extend(channels.into_iter().zip(tenants.iter().copied()));
    }
    // Also those that were wanted, dropped and wanted again while they stood.
    for (tenant, entry) in shared.tenants().iter_mut() {
        if standing.contains(tenant) && !*entry.confirmed.borrow() {
            if std::mem::take(&mut entry.missed) {
                // Nobody listening any more is no fault.
                let _ = entry.signals.send(Signal::Gap);
            }
            entry.confirmed.send_replace(true);
        }
    }
    Ok(())
}

/// The connection is of no use any more.
struct Broken;

async fn within(limit: Duration, answer: impl Future<Output = redis::RedisResult<()>>) -> Result<(), Broken> {
    timeout(limit, answer).await.map_err(|_| Broken)?.map_err(|_| Broken)
}

fn deliver(shared: &Shared, subscribed: &HashMap<String, TenantId>, message: &Msg) {
    let Some(tenant) = subscribed.get(message.get_channel_name()) else { return };
    // What cannot be read is still news.
    let signal = serde_json::from_slice(message.get_payload_bytes()).map_or(Signal::Gap, Signal::Change);
    if let Some(entry) = shared.tenants().get(tenant) {
        // Nobody listening any more is no fault.
        let _ = entry.signals.send(signal);
    }
}

#[cfg(test)]
mod tests {
    use domain::TaskId;

    use super::*;
    use crate::{Projection, testing::Corner};

    const SOON: Duration = Duration::from_secs(5);

    fn change(tenant: TenantId, version: i32) -> Change {
        Change { tenant, task: TaskId::generate(), version, kind: "running".to_owned(), progress: Some(3) }
    }

    async fn subscribers(corner: &Corner, tenant: TenantId) -> i64 {
        let channel = corner.keys().channel(tenant);
        let (_, count): (String, i64) = corner.raw(&["PUBSUB", "NUMSUB", &channel]).await;
        count
    }

    #[tokio::test]
    async fn watchers_of_a_tenant_share_one_subscription_and_hear_what_another_process_publishes() {
        let corner = Corner::new();
        let (tenant, stranger) = (TenantId::generate(), TenantId::generate());
        let mut watches = [
            corner.control.watch_tenant(tenant).await,
            corner.control.watch_tenant(tenant).await,
            corner.control.watch_tenant(stranger).await,
        ];
        assert!(watches.iter().all(TenantWatch::is_live));
        assert_eq!(subscribers(&corner, tenant).await, 1);

        let changes: Vec<_> = (1..=300).map(|version| change(tenant, version)).collect();
        corner.other().publish(&changes).await.unwrap();
        for watch in &mut watches[..2] {
            for change in &changes {
                let heard = timeout(SOON, watch.next()).await.unwrap();
                assert_eq!(heard, Signal::Change(change.clone()));
            }
        }
        // The stranger hears its own first, so nothing else came before.
        let own = change(stranger, 1);
        corner.other().publish(std::slice::from_ref(&own)).await.unwrap();
        assert_eq!(timeout(SOON, watches[2].next()).await.unwrap(), Signal::Change(own));

        let [one, other, _] = watches;
        drop(one);
        assert_eq!(subscribers(&corner, tenant).await, 1);
        drop(other);
        testkit::wait_until("the subscription to end", SOON, async || {
            subscribers(&corner, tenant).await == 0
        })
        .await;
        // And again, as a stream that reconnects does.
        let mut again = corner.control.watch_tenant(tenant).await;
        corner.control.publish(&changes[..1]).await.unwrap();
        assert_eq!(timeout(SOON, again.next()).await.unwrap(), Signal::Change(changes[0].clone()));
    }

    #[tokio::test]
    async fn a_projection_is_heard_when_its_snapshot_can_be_read() {
        let corner = Corner::new();
        let tenant = TenantId::generate();
        let mut watch = corner.control.watch_tenant(tenant).await;
        let change = change(tenant, 5);
        let json = r#"{"version":5}"#.to_owned();
        let projection = Projection { json: json.clone(), ttl: SOON, change: change.clone() };
        corner.other().project(&[projection]).await.unwrap();
        assert_eq!(timeout(SOON, watch.next()).await.unwrap(), Signal::Change(change.clone()));
        assert_eq!(corner.control.get_snapshots(&[change.task]).await, Ok(vec![Some(json)]));
        let stream = corner.keys().stream(tenant);
        assert_eq!(corner.raw::<i64>(&["XLEN", &stream]).await, 1);
        assert!(corner.raw::<i64>(&["PTTL", &stream]).await > 0);
    }

    #[tokio::test]
    async fn who_lags_behind_is_told_to_read_again() {
        let corner = Corner::new();
        let tenant = TenantId::generate();
        let mut watch = corner.control.watch_tenant(tenant).await;
        let changes: Vec<_> = (1..=1_500).map(|version| change(tenant, version)).collect();
        corner.control.publish(&changes).await.unwrap();
        testkit::wait_until("the overflow", SOON, async || watch.signals.len() > LAG_MAX).await;
        assert_eq!(watch.next().await, Signal::Gap);
    }
}
