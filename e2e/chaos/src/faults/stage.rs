//! Every server around the platform, each of which can be hurt alone, and the ways from the platform to them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use tokio::process::Child;

use super::cases::{Case, Row, Way};
use crate::{
    fleet::free_port, kafka::Broker, postgres::Killed, process::Frozen, provider::MockProvider, proxy::Proxy,
    redis::RedisServer, servers::Servers,
};

/// A second account with a model of its own. It is set up like the first, and is never hurt.
const SECOND_ACCOUNT: &str = r#"
[providers.second]
kind = "mock"
url = "http://{address}"
slots = 200
lookup = true
poll_ms = 1_000
submit_ms_max = 5_000
poll_ms_max = 5_000
output_seconds_max = 600
model_slots = {}
model_submits = {}

[models.second-fast]
title = "Second Fast"
duration_seconds = [1, 10]
price_per_second = { 720p = 2 }
default_resolution = "720p"
aspect_ratios = ["16:9"]
negative_prompt = false
seed = false
usual_duration_ms = 1_000
deadline_seconds = 1_800
expensive = false
account = "second"
provider_model = "mock-fast"
"#;
/// How long a job takes, so that tasks end soon.
const JOB: Duration = Duration::from_millis(500);
/// Nobody listens there.
const NOBODY: &str = "127.0.0.1 1";

/// All servers of a run.
pub(crate) struct Stage {
    servers: Arc<Servers>,
    pub(crate) cache: RedisServer,
    realtime: RedisServer,
    /// The account that may be hurt, and the other one.
    pub(crate) providers: [Arc<MockProvider>; 2],
    broker: Option<Broker>,
    kafka_script: Option<PathBuf>,
    folder: PathBuf,
    /// PostgreSQL, after it was started again by us.
    postgres: Option<Child>,
}

/// How the processes of one case reach the servers.
pub(crate) struct Wiring {
    /// For the platform, through a proxy where one server's answers are to come late.
    pub(crate) variables: Vec<(String, String)>,
    /// The same without proxies.
    pub(crate) direct: Vec<(String, String)>,
    proxy: Option<Proxy>,
}

/// A dependency that is hurt, with what it takes to heal it.
pub(crate) enum Wound {
    /// Healed by letting go of it.
    Frozen(Frozen),
    /// Killed, or ended.
    Ended,
    KilledPostgres(Killed),
    /// Answers come late.
    Late,
    /// It refuses writes.
    Refusing,
    /// One blow, over as it was dealt.
    Blow,
}

impl Stage {
    /// Starts them all but the broker, which only some cases need.
    pub(crate) async fn start(
        aivideo: &Path,
        folder: &Path,
        kafka_script: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let mock = Arc::new(MockProvider::start(aivideo, folder, "mock").await?);
        let second = Arc::new(MockProvider::start(aivideo, folder, "second").await?);
        let config = folder.join("faults.toml");
        fs::write(&config, SECOND_ACCOUNT.replace("{address}", &second.address.to_string()))?;
        let variables = [
            ("AIVIDEO_CONFIG", config.display().to_string()),
            ("AIVIDEO_MOCK_PROVIDER_URL", MockProvider::url_at(mock.address)),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let servers = Arc::new(Servers::start(aivideo, folder, "postgres", &variables).await?);
        let cache = servers.redis.start_another(folder, "redis-cache").await?;
        let realtime = servers.redis.start_another(folder, "redis-realtime").await?;
        Ok(Self {
            servers,
            cache,
            realtime,
            providers: [mock, second],
            broker: None,
            kafka_script,
            folder: folder.to_owned(),
            postgres: None,
        })
    }

    /// The demo user's key.
    pub(crate) fn key(&self) -> &str {
        &self.servers.ready.api_key
    }

    fn control(&self) -> &RedisServer {
        &self.servers.redis
    }

    fn mock(&self) -> &MockProvider {
        &self.providers[0]
    }

    fn broker(&self) -> anyhow::Result<&Broker> {
        self.broker.as_ref().context("there is no broker")
    }

    /// Jobs take as long as the case wants, and the providers' figures begin anew.
    pub(crate) async fn set_jobs(&self, long: Duration) -> anyhow::Result<()> {
        for provider in &self.providers {
            provider.duration("mock-fast", JOB).await?;
            provider.duration("mock-slow", long).await?;
            provider.reset().await?;
        }
        Ok(())
    }

    /// Lays the ways for a case.
    pub(crate) async fn wire(&mut self, case: Case) -> anyhow::Result<Wiring> {
        if case.row == Row::Queue && self.broker.is_none() {
            let script = self.kafka_script.as_deref().context("the script of the broker is not there")?;
            self.broker = Some(Broker::start(script, self.folder.join("kafka")).await?);
        }
        let proxy = match case.way {
            Way::Delay => Some(Proxy::start(free_port()?, self.address_of(case.row)?).await?),
            _ => None,
        };
        if let (Row::Queue, Some(proxy)) = (case.row, &proxy) {
            self.broker()?.advertise(proxy.address).await?;
        }
        let direct = self.variables(case.row, None)?;
        let variables = self.variables(case.row, proxy.as_ref().map(|proxy| proxy.address))?;
        Ok(Wiring { variables, direct, proxy })
    }

    /// Takes the ways back.
    pub(crate) async fn unwire(&self, case: Case, wiring: Wiring) -> anyhow::Result<()> {
        if case.row == Row::Queue && wiring.proxy.is_some() {
            let broker = self.broker()?;
            broker.advertise(broker.address()?).await?;
        }
        Ok(())
    }

    fn address_of(&self, row: Row) -> anyhow::Result<SocketAddr> {
        Ok(match row {
            Row::Cache => self.cache.address,
            Row::Control => self.control().address,
            Row::Realtime => self.realtime.address,
            Row::Queue => self.broker()?.address()?,
            Row::Postgres => self.servers.postgres.address,
            Row::Provider => self.mock().address,
        })
    }

    /// The environment of a process, where somebody may stand before the server of a row.
    fn variables(&self, hurt: Row, before: Option<SocketAddr>) -> anyhow::Result<Vec<(String, String)>> {
        let at = |row: Row, own: SocketAddr| before.filter(|_| row == hurt).unwrap_or(own);
        let of = |row: Row, server: &RedisServer| server.url_at(at(row, server.address));
        let queue = match hurt {
            Row::Queue => format!("kafka://{}", at(Row::Queue, self.broker()?.address()?)),
            _ => "postgres".to_owned(),
        };
        let own = [
            ("REDIS_CACHE_URL", of(Row::Cache, &self.cache)),
            ("REDIS_CONTROL_URL", of(Row::Control, self.control())),
            ("REDIS_REALTIME_URL", of(Row::Realtime, &self.realtime)),
            ("QUEUE_URL", queue),
            ("AIVIDEO_MOCK_PROVIDER_URL", MockProvider::url_at(at(Row::Provider, self.mock().address))),
        ];
        let mut variables = self.servers.variables.clone();
        for (name, value) in &mut variables {
            if name == "DATABASE_URL" {
                let address = self.servers.postgres.address;
                *value = value.replace(&address.to_string(), &at(Row::Postgres, address).to_string());
            }
        }
        // One that is for every instance would hide that one of them was forgotten.
        variables.retain(|(name, _)| name != "REDIS_URL" && own.iter().all(|(own, _)| own != name));
        variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Ok(variables)
    }

    /// Hurts the dependency.
    pub(crate) async fn hurt(&self, case: Case, wiring: &Wiring, delay: Duration) -> anyhow::Result<Wound> {
        let redis = match case.row {
            Row::Cache => Some(&self.cache),
            Row::Control => Some(self.control()),
            Row::Realtime => Some(&self.realtime),
            _ => None,
        };
        match (case.way, redis, case.row) {
            (Way::Delay, ..) => {
                wiring.proxy.as_ref().context("there is no proxy")?.delay(delay);
                Ok(Wound::Late)
            }
            (Way::Stop, Some(redis), _) => redis.kill().await.map(|()| Wound::Ended),
            (Way::Freeze, Some(redis), _) => redis.freeze().await.map(Wound::Frozen),
            (Way::ScriptFlush, Some(redis), _) => redis.ok("SCRIPT FLUSH").await.map(|()| Wound::Blow),
            (Way::Flushall, Some(redis), _) => redis.ok("FLUSHALL").await.map(|()| Wound::Blow),
            (Way::Oom, Some(redis), _) => redis.ok("CONFIG SET maxmemory 1").await.map(|()| Wound::Refusing),
            (Way::Readonly, Some(redis), _) => {
                redis.ok(&format!("REPLICAOF {NOBODY}")).await.map(|()| Wound::Refusing)
            }
            (Way::Stop, None, Row::Queue) => self.broker()?.kill().map(|()| Wound::Ended),
            (Way::Freeze, None, Row::Queue) => self.broker()?.freeze().map(Wound::Frozen),
            (Way::Stop, None, Row::Postgres) => self.servers.postgres.kill().await.map(Wound::KilledPostgres),
            (Way::Freeze, None, Row::Postgres) => self.servers.postgres.freeze().map(Wound::Frozen),
            (Way::Stop, None, _) => self.mock().stop().await.map(|()| Wound::Ended),
            (Way::Freeze, None, _) => self.mock().freeze().await.map(Wound::Frozen),
            (_, None, row) => anyhow::bail!("{} cannot be hurt like that", row.name()),
        }
    }

    /// Heals it, and returns when it can be used again.
    pub(crate) async fn heal(&mut self, case: Case, wiring: &Wiring, wound: Wound) -> anyhow::Result<()> {
        match (wound, case.row) {
            (Wound::Blow, _) => Ok(()),
            (Wound::Frozen(frozen), _) => {
                drop(frozen);
                Ok(())
            }
            (Wound::Late, _) => {
                wiring.proxy.as_ref().context("there is no proxy")?.delay(Duration::ZERO);
                Ok(())
            }
            (Wound::Refusing, _) => match case.way {
                Way::Oom => self.control().ok("CONFIG SET maxmemory 0").await,
                _ => self.control().ok("REPLICAOF NO ONE").await,
            },
            (Wound::KilledPostgres(killed), _) => {
                self.postgres = Some(self.servers.postgres.start_again(&killed).await?);
                Ok(())
            }
            (Wound::Ended, Row::Cache) => self.cache.start_empty().await,
            (Wound::Ended, Row::Control) => self.control().start_empty().await,
            (Wound::Ended, Row::Realtime) => self.realtime.start_empty().await,
            (Wound::Ended, Row::Queue) => self.broker()?.start_again().await,
            (Wound::Ended, _) => {
                self.mock().start_again().await?;
                self.mock().duration("mock-fast", JOB).await
            }
        }
    }

    /// Ends all of them.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for provider in &self.providers {
            provider.stop().await?;
        }
        self.cache.stop().await;
        self.realtime.stop().await;
        self.servers.stop().await;
        match &self.broker {
            Some(broker) => broker.stop().await,
            None => Ok(()),
        }
    }
}
