//! Ringing a worker in another process. A hint only: what it is to look at lies in PostgreSQL, and it looks there anyway.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use domain::WorkerId;
use futures::StreamExt;
use tokio::{sync::Notify, time::timeout};

use crate::{Control, ControlError, instance::command};

/// How often an idle connection is asked whether it still stands.
const PING_EVERY: Duration = Duration::from_secs(3);
/// The pauses between connections that fail.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

impl Control {
    /// Rings a worker, wherever it runs.
    ///
    /// # Errors
    /// When realtime cannot be reached; the worker finds out by itself a little later.
    pub async fn ring(&self, worker: &WorkerId) -> Result<(), ControlError> {
        let channel = self.keys().worker_channel(worker);
        // Nobody listening any more is no fault: then another worker takes over.
        let _listeners: i64 = self.0.realtime.call(command("PUBLISH").arg(channel).arg("")).await?;
        Ok(())
    }

    /// Hands on what others [`ring`](Control::ring) to this worker; after each connection, too, since something may have
    /// been missed. Never ends.
    pub async fn hear_rings(&self, worker: &WorkerId, bell: Arc<Notify>) {
        let channel = self.keys().worker_channel(worker);
        let pauses = || {
            let (min, max) = PAUSES;
            let pauses = ExponentialBuilder::default().with_min_delay(min).with_max_delay(max);
            pauses.with_jitter().without_max_times().build()
        };
        let mut waits = pauses();
        loop {
            if self.hear_once(&channel, &bell).await.is_some() {
                waits = pauses();
            }
            tokio::time::sleep(waits.next().unwrap_or(PAUSES.1)).await;
        }
    }

    /// One connection, until it breaks; none when it never stood.
    async fn hear_once(&self, channel: &str, bell: &Notify) -> Option<()> {
        let (client, connect_limit, limit) = self.0.subscriptions.dial();
        let connection = timeout(connect_limit, client.get_async_pubsub()).await.ok()?.ok()?;
        let (mut sink, mut messages) = connection.split();
        timeout(limit, sink.subscribe(channel)).await.ok()?.ok()?;
        bell.notify_one();
        let mut ping = tokio::time::interval(PING_EVERY);
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(_) => bell.notify_one(),
                    None => return Some(()),
                },
                _ = ping.tick() => {
                    if !matches!(timeout(limit, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                        return Some(());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Corner;

    #[tokio::test]
    async fn a_worker_hears_what_another_process_rings_and_not_what_is_meant_for_others() {
        let corner = Corner::new();
        let (me, other): (WorkerId, WorkerId) = ("here:1:a".parse().unwrap(), "there:2:b".parse().unwrap());
        let (bell, others) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let soon = Duration::from_secs(20);
        let hear = async {
            tokio::join!(
                corner.control.hear_rings(&me, bell.clone()),
                corner.control.hear_rings(&other, others.clone())
            );
        };
        let ring = async {
            // Each connection rings once, and then the channel stands.
            timeout(soon, bell.notified()).await.unwrap();
            timeout(soon, others.notified()).await.unwrap();
            corner.other().ring(&me).await.unwrap();
            timeout(soon, bell.notified()).await.unwrap();
            corner.other().ring(&other).await.unwrap();
            timeout(soon, others.notified()).await.unwrap();
            assert!(futures::poll!(Box::pin(bell.notified())).is_pending());
        };
        tokio::select! {
            () = hear => unreachable!("it never ends"),
            () = ring => {}
        }
    }
}
