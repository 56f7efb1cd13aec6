//! The figures of one deployment, in an order in which none is in another's way.

use std::{cell::Cell, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    args::{Measure, Settings},
    failure::Failures,
    load::{Tally, Watch},
    private::{Private, Scheduler},
    provider::Provider,
    read,
    report::{Record, Report, per_second},
    submit::{self, Until},
    target::Target,
    tasks,
};

/// A generation whose length nobody told is expected to take this long.
const GENERATION: Duration = Duration::from_secs(1);
/// Warm-ups, and tasks that are only made to be read, run at these numbers in flight.
const WARM_UP_IN_FLIGHT: usize = 64;
const SEED_IN_FLIGHT: usize = 512;

/// One deployment under measurement.
pub(super) struct Session<'a> {
    api: Arc<Target>,
    provider: Option<Provider>,
    private: Option<&'a Private>,
    settings: &'a Settings,
    stop: &'a CancellationToken,
    /// Over this session, warm-ups included: what PostgreSQL has to hold in the end.
    accepted: Cell<u64>,
    /// Submits without a 2xx answer, which may have been accepted all the same.
    unanswered: Cell<u64>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        api: Target,
        provider: Option<Provider>,
        private: Option<&'a Private>,
        settings: &'a Settings,
        stop: &'a CancellationToken,
    ) -> Self {
        let (accepted, unanswered) = (Cell::new(0), Cell::new(0));
        Self { api: Arc::new(api), provider, private, settings, stop, accepted, unanswered }
    }

    /// One submit run. `scheduler` is `None` where we do not know whether one runs.
    pub(super) async fn submit(
        &self,
        run: usize,
        scheduler: Option<Scheduler>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let variant = match scheduler {
            Some(Scheduler::On) => "scheduler on",
            Some(Scheduler::Off) => "scheduler off",
            None => "as deployed",
        };
        let connections = self.settings.connections;
        let warm_up = self.settings.warm_up;
        let warmed = self.flood("warm-up", connections.min(warm_up), Until::Sent(warm_up)).await?;
        refuse_failures(&warmed.0.failures, "the warm-up", report);
        if scheduler != Some(Scheduler::Off) {
            self.settle().await?;
        }
        if self.stop.is_cancelled() {
            return Ok(());
        }
        let before = self.outputs().await?;
        let label = format!("submit, {variant}, run {run} of {}", self.settings.runs);
        let (tally, elapsed) = self.flood(&label, connections, Until::Over(self.settings.duration)).await?;
        let after = self.outputs().await?;
        let mut record = Record::rate(Measure::Submit, variant, run, tally.answers, elapsed, tally.failures);
        if scheduler != Some(Scheduler::Off) {
            let finished = before.zip(after).map(|(before, after)| after.saturating_sub(before));
            record.more.finished_per_second_meanwhile =
                finished.map(|finished| per_second(finished, elapsed));
        }
        report.add(record);
        if self.private.is_none() {
            self.settle().await?;
        }
        Ok(())
    }

    /// End to end and start latency, then reads of what these left.
    pub(super) async fn follow_and_read(&self, report: &mut Report) -> anyhow::Result<()> {
        let warm_up = self.settings.warm_up;
        let (warmed, _) = self.follow("warm-up", WARM_UP_IN_FLIGHT.min(warm_up), warm_up).await?;
        refuse_failures(&warmed.failures, "the warm-up", report);
        let mut ids: Vec<String> = warmed.tasks.into_iter().map(|(id, _)| id).collect();
        for in_flight in self.settings.in_flight_runs() {
            for run in 1..=self.settings.runs {
                if !self.stop.is_cancelled() {
                    ids.extend(self.end_to_end(*in_flight, run, report).await?);
                }
            }
        }
        if self.settings.wants(Measure::Read) && !self.stop.is_cancelled() {
            self.reads(ids, report).await?;
        }
        Ok(())
    }

    /// One run with so many in flight; returns the ids of its tasks.
    async fn end_to_end(
        &self,
        in_flight: usize,
        run: usize,
        report: &mut Report,
    ) -> anyhow::Result<Vec<String>> {
        self.settle().await?;
        let variant = format!("{in_flight} in flight");
        let label = format!("end-to-end, {variant}, run {run} of {}", self.settings.runs);
        let (tally, elapsed) = self.follow(&label, in_flight, self.settings.tasks(in_flight)).await?;
        let memory = self.private.and_then(Private::rss_anon);
        let starts = match &self.provider {
            Some(provider) => Some(provider.starts(&tally.tasks, elapsed).await?),
            None => None,
        };
        if self.settings.wants(Measure::EndToEnd) {
            let accept = tally.answers.percentiles();
            let (ends, failures) = (tally.ends, tally.failures);
            let mut record = Record::rate(Measure::EndToEnd, &variant, run, ends, elapsed, failures);
            record.more.accept_ms = accept;
            record.more.rss_anon_bytes = memory;
            record.more.double_submits = starts.as_ref().map(|starts| starts.double_submits);
            report.add(record);
        } else {
            refuse_failures(&tally.failures, &label, report);
        }
        if let Some(starts) = starts.filter(|_| self.settings.wants(Measure::StartLatency)) {
            let mut failures = Failures::default();
            if starts.unseen > 0 {
                failures.add("start that the provider does not know".to_owned(), starts.unseen);
            }
            let latency = starts.latency;
            let mut record =
                Record::latency(Measure::StartLatency, &variant, run, latency, elapsed, failures);
            record.more.before_answer = Some(starts.before_answer);
            report.add(record);
        }
        Ok(tally.tasks.into_iter().map(|(id, _)| id).collect())
    }

    async fn reads(&self, mut ids: Vec<String>, report: &mut Report) -> anyhow::Result<()> {
        let wanted = self.settings.ids;
        if let Some(missing) = wanted.checked_sub(ids.len()).filter(|missing| *missing > 0) {
            let (tally, _) = self.follow("tasks to read", SEED_IN_FLIGHT.min(missing), missing).await?;
            refuse_failures(&tally.failures, "the tasks to read", report);
            ids.extend(tally.tasks.into_iter().map(|(id, _)| id));
        }
        ids.truncate(wanted);
        self.settle().await?;
        let many = format!("{} tasks", super::report::thousands(float(ids.len())));
        for (variant, ids) in [("one task".to_owned(), &ids[..ids.len().min(1)]), (many, &ids[..])] {
            for run in 1..=self.settings.runs {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                eprintln!("read, {variant}, run {run} of {} …", self.settings.runs);
                let watch = Watch::new(self.stop.clone());
                let (connections, duration) = (self.settings.connections, self.settings.duration);
                let (tally, elapsed) = read::reads(&self.api, ids, connections, duration, &watch).await?;
                let (answers, failures) = (tally.answers, tally.failures);
                report.add(Record::rate(Measure::Read, &variant, run, answers, elapsed, failures));
            }
        }
        Ok(())
    }

    async fn flood(
        &self,
        label: &str,
        connections: usize,
        until: Until,
    ) -> anyhow::Result<(Tally, Duration)> {
        eprintln!("{label} …");
        let watch = Watch::new(self.stop.clone());
        let run = submit::flood(&self.api, connections, until, &watch).await?;
        self.count(&run.0);
        Ok(run)
    }

    async fn follow(&self, label: &str, in_flight: usize, tasks: usize) -> anyhow::Result<(Tally, Duration)> {
        eprintln!("{label} …");
        let watch = Watch::new(self.stop.clone());
        let generation = self.settings.generation.unwrap_or(GENERATION);
        let run = tasks::follow(&self.api, in_flight, tasks, generation, &watch).await?;
        self.count(&run.0);
        Ok(run)
    }

    fn count(&self, tally: &Tally) {
        self.accepted.set(self.accepted.get() + tally.accepted);
        self.unanswered.set(self.unanswered.get() + tally.failures.total());
    }

    async fn outputs(&self) -> anyhow::Result<Option<u64>> {
        match &self.provider {
            Some(provider) => Ok(Some(provider.figures().await?.outputs)),
            None => Ok(None),
        }
    }

    /// Waits until earlier work is done, so that it is not measured with the next.
    async fn settle(&self) -> anyhow::Result<()> {
        let Some(provider) = &self.provider else { return Ok(()) };
        if !provider.settle(self.stop).await? && !self.stop.is_cancelled() {
            eprintln!("The provider is still busy after two minutes: the next figure is suspect.");
        }
        Ok(())
    }

    /// Adds what was accepted to the report, and compares it with what a PostgreSQL of ours holds: a 202 without its
    /// row would be a lie.
    pub(super) async fn close(&self, report: &mut Report) -> anyhow::Result<()> {
        let accepted = self.accepted.get();
        report.accepted += accepted;
        let Some(private) = self.private else { return Ok(()) };
        let stored = private.stored().await?;
        report.stored = Some(report.stored.unwrap_or(0) + stored);
        if !(accepted..=accepted + self.unanswered.get()).contains(&stored) {
            report.faults.push(format!("{accepted} tasks were accepted, but {stored} are stored"));
        }
        Ok(())
    }
}

/// Failures outside a figure have no line of the table.
fn refuse_failures(failures: &Failures, what: &str, report: &mut Report) {
    if failures.total() > 0 {
        report.faults.push(format!("{what} had errors: {failures}"));
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}
