//! What providers call about: telling the drivers, and how far calls can be relied upon.
//!
//! A callback lies in task-state's inbox until this loop tells its attempt's driver, which then looks. The loop comes
//! round by timer; a bell (rung by the HTTP side of this process, or by another process through Redis) makes it quick.
//!
//! Where callbacks have proved to come, looking by oneself becomes the fallback and slows down. One end that had to be
//! found that way is enough to look often again: nothing may rest on callbacks but speed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{AttemptRef, ProviderAccountId};

use crate::{
    loops::{Next, PassError},
    worker::Worker,
};

/// The address at which the provider account may report about an attempt, if there is any.
pub type CallbackUrl = Arc<dyn Fn(&ProviderAccountId, AttemptRef) -> Option<String> + Send + Sync>;

/// Callbacks told together.
const BATCH: usize = 256;
/// Ends in a row that a callback brought, before looking slows down.
const PROOFS: u32 = 3;

/// Tells the drivers of this worker what has come for their attempts.
pub(crate) async fn pass(worker: &Worker) -> Result<Next, PassError> {
    let called = worker.task_state.tell(&worker.id, i64::try_from(BATCH)?).await?;
    for call in &called {
        for owned in worker.holdings.of_task(call.attempt.task) {
            if owned.name() == call.attempt {
                owned.called_back(call.says_ended);
            }
        }
    }
    Ok(if called.len() < BATCH { Next::Timer } else { Next::In(Duration::ZERO) })
}

/// How far the callbacks of each account can be relied upon, as this worker has seen.
#[derive(Debug, Default)]
pub(crate) struct CallbackTrust(Mutex<HashMap<ProviderAccountId, u32>>);

impl CallbackTrust {
    /// A callback led to the look that saw a job's end.
    pub(crate) fn brought_an_end(&self, account: &ProviderAccountId) {
        let mut proofs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(proofs) = proofs.get_mut(account) {
            *proofs = (*proofs + 1).min(PROOFS);
        } else {
            proofs.insert(account.clone(), 1);
        }
    }

    /// A job's end was found by a look that had been put off because callbacks were expected.
    pub(crate) fn missed_an_end(&self, account: &ProviderAccountId) {
        tracing::info!(%account, "an end was not called about; jobs of this account are looked at often again");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(account);
    }

    /// Whether looking by oneself is only the fallback.
    pub(crate) fn is_earned(&self, account: &ProviderAccountId) -> bool {
        let proofs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        proofs.get(account).is_some_and(|proofs| *proofs >= PROOFS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_earned_by_several_ends_and_lost_by_one() {
        let (trust, account) = (CallbackTrust::default(), "mock".parse().unwrap());
        for _ in 0..2 {
            trust.brought_an_end(&account);
            assert!(!trust.is_earned(&account));
        }
        for _ in 0..100 {
            trust.brought_an_end(&account);
            assert!(trust.is_earned(&account));
        }
        assert!(!trust.is_earned(&"another".parse().unwrap()), "accounts are judged one by one");
        trust.missed_an_end(&account);
        assert!(!trust.is_earned(&account));
        trust.brought_an_end(&account);
        assert!(!trust.is_earned(&account), "old proofs do not count again");
    }
}
