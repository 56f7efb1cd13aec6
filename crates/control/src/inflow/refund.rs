//! Giving back what a request was charged, when something later refused it without doing any work.

use super::admit::bucket_args;
use crate::{Control, ControlError, InflowCharge, script::Script};

impl Control {
    /// Puts the tokens of these charges back, never above a bucket's capacity. The address's counter stays.
    ///
    /// # Errors
    /// When control cannot be reached; the tokens then come back by time.
    pub async fn refund(&self, charges: &[InflowCharge]) -> Result<(), ControlError> {
        let calls = charges.iter().filter(|charge| !charge.checks.is_empty()).map(|charge| {
            let keys: Vec<_> = self.bucket_keys(charge).collect();
            bucket_args(Script::InflowRefund.on(&keys), charge)
        });
        self.0.control.calls_done(calls.collect()).await
    }
}
