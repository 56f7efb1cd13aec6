//! The rules as this process knows them: at most as old as everything else that it remembers of who is who.
//!
//! They are read as a whole, by whoever asks first after their time; callers at the same moment share one read. Where
//! they are asked for all the time, a read in the background comes before that, so that nobody waits for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pg::{PgError, PgPool};

use super::{RuleBook, rows};
use crate::dated::{Dated, Memory};

/// The rules of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LiveRules {
    pool: PgPool,
    shared: Arc<Shared>,
}

struct Shared {
    known: Memory<(), Arc<RuleBook>>,
    /// From this age on they are read again behind the callers' backs.
    age_soft: Duration,
    reading: AtomicBool,
}

impl LiveRules {
    pub(crate) fn new(pool: PgPool, age_max: Duration) -> Self {
        let known = Memory::new(1, age_max);
        let shared = Shared { known, age_soft: age_max / 2, reading: AtomicBool::new(false) };
        Self { pool, shared: Arc::new(shared) }
    }

    /// The same rules, read by other connections.
    pub(crate) fn beside(&self, pool: PgPool) -> Self {
        Self { pool, shared: Arc::clone(&self.shared) }
    }

    /// Every rule.
    pub(crate) async fn get(&self) -> Result<Arc<RuleBook>, Arc<PgError>> {
        if let Some(known) = self.shared.known.get(&()).await {
            if known.asked_at.elapsed() >= self.shared.age_soft
                && !self.shared.reading.swap(true, Ordering::AcqRel)
            {
                let rules = self.clone();
                tokio::spawn(async move { rules.read_ahead().await });
            }
            return Ok(known.value);
        }
        let known = self.shared.known.get_or_read(&(), || self.read()).await?;
        Ok(known.value)
    }

    /// Drops what is known: called after the commit of a change, so that this process sees it at once.
    pub(crate) async fn forget(&self) {
        self.shared.known.forget(&()).await;
    }

    async fn read_ahead(&self) {
        // However it ends, also with its event loop: the next one may begin.
        let _reading = Reading(&self.shared.reading);
        match Dated::ask(self.read()).await {
            Ok(known) => self.shared.known.learn((), known).await,
            // Whoever comes after their time is told.
            Err(error) => tracing::debug!(%error, "the limit rules could not be read ahead of time"),
        }
    }

    async fn read(&self) -> Result<Arc<RuleBook>, PgError> {
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        let rules = rows::all_limit_rules(&mut conn).await?;
        Ok(Arc::new(RuleBook::new(rules)))
    }
}

/// A read in the background that is under way.
struct Reading<'a>(&'a AtomicBool);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
