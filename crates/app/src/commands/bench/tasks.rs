//! The end-to-end figure: so many tasks at a time, each from its submit until it is read as SUCCEEDED.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use domain::clock::{Clock, SystemClock};
use serde::Deserialize;

use super::{
    connection::Connection,
    failure::Failure,
    load::{self, Tally, Watch},
    read::path,
    submit::Submits,
    target::Target,
};

/// What a task may take.
const END_MAX: Duration = Duration::from_secs(60);
/// Up to this many in flight a run looks for latency, and reads early and often; beyond it for saturation, where
/// reads would only take the machine from the work.
const LATENCY_IN_FLIGHT_MAX: usize = 128;

/// When a task is read first, and how often from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    first: Duration,
    every: Duration,
}

impl Pace {
    fn of(in_flight: usize, generation: Duration) -> Self {
        if in_flight <= LATENCY_IN_FLIGHT_MAX {
            Self { first: generation, every: Duration::from_millis(25) }
        } else {
            Self { first: generation * 3 / 2, every: Duration::from_millis(100) }
        }
    }
}

/// Follows `tasks` tasks to their end, `in_flight` at a time. A generation is expected to take about `generation`.
pub(super) async fn follow(
    target: &Arc<Target>,
    in_flight: usize,
    tasks: usize,
    generation: Duration,
    watch: &Watch,
) -> anyhow::Result<(Tally, Duration)> {
    let (target, submits, seen) = (Arc::clone(target), Submits::new(Arc::clone(target)), watch.clone());
    let pace = Pace::of(in_flight, generation);
    let next = AtomicUsize::new(0);
    let worker = async move |worker: usize, tally: &RefCell<Tally>| {
        let mut connection = Connection::new(Arc::clone(&target));
        for number in 0.. {
            if next.fetch_add(1, Relaxed) >= tasks || !seen.goes_on() {
                return;
            }
            let request = submits.request(worker, number);
            let from = Instant::now();
            let answer = connection.ask(request).await;
            let accepted = from.elapsed();
            // The wall clock, because the provider's arrivals are told by it.
            let at_us = SystemClock.now().timestamp_micros();
            let ended = match answer {
                Ok(body) => {
                    tally.borrow_mut().answers.record(accepted);
                    tally.borrow_mut().accepted += 1;
                    end(&target, &mut connection, &body, from, pace, &seen).await
                }
                Err(failure) => Err(failure),
            };
            match ended {
                Ok(Some(id)) => {
                    seen.done();
                    let mut tally = tally.borrow_mut();
                    tally.ends.record(from.elapsed());
                    tally.tasks.push((id, at_us));
                }
                Ok(None) => return,
                Err(failure) => seen.failed(failure, tally).await,
            }
        }
    };
    load::run(in_flight, watch, worker).await
}

/// Waits for a task's end; `None` when the run was broken off before.
async fn end(
    target: &Target,
    connection: &mut Connection,
    accepted: &Bytes,
    from: Instant,
    pace: Pace,
    watch: &Watch,
) -> Result<Option<String>, Failure> {
    #[derive(Deserialize)]
    struct Accepted {
        task_id: String,
    }
    #[derive(Deserialize)]
    struct Task {
        status: String,
    }
    let Ok(Accepted { task_id }) = serde_json::from_slice(accepted) else {
        return Err(Failure::NotUnderstood("a task_id"));
    };
    let path = path(&task_id).map_err(|_| Failure::NotUnderstood("a usable task_id"))?;
    watch.pause(pace.first).await;
    while watch.goes_on() {
        let body = connection.ask(target.get(&path)).await?;
        let Ok(Task { status }) = serde_json::from_slice(&body) else {
            return Err(Failure::NotUnderstood("a status"));
        };
        match status.as_str() {
            "SUCCEEDED" => return Ok(Some(task_id)),
            "FAILED" | "CANCELED" => return Err(Failure::Ended(status)),
            _ if from.elapsed() > END_MAX => return Err(Failure::NoEnd),
            _ => watch.pause(pace.every).await,
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tasks_are_read_often_and_many_seldom() {
        let ms = Duration::from_millis;
        assert_eq!(Pace::of(64, ms(200)), Pace { first: ms(200), every: ms(25) });
        assert_eq!(Pace::of(512, ms(200)), Pace { first: ms(300), every: ms(100) });
    }
}
