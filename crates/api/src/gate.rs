//! Gates: how many may be inside at once, and how long the next one waits before it is told to come back.
//!
//! Overload is answered at once and honestly. A queue that only grows helps nobody: its callers have given up long
//! before their turn comes.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// A bounded number of places.
#[derive(Debug)]
pub(crate) struct Gate {
    name: &'static str,
    places: Arc<Semaphore>,
    wait_max: Duration,
}

/// A place behind a gate; dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Pass {
    _permit: OwnedSemaphorePermit,
}

impl Gate {
    pub(crate) fn new(name: &'static str, places: usize, wait_max: Duration) -> Self {
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { name, places, wait_max }
    }

    /// Takes a place, waiting for at most the gate's time.
    pub(crate) async fn pass(&self) -> Result<Pass, Problem> {
        if let Some(pass) = self.free() {
            return Ok(pass);
        }
        if !self.wait_max.is_zero() {
            let place = tokio::time::timeout(self.wait_max, Arc::clone(&self.places).acquire_owned()).await;
            if let Ok(Ok(permit)) = place {
                return Ok(Pass { _permit: permit });
            }
        }
        Err(self.full())
    }

    /// Takes a place if there is one now.
    pub(crate) fn try_pass(&self) -> Result<Pass, Problem> {
        self.free().ok_or_else(|| self.full())
    }

    fn free(&self) -> Option<Pass> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Pass { _permit: permit })
    }

    fn full(&self) -> Problem {
        metrics::counter!(domain::metric::GATE_REFUSED, "gate" => self.name).increment(1);
        Problem::unavailable("Too many requests are under way. Nothing was done; try again.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Code;

    #[tokio::test(start_paused = true)]
    async fn a_full_gate_refuses_after_its_time_and_opens_again() {
        let gate = Gate::new("test", 1, Duration::from_millis(200));
        let inside = gate.pass().await.unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(gate.pass().await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(begun.elapsed(), Duration::from_millis(200));
        drop(inside);
        assert!(gate.pass().await.is_ok());
    }
}
