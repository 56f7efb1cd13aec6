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

use moka::future::Cache;
use pg::{PgError, PgPool};

use super::{RuleBook, rows};
use crate::dated::{self, Dated};

/// The rules of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LiveRules(Arc<Shared>);

struct Shared {
    pool: PgPool,
    known: Cache<(), Dated<Arc<RuleBook>>>,
    /// From this age on they are read again behind the callers' backs.
    age_soft: Duration,
    reading: AtomicBool,
}

impl LiveRules {
    pub(crate) fn new(pool: PgPool, age_max: Duration) -> Self {
        let known = dated::memory(1, age_max);
        Self(Arc::new(Shared { pool, known, age_soft: age_max / 2, reading: AtomicBool::new(false) }))
    }

    /// Every rule.
    pub(crate) async fn get(&self) -> Result<Arc<RuleBook>, Arc<PgError>> {
        if let Some(known) = self.0.known.get(&()).await {
            if known.asked_at.elapsed() >= self.0.age_soft && !self.0.reading.swap(true, Ordering::AcqRel) {
                let rules = self.clone();
                tokio::spawn(async move { rules.read_ahead().await });
            }
            return Ok(known.value);
        }
        let known = self.0.known.try_get_with((), Dated::ask(self.read())).await?;
        Ok(known.value)
    }

    /// Drops what is known: called after the commit of a change, so that this process sees it at once.
    pub(crate) async fn forget(&self) {
        self.0.known.invalidate(&()).await;
    }

    async fn read_ahead(&self) {
        match Dated::ask(self.read()).await {
            Ok(known) => self.0.known.insert((), known).await,
            // Whoever comes after their time is told.
            Err(error) => tracing::debug!(%error, "the limit rules could not be read ahead of time"),
        }
        self.0.reading.store(false, Ordering::Release);
    }

    async fn read(&self) -> Result<Arc<RuleBook>, PgError> {
        let mut conn = self.0.pool.acquire().await.map_err(PgError::from)?;
        let rules = rows::all_limit_rules(&mut conn).await?;
        Ok(Arc::new(RuleBook::new(rules)))
    }
}
