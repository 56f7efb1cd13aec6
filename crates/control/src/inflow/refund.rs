//! Giving back what a request was charged, when something later refused it without doing any work.

use super::admit::check_args;
use crate::{Control, ControlError, InflowCharge, script::Script};

impl Control {
    /// Gives back what these charges took: tokens, never above a bucket's capacity, and entries of windows. The address's
    /// counter stays. Hand in what [`InflowCharge::charged`] says.
    ///
    /// # Errors
    /// When control cannot be reached; all of it then comes back by time.
    pub async fn refund(&self, charges: &[InflowCharge]) -> Result<(), ControlError> {
        let calls = charges.iter().filter(|charge| !charge.checks.is_empty()).map(|charge| {
            let keys: Vec<_> = self.check_keys(charge).collect();
            check_args(Script::InflowRefund.on(&keys), charge)
        });
        self.0.control.calls_done(calls.collect()).await
    }
}
