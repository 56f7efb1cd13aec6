//! Carries out the plan's sabotage, each act at its moment.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    client::Client, fleet::Fleet, journal::Journal, kafka::Broker, load::Tally, plan::Act, servers::Servers,
};

/// What it may break.
pub(crate) struct Saboteur {
    pub(crate) servers: Arc<Servers>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) provider: Client,
    pub(crate) broker: Option<Arc<Broker>>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) tally: Arc<Tally>,
}

impl Saboteur {
    /// Does everything and returns when everything is whole again, the provider's manners aside.
    pub(crate) async fn carry_out(self: &Arc<Self>, acts: &[(Duration, Act)]) {
        let begun = Instant::now();
        let mut under_way = JoinSet::new();
        for (at, act) in acts {
            sleep_until(begun + *at).await;
            let (saboteur, act) = (Arc::clone(self), act.clone());
            under_way.spawn(async move {
                saboteur.journal.note(&act);
                if let Err(error) = saboteur.do_it(&act).await {
                    saboteur.journal.note(format!("FAILED: {act}: {error:#}"));
                    saboteur.tally.violation(format!("{act}: {error:#}"));
                }
            });
        }
        while under_way.join_next().await.is_some() {}
    }

    /// The provider behaves from now on.
    pub(crate) async fn lift(&self) -> anyhow::Result<()> {
        self.provider("DELETE", "/_control/faults", None).await?;
        self.fail_rate(0).await
    }

    async fn do_it(&self, act: &Act) -> anyhow::Result<()> {
        match act {
            Act::Kill { process, down } => self.fleet.members()[*process].kill(*down).await,
            Act::Roll { process } => self.fleet.members()[*process].roll().await,
            Act::FreezeProcess { process, for_ } => self.fleet.members()[*process].freeze(*for_).await,
            Act::CrashPostgres => self.servers.postgres.crash_session(),
            Act::FlushRedis => self.servers.redis.ok("FLUSHALL").await,
            Act::ForgetScripts => self.servers.redis.ok("SCRIPT FLUSH").await,
            Act::FreezeRedis { for_ } => self.servers.redis.freeze_for(*for_).await,
            Act::LoseRedis { down } => self.servers.redis.lose_for(*down).await,
            Act::Provider { rules } => self.provider("PUT", "/_control/faults", Some(json!(rules))).await,
            Act::FailRate { percent } => self.fail_rate(*percent).await,
            Act::KillBroker { down } => self.broker()?.kill_for(*down).await,
            Act::FreezeBroker { for_ } => self.broker()?.freeze_for(*for_).await,
        }
    }

    fn broker(&self) -> anyhow::Result<&Broker> {
        self.broker.as_deref().context("there is no broker of our own")
    }

    async fn fail_rate(&self, percent: u32) -> anyhow::Result<()> {
        let rate = json!({ "fail_rate": f64::from(percent) / 100.0 });
        self.provider("PUT", "/_control/models/mock-fast", Some(rate)).await
    }

    /// A job of this model takes this long from now on.
    pub(crate) async fn duration(&self, model: &str, millis: u64) -> anyhow::Result<()> {
        let body = json!({ "duration_ms": millis });
        self.provider("PUT", &format!("/_control/models/{model}"), Some(body)).await
    }

    async fn provider(&self, method: &str, path: &str, body: Option<Value>) -> anyhow::Result<()> {
        let url = format!("{}{path}", self.servers.ready.mock_provider_url);
        let answer =
            self.provider.ask(Method::from_bytes(method.as_bytes())?, &url, body.as_ref(), None).await?;
        anyhow::ensure!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {}",
            answer.status,
            answer.json
        );
        Ok(())
    }
}
