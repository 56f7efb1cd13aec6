//! The read figure: `GET /tasks/{id}`, of one task or of many.

use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use http::Uri;

use super::{
    connection::Connection,
    load::{self, Tally, Watch},
    target::Target,
};

/// Reads tasks picked at random, over so many connections and for so long.
pub(super) async fn reads(
    target: &Arc<Target>,
    ids: &[String],
    connections: usize,
    duration: Duration,
    watch: &Watch,
) -> anyhow::Result<(Tally, Duration)> {
    let paths: Vec<Uri> = ids.iter().map(|id| path(id)).collect::<Result<_, _>>().context("a task's id")?;
    anyhow::ensure!(!paths.is_empty(), "there is no task to read");
    let (target, seen) = (Arc::clone(target), watch.clone());
    let from = Instant::now();
    let worker = async move |_: usize, tally: &RefCell<Tally>| {
        let mut connection = Connection::new(Arc::clone(&target));
        while from.elapsed() < duration && seen.goes_on() {
            let request = target.get(&paths[rand::random_range(0..paths.len())]);
            let from = Instant::now();
            let answer = connection.ask(request).await;
            seen.note(from, answer, tally).await;
        }
    };
    load::run(connections, watch, worker).await
}

/// Where a task is read.
pub(super) fn path(id: &str) -> Result<Uri, http::uri::InvalidUri> {
    format!("/tasks/{id}").parse()
}
