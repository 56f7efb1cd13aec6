//! Telling what limits in shadow mode would have refused.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use domain::complaints::Complaints;

use super::Shadow;
use crate::Tenancy;

/// Rules that are remembered at most; there are hardly ever more than a few in shadow.
const RULES_MAX: usize = 1_000;

/// When each rule was told of last.
#[derive(Debug, Default)]
pub(crate) struct ShadowLog(Mutex<HashMap<String, Complaints>>);

impl Tenancy {
    /// Notes that a limit in shadow mode would have refused a request: a line in the log now and then, for each rule. Its
    /// counter is the business of whoever asked the limit.
    pub fn tell_shadow(&self, shadow: &Shadow) {
        let name = format!("{} {}", shadow.subject, shadow.limit);
        let mut told = self.caches.shadows.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= RULES_MAX && !told.contains_key(&name) {
            told.clear();
        }
        let silent = told.entry(name).or_default().complain(Instant::now());
        drop(told);
        if let Some(silent) = silent {
            tracing::info!(
                subject = %shadow.subject,
                limit = %shadow.limit,
                silent,
                "a limit in shadow mode would have refused a request"
            );
        }
    }
}
