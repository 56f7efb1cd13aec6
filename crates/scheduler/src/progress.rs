//! Showing progress to whoever watches.
//!
//! Progress is no fact: it lives in Redis only, and losing some is harmless. Every look at a job may bring a new figure,
//! so what came together since the last time is sent in one go, and only the latest figure of each task.

use std::collections::HashMap;

use control::{Change, Progress};
use domain::{TaskId, TenantId};
use tokio::sync::mpsc;

use crate::{owned::Owned, worker::Worker};

/// Figures that may wait to be sent; more are dropped.
const WAITING_MAX: usize = 8_192;
/// Sent together at most.
const BATCH_MAX: usize = 512;

/// One figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    tenant: TenantId,
    task: TaskId,
    progress: Progress,
}

/// Where figures are handed in.
#[derive(Debug)]
pub(crate) struct Shown(mpsc::Sender<Figure>);

impl Shown {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Figure>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Shows how far an attempt's job is, in percent.
    pub(crate) fn show(&self, owned: &Owned, percent: u8) {
        let progress = Progress { version: owned.version(), percent };
        // A full buffer loses a figure that the next look replaces.
        let _ = self.0.try_send(Figure { tenant: owned.lease.tenant, task: owned.lease.task, progress });
    }
}

/// Sends figures until the worker stops.
pub(crate) async fn run(worker: &Worker, mut shown: mpsc::Receiver<Figure>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    loop {
        tokio::select! {
            () = worker.stopping.cancelled() => return,
            _ = shown.recv_many(&mut batch, BATCH_MAX) => send(worker, latest(batch.drain(..))).await,
        }
    }
}

fn latest(batch: impl Iterator<Item = Figure>) -> Vec<Figure> {
    let mut latest: HashMap<TaskId, Figure> = HashMap::new();
    for figure in batch {
        let known = latest.entry(figure.task).or_insert(figure);
        if figure.progress > known.progress {
            *known = figure;
        }
    }
    latest.into_values().collect()
}

async fn send(worker: &Worker, figures: Vec<Figure>) {
    let progress: Vec<_> = figures.iter().map(|figure| (figure.task, figure.progress)).collect();
    let news = match worker.control.set_progress(&progress).await {
        Ok(news) => news,
        Err(error) => {
            tracing::debug!(%error, "progress was not stored");
            vec![true; figures.len()]
        }
    };
    let changes: Vec<_> = figures
        .into_iter()
        .zip(news)
        .filter(|(_, new)| *new)
        .map(|(Figure { tenant, task, progress }, _)| Change {
            tenant,
            task,
            version: progress.version,
            kind: "progress".to_owned(),
            progress: Some(progress.percent),
        })
        .collect();
    if !changes.is_empty()
        && let Err(error) = worker.control.publish(&changes).await
    {
        tracing::debug!(%error, "progress was not published");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_figure_of_each_task_is_sent() {
        let (tenant, task) = (TenantId::generate(), TaskId::generate());
        let figure =
            |task, version, percent| Figure { tenant, task, progress: Progress { version, percent } };
        let batch =
            [figure(task, 4, 20), figure(task, 5, 10), figure(task, 4, 90), figure(TaskId::generate(), 3, 1)];
        let sent = latest(batch.into_iter());
        assert_eq!(sent.len(), 2);
        let sent = sent.iter().find(|figure| figure.task == task).unwrap();
        assert_eq!(sent.progress, Progress { version: 5, percent: 10 });
    }
}
