//! The ledger: owner of every credit row.
//!
//! A credit lies in one bucket of one grant of one account, and moves only as the effect of a task transition, a
//! recorded operator action, a signed payment or an expiry, inside the transaction of that cause. Each movement
//! leaves a row in `credit_ledger` under a unique key (cause, kind, grant), so an effect that is tried again finds
//! itself done.
//!
//! Verbs: [`open_account`], [`grant()`], [`admission`] (lock, decide in memory by [`hold`], [`open`] and [`quota`],
//! write), [`settle()`] (capture or release, count out, give back),
//! [`Ledger::balance`], [`Ledger::quota`], [`audit()`], [`retire_windows`].

pub mod account;
pub mod admission;
pub mod audit;
pub mod balance;
mod expect;
pub mod grant;
pub mod hold;
pub mod open;
pub mod quota;
pub mod settle;

pub use account::{AccountOwner, open_account};
pub use admission::{Admission, AdmissionColumns, AdmissionLocks, LockedRow, lock_admission};
pub use audit::audit;
pub use balance::{Balance, Ledger};
pub use expect::{Seen, is_otherwise};
pub use grant::{GrantOutcome, NewGrant, grant};
pub use hold::{Funds, Insufficient};
pub use open::{Full, OpenCounts, Subject};
pub use quota::{DailyQuota, QuotaStanding, QuotaWindow, QuotaWindows, retire_windows};
pub use settle::{Ended, Settlement, SettlementKind, settle};
