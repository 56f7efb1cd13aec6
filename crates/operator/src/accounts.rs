//! Looking at the provider accounts: whether they may be used, and where their breakers stand.

use catalogue::{Catalogue, Intent, Subject};
use control::{AccountBreaker, Control};
use domain::ProviderAccountId;

use crate::OperatorError;

/// A provider account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountSeen {
    /// Its name.
    pub account: ProviderAccountId,
    /// Jobs that it may have of ours at once.
    pub slots: u32,
    /// Where its breaker stands.
    pub breaker: AccountBreaker,
    /// What an operator intends with it.
    pub intent: Option<Intent>,
}

/// Every account that is configured, by name.
///
/// # Errors
/// When a store fails.
pub async fn look_at_accounts(
    control: &Control,
    catalogue: &Catalogue,
    intents: Vec<Intent>,
) -> Result<Vec<AccountSeen>, OperatorError> {
    let accounts: Vec<_> = catalogue.accounts().cloned().collect();
    let ids: Vec<_> = accounts.iter().map(|account| account.id.clone()).collect();
    let breakers = control.account_breakers(&ids).await?;
    let seen = accounts.iter().zip(breakers).map(|(account, breaker)| {
        let subject = Subject::Account(account.id.clone());
        let intent = intents.iter().find(|intent| intent.subject == subject).cloned();
        AccountSeen { account: account.id.clone(), slots: account.slots, breaker, intent }
    });
    Ok(seen.collect())
}
