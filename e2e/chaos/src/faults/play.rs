//! The course of one case: everything is well, one dependency is hurt, it is healed, everything is well again.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use http::Method;
use tokio::{sync::watch, time::sleep};

use super::{
    books::{Books, audited, idle},
    cases::{Case, Effect, Row},
    figures::Figures,
    judge,
    promises::Promises,
    record::{Kind, Moments, Notes, Record, Whole},
    report::CaseReport,
    stage::{Stage, Wiring, Wound},
    traffic::{Stock, Submitted, Traffic, UNCACHED_EVERY},
    watch as watching,
};
use crate::{client::Client, fleet::Fleet, journal::Journal};

/// Tasks reach their scheduler by the queue alone, since nobody in its process takes them in.
const ROLES: [&str; 2] = ["api,relay", "relay,scheduler"];
/// How long everything goes well before anything is hurt.
const BEFORE: Duration = Duration::from_secs(2);
/// Until the processes are well after their start.
const WELL_MAX: Duration = Duration::from_secs(60);
/// The job that runs when the dependency is hurt ends after this share of the outage.
const LONG_SHARE: f64 = 0.3;
/// For how long its return is waited for, well beyond what is promised.
const RETURN_MAX: Duration = Duration::from_secs(20);
/// What came back has to stay for so long.
const STAYS: Duration = Duration::from_millis(1_500);
/// Ended tasks that are read again and again.
const READ_AGAIN: usize = 8;
/// Between two submits that fill the stock.
const STOCK_EVERY: Duration = Duration::from_millis(50);
/// What a stream may take to tell of an end when all is whole.
const STREAM_MAX: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);
/// The same for what has to be asked of the platform.
const RESUMED_LOOK: Duration = Duration::from_millis(300);

/// One case, and where it is played.
pub(crate) struct Play<'a> {
    pub(crate) aivideo: &'a Path,
    /// Of the whole run; the case has one of its own below it.
    pub(crate) folder: &'a Path,
    pub(crate) journal: &'a Journal,
    pub(crate) case: Case,
    pub(crate) outage: Duration,
    pub(crate) delay: Duration,
}

impl Play<'_> {
    /// Plays it with processes of its own, so that no case inherits anything of the last one. Tasks that have ended
    /// are handed from case to case: nobody has read them since their processes are gone.
    pub(crate) async fn run(&self, stage: &mut Stage, ended: &mut Vec<String>) -> anyhow::Result<CaseReport> {
        let (case, folder) = (self.case, self.folder.join(self.case.to_string()));
        fs::create_dir_all(&folder)?;
        self.note(format!("hurt for {:?}; logs: {}", self.outage, folder.display()));
        let wiring = stage.wire(case).await?;
        stage.set_jobs(BEFORE + self.outage.mul_f64(LONG_SHARE)).await?;
        let roles = ROLES.map(str::to_owned);
        let fleet = Fleet::start(self.aivideo, &folder, &wiring.variables, &roles).await?;
        let (figures, mut broken) = self.with_fleet(stage, &fleet, &wiring, ended).await?;
        let audit = audited(self.aivideo, &folder, &wiring, self.journal).await?;
        broken.extend(audit.iter().map(|row| format!("audit: {row}")));
        if let Err(error) = fleet.stop().await {
            broken.push(format!("the processes did not end well: {error:#}"));
        }
        for member in fleet.members() {
            broken.extend(member.panics()?.into_iter().map(|line| format!("a panic: {line}")));
        }
        idle(stage).await?;
        stage.unwire(case, wiring).await?;
        let folder = (!broken.is_empty()).then_some(folder);
        Ok(CaseReport { case, figures, audit, broken, folder })
    }

    async fn with_fleet(
        &self,
        stage: &mut Stage,
        fleet: &Fleet,
        wiring: &Wiring,
        ended: &mut Vec<String>,
    ) -> anyhow::Result<(Figures, Vec<String>)> {
        let addresses: Vec<SocketAddr> = fleet.members().iter().map(|member| member.address).collect();
        let client = Client::new(stage.key(), addresses.iter().map(ToString::to_string).collect())?;
        until_well(&client, &addresses).await?;
        let door = format!("http://{}", addresses[0]);
        let books = Books::open(&client, &door).await?;
        let traffic = Arc::new(Traffic {
            client: client.clone(),
            door,
            notes: Arc::new(Notes::open()),
            name: self.case.to_string(),
            stock: Mutex::default(),
            submitted: Mutex::default(),
        });
        self.fill_stock(stage, &traffic, &books, ended).await?;
        let long = running_task(&traffic).await?;

        let watchers = watching::watch(&traffic.notes, &client, &addresses, &stage.providers);
        let (stop, stopped) = watch::channel(false);
        let clients = tokio::spawn(Arc::clone(&traffic).run(long.clone(), stopped));
        let mut stream = tokio::spawn({
            let traffic = Arc::clone(&traffic);
            async move { traffic.follow(&long).await }
        });
        sleep(BEFORE).await;
        let needed = Whole {
            processes: addresses.len(),
            providers: [stage.providers[0].name, stage.providers[1].name],
            outbox: self.case.row == Row::Queue,
        };
        let mut moments = self.hurt_and_heal(stage, wiring, &traffic.notes).await?;
        let meanwhile = traffic.submitted().accepted.len();
        tokio::join!(
            self.until_back(&traffic.notes, &moments, needed),
            self.until_resumed(&traffic, &books, meanwhile, needed.providers),
        );
        if self.case.effect() == Effect::Forgetful {
            // What follows from one blow may show only later.
            sleep(self.outage.saturating_sub(traffic.notes.now().saturating_sub(moments.hurt))).await;
            moments.end = traffic.notes.now();
        }
        stop.send_replace(true);
        clients.await?;

        let mut wrong = traffic.insist().await;
        let submitted: Submitted = std::mem::take(&mut *traffic.submitted());
        let (tasks, of_books) = books.close(&submitted, &stage.providers).await?;
        wrong.extend(of_books);
        if tokio::time::timeout(STREAM_MAX, &mut stream).await.is_err() {
            stream.abort();
        }
        drop(watchers);
        let record = traffic.notes.add(std::mem::take);
        let figures = Figures::of(&record, &moments, needed);
        let mut broken = bad_before(&record, &moments);
        broken.extend(judge::broken(&Promises::of(self.case), &figures));
        broken.extend(wrong);
        ended.extend(tasks);
        Ok((figures, broken))
    }

    /// Makes enough ended tasks, takes them out of every cache, and reads some of them.
    async fn fill_stock(
        &self,
        stage: &Stage,
        traffic: &Traffic,
        books: &Books,
        ended: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let span = BEFORE + self.outage + RETURN_MAX;
        let uncached = span.as_millis() / UNCACHED_EVERY.as_millis();
        let wanted = READ_AGAIN + usize::try_from(uncached)?;
        // Some in any case: they show that tasks find their way before anything is hurt.
        let missing = wanted.saturating_sub(ended.len()).max(2);
        let mut tasks = Vec::new();
        for _ in 0..missing {
            tasks.extend(traffic.submit_next().await);
            sleep(STOCK_EVERY).await;
        }
        anyhow::ensure!(
            tasks.len() == missing,
            "{} of {missing} submits were refused",
            missing - tasks.len()
        );
        books.wait_for(&tasks).await?;
        ended.extend(tasks);
        stage.cache.ok("FLUSHALL").await?;
        let (read, unread) = ended.split_at(READ_AGAIN.min(ended.len()));
        for task in read {
            traffic.client.get(&format!("{}/tasks/{task}", traffic.door)).await?;
        }
        *traffic.stock() = Stock { read: read.to_vec(), unread: unread.iter().cloned().collect() };
        Ok(())
    }

    async fn hurt_and_heal(
        &self,
        stage: &mut Stage,
        wiring: &Wiring,
        notes: &Notes,
    ) -> anyhow::Result<Moments> {
        self.note("hurting it");
        let hurt = notes.now();
        let wound = stage.hurt(self.case, wiring, self.delay).await?;
        let struck = notes.now();
        if matches!(wound, Wound::Blow) {
            return Ok(Moments { hurt, healing: struck, whole: struck, end: struck });
        }
        sleep(self.outage.saturating_sub(struck.saturating_sub(hurt))).await;
        let healing = notes.now();
        stage.heal(self.case, wiring, wound).await?;
        let whole = notes.now();
        self.note("it can be used again");
        Ok(Moments { hurt, healing, whole, end: whole })
    }

    /// Returns when everything works again and stays so, or when that has taken too long.
    async fn until_back(&self, notes: &Notes, moments: &Moments, needed: Whole) {
        let begun = Instant::now();
        let back = || notes.add(|record| record.back(moments, needed));
        let mut since = None;
        while begun.elapsed() < RETURN_MAX {
            sleep(LOOK).await;
            since = back().ok().map(|_| since.unwrap_or_else(Instant::now));
            if since.is_some_and(|since: Instant| since.elapsed() >= STAYS) {
                break;
            }
        }
        match back() {
            Ok(back) => {
                self.note(format!("everything worked again after {:?}, last {}", back.after, back.last))
            }
            Err(missing) => self.note(format!("it does not come back: {}", missing.join(", "))),
        }
    }

    /// Notes when new tasks are at each provider, and when those that were accepted meanwhile are. Returns then, or when
    /// that has taken too long.
    async fn until_resumed(
        &self,
        traffic: &Traffic,
        books: &Books,
        meanwhile: usize,
        providers: [&'static str; 2],
    ) {
        let begun = Instant::now();
        // Who cannot be asked has not resumed anything.
        let all_started = async |tasks: &[String]| matches!(books.waiting(tasks).await, Ok(0));
        let mut open = providers.into_iter().enumerate().collect::<Vec<_>>();
        let mut caught_up = false;
        while begun.elapsed() < RETURN_MAX && !(caught_up && open.is_empty()) {
            sleep(RESUMED_LOOK).await;
            let accepted = traffic.submitted().accepted.clone();
            let (before, after) = accepted.split_at(meanwhile);
            let mut still_open = Vec::new();
            for (index, provider) in open {
                let first = after.iter().find(|(n, _)| n % providers.len() == index);
                let first: Vec<String> = first.map(|(_, task)| task.clone()).into_iter().collect();
                if !first.is_empty() && all_started(&first).await {
                    let now = traffic.notes.now();
                    traffic.notes.add(|record| record.resumed.push((provider, now)));
                } else {
                    still_open.push((index, provider));
                }
            }
            open = still_open;
            let before: Vec<String> = before.iter().map(|(_, task)| task.clone()).collect();
            if !caught_up && all_started(&before).await {
                caught_up = true;
                let now = traffic.notes.now();
                traffic.notes.add(|record| record.caught_up = Some(now));
            }
        }
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.journal.note(format!("{}: {what}", self.case));
    }
}

/// Waits until every process says that it is ready and that nothing is away.
async fn until_well(client: &Client, addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let begun = Instant::now();
    for address in addresses {
        let url = format!("http://{address}/readyz");
        loop {
            let answer = client.ask(Method::GET, &url, None, None).await;
            let well = |answer: &crate::client::Answer| {
                answer.status == 200 && answer.json["degraded"].as_array().is_some_and(Vec::is_empty)
            };
            match answer {
                Ok(answer) if well(&answer) => break,
                Ok(answer) if begun.elapsed() > WELL_MAX => {
                    bail!("not well before anything was hurt: {}", answer.json)
                }
                Err(error) if begun.elapsed() > WELL_MAX => return Err(error),
                _ => sleep(LOOK).await,
            }
        }
    }
    Ok(())
}

/// A task whose job runs at the provider.
async fn running_task(traffic: &Traffic) -> anyhow::Result<String> {
    let task = traffic.submit_long("mock-slow").await.context("the task that is followed")?;
    let begun = Instant::now();
    loop {
        let snapshot = traffic.client.get(&format!("{}/tasks/{task}", traffic.door)).await?;
        if matches!(snapshot["status"].as_str(), Some("PROVIDER_SUBMITTED" | "RUNNING")) {
            return Ok(task);
        }
        if begun.elapsed() > WELL_MAX {
            bail!("the task that is followed did not start: {snapshot}");
        }
        sleep(LOOK).await;
    }
}

/// What was refused while nothing was hurt: whatever comes then says little.
fn bad_before(record: &Record, moments: &Moments) -> Vec<String> {
    let before = record.requests.iter().filter(|request| request.answered < moments.hurt);
    let bad: Vec<_> = before.filter(|request| !request.is_good()).collect();
    let (Some(first), count) = (bad.first(), bad.len()) else { return Vec::new() };
    let of = |kind: Kind| bad.iter().filter(|request| request.kind == kind).count();
    vec![format!(
        "{count} requests went wrong before anything was hurt ({} submits), such as {}: {:?}",
        of(Kind::Submit),
        first.kind.name(),
        first.outcome
    )]
}
