//! A run from its first server to its verdict.

use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context;

use crate::{
    client::{Client, Doors},
    fleet::Fleet,
    folder::Folder,
    journal::{Journal, Screen},
    kafka::Broker,
    load::{Accepted, Load, Tally},
    plan::Plan,
    report::Report,
    saboteur::Saboteur,
    servers::Servers,
    settings::Settings,
    verdict::Judge,
};

/// Between two lines of figures.
const PROGRESS: Duration = Duration::from_secs(5);
/// PostgreSQL's connections that the processes share; the demo's own server has 200.
const CONNECTIONS: usize = 160;
/// How long Redis may take to answer, in milliseconds; freezes last longer.
const REDIS_MS_MAX: &str = "400";

/// Does everything that the settings say.
///
/// # Errors
/// When the run could not be made: a program is missing, a server did not start. What the platform did wrong stands
/// in the report.
pub async fn run(settings: &Settings) -> anyhow::Result<Report> {
    let folder = Folder::make(settings.folder.as_deref(), "aivideo-chaos-")?;
    let plan = Plan::new(settings);
    let journal = Arc::new(Journal::new(&folder.path, Screen::Output)?);
    journal.note(format!("seed {}, folder {}", settings.seed, folder.path.display()));
    let mut report = match act(settings, &folder.path, &plan, &journal).await {
        Ok(report) => report,
        Err(error) => return Err(error.context(format!("logs and data: {}", folder.path.display()))),
    };
    report.figures.push(("seconds in all", format!("{:.0}", journal.seconds())));
    if report.is_good() && !settings.keep {
        fs::remove_dir_all(&folder.path)?;
    } else {
        report.folder = Some(folder.path);
    }
    Ok(report)
}

async fn act(
    settings: &Settings,
    folder: &Path,
    plan: &Plan,
    journal: &Arc<Journal>,
) -> anyhow::Result<Report> {
    let connections = CONNECTIONS / settings.processes.len().max(1);
    let variables = [
        ("AIVIDEO_PROVIDERS__MOCK__SLOTS", plan.slots.to_string()),
        ("AIVIDEO_DATABASE__MAX_CONNECTIONS", connections.clamp(4, 40).to_string()),
        // A machine that is busy with other tests must not be taken for a Redis that is away all the time.
        ("AIVIDEO_REDIS__CONNECT_MS_MAX", REDIS_MS_MAX.to_owned()),
        ("AIVIDEO_REDIS__RESPONSE_MS_MAX", REDIS_MS_MAX.to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let broker = match settings.queue.as_str() {
        "kafka" => {
            let script = settings.kafka_script.as_deref().context("the script of the broker is not there")?;
            Some(Arc::new(Broker::start(script, folder.join("kafka")).await?))
        }
        _ => None,
    };
    let queue = broker.as_ref().map_or(settings.queue.as_str(), |broker| broker.url.as_str());
    let servers = Servers::start(&settings.aivideo, folder, queue, &variables).await?;
    let servers = Arc::new(servers);
    let ended = with_servers(settings, folder, plan, journal, &servers, broker.clone()).await;
    servers.stop().await;
    if let Some(broker) = broker {
        broker.stop().await?;
    }
    ended
}

async fn with_servers(
    settings: &Settings,
    folder: &Path,
    plan: &Plan,
    journal: &Arc<Journal>,
    servers: &Arc<Servers>,
    broker: Option<Arc<Broker>>,
) -> anyhow::Result<Report> {
    let fleet =
        Arc::new(Fleet::start(&settings.aivideo, folder, &servers.variables, &settings.processes).await?);
    for (n, member) in fleet.members().iter().enumerate() {
        journal.note(format!("process {n}: {} at {}", member.roles, member.address));
    }
    let doors = fleet.doors();
    let provider_host = servers.ready.mock_provider_url.trim_start_matches("http://").to_owned();
    let provider = Client::new("control", vec![provider_host])?;
    let tally = Arc::new(Tally::default());
    let load = Arc::new(Load {
        aivideo: settings.aivideo.clone(),
        client: Client::new(&servers.ready.api_key, doors.iter().map(ToString::to_string).collect())?,
        provider: provider.clone(),
        doors: Doors::new(doors),
        tally: Arc::clone(&tally),
        seed: settings.seed,
        first_try_accepted: plan.demands.first_try_accepted,
    });
    let saboteur = Arc::new(Saboteur {
        servers: Arc::clone(servers),
        fleet: Arc::clone(&fleet),
        provider,
        broker,
        journal: Arc::clone(journal),
        tally: Arc::clone(&tally),
    });
    saboteur.duration("mock-fast", 700).await?;
    saboteur.duration("mock-slow", 4_000).await?;
    saboteur.duration("mock-pro", 500).await?;
    let judge = Judge { load: &load, servers, fleet: &fleet, journal, plan };

    let memory = Memory::default();
    let accepted = watched(journal, &judge, &memory, async {
        tokio::join!(load.submit_all(&plan.tasks), saboteur.carry_out(&plan.acts)).0
    })
    .await;
    saboteur.lift().await?;
    journal.note("every fault is lifted; waiting for rest");
    let lifted = journal.seconds();
    judge.wait_for_rest(Duration::from_secs(settings.rest_seconds)).await?;
    let rest = journal.seconds() - lifted;
    journal.note("at rest; judging");
    let ends = judge.judge(&accepted).await?;
    let stats = judge.stats().await?;
    journal.note("stopping");
    if let Err(error) = fleet.stop().await {
        tally.violation(format!("the last stop: {error:#}"));
    }
    let count = |figure: &std::sync::atomic::AtomicUsize| figure.load(Ordering::Relaxed).to_string();
    let figures = vec![
        ("tasks accepted", count(&tally.accepted)),
        ("processes killed with -9", plan.kills().to_string()),
        ("clients that hung up", count(&tally.hung_up)),
        ("idempotent replays", count(&tally.replays)),
        ("cancels", count(&tally.cancels)),
        ("requests that had to be repeated", count(&tally.retries)),
        ("answers by status", format!("{:?}", tally.statuses())),
        ("submits at the provider", stats["submits"].to_string()),
        ("most jobs of one task at once", stats["max_live_by_task"].to_string()),
        ("most jobs at once, allowed", format!("{}, {}", stats["max_running"], plan.slots)),
        ("largest RssAnon per process, KiB", format!("{:?}", memory.largest())),
        ("seconds from the last fault to rest", format!("{rest:.0}")),
    ];
    Ok(Report { seed: settings.seed, ends, figures, violations: tally.violations(), folder: None })
}

/// Runs the work and says meanwhile how far it is.
async fn watched(
    journal: &Journal,
    judge: &Judge<'_>,
    memory: &Memory,
    work: impl Future<Output = Vec<Accepted>>,
) -> Vec<Accepted> {
    let say = async {
        loop {
            tokio::time::sleep(PROGRESS).await;
            let mut sizes = Vec::new();
            for member in judge.fleet.members() {
                sizes.push(member.rss_anon().unwrap_or(0));
            }
            memory.note(&sizes);
            let Ok(stats) = judge.stats().await else { continue };
            let accepted = judge.load.tally.accepted.load(Ordering::Relaxed);
            journal.note(format!(
                "{accepted} of {} accepted, {} submits at the provider, {} jobs, RssAnon {sizes:?} KiB",
                judge.plan.tasks.len(),
                stats["submits"],
                stats["running"],
            ));
        }
    };
    tokio::select! {
        accepted = work => accepted,
        () = say => unreachable!("it never ends"),
    }
}

/// The largest size that each process was seen with.
#[derive(Default)]
struct Memory(std::sync::Mutex<Vec<u64>>);

impl Memory {
    fn note(&self, sizes: &[u64]) {
        let mut largest = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        largest.resize(sizes.len(), 0);
        largest.iter_mut().zip(sizes).for_each(|(largest, size)| *largest = (*largest).max(*size));
    }

    fn largest(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
