//! Which adapter serves which account.

use std::{collections::BTreeMap, fmt, sync::Arc};

use domain::ids::ProviderAccountId;

use crate::{measured::Measured, provider::Provider};

/// Two adapters claim one account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider account {0} is configured twice")]
pub struct DuplicateAccount(pub ProviderAccountId);

/// All adapters of this process, by account. Clones are cheap. An account that is closed for new work stays in
/// here as long as it has jobs: only the adapter that made a job may ask about it.
#[derive(Clone, Default)]
pub struct Providers(Arc<BTreeMap<ProviderAccountId, Arc<dyn Provider>>>);

impl Providers {
    /// Files the adapters under their accounts; from here on every call of theirs is measured.
    ///
    /// # Errors
    /// When two serve the same.
    pub fn new(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Result<Self, DuplicateAccount> {
        let mut by_account = BTreeMap::new();
        for provider in providers {
            let account = provider.account().clone();
            let measured: Arc<dyn Provider> = Arc::new(Measured::new(provider));
            if by_account.insert(account.clone(), measured).is_some() {
                return Err(DuplicateAccount(account));
            }
        }
        Ok(Self(Arc::new(by_account)))
    }

    /// The adapter of an account.
    #[must_use]
    pub fn get(&self, account: &ProviderAccountId) -> Option<Arc<dyn Provider>> {
        self.0.get(account).cloned()
    }

    /// All accounts, in order.
    pub fn accounts(&self) -> impl Iterator<Item = &ProviderAccountId> {
        self.0.keys()
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
