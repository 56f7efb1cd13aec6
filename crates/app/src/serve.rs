//! `aivideo serve`: runs roles until a signal, then ends them in the order that loses nothing.
//!
//! The order of a stop: accept nothing more and end streams with a hint to come back; let the writers finish what
//! they took; claim nothing more, let submits under way finish, hand the leases back; write the last moves; exit.

use std::{path::Path, sync::Arc};

use ::api::HealthSource;
use anyhow::Context;
use bus::ConsumerStatus;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli::{Role, ServeArgs},
    commands::load,
    compose::Stores,
    config::{Config, Needs},
    health::Health,
    listen,
    roles::{self, api::Around},
    signals, telemetry,
    work_loop::WorkLoop,
};

/// Runs the command.
pub(crate) async fn serve(file: Option<&Path>, args: ServeArgs) -> anyhow::Result<()> {
    let config = load(file, Needs::All)?;
    telemetry::start_logs(&config.log)?;
    let metrics = telemetry::start_metrics()?;
    let shutdown = signals::cancelled_by_signals()?;
    let listeners = Listeners::bind(&config).await?;
    let stores = Stores::open(&config).await?;
    let platform = Platform::build(&config, &stores, &args.roles.roles, metrics, None).await?;
    let names: Vec<_> = platform.roles.iter().map(|role| role.name()).collect();
    println!("aivideo: {} ({})", listeners.url()?, names.join(", "));
    platform.run(listeners, shutdown).await;
    Ok(())
}

/// The open listeners. They are opened before anything is started, so that a taken port costs nothing.
pub(crate) struct Listeners {
    main: TcpListener,
    admin: Option<TcpListener>,
}

impl Listeners {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// When an address is taken.
    pub(crate) async fn bind(config: &Config) -> anyhow::Result<Self> {
        let bind = async |address| {
            TcpListener::bind(address).await.with_context(|| {
                format!("cannot listen on {address} (AIVIDEO_HTTP_ADDR, or the demo's --http-addr, names another; port 0 takes any)")
            })
        };
        let admin = match config.http.admin_addr {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self { main: bind(config.http.addr).await?, admin })
    }

    /// The address of the API as somebody on this machine reaches it.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        let address = listen::reachable(self.main.local_addr()?);
        Ok(format!("http://{address}"))
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.main.local_addr().is_ok_and(|address| address.ip().is_loopback())
    }
}

/// Everything that one process runs.
pub(crate) struct Platform {
    pub(crate) roles: Vec<Role>,
    config: Config,
    stores: Stores,
    scheduling: Option<Scheduling>,
    progress: Option<crate::health::Progress>,
    relay: Option<ConsumerStatus>,
    health: Arc<Health>,
    generation: generation::Generation,
    router: axum::Router,
    admin: Option<axum::Router>,
    /// Cancelled first: nothing more is accepted.
    closing: CancellationToken,
}

/// The scheduler and what it runs on.
struct Scheduling {
    scheduler: scheduler::Scheduler,
    stores: Stores,
    work: WorkLoop,
}

impl Platform {
    /// Puts the roles together; nothing runs yet.
    ///
    /// # Errors
    /// Whatever keeps a role from working at all.
    pub(crate) async fn build(
        config: &Config,
        stores: &Stores,
        roles: &[Role],
        metrics: PrometheusHandle,
        demo_key: Option<String>,
    ) -> anyhow::Result<Self> {
        let mut roles = roles.to_vec();
        roles.sort_unstable();
        roles.dedup();
        let closing = CancellationToken::new();
        let (scheduling, nudge, progress) = if roles.contains(&Role::Scheduler) {
            let work =
                WorkLoop::start(config.scheduler.nice).context("cannot start the scheduler's threads")?;
            let (shared, config) = (stores.clone(), config.clone());
            let built = work.spawn(async move {
                let stores = shared.beside(&config).await?;
                let (scheduler, nudge, progress) = roles::scheduler::build(&config, &stores)?;
                anyhow::Ok((scheduler, stores, nudge, progress))
            });
            let (scheduler, stores, nudge, progress) = built.await??;
            (Some(Scheduling { scheduler, stores, work }), Some(nudge), Some(progress))
        } else {
            (None, None, None)
        };
        let relay = (config.queue.has_broker() && roles.contains(&Role::Relay)).then(ConsumerStatus::new);
        let health =
            Health::new(roles.clone(), stores.pool.clone(), stores.control.clone(), progress.clone())
                .with_queue(config.queue.has_broker(), relay.clone());
        let health = Arc::new(health);
        let around = Around {
            health: Arc::clone(&health) as Arc<dyn HealthSource>,
            metrics: Arc::new(move || metrics.render()),
            shutdown: closing.clone(),
            demo_key,
            nudge,
        };
        let mut config = config.clone();
        config.api.admin = config.http.admin_addr.is_none();
        let (state, generation) = roles::api::build(&config, stores, around)?;
        let (router, admin) = if roles.contains(&Role::Api) {
            (::api::router(state.clone()), Some(::api::admin_router(state)))
        } else {
            // A process without the API is watched over all the same.
            (::api::service_router(state), None)
        };
        Ok(Self {
            roles,
            stores: stores.clone(),
            scheduling,
            progress,
            relay,
            health,
            generation,
            router,
            admin: admin.filter(|_| config.http.admin_addr.is_some()),
            closing,
            config,
        })
    }

    /// Runs until the shutdown, and stops in order.
    pub(crate) async fn run(self, listeners: Listeners, shutdown: CancellationToken) {
        let Self {
            roles: _,
            config,
            stores,
            scheduling,
            progress,
            relay,
            health,
            generation,
            router,
            admin,
            closing,
        } = self;
        let background = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(roles::gauges::run(stores.clone(), health, progress, background.clone()));
        let stop_claiming = CancellationToken::new();
        let mut scheduling = scheduling.map(|Scheduling { scheduler, stores: own, work }| {
            tasks.spawn(roles::retire::run(stores.clone(), background.clone()));
            tasks.spawn(roles::drift::run(stores.clone(), background.clone()));
            (work.spawn(scheduler.run(stop_claiming.clone())), own, work)
        });
        if let Some(status) = relay {
            // It ends last, so that what the others still write is carried away.
            tasks.spawn(roles::relay::run(Arc::clone(&stores.bus), status, background.clone()));
        }
        let stopper = tokio::spawn({
            let closing = closing.clone();
            async move {
                shutdown.cancelled().await;
                closing.cancel();
            }
        });
        let admin = async {
            if let (Some(listener), Some(router)) = (listeners.admin, admin) {
                listen::serve(listener, router, &config.http, closing.clone()).await;
            }
        };
        tokio::join!(listen::serve(listeners.main, router, &config.http, closing.clone()), admin);
        stopper.abort();

        generation.drain().await;
        stop_claiming.cancel();
        if let Some((running, own, _)) = &mut scheduling {
            if let Err(error) = running.await {
                tracing::error!(%error, "the scheduler ended by a panic");
            }
            own.task_state.drain().await;
            pg::close(&own.pool).await;
        }
        stores.task_state.drain().await;
        background.cancel();
        tasks.close();
        tasks.wait().await;
        pg::close(&stores.pool).await;
        // Its loop ends last: nobody may be left waiting for it.
        drop(scheduling);
        tracing::info!("stopped");
    }
}
