//! The ledger: owner of every credit row.
//!
//! A credit lies in one bucket of one grant of one account, and moves only as the effect of a task transition, a
//! recorded operator action, a signed payment or an expiry, inside the transaction of that cause. Each movement
//! leaves a row in `credit_ledger` under a unique key (cause, kind, grant), so an effect that is tried again finds
//! itself done.
//!
//! Verbs: [`open_account`], [`grant()`], [`hold`] (lock, decide in memory, write), [`settle()`] (capture or release),
//! [`open`] (kept counts of open tasks), [`Ledger::balance`], [`audit()`].

pub mod account;
pub mod audit;
pub mod balance;
pub mod grant;
pub mod hold;
pub mod open;
pub mod settle;

pub use account::{AccountOwner, open_account};
pub use audit::audit;
pub use balance::{Balance, Ledger};
pub use grant::{GrantOutcome, NewGrant, grant};
pub use hold::{Funds, Insufficient, lock, write_holds};
pub use open::{Full, OpenCounts, Subject, end_open, lock_open, write_open};
pub use settle::{Settlement, SettlementKind, settle};
