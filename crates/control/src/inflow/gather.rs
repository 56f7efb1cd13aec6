//! Callers that come together share one pipeline.

/// Gathers callers.
pub(crate) struct Gatherer;

impl Gatherer {
    pub(crate) fn new(waiting_max: usize) -> Self {
        let _ = waiting_max;
        Self
    }
}
