//! `aivideo bench`: how fast it is here, measured from outside over HTTP.
//!
//! [`args`] says what can be asked for, [`private`] starts services of our own, [`load`] runs closed loops over
//! [`connection`]s, and there is one file for each figure: [`submit`], [`read`], [`tasks`] (end to end, and with
//! what [`provider`] saw the start latency). [`session`] puts the figures of one deployment in order, [`report`] and
//! [`plot`] show them. Nothing that failed is hidden: errors stand in the table, and the command fails with them.

pub(crate) mod args;
mod connection;
mod failure;
mod latency;
mod load;
mod machine;
mod plot;
mod private;
mod provider;
mod read;
mod report;
mod session;
mod submit;
mod target;
mod tasks;

use std::{fs::File, io::Write, path::Path, process::ExitCode};

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use self::{
    args::{Against, BenchArgs, Measure, Settings},
    private::{Private, Scheduler},
    provider::Provider,
    report::Report,
    session::Session,
    target::Target,
};
use crate::signals;

/// Runs the command. `config` is for the private services.
pub(super) async fn bench(config: Option<&Path>, args: BenchArgs) -> anyhow::Result<ExitCode> {
    let settings = Settings::from_args(args).await?;
    // A plot that cannot be written shall not cost the minutes before it.
    let plot = settings
        .plot
        .as_deref()
        .map(|file| File::create(file).with_context(|| format!("--plot: cannot write {}", file.display())));
    let plot = plot.transpose()?;
    let stop = signals::cancelled_by_signals()?;
    if cfg!(debug_assertions) {
        eprintln!("This is a debug build: its figures say nothing about a release.");
    }
    let mut report = Report::new(&settings);
    let measured = match &settings.against {
        Against::Private => on_private(config, &settings, &mut report, &stop).await,
        Against::Given { api, provider } => {
            on_given(api.clone(), provider.clone().map(Provider::new), &settings, &mut report, &stop).await
        }
    };
    let complete = measured.is_ok() && !stop.is_cancelled();
    // What was measured before a failure is true all the same.
    show(&settings, &report, complete, plot)?;
    measured?;
    if stop.is_cancelled() {
        eprintln!("Interrupted: the figures are not complete.");
    }
    Ok(if complete && report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Against services of our own. Each submit run has fresh ones: a backlog of the run before would be in its way.
async fn on_private(
    config: Option<&Path>,
    settings: &Settings,
    report: &mut Report,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    report.versions.redis = machine::redis_version();
    if settings.wants(Measure::Submit) {
        for scheduler in [Scheduler::On, Scheduler::Off] {
            for run in 1..=settings.runs {
                let submits = async |session: &Session<'_>, report: &mut Report| {
                    session.submit(run, Some(scheduler), report).await
                };
                with_private(config, scheduler, settings, report, stop, submits).await?;
            }
        }
    }
    if settings.measures.iter().any(|measure| *measure != Measure::Submit) {
        let rest = async |session: &Session<'_>, report: &mut Report| session.follow_and_read(report).await;
        with_private(config, Scheduler::On, settings, report, stop, rest).await?;
    }
    Ok(())
}

/// Starts services, lets them be measured, and removes them whatever came of it.
async fn with_private(
    config: Option<&Path>,
    scheduler: Scheduler,
    settings: &Settings,
    report: &mut Report,
    stop: &CancellationToken,
    measure: impl AsyncFnOnce(&Session<'_>, &mut Report) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if stop.is_cancelled() {
        return Ok(());
    }
    eprintln!("Starting private services …");
    let Some(private) = Private::start(config, scheduler, stop).await? else { return Ok(()) };
    let measured = async {
        if report.versions.postgres.is_none() {
            report.versions.postgres = Some(private.postgres().await?);
        }
        let provider = private.provider().await?;
        if let Some(generation) = settings.generation {
            provider.set_generation(generation).await?;
        }
        let session = Session::new(private.api().await?, Some(provider), Some(&private), settings, stop);
        measure(&session, report).await?;
        session.close(report).await
    };
    let measured = measured.await;
    private.stop().await?;
    measured
}

/// Against a deployment that somebody else runs. It is left as it was found, but for the tasks.
async fn on_given(
    api: Target,
    provider: Option<Provider>,
    settings: &Settings,
    report: &mut Report,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let before = match (&provider, settings.generation) {
        (Some(provider), Some(generation)) => Some(provider.set_generation(generation).await?),
        _ => None,
    };
    let session = Session::new(api, provider.clone(), None, settings, stop);
    let measured = async {
        if settings.wants(Measure::Submit) {
            for run in 1..=settings.runs {
                session.submit(run, None, report).await?;
            }
        }
        if settings.measures.iter().any(|measure| *measure != Measure::Submit) {
            session.follow_and_read(report).await?;
        }
        session.close(report).await
    };
    let measured = measured.await;
    if let (Some(provider), Some(before)) = (provider, before) {
        provider.set_generation(before).await.context("the provider's own duration could not be set back")?;
    }
    measured
}

fn show(settings: &Settings, report: &Report, complete: bool, plot: Option<File>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if settings.json {
        writeln!(out, "{}", report.json(complete))?;
    } else {
        write!(out, "{}", report.closing())?;
    }
    out.flush()?;
    if let Some(mut file) = plot
        && !report.records.is_empty()
    {
        file.write_all(plot::svg(report)?.as_bytes()).context("--plot: cannot be written")?;
    }
    Ok(())
}
